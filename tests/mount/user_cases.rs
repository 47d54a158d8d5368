//! What users of pools and of FUSE file systems have met: each a kind of mistake that lost data, broke a program, or
//! misled. One file for data, one for names and attributes, one for programs.

mod data;
mod names;
mod programs;

use crate::support::disks::Disk;
use crate::support::pool::TestPool;

/// A parity pool, mounted: the layout with the most that can go wrong.
fn mounted() -> TestPool {
    TestPool::mounted("parity", &Disk::directories(3, "600M"))
}

/// Fails with `error` and nothing else.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: std::io::Result<T>, error: rustix::io::Errno) {
    let found = result.expect_err("it should have been refused");
    assert_eq!(found.raw_os_error(), Some(error.raw_os_error()), "{found}");
}
