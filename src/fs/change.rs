//! One transaction as the file system builds it: records, and what becomes of extents.

use std::collections::{BTreeMap, BTreeSet};

use super::Fs;
use super::error::Result;
use super::map::MapEdit;
use super::refs::{Alone, Counts, RefDeltas};
use crate::member::superblock::Seq;
use crate::store::Tx;
use crate::store::tables::{Extent, ExtentId, Ino, Table, extent_key, map_key};

/// Records to be put and deleted, new extents, and changed references. What the references come to (which
/// extents go, how much of each set is alive) is worked out by [`Fs::commit`].
#[derive(Debug, Default)]
pub(super) struct Change {
    /// Everything but extents.
    pub tx: Tx,
    created: BTreeMap<ExtentId, Extent>,
    /// Extents that are created if they are not there any more.
    offered: BTreeMap<ExtentId, Extent>,
    refs: BTreeMap<ExtentId, RefDeltas>,
    /// Inodes whose maps it changes: the caller has their exclusive locks.
    owners: BTreeSet<Ino>,
}

impl From<Tx> for Change {
    fn from(tx: Tx) -> Self {
        Self { tx, ..Self::default() }
    }
}

impl Change {
    /// Nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new extent. It is there only if the same transaction refers to it.
    pub fn create(&mut self, id: ExtentId, extent: Extent) {
        self.created.insert(id, extent);
    }

    /// An extent that other files refer to, unless they have dropped it meanwhile: then it is created again. Its bytes
    /// are still there, which the caller sees to.
    pub fn offer(&mut self, id: ExtentId, extent: Extent) {
        self.offered.insert(id, extent);
    }

    /// The changed records of a file's map, and the references that it takes and drops by them. The caller
    /// has the inode's exclusive lock until the change is committed.
    pub fn map(&mut self, ino: Ino, edit: &MapEdit) {
        for start in edit.deletes() {
            self.tx.delete(Table::Map, map_key(ino, start));
        }
        for segment in edit.puts() {
            self.tx.put(Table::Map, map_key(ino, segment.start), &segment.entry());
        }
        self.owners.insert(ino);
        for (extent, origin, delta) in edit.refs() {
            *self.refs.entry(extent).or_default().entry((ino, origin)).or_default() += delta;
        }
    }

    /// The caller has the exclusive lock of this inode too, so that its references stay as they are.
    pub fn own(&mut self, ino: Ino) {
        self.owners.insert(ino);
    }

    /// Nothing in it.
    pub fn is_empty(&self) -> bool {
        self.tx.is_empty() && self.refs.is_empty()
    }

    /// About the bytes of its record, without what references come to.
    pub fn bytes(&self) -> u64 {
        self.tx.bytes()
    }
}

impl Fs {
    /// Commits a change. Returns the number of its record.
    ///
    /// References of one file change under its inode's lock, but those of another to the same extent under
    /// another lock, and the compactor moves extents under none. So what depends on more than the files
    /// that the caller has locked is worked out alone.
    pub(super) fn commit(&self, change: impl Into<Change>) -> Result<Seq> {
        let Change { mut tx, mut created, offered, refs, owners } = change.into();
        if refs.is_empty() {
            return Ok(self.store.commit(tx)?);
        }
        let store = &self.store;
        if offered.is_empty() {
            let _nothing_moves = self.extent_lock.read();
            let counts = Counts { store, created: &created, owners: &owners, alone: Alone::No };
            if let Some(found) = counts.work_out(&refs)? {
                found.emit(created, &mut tx);
                return Ok(self.store.commit(tx)?);
            }
        }
        let _alone = self.extent_lock.write();
        for (id, extent) in offered {
            if store.get(Table::Extents, &extent_key(id))?.is_none() {
                created.insert(id, extent);
            }
        }
        let counts = Counts { store, created: &created, owners: &owners, alone: Alone::Yes };
        if let Some(found) = counts.work_out(&refs)? {
            found.emit(created, &mut tx);
        }
        Ok(self.store.commit(tx)?)
    }
}
