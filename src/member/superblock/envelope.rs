//! The bytes of one superblock copy: an envelope that says what follows, and the payload.
//!
//! The envelope, integers little-endian. Its layout is the same in every future format, so that an old
//! program can tell a newer format from damage:
//!
//! | offset | bytes | what | guards against |
//! | --- | --- | --- | --- |
//! | 0 | 8 | `POOLFSSB` | taking foreign bytes for a superblock |
//! | 8 | 4 | format version | reading a future format |
//! | 12 | 4 | bytes of the payload | |
//! | 16 | 4 | CRC-32C of the payload | rot, and writes torn after the first sector |
//! | 20 | 4 | CRC-32C of the envelope, with this field zero | rot, torn writes |
//! | 24 | 8 | sequence: the higher of two valid copies counts | |
//! | 32 | 8 | incompatible features | misreading what a feature changed |
//! | 40 | 24 | zeros | |
//! | 64 | | the payload: [`Superblock`] as `wire` encodes it, padded to a sector | |

use super::super::error::{MemberError, Result};
use super::super::header::field;
use super::super::{AlignedBuf, wire};
use super::{FEATURES_KNOWN, FORMAT_VERSION, Superblock};
use crate::limits::SUPERBLOCK_COPY_BYTES;
use crate::units::SECTOR_LEN;

const MAGIC: [u8; 8] = *b"POOLFSSB";
/// Bytes of the envelope; the payload follows.
pub(super) const ENVELOPE_LEN: usize = 64;
const CRC_AT: usize = 20;
const PAYLOAD_MAX: usize = SUPERBLOCK_COPY_BYTES as usize - ENVELOPE_LEN;

const _: () = assert!(ENVELOPE_LEN < SECTOR_LEN && PAYLOAD_MAX < wire::LIMIT_BYTES);

/// Whether bytes that may be both copies, one after the other, bear the mark of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Marks {
    /// Neither copy does.
    None,
    /// At least one does, valid or not.
    Superblock,
}

/// Looks for the mark of a superblock in `bytes`: copy A from 0, and copy B after it, as far as they go.
pub(in super::super) fn marks(bytes: &[u8]) -> Marks {
    let marked = |at: usize| bytes.get(at..at + MAGIC.len()) == Some(&MAGIC);
    if marked(0) || marked(SUPERBLOCK_COPY_BYTES as usize) { Marks::Superblock } else { Marks::None }
}

/// What the envelope of a copy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Envelope {
    version: u32,
    payload_len: usize,
    payload_crc: u32,
    sequence: u64,
    features: u64,
}

/// What the first sector of a copy turned out to be.
pub(super) enum Opened {
    /// No superblock was ever written here.
    Nothing,
    /// One was, but this is not it any more.
    Damaged(&'static str),
    /// An envelope that is what was written.
    Valid(Envelope),
}

impl Envelope {
    pub(super) fn open(sector: &[u8]) -> Opened {
        let Some(bytes) = sector.get(..ENVELOPE_LEN) else {
            return Opened::Nothing;
        };
        if bytes[..8] != MAGIC {
            return Opened::Nothing;
        }
        let envelope = Self {
            version: u32::from_le_bytes(field(bytes, 8)),
            payload_len: u32::from_le_bytes(field(bytes, 12)) as usize,
            payload_crc: u32::from_le_bytes(field(bytes, 16)),
            sequence: u64::from_le_bytes(field(bytes, 24)),
            features: u64::from_le_bytes(field(bytes, 32)),
        };
        if envelope.to_bytes() != bytes {
            return Opened::Damaged("the envelope's checksum does not match");
        }
        if envelope.payload_len > PAYLOAD_MAX {
            return Opened::Damaged("the length is impossible");
        }
        Opened::Valid(envelope)
    }

