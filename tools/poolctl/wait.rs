//! `poolctl wait`.

use std::process::ExitCode;

use poolfs::maintain::scheduler::JobId;

use super::error::Result;
use super::follow::{follow, jobs};
use super::perform::mounted_or_only;
use super::session::{Access, Session};

/// Wait until a job has ended, or all that run. Exit code 1 when one failed or was cancelled.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool (default: the only one that is mounted).
    pool: Option<String>,
    /// The job's number (default: all that run).
    job: Option<JobId>,
}

/// Waits.
///
/// # Errors
/// When a job did not do all it was to do, or is not known.
pub fn run(args: &Args) -> Result<ExitCode> {
    let pool = mounted_or_only(args.pool.as_deref(), "wait for")?;
    let session = Session::of(pool, Access::Read)?;
    if let Some(job) = args.job {
        return follow(&session, job);
    }
    while let Some(job) = jobs(&session)?.into_iter().find(|job| !job.state.has_ended()) {
        follow(&session, job.id)?;
    }
    Ok(ExitCode::SUCCESS)
}
