//! `poolfs umount`.

use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use poolfs::control::client;
use poolfs::control::protocol::{MountStatus, Request};
use poolfs::fuse::mount_table::{self, FS_TYPE};
use poolfs::fuse::session;
use poolfs::member::runtime_dir;
use uuid::Uuid;

use super::error::{CliError, Result};
use super::serve::result_path;

/// How long it may take before it is said what is waited for.
const SILENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether it has ended.
const STEP: Duration = Duration::from_millis(10);

/// Unmounts, and returns when the process that served the mount has ended, with everything durable; with `lazy`,
/// as soon as the mount is out of sight.
///
/// # Errors
/// [`CliError`].
pub fn umount(mountpoint: &Path, lazy: bool) -> Result<()> {
    let not_mounted = || CliError::NotMounted { mountpoint: mountpoint.to_owned() };
    let path = mount_table::resolve_without_touching(mountpoint).map_err(|_| not_mounted())?;
    let entry = find(&path).or_else(|| find(&path.canonicalize().ok()?)).ok_or_else(not_mounted)?;
    if entry.fs_type != FS_TYPE {
        return Err(not_mounted());
    }
    let dir = runtime_dir()?;
    let status = serving(&dir, &entry.mountpoint);
    session::unmount(&entry.mountpoint, lazy)?;
    match status {
        // It may take as long as the programs that use it.
        _ if lazy => Ok(()),
        Some(status) => wait_for(&dir, &status, &entry.device),
        // Its process died, or belongs to somebody else.
        None => Ok(()),
    }
}

fn find(path: &Path) -> Option<mount_table::MountEntry> {
    mount_table::mount_at(path).ok().flatten()
}

/// What the process says that serves the mount.
fn serving(dir: &Path, mountpoint: &Path) -> Option<MountStatus> {
    let pools = client::served(dir).ok()?;
    pools
        .into_iter()
        .filter_map(|pool| client::status(dir, pool).ok())
        .find(|status| Path::new(&status.mountpoint) == mountpoint)
}

fn wait_for(dir: &Path, status: &MountStatus, device: &str) -> Result<()> {
    let pool = status.pool.uuid;
    let (name, pid) = (status.pool.name.clone(), status.pid);
    let started = Instant::now();
    let mut said = false;
    while holds_lock(dir, pool).map_err(CliError::system("waiting for the process that served the mount"))?
        && is_alive(pid)
    {
        if !said && started.elapsed() > SILENCE {
            said = true;
            let holders = mount_table::holders(device);
            if !holders.is_empty() {
                return leave_to_others(dir, status, &holders);
            }
            eprintln!("poolfs: waiting until what was written to {name} is durable (process {pid})");
        }
        std::thread::sleep(STEP);
    }
    let result = result_path(dir, pool);
    match std::fs::read_to_string(&result) {
        Ok(why) if !why.is_empty() => Err(CliError::NotDurable { pool: status.pool.name.clone(), why }),
        Ok(_) => Ok(()),
        Err(_) => {
            let why =
                format!("process {pid} ended without saying so; see `poolctl status` after the next mount");
            Err(CliError::NotDurable { pool: status.pool.name.clone(), why })
        }
    }
}

/// Another mount namespace has a copy of the mount, so the process goes on; what was written is made durable.
fn leave_to_others(dir: &Path, status: &MountStatus, holders: &[u32]) -> Result<()> {
    let name = &status.pool.name;
    if let Err(error) = client::ask(dir, status.pool.uuid, &Request::Sync) {
        return Err(CliError::NotDurable { pool: name.clone(), why: error.to_string() });
    }
    eprintln!(
        "poolfs: {name} is unmounted here, and everything written is durable. Other mount namespaces still have it \
         (of processes {holders:?}), so process {} serves it until they end",
        status.pid
    );
    Ok(())
}

/// The process holds the pool's lock until it ends, however it ends.
fn holds_lock(dir: &Path, pool: Uuid) -> io::Result<bool> {
    let file = OpenOptions::new().read(true).write(true).open(dir.join(format!("{pool}.lock")))?;
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Another mount of the same pool may hold the lock by now.
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}
