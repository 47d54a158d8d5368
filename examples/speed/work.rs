//! What is done to a target, and what of it is measured.

mod data;
mod names;

use std::path::Path;

use super::failure::{Failure, Result};
use super::target::Target;

pub use data::{Numbers, Pattern};
pub use names::forget_names;

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

    /// What the tables call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Write => "sequential write",
            Self::Read => "cold sequential read",
            Self::Random => "4 KiB random overwrite",
            Self::FsyncMedian => "4 KiB overwrite and fsync, median",
            Self::FsyncTail => "4 KiB overwrite and fsync, 99 %",
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Unlink => "unlink",
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Write | Self::Read => "MB/s",
            Self::FsyncMedian | Self::FsyncTail => "µs",
            Self::Random | Self::Create | Self::Stat | Self::Unlink => "1000/s",
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

/// What was found of a row.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// In the unit of the row.
    pub value: f64,
    /// Microseconds of processor time that the serving process took: for each MB, or for each request of a program.
    pub cost: Option<f64>,
}

/// Does the chosen work to a target. Nothing of it remains.
pub fn measure(
    target: &mut Target<'_>,
    chosen: &[Work],
    amounts: &Amounts,
    mut found: impl FnMut(Row, Found),
) -> Result<()> {
    let pattern = Pattern::new();
    let has = |work: Work| chosen.contains(&work);
    if has(Work::Write) || has(Work::Read) {
        let path = target.path().join("stream");
        let bytes = amounts.stream_bytes;
        let written = costed(target, bytes as f64 / 1e6, || data::write(&path, bytes, &pattern))?;
        if has(Work::Write) {
            found(Row::Write, written);
        }
        if has(Work::Read) {
            found(Row::Read, cold_read(target, &path, bytes, &pattern)?);
        }
        remove(&path)?;
    }
    if has(Work::Random) || has(Work::Fsync) {
        let path = target.path().join("random");
        let bytes = amounts.random_bytes;
        data::write(&path, bytes, &pattern)?;
        if has(Work::Random) {
            let writes = (bytes / data::BLOCK) as f64;
            found(Row::Random, costed(target, writes, || data::overwrite(&path, bytes, &pattern))?);
        }
        if has(Work::Fsync) {
            let (median, tail) = data::sync_times(&path, bytes, amounts.syncs, &pattern)?;
            found(Row::FsyncMedian, Found { value: median, cost: None });
            found(Row::FsyncTail, Found { value: tail, cost: None });
        }
        remove(&path)?;
    }
    if has(Work::Names) {
        names::measure(target, amounts.files, found)?;
    }
    Ok(())
}

/// Does something to `units` things, and finds what it cost.
fn costed(target: &Target<'_>, units: f64, work: impl FnOnce() -> Result<f64>) -> Result<Found> {
    let before = target.processor_time();
    let value = work()?;
    let taken = before.zip(target.processor_time()).map(|(before, after)| after.saturating_sub(before));
    Ok(Found { value, cost: taken.map(|taken| taken.as_secs_f64() * 1e6 / units) })
}

fn cold_read(target: &mut Target<'_>, path: &Path, bytes: u64, pattern: &Pattern) -> Result<Found> {
    target.restart()?;
    if target.forgets() {
        data::make_empty(path, bytes)?;
    }
    for dir in target.media() {
        data::forget_pages(&dir)?;
    }
    // Zeros are what the null file system answers.
    let expected = (!target.forgets()).then_some(pattern);
    costed(target, bytes as f64 / 1e6, || data::read(path, bytes, expected))
}

fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(Failure::at("removing", path))
}
