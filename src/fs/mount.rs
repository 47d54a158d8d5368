//! Starting and stopping a file system, and what its threads do.

use std::collections::HashSet;
use std::time::Duration;

use super::compact::Compactor;
use super::error::{FsError, Result};
use super::flush::Why;
use super::handles::Handles;
use super::namespace::FIRST_COOKIE;
use super::node_table::NodeTable;
use super::numbers::Numbers;
use super::{Fs, FsOptions, WriteCache};
use crate::cache::{Backing, Cache, CacheOptions, Flusher};
use crate::limits::JOURNAL_WAITING_BYTES;
use crate::member::superblock::Seq;
use crate::pool::Pool;
use crate::store::tables::{Inode, ROOT_INO, Table, ino_key};
use crate::store::{Store, StoreOptions, Tx};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Clock, Condvar, JoinHandle, Mutex, RwLock};

/// The journal is made durable so often.
const JOURNAL_INTERVAL: Duration = Duration::from_secs(1);
/// A change waits at most so long for room in the log; then it tries its luck.
const LOG_PATIENCE: Duration = Duration::from_secs(10);
/// A burst of changes can fill a small journal sooner: so often it is looked at.
const JOURNAL_LOOK_INTERVAL: Duration = Duration::from_millis(50);
const DATA_INTERVAL: Duration = Duration::from_secs(5);

impl Default for FsOptions {
    fn default() -> Self {
        Self {
            cache_bytes: crate::limits::CACHE_DEFAULT_MAX_BYTES,
            meta_cache_bytes: crate::limits::META_CACHE_DEFAULT_BYTES,
            write_cache: WriteCache::Writeback,
            commit: DATA_INTERVAL,
            noatime: false,
            background: true,
            force: false,
            clock: Clock::system(),
        }
    }
}

/// The threads of a mounted file system.
#[derive(Default)]
pub(super) struct Background {
    stop: Mutex<bool>,
    wake: Condvar,
    /// The log has room again.
    eased: Condvar,
    committer: Mutex<Option<JoinHandle<()>>>,
    compactor: Mutex<Option<JoinHandle<()>>>,
    flusher: Mutex<Option<Flusher>>,
}

impl Background {
    /// Tells the committer to end.
    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.wake.notify_all();
        self.eased.notify_all();
    }

    /// Asks the committer to look at the log now, and waits until it was eased, but at most `patience`. False when
    /// it is time to end.
    fn urge(&self, patience: Duration) -> bool {
        let mut stop = self.stop.lock();
        self.wake.notify_all();
        if !*stop {
            self.eased.wait_for(&mut stop, patience);
        }
        !*stop
    }

    /// The log was eased.
    fn eased(&self) {
        self.eased.notify_all();
    }

    /// Waits so long; false when it is time to end.
    fn rest(&self, rest: Duration) -> bool {
        let mut waited = Duration::ZERO;
        let mut stop = self.stop.lock();
        while !*stop && waited < rest {
            let part = JOURNAL_LOOK_INTERVAL.min(rest.saturating_sub(waited));
            self.wake.wait_for(&mut stop, part);
            waited += part;
        }
        !*stop
    }

    /// Waits a journal interval, or less when it is `urgent`; false when it is time to end.
    fn wait(&self, urgent: impl Fn() -> bool) -> bool {
        let mut waited = Duration::ZERO;
        let mut stop = self.stop.lock();
        while !*stop && waited < JOURNAL_INTERVAL && !urgent() {
            self.wake.wait_for(&mut stop, JOURNAL_LOOK_INTERVAL);
            waited += JOURNAL_LOOK_INTERVAL;
        }
        !*stop
    }
}

impl Fs {
    /// Mounts a pool: recovers the store, finishes what a crash left half done, puts journaled data back
    /// into the cache, and starts the threads (with [`FsOptions::background`]).
    ///
    /// # Errors
    /// Those of recovery and of the first checkpoint.
    pub fn mount(pool: Arc<Pool>, options: FsOptions) -> Result<Arc<Self>> {
        let store_options = StoreOptions {
            clock: options.clock.clone(),
            force: options.force,
            cache_bytes: options.meta_cache_bytes,
            ..StoreOptions::default()
        };
        let (store, journaled) = Store::recover(pool.clone(), store_options)?;
        let store = Arc::new(store);
        let cache = Arc::new(Cache::new(
            CacheOptions {
                bytes: options.cache_bytes,
                dirty_bytes: options.cache_bytes / 2,
                commit_age: options.commit,
            },
            options.clock.clone(),
        ));
        let fs = Arc::new(Self {
            ino_numbers: Numbers::load(&store, b"next-ino", ROOT_INO + 1)?,
            extent_numbers: Numbers::load(&store, b"next-extent", 1)?,
            nodes: NodeTable::new(cache.clone()),
            handles: Handles::new(),
            rename_lock: Mutex::new(()),
            extent_lock: RwLock::new(()),
            compactor: Compactor::default(),
            replacing: Mutex::new(HashSet::new()),
            dead: Mutex::new(Vec::new()),
            logging: AtomicBool::new(false),
            easing: Mutex::new(()),
            room_made_at: Mutex::new(None),
            synced: Mutex::new(0),
            unmounted: AtomicBool::new(false),
            unreadable: Mutex::new(Vec::new()),
            background: Arc::default(),
            clock: options.clock.clone(),
            options,
            pool,
            store,
            cache,
        });
        let backing: Arc<dyn Backing> = fs.clone();
        fs.cache.set_backing(Arc::downgrade(&backing));
        fs.need_root()?;
        fs.finish_intents()?;
        if !fs.pool.read_only() {
            fs.reap_orphans()?;
        }
        fs.put_back(journaled)?;
        if !fs.pool.read_only() {
            fs.flush_journaled()?;
            fs.store.start()?;
            fs.logging.store(true, Ordering::Release);
            if fs.options.background {
                fs.start_threads();
            }
        }
        Ok(fs)
    }

