//! From places to files and back: which files hold an extent, what they are called, where a file lies.

use std::collections::{BTreeMap, BTreeSet};

use super::Fs;
use super::compact::Reference;
use super::error::Result;
use super::extents::segments;
use super::refs::Refs;
use crate::member::superblock::SetId;
use crate::member::wire;
use crate::store::tables::{
    Entry, Extent, ExtentId, Ino, Inode, Place, ROOT_INO, Table, entry_key, extent_key, ino_key,
};

/// Directory entries that are read in one go.
const SCAN_ROWS: usize = 1024;
/// Directories above each other, at most: more would be a loop.
const DEPTH_MAX: usize = 4096;

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileRange {
    /// The file.
    pub ino: Ino,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A part of a file, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePlace {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Set and address there; none for space that was only reserved.
    pub place: Option<(SetId, u64)>,
}

impl Fs {
    /// Ranges of files that refer to bytes `from` to `to` of an extent, at most about `limit`.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn files_of_extent(&self, id: ExtentId, from: u64, to: u64, limit: usize) -> Result<Vec<FileRange>> {
        let Some(extent) = self.store.read::<Extent>(Table::Extents, &extent_key(id))? else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for (ino, origin, _) in Refs::of(&self.store, id, &extent.head()).collect(limit)? {
            let (first, end) = Reference { ino, origin }.range(extent.len);
            for segment in segments(&self.store, ino, first, end, usize::MAX)? {
                let Some((_, at)) = segment.extent.filter(|(other, _)| *other == id) else { continue };
                let (start, stop) = (u64::from(at).max(from), (u64::from(at) + segment.len).min(to));
                if start < stop && segment.origin() == Some((id, origin)) {
                    let offset = segment.start + (start - u64::from(at));
                    found.push(FileRange { ino, offset, len: stop - start });
                }
            }
        }
        Ok(found)
    }

    /// All names of these inodes, as paths from the root of the file system, without a slash in front; sorted. One pass
    /// over all directories. An inode without a name has none.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn paths_of(&self, inos: &BTreeSet<Ino>) -> Result<BTreeMap<Ino, Vec<Vec<u8>>>> {
        let mut paths: BTreeMap<Ino, Vec<Vec<u8>>> = inos.iter().map(|ino| (*ino, Vec::new())).collect();
        let mut from = Vec::new();
        loop {
            let rows = self.store.scan(Table::Entries, &from, &[0xff; 300], SCAN_ROWS)?;
            for (key, value) in &rows {
                let (Some((parent, name)), Ok(entry)) = (split_entry(key), wire::unpack::<Entry>(value))
                else {
                    continue;
                };
                if let Some(names) = paths.get_mut(&entry.ino) {
                    let mut path = self.directory_path(parent)?;
                    path.extend_from_slice(name);
                    names.push(path);
                }
            }
            match rows.last() {
                Some((last, _)) if rows.len() == SCAN_ROWS => from = [last.as_slice(), &[0]].concat(),
                _ => break,
            }
        }
        paths.values_mut().for_each(|names| names.sort());
        Ok(paths)
    }

    /// The path of a directory from the root, with a slash behind it; nothing for the root itself.
    fn directory_path(&self, ino: Ino) -> Result<Vec<u8>> {
        let (mut parts, mut at) = (Vec::new(), ino);
        while at != ROOT_INO && parts.len() < DEPTH_MAX {
            let Some(inode) = self.store.read::<Inode>(Table::Inodes, &ino_key(at))? else { break };
            parts.push(self.name_in(inode.parent, at)?.unwrap_or_else(|| b"?".to_vec()));
            at = inode.parent;
        }
        let mut path = Vec::new();
        for part in parts.into_iter().rev() {
            path.extend_from_slice(&part);
            path.push(b'/');
        }
        Ok(path)
    }

    /// The name of `ino` in the directory `parent`.
    fn name_in(&self, parent: Ino, ino: Ino) -> Result<Option<Vec<u8>>> {
        let end = entry_key(parent.saturating_add(1), &[]);
        let mut from = entry_key(parent, &[]);
        loop {
            let rows = self.store.scan(Table::Entries, &from, &end, SCAN_ROWS)?;
            for (key, value) in &rows {
                if wire::unpack::<Entry>(value).is_ok_and(|entry| entry.ino == ino) {
                    return Ok(split_entry(key).map(|(_, name)| name.to_vec()));
                }
            }
            match rows.last() {
                Some((last, _)) if rows.len() == SCAN_ROWS => from = [last.as_slice(), &[0]].concat(),
                _ => return Ok(None),
            }
        }
    }

    /// The record of an inode as it is stored.
    ///
    /// # Errors
    /// [`super::FsError::NoSuchInode`], and those of reading the tables.
    pub fn stored_inode(&self, ino: Ino) -> Result<Inode> {
        let found = self.store.read(Table::Inodes, &ino_key(ino))?;
        found.ok_or(super::FsError::NoSuchInode { ino })
    }

    /// Where a file lies, as far as it is in extents, in order, at most `limit` parts.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn places_of(&self, ino: Ino, limit: usize) -> Result<Vec<FilePlace>> {
        let mut places = Vec::new();
        for segment in segments(&self.store, ino, 0, u64::MAX, limit)? {
            let place = match segment.extent {
                None => None,
                Some((id, at)) => self
                    .store
                    .get(Table::Extents, &extent_key(id))?
                    .and_then(|record| wire::unpack_prefix::<Place>(&record).ok())
                    .map(|(place, _)| (place.set, place.address + u64::from(at))),
            };
            places.push(FilePlace { offset: segment.start, len: segment.len, place });
        }
        Ok(places)
    }
}

/// The directory and the name of a key of [`Table::Entries`].
fn split_entry(key: &[u8]) -> Option<(Ino, &[u8])> {
    let (parent, name) = key.split_at_checked(8)?;
    Some((u64::from_be_bytes(parent.try_into().ok()?), name))
}
