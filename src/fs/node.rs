//! The inode cache: one [`Node`] for each inode in use, its lock, and how long it stays.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::error::{FsError, Result};
use crate::cache::{Cache, Page};
use crate::store::Store;
use crate::store::tables::{Ino, Inode, Table, ino_key};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, RwLock};

const SHARDS: usize = 64;

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

/// What is left of an inode's use after a step back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The kernel or a handle still knows it.
    InUse,
    /// Nobody does.
    Nobody,
}

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    lookups: u64,
    opens: u32,
    reaping: bool,
}

impl Slot {
    fn used(&self) -> bool {
        self.lookups > 0 || self.opens > 0
    }
}

/// All nodes, sharded by number.
///
/// A shard's lock is a leaf: it may be taken under an inode's lock, and nothing but the store's and the
/// cache's own locks is taken under it. Copies of a node's `Arc` are made under it only, or from another
/// copy, so a node whose only copy is the table's is in nobody's hands.
#[derive(Debug)]
pub(super) struct NodeTable {
    shards: Vec<Mutex<HashMap<Ino, Slot>>>,
    /// Nodes that nobody counts, but that could not be dropped when last seen.
    leftover: Mutex<HashSet<Ino>>,
}

impl NodeTable {
    /// Nothing in it.
    pub fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect();
        Self { shards, leftover: Mutex::new(HashSet::new()) }
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Slot>> {
        &self.shards[(ino % SHARDS as u64) as usize]
    }

    /// The node if it is in memory.
    pub fn peek(&self, ino: Ino) -> Option<Arc<Node>> {
        self.shard(ino).lock().get(&ino).map(|slot| slot.node.clone())
    }

    /// The node, from memory or from the store.
    pub fn get(&self, store: &Store, ino: Ino) -> Result<Arc<Node>> {
        self.get_counted(store, ino, 0, 0)
    }

    /// The node, with so many more lookups and opens counted, in one step.
    pub fn get_counted(&self, store: &Store, ino: Ino, lookups: u64, opens: u32) -> Result<Arc<Node>> {
        let mut shard = self.shard(ino).lock();
        if let Some(slot) = shard.get_mut(&ino) {
            if slot.reaping {
                return Err(FsError::NoSuchInode { ino });
            }
            slot.lookups += lookups;
            slot.opens += opens;
            return Ok(slot.node.clone());
        }
        let inode: Inode = store.read(Table::Inodes, &ino_key(ino))?.ok_or(FsError::NoSuchInode { ino })?;
        let node = Node::new(ino, inode);
        shard.insert(ino, Slot { node: node.clone(), lookups, opens, reaping: false });
        drop(shard);
        if lookups == 0 && opens == 0 {
            self.leftover.lock().insert(ino);
        }
        Ok(node)
    }

    /// Takes in the node of a new inode.
    pub fn insert(&self, node: Arc<Node>, lookups: u64, opens: u32) {
        let ino = node.ino;
        self.shard(ino).lock().insert(ino, Slot { node, lookups, opens, reaping: false });
    }

    /// Counts so many lookups and handles less.
    pub fn step_back(&self, ino: Ino, lookups: u64, opens: u32) -> Left {
        let mut shard = self.shard(ino).lock();
        let Some(slot) = shard.get_mut(&ino) else { return Left::InUse };
        slot.lookups = slot.lookups.saturating_sub(lookups);
        slot.opens = slot.opens.saturating_sub(opens);
        if slot.used() { Left::InUse } else { Left::Nobody }
    }

    /// Claims an unlinked node that nobody uses any more, so that exactly one caller deletes it.
    pub fn claim_dead(&self, ino: Ino) -> Option<Arc<Node>> {
        let mut shard = self.shard(ino).lock();
        let slot = shard.get_mut(&ino)?;
        if slot.used() || slot.reaping || !slot.node.unlinked.load(Ordering::Acquire) {
            return None;
        }
        slot.reaping = true;
        Some(slot.node.clone())
    }

    /// Gives back a claim: deleting failed, and will be tried again at the next mount.
    pub fn unclaim(&self, ino: Ino) {
        if let Some(slot) = self.shard(ino).lock().get_mut(&ino) {
            slot.reaping = false;
        }
    }

    /// Forgets a deleted inode.
    pub fn remove(&self, ino: Ino) {
        self.shard(ino).lock().remove(&ino);
    }

    /// Drops the node if nobody uses it and it holds nothing that is not stored. Returns it for its
    /// reservations to be given back; otherwise it is remembered as left over.
    pub fn evict(&self, cache: &Cache, ino: Ino) -> Option<Arc<Node>> {
        let mut shard = self.shard(ino).lock();
        let slot = shard.get(&ino)?;
        if slot.used() {
            return None;
        }
        // The table's copy is the only one, so nobody can hold or be waiting for the lock.
        if Arc::strong_count(&slot.node) == 1 && idle(&slot.node, cache) {
            return shard.remove(&ino).map(|slot| slot.node);
        }
        drop(shard);
        self.leftover.lock().insert(ino);
        None
    }

    /// Takes the list of those left over.
    pub fn take_leftover(&self) -> Vec<Ino> {
        self.leftover.lock().drain().collect()
    }

    /// Numbers of all nodes in memory.
    pub fn all(&self) -> Vec<Ino> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

fn idle(node: &Node, cache: &Cache) -> bool {
    let Some(state) = node.state.try_read() else { return false };
    !state.attr_dirty
        && node.visible_to.load(Ordering::Acquire) == u64::MAX
        && state.held == 0
        && state.in_flight == 0
        && !node.unlinked.load(Ordering::Acquire)
        && !cache.has_dirty(node.ino)
}
