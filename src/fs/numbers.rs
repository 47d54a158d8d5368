//! Numbers of inodes and extents: never used again, and reserved from the store in blocks, so that giving
//! one out costs nothing.

use super::error::Result;
use crate::store::tables::Table;
use crate::store::{Store, Tx};
use crate::sync::Mutex;

/// Numbers reserved with one record. Those not given out before a crash are skipped.
const BLOCK: u64 = 4096;

/// A counter.
#[derive(Debug)]
pub(super) struct Numbers {
    name: &'static [u8],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u64,
    limit: u64,
}

impl Numbers {
    /// The counter of this name, from what is stored of it; `first` in a new pool.
    pub fn load(store: &Store, name: &'static [u8], first: u64) -> Result<Self> {
        let next = store.read::<u64>(Table::Counters, name)?.unwrap_or(first);
        Ok(Self { name, state: Mutex::new(State { next, limit: next }) })
    }

    /// The next number. It is in the journal as taken before anything that uses it.
    pub fn next(&self, store: &Store) -> Result<u64> {
        let mut state = self.state.lock();
        if state.next == state.limit {
            let limit = state.limit + BLOCK;
            let mut tx = Tx::new();
            tx.put(Table::Counters, self.name.to_vec(), &limit);
            store.commit(tx)?;
            state.limit = limit;
        }
        let number = state.next;
        state.next += 1;
        Ok(number)
    }
}
