//! What can go wrong in the store.

use crate::limits::RECORD_MAX_BYTES;
use crate::pool::PoolError;

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// What can go wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The pool below.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A transaction larger than one journal record.
    #[error("a transaction of {bytes} bytes is larger than a journal record ({RECORD_MAX_BYTES} bytes)")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Metadata that can't be what it should be.
    #[error("the metadata is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// The journal is full, and what it holds can't be released yet.
    #[error("the journal is full")]
    JournalFull,
    /// An earlier failure left the store unable to promise anything: it takes no more changes.
    #[error(
        "the pool takes no more changes since {why}; unmount it, and mount it again when the cause is gone"
    )]
    Poisoned {
        /// What happened.
        why: String,
    },
    /// Opened read-only.
    #[error("the pool is mounted read-only")]
    ReadOnly,
}
