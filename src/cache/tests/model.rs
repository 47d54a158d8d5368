//! Random operations on the cache and on plain byte arrays: both must hold the same at every step.

use std::collections::HashMap;

use super::fake::{Fake, Random};
use crate::cache::{Backing, Captured, Ino, PAGE_BYTES};
use crate::sync::Arc;
use crate::units::{round_down, round_up};

const BUDGET: u64 = 256 * 1024;
const FILES: u64 = 3;
const SIZE_MAX: u64 = 400_000;

struct Model {
    fake: Arc<Fake>,
    random: Random,
    files: HashMap<Ino, Vec<u8>>,
    flights: Vec<Captured>,
    /// Dirty pages, by what the operations returned.
    dirty: u64,
}

impl Model {
    fn step(&mut self) {
        let ino = 1 + self.random.below(FILES);
        match self.random.below(20) {
            0..=6 => self.write(ino),
            7..=11 => self.read(ino),
            12 => self.truncate(ino),
            13 => self.punch(ino),
            14..=15 => self.capture(ino),
            16 => self.end_flight(true),
            17 => self.end_flight(false),
            18 => self.look(ino),
            _ if self.random.below(10) == 0 => self.remove(ino),
            _ => self.fake.cache.drop_clean_of(ino),
        }
        let stats = self.fake.cache.stats();
        assert_eq!(stats.dirty_bytes, self.dirty * PAGE_BYTES);
        let evictable = self.fake.cache.0.lru.len();
        assert!(stats.bytes <= BUDGET + 8192 || evictable == 0, "{stats:?}, {evictable} evictable");
    }

    fn size(&self, ino: Ino) -> u64 {
        self.files.get(&ino).map_or(0, |file| file.len() as u64)
    }

    /// A random offset and length, aligned now and then.
    fn range(&mut self, below: u64) -> (u64, u64) {
        let (mut offset, mut len) = (self.random.below(below), 1 + self.random.below(30_000));
        if self.random.below(3) == 0 {
            (offset, len) = (round_down(offset, PAGE_BYTES), round_up(len, PAGE_BYTES));
        }
        (offset, len)
    }

    fn write(&mut self, ino: Ino) {
        let (offset, len) = self.range(SIZE_MAX);
        let data = self.random.bytes(len as usize);
        let expected = self.fake.cache.dirty_new_pages(ino, offset, len);
        let disk_end = self.fake.disk_end(ino);
        let newly = self.fake.cache.write(ino, offset, &data, disk_end).expect("loads work");
        assert_eq!(newly, expected);
        self.dirty += newly;
        let file = self.files.entry(ino).or_default();
        let (from, to) = (offset as usize, (offset + len) as usize);
        if file.len() < to {
            file.resize(to, 0);
        }
        file[from..to].copy_from_slice(&data);
    }

    fn read(&mut self, ino: Ino) {
        let size = self.size(ino);
        let (offset, len) = self.range(size + 5000);
        let mut expected = vec![0; len as usize];
        if let Some(rest) = self.files.get(&ino).and_then(|file| file.get(offset as usize..)) {
            let n = rest.len().min(expected.len());
            expected[..n].copy_from_slice(&rest[..n]);
        }
        assert!(self.fake.read(ino, offset, len as usize, size) == expected, "{ino}: {len} at {offset}");
    }

    fn truncate(&mut self, ino: Ino) {
        let size = self.random.below(SIZE_MAX);
        if size < self.size(ino) {
            let page_end = round_up(size, PAGE_BYTES);
            self.dirty -= self.fake.cache.discard(ino, page_end, u64::MAX);
            self.zero(ino, size, page_end);
            self.fake.cut(ino, size);
        }
        self.files.entry(ino).or_default().resize(size as usize, 0);
    }

    fn zero(&mut self, ino: Ino, from: u64, to: u64) {
        let disk_end = self.fake.disk_end(ino);
        self.dirty += self.fake.cache.zero(ino, from, to, disk_end).expect("loads work");
    }

