//! A FUSE file system that does nothing: names and attributes in memory, data discarded, zeros read. What a pool
//! is slower than this is the pool's own doing; what this is slower than a directory is FUSE's. It asks the kernel
//! for exactly what the pool's mount asks for.

mod requests;
mod tree;

// The very same source, so that both negotiate the same.
#[path = "../../src/fuse/negotiate.rs"]
mod negotiate;

use std::io::Write;
use std::mem::{ManuallyDrop, replace};
use std::path::Path;

use fuser::{Config, MountOption, Session, SessionACL};
use poolfs::fuse::mount_table::mount_at;

use super::failure::{Failure, Result};
use requests::Null;

/// Said on standard output once the mount answers.
pub const READY: &str = "ready";
/// As the pool has it.
const THREADS_MIN: usize = 8;
/// As the pool has it.
const READ_AHEAD_KIB: u32 = 1024;

/// Mounts it and serves it until somebody unmounts it.
pub fn serve(mountpoint: &Path) -> Result<()> {
    // A session of its own, as the pool's process has it: the scheduler may share the processors out by sessions.
    // And Ctrl-C must find the mount alive, to unmount it. An error means that it leads one already.
    let _ = rustix::process::setsid();
    let mountpoint = mountpoint.canonicalize().map_err(Failure::at("finding", mountpoint))?;
    let failed = || Failure::at("serving the null file system at", &mountpoint);
    let session = Session::new(Null::new(), &mountpoint, &config()).map_err(failed())?;
    let background = session.spawn().map_err(failed())?;
    read_ahead_more(&mountpoint);
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(failed())?;
    // What fuser keeps to unmount with is given up: it is another that unmounts, and fuser would try once more.
    let mut background = ManuallyDrop::new(background);
    let session = replace(&mut background.guard, std::thread::spawn(|| Ok(())));
    session.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked"))).map_err(failed())
}

/// As `src/fuse/session.rs` has it.
fn config() -> Config {
    let root = rustix::process::geteuid().is_root();
    let threads =
        std::thread::available_parallelism().map_or(THREADS_MIN, |n| (2 * n.get()).max(THREADS_MIN));
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("nullfs".into()),
        MountOption::CUSTOM("subtype=nullfs".into()),
        MountOption::DefaultPermissions,
    ];
    if root {
        config.mount_options.extend([MountOption::Suid, MountOption::Dev]);
    }
    config.acl = if root { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads);
    config
}

fn read_ahead_more(mountpoint: &Path) {
    if let Ok(Some(entry)) = mount_at(mountpoint) {
        let path = format!("/sys/class/bdi/{}/read_ahead_kb", entry.device);
        if let Err(error) = std::fs::write(&path, READ_AHEAD_KIB.to_string()) {
            log::debug!("read-ahead stays as the kernel has it: {path}: {error}");
        }
    }
}
