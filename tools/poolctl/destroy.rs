//! `poolctl destroy`.

use std::process::ExitCode;

use poolfs::control::find::{KnownPool, find};
use poolfs::control::registry;
use poolfs::member::{lock_pool, open, runtime_dir};

use super::error::{Result, ToolError};
use super::output::{confirm, count};
use super::survey::{Survey, survey};

/// Destroy a pool and all data on it: its members are empty again afterwards.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool.
    pool: String,
    /// Do not ask.
    #[arg(long)]
    force: bool,
    /// Show what would be destroyed, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Destroys it.
///
/// # Errors
/// [`ToolError`]; a mounted pool is left alone.
pub fn run(args: &Args) -> Result<ExitCode> {
    let pool = find(&args.pool)?;
    if let Some(mounted) = &pool.mounted {
        return Err(ToolError::Mounted { name: pool.name, mountpoint: mounted.mountpoint.clone() });
    }
    // Nobody can mount it from here on, and it is not mounted by another user of this runtime directory.
    let _lock = lock_pool(&runtime_dir()?, pool.uuid)?;
    let found = match survey(&pool) {
        (Some(survey), _) => survey,
        (None, trouble) => return forget(args, &pool, &trouble),
    };
    describe(&found);
    if args.dry_run {
        say!("nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    if !args.force {
        confirm(&format!("destroy pool {} and all data on it", pool.name), &pool.name)?;
    }
    let failed = erase(&found);
    registry::update(&registry::path(), |registry| registry.remove(pool.uuid))?;
    if failed > 0 {
        return Err(ToolError::NotErased { failed, all: found.found.len() });
    }
    say!("pool {} is destroyed", pool.name);
    Ok(ExitCode::SUCCESS)
}

/// Of a pool of which nothing is left, only the memory can go.
fn forget(args: &Args, pool: &KnownPool, trouble: &[String]) -> Result<ExitCode> {
    if !args.force || args.dry_run {
        let mut members = trouble.join("; ");
        members.push_str(" (--force forgets the pool)");
        return Err(ToolError::NoMemberHere { name: pool.name.clone(), members });
    }
    registry::update(&registry::path(), |registry| registry.remove(pool.uuid))?;
    say!("pool {} is forgotten; no member of it was there to be erased", pool.name);
    Ok(ExitCode::SUCCESS)
}

fn describe(survey: &Survey) {
    say!(
        "pool {} ({}): {} of {} will be erased",
        survey.freshest.name,
        survey.freshest.pool,
        survey.found.len(),
        count(survey.freshest.members.len(), "member")
    );
    for (path, _) in &survey.found {
        say!("  {}", path.display());
    }
    for trouble in &survey.trouble {
        say!("  left alone: {trouble}");
    }
}

/// How many members could not be erased.
fn erase(survey: &Survey) -> usize {
    let mut failed = 0;
    for (path, _) in &survey.found {
        if let Err(error) = open::wipe(path) {
            eprintln!("poolctl: {error}");
            failed += 1;
        }
    }
    failed
}
