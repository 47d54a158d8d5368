//! What is alive in a set.

use super::STEP_BYTES;
use crate::fs::Fs;
use crate::fs::error::{FsError, Result};
use crate::fs::extents::segments;
use crate::fs::refs::Refs;
use crate::member::superblock::SetId;
use crate::member::wire;
use crate::store::tables::{
    Batch, Extent, ExtentHead, ExtentId, Ino, Table, extent_key, place_key, split_pair,
};
use crate::units::SECTOR;

/// Batches that are looked at in one go.
const SCAN_PLACES: usize = 16;
/// Extents after which one step takes no more batches.
const STEP_EXTENTS: usize = 2048;
/// An extent that so many files refer to moves as a whole, whatever of it is dead.
const TRIM_REFS: usize = 256;

/// An extent that is to move, and what of it.
#[derive(Debug)]
pub(super) struct Cargo {
    pub id: ExtentId,
    pub extent: Extent,
    /// Ranges of it, from and to, in order and apart.
    pub live: Vec<(u64, u64)>,
}

impl Cargo {
    /// Bytes that move.
    pub fn bytes(&self) -> u64 {
        self.live.iter().map(|(from, to)| to - from).sum()
    }

    /// All of it moves.
    pub fn is_whole(&self) -> bool {
        self.bytes() == u64::from(self.extent.len)
    }

    /// Checksums of what moves.
    pub fn sums(&self) -> Vec<u32> {
        self.live.iter().flat_map(|(from, to)| self.sums_of(*from, *to)).copied().collect()
    }

    /// Checksums of one range.
    pub fn sums_of(&self, from: u64, to: u64) -> &[u32] {
        self.extent.sums.get((from / SECTOR) as usize..(to / SECTOR) as usize).unwrap_or_default()
    }
}

/// A reference to an extent.
#[derive(Debug, Clone, Copy)]
pub(in crate::fs) struct Reference {
    pub ino: Ino,
    /// Offset in the file of the extent's first byte (wrapping).
    pub origin: u64,
}

impl Reference {
    /// The range of the file in which its segments lie.
    pub fn range(&self, len: u32) -> (u64, u64) {
        // Below 0 where the extent's first bytes would lie before the file's.
        let origin = self.origin as i64;
        (origin.max(0) as u64, origin.saturating_add(i64::from(len)).max(0) as u64)
    }
}

impl Fs {
    /// The extents of `set` from address `from` on, as much as one step moves, and the address to go on
    /// from; none at the end.
    pub(super) fn gather(&self, set: SetId, from: u64) -> Result<(Vec<Cargo>, Option<u64>)> {
        let (mut found, mut bytes, mut at) = (Vec::new(), 0, from);
        let damaged = FsError::Damaged { ino: 0, what: "the place of an extent" };
        loop {
            let rows =
                self.store.scan(Table::Places, &place_key(set, at), &place_key(set + 1, 0), SCAN_PLACES)?;
            let more = rows.len() == SCAN_PLACES;
            for (key, value) in rows {
                if bytes >= STEP_BYTES || found.len() >= STEP_EXTENTS {
                    return Ok((found, Some(at)));
                }
                let (Some((_, mut address)), Ok(batch)) = (split_pair(&key), wire::unpack::<Batch>(&value))
                else {
                    return Err(damaged);
                };
                at = address + SECTOR;
                for (id, len) in batch {
                    if let Some(cargo) = self.cargo(set, address, id)? {
                        bytes += cargo.bytes();
                        found.push(cargo);
                    }
                    address += u64::from(len);
                }
            }
            if !more {
                return Ok((found, None));
            }
        }
    }

    /// The extent, if it still lies there and somebody refers to it.
    fn cargo(&self, set: SetId, address: u64, id: ExtentId) -> Result<Option<Cargo>> {
        let extent: Option<Extent> = self.store.read(Table::Extents, &extent_key(id))?;
        let Some(extent) = extent.filter(|extent| (extent.set, extent.address) == (set, address)) else {
            return Ok(None);
        };
        let live = self.live_ranges(id, &extent.head())?;
        Ok((!live.is_empty()).then_some(Cargo { id, extent, live }))
    }

    /// Ranges of an extent that files refer to. Meanwhile they may become fewer, and files may come to share
    /// them, so this is for planning only.
    fn live_ranges(&self, id: ExtentId, head: &ExtentHead) -> Result<Vec<(u64, u64)>> {
        let len = head.place.len;
        let refs = Refs::of(&self.store, id, head).collect(TRIM_REFS)?;
        // Segments of one origin can't overlap each other.
        if refs.len() == TRIM_REFS || refs.iter().any(|(_, _, bytes)| *bytes == len) {
            return Ok(vec![(0, u64::from(len))]);
        }
        let mut ranges = Vec::new();
        for (ino, origin, _) in refs {
            let one = Reference { ino, origin };
            let (from, to) = one.range(len);
            for segment in segments(&self.store, one.ino, from, to, usize::MAX)? {
                if segment.origin() == Some((id, one.origin)) {
                    let at = segment.extent.map_or(0, |(_, at)| u64::from(at));
                    ranges.push((at, (at + segment.len).min(u64::from(len))));
                }
            }
        }
        Ok(union(ranges))
    }
}

/// Ranges in order, joined where they touch or overlap.
fn union(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges {
        match out.last_mut() {
            Some((_, end)) if *end >= from => *end = to.max(*end),
            _ => out.push((from, to)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_and_touching_ranges_are_one() {
        assert_eq!(union(vec![(8, 12), (0, 4), (4, 6), (9, 10), (11, 20)]), [(0, 6), (8, 20)]);
    }

    #[test]
    fn an_origin_may_lie_before_the_file() {
        let before = Reference { ino: 1, origin: 0_u64.wrapping_sub(8192) };
        assert_eq!(before.range(12288), (0, 4096));
        let inside = Reference { origin: 4096, ..before };
        assert_eq!(inside.range(12288), (4096, 16384));
    }
}
