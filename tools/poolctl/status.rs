//! `poolctl status`: state, what it means, what to do.

mod report;

use std::process::ExitCode;
use std::time::Duration;

use poolfs::control::find::{KnownPool, find, known_pools};
use poolfs::pool::status::Health;
use serde::Serialize;

use super::error::Result;
use super::output::json;
use report::Report;

/// How often `--watch` shows it anew.
const WATCH: Duration = Duration::from_secs(2);

/// Show how pools are, what it means and what to do.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool (default: all that are known).
    pool: Option<String>,
    /// Say more.
    #[arg(short, long)]
    verbose: bool,
    /// Show it every two seconds until Ctrl-C.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Pools {
    pools: Vec<Report>,
}

/// The word for a state.
pub fn state_word(health: Health) -> &'static str {
    match health {
        Health::Online => "online",
        Health::Degraded => "degraded",
        Health::Unavailable => "unavailable",
    }
}

/// Shows it. Exit code 3 when a pool is degraded, 4 when data can't be read.
///
/// # Errors
/// When the pool is not known, or nothing of it can be reached.
pub fn run(args: &Args) -> Result<ExitCode> {
    loop {
        let reports = reports(args)?;
        let code = reports.iter().map(|report| exit_code(report.health)).max().unwrap_or(0);
        show(args, reports)?;
        if !args.watch {
            return Ok(ExitCode::from(code));
        }
        std::thread::sleep(WATCH);
    }
}

fn reports(args: &Args) -> Result<Vec<Report>> {
    match &args.pool {
        Some(pool) => Ok(vec![Report::of(&find(pool)?)?]),
        None => Ok(known_pools()?.iter().map(report_or_missing).collect()),
    }
}

/// Among all pools one that is not there is a line, not a failure.
fn report_or_missing(pool: &KnownPool) -> Report {
    Report::of(pool).unwrap_or_else(|error| Report::missing(pool, &error.to_string()))
}

fn show(args: &Args, reports: Vec<Report>) -> Result<()> {
    if args.json {
        return match (&args.pool, reports.len()) {
            (Some(_), 1) => reports.into_iter().try_for_each(json),
            _ => json(Pools { pools: reports }),
        };
    }
    if args.watch {
        // Clears the screen.
        print!("\x1b[H\x1b[2J");
    }
    if reports.is_empty() {
        say!("no pools are known here: `poolctl create NAME MEMBER...` makes one");
    }
    for (index, report) in reports.iter().enumerate() {
        if index > 0 {
            say!();
        }
        report.print(args.verbose);
    }
    Ok(())
}

/// The exit code for a state.
pub fn exit_code(health: Health) -> u8 {
    match health {
        Health::Online => 0,
        Health::Degraded => 3,
        Health::Unavailable => 4,
    }
}