    /// Makes the root directory of a new pool.
    fn need_root(&self) -> Result<()> {
        if self.store.get(Table::Inodes, &ino_key(ROOT_INO))?.is_some() {
            return Ok(());
        }
        self.writable()?;
        let now = self.clock.now();
        let root = Inode {
            mode: libc::S_IFDIR | 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            rdev: 0,
            generation: 1,
            size: 0,
            sectors: 0,
            inline: false,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            parent: ROOT_INO,
            next_cookie: FIRST_COOKIE,
            entries: 0,
            resiliency: self.pool.default_resiliency(),
            target: None,
        };
        let mut tx = Tx::new();
        tx.put(Table::Inodes, ino_key(ROOT_INO), &root);
        self.store.commit(tx)?;
        Ok(())
    }

    fn start_threads(self: &Arc<Self>) {
        *self.background.flusher.lock() = Some(Flusher::start(&self.cache));
        let weak = Arc::downgrade(self);
        let background = self.background.clone();
        let committer = crate::sync::spawn("committer", move || {
            loop {
                let urgent = || weak.upgrade().is_some_and(|fs: Arc<Self>| fs.is_urgent());
                if !background.wait(urgent) {
                    return;
                }
                // While it waits it holds nothing, so that a file system that nobody has any more goes.
                let Some(fs) = weak.upgrade() else { return };
                fs.tick();
            }
        });
        *self.background.committer.lock() = Some(committer);
        let weak = Arc::downgrade(self);
        let background = self.background.clone();
        // Where nobody changes anything it makes no record either: a pool that is only looked at with some of its
        // members, and then with others, must not diverge.
        let mounted_at = self.store.last_seq();
        let compactor = crate::sync::spawn("compactor", move || {
            let mut rest = JOURNAL_INTERVAL;
            while background.rest(rest) {
                let Some(fs) = weak.upgrade() else { return };
                let changed = fs.store.last_seq() != mounted_at;
                rest = if changed { fs.compact_in_background() } else { JOURNAL_INTERVAL };
            }
        });
        *self.background.compactor.lock() = Some(compactor);
    }

    /// Whether the committer is not to wait for its interval to end.
    fn is_urgent(&self) -> bool {
        self.store.checkpoint_due() || self.store.waiting_bytes() > JOURNAL_WAITING_BYTES
    }

    /// What the committer does each journal interval; tests and simulations call it instead: flushes files
    /// that were replaced, makes the journal durable, takes a checkpoint when one is due, deletes what is
    /// dead and drops what is idle. Without threads it also flushes what is old. Errors are logged: what
    /// failed stays as it is and is tried again.
    pub fn tick(&self) {
        if self.pool.read_only() || self.unmounted.load(Ordering::Acquire) {
            return;
        }
        // One that is opened again meanwhile, and truncated, waits for its next close.
        self.note("flushing", self.flush_files_for(&self.replaced(), Why::Age));
        if !self.options.background {
            let due = self.cache.due(self.clock.elapsed());
            self.note("flushing", self.flush_round(&due, Why::Age).map(drop));
            self.compact_at_tick();
        }
        self.note("writing the journal", self.sync_journal());
        self.note("noting which members are there", self.store.settle_membership().map_err(FsError::from));
        if self.store.checkpoint_due() {
            self.relieve_log();
        }
        let dead = std::mem::take(&mut *self.dead.lock());
        for ino in dead {
            if let Some(node) = self.nodes.peek(ino) {
                self.reap_now(&node);
            }
        }
        self.sweep();
    }

