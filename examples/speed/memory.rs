//! How much memory a pool takes while far more is written to it than its cache holds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use poolfs::member::AlignedBuf;
use poolfs::units::{GIB, MIB, format_size};
use rustix::process::Pid;

use super::failure::{Failure, Result};
use super::programs::Programs;
use super::scratch::{Scratch, check_room, is_tmpfs};
use super::target::{Ground, Kind, PARITY, Target};
use super::work::Numbers;
use super::{report, size, stop};

/// Files are of any size between these.
const FILE_MIN_BYTES: u64 = MIB;
const FILE_MAX_BYTES: u64 = 64 * MIB;
const FILES_PER_DIRECTORY: usize = 64;
/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(200);
/// The budget of the metadata unless `meta-cache` says otherwise.
const TREES_BYTES: u64 = 64 * MIB;
/// What else the process may take.
const REST_BYTES: u64 = 100_000_000;
/// Unless `cache` says otherwise: a tenth of the memory, at most this.
const CACHE_MAX_BYTES: u64 = GIB;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Bytes to write in all. The members take half as much again.
    #[arg(long, default_value = "20G", value_parser = size)]
    total: u64,
    /// Where members go; on a disk, or memory is full of them [default: the system's directory for temporary files].
    #[arg(long, value_name = "DIR")]
    members: Option<PathBuf>,
}

/// What one run found.
#[derive(Debug, Clone, Copy)]
struct Found {
    megabytes_per_second: f64,
    /// The most that was seen at any look.
    sampled: u64,
    /// The most until the last write, as the kernel counted.
    most: u64,
}

/// Measures, and prints the table.
pub fn run(args: &Args) -> Result<()> {
    let place = args.members.clone().unwrap_or_else(std::env::temp_dir);
    check_room(&place, args.total / 2 * 3 + 2 * GIB)?;
    let mounts = Scratch::new(&std::env::temp_dir())?;
    let media = Scratch::new(&place)?;
    let programs = Programs::beside_this(&mounts.directory("run")?)?;
    let before = report::load();
    let medium = if is_tmpfs(media.path()) { "tmpfs" } else { "disk" };
    let mut rows = Vec::new();
    for (title, options, cache) in [("default", "", default_cache()), ("256M", "cache=256M", 256 * MIB)] {
        eprintln!(
            "cache {title}: {} in files of {} to {}",
            format_size(args.total),
            format_size(FILE_MIN_BYTES),
            format_size(FILE_MAX_BYTES)
        );
        let ground =
            Ground { programs: &programs, mounts: &mounts, media: &media, capacity: args.total, options };
        let found = fill(&ground, args.total)?;
        rows.push(row(title, cache, found));
    }
    println!("{}", report::conditions(medium, 1, &before));
    println!(
        "| cache= | cache + trees + 100 MB, MiB | peak seen, MiB | peak by the kernel, MiB | within | written, MB/s |"
    );
    println!("| --- | ---: | ---: | ---: | --- | ---: |");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

fn row(title: &str, cache: u64, found: Found) -> String {
    let budget = cache + TREES_BYTES + REST_BYTES;
    format!(
        "| {title} ({}) | {} | {} | {} | {} | {:.0} |",
        format_size(cache),
        budget / MIB,
        found.sampled / MIB,
        found.most / MIB,
        if found.most.max(found.sampled) <= budget { "yes" } else { "**no**" },
        found.megabytes_per_second
    )
}

fn default_cache() -> u64 {
    let info = rustix::system::sysinfo();
    let memory = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    (memory / 10).min(CACHE_MAX_BYTES)
}

fn fill(ground: &Ground<'_>, total: u64) -> Result<Found> {
    let mut target = Target::start(Kind::Pool(PARITY), ground)?;
    let pid = target.pid();
    let watch = pid.map(Watch::start);
    let since = Instant::now();
    write_files(target.path(), total)?;
    let most = pid.map_or(0, |pid| memory(pid, "VmHWM:"));
    // Unmounting ends when all is durable: until then it counts.
    target.unmount()?;
    let megabytes_per_second = total as f64 / 1e6 / since.elapsed().as_secs_f64();
    let sampled = watch.map_or(0, Watch::stop);
    target.stop()?;
    Ok(Found { megabytes_per_second, sampled, most })
}

/// Files that are made as they are written: nothing is read that could be slower.
fn write_files(root: &Path, total: u64) -> Result<()> {
    let mut numbers = Numbers::new(4);
    let mut buffer = AlignedBuf::zeroed(MIB as usize);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&numbers.next().to_le_bytes());
    }
    let since = Instant::now();
    let (mut written, mut count) = (0, 0);
    while written < total {
        let dir = root.join(format!("files-{}", count / FILES_PER_DIRECTORY));
        std::fs::create_dir_all(&dir).map_err(Failure::at("making", &dir))?;
        let bytes =
            (FILE_MIN_BYTES + numbers.below(FILE_MAX_BYTES - FILE_MIN_BYTES + 1)).min(total - written);
        write_file(&dir.join(format!("file-{count}")), bytes, &mut buffer, &mut numbers)?;
        written += bytes;
        count += 1;
        if written / GIB != (written - bytes) / GIB {
            eprintln!("    {} after {:.0} s", format_size(written), since.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

fn write_file(path: &Path, bytes: u64, buffer: &mut AlignedBuf, numbers: &mut Numbers) -> Result<()> {
    let file = File::create(path).map_err(Failure::at("creating", path))?;
    for offset in (0..bytes).step_by(MIB as usize) {
        stop::check()?;
        buffer[..8].copy_from_slice(&numbers.next().to_le_bytes());
        let len = MIB.min(bytes - offset) as usize;
        file.write_all_at(&buffer[..len], offset).map_err(Failure::at("writing", path))?;
    }
    Ok(())
}

/// Looks at a process's memory again and again.
#[derive(Debug)]
pub struct Watch {
    end: Sender<()>,
    looks: JoinHandle<u64>,
}

impl Watch {
    /// Begins.
    pub fn start(pid: Pid) -> Self {
        let (end, ended) = channel();
        let looks = std::thread::spawn(move || {
            let mut most = 0;
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                most = most.max(memory(pid, "VmRSS:"));
            }
            most
        });
        Self { end, looks }
    }

    /// The most that was seen, in bytes.
    pub fn stop(self) -> u64 {
        drop(self.end);
        self.looks.join().unwrap_or(0)
    }
}

/// A number of bytes that the kernel tells of a process; 0 where it has ended.
pub fn memory(pid: Pid, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
