//! `poolctl`: makes pools and looks after them. A command is one file.

/// Prints a line. Whoever reads it may stop in the middle, as `head` does; that is no error.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

mod check;
mod create;
mod destroy;
mod devices;
mod error;
mod examine;
mod layout_args;
mod list;
mod output;
mod plan;
mod status;
mod survey;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Makes pools of disks and looks after them.
///
/// POOL is a pool's name, its UUID, its mount point, or the path of any of its members. Sizes take K, M, G and T
/// (powers of 1024). Exit codes: 0 done, 1 error, 2 usage; `status` and `check` also 3 degraded and 4 data
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
