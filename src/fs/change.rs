//! One transaction as the file system builds it: records, and what becomes of extents.

use std::collections::{BTreeMap, BTreeSet};

use super::Fs;
use super::error::Result;
use super::map::MapEdit;
use super::refs::{Alone, Counts, RefDeltas};
use crate::member::superblock::Seq;
use crate::store::Tx;
use crate::store::tables::{Extent, ExtentId, Ino, Table, map_key};

/// Records to be put and deleted, new extents, and changed references. What the references come to (which
/// extents go, how much of each set is alive) is worked out by [`Fs::commit`].
#[derive(Debug, Default)]
pub(super) struct Change {
    /// Everything but extents.
    pub tx: Tx,
    created: BTreeMap<ExtentId, Extent>,
    /// Those among the created that an earlier change may have created.
    maybe_there: BTreeSet<ExtentId>,
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

    /// An extent that several changes refer to, each for another file. The first creates it; and should all
    /// references be gone again before the next, that one does.
    pub fn create_unless_there(&mut self, id: ExtentId, extent: Extent) {
        self.maybe_there.insert(id);
        self.create(id, extent);
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
    /// Commits records of tables that are not about files: jobs, events, settings. Returns the number of the record;
    /// durable after [`crate::store::Store::sync`] of it.
    ///
    /// # Errors
    /// [`super::FsError::ReadOnly`], [`super::FsError::Unmounted`], and those of [`crate::store::Store::commit`].
    pub fn commit_records(&self, tx: Tx) -> Result<Seq> {
        self.writable()?;
        self.ease_log();
        Ok(self.store.commit(tx)?)
    }

    /// Commits a change. Returns the number of its record.
    ///
    /// References of one file change under its inode's lock, but those of another to the same extent under
    /// another lock, and the compactor moves extents under none. So what depends on more than the files
    /// that the caller has locked is worked out alone.
    pub(super) fn commit(&self, change: impl Into<Change>) -> Result<Seq> {
        // What frees space, or writes out what is dirty, must not fail because it came at a bad moment.
        self.ease_log();
        let Change { mut tx, created, maybe_there, refs, owners } = change.into();
        if refs.is_empty() {
            return Ok(self.store.commit(tx)?);
        }
        let mut counts = Counts {
            store: &self.store,
            created: &created,
            maybe_there: &maybe_there,
            owners: &owners,
            alone: Alone::No,
        };
        // Whether an extent that other files refer to is there can change from one look to the next.
        if maybe_there.is_empty() {
            let _nothing_moves = self.extent_lock.read();
            if let Some(found) = counts.work_out(&refs)? {
                found.emit(created, &maybe_there, &mut tx);
                return Ok(self.store.commit(tx)?);
            }
        }
        let _alone = self.extent_lock.write();
        counts.alone = Alone::Yes;
        if let Some(found) = counts.work_out(&refs)? {
            found.emit(created, &maybe_there, &mut tx);
        }
        Ok(self.store.commit(tx)?)
    }
}
