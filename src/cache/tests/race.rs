//! Threads that read, write, drop and flush the same file at once.

use super::fake::{Fake, Random};
use crate::cache::PAGE_BYTES;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, JoinHandle, RwLock, spawn};

const PAGES: u64 = 64;
const SIZE: u64 = PAGES * PAGE_BYTES;
const ROUNDS: u64 = 3000;

/// A page filled with one number; 0 is a hole.
fn page_of(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(512)
}

/// The number that a page is filled with.
fn version_of(page: &[u8]) -> u64 {
    let version = u64::from_le_bytes(page[..8].try_into().expect("eight bytes"));
    assert!(page == page_of(version), "a page holds two versions");
    version
}

struct Field {
    fake: Arc<Fake>,
    /// The inode's lock.
    lock: RwLock<()>,
    /// The last version of each page that a completed write put there.
    latest: Vec<AtomicU64>,
    over: AtomicBool,
}

impl Field {
    /// Over a cache that has room for a third of the file.
    fn new() -> Arc<Self> {
        let fake = Fake::new(SIZE / 3);
        fake.put(1, vec![0; SIZE as usize]);
        *fake.on_load.lock() = Some(Box::new(|_, _| (0..3).for_each(|_| std::thread::yield_now())));
        Arc::new(Self {
            fake,
            lock: RwLock::new(()),
            latest: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
            over: AtomicBool::new(false),
        })
    }

    fn start(
        self: &Arc<Self>,
        name: &str,
        act: impl Fn(&Self, &mut Random) + Send + 'static,
    ) -> JoinHandle<()> {
        let field = self.clone();
        let mut random =
            Random(name.bytes().fold(0x1234_5678, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte)));
        spawn(name, move || {
            while !field.over.load(Ordering::SeqCst) {
                act(&field, &mut random);
                std::thread::yield_now();
            }
        })
    }

    fn write(&self, random: &mut Random, version: u64) {
        let first = random.below(PAGES);
        let count = (1 + random.below(4)).min(PAGES - first);
        let _lock = self.lock.write();
        let data = page_of(version).repeat(count as usize);
        self.fake.cache.write(1, first * PAGE_BYTES, &data, SIZE).expect("whole pages");
        for page in first..first + count {
            self.latest[page as usize].store(version, Ordering::SeqCst);
        }
    }

    fn punch(&self, random: &mut Random) {
        let first = random.below(PAGES);
        let end = (first + 1 + random.below(8)).min(PAGES);
        let _lock = self.lock.write();
        self.fake.cache.discard(1, first * PAGE_BYTES, end * PAGE_BYTES);
        let range = (first * PAGE_BYTES) as usize..(end * PAGE_BYTES) as usize;
        if let Some(file) = self.fake.files.lock().get_mut(&1) {
            file[range].fill(0);
        }
        for page in first..end {
            self.latest[page as usize].store(0, Ordering::SeqCst);
        }
    }

    fn flush(&self, random: &mut Random) {
        let captured = {
            let _lock = self.lock.write();
            self.fake.cache.capture(1, 0, u64::MAX, (1 + random.below(20)) * PAGE_BYTES)
        };
        std::thread::yield_now();
        let _lock = self.lock.write();
        if random.below(5) == 0 {
            captured.abandon();
        } else {
            self.fake.commit(captured);
        }
    }

    /// Reads some pages, and gives each page's version to `check` with what was the latest before.
    fn read(&self, random: &mut Random, check: impl Fn(u64, u64)) {
        let first = random.below(PAGES);
        let count = (1 + random.below(16)).min(PAGES - first);
        let before: Vec<u64> =
            (first..first + count).map(|page| self.latest[page as usize].load(Ordering::SeqCst)).collect();
        let buf = self.fake.read(1, first * PAGE_BYTES, (count * PAGE_BYTES) as usize, SIZE);
        for (page, before) in buf.chunks(4096).zip(before) {
            check(version_of(page), before);
        }
    }

    fn end(&self, threads: Vec<JoinHandle<()>>) {
        self.over.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().expect("no thread found stale data");
        }
        self.fake.commit(self.fake.cache.capture(1, 0, u64::MAX, u64::MAX));
        for (page, latest) in self.latest.iter().enumerate() {
            let at = page * 4096;
            let on_disk = version_of(&self.fake.files.lock()[&1][at..at + 4096]);
            assert_eq!(on_disk, latest.load(Ordering::SeqCst), "page {page} on disk");
        }
        assert_eq!(self.fake.cache.stats().dirty_bytes, 0);
        self.fake.cache.drop_clean();
        assert_eq!(self.fake.cache.stats().bytes, 0);
    }
}

#[test]
fn readers_without_a_lock_never_see_older_than_a_completed_write() {
    let field = Field::new();
    let check = |version, before| assert!(version >= before, "saw {version} after {before}");
    let threads = vec![
        field.start("reader one", move |field, random| field.read(random, check)),
        field.start("reader two", move |field, random| field.read(random, check)),
        field.start("flusher one", |field, random| field.flush(random)),
        field.start("flusher two", |field, random| field.flush(random)),
        field.start("dropper", |field, _| field.fake.cache.drop_clean()),
    ];
    let mut random = Random(99);
    for version in 1..=ROUNDS {
        field.write(&mut random, version);
    }
    field.end(threads);
}

#[test]
fn under_the_inodes_lock_readers_see_just_what_is_there() {
    let field = Field::new();
    let reader = |field: &Field, random: &mut Random| {
        let _lock = field.lock.read();
        field.read(random, |version, latest| assert_eq!(version, latest));
    };
    let threads = vec![
        field.start("reader one", reader),
        field.start("reader two", reader),
        field.start("flusher one", |field, random| field.flush(random)),
        field.start("flusher two", |field, random| field.flush(random)),
        field.start("dropper", |field, _| field.fake.cache.drop_clean()),
    ];
    let mut random = Random(77);
    for version in 1..=ROUNDS {
        field.write(&mut random, version);
        if version % 3 == 0 {
            field.punch(&mut random);
        }
    }
    field.end(threads);
}
