//! An inode in memory and its lock. Which ones are there, and for how long, is in [`super::node_table`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cache::Page;
use crate::store::tables::{Ino, Inode};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::sync::{Arc, RwLock};

/// An inode in memory.
#[derive(Debug)]
pub(super) struct Node {
    /// Its number.
    pub ino: Ino,
    /// The stored map counts only below this offset: 0 while a truncation is held back, in a read-only pool
    /// the start of a cut that recovery could not finish, else `u64::MAX`.
    /// Changed under the exclusive lock, read by loads, whose caller holds the lock.
    pub visible_to: AtomicU64,
    /// Open handles that may write. Changed without the lock.
    pub writers: AtomicU32,
    /// No name leads here. Set under the exclusive lock.
    pub unlinked: AtomicBool,
    /// Everything else, under the inode's lock.
    pub state: RwLock<NodeState>,
}

/// What an inode's lock protects.
#[derive(Debug)]
pub(super) struct NodeState {
    /// The truth of this moment; `size` includes data that is still in memory. `sectors` counts the
    /// stored map.
    pub inode: Inode,
    /// The size that the stored record has: it grows with the data, never before it.
    pub persisted_size: u64,
    /// The stored record lacks a change (times, privileges, size) that may wait.
    pub attr_dirty: bool,
    /// When a truncation to nothing was held back, as the clock's elapsed time. Until it is committed with
    /// the new data the stored map reads as empty.
    pub replaced_at: Option<Duration>,
    /// Bytes reserved in the pool for dirty pages.
    pub reserved: u64,
    /// Bytes reserved in the pool for space that fallocate promised.
    pub held: u64,
    /// Pages that are in the journal already as they are in the cache, by offset.
    pub journaled: BTreeMap<u64, Page>,
    /// Captures that were neither finished nor abandoned.
    pub in_flight: u32,
    /// The inode was deleted: whoever still comes here late has nothing to do.
    pub gone: bool,
}

impl Node {
    /// A node for an inode as stored (or as about to be).
    pub fn new(ino: Ino, inode: Inode) -> Arc<Self> {
        let unlinked = inode.nlink == 0;
        Arc::new(Self {
            ino,
            visible_to: AtomicU64::new(u64::MAX),
            writers: AtomicU32::new(0),
            unlinked: AtomicBool::new(unlinked),
            state: RwLock::new(NodeState {
                persisted_size: inode.size,
                inode,
                attr_dirty: false,
                replaced_at: None,
                reserved: 0,
                held: 0,
                journaled: BTreeMap::new(),
                in_flight: 0,
                gone: false,
            }),
        })
    }
}

impl NodeState {
    /// `inode` as it may be stored: with no more size than the stored data has.
    pub fn record(&self, inode: &Inode) -> Inode {
        Inode { size: self.persisted_size, ..inode.clone() }
    }

    /// The inode is a directory.
    pub fn is_dir(&self) -> bool {
        self.inode.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// The inode is a regular file.
    pub fn is_file(&self) -> bool {
        self.inode.mode & libc::S_IFMT == libc::S_IFREG
    }
}
