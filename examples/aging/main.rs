//! How a pool ages: full, overwritten at random, churned for long.
//!
//!     cargo run --release --example aging -- overwrite
//!     cargo run --release --example aging -- churn
//!
//! Through the library, without FUSE, over directories that are made for it and removed at the end. What was written
//! is read back and compared after a remount. `docs/performance.md` says what the tables mean.

mod churn;
mod ground;
mod overwrite;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use poolfs::units::parse_size;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Measures how a pool ages.
#[derive(Debug, Parser)]
#[command(name = "aging")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One file overwritten at random, in a pool that has little more room than for it.
    Overwrite(overwrite::Args),
    /// Files of many sizes made, overwritten and removed, at several degrees of fullness.
    Churn(churn::Args),
}

/// A size, for clap.
fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let outcome = match Cli::parse().command {
        Command::Overwrite(args) => overwrite::run(&args),
        Command::Churn(args) => churn::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("aging: {error}");
            ExitCode::FAILURE
        }
    }
}
