//! `poolctl check`: does everything that the metadata says agree? Changes nothing.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use poolfs::control::find::{KnownPool, find, known_pools};
use poolfs::fs::{Area, CheckOptions, CheckReport, Fs, FsError, FsOptions};
use poolfs::pool::status::Health;
use poolfs::pool::{AssembleOptions, Degraded, Pool};
use poolfs::units::format_size;
use serde::Serialize;
use uuid::Uuid;

use super::error::{Result, ToolError};
use super::output::{count, json};
use super::status::state_word;

/// Memory for file data: only what the journal holds comes there.
const CACHE_BYTES: u64 = 64 << 20;

/// Check that everything that a pool's metadata says agrees. The pool must not be mounted; nothing is changed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool, or some of its members (default: all pools that are known).
    #[arg(value_name = "POOL|MEMBER")]
    pools: Vec<String>,
    /// Read all file data too, and compare it with its checksums.
    #[arg(long)]
    data: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What was found in one pool.
#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    uuid: Uuid,
    health: Health,
    /// Nothing was ever written to it.
    never_mounted: bool,
    #[serde(flatten)]
    report: CheckReport,
}

#[derive(Serialize)]
struct Pools {
    pools: Vec<Checked>,
}

/// Checks. Exit code 1 when something does not agree, 4 when data can't be read, 3 when a pool is degraded.
///
/// # Errors
/// When the pool is not known, is mounted, or can't be put together.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut pools: Vec<KnownPool> = Vec::new();
    for name in &args.pools {
        let found = find(name)?;
        if pools.iter().all(|known| known.uuid != found.uuid) {
            pools.push(found);
        }
    }
    if args.pools.is_empty() {
        pools = known_pools()?;
    }
    let options = CheckOptions { data: args.data };
    let checked: Vec<Checked> = pools.iter().map(|pool| check(pool, options)).collect::<Result<_>>()?;
    let code = checked.iter().map(exit_code).max_by_key(|code| severity(*code)).unwrap_or(0);
    if args.json {
        match (args.pools.is_empty(), checked.len()) {
            (false, 1) => checked.into_iter().try_for_each(json)?,
            _ => json(Pools { pools: checked })?,
        }
    } else {
        checked.iter().for_each(show);
    }
    Ok(ExitCode::from(code))
}

fn check(known: &KnownPool, options: CheckOptions) -> Result<Checked> {
    if let Some(mounted) = &known.mounted {
        let mountpoint = mounted.mountpoint.clone();
        return Err(ToolError::Mounted { name: known.name.clone(), mountpoint });
    }
    let here: Vec<PathBuf> = known.members.iter().filter(|path| path.exists()).cloned().collect();
    if here.is_empty() {
        let members: Vec<String> = known.members.iter().map(|path| path.display().to_string()).collect();
        return Err(ToolError::NoMemberHere { name: known.name.clone(), members: members.join(", ") });
    }
    let assemble = AssembleOptions {
        read_only: true,
        wait: Duration::ZERO,
        degraded: Degraded::Yes,
        ..AssembleOptions::default()
    };
    let pool = Pool::assemble(&here, &assemble)?;
    let failed = |source| ToolError::Check { name: known.name.clone(), source };
    let fs_options = FsOptions { cache_bytes: CACHE_BYTES, background: false, ..FsOptions::default() };
    let (report, never_mounted) = match Fs::mount(pool.clone(), fs_options) {
        Ok(fs) => (fs.check(options).map_err(failed)?, false),
        // There is not even a root directory, and a pool that is put together read-only gets none.
        Err(FsError::ReadOnly) => (CheckReport::default(), true),
        Err(error) => return Err(failed(error)),
    };
    let health = pool.status().health;
    Ok(Checked { name: pool.name(), uuid: pool.uuid(), health, never_mounted, report })
}

fn exit_code(checked: &Checked) -> u8 {
    let findings = &checked.report.findings;
    match checked.health {
        _ if findings.iter().any(|finding| finding.area == Area::Data) => 4,
        Health::Unavailable => 4,
        _ if !findings.is_empty() => 1,
        Health::Degraded => 3,
        Health::Online => 0,
    }
}

/// Wrong metadata is worse than missing redundancy, and lost data is worst.
fn severity(code: u8) -> u8 {
    match code {
        3 => 1,
        1 => 2,
        4 => 3,
        _ => 0,
    }
}

fn show(checked: &Checked) {
    let report = &checked.report;
    say!("{}: {}", checked.name, state_word(checked.health));
    if checked.never_mounted {
        say!("  nothing was ever written to it");
        return;
    }
    say!(
        "  {}, {}, {}, {}, {} of metadata",
        count(report.inodes as usize, "inode"),
        count(report.names as usize, "name"),
        count(report.extents as usize, "extent"),
        count(report.sets as usize, "set"),
        count(report.tree_nodes as usize, "node")
    );
    if report.data_bytes > 0 {
        say!("  {} of data read and compared", format_size(report.data_bytes));
    }
    for finding in &report.findings {
        say!("  wrong: {}", finding.what);
    }
    match (report.findings.len(), report.more_findings) {
        (0, _) => say!("  everything agrees"),
        (_, 0) => {}
        (_, more) => say!("  and {more} more"),
    }
    if !report.findings.is_empty() {
        say!("  Mount it read-only (-o ro) and copy away what you need before you go on with it.");
    }
}