    /// Waits while a checkpoint is behind: until it has moved the tail of a log that is short of room, and taken in
    /// what has changed.
    pub(super) fn await_log_room(&self) {
        if !self.store.must_wait() {
            return;
        }
        if !self.options.background {
            self.relieve_log();
            return;
        }
        let start = self.clock.elapsed();
        while self.store.must_wait() && self.clock.elapsed().saturating_sub(start) < LOG_PATIENCE {
            if !self.background.urge(JOURNAL_LOOK_INTERVAL) {
                return;
            }
        }
    }

    /// Moves the log's tail: flushes what only the log has, and takes a checkpoint.
    fn relieve_log(&self) {
        self.note("flushing for a checkpoint", self.flush_for_the_journal());
        self.note("taking a checkpoint", self.store.checkpoint().map_err(FsError::from));
        self.background.eased();
    }

    /// Takes a checkpoint if the log is short of room, or memory full of changes. Every commit begins with it: operations
    /// wait for room before they begin ([`Fs::await_log_room`]), but flushes, the compactor and long cuts commit much.
    /// May be called with inodes locked: a checkpoint locks none.
    pub(super) fn ease_log(&self) {
        if !self.logging.load(Ordering::Acquire) || !self.store.must_wait() {
            return;
        }
        let _turn = self.easing.lock();
        if self.store.must_wait() {
            self.note("taking a checkpoint", self.store.checkpoint().map_err(FsError::from));
        }
    }

    fn note(&self, what: &str, outcome: Result<()>) {
        if let Err(error) = outcome {
            log::warn!("{what}: {error}");
        }
    }

    fn sync_journal(&self) -> Result<()> {
        let last = self.store.last_seq();
        let mut synced = self.synced.lock();
        if *synced < last {
            self.store.sync(last)?;
            *synced = last;
        }
        Ok(())
    }

    /// Drops nodes that had to stay in memory until now.
    fn sweep(&self) {
        let leftover = self.nodes.take_leftover();
        self.write_attributes(&leftover);
        for ino in leftover {
            self.retire(ino);
        }
        self.nodes.trim();
    }

    /// Flushes everything, stops the threads and closes the pool's tables in order. A second call does
    /// nothing.
    ///
    /// # Errors
    /// Those of writing; then what could be written is, and the next mount replays the rest.
    pub fn unmount(&self) -> Result<()> {
        if self.unmounted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.background.stop();
        let flusher = self.background.flusher.lock().take();
        if let Some(flusher) = flusher {
            flusher.stop();
        }
        self.compactor.stop();
        for (name, thread) in
            [("committer", &self.background.committer), ("compactor", &self.background.compactor)]
        {
            let thread = thread.lock().take();
            if thread.is_some_and(|thread| thread.join().is_err()) {
                log::error!("the {name} had panicked");
            }
        }
        if self.pool.read_only() {
            return Ok(());
        }
        let dead = std::mem::take(&mut *self.dead.lock());
        for node in dead.into_iter().filter_map(|ino| self.nodes.peek(ino)) {
            self.reap_now(&node);
        }
        self.sync_all()?;
        self.store.close()?;
        for node in self.nodes.all().into_iter().filter_map(|ino| self.nodes.peek(ino)) {
            self.give_back_all(&node);
        }
        Ok(())
    }

    /// Files with journaled data come back as dirty. What lies behind a file's end, or belongs to a file
    /// that is gone, stays away.
    fn put_back(&self, journaled: Vec<crate::store::JournaledData>) -> Result<()> {
        let mut files = HashSet::new();
        for data in journaled {
            let node = match self.nodes.get(&self.store, data.ino) {
                Ok(node) => node,
                Err(FsError::NoSuchInode { .. }) => continue,
                Err(error) => return Err(error),
            };
            let mut state = node.state.write();
            let end = crate::units::round_up(state.inode.size, crate::units::SECTOR);
            let len = end.saturating_sub(data.offset).min(data.bytes.len() as u64) as usize;
            self.cache.insert_dirty(data.ino, data.offset, &data.bytes[..len])?;
            files.insert(data.ino);
            if !self.pool.read_only() {
                self.settle(data.ino, &mut state);
            }
        }
        if !files.is_empty() {
            log::info!("{} files have data from the journal", files.len());
        }
        Ok(())
    }

    /// Flushes what came from the journal: the first checkpoint must not leave any behind. What could not
    /// be put back belongs to nobody.
    fn flush_journaled(&self) -> Result<()> {
        self.flush_files(&self.store.files_with_data())?;
        for ino in self.store.files_with_data() {
            let mut tx = Tx::new();
            tx.drop_data(ino, 0, u64::MAX, Seq::MAX);
            self.store.commit(tx)?;
        }
        Ok(())
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.background.stop();
        // This may be a flusher's own thread, which can't wait for itself.
        if let Some(flusher) = self.background.flusher.lock().take() {
            crate::sync::spawn("flusher-end", move || flusher.stop());
        }
    }
}
