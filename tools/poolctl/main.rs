//! `poolctl`: makes pools and looks after them. A command is one file.

/// Prints a line. Whoever reads it may stop in the middle, as `head` does; that is no error.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

mod add;
mod check;
mod create;
mod destroy;
mod devices;
mod error;
mod events;
mod examine;
mod follow;
mod iostat;
mod jobs;
mod layout_args;
mod list;
mod locate;
mod members;
mod output;
mod perform;
mod plan;
mod repair;
mod scrub;
mod session;
mod set;
mod status;
mod survey;
mod wait;
mod what_if;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Makes pools of disks and looks after them.
///
/// POOL is a pool's name, its UUID, its mount point, or the path of any of its members. Sizes take K, M, G and T
/// (powers of 1024). Exit codes: 0 done, 1 error, 2 usage; `status`, `check` and `what-if` also 3 degraded and 4 data
/// unavailable.
#[derive(Debug, Parser)]
#[command(name = "poolctl", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a pool.
    Create(create::Args),
    /// List the pools known here.
    List(list::Args),
    /// Show how pools are, what it means and what to do.
    Status(status::Args),
    /// Show throughput and calls of each member.
    Iostat(iostat::Args),
    /// Show what happened, with times.
    Events(events::Args),
    /// Show what would still be readable without some members.
    #[command(name = "what-if")]
    WhatIf(what_if::Args),
    /// Take new members into a pool.
    Add(add::Args),
    /// Empty a member and take it out of the pool.
    Remove(members::RemoveArgs),
    /// Put a new member in the place of another.
    Replace(members::ReplaceArgs),
    /// Do without a member until it is brought back.
    Offline(members::OfflineArgs),
    /// Take a member back.
    Online(members::OnlineArgs),
    /// Rebuild what lost redundancy.
    Repair(repair::RepairArgs),
    /// Even out the use of the members.
    Rebalance(repair::RebalanceArgs),
    /// Read everything from every disk, compare it, and heal what is wrong.
    Scrub(scrub::Args),
    /// Show the long jobs of pools.
    Jobs(jobs::Args),
    /// Wait until jobs have ended.
    Wait(wait::Args),
    /// Change settings of a pool.
    Set(set::Args),
    /// Show which members and slabs hold a file.
    Locate(locate::Args),
    /// Check that everything that a pool's metadata says agrees.
    Check(check::Args),
    /// Show what members could hold that are not a pool yet.
    Plan(plan::Args),
    /// Show what a member says of itself.
    Examine(examine::Args),
    /// Destroy a pool and all data on it.
    Destroy(destroy::Args),
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().filter_or("POOLFS_LOG", "warn"))
        .format_target(false)
        .init();
    let done = match Cli::parse().command {
        Command::Create(args) => create::run(&args),
        Command::List(args) => list::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Iostat(args) => iostat::run(&args),
        Command::Events(args) => events::run(&args),
        Command::WhatIf(args) => what_if::run(&args),
        Command::Add(args) => add::run(&args),
        Command::Remove(args) => members::remove(&args),
        Command::Replace(args) => members::replace(&args),
        Command::Offline(args) => members::offline(&args),
        Command::Online(args) => members::online(&args),
        Command::Repair(args) => repair::repair(&args),
        Command::Rebalance(args) => repair::rebalance(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Jobs(args) => jobs::run(&args),
        Command::Wait(args) => wait::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Locate(args) => locate::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Examine(args) => examine::run(&args),
        Command::Destroy(args) => destroy::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("poolctl: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
