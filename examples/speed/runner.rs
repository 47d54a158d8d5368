//! One run: rounds over all targets, each target once in every round, so that what the machine does meanwhile
//! meets all of them.

use std::path::{Path, PathBuf};

use super::failure::{Failure, Result};
use super::programs::Programs;
use super::report::Results;
use super::scratch::{Scratch, check_room, is_tmpfs};
use super::size;
use super::target::{ALL, Ground, Kind, Target};
use super::touch::Holes;
use super::work::{self, Amounts, Work};
use super::{report, stop};

/// Where memory can be had as files.
const TMPFS: &str = "/dev/shm";
/// Members hold metadata too, and slabs are made ahead.
const SLACK_BYTES: u64 = 2 << 30;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where mount points go [default: the system's directory for temporary files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where members and the plain directory go: `tmpfs` for memory, or a directory on a disk.
    #[arg(long, default_value = "tmpfs", value_name = "tmpfs|DIR")]
    members: PathBuf,
    /// Size of the file that is written and read in order.
    #[arg(long, default_value = "2G", value_parser = size)]
    size: u64,
    /// Size of the file that is overwritten at random.
    #[arg(long, default_value = "256M", value_parser = size)]
    random_size: u64,
    /// Overwrites that are synced.
    #[arg(long, default_value_t = 1000)]
    syncs: usize,
    /// Empty files that are made.
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    /// How often everything is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these workloads (write, read, random, fsync, names) and targets (plain, null, parity, mirror,
    /// striped-mirror).
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Make all free memory page cache before each target: for virtual machines whose host takes back what is free.
    #[arg(long)]
    touch: bool,
    /// Options of the pools' mounts.
    #[arg(short, default_value = "", value_name = "OPT[,OPT...]")]
    options: String,
}

/// Measures, and prints the tables.
pub fn run(args: &Args) -> Result<()> {
    let (works, kinds) = chosen(&args.only)?;
    let place = if args.members == Path::new("tmpfs") { Path::new(TMPFS) } else { &args.members };
    // A mirror holds everything twice.
    check_room(place, 2 * args.size.max(args.random_size) + SLACK_BYTES)?;
    let mounts = Scratch::new(&args.dir.clone().unwrap_or_else(std::env::temp_dir))?;
    let media = Scratch::new(place)?;
    let programs = Programs::beside_this(&mounts.directory("run")?)?;
    let amounts = Amounts {
        stream_bytes: args.size,
        random_bytes: args.random_size,
        syncs: args.syncs,
        files: args.files,
    };
    let ground = Ground {
        programs: &programs,
        mounts: &mounts,
        media: &media,
        capacity: args.size.max(args.random_size),
        options: &args.options,
    };
    let mut holes = args.touch.then(|| Holes::new(&mounts)).transpose()?;
    let mut results = Results::new(kinds.clone());
    let before = report::load();
    let mut order = kinds;
    for round in 1..=args.rounds {
        for &kind in &order {
            stop::check()?;
            eprintln!("round {round} of {}: {}", args.rounds, kind.title());
            if let Some(holes) = &mut holes {
                holes.fill(&mounts)?;
            }
            let mut target = Target::start(kind, &ground)?;
            work::measure(&mut target, &works, &amounts, |row, found| {
                eprintln!("    {}: {:.1} {}", row.title(), found.value, row.unit());
                results.put(kind, row, round, found);
            })?;
            target.stop()?;
            settle(&media)?;
        }
        // Whoever comes first or after whom must not matter.
        if !order.is_empty() {
            order.rotate_left(1);
        }
    }
    let medium = if is_tmpfs(media.path()) { "tmpfs" } else { "disk" };
    println!("{}", report::conditions(medium, args.rounds, &before));
    println!("{results}");
    Ok(())
}

/// What one target leaves to be written must not slow the next.
fn settle(media: &Scratch) -> Result<()> {
    let at = || Failure::at("syncing", media.path());
    let dir = std::fs::File::open(media.path()).map_err(at())?;
    rustix::fs::syncfs(&dir).map_err(|e| at()(e.into()))
}

/// Names of workloads and of targets; all of a sort of which none is named.
fn chosen(names: &[String]) -> Result<(Vec<Work>, Vec<Kind>)> {
    for name in names {
        let known: Vec<&str> =
            Work::ALL.iter().map(|work| work.name()).chain(ALL.iter().map(|kind| kind.name())).collect();
        if !known.contains(&name.as_str()) {
            return Err(Failure::Unknown { name: name.clone(), known: known.join(", ") });
        }
    }
    let named = |name: &str| names.iter().any(|given| given == name);
    let mut works: Vec<Work> = Work::ALL.into_iter().filter(|work| named(work.name())).collect();
    let mut kinds: Vec<Kind> = ALL.into_iter().filter(|kind| named(kind.name())).collect();
    if works.is_empty() {
        works = Work::ALL.to_vec();
    }
    if kinds.is_empty() {
        kinds = ALL.to_vec();
    }
    Ok((works, kinds))
}
