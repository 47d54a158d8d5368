//! What is lost for good, or until a member comes back: sectors of extents that nothing gives back. Kept by extent, so
//! that neither moving nor sharing an extent changes the record; files and paths are looked up when somebody asks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::job::Unsaved;
use crate::fs::{Fs, FsError, Result};
use crate::member::wire;
use crate::store::Tx;
use crate::store::tables::{ExtentId, Ino, Table, damage_key, extent_key, split_pair};
use crate::sync::Timestamp;

/// Rows that are read in one go.
const SCAN_ROWS: usize = 1024;
/// Damaged ranges that are told at most; the rest is counted.
const RANGES_MAX: usize = 1000;

/// A range of an extent, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Offset in the extent.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// The value in the table; the key has extent and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    len: u64,
    found: Timestamp,
}

/// A file of which something is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFile {
    /// Its inode.
    pub ino: Ino,
    /// All its names, as paths from the root of the file system, with a slash in front. None for a file that is open
    /// and has no name any more.
    pub paths: Vec<String>,
    /// What is lost: offset and length in bytes, in order.
    pub ranges: Vec<(u64, u64)>,
}

/// All that is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The files, by inode.
    pub files: Vec<DamagedFile>,
    /// Lost ranges that are not told.
    pub more_ranges: u64,
}

/// Says what of `seen`, a range of an extent, is lost; the rest of it is good. Commits nothing where nothing changes.
///
/// # Errors
/// Those of reading the tables and of committing.
pub fn replace(fs: &Fs, id: ExtentId, seen: Stretch, lost: &[Stretch]) -> Result<()> {
    let known = of_extent(fs, id)?;
    let (start, end) = (seen.at, seen.at + seen.len);
    let mut tx = Tx::new();
    let inside: Vec<_> = known.iter().filter(|(at, record)| *at < end && at + record.len > start).collect();
    if inside.iter().map(|(at, record)| (*at, record.len)).eq(lost.iter().map(|one| (one.at, one.len))) {
        return Ok(());
    }
    let mut found = fs.clock().now();
    for (at, record) in inside {
        found = found.min(record.found);
        tx.delete(Table::Damage, damage_key(id, *at));
        // What lies outside of what was looked at stays.
        let (before, after) = (start.saturating_sub(*at), (at + record.len).saturating_sub(end));
        if before > 0 {
            tx.put(Table::Damage, damage_key(id, *at), &Record { len: before, ..*record });
        }
        if after > 0 {
            tx.put(Table::Damage, damage_key(id, end), &Record { len: after, ..*record });
        }
    }
    for one in lost {
        tx.put(Table::Damage, damage_key(id, one.at), &Record { len: one.len, found });
    }
    fs.commit_records(tx)?;
    Ok(())
}

/// Notes ranges of sets that a job could not save.
///
/// # Errors
/// Those of reading the tables and of committing.
pub fn note_unsaved(fs: &Fs, unsaved: &[Unsaved]) -> Result<()> {
    for one in unsaved {
        let end = one.address.saturating_add(one.len);
        for (id, extent) in fs.store().extents_in(one.set, one.address..end)? {
            let start = one.address.max(extent.address);
            let stop = end.min(extent.address + u64::from(extent.len));
            let lost = Stretch { at: start - extent.address, len: stop.saturating_sub(start) };
            replace(fs, id, lost, &[lost])?;
        }
    }
    Ok(())
}

fn of_extent(fs: &Fs, id: ExtentId) -> Result<Vec<(u64, Record)>> {
    let rows = fs.store().scan(
        Table::Damage,
        &damage_key(id, 0),
        &damage_key(id.saturating_add(1), 0),
        usize::MAX,
    )?;
    rows.iter().map(|(key, value)| decode(key, value).map(|(_, at, record)| (at, record))).collect()
}

fn decode(key: &[u8], value: &[u8]) -> Result<(ExtentId, u64, Record)> {
    let damaged = || FsError::Damaged { ino: 0, what: "a record of damage" };
    let (id, at) = split_pair(key).ok_or_else(damaged)?;
    Ok((id, at, wire::unpack(value).map_err(|_| damaged())?))
}

/// Whether anything is lost, as far as the records say.
///
/// # Errors
/// Those of reading the tables.
pub fn is_any(fs: &Fs) -> Result<bool> {
    Ok(!fs.store().scan(Table::Damage, &[], &[0xff; 17], 1)?.is_empty())
}

/// Forgets damage of extents that are gone.
///
/// # Errors
/// Those of reading the tables and of committing.
pub fn forget_gone(fs: &Fs) -> Result<()> {
    each(fs, |id, at, _| {
        if fs.store().get(Table::Extents, &extent_key(id))?.is_none() {
            let mut tx = Tx::new();
            tx.delete(Table::Damage, damage_key(id, at));
            fs.commit_records(tx)?;
        }
        Ok(())
    })
}

fn each(fs: &Fs, mut visit: impl FnMut(ExtentId, u64, Record) -> Result<()>) -> Result<()> {
    let mut from = Vec::new();
    loop {
        let rows = fs.store().scan(Table::Damage, &from, &[0xff; 17], SCAN_ROWS)?;
        for (key, value) in &rows {
            let (id, at, record) = decode(key, value)?;
            visit(id, at, record)?;
        }
        match rows.last() {
            Some((last, _)) if rows.len() == SCAN_ROWS => from = [last.as_slice(), &[0]].concat(),
            _ => return Ok(()),
        }
    }
}

/// All files of which something is lost, with all their names. What was overwritten or deleted since is not among it.
///
/// # Errors
/// Those of reading the tables.
pub fn list(fs: &Fs) -> Result<Damage> {
    let mut ranges: BTreeMap<Ino, Vec<(u64, u64)>> = BTreeMap::new();
    let (mut told, mut more) = (0, 0);
    each(fs, |id, at, record| {
        if told >= RANGES_MAX {
            more += 1;
            return Ok(());
        }
        for range in fs.files_of_extent(id, at, at + record.len, RANGES_MAX)? {
            told += 1;
            ranges.entry(range.ino).or_default().push((range.offset, range.len));
        }
        Ok(())
    })?;
    let inos: BTreeSet<Ino> = ranges.keys().copied().collect();
    if inos.is_empty() {
        return Ok(Damage { files: Vec::new(), more_ranges: more });
    }
    let mut names = fs.paths_of(&inos)?;
    let files = ranges.into_iter().map(|(ino, ranges)| {
        let paths = names.remove(&ino).unwrap_or_default();
        let shown = |path: Vec<u8>| format!("/{}", String::from_utf8_lossy(&path));
        DamagedFile { ino, paths: paths.into_iter().map(shown).collect(), ranges: joined(ranges) }
    });
    Ok(Damage { files: files.collect(), more_ranges: more })
}

/// Ranges in order, joined where they touch or overlap.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (offset, len) in ranges {
        match out.last_mut() {
            Some((start, known)) if *start + *known >= offset => {
                *known = (*known).max(offset + len - *start);
            }
            _ => out.push((offset, len)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(joined(vec![(8, 4), (0, 4), (4, 2), (10, 6)]), [(0, 6), (8, 8)]);
    }
}
