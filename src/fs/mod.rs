//! The file system: POSIX rules over the store, the cache and the pool. Plain structs in and out; the
//! border to the kernel is [`crate::fuse`], and everything here is tested without a mount.
//!
//! # Parts
//!
//! | module | what it is |
//! | --- | --- |
//! | `mount`, `orphans` | start, threads, unmount; what a crash left half done |
//! | `node`, `node_table` | an inode in memory; which ones are, and for how long |
//! | `locks`, `handles` | locking several inodes, open files |
//! | `namespace`, `create`, `rename`, `directory` | names |
//! | `attr`, `setattr`, `xattr` | attributes, `statfs`, extended attributes |
//! | `data`, `copy`, `truncate`, `allocate` | reading, writing, sharing, cutting, fallocate, lseek |
//! | `flush`, `flush_commit`, `fsync` | from dirty pages to extents and to the journal |
//! | `inline` | small files, whose content is in a table |
//! | `extents`, `map`, `refs`, `change` | what a file's map says, who refers to extents, transactions |
//! | `reserve`, `numbers` | room in the pool, counters |
//! | `compact` | rewriting sets that are mostly dead |
//! | `check` | comparing all tables with each other |
//! | `locate` | from extents to files and their paths, from files to places |
//!
//! # Locking order
//!
//! Each lock may be taken while those above it are held, never the other way round:
//!
//! 1. the rename lock (directories that move between directories);
//! 2. inode locks, **in the order of inode numbers**, whatever the inodes are. An operation that needs
//!    several finds out which, locks them all at once (`Locked`), and looks again whether the names
//!    still lead there. Nobody takes an inode's lock while holding another, except that a flush takes
//!    the next in order. Loads run under the lock of their caller and take none;
//! 3. shards of the inode table, the list of handles, counters: leaves, which protect memory only;
//! 4. the lock of the extents: shared while a transaction is worked out and committed that changes
//!    references to extents of the locked inodes alone, exclusive where extents are shared with other
//!    inodes or move;
//! 5. the locks of the cache, the store and the pool, which never call back here under their locks
//!    (the cache calls `Backing::load` and `Backing::flush` with none of its own held).
//!
//! No inode's lock is held while stripes are written, while the journal is synced, or while somebody
//! waits for room.
//!
//! # What must be durable before what
//!
//! * Data before the record that refers to it: a flush commits only after `Pool::write` has synced.
//! * An inode's stored size grows only in the transaction that brings the data (its map or its journaled
//!   bytes), or by explicit truncation and allocation. Memory's size is the truth for readers.
//! * What was cut is gone from the cache before its transaction is committed, and a flush in flight maps
//!   only what the cache still has of it.
//! * Memory changes after the store has taken the transaction, both under the inode's lock.

mod allocate;
mod attr;
mod change;
mod check;
mod compact;
mod copy;
mod create;
mod data;
mod directory;
mod error;
mod extents;
mod flush;
mod flush_commit;
mod fsync;
mod handles;
mod inline;
mod locate;
mod locks;
mod map;
mod mount;
mod namespace;
mod node;
mod node_table;
mod numbers;
mod orphans;
mod refs;
mod rename;
mod reserve;
mod setattr;
#[cfg(test)]
mod tests;
mod truncate;
mod xattr;

use std::collections::HashSet;
use std::time::Duration;

pub use allocate::Whence;
pub use attr::{Attr, Caller, FileKind, SetAttr, TimeSet};
pub use check::{Area, CheckOptions, CheckReport, Finding};
pub use data::WriteOutcome;
pub use directory::DirEntry;
pub use error::{FsError, Result};
pub use handles::OpenFlags;
pub use locate::{FilePlace, FileRange};
pub use rename::RenameMode;
pub use setattr::StatFs;
pub use xattr::XattrMode;

use crate::cache::Cache;
use crate::member::superblock::{Seq, SetId};
use crate::pool::Pool;
use crate::store::Store;
use crate::store::tables::Ino;
use crate::sync::atomic::AtomicBool;
use crate::sync::{Arc, Clock, Mutex, RwLock};

/// Number of an open file or directory; 0 is none.
pub type Handle = u64;

/// When a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// When it is in memory.
    Writeback,
    /// When it is durable; what was written stays in memory for readers.
    Writethrough,
    /// When it is durable; nothing stays in memory.
    Off,
}

/// How to mount.
#[derive(Debug, Clone)]
pub struct FsOptions {
    /// Memory for file data, in bytes; half of it may be dirty.
    pub cache_bytes: u64,
    /// Memory for nodes of the metadata's trees, in bytes.
    pub meta_cache_bytes: u64,
    /// When a write is answered.
    pub write_cache: WriteCache,
    /// Dirty data is written out when it is so old.
    pub commit: Duration,
    /// Do not note when files are read.
    pub noatime: bool,
    /// Run threads; otherwise everything happens in calls, and [`Fs::tick`] does what is due.
    pub background: bool,
    /// Mount although acknowledged records are lost.
    pub force: bool,
    /// The time.
    pub clock: Clock,
}

/// A mounted file system.
pub struct Fs {
    options: FsOptions,
    clock: Clock,
    pool: Arc<Pool>,
    store: Arc<Store>,
    cache: Arc<Cache>,
    nodes: node_table::NodeTable,
    handles: handles::Handles,
    ino_numbers: numbers::Numbers,
    extent_numbers: numbers::Numbers,
    rename_lock: Mutex<()>,
    /// Held while changed references are counted and committed; see the locking order.
    extent_lock: RwLock<()>,
    compactor: compact::Compactor,
    /// Files whose truncation to nothing was held back: flushed by a tick once they are closed.
    replacing: Mutex<HashSet<Ino>>,
    /// Claimed inodes without a name whose maps are long.
    dead: Mutex<Vec<Ino>>,
    /// The store takes changes into the log; before that they are in memory.
    logging: AtomicBool,
    /// Held by who eases the log.
    easing: Mutex<()>,
    /// The last record when room was last made.
    room_made_at: Mutex<Option<Seq>>,
    /// The last record that the committer knows to be durable.
    synced: Mutex<Seq>,
    unmounted: AtomicBool,
    /// Places that readers found unreadable: set and address of the first sector. Bounded.
    unreadable: Mutex<Vec<(SetId, u64)>>,
    background: Arc<mount::Background>,
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Fs {
    /// The pool below.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The tables.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The time, as everything in it sees it.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The cache of file data.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Errors in a pool that takes no changes.
    fn writable(&self) -> Result<()> {
        if self.unmounted.load(crate::sync::atomic::Ordering::Acquire) {
            return Err(FsError::Unmounted);
        }
        if self.pool.read_only() { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// [`Fs::writable`], and there is room in the log for what a change commits. Call without locks: it may
    /// wait while a checkpoint makes some.
    fn may_change(&self) -> Result<()> {
        self.writable()?;
        self.await_log_room();
        Ok(())
    }
}
