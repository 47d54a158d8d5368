//! `poolctl add`.

use std::process::ExitCode;

use poolfs::maintain::operations::Operation;

use super::error::Result;
use super::perform::{How, absolute, perform};

/// Take new members into a pool: directories, block devices or image files.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool.
    pool: String,
    /// Each `PATH[,size=SIZE][,reserve=SIZE]`.
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// Even out the use of all members afterwards.
    #[arg(long)]
    rebalance: bool,
    /// Take over what holds something else, and destroy that.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    how: How,
}

/// Adds them.
///
/// # Errors
/// When one can't be a member; then none before it in the list was refused, and all are checked before any is added.
pub fn run(args: &Args) -> Result<ExitCode> {
    let members: Vec<String> = args.members.iter().map(|text| absolute(text)).collect::<Result<_>>()?;
    let operation = Operation::Add { members, force: args.force, rebalance: args.rebalance };
    perform(&args.pool, operation, args.how)
}