    fn punch(&mut self, ino: Ino) {
        let (from, len) = self.range(self.size(ino));
        let to = (from + len).min(self.size(ino));
        if from >= to {
            return;
        }
        let (first, last) = (round_up(from, PAGE_BYTES), round_down(to, PAGE_BYTES));
        if first > last {
            self.zero(ino, from, to);
        } else {
            self.zero(ino, from, first);
            self.zero(ino, last, to);
            self.dirty -= self.fake.cache.discard(ino, first, last);
            if let Some(file) = self.fake.files.lock().get_mut(&ino) {
                let end = (last as usize).min(file.len());
                if let Some(hole) = file.get_mut(first as usize..end) {
                    hole.fill(0);
                }
            }
        }
        if let Some(file) = self.files.get_mut(&ino) {
            file[from as usize..to as usize].fill(0);
        }
    }

    fn capture(&mut self, ino: Ino) {
        let (from, len) = self.range(SIZE_MAX);
        let (from, to) = if self.random.below(2) == 0 { (0, u64::MAX) } else { (from, from + len) };
        let max = 4096 * (1 + self.random.below(40));
        let captured = self.fake.cache.capture(ino, from, to, max);
        assert!(captured.len() <= max);
        assert_eq!(captured.len(), captured.runs.iter().map(|run| run.len()).sum::<u64>());
        self.flights.push(captured);
    }

    fn end_flight(&mut self, well: bool) {
        if !self.flights.is_empty() {
            let at = self.random.below(self.flights.len() as u64) as usize;
            let captured = self.flights.swap_remove(at);
            if well {
                self.dirty -= self.fake.commit(captured);
            } else {
                captured.abandon();
            }
        }
    }

    /// What is dirty, seen in two ways, is what the file holds.
    fn look(&mut self, ino: Ino) {
        let runs = self.fake.cache.peek_dirty(ino, u64::MAX).expect("no limit");
        let ranges: Vec<(u64, u64)> = runs.iter().map(|run| (run.offset, run.len())).collect();
        assert_eq!(self.fake.cache.dirty_ranges(ino, 0, u64::MAX), ranges);
        let bytes: u64 = ranges.iter().map(|(_, len)| len).sum();
        assert_eq!(self.fake.cache.dirty_bytes_of(ino), bytes);
        for run in runs {
            for (i, page) in run.pages.iter().enumerate() {
                let at = run.offset as usize + i * 4096;
                let rest = self.files[&ino].get(at..).unwrap_or_default();
                let len = rest.len().min(4096);
                assert!(page[..len] == rest[..len] && page[len..].iter().all(|byte| *byte == 0));
            }
        }
    }

    fn remove(&mut self, ino: Ino) {
        self.dirty -= self.fake.cache.forget(ino);
        self.files.remove(&ino);
        self.fake.files.lock().remove(&ino);
    }

    /// Writes everything out, and compares the disk; then empties the cache.
    fn end(mut self) {
        while !self.flights.is_empty() {
            self.end_flight(true);
        }
        self.fake.flush(&self.fake.cache.dirty_files()).expect("no failure ordered");
        assert_eq!(self.fake.cache.stats().dirty_bytes, 0);
        assert_eq!(self.fake.cache.oldest_dirty(), None);
        for (ino, file) in &self.files {
            let mut on_disk = self.fake.files.lock().get(ino).cloned().unwrap_or_default();
            assert!(on_disk.iter().skip(file.len()).all(|byte| *byte == 0));
            on_disk.resize(file.len(), 0);
            assert!(on_disk == *file, "file {ino} differs on disk");
        }
        self.fake.cache.drop_clean();
        let stats = self.fake.cache.stats();
        assert_eq!((stats.bytes, stats.files, self.fake.cache.0.lru.len()), (0, 0, 0));
    }
}

#[test]
fn the_cache_and_a_byte_array_agree() {
    for seed in 1..=60 {
        let mut model = Model {
            fake: Fake::new(BUDGET),
            random: Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)),
            files: HashMap::new(),
            flights: Vec::new(),
            dirty: 0,
        };
        for _ in 0..600 {
            model.step();
        }
        model.end();
    }
}
