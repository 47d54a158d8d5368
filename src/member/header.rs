//! The header of a slab: what the slab says of itself.
//!
//! The set table is the truth; headers serve examination, rescue, and finding writes that went to the
//! wrong place. A set's number is never used again, so it also tells one use of a slab from the next.
//!
//! One sector, integers little-endian:
//!
//! | offset | bytes | what | guards against |
//! | --- | --- | --- | --- |
//! | 0 | 8 | `POOLFSSL` | taking foreign bytes for a slab |
//! | 8 | 4 | format version | reading a future format |
//! | 12 | 4 | CRC-32C of the sector, with this field zero | rot, torn writes |
//! | 16 | 16 | the pool's UUID | slabs of an earlier pool |
//! | 32 | 8 | set | an earlier use of the slab |
//! | 40 | 4 | the slab's number on its member | writes to the wrong slab |
//! | 44 | 2 | member | writes to the wrong member |
//! | 46 | 2 | slot of the set | swapped slots |
//! | 48 | | zeros | |

use uuid::Uuid;

use super::superblock::{FORMAT_VERSION, MemberId, SetId};
use super::{AlignedBuf, SLAB_HEADER_BYTES, SlabNo};

const MAGIC: [u8; 8] = *b"POOLFSSL";
const HEADER_LEN: usize = SLAB_HEADER_BYTES as usize;
const CRC_AT: usize = 12;

/// Who a slab belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabHeader {
    /// The pool.
    pub pool: Uuid,
    /// The set.
    pub set: SetId,
    /// Which of the set's slots this is, from 0.
    pub slot: u16,
    /// The member it was made on.
    pub member: MemberId,
    /// Its number there.
    pub slab: SlabNo,
}

/// Why a sector is no slab header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Never written, or not by poolfs.
    #[error("no slab header")]
    Missing,
    /// Was a header once.
    #[error("the slab header is damaged (checksum)")]
    Damaged,
    /// A format from the future.
    #[error("the slab header has format {0}, newer than this program")]
    Newer(u32),
}

impl SlabHeader {
    /// The header's sector.
    pub fn encode(&self) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(HEADER_LEN);
        buf[..8].copy_from_slice(&MAGIC);
        buf[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        buf[16..32].copy_from_slice(self.pool.as_bytes());
        buf[32..40].copy_from_slice(&self.set.to_le_bytes());
        buf[40..44].copy_from_slice(&self.slab.to_le_bytes());
        buf[44..46].copy_from_slice(&self.member.to_le_bytes());
        buf[46..48].copy_from_slice(&self.slot.to_le_bytes());
        let crc = crc32c::crc32c(&buf);
        buf[CRC_AT..16].copy_from_slice(&crc.to_le_bytes());
        buf
    }

    /// Reads a header from the first sector of a slab.
    ///
    /// # Errors
    /// [`HeaderError`], one variant for each reason.
    pub fn decode(sector: &[u8]) -> Result<Self, HeaderError> {
        let Some(sector) = sector.get(..HEADER_LEN) else {
            return Err(HeaderError::Missing);
        };
        if sector[..8] != MAGIC {
            return Err(HeaderError::Missing);
        }
        let crc = crc32c::crc32c(&sector[..CRC_AT]);
        let crc = crc32c::crc32c_append(crc, &[0; 4]);
        let crc = crc32c::crc32c_append(crc, &sector[16..]);
        if crc != u32::from_le_bytes(field(sector, CRC_AT)) {
            return Err(HeaderError::Damaged);
        }
        let version = u32::from_le_bytes(field(sector, 8));
        if version > FORMAT_VERSION {
            return Err(HeaderError::Newer(version));
        }
        Ok(Self {
            pool: Uuid::from_bytes(field(sector, 16)),
            set: u64::from_le_bytes(field(sector, 32)),
            slab: u32::from_le_bytes(field(sector, 40)),
            member: u16::from_le_bytes(field(sector, 44)),
            slot: u16::from_le_bytes(field(sector, 46)),
        })
    }
}

/// `N` bytes of `bytes` from `at`; the caller knows that they are there.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SlabHeader {
        SlabHeader { pool: Uuid::from_u128(0x1234_5678), set: 99, slot: 3, member: 7, slab: 65_000 }
    }

    #[test]
    fn headers_come_back() {
        assert_eq!(SlabHeader::decode(&header().encode()), Ok(header()));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let good = header().encode();
        for bit in (0..good.len() * 8).step_by(7).chain(0..48 * 8) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SlabHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn short_empty_and_newer_sectors_are_told_apart() {
        assert_eq!(SlabHeader::decode(&[]), Err(HeaderError::Missing));
        assert_eq!(SlabHeader::decode(&[0; 4096]), Err(HeaderError::Missing));
        let mut newer = header().encode();
        newer[8..12].copy_from_slice(&9u32.to_le_bytes());
        newer[CRC_AT..16].fill(0);
        let crc = crc32c::crc32c(&newer);
        newer[CRC_AT..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SlabHeader::decode(&newer), Err(HeaderError::Newer(9)));
    }
}
