//! The inodes in memory: which are there, who counts them, and when they go.
//!
//! The kernel may know millions of inodes. For those only a number is kept, how often each was looked up;
//! a [`Node`] is there while something is going on with its inode, and otherwise for as long as it is among
//! the most recently used.
//!
//! # What must hold
//!
//! * An inode's lookups are counted whether its node is in memory or not.
//! * Copies of a node's `Arc` are made under its shard's lock only, or from another copy. So a node whose
//!   only copy is the table's is in nobody's hands.
//! * A node leaves memory only if it is in nobody's hands and holds nothing that is not stored (see
//!   [`Slot::kept`]). So whoever reads the record anew finds all that the node knew.
//! * An inode without a name keeps its node until the last lookup and the last handle are gone. Then exactly
//!   one caller claims it and deletes it; whoever comes later is told that there is no such inode.
//! * The store is never read under a shard's lock. What was read outside of it counts only if the inode's
//!   node did not leave memory meanwhile (see [`Load`]): the record could have been changed or deleted by
//!   whoever had that node.

use std::collections::{HashMap, HashSet};

use lru::LruCache;

use super::error::{FsError, Result};
use super::node::Node;
use crate::cache::Cache;
use crate::limits::NODES_KEPT;
use crate::store::Store;
use crate::store::tables::{Ino, Inode, Table, ino_key};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex};

const SHARDS: usize = 64;
/// Nodes of one shard above which those that nothing keeps are dropped. Tests keep next to none, so that every
/// one of them meets nodes that leave memory.
const KEPT_PER_SHARD: usize = if cfg!(test) { 1 } else { NODES_KEPT / SHARDS };
/// Nodes that are looked at for each that comes in: more than one, so that those with nothing to keep them are
/// found soon also among many that are in use.
const LOOKS: usize = 8;
/// Counts of lookups give their memory back when the table is emptier than this share (one over) of its size.
const SPARSE: usize = 8;

/// What is left of an inode's use after a step back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The kernel or a handle still knows it, or it is not in memory: nothing is to be done.
    InUse,
    /// Nobody knows it, but it is in memory.
    Nobody,
}

/// What keeps a node in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Nothing.
    No,
    /// Only attributes that are not stored yet.
    ByAttributes,
    /// Somebody has it, or it has data or a state that is not stored.
    ByUse,
}

/// A node in the table.
#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    opens: u32,
    /// Somebody has claimed it and deletes it.
    reaping: bool,
}

impl Slot {
    fn kept(&self, cache: &Cache) -> Kept {
        // Where the table's copy is the only one, nobody can hold or be waiting for the node's lock.
        if self.opens > 0 || self.reaping || Arc::strong_count(&self.node) > 1 {
            return Kept::ByUse;
        }
        let Some(state) = self.node.state.try_read() else { return Kept::ByUse };
        let in_use = self.node.unlinked.load(Ordering::Acquire)
            || self.node.visible_to.load(Ordering::Acquire) != u64::MAX
            || state.reserved + state.held > 0
            || state.in_flight > 0
            || cache.has_dirty(self.node.ino);
        match (in_use, state.attr_dirty) {
            (true, _) => Kept::ByUse,
            (false, true) => Kept::ByAttributes,
            (false, false) => Kept::No,
        }
    }
}

/// A record that is being read from the store, outside of the shard's lock.
#[derive(Debug)]
struct Load {
    ino: Ino,
    number: u64,
    /// The inode's node left memory since, so another record may be there now.
    overtaken: bool,
}

/// A part of the table, under one lock.
#[derive(Debug)]
struct Shard {
    /// What the kernel knows: how often it looked up each inode. No count is 0.
    lookups: HashMap<Ino, u64>,
    /// The nodes in memory, in the order of their last use.
    nodes: LruCache<Ino, Slot>,
    loads: Vec<Load>,
    next_load: u64,
}

impl Shard {
    fn new() -> Self {
        Self { lookups: HashMap::new(), nodes: LruCache::unbounded(), loads: Vec::new(), next_load: 0 }
    }

    fn used(&self, ino: Ino) -> bool {
        self.lookups.contains_key(&ino) || self.nodes.peek(&ino).is_some_and(|slot| slot.opens > 0)
    }

