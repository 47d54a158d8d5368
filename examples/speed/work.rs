//! What is done to a target, and what of it is measured.

mod data;
mod names;

use std::path::Path;

use super::failure::{Failure, Result};
use super::target::Target;

pub use data::{Numbers, Pattern};

/// A workload, as `--only` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Buffered sequential writes.
    Write,
    /// Sequential reads with nothing cached.
    Read,
    /// Random overwrites.
    Random,
    /// Small overwrites, each synced.
    Fsync,
    /// Names made, asked for, removed.
    Names,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Write, Self::Read, Self::Random, Self::Fsync, Self::Names];

    /// What `--only` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Random => "random",
            Self::Fsync => "fsync",
            Self::Names => "names",
        }
    }
}

/// A number that is measured: a row of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Row {
    Write,
    Read,
    Random,
    FsyncMedian,
    FsyncTail,
    Create,
    Stat,
    Unlink,
}

impl Row {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 8] = [
        Self::Write,
        Self::Read,
        Self::Random,
        Self::FsyncMedian,
        Self::FsyncTail,
        Self::Create,
        Self::Stat,
        Self::Unlink,
    ];

    /// What the tables call it, with its unit.
    pub fn title(self) -> &'static str {
        match self {
            Self::Write => "sequential write, MB/s",
            Self::Read => "cold sequential read, MB/s",
            Self::Random => "4 KiB random overwrite, 1000/s",
            Self::FsyncMedian => "4 KiB overwrite and fsync, median, µs",
            Self::FsyncTail => "4 KiB overwrite and fsync, 99 %, µs",
            Self::Create => "create, 1000/s",
            Self::Stat => "stat, 1000/s",
            Self::Unlink => "unlink, 1000/s",
        }
    }

    /// Whether less is better.
    pub fn is_time(self) -> bool {
        matches!(self, Self::FsyncMedian | Self::FsyncTail)
    }
}

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub struct Amounts {
    /// Bytes of the file that is written and read in order.
    pub stream_bytes: u64,
    /// Bytes of the file that is overwritten at random, and written to it in all.
    pub random_bytes: u64,
    /// Overwrites that are synced.
    pub syncs: usize,
    /// Empty files.
    pub files: usize,
}

/// Does the chosen work to a target. Nothing of it remains.
pub fn measure(
    target: &mut Target<'_>,
    chosen: &[Work],
    amounts: &Amounts,
    mut found: impl FnMut(Row, f64),
) -> Result<()> {
    let pattern = Pattern::new();
    let has = |work: Work| chosen.contains(&work);
    if has(Work::Write) || has(Work::Read) {
        let path = target.path().join("stream");
        let rate = data::write(&path, amounts.stream_bytes, &pattern)?;
        if has(Work::Write) {
            found(Row::Write, rate);
        }
        if has(Work::Read) {
            found(Row::Read, cold_read(target, &path, amounts.stream_bytes, &pattern)?);
        }
        remove(&path)?;
    }
    if has(Work::Random) || has(Work::Fsync) {
        let path = target.path().join("random");
        data::write(&path, amounts.random_bytes, &pattern)?;
        if has(Work::Random) {
            found(Row::Random, data::overwrite(&path, amounts.random_bytes, &pattern)?);
        }
        if has(Work::Fsync) {
            let (median, tail) = data::sync_times(&path, amounts.random_bytes, amounts.syncs, &pattern)?;
            found(Row::FsyncMedian, median);
            found(Row::FsyncTail, tail);
        }
        remove(&path)?;
    }
    if has(Work::Names) {
        names::measure(target.path(), amounts.files, found)?;
    }
    Ok(())
}

fn cold_read(target: &mut Target<'_>, path: &Path, bytes: u64, pattern: &Pattern) -> Result<f64> {
    target.restart()?;
    if target.forgets() {
        data::make_empty(path, bytes)?;
    }
    for dir in target.media() {
        data::forget_pages(&dir)?;
    }
    // Zeros are what the null file system answers.
    let expected = (!target.forgets()).then_some(pattern);
    data::read(path, bytes, expected)
}

fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(Failure::at("removing", path))
}
