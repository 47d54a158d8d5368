//! The two commands as people type them: what works, and bad input, which is refused with a clear error, the right
//! exit code, and nothing changed.

#[path = "cli/bad_create.rs"]
mod bad_create;
#[path = "cli/bad_members.rs"]
mod bad_members;
#[path = "cli/bad_mount.rs"]
mod bad_mount;
#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/jobs.rs"]
mod jobs;
#[path = "cli/life.rs"]
mod life;
#[path = "cli/members.rs"]
mod members;
