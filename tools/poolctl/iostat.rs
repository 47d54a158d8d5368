//! `poolctl iostat`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use poolfs::control::client;
use poolfs::control::find::KnownPool;
use poolfs::member::metered::Traffic;
use poolfs::member::runtime_dir;
use poolfs::pool::status::MemberStatus;
use poolfs::units::format_size;
use serde::Serialize;

use super::error::Result;
use super::output::{json, print_table, table};
use super::perform::mounted_or_only;

/// Show throughput and calls of each member.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool (default: the only one that is mounted).
    pool: Option<String>,
    /// Show what went on in each so many seconds, until Ctrl-C (default: once, over one second).
    seconds: Option<u64>,
    /// As JSON, once.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    name: String,
    seconds: f64,
    members: Vec<Rates>,
}

/// What went on at one member, for a second.
#[derive(Serialize)]
struct Rates {
    path: String,
    read_bytes: u64,
    written_bytes: u64,
    reads: f64,
    writes: f64,
    syncs: f64,
    /// Since the pool was mounted.
    total: Traffic,
}

/// Shows it.
///
/// # Errors
/// When the pool is not mounted.
pub fn run(args: &Args) -> Result<ExitCode> {
    let pool = mounted_or_only(args.pool.as_deref(), "iostat of")?;
    let interval = Duration::from_secs(args.seconds.unwrap_or(1).max(1));
    let mut before = members(&pool)?;
    loop {
        let started = Instant::now();
        std::thread::sleep(interval);
        let after = members(&pool)?;
        let seconds = started.elapsed().as_secs_f64();
        let rates: Vec<Rates> = after.iter().map(|member| rates(&before, member, seconds)).collect();
        if args.json {
            json(Shown { name: pool.name, seconds, members: rates })?;
            return Ok(ExitCode::SUCCESS);
        }
        print(&rates);
        if args.seconds.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
        before = after;
    }
}

fn members(pool: &KnownPool) -> Result<Vec<MemberStatus>> {
    Ok(client::status(&runtime_dir()?, pool.uuid)?.pool.members)
}

fn rates(before: &[MemberStatus], now: &MemberStatus, seconds: f64) -> Rates {
    let old =
        before.iter().find(|member| member.id == now.id).map(|member| member.traffic).unwrap_or_default();
    let (new, path) = (now.traffic, now.path.clone());
    let each = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
    Rates {
        path,
        read_bytes: each(new.read_bytes, old.read_bytes) as u64,
        written_bytes: each(new.written_bytes, old.written_bytes) as u64,
        reads: each(new.reads, old.reads),
        writes: each(new.writes, old.writes),
        syncs: each(new.syncs, old.syncs),
        total: new,
    }
}

fn print(rates: &[Rates]) {
    let mut shown = table(&["MEMBER", "READ/s", "WRITTEN/s", "READS/s", "WRITES/s", "SYNCS/s"], 1);
    for one in rates {
        shown.add_row(vec![
            one.path.clone(),
            format_size(one.read_bytes),
            format_size(one.written_bytes),
            format!("{:.0}", one.reads),
            format!("{:.0}", one.writes),
            format!("{:.0}", one.syncs),
        ]);
    }
    print_table(&shown);
}
