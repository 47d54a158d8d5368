//! Very many small files: how fast they are made and found from the first to the last, what memory that takes, how
//! long mounting takes afterwards, and how a very large directory lists.

mod library;
mod mounted;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use poolfs::units::{GIB, KIB, MIB, format_size};
use rustix::process::Pid;

use super::failure::{Failure, Result};
use super::memory::{Watch, memory};
use super::programs::Programs;
use super::scratch::{Scratch, check_room, is_tmpfs};
use super::target::PARITY;
use super::work::Numbers;
use super::{report, size, stop};

/// Files that are looked up for each rate, in no order.
const LOOKUPS: u64 = 50_000;
/// Parts of the work after each of which the rate is told.
const PARTS: u64 = 10;
/// Files that are made before the pool is killed, so that there is something to recover.
const LAST_FILES: u64 = 10_000;
/// The directory that is listed, and the one of the last files.
const LARGE: &str = "large";
const LAST: &str = "last";
/// Names, attributes and journal of a file, with copies, and slack.
const FILE_BYTES: u64 = 4 * KIB;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files to make.
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(PARTS..))]
    files: u64,
    /// Directories that they are spread over.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    directories: u64,
    /// Empty files in one more directory, which is listed.
    #[arg(long, default_value_t = 1_000_000)]
    listed: u64,
    /// Files hold up to so many bytes.
    #[arg(long, default_value = "0", value_parser = size)]
    content: u64,
    /// Memory for file data.
    #[arg(long, default_value = "256M", value_parser = size)]
    cache: u64,
    /// Memory for metadata.
    #[arg(long, default_value = "64M", value_parser = size)]
    meta_cache: u64,
    /// Where members go [default: the system's directory for temporary files].
    #[arg(long, value_name = "DIR")]
    members: Option<PathBuf>,
    /// Through a mount, by the programs that were built, instead of through the library.
    #[arg(long)]
    mount: bool,
    /// Forget no file, like a kernel with plenty of memory. Through the library only: a kernel has its own mind.
    #[arg(long, conflicts_with = "mount")]
    known: bool,
}

/// A pool with files in it, by way of the library or of a mount.
trait Tree {
    /// Makes a directory in the root.
    fn make_directory(&mut self, name: &str) -> Result<()>;
    /// Makes a file in a directory of the root.
    fn make_file(&mut self, directory: &str, name: &str, content: &[u8]) -> Result<()>;
    /// Looks a file up, and asks for its size.
    fn look_up(&mut self, directory: &str, name: &str) -> Result<u64>;
    /// Makes the kernel forget the names that it would answer for.
    fn forget_names(&self) {}
    /// Tells of each entry of a directory.
    fn list(&mut self, directory: &str, each: &mut dyn FnMut()) -> Result<()>;
    /// Unmounts in order, and mounts again. Returns how long each took.
    fn restart(&mut self) -> Result<(Duration, Duration)>;
    /// Ends without unmounting, and mounts again. Returns how long mounting took.
    fn crash(&mut self) -> Result<Duration>;
    /// The process that has the pool.
    fn pid(&self) -> Option<Pid>;
}

/// Measures, and prints what it finds as it goes.
pub fn run(args: &Args) -> Result<()> {
    if !args.mount {
        library::use_one_arena()?;
    }
    let place = args.members.clone().unwrap_or_else(std::env::temp_dir);
    let capacity = (args.files + args.listed + LAST_FILES) * (FILE_BYTES + 2 * args.content);
    // The members offer more than this needs, so that the trees may grow unevenly.
    check_room(&place, capacity / 3 * 2 + 2 * GIB)?;
    let mounts = Scratch::new(&std::env::temp_dir())?;
    let media = Scratch::new(&place)?;
    let medium = if is_tmpfs(media.path()) { "tmpfs" } else { "disk" };
    println!("{}", report::conditions(medium, 1, &report::load()));
    println!(
        "{} files of up to {} in {} directories, {}, cache={}, meta-cache={}, {}\n",
        args.files,
        format_size(args.content),
        args.directories,
        PARITY.title(),
        format_size(args.cache),
        format_size(args.meta_cache),
        if args.mount { "through a mount" } else { "through the library" }
    );
    if args.mount {
        let programs = Programs::beside_this(&mounts.directory("run")?)?;
        let options = format!("cache={},meta-cache={}", args.cache, args.meta_cache);
        let ground = super::target::Ground {
            programs: &programs,
            mounts: &mounts,
            media: &media,
            capacity,
            options: &options,
        };
        measure(&mut mounted::Mounted::start(&ground)?, args)
    } else {
        measure(&mut library::Library::start(&media, args)?, args)
    }
}

