//! A backing of byte arrays in memory, with parts that can't be read and flushes that fail on request.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::cache::{Backing, Cache, CacheOptions, Captured, FlushError, Ino, LoadError, PAGE_BYTES};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Clock, Mutex};
use crate::units::round_up;

type Hook = Box<dyn Fn(Ino, u64) + Send + Sync>;

/// The disk, the cache in front of it, and what happened.
pub struct Fake {
    pub cache: Cache,
    pub clock: Clock,
    pub files: Mutex<HashMap<Ino, Vec<u8>>>,
    /// Offsets of pages that can't be read.
    pub bad: Mutex<HashSet<u64>>,
    pub loads: Mutex<Vec<(u64, usize)>>,
    /// Called in the middle of every load, after the bytes were taken.
    pub on_load: Mutex<Option<Hook>>,
    pub flush_fails: AtomicBool,
    /// Files that a flush passes over.
    pub held_back: Mutex<HashSet<Ino>>,
    pub flushes: AtomicUsize,
}

impl Fake {
    pub fn new(bytes: u64) -> Arc<Self> {
        Self::with(CacheOptions { bytes, dirty_bytes: bytes / 2, commit_age: Duration::from_secs(5) })
    }

    pub fn with(options: CacheOptions) -> Arc<Self> {
        let clock = Clock::manual();
        let fake = Arc::new(Self {
            cache: Cache::new(options, clock.clone()),
            clock,
            files: Mutex::default(),
            bad: Mutex::default(),
            loads: Mutex::default(),
            on_load: Mutex::default(),
            flush_fails: AtomicBool::new(false),
            held_back: Mutex::default(),
            flushes: AtomicUsize::new(0),
        });
        let backing: Arc<dyn Backing> = fake.clone();
        fake.cache.set_backing(Arc::downgrade(&backing));
        fake
    }

    /// Puts content on the disk.
    pub fn put(&self, ino: Ino, content: Vec<u8>) {
        self.files.lock().insert(ino, content);
    }

    /// Where the file ends on disk.
    pub fn disk_end(&self, ino: Ino) -> u64 {
        self.files.lock().get(&ino).map_or(0, |file| file.len() as u64)
    }

    /// What the fs does when the captured data is on disk: maps what is still there, and finishes.
    pub fn commit(&self, captured: Captured) -> u64 {
        let ranges = captured.still_there();
        let mut files = self.files.lock();
        let file = files.entry(captured.ino).or_default();
        for run in &captured.runs {
            for (i, page) in run.pages.iter().enumerate() {
                let at = run.offset + i as u64 * PAGE_BYTES;
                if ranges.iter().any(|(start, len)| (*start..start + len).contains(&at)) {
                    let end = (at + PAGE_BYTES) as usize;
                    if file.len() < end {
                        file.resize(end, 0);
                    }
                    file[at as usize..end].copy_from_slice(&page[..]);
                }
            }
        }
        drop(files);
        captured.finish()
    }

    /// Cuts the disk's file.
    pub fn cut(&self, ino: Ino, size: u64) {
        if let Some(file) = self.files.lock().get_mut(&ino) {
            file.truncate(round_up(size, PAGE_BYTES) as usize);
        }
    }

    /// Reads through the cache, as a file of this size.
    pub fn read(&self, ino: Ino, offset: u64, len: usize, size: u64) -> Vec<u8> {
        let mut buf = vec![0xee; len];
        self.cache.read(ino, offset, &mut buf, size).expect("the file reads well");
        buf
    }

    pub fn take_loads(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.loads.lock())
    }
}

impl Backing for Fake {
    fn load(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<(), LoadError> {
        assert_eq!((offset % PAGE_BYTES, buf.len() as u64 % PAGE_BYTES), (0, 0));
        self.loads.lock().push((offset, buf.len()));
        let found = {
            let files = self.files.lock();
            let rest = files.get(&ino).and_then(|file| file.get(offset as usize..)).unwrap_or_default();
            let len = rest.len().min(buf.len());
            buf[..len].copy_from_slice(&rest[..len]);
            buf[len..].fill(0);
            let bad = self.bad.lock();
            (offset..offset + buf.len() as u64).step_by(4096).find(|at| bad.contains(at))
        };
        if let Some(hook) = &*self.on_load.lock() {
            hook(ino, offset);
        }
        match found {
            Some(offset) => {
                buf.fill(0xbd);
                Err(LoadError { offset, len: PAGE_BYTES, message: "rotten".into() })
            }
            None => Ok(()),
        }
    }

    fn flush(&self, inos: &[Ino]) -> Result<(), FlushError> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        if self.flush_fails.load(Ordering::SeqCst) {
            return Err(FlushError { message: "no disk".into() });
        }
        for ino in inos {
            if !self.held_back.lock().contains(ino) {
                let captured = self.cache.capture(*ino, 0, u64::MAX, u64::MAX);
                self.commit(captured);
            }
        }
        Ok(())
    }
}

/// Random numbers from a seed (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
