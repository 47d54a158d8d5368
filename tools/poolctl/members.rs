//! `poolctl remove`, `replace`, `offline`, `online`.

use std::process::ExitCode;

use poolfs::maintain::operations::Operation;

use super::error::Result;
use super::perform::{How, absolute, member, perform};

/// Empty a member and take it out of the pool.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// The pool.
    pool: String,
    /// The member's path, UUID or number.
    member: String,
    /// It is gone for good: rebuild what it held.
    #[arg(long)]
    lost: bool,
    /// With --lost: although some files can't be read then.
    #[arg(long, requires = "lost")]
    force: bool,
    #[command(flatten)]
    how: How,
}

/// Put a new member in the place of another: what the old one holds is copied where it can be read, and rebuilt where
/// not.
#[derive(Debug, clap::Args)]
pub struct ReplaceArgs {
    /// The pool.
    pool: String,
    /// The old member's path, UUID or number.
    old: String,
    /// The new one: `PATH[,size=SIZE][,reserve=SIZE]`.
    new: String,
    /// Take over what the new one holds, and destroy that.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    how: How,
}

/// Do without a member until it is brought back.
#[derive(Debug, clap::Args)]
pub struct OfflineArgs {
    /// The pool.
    pool: String,
    /// The member's path, UUID or number.
    member: String,
    /// Although some files can't be read then.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    how: How,
}

/// Take a member back that was offline, missing or failed.
#[derive(Debug, clap::Args)]
pub struct OnlineArgs {
    /// The pool.
    pool: String,
    /// The member's path, also a new one; its UUID or number.
    member: String,
    #[command(flatten)]
    how: How,
}

/// Removes one.
///
/// # Errors
/// When what it holds does not fit elsewhere, or too few members would be left.
pub fn remove(args: &RemoveArgs) -> Result<ExitCode> {
    let operation = Operation::Remove { member: member(&args.member)?, lost: args.lost, force: args.force };
    perform(&args.pool, operation, args.how)
}

/// Replaces one.
///
/// # Errors
/// When the new one can't be a member, or is too small.
pub fn replace(args: &ReplaceArgs) -> Result<ExitCode> {
    let operation =
        Operation::Replace { old: member(&args.old)?, new: absolute(&args.new)?, force: args.force };
    perform(&args.pool, operation, args.how)
}

/// Takes one offline.
///
/// # Errors
/// When files would become unreadable, without `--force`.
pub fn offline(args: &OfflineArgs) -> Result<ExitCode> {
    let operation = Operation::Offline { member: member(&args.member)?, force: args.force };
    perform(&args.pool, operation, args.how)
}

/// Brings one online.
///
/// # Errors
/// When it is not there, belongs to another pool, or has diverged.
pub fn online(args: &OnlineArgs) -> Result<ExitCode> {
    perform(&args.pool, Operation::Online { member: member(&args.member)? }, args.how)
}