fn measure(tree: &mut dyn Tree, args: &Args) -> Result<()> {
    let watch = tree.pid().map(Watch::start);
    println!(
        "| files | made, 1/s | found in order, 1/s | found at random, 1/s | resident, MiB | at most so far, MiB |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    let per_directory = args.files.div_ceil(args.directories);
    let mut work =
        Work { numbers: Numbers::new(5), per_directory, content: vec![b'x'; args.content as usize] };
    for part in 0..PARTS {
        let (from, to) = (args.files * part / PARTS, args.files * (part + 1) / PARTS);
        let made = work.make(tree, from, to)?;
        let ends = part == 0 || part == PARTS - 1;
        let found = if ends { [work.walk(tree, to)?, work.find(tree, to)?].map(Some) } else { [None; 2] };
        row(tree, to, made, found);
    }
    println!();
    let most = watch.map_or(0, Watch::stop);
    println!("resident at most, five looks a second: {} MiB", most / MIB);
    let (unmounting, mounting) = tree.restart()?;
    tell("unmounted in", unmounting);
    tell("mounted after that in", mounting);
    println!("found in order, with nothing in memory: {:.0}/s", work.walk(tree, args.files)?);
    println!("found at random, after that: {:.0}/s", work.find(tree, args.files)?);
    if args.listed > 0 {
        list(tree, args.listed)?;
    }
    tree.make_directory(LAST)?;
    for n in 0..LAST_FILES {
        tree.make_file(LAST, &format!("file-{n}"), &work.content)?;
    }
    tell("mounted after a kill in", tree.crash()?);
    println!("found in order, after that: {:.0}/s", work.walk(tree, args.files)?);
    println!("resident at most, as the kernel counts: {} MiB", resident(tree, "VmHWM:"));
    Ok(())
}

fn row(tree: &dyn Tree, files: u64, made: f64, found: [Option<f64>; 2]) {
    let [walked, found] = found.map(|rate| rate.map_or(String::new(), |rate| format!("{rate:.0}")));
    let (now, most) = (resident(tree, "VmRSS:"), resident(tree, "VmHWM:"));
    println!("| {files} | {made:.0} | {walked} | {found} | {now} | {most} |");
}

/// Memory of the process that has the pool, in MiB.
fn resident(tree: &dyn Tree, field: &str) -> u64 {
    tree.pid().map_or(0, |pid| memory(pid, field)) / MIB
}

fn tell(what: &str, took: Duration) {
    println!("{what} {:.3} s", took.as_secs_f64());
}

/// The files, by number.
struct Work {
    numbers: Numbers,
    per_directory: u64,
    content: Vec<u8>,
}

impl Work {
    fn place(&self, file: u64) -> (String, String) {
        (format!("directory-{}", file / self.per_directory), format!("file-{file}"))
    }

    /// Makes files of these numbers, directory by directory. Returns how many a second.
    fn make(&mut self, tree: &mut dyn Tree, from: u64, to: u64) -> Result<f64> {
        let since = Instant::now();
        for file in from..to {
            stop::check()?;
            let (directory, name) = self.place(file);
            if file.is_multiple_of(self.per_directory) {
                tree.make_directory(&directory)?;
            }
            let len = self.numbers.below(self.content.len() as u64 + 1) as usize;
            tree.make_file(&directory, &name, &self.content[..len])?;
        }
        Ok((to - from) as f64 / since.elapsed().as_secs_f64())
    }

    /// Looks up all files of some directories, one directory after the other, as listings, backups and builds do.
    /// Returns how many files a second.
    fn walk(&mut self, tree: &mut dyn Tree, below: u64) -> Result<f64> {
        tree.forget_names();
        let since = Instant::now();
        let directories = (below / self.per_directory).max(1);
        let mut found = 0;
        while found < LOOKUPS {
            let first = self.numbers.below(directories) * self.per_directory;
            for file in first..below.min(first + self.per_directory) {
                stop::check()?;
                let (directory, name) = self.place(file);
                tree.look_up(&directory, &name)?;
                found += 1;
            }
        }
        Ok(found as f64 / since.elapsed().as_secs_f64())
    }

    /// Looks up files of numbers below this, in no order. Returns how many a second.
    fn find(&mut self, tree: &mut dyn Tree, below: u64) -> Result<f64> {
        tree.forget_names();
        let since = Instant::now();
        for _ in 0..LOOKUPS {
            stop::check()?;
            let file = self.numbers.below(below);
            let (directory, name) = self.place(file);
            if tree.look_up(&directory, &name)? > self.content.len() as u64 {
                return Err(Failure::WrongData { path: PathBuf::from(directory).join(name), offset: 0 });
            }
        }
        Ok(LOOKUPS as f64 / since.elapsed().as_secs_f64())
    }
}

/// Fills the large directory, and lists it with nothing in memory.
fn list(tree: &mut dyn Tree, entries: u64) -> Result<()> {
    tree.make_directory(LARGE)?;
    for n in 0..entries {
        stop::check()?;
        tree.make_file(LARGE, &format!("entry-{n}"), b"")?;
    }
    tree.restart()?;
    let since = Instant::now();
    let (mut last, mut gap, mut seen) = (since, Duration::ZERO, 0);
    tree.list(LARGE, &mut || {
        let now = Instant::now();
        gap = gap.max(now - last);
        last = now;
        seen += 1;
    })?;
    let (took, gap) = (since.elapsed().as_secs_f64(), gap.as_secs_f64() * 1e3);
    println!("listed {seen} entries in {took:.3} s, the longest wait for one {gap:.1} ms");
    if seen == entries { Ok(()) } else { Err(Failure::Listed { expected: entries, seen }) }
}