    /// The node if it is in memory, with so many more lookups and opens counted.
    fn find(&mut self, ino: Ino, lookups: u64, opens: u32) -> Result<Option<Arc<Node>>> {
        let Some(slot) = self.nodes.get_mut(&ino) else { return Ok(None) };
        if slot.reaping {
            return Err(FsError::NoSuchInode { ino });
        }
        slot.opens += opens;
        let node = slot.node.clone();
        self.look_up(ino, lookups);
        Ok(Some(node))
    }

    fn insert(&mut self, node: &Arc<Node>, lookups: u64, opens: u32) {
        self.nodes.put(node.ino, Slot { node: node.clone(), opens, reaping: false });
        self.look_up(node.ino, lookups);
    }

    fn look_up(&mut self, ino: Ino, lookups: u64) {
        if lookups > 0 {
            *self.lookups.entry(ino).or_default() += lookups;
        }
    }

    fn forget(&mut self, ino: Ino, lookups: u64) {
        let Some(count) = self.lookups.get_mut(&ino) else { return };
        *count = count.saturating_sub(lookups);
        if *count == 0 {
            self.lookups.remove(&ino);
            if self.lookups.len() < self.lookups.capacity() / SPARSE {
                let room = 2 * self.lookups.len();
                self.lookups.shrink_to(room);
            }
        }
    }

    /// Takes a node out of memory.
    fn drop_node(&mut self, ino: Ino) {
        self.nodes.pop(&ino);
        self.loads.iter_mut().filter(|load| load.ino == ino).for_each(|load| load.overtaken = true);
    }

    fn begin_load(&mut self, ino: Ino) -> u64 {
        self.next_load += 1;
        self.loads.push(Load { ino, number: self.next_load, overtaken: false });
        self.next_load
    }

    /// Ends a load. Says whether it was overtaken.
    fn end_load(&mut self, number: u64) -> bool {
        match self.loads.iter().position(|load| load.number == number) {
            Some(at) => self.loads.swap_remove(at).overtaken,
            None => true,
        }
    }

    /// Looks at the `looks` nodes that were not used for longest, while there are too many, and drops those that
    /// nothing keeps. Returns those that only wait for their attributes to be stored.
    fn trim(&mut self, cache: &Cache, looks: usize) -> Vec<Ino> {
        let mut waiting = Vec::new();
        for _ in 0..looks {
            if self.nodes.len() <= KEPT_PER_SHARD {
                break;
            }
            let Some((&ino, slot)) = self.nodes.peek_lru() else { break };
            match slot.kept(cache) {
                Kept::No => self.drop_node(ino),
                kept => {
                    if kept == Kept::ByAttributes {
                        waiting.push(ino);
                    }
                    self.nodes.promote(&ino);
                }
            }
        }
        waiting
    }
}

/// All inodes in memory, sharded by number.
///
/// A shard's lock is a leaf: it may be taken under an inode's lock, and nothing but the cache's own locks is
/// taken under it.
pub(super) struct NodeTable {
    shards: Vec<Mutex<Shard>>,
    /// Nodes that could have left memory but for what they have not stored.
    leftover: Mutex<HashSet<Ino>>,
    cache: Arc<Cache>,
}

impl NodeTable {
    /// Nothing in it. `cache` knows which inodes have data that is not stored.
    pub fn new(cache: Arc<Cache>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect();
        Self { shards, leftover: Mutex::default(), cache }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[(ino % SHARDS as u64) as usize]
    }

    /// The node if it is in memory.
    pub fn peek(&self, ino: Ino) -> Option<Arc<Node>> {
        self.shard(ino).lock().nodes.peek(&ino).map(|slot| slot.node.clone())
    }

    /// The node, from memory or from the store.
    pub fn get(&self, store: &Store, ino: Ino) -> Result<Arc<Node>> {
        self.get_counted(store, ino, 0, 0)
    }

    /// The node, with so many more lookups and opens counted, in one step.
    pub fn get_counted(&self, store: &Store, ino: Ino, lookups: u64, opens: u32) -> Result<Arc<Node>> {
        self.get_by(ino, lookups, opens, || Ok(store.read(Table::Inodes, &ino_key(ino))?))
    }

