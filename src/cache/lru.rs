//! Which clean blocks to drop first: least recently used ones, in lists that share no lock.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use lru::LruCache;

use super::Ino;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Enough that threads seldom meet, and few enough to look at the end of each for a victim.
const LISTS: usize = 4;

/// A block of a file.
pub(super) type Key = (Ino, u64);

/// The order in which blocks with clean pages are evicted.
///
/// A hit moves a block to the front only when it has fallen behind by some share of the cache: blocks
/// in the front need no order among themselves, and a hot block costs no lock at all.
pub(super) struct Lru {
    /// Blocks with their stamps.
    lists: Vec<Mutex<LruCache<Key, u64>>>,
    /// The clock of stamps: blocks listed or moved to the front so far.
    moves: AtomicU64,
    /// How far a block may fall behind before a hit moves it.
    slack: u64,
}

impl Lru {
    /// For a cache of about so many blocks.
    pub fn new(blocks: u64) -> Self {
        Self {
            lists: (0..LISTS).map(|_| Mutex::new(LruCache::unbounded())).collect(),
            moves: AtomicU64::new(0),
            slack: blocks / 16,
        }
    }

    fn list(&self, key: &Key) -> &Mutex<LruCache<Key, u64>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        &self.lists[hash as usize % LISTS]
    }

    /// Lists a block, or moves it, to the front. Returns its stamp.
    pub fn add(&self, key: Key) -> u64 {
        let stamp = self.moves.fetch_add(1, Ordering::Relaxed) + 1;
        self.list(&key).lock().put(key, stamp);
        stamp
    }

    /// Notes a use of a listed block.
    pub fn touch(&self, key: Key, stamp: &mut u64) {
        let now = self.moves.load(Ordering::Relaxed);
        if now.saturating_sub(*stamp) > self.slack {
            let mut list = self.list(&key).lock();
            // An evictor may have taken it off just now, and will not find its pages worth keeping.
            if let Some(listed) = list.get_mut(&key) {
                *stamp = self.moves.fetch_add(1, Ordering::Relaxed) + 1;
                *listed = *stamp;
            }
        }
    }

    /// Takes a block off the list.
    pub fn remove(&self, key: &Key) {
        self.list(key).lock().pop(key);
    }

    /// Takes the block that was not used for longest off its list; none if no block is listed.
    pub fn pop(&self) -> Option<Key> {
        loop {
            let oldest = |list: &Mutex<LruCache<Key, u64>>| list.lock().peek_lru().map(|(_, stamp)| *stamp);
            let ends = self.lists.iter().filter_map(|list| Some((oldest(list)?, list)));
            let (_, list) = ends.min_by_key(|(stamp, _)| *stamp)?;
            // Another thread may have taken the last of this list meanwhile.
            if let Some((key, _)) = list.lock().pop_lru() {
                return Some(key);
            }
        }
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
        assert_eq!(victims, (16..48).collect::<Vec<_>>());
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
