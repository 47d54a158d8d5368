//! The cache itself: its parts, and how their sums are kept.

use std::sync::Weak;
use std::time::Duration;

use super::block::{BLOCK_BYTES, BLOCK_COST, BLOCK_PAGES};
use super::budget::{Admission, Budget, Room};
use super::dirty::{Bell, Queue};
use super::error::{FlushError, LoadError};
use super::file::{Delta, FileState};
use super::lru::Lru;
use super::page::{PAGE_BYTES, PAGE_COST};
use super::scratch::Scratch;
use super::stats::{CacheStats, Counters};
use super::stock::Stock;
use super::table::Files;
use super::{Ino, ahead};
use crate::limits::{CACHE_DEFAULT_MAX_BYTES, CACHE_MIN_BYTES};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Clock, RwLock};

/// The file system behind the cache.
pub trait Backing: Send + Sync {
    /// Fills `buf` (whole sectors) with what the file holds on disk from `offset` (a whole sector) on;
    /// holes, and what lies beyond the file's end, read as zeros. Called without locks of the cache, on
    /// the thread of whoever reads or writes.
    ///
    /// # Errors
    /// [`LoadError`] names the first part that can't be read. Nothing in `buf` counts then.
    fn load(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<(), LoadError>;

    /// Writes out the dirty data of these files (all of it, or a good part) and commits it, by way of
    /// [`Cache::capture`] and [`Captured::finish`](super::Captured::finish). Called by the [`Flusher`](super::Flusher).
    ///
    /// # Errors
    /// [`FlushError`] when some of it is still dirty for a reason that people should know.
    fn flush(&self, inos: &[Ino]) -> Result<(), FlushError>;
}

/// How large a cache is and how long it may keep data to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// Most bytes of memory, bookkeeping included. Only dirty data can exceed it.
    pub bytes: u64,
    /// Dirty bytes at which writers must wait.
    pub dirty_bytes: u64,
    /// Age at which dirty data is written out.
    pub commit_age: Duration,
}

impl CacheOptions {
    /// Options for so many bytes (at least [`CACHE_MIN_BYTES`]), half of which may be dirty.
    pub fn new(bytes: u64, commit_age: Duration) -> Self {
        let bytes = bytes.max(CACHE_MIN_BYTES);
        Self { bytes, dirty_bytes: bytes / 2, commit_age }
    }
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self::new(CACHE_DEFAULT_MAX_BYTES, Duration::from_secs(5))
    }
}

/// A write-back cache of file data. Clones are handles of one cache.
#[derive(Clone)]
pub struct Cache(pub(super) Arc<Inner>);

/// The parts of a cache. Each has its own short locks; what order they are taken in is in the
/// documentation of the module above.
pub(super) struct Inner {
    pub files: Files,
    pub budget: Budget,
    pub lru: Lru,
    pub queue: Queue,
    pub bell: Bell,
    pub scratch: Scratch,
    pub stock: Stock,
    pub counters: Counters,
    pub clock: Clock,
    pub commit_age: Duration,
    /// The most that one load may cover.
    pub window_max: u64,
    /// Flusher threads at work.
    pub flushers: AtomicUsize,
    tokens: AtomicU64,
    backing: RwLock<Option<Weak<dyn Backing>>>,
}

impl Cache {
    /// An empty cache.
    pub fn new(options: CacheOptions, clock: Clock) -> Self {
        let blocks = options.bytes / (BLOCK_PAGES * PAGE_COST + BLOCK_COST);
        let stock = Stock::for_cache(options.bytes);
        let bytes = options.bytes - stock.bytes_max();
        let window_max = (options.bytes / 16).clamp(BLOCK_BYTES, ahead::WINDOW_MAX_BYTES);
        Self(Arc::new(Inner {
            files: Files::new(),
            budget: Budget::new(bytes, options.dirty_bytes.max(PAGE_BYTES)),
            lru: Lru::new(blocks),
            queue: Queue::default(),
            bell: Bell::default(),
            scratch: Scratch::default(),
            stock,
            counters: Counters::default(),
            clock,
            commit_age: options.commit_age,
            window_max,
            flushers: AtomicUsize::new(0),
            tokens: AtomicU64::new(1),
            backing: RwLock::new(None),
        }))
    }

    /// Names the file system that loads and flushes. Weak, because that one holds the cache.
    pub fn set_backing(&self, backing: Weak<dyn Backing>) {
        *self.0.backing.write() = Some(backing);
    }

    /// What a writer of so many bytes should do first: at 60 % of the dirty limit writers begin to be
    /// slowed, at the limit they wait.
    pub fn admit(&self, bytes: u64) -> Admission {
        self.0.budget.admit(bytes)
    }

    /// Writers are being slowed, or wait: dirty data must go, also what would better wait for something.
    pub fn is_slowing(&self) -> bool {
        self.0.budget.is_slowing()
    }

    /// Waits until so many bytes may become dirty, or `deadline` has passed (in the system's time).
    /// Returns whether they may. Call without an inode's lock: the flusher needs it to make room.
    /// Where no [`Flusher`](super::Flusher) runs nobody would make room, so this doesn't wait then.
    pub fn wait_for_room(&self, bytes: u64, deadline: Duration) -> bool {
        if self.0.flushers.load(Ordering::Acquire) == 0 {
            return self.0.budget.has_room(bytes);
        }
        self.0.bell.ring();
        self.0.budget.wait_for_room(bytes, deadline)
    }

    /// What is in the cache, and what it did so far.
    pub fn stats(&self) -> CacheStats {
        let budget = &self.0.budget;
        let counters = &self.0.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStats {
            bytes: budget.used(),
            bytes_limit: budget.limit,
            dirty_bytes: budget.dirty(),
            dirty_limit: budget.dirty_limit,
            in_flight_bytes: budget.flying(),
            files: self.0.files.len() as u64,
            dirty_files: self.0.queue.len() as u64,
            hits: read(&counters.hits),
            misses: read(&counters.misses),
            read_ahead: read(&counters.read_ahead),
            evictions: read(&counters.evictions),
            load_errors: read(&counters.load_errors),
        }
    }
}

impl Inner {
    /// The file system, if it is still there.
    pub fn backing(&self) -> Option<Arc<dyn Backing>> {
        self.backing.read().as_ref()?.upgrade()
    }

    /// A name that no other load or capture has.
    pub fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::AcqRel)
    }

    /// The name that the next load or capture will have.
    pub fn next_token(&self) -> u64 {
        self.tokens.load(Ordering::Acquire)
    }

    /// Adds what changed in a file to the cache's sums, under the file's lock. Memory is paid from
    /// `room` as far as that goes.
    pub fn settle(&self, state: &mut FileState, room: Option<&mut Room<'_>>) {
        let Delta { cost, dirty, flying } = std::mem::take(&mut state.pending);
        match (room, u64::try_from(cost)) {
            (Some(room), Ok(cost)) => room.pay(cost),
            (_, Ok(0)) => {}
            _ => self.budget.charge(cost),
        }
        if dirty != 0 || flying != 0 {
            self.budget.count(dirty, flying);
        }
        let since = state.waiting_since();
        if since != state.queued {
            self.queue.moved(state.ino(), state.queued, since);
            state.queued = since;
        }
    }

    /// Wakes the flusher when more is waiting than should be.
    pub fn nudge_if_pressed(&self) {
        if self.is_pressed() {
            self.bell.ring();
        }
    }

    /// Whether more dirty data waits than should, whatever its age.
    pub fn is_pressed(&self) -> bool {
        self.budget.excess() > 0
    }
}
