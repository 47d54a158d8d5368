//! `poolctl jobs`.

use std::process::ExitCode;

use poolfs::control::find::{find, known_pools};
use poolfs::control::protocol::{Answer, Request};
use poolfs::maintain::scheduler::{JobId, JobStatus, Steer, Which};
use serde::Serialize;

use super::error::Result;
use super::follow::{counted, details, percent};
use super::output::{json, print_table, table, when};
use super::session::{Access, Session};

/// Show the long jobs of pools, those that ended last too.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool (default: all that are mounted).
    pool: Option<String>,
    /// Let a job rest.
    #[arg(long, value_name = "JOB", requires = "pool", group = "steer")]
    pause: Option<JobId>,
    /// Let it go on.
    #[arg(long, value_name = "JOB", requires = "pool", group = "steer")]
    resume: Option<JobId>,
    /// End it; what it did stays done.
    #[arg(long, value_name = "JOB", requires = "pool", group = "steer")]
    cancel: Option<JobId>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Pools {
    pools: Vec<Jobs>,
}

#[derive(Serialize)]
struct Jobs {
    name: String,
    jobs: Vec<JobStatus>,
}

/// Shows them, or steers one.
///
/// # Errors
/// When the pool is not mounted, or the job is not there.
pub fn run(args: &Args) -> Result<ExitCode> {
    let steer = [(args.pause, Steer::Pause), (args.resume, Steer::Resume), (args.cancel, Steer::Cancel)];
    let steer = steer.into_iter().find_map(|(id, steer)| Some((id?, steer)));
    let pools = match &args.pool {
        Some(pool) => vec![find(pool)?],
        None => known_pools()?.into_iter().filter(|pool| pool.mounted.is_some()).collect(),
    };
    let mut all = Vec::new();
    for pool in pools {
        let session = Session::of(pool, if steer.is_some() { Access::Write } else { Access::Read })?;
        if let Some((id, steer)) = steer {
            return steer_one(&session, id, steer);
        }
        all.push(Jobs { jobs: super::follow::jobs(&session)?, name: session.name().to_owned() });
    }
    if args.json {
        json(Pools { pools: all })?;
        return Ok(ExitCode::SUCCESS);
    }
    for pool in &all {
        if all.len() > 1 {
            say!("{}", pool.name);
        }
        match pool.jobs.is_empty() {
            true => say!("no jobs"),
            false => print_jobs(&pool.jobs),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn steer_one(session: &Session, id: JobId, steer: Steer) -> Result<ExitCode> {
    match session.ask(&Request::Steer { job: Which::Id(id), steer })? {
        Answer::Job(job) => {
            print_jobs(&[*job]);
            Ok(ExitCode::SUCCESS)
        }
        other => Err(session.unexpected(&other)),
    }
}

fn print_jobs(jobs: &[JobStatus]) {
    let mut shown = table(&["JOB", "WHAT", "STATE", "DONE", "STARTED", ""], usize::MAX);
    for job in jobs {
        let state = serde_json::to_value(job.state).unwrap_or_default();
        shown.add_row(vec![
            job.id.to_string(),
            job.text.clone(),
            state.as_str().unwrap_or_default().to_owned(),
            format!("{} %", percent(job)),
            when(job.started),
            format!("{}{}", details(job), counted(job)),
        ]);
    }
    print_table(&shown);
}