    /// The node, from memory or by reading its record, which is done without a lock.
    pub(super) fn get_by(
        &self,
        ino: Ino,
        lookups: u64,
        opens: u32,
        read: impl Fn() -> Result<Option<Inode>>,
    ) -> Result<Arc<Node>> {
        loop {
            let load = {
                let mut shard = self.shard(ino).lock();
                if let Some(node) = shard.find(ino, lookups, opens)? {
                    return Ok(node);
                }
                shard.begin_load(ino)
            };
            let found = read();
            let mut shard = self.shard(ino).lock();
            let overtaken = shard.end_load(load);
            let inode = found?;
            if let Some(node) = shard.find(ino, lookups, opens)? {
                return Ok(node);
            }
            if overtaken {
                continue;
            }
            let node = Node::new(ino, inode.ok_or(FsError::NoSuchInode { ino })?);
            shard.insert(&node, lookups, opens);
            let waiting = shard.trim(&self.cache, LOOKS);
            drop(shard);
            self.leave_over(waiting);
            return Ok(node);
        }
    }

    /// Takes in the node of a new inode. Whoever guessed its number may have loaded it already: returns the node
    /// that counts.
    pub fn insert(&self, node: Arc<Node>, lookups: u64, opens: u32) -> Result<Arc<Node>> {
        let mut shard = self.shard(node.ino).lock();
        if let Some(known) = shard.find(node.ino, lookups, opens)? {
            return Ok(known);
        }
        shard.insert(&node, lookups, opens);
        let waiting = shard.trim(&self.cache, LOOKS);
        drop(shard);
        self.leave_over(waiting);
        Ok(node)
    }

    /// Counts so many lookups and handles less.
    pub fn step_back(&self, ino: Ino, lookups: u64, opens: u32) -> Left {
        let mut shard = self.shard(ino).lock();
        shard.forget(ino, lookups);
        let Some(slot) = shard.nodes.peek_mut(&ino) else { return Left::InUse };
        slot.opens = slot.opens.saturating_sub(opens);
        if shard.used(ino) { Left::InUse } else { Left::Nobody }
    }

    /// Claims an unlinked node that nobody uses any more, so that exactly one caller deletes it.
    pub fn claim_dead(&self, ino: Ino) -> Option<Arc<Node>> {
        let mut shard = self.shard(ino).lock();
        if shard.used(ino) {
            return None;
        }
        let slot = shard.nodes.peek_mut(&ino)?;
        if slot.reaping || !slot.node.unlinked.load(Ordering::Acquire) {
            return None;
        }
        slot.reaping = true;
        Some(slot.node.clone())
    }

    /// Gives back a claim: deleting failed, and will be tried again at the next mount.
    pub fn unclaim(&self, ino: Ino) {
        if let Some(slot) = self.shard(ino).lock().nodes.peek_mut(&ino) {
            slot.reaping = false;
        }
    }

    /// Forgets a deleted inode.
    pub fn remove(&self, ino: Ino) {
        self.shard(ino).lock().drop_node(ino);
    }

    /// Drops the node if nobody counts it and nothing keeps it. One that something keeps is remembered as left
    /// over.
    pub fn evict(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        if shard.used(ino) {
            return;
        }
        let Some(slot) = shard.nodes.peek(&ino) else { return };
        if slot.kept(&self.cache) == Kept::No {
            shard.drop_node(ino);
        } else {
            drop(shard);
            self.leave_over(vec![ino]);
        }
    }

    fn leave_over(&self, inos: Vec<Ino>) {
        if !inos.is_empty() {
            self.leftover.lock().extend(inos);
        }
    }

    /// Takes the list of those left over.
    pub fn take_leftover(&self) -> Vec<Ino> {
        std::mem::take(&mut *self.leftover.lock()).into_iter().collect()
    }

    /// Drops what nothing keeps, as far as there are too many nodes.
    pub fn trim(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let looks = shard.nodes.len();
            let waiting = shard.trim(&self.cache, looks);
            drop(shard);
            self.leave_over(waiting);
        }
    }

    /// Numbers of all nodes in memory.
    pub fn all(&self) -> Vec<Ino> {
        let inos = |shard: &Mutex<Shard>| shard.lock().nodes.iter().map(|(ino, _)| *ino).collect::<Vec<_>>();
        self.shards.iter().flat_map(inos).collect()
    }

    /// How many inodes the kernel knows.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().lookups.len()).sum()
    }

    /// How many nodes may stay in memory without a reason.
    #[cfg(test)]
    pub const KEPT: usize = SHARDS * KEPT_PER_SHARD;
}
