//! From file ranges to extents and their bytes.

use super::Fs;
use super::error::{FsError, Result};
use super::map::Segment;
use crate::cache::LoadError;
use crate::member::superblock::SetId;
use crate::pool::PoolError;
use crate::store::Store;
use crate::store::tables::{Extent, Ino, MapEntry, Table, extent_key, map_key, split_pair};
use crate::sync::atomic::Ordering;
use crate::units::{SECTOR, SECTOR_LEN};

/// Unreadable places that are remembered at most, until they are asked for.
const UNREADABLE_KEPT: usize = 256;

/// The stored segments of a file that overlap `[from, to)`, in order, at most `limit`.
pub(super) fn segments(store: &Store, ino: Ino, from: u64, to: u64, limit: usize) -> Result<Vec<Segment>> {
    let mut found = Vec::new();
    if from >= to {
        return Ok(found);
    }
    if from > 0
        && let Some((key, value)) =
            store.last_at_or_before(Table::Map, &map_key(ino, 0), &map_key(ino, from - 1))?
    {
        let before = segment(ino, &key, &value)?;
        if before.end() > from {
            found.push(before);
        }
    }
    let rest = limit.saturating_sub(found.len());
    for (key, value) in store.scan(Table::Map, &map_key(ino, from), &map_key(ino, to), rest)? {
        found.push(segment(ino, &key, &value)?);
    }
    Ok(found)
}

fn segment(ino: Ino, key: &[u8], value: &[u8]) -> Result<Segment> {
    let (_, start) = split_pair(key).ok_or(FsError::Damaged { ino, what: "a key of its map" })?;
    let entry: MapEntry = crate::member::wire::unpack(value)
        .map_err(|_| FsError::Damaged { ino, what: "an entry of its map" })?;
    let whole = entry.len > 0 && entry.len.is_multiple_of(SECTOR) && start.is_multiple_of(SECTOR);
    if !whole || start.checked_add(entry.len).is_none() {
        return Err(FsError::Damaged { ino, what: "a range of its map" });
    }
    Ok(Segment { start, len: entry.len, extent: entry.extent })
}

impl Fs {
    /// Fills `buf` with what the stored map holds at `offset` (whole sectors); holes read as zeros.
    /// The caller holds the inode's lock, shared or exclusive, so the map stays as it is meanwhile.
    pub(super) fn load_range(
        &self,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> std::result::Result<(), LoadError> {
        let visible_to =
            self.nodes.peek(ino).map_or(u64::MAX, |node| node.visible_to.load(Ordering::Acquire));
        let end = offset.saturating_add(buf.len() as u64);
        let failed =
            |at: u64, len: u64, error: FsError| LoadError { offset: at, len, message: error.to_string() };
        let found = segments(&self.store, ino, offset, end.min(visible_to), usize::MAX)
            .map_err(|error| failed(offset, buf.len() as u64, error))?;
        let mut at = offset;
        for part in found.iter().filter_map(|segment| segment.part(offset, end.min(visible_to))) {
            fill(buf, offset, at, part.start);
            at = part.end();
            let target = &mut buf[(part.start - offset) as usize..(part.end() - offset) as usize];
            self.load_segment(ino, part, target).map_err(|error| failed(part.start, part.len, error))?;
        }
        fill(buf, offset, at, end);
        if offset == 0 && visible_to > 0 && found.first().is_none_or(|first| first.start >= SECTOR) {
            let first = buf.len().min(SECTOR_LEN);
            self.load_row(ino, &mut buf[..first]).map_err(|error| failed(0, SECTOR, error))?;
        }
        Ok(())
    }

    fn load_segment(&self, ino: Ino, part: Segment, target: &mut [u8]) -> Result<()> {
        let Some((id, at)) = part.extent else {
            target.fill(0);
            return Ok(());
        };
        let gone = FsError::Damaged { ino, what: "an extent it refers to is gone" };
        let key = extent_key(id);
        let mut extent: Extent = self.store.read(Table::Extents, &key)?.ok_or(gone)?;
        loop {
            let (first, count) = ((u64::from(at) / SECTOR) as usize, (part.len / SECTOR) as usize);
            let sums = extent
                .sums
                .get(first..first + count)
                .ok_or(FsError::Damaged { ino, what: "an extent is shorter than its map says" })?;
            let place = extent.place();
            let Err(error) = self.pool.read(place.set, place.address + u64::from(at), sums, target) else {
                return Ok(());
            };
            // It may have moved between the look at its record and the read: then it is read where it is now.
            match self.store.read::<Extent>(Table::Extents, &key)? {
                Some(now) if now.place() != place => extent = now,
                _ => {
                    self.note_unreadable(&error);
                    return Err(error.into());
                }
            }
        }
    }
}

impl Fs {
    /// Remembers where something could not be read, for those who list it.
    fn note_unreadable(&self, error: &PoolError) {
        let PoolError::Unreadable { set, address, .. } = error else { return };
        let mut known = self.unreadable.lock();
        if known.len() < UNREADABLE_KEPT && !known.contains(&(*set, *address)) {
            known.push((*set, *address));
        }
    }

    /// Places that readers found unreadable since this was last asked for: set, and address of the first sector.
    pub fn take_unreadable(&self) -> Vec<(SetId, u64)> {
        std::mem::take(&mut self.unreadable.lock())
    }
}

/// Zeros the bytes of `[from, to)` in a buffer that starts at `offset`.
fn fill(buf: &mut [u8], offset: u64, from: u64, to: u64) {
    if from < to {
        buf[(from - offset) as usize..(to - offset) as usize].fill(0);
    }
}
