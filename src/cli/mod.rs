//! The command `poolfs`.
//!
//! | file | what it does |
//! | --- | --- |
//! | `args` | what can be typed, as dumb values |
//! | `options` | what stands behind `-o`, checked |
//! | `request` | all that a mount takes, checked |
//! | `daemon` | the process in the background, and the one that waits for it |
//! | `serve` | the life of a mounted pool |
//! | `memory` | what the allocator may keep |
//! | `umount`, `demo` | the other commands |

mod args;
mod daemon;
mod demo;
mod error;
mod memory;
mod options;
mod request;
mod serve;
mod umount;

use std::process::ExitCode;

use clap::Parser;
use poolfs::control::mountpoint;

use args::{Cli, Command};
use error::Result;
use request::MountRequest;

/// Runs the command that was typed. The exit code is 0 when it was done, 1 when it failed, 2 when it makes no
/// sense.
pub fn run() -> ExitCode {
    let cli = Cli::parse_from(args::normalised(std::env::args_os()));
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("poolfs: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(cli: Cli) -> Result<()> {
    let verbose = matches!(
        &cli.command,
        Command::Mount { foreground: true, .. } | Command::MountSource { foreground: true, .. }
    );
    start_log();
    if verbose {
        log_freely();
    }
    match cli.command {
        Command::Mount { mountpoint, members, foreground, pid_file, options } => {
            let request = MountRequest::of_mountpoint(&mountpoint, &members, &options, pid_file)?;
            mount(request, foreground, cli.daemonised_child)
        }
        Command::MountSource { source, mountpoint, options, foreground, .. } => {
            let request = MountRequest::of_source(&source, &mountpoint, &options)?;
            mount(request, foreground, cli.daemonised_child)
        }
        Command::Umount { mountpoint, lazy } => umount::umount(&mountpoint, lazy),
        Command::Demo { directory } => {
            memory::use_one_arena()?;
            demo::demo(directory.as_deref())
        }
    }
}

fn mount(request: MountRequest, foreground: bool, daemonised_child: bool) -> Result<()> {
    if foreground {
        memory::use_one_arena()?;
        serve::serve(&request, None, || Ok(()))
    } else if daemonised_child {
        daemon::be_the_daemon(&request)
    } else {
        mountpoint::check(&request.mountpoint)?;
        daemon::start_and_wait(&request)
    }
}

/// `POOLFS_LOG` says what is logged, as `RUST_LOG` does elsewhere. What is logged while a mount begins stands on
/// the terminal, so until [`log_freely`] it is little.
fn start_log() {
    env_logger::Builder::from_env(env_logger::Env::default().filter_or(LOG, "info,fuser=warn"))
        .format_target(false)
        .init();
    if std::env::var_os(LOG).is_none() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}

/// Lets through what is of interest in a log.
fn log_freely() {
    if std::env::var_os(LOG).is_none() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

const LOG: &str = "POOLFS_LOG";
