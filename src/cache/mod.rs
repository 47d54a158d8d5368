//! The write-back cache of file data.
//!
//! File data lives here by inode and offset in pages of 4 KiB, as large as a sector, so that a write of
//! one sector costs one sector. Sixteen neighbouring pages form a block, the unit of eviction. All of it,
//! bookkeeping included, stays inside one budget; only dirty data may exceed that, and its own limit
//! makes writers wait before it does.
//!
//! | file | what it has |
//! | --- | --- |
//! | `page`, `block`, `stock` | the data, and what is going on with it: dirty, captured, being loaded; pages to use again |
//! | `file`, `table` | one file's blocks under one lock; the files by number |
//! | `read`, `load`, `ahead`, `scratch` | reading, loading what is missing, read-ahead |
//! | `write` | writing, zeroing, dropping |
//! | `capture` | dirty pages on their way to disk |
//! | `budget`, `lru` | room: who must wait, and what is evicted |
//! | `dirty`, `flusher` | what to flush when, and the threads that do it |
//!
//! # A page's life
//!
//! A write makes a page dirty. [`Cache::capture`] takes dirty pages as they are at that moment and marks
//! their slots as in flight; an overwrite from then on makes a new page and leaves the captured one
//! alone. When the captured data is on disk, the file system asks [`Captured::still_there`] which slots
//! were not dropped meanwhile (only those may be mapped: what was truncated or punched must not come
//! back), commits, and calls [`Captured::finish`]: pages not overwritten since are clean then, and may
//! be evicted. A load marks the slots that it is for; whatever touches a slot takes it away from the
//! load, so old bytes never replace newer ones.
//!
//! # Locks
//!
//! The file system calls [`Cache::read`] under a shared lock of the inode, and write, zero, discard,
//! capture, still_there and finish under its exclusive lock. The cache's own locks are held for as long
//! as copying takes, never during [`Backing::load`] or [`Backing::flush`], and are taken in this order:
//! a piece of the table of files, a file, an LRU list or the queue of dirty files or the budget's waiters.

mod ahead;
mod block;
mod budget;
// The cache's own struct stands beside its parts.
#[allow(clippy::module_inception)]
mod cache;
mod capture;
mod dirty;
mod error;
mod file;
mod flusher;
mod load;
mod lru;
mod page;
mod read;
mod scratch;
mod stats;
mod stock;
mod table;
mod write;

#[cfg(test)]
mod tests;

pub use budget::Admission;
pub use cache::{Backing, Cache, CacheOptions};
pub use capture::{Captured, Run};
pub use error::{CacheError, FlushError, LoadError};
pub use flusher::Flusher;
pub use page::{PAGE_BYTES, PAGE_LEN, Page};
pub use stats::CacheStats;

/// Number of an inode.
pub type Ino = u64;
