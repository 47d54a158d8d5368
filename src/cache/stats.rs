//! What people see of the cache.

use serde::{Deserialize, Serialize};

use crate::sync::atomic::AtomicU64;

/// The cache at one moment, and what it did since it was made. Sums taken while others work may be off
/// by what they are doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStats {
    /// Bytes of memory in use, bookkeeping included.
    pub bytes: u64,
    /// The budget for `bytes`.
    pub bytes_limit: u64,
    /// Bytes of file data not yet on disk.
    pub dirty_bytes: u64,
    /// The limit for `dirty_bytes`.
    pub dirty_limit: u64,
    /// Those of `dirty_bytes` that are being written right now.
    pub in_flight_bytes: u64,
    /// Files with data in the cache.
    pub files: u64,
    /// Files with dirty data that is not being written right now.
    pub dirty_files: u64,
    /// Pages that readers found in the cache.
    pub hits: u64,
    /// Pages that readers had to wait for.
    pub misses: u64,
    /// Pages loaded before a reader asked for them.
    pub read_ahead: u64,
    /// Pages evicted to keep the budget.
    pub evictions: u64,
    /// Loads that failed.
    pub load_errors: u64,
}

/// The counting part of [`CacheStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub read_ahead: AtomicU64,
    pub evictions: AtomicU64,
    pub load_errors: AtomicU64,
}
