//! Locks that keep two processes from using one member, and two mounts from serving one pool.
//!
//! A member's lock is an `flock` on its superblock file or device, held as long as the disk is open. The
//! pool's lock is a file named after its UUID in the runtime directory: it also stops two mounts of one
//! pool that would use different members of it. Both end with the process, however that ends.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use uuid::Uuid;

use super::error::{MemberError, Result};
use super::file::DataFile;

/// A file whose exclusive lock is held, until this is dropped.
#[derive(Debug)]
pub(super) struct Locked<F: AsFd>(F);

impl<F: AsFd> Locked<F> {
    /// Takes the lock; `None` when another open file has it.
    pub(super) fn take(file: F) -> io::Result<Option<Self>> {
        let lock = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        match rustix::io::retry_on_intr(lock) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl<F: AsFd> std::ops::Deref for Locked<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

/// Closing the file would do, but not while a process that is just being started still has a copy of it.
/// For the same reason a process that forks must not drop a lock which its child is to keep.
impl<F: AsFd> Drop for Locked<F> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Locks a member's file, unless it is only for a look in passing.
pub(super) fn hold(file: DataFile, locked: bool, path: &Path) -> Result<Held> {
    if !locked {
        return Ok(Held::Unlocked(file));
    }
    let locked = Locked::take(file).map_err(|e| MemberError::access(path, "locking it", e))?;
    locked.map(Held::Locked).ok_or_else(|| MemberError::InUse { path: path.display().to_string() })
}

/// A member's file, with its lock or without.
#[derive(Debug)]
pub(super) enum Held {
    /// Nobody else uses the member.
    Locked(Locked<DataFile>),
    /// Others may use it at the same time.
    Unlocked(DataFile),
}

impl std::ops::Deref for Held {
    type Target = DataFile;

    fn deref(&self) -> &DataFile {
        match self {
            Self::Locked(file) => file,
            Self::Unlocked(file) => file,
        }
    }
}

/// The lock of a pool on this machine; released when dropped.
#[derive(Debug)]
pub struct PoolLock {
    _file: Locked<File>,
}

/// Takes the lock of `pool` in `dir` (see [`runtime_dir`]).
///
/// # Errors
/// [`MemberError::PoolInUse`] when another process, or this one, holds it; [`MemberError::Access`] when the
/// lock file can't be made.
pub fn lock_pool(dir: &Path, pool: Uuid) -> Result<PoolLock> {
    let path = dir.join(format!("{pool}.lock"));
    let failed = |source: io::Error| MemberError::access(&path, "making the pool's lock", source);
    // The file stays when the lock goes: removing it would let two others lock two files of one name.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(&path)
        .map_err(failed)?;
    let Some(file) = Locked::take(file).map_err(failed)? else {
        return Err(MemberError::PoolInUse { pool, lock: path.display().to_string() });
    };
    // Who holds it is only for people to read, so a failure does no harm.
    let _ = file.set_len(0).and_then(|()| writeln!(&*file, "{}", std::process::id()));
    Ok(PoolLock { _file: file })
}

/// The directory for locks and sockets of this user, made if need be: `/run/poolfs` for root, otherwise
/// `$XDG_RUNTIME_DIR/poolfs`, and where there is neither, a private one for temporary files.
///
/// # Errors
/// [`MemberError::Access`] when it can't be made, [`MemberError::Unsuitable`] when it belongs to someone else.
pub fn runtime_dir() -> Result<PathBuf> {
    let uid = geteuid();
    let temporary = || std::env::temp_dir().join(format!("poolfs-{}", uid.as_raw()));
    let base = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if uid.is_root() => Some(PathBuf::from("/run")),
        Some(dir) if !dir.is_empty() => Some(PathBuf::from(dir)),
        _ => None,
    };
    let path = base.filter(|base| base.is_dir()).map_or_else(temporary, |base| base.join("poolfs"));
    private_dir(&path, uid.as_raw())?;
    Ok(path)
}

fn private_dir(path: &Path, uid: u32) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(MemberError::access(path, "making the runtime directory", e));
        }
        _ => {}
    }
    let found = path.symlink_metadata().map_err(|e| MemberError::access(path, "looking at it", e))?;
    if found.is_dir() && found.uid() == uid {
        return Ok(());
    }
    let why = "the runtime directory must be a directory of one's own".to_owned();
    Err(MemberError::Unsuitable { path: path.display().to_string(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_locked_once() {
        let dir = tempfile::tempdir().unwrap();
        let pool = Uuid::from_u128(1);
        let lock = lock_pool(dir.path(), pool).unwrap();
        assert!(matches!(lock_pool(dir.path(), pool), Err(MemberError::PoolInUse { .. })));
        lock_pool(dir.path(), Uuid::from_u128(2)).unwrap();
        drop(lock);
        lock_pool(dir.path(), pool).unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "data").unwrap();
        let pool = Uuid::from_u128(1);
        std::os::unix::fs::symlink(&precious, dir.path().join(format!("{pool}.lock"))).unwrap();
        assert!(lock_pool(dir.path(), pool).is_err());
        assert_eq!(std::fs::read(&precious).unwrap(), b"data");
    }

    #[test]
    fn the_runtime_directory_is_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let uid = geteuid().as_raw();
        private_dir(&path, uid).unwrap();
        private_dir(&path, uid).unwrap();
        assert!(private_dir(&path, uid + 1).is_err());
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(private_dir(&dir.path().join("file"), uid).is_err());
    }
}
