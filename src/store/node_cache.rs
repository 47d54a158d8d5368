//! Nodes in memory: read on demand, kept in the order of their use, within a budget.
//!
//! What lies at an address of a set never changes, and set numbers never come again: a cached node is never
//! stale. Inner nodes are kept apart from leaves, so that a scan through many leaves leaves them alone.

use lru::LruCache;

use super::error::Result;
use super::node::{Expected, Node, Pointer};
use crate::member::superblock::{MetaPointer, SetId};
use crate::pool::Pool;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};

/// Enough that threads seldom meet.
const SHARDS: usize = 8;
/// Inner nodes may take this share of the budget.
const INNER_SHARE: (u64, u64) = (3, 4);

/// Set and address of a node's first piece.
type Place = (SetId, u64);

/// How likely a node is to be used again soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heat {
    /// Somebody looks for just this.
    Warm,
    /// Passed over by a scan or a checkpoint: the next to go.
    Cold,
}

/// A node, and whether it was in memory already.
#[derive(Debug)]
pub(super) struct Fetched {
    pub node: Arc<Node>,
    pub was_cached: bool,
}

/// The nodes of all trees of a pool.
#[derive(Debug)]
pub(super) struct NodeCache {
    pool: Arc<Pool>,
    shards: Vec<Mutex<Shard>>,
    /// Nodes read from members so far, and nodes written.
    reads: AtomicU64,
    writes: AtomicU64,
}

impl NodeCache {
    /// Nothing yet; at most about `bytes` later.
    pub fn new(pool: Arc<Pool>, bytes: u64) -> Self {
        let shard = || Mutex::new(Shard::new(bytes / SHARDS as u64));
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Self { pool, shards, reads: AtomicU64::new(0), writes: AtomicU64::new(0) }
    }

    /// The node at `pointer`, from memory or from the members. Two threads that miss the same node both read it.
    ///
    /// # Errors
    /// Those of reading, and [`super::StoreError::Damaged`] for anything but the node that is expected.
    pub fn read(&self, pointer: &[MetaPointer], expected: &Expected, heat: Heat) -> Result<Fetched> {
        let place = place_of(pointer);
        let known = self.shard(place).lock().list(expected.level).get(place, heat);
        if let Some(node) = known {
            node.check(expected)?;
            return Ok(Fetched { node, was_cached: true });
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = self.pool.read_metadata(pointer)?;
        let node = Arc::new(Node::decode(&bytes, expected)?);
        self.shard(place).lock().insert(place, Arc::clone(&node), heat);
        Ok(Fetched { node, was_cached: false })
    }

    /// Takes in a node that was just written.
    pub fn insert(&self, pointer: &Pointer, node: Arc<Node>, heat: Heat) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let place = place_of(pointer);
        self.shard(place).lock().insert(place, node, heat);
    }

    /// Drops nodes that no root refers to.
    pub fn forget(&self, pointers: &[MetaPointer]) {
        for pointer in pointers {
            let place = (pointer.set, pointer.address);
            self.shard(place).lock().remove(place);
        }
    }

    /// Nodes that were read from members so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Nodes that were written so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Memory in use, about.
    pub fn memory_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes()).sum()
    }

    fn shard(&self, (set, address): Place) -> &Mutex<Shard> {
        let mixed = (set ^ (address >> 12)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.shards[mixed as usize % SHARDS]
    }
}

/// Pointers are checked not to be empty when they are decoded.
fn place_of(pointer: &[MetaPointer]) -> Place {
    pointer.first().map_or((0, 0), |piece| (piece.set, piece.address))
}

#[derive(Debug)]
struct Shard {
    inner: List,
    leaves: List,
    budget: u64,
}

impl Shard {
    fn new(budget: u64) -> Self {
        Self { inner: List::new(), leaves: List::new(), budget }
    }

    fn list(&mut self, level: u8) -> &mut List {
        if level > 0 { &mut self.inner } else { &mut self.leaves }
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes + self.leaves.bytes
    }

    fn insert(&mut self, place: Place, node: Arc<Node>, heat: Heat) {
        let needed = node.memory_bytes();
        // Before it comes in: a cold one would be its own victim.
        self.shrink(self.budget.saturating_sub(needed));
        if needed <= self.budget {
            self.list(node.level()).insert(place, node, heat);
        }
    }

    /// Leaves go first, unless inner nodes have more than their share.
    fn shrink(&mut self, to: u64) {
        while self.bytes() > to {
            let inner_most = self.budget / INNER_SHARE.1 * INNER_SHARE.0;
            let from_inner = self.inner.bytes > inner_most || self.leaves.bytes == 0;
            let list = if from_inner { &mut self.inner } else { &mut self.leaves };
            if !list.drop_oldest() {
                return;
            }
        }
    }

    fn remove(&mut self, place: Place) {
        self.inner.remove(place);
        self.leaves.remove(place);
    }
}

#[derive(Debug)]
struct List {
    nodes: LruCache<Place, Arc<Node>>,
    bytes: u64,
}

impl List {
    fn new() -> Self {
        Self { nodes: LruCache::unbounded(), bytes: 0 }
    }

    fn get(&mut self, place: Place, heat: Heat) -> Option<Arc<Node>> {
        match heat {
            Heat::Warm => self.nodes.get(&place).cloned(),
            Heat::Cold => self.nodes.peek(&place).cloned(),
        }
    }

    fn insert(&mut self, place: Place, node: Arc<Node>, heat: Heat) {
        self.bytes += node.memory_bytes();
        if let Some(old) = self.nodes.put(place, node) {
            self.bytes -= old.memory_bytes();
        }
        if heat == Heat::Cold {
            self.nodes.demote(&place);
        }
    }

    fn remove(&mut self, place: Place) {
        if let Some(node) = self.nodes.pop(&place) {
            self.bytes -= node.memory_bytes();
        }
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((_, node)) = self.nodes.pop_lru() else { return false };
        self.bytes -= node.memory_bytes();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Draft;
    use super::super::tables::Table;
    use super::*;

    fn node(level: u8) -> Arc<Node> {
        let mut draft = Draft::default();
        draft.push(b"key", &[0; 1000]);
        Arc::new(draft.take_node(1, Table::Map, level))
    }

    #[test]
    fn a_scan_throws_out_neither_inner_nodes_nor_warm_leaves() {
        let mut shard = Shard::new(20 * node(0).memory_bytes());
        for address in 0..5 {
            shard.insert((1, address), node(1), Heat::Warm);
            shard.insert((2, address), node(0), Heat::Warm);
        }
        for address in 0..100 {
            shard.insert((3, address), node(0), Heat::Cold);
            assert!(shard.bytes() <= shard.budget);
        }
        for address in 0..5 {
            assert!(shard.inner.get((1, address), Heat::Warm).is_some());
            assert!(shard.leaves.get((2, address), Heat::Warm).is_some());
        }
        assert!(shard.leaves.get((3, 99), Heat::Warm).is_some(), "the last one passed over is there");
    }

    #[test]
    fn inner_nodes_leave_leaves_a_share() {
        let mut shard = Shard::new(20 * node(0).memory_bytes());
        for address in 0..100 {
            shard.insert((1, address), node(1), Heat::Warm);
        }
        for address in 0..100 {
            shard.insert((2, address), node(0), Heat::Warm);
        }
        assert_eq!((shard.inner.nodes.len(), shard.leaves.nodes.len()), (15, 5));
        shard.remove((1, 99));
        assert_eq!(shard.inner.nodes.len(), 14);
    }
}
