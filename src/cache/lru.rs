//! Which clean blocks to drop first: least recently used ones, in lists that share no lock.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use lru::LruCache;

use super::Ino;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const LISTS: usize = 8;

/// A block of a file.
pub(super) type Key = (Ino, u64);

/// The order in which blocks with clean pages are evicted.
///
/// A hit moves a block to the front only when it has fallen behind by some share of the cache: blocks
/// in the front need no order among themselves, and a hot block costs no lock at all.
pub(super) struct Lru {
    lists: Vec<Mutex<LruCache<Key, ()>>>,
    /// The clock of stamps: blocks listed or moved to the front so far.
    moves: AtomicU64,
    /// How far a block may fall behind before a hit moves it.
    slack: u64,
    /// The list that gives the next victim.
    turn: AtomicUsize,
}

impl Lru {
    /// For a cache of about so many blocks.
    pub fn new(blocks: u64) -> Self {
        Self {
            lists: (0..LISTS).map(|_| Mutex::new(LruCache::unbounded())).collect(),
            moves: AtomicU64::new(0),
            slack: blocks / 16,
            turn: AtomicUsize::new(0),
        }
    }

    fn list(&self, key: &Key) -> &Mutex<LruCache<Key, ()>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        &self.lists[hash as usize % LISTS]
    }

    /// Lists a block at the front. Returns its stamp.
    pub fn add(&self, key: Key) -> u64 {
        self.list(&key).lock().put(key, ());
        self.moves.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes a use of a listed block.
    pub fn touch(&self, key: Key, stamp: &mut u64) {
        let now = self.moves.load(Ordering::Relaxed);
        if now.saturating_sub(*stamp) > self.slack {
            self.list(&key).lock().promote(&key);
            *stamp = self.moves.fetch_add(1, Ordering::Relaxed) + 1;
        }
    }

    /// Takes a block off the list.
    pub fn remove(&self, key: &Key) {
        self.list(key).lock().pop(key);
    }

    /// Takes the next block to evict off the list; none if no block is listed.
    pub fn pop(&self) -> Option<Key> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        (0..LISTS).find_map(|i| {
            let list = &self.lists[start.wrapping_add(i) % LISTS];
            list.lock().pop_lru().map(|(key, ())| key)
        })
    }

    /// Blocks listed.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lists.iter().map(|list| list.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_blocks_outlive_unused_ones() {
        let lru = Lru::new(16);
        let mut stamps: Vec<u64> = (0..64).map(|block| lru.add((1, block))).collect();
        for block in 0..16 {
            lru.touch((1, block), &mut stamps[block as usize]);
        }
        let victims: Vec<u64> = (0..32).filter_map(|_| lru.pop()).map(|(_, block)| block).collect();
        assert_eq!(victims.len(), 32);
        let used = victims.iter().filter(|block| **block < 16).count();
        assert!(used <= 4, "{used} of 16 used blocks went before unused ones: {victims:?}");
        assert_eq!(lru.len(), 32);
    }

    #[test]
    fn a_removed_block_is_no_victim() {
        let lru = Lru::new(16);
        lru.add((1, 5));
        lru.remove(&(1, 5));
        assert_eq!(lru.pop(), None);
    }
}
