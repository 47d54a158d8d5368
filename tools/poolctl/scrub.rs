//! `poolctl scrub`.

use std::process::ExitCode;

use poolfs::control::protocol::{Answer, Request};
use poolfs::maintain::job::JobKind;
use poolfs::maintain::operations::Operation;
use poolfs::maintain::scheduler::{Steer, Which};

use super::error::Result;
use super::perform::{How, perform};
use super::session::{Access, Session};

/// Read everything from every disk, compare it, and heal what is wrong.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool.
    pool: String,
    /// Let the scrub that runs rest.
    #[arg(long, group = "steer")]
    pause: bool,
    /// Let it go on.
    #[arg(long, group = "steer")]
    resume: bool,
    /// End it; what was healed stays healed.
    #[arg(long, group = "steer")]
    cancel: bool,
    #[command(flatten)]
    how: How,
}

/// Scrubs, or steers the scrub that runs.
///
/// # Errors
/// While one runs already; when none runs that could be steered.
pub fn run(args: &Args) -> Result<ExitCode> {
    let steer = match (args.pause, args.resume, args.cancel) {
        (true, ..) => Steer::Pause,
        (_, true, _) => Steer::Resume,
        (.., true) => Steer::Cancel,
        _ => return perform(&args.pool, Operation::Scrub, args.how),
    };
    let session = Session::open(&args.pool, Access::Write)?;
    match session.ask(&Request::Steer { job: Which::Kind(JobKind::Scrub), steer })? {
        Answer::Job(job) => {
            let word = match steer {
                Steer::Pause => "is paused",
                Steer::Resume => "goes on",
                Steer::Cancel => "was cancelled",
            };
            say!("{} {word}", job.text);
            Ok(ExitCode::SUCCESS)
        }
        other => Err(session.unexpected(&other)),
    }
}
