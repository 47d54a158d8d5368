//! The journal ring of a member: how records lie in it, and a reader that walks them.
//!
//! The log is endless; byte `p` of it lies at `p` modulo the ring's size, the same on every ring holder. A
//! group commit starts on a fresh sector; its records follow each other on 8-byte boundaries, and the rest
//! of its last sector is zeros. A record is valid when its header and payload match their checksums and its
//! sequence number is the one expected next; whether its epoch counts is for the reader's caller to say.

use std::ops::Range;

use super::superblock::Seq;
use super::{AlignedBuf, Area, Disk, Result};
use crate::codec::checksum;
use crate::limits::RECORD_MAX_BYTES;
use crate::units::{SECTOR, round_down, round_up};

/// First bytes of every record.
const MAGIC: u32 = u32::from_le_bytes(*b"PFJR");
/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 48;
/// Records begin at multiples of this many bytes.
pub const ALIGN_BYTES: u64 = 8;
/// Bytes that the reader fetches at a time.
const WINDOW_BYTES: u64 = 4 * 1024 * 1024;

/// What stands before a record's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Its number.
    pub seq: Seq,
    /// Counter of the epoch it was appended in.
    pub epoch: u64,
    /// Random id of that epoch.
    pub epoch_id: u64,
    /// Highest record known to be on all ring holders when this one was written.
    pub acked: Seq,
}

/// Appends a record to `out`, padded to [`ALIGN_BYTES`].
pub fn encode_record(out: &mut Vec<u8>, header: &RecordHeader, payload: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&header.seq.to_le_bytes());
    out.extend_from_slice(&header.epoch.to_le_bytes());
    out.extend_from_slice(&header.epoch_id.to_le_bytes());
    out.extend_from_slice(&header.acked.to_le_bytes());
    out.extend_from_slice(&checksum(payload).to_le_bytes());
    let sum = checksum(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
    debug_assert_eq!(out.len() - start, HEADER_BYTES);
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(ALIGN_BYTES as usize), 0);
}

/// The record at the start of `bytes`, if there is a valid one: its header and its payload.
pub fn parse_record(bytes: &[u8]) -> Option<(RecordHeader, &[u8])> {
    let header = bytes.get(..HEADER_BYTES)?;
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let len = u32_at(4) as usize;
    if u32_at(0) != MAGIC || len as u64 > RECORD_MAX_BYTES || u32_at(44) != checksum(&header[..44]) {
        return None;
    }
    let payload = bytes.get(HEADER_BYTES..HEADER_BYTES + len)?;
    let header = RecordHeader { seq: u64_at(8), epoch: u64_at(16), epoch_id: u64_at(24), acked: u64_at(32) };
    (checksum(payload) == u32_at(40)).then_some((header, payload))
}

/// Bytes that a record with this payload takes in the log.
pub fn record_bytes(payload: usize) -> u64 {
    round_up((HEADER_BYTES + payload) as u64, ALIGN_BYTES)
}

/// Writes `bytes` (whole sectors) at position `position` of the endless log (a multiple of the sector).
///
/// # Errors
/// Those of [`Disk::write`].
pub fn write(disk: &dyn Disk, ring_bytes: u64, position: u64, bytes: &[u8]) -> Result<()> {
    let mut pieces = pieces(ring_bytes, position, bytes.len()).into_iter();
    pieces.try_for_each(|(offset, range)| disk.write(Area::Journal, offset, &bytes[range]))
}

/// Where `len` bytes (whole sectors, at most the ring's size) at position `position` of the endless log lie: offset
/// in the ring, and which of the bytes.
pub fn pieces(ring_bytes: u64, position: u64, len: usize) -> Vec<(u64, Range<usize>)> {
    let offset = position % ring_bytes;
    let first = (ring_bytes - offset).min(len as u64) as usize;
    let mut pieces = vec![(offset, 0..first)];
    pieces.extend((first < len).then_some((0, first..len)));
    pieces
}

/// Reads `buf.len()` bytes (whole sectors) at position `position` of the endless log.
///
/// # Errors
/// Those of [`Disk::read`].
pub fn read(disk: &dyn Disk, ring_bytes: u64, position: u64, buf: &mut [u8]) -> Result<()> {
    let offset = position % ring_bytes;
    let first = (ring_bytes - offset).min(buf.len() as u64) as usize;
    let (head, rest) = buf.split_at_mut(first);
    disk.read(Area::Journal, offset, head)?;
    if !rest.is_empty() {
        disk.read(Area::Journal, 0, rest)?;
    }
    Ok(())
}

/// Walks the log of one ring.
#[derive(Debug)]
pub struct RingReader<'a> {
    disk: &'a dyn Disk,
    ring_bytes: u64,
    window: AlignedBuf,
    /// Log position of the window's first byte, and its length; 0 when nothing is loaded.
    start: u64,
    len: u64,
}

impl<'a> RingReader<'a> {
    /// A reader of `disk`'s ring.
    pub fn new(disk: &'a dyn Disk, ring_bytes: u64) -> Self {
        let window = AlignedBuf::zeroed(WINDOW_BYTES.min(ring_bytes) as usize);
        Self { disk, ring_bytes, window, start: 0, len: 0 }
    }

    /// The valid record at log position `position`, or else at the next sector's start.
    /// Gives its position, its header and its payload; none when there is no record, or the ring can't be read.
    pub fn record_at(&mut self, position: u64) -> Option<(u64, RecordHeader, Vec<u8>)> {
        let candidates = [position, round_up(position, SECTOR)];
        let count = if candidates[0] == candidates[1] { 1 } else { 2 };
        candidates[..count].iter().find_map(|&at| {
            let bytes = self.bytes_at(at)?;
            parse_record(bytes).map(|(header, payload)| (at, header, payload.to_vec()))
        })
    }

    /// The window's bytes from `position` on: enough for a whole record.
    fn bytes_at(&mut self, position: u64) -> Option<&[u8]> {
        let wanted = record_bytes(RECORD_MAX_BYTES as usize).min(self.ring_bytes);
        let inside = position >= self.start && position + wanted <= self.start + self.len;
        if !inside {
            let start = round_down(position, SECTOR);
            let len = self.window.len() as u64;
            self.len = 0;
            read(self.disk, self.ring_bytes, start, &mut self.window).ok()?;
            (self.start, self.len) = (start, len);
        }
        self.window.get((position - self.start) as usize..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: RecordHeader = RecordHeader { seq: 7, epoch: 2, epoch_id: 99, acked: 6 };

    #[test]
    fn records_come_back_as_written() {
        let mut bytes = Vec::new();
        encode_record(&mut bytes, &HEADER, b"hello");
        assert_eq!(bytes.len() as u64, record_bytes(5));
        let (header, payload) = parse_record(&bytes).expect("valid");
        assert_eq!((header, payload), (HEADER, &b"hello"[..]));
    }

    #[test]
    fn any_flipped_bit_voids_a_record() {
        let mut bytes = Vec::new();
        encode_record(&mut bytes, &HEADER, b"hello");
        for bit in 0..(HEADER_BYTES + 5) * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(parse_record(&damaged).is_none(), "bit {bit}");
        }
        for len in 0..HEADER_BYTES + 5 {
            assert!(parse_record(&bytes[..len]).is_none());
        }
    }
}
