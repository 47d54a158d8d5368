//! How fast a pool is, against a FUSE file system that does nothing and against the plain directory:
//! `cargo build --release && cargo run --release --example speed`. `docs/performance.md` says what the rows mean.

mod failure;
mod many;
mod memory;
mod nullfs;
mod programs;
mod report;
mod runner;
mod scratch;
mod stop;
mod target;
mod touch;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use poolfs::units::parse_size;

use failure::Result;

/// Measures poolfs against a null FUSE file system and the plain directory.
#[derive(Debug, Parser)]
#[command(name = "speed", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    speed: runner::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures the memory that a parity pool takes while more is written to it than fits.
    Memory(memory::Args),
    /// Makes and finds very many small files, mounts what there is, and lists a large directory.
    Many(many::Args),
    /// Mounts the null file system and serves it until it is unmounted.
    Nullfs {
        /// An empty directory.
        mountpoint: PathBuf,
    },
}

/// A size, for clap.
fn size(text: &str) -> std::result::Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Some(Command::Nullfs { mountpoint }) => nullfs::serve(mountpoint),
        Some(Command::Many(args)) => {
            stop::on_signals()?;
            many::run(args)
        }
        Some(Command::Memory(args)) => {
            stop::on_signals()?;
            memory::run(args)
        }
        None => {
            stop::on_signals()?;
            runner::run(&cli.speed)
        }
    }
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    if cfg!(debug_assertions) {
        eprintln!("speed: this is a build for debugging; numbers that mean something take --release");
    }
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}