    fn to_bytes(self) -> [u8; ENVELOPE_LEN] {
        let mut bytes = [0; ENVELOPE_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.payload_len as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.features.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes[CRC_AT..24].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Bytes of the copy in use, envelope included.
    pub(super) fn copy_len(&self) -> usize {
        ENVELOPE_LEN + self.payload_len
    }

    /// Refuses what this program must not interpret.
    pub(super) fn check_known(&self, path: &str) -> Result<()> {
        if self.version > FORMAT_VERSION {
            let path = path.to_owned();
            return Err(MemberError::NewerFormat { path, found: self.version, known: FORMAT_VERSION });
        }
        let unknown = self.features & !FEATURES_KNOWN;
        if unknown != 0 {
            return Err(MemberError::UnknownFeatures { path: path.to_owned(), unknown });
        }
        Ok(())
    }

    /// The superblock of a copy whose envelope this is, or why it is damaged.
    pub(super) fn unpack(&self, copy: &[u8]) -> std::result::Result<Superblock, String> {
        let payload = copy.get(ENVELOPE_LEN..self.copy_len()).ok_or("it is cut off")?;
        if crc32c::crc32c(payload) != self.payload_crc {
            return Err("the checksum does not match".to_owned());
        }
        let superblock: Superblock = wire::decode(payload).map_err(|e| e.to_string())?;
        if superblock.sequence != self.sequence || superblock.features != self.features {
            return Err("envelope and content contradict each other".to_owned());
        }
        superblock.validate()?;
        Ok(superblock)
    }
}

impl Superblock {
    /// The bytes of a copy, padded to whole sectors.
    ///
    /// # Errors
    /// [`MemberError::SuperblockTooLarge`] when they exceed [`SUPERBLOCK_COPY_BYTES`], and
    /// [`MemberError::InvalidSuperblock`] when the content could not be read back.
    pub fn encode(&self) -> Result<AlignedBuf> {
        self.validate().map_err(|why| MemberError::InvalidSuperblock { pool: self.pool, why })?;
        let payload = wire::encode(self);
        if payload.len() > PAYLOAD_MAX {
            let bytes = (payload.len() + ENVELOPE_LEN) as u64;
            return Err(MemberError::SuperblockTooLarge { pool: self.pool, bytes });
        }
        let envelope = Envelope {
            version: FORMAT_VERSION,
            payload_len: payload.len(),
            payload_crc: crc32c::crc32c(&payload),
            sequence: self.sequence,
            features: self.features,
        };
        let mut buf = AlignedBuf::zeroed(envelope.copy_len());
        buf[..ENVELOPE_LEN].copy_from_slice(&envelope.to_bytes());
        buf[ENVELOPE_LEN..envelope.copy_len()].copy_from_slice(&payload);
        Ok(buf)
    }

    /// Reads one copy. `path` is for the error.
    ///
    /// # Errors
    /// [`MemberError::NoSuperblock`], [`MemberError::DamagedSuperblock`], [`MemberError::NewerFormat`] or
    /// [`MemberError::UnknownFeatures`].
    pub fn decode(path: &str, copy: &[u8]) -> Result<Self> {
        let damaged = |why: String| MemberError::DamagedSuperblock { path: path.to_owned(), why };
        match Envelope::open(copy) {
            Opened::Nothing => Err(MemberError::NoSuperblock { path: path.to_owned() }),
            Opened::Damaged(why) => Err(damaged(why.to_owned())),
            Opened::Valid(envelope) => {
                envelope.check_known(path)?;
                envelope.unpack(copy).map_err(damaged)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{random_bytes, sample};
    use super::*;

    /// Puts the right checksum on an envelope that a test has changed.
    fn reseal(copy: &mut [u8]) {
        copy[CRC_AT..24].fill(0);
        let crc = crc32c::crc32c(&copy[..ENVELOPE_LEN]);
        copy[CRC_AT..24].copy_from_slice(&crc.to_le_bytes());
    }

    #[test]
    fn superblocks_come_back() {
        let sb = sample(5);
        let bytes = sb.encode().unwrap();
        assert_eq!(bytes.len() % SECTOR_LEN, 0);
        assert_eq!(Superblock::decode("x", &bytes).unwrap(), sb);
    }

    #[test]
    fn any_flipped_bit_of_what_is_used_is_noticed() {
        let sb = sample(5);
        let good = sb.encode().unwrap();
        let used = ENVELOPE_LEN + wire::encode(&sb).len();
        for bit in 0..used * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode("x", &bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn newer_formats_and_unknown_features_are_named() {
        let mut copy = sample(5).encode().unwrap();
        copy[8] = 2;
        assert!(matches!(Superblock::decode("x", &copy), Err(MemberError::DamagedSuperblock { .. })));
        reseal(&mut copy);
        assert!(matches!(Superblock::decode("x", &copy), Err(MemberError::NewerFormat { found: 2, .. })));
        copy[8] = 1;
        copy[39] = 0x80;
        reseal(&mut copy);
        let unknown = Superblock::decode("x", &copy);
        assert!(matches!(unknown, Err(MemberError::UnknownFeatures { unknown: 0x8000_0000_0000_0000, .. })));
    }

    #[test]
    fn hostile_payloads_with_right_checksums_are_errors() {
        let good = sample(5).encode().unwrap();
        let payload_len = u32::from_le_bytes(field(&good, 12)) as usize;
        for seed in 0..3000 {
            let mut copy = good.clone();
            let noise = random_bytes(seed, payload_len);
            let payload = &mut copy[ENVELOPE_LEN..ENVELOPE_LEN + payload_len];
            if seed % 3 == 0 {
                payload.copy_from_slice(&noise);
            } else {
                for at in 0..1 + seed as usize % 5 {
                    let place = u32::from_le_bytes(field(&noise, at * 8)) as usize % payload_len;
                    payload[place] = if seed % 2 == 0 { 0xff } else { noise[at * 8 + 4] };
                }
            }
            let crc = crc32c::crc32c(payload);
            copy[16..20].copy_from_slice(&crc.to_le_bytes());
            reseal(&mut copy);
            if let Ok(read) = Superblock::decode("x", &copy) {
                assert_eq!(read.validate(), Ok(()));
            }
        }
    }

    #[test]
    fn hostile_lengths_are_errors() {
        let mut copy = sample(5).encode().unwrap();
        for len in [0u32, 1, 4032, 4033, 1 << 20, u32::MAX] {
            copy[12..16].copy_from_slice(&len.to_le_bytes());
            reseal(&mut copy);
            assert!(Superblock::decode("x", &copy).is_err(), "{len}");
        }
        for len in 0..copy.len().min(ENVELOPE_LEN + 8) {
            assert!(Superblock::decode("x", &copy[..len]).is_err());
        }
    }

    #[test]
    fn what_does_not_fit_a_copy_is_not_written() {
        let mut sb = sample(5);
        sb.members[0].path = "p".repeat(SUPERBLOCK_COPY_BYTES as usize);
        assert!(matches!(sb.encode(), Err(MemberError::SuperblockTooLarge { .. })));
    }
}
