//! Members come and go while the pool is in use.
//!
//! Each change is durable as a new epoch, on every member that stays or comes, before anything more is acknowledged.
//! The caller has the right to write to the log, so that the log's end stands still; see [`crate::store`].
//!
//! **What a member that was away has missed.** Nothing of the sets that it is part of: a set takes no stripe any more
//! once one of its members is away, a stripe counts only when it is synced on all of them, and a slot that was moved
//! meanwhile has another slab. So whatever the set table still gives to a returning member is complete, and what it
//! does not is deleted. What it must get is a superblock, and where it holds a ring, the live log.

mod checks;
mod come;
mod leave;

pub use checks::Addition;
