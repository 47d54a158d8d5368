//! Streams, random overwrites, syncs. Rates are in MB/s (of a million bytes) or in thousands a second.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use poolfs::member::AlignedBuf;
use rustix::fs::{Advice, fadvise};

use super::super::failure::{Failure, Result};
use super::super::stop;

/// Bytes of one write or read of a stream.
const CHUNK: u64 = 1024 * 1024;
/// Bytes of one random overwrite.
pub const BLOCK: u64 = 4096;
/// Syncs end after this time, however few they were: disks may take long for each.
const SYNCS_TIME: Duration = Duration::from_secs(20);

/// Bytes that nothing can compress, on a page's boundary: unaligned copies are slow.
#[derive(Debug)]
pub struct Pattern(AlignedBuf);

impl Pattern {
    /// One chunk.
    pub fn new() -> Self {
        let mut buffer = AlignedBuf::zeroed(CHUNK as usize);
        let mut numbers = Numbers::new(1);
        for word in buffer.chunks_exact_mut(8) {
            word.copy_from_slice(&numbers.next().to_le_bytes());
        }
        Self(buffer)
    }

    /// The chunk that belongs at `offset` of a file: it starts with the offset.
    fn stamped(buffer: &mut AlignedBuf, offset: u64) -> &[u8] {
        buffer[..8].copy_from_slice(&offset.to_le_bytes());
        buffer
    }
}

/// The same random numbers in every run (splitmix64).
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

fn megabytes_per_second(bytes: u64, since: Instant) -> f64 {
    bytes as f64 / 1e6 / since.elapsed().as_secs_f64()
}

/// Writes a new file from its first byte to its last, and syncs it.
pub fn write(path: &Path, bytes: u64, pattern: &Pattern) -> Result<f64> {
    let mut buffer = pattern.0.clone();
    let since = Instant::now();
    let file = File::create(path).map_err(Failure::at("creating", path))?;
    for offset in (0..bytes).step_by(CHUNK as usize) {
        stop::check()?;
        let len = CHUNK.min(bytes - offset) as usize;
        let chunk = &Pattern::stamped(&mut buffer, offset)[..len];
        file.write_all_at(chunk, offset).map_err(Failure::at("writing", path))?;
    }
    file.sync_all().map_err(Failure::at("syncing", path))?;
    Ok(megabytes_per_second(bytes, since))
}

/// A file of zeros that were never written.
pub fn make_empty(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path).map_err(Failure::at("creating", path))?;
    file.set_len(bytes).map_err(Failure::at("sizing", path))
}

/// Reads a file from its first byte to its last. When it was made by [`write`], each chunk must be the one that
/// was written there.
pub fn read(path: &Path, bytes: u64, written: Option<&Pattern>) -> Result<f64> {
    let mut buffer = AlignedBuf::zeroed(CHUNK as usize);
    let since = Instant::now();
    let file = File::open(path).map_err(Failure::at("opening", path))?;
    for offset in (0..bytes).step_by(CHUNK as usize) {
        stop::check()?;
        let chunk = &mut buffer[..CHUNK.min(bytes - offset) as usize];
        file.read_exact_at(chunk, offset).map_err(Failure::at("reading", path))?;
        // A look at both ends: comparing all would be measured too.
        if let Some(pattern) = written
            && (chunk[..8] != offset.to_le_bytes() || chunk.last() != pattern.0[..chunk.len()].last())
        {
            return Err(Failure::WrongData { path: path.to_owned(), offset });
        }
    }
    Ok(megabytes_per_second(bytes, since))
}

/// Drops what the kernel keeps of the files below a directory; clean pages only, so they are synced first. Memory
/// file systems have nothing else.
pub fn forget_pages(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).map_err(Failure::at("listing", dir))? {
        let path = entry.map_err(Failure::at("listing", dir))?.path();
        if path.is_dir() {
            forget_pages(&path)?;
        } else if let Ok(file) = File::open(&path) {
            file.sync_all().map_err(Failure::at("syncing", &path))?;
            fadvise(&file, 0, None, Advice::DontNeed)
                .map_err(|e| Failure::at("dropping the pages of", &path)(e.into()))?;
        }
    }
    Ok(())
}

/// Overwrites as many bytes as the file has, a block at a time anywhere, and syncs it once at the end.
pub fn overwrite(path: &Path, bytes: u64, pattern: &Pattern) -> Result<f64> {
    let file = open_to_write(path)?;
    let mut numbers = Numbers::new(2);
    let blocks = bytes / BLOCK;
    let since = Instant::now();
    for n in 0..blocks {
        if n % 256 == 0 {
            stop::check()?;
        }
        overwrite_one(&file, path, numbers.below(blocks), pattern)?;
    }
    file.sync_all().map_err(Failure::at("syncing", path))?;
    Ok(blocks as f64 / 1e3 / since.elapsed().as_secs_f64())
}

/// Microseconds that an overwrite of a block anywhere and its sync take: their median, and what 99 % do not exceed.
pub fn sync_times(path: &Path, bytes: u64, count: usize, pattern: &Pattern) -> Result<(f64, f64)> {
    let file = open_to_write(path)?;
    let mut numbers = Numbers::new(3);
    let begun = Instant::now();
    let mut times = Vec::with_capacity(count);
    while times.len() < count.max(1) && begun.elapsed() < SYNCS_TIME {
        stop::check()?;
        let since = Instant::now();
        overwrite_one(&file, path, numbers.below(bytes / BLOCK), pattern)?;
        file.sync_all().map_err(Failure::at("syncing", path))?;
        times.push(since.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    Ok((at(0.5), at(0.99)))
}

fn open_to_write(path: &Path) -> Result<File> {
    OpenOptions::new().write(true).open(path).map_err(Failure::at("opening", path))
}

fn overwrite_one(file: &File, path: &Path, block: u64, pattern: &Pattern) -> Result<()> {
    let from = ((block % (CHUNK / BLOCK)) * BLOCK) as usize;
    let data = &pattern.0[from..from + BLOCK as usize];
    file.write_all_at(data, block * BLOCK).map_err(Failure::at("overwriting", path))
}
