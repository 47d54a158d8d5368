//! What the commands that change a pool have in common: have it done, show what comes of it, follow its job.

use std::path::Path;
use std::process::ExitCode;

use poolfs::control::find::{KnownPool, find, known_pools};
use poolfs::control::protocol::{Answer, Request};
use poolfs::maintain::operations::{Operation, Outcome};
use poolfs::maintain::plan::Plan;
use poolfs::units::format_size;
use serde::Serialize;

use super::error::{Result, ToolError};
use super::follow::follow;
use super::output::json;
use super::session::{Access, Session};

/// How a changing command goes about it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct How {
    /// Show what would be done, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Return as soon as the job has begun.
    #[arg(long)]
    background: bool,
    /// As JSON. The job goes on in the background.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    dry_run: bool,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// A pool that is mounted by this user.
///
/// # Errors
/// Those of [`find`]; [`ToolError::NotMounted`].
pub fn mounted(pool: &str) -> Result<KnownPool> {
    let found = find(pool)?;
    if found.mounted.is_some() {
        return Ok(found);
    }
    let mountpoint = found.mountpoint.map(|path| path.display().to_string());
    Err(ToolError::NotMounted { name: found.name, mountpoint })
}

/// The pool that is named, or the only one that is mounted.
///
/// # Errors
/// As [`mounted`]; [`ToolError::WhichPool`].
pub fn mounted_or_only(pool: Option<&str>, verb: &'static str) -> Result<KnownPool> {
    if let Some(pool) = pool {
        return mounted(pool);
    }
    let mut all: Vec<KnownPool> = known_pools()?.into_iter().filter(|pool| pool.mounted.is_some()).collect();
    match all.len() {
        1 => Ok(all.remove(0)),
        _ => {
            let names: Vec<&str> = all.iter().map(|pool| pool.name.as_str()).collect();
            let pools = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(ToolError::WhichPool { verb, pools })
        }
    }
}

/// Has something done, shows what comes of it, and follows the job, if there is one, to its end.
///
/// # Errors
/// When it is refused, or its job fails.
pub fn perform(pool: &str, operation: Operation, how: How) -> Result<ExitCode> {
    let session = Session::open(pool, if how.dry_run { Access::Read } else { Access::Write })?;
    let answer = session.ask(&Request::Perform { operation, dry_run: how.dry_run })?;
    let Answer::Outcome(outcome) = answer else { return Err(session.unexpected(&answer)) };
    if how.json {
        json(Shown { dry_run: how.dry_run, outcome: &outcome })?;
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &outcome.warnings {
        eprintln!("poolctl: warning: {warning}");
    }
    outcome.text.iter().for_each(|line| say!("{line}"));
    if let Some(plan) = &outcome.plan {
        show_plan(plan);
    }
    if how.dry_run {
        say!("nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    let ended = match &outcome.job {
        None => Ok(ExitCode::SUCCESS),
        Some(job) if how.background => {
            let name = session.name();
            match session.is_mounted() {
                true => say!(
                    "job {} ({}) has begun: `poolctl wait {name} {}` waits for its end",
                    job.id,
                    job.text,
                    job.id
                ),
                false => say!("job {} ({}) goes on when {name} is mounted", job.id, job.text),
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(job) => follow(&session, job.id),
    };
    session.note_members();
    ended
}

fn show_plan(plan: &Plan) {
    if plan.total_bytes() == 0 {
        say!("nothing has to move");
    } else {
        say!("to move: {}, to write anew: {}", format_size(plan.move_bytes), format_size(plan.rewrite_bytes));
    }
    let (before, after) = (format_size(plan.capacity_before), format_size(plan.capacity_after));
    say!("capacity: {before} now, {after} when it is done");
}

/// A path as the process sees it, which works in another directory. `PATH,size=...` stays what it is.
///
/// # Errors
/// When the working directory is gone.
pub fn absolute(text: &str) -> Result<String> {
    let path =
        std::path::absolute(Path::new(text)).map_err(ToolError::system(format!("resolving {text}")))?;
    path.to_str().map(str::to_owned).ok_or_else(|| ToolError::NotUtf8 { path: path.clone() })
}

/// A member as it is typed: a path that is there is made absolute, anything else stays.
///
/// # Errors
/// As [`absolute`].
pub fn member(text: &str) -> Result<String> {
    if text.contains('/') || Path::new(text).exists() { absolute(text) } else { Ok(text.to_owned()) }
}
