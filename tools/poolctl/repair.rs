//! `poolctl repair` and `poolctl rebalance`.

use std::process::ExitCode;

use poolfs::maintain::operations::Operation;

use super::error::Result;
use super::perform::{How, perform};

/// Rebuild what lost redundancy on the members that are there.
#[derive(Debug, clap::Args)]
pub struct RepairArgs {
    /// The pool.
    pool: String,
    /// Where no other member has room, write data anew over fewer members.
    #[arg(long)]
    narrow: bool,
    #[command(flatten)]
    how: How,
}

/// Even out the use of the members, and spread what is narrower than new data over all of them.
#[derive(Debug, clap::Args)]
pub struct RebalanceArgs {
    /// The pool.
    pool: String,
    #[command(flatten)]
    how: How,
}

/// Repairs.
///
/// # Errors
/// While it is being repaired already.
pub fn repair(args: &RepairArgs) -> Result<ExitCode> {
    perform(&args.pool, Operation::Repair { narrow: args.narrow }, args.how)
}

/// Rebalances.
///
/// # Errors
/// While it is being rebalanced already.
pub fn rebalance(args: &RebalanceArgs) -> Result<ExitCode> {
    perform(&args.pool, Operation::Rebalance, args.how)
}
