//! Where a pool may be mounted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::fuse::mount_table::{self, FS_TYPE};
use crate::member::open::{self, Clash};

/// Why a pool can't be mounted at a place.
#[derive(Debug, thiserror::Error)]
pub enum BadMountpoint {
    /// It is not there, or can't be looked at.
    #[error("mount point {}: {source}", .path.display())]
    Unreachable {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A mount whose process died.
    #[error("{0} still holds the mount of a process that died: `poolfs umount {0}` clears it", .path.display())]
    Dead {
        /// The mount point.
        path: PathBuf,
    },
    /// A pool is mounted there.
    #[error("{0} is mounted already ({source_name}): `poolfs umount {0}` unmounts it", .path.display())]
    Mounted {
        /// The mount point.
        path: PathBuf,
        /// What is mounted.
        source_name: String,
    },
    /// Not a directory.
    #[error("{} is not a directory: a pool is mounted at an empty directory", .path.display())]
    NotADirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// Something is in it.
    #[error("{} is not empty: what it holds would be hidden by the mount. Take an empty directory", .path.display())]
    NotEmpty {
        /// The mount point.
        path: PathBuf,
    },
    /// It is a member.
    #[error("{} is a member of a pool: a pool can't be mounted over its own or another's disk", .path.display())]
    IsMember {
        /// The mount point.
        path: PathBuf,
    },
    /// It lies in a member.
    #[error("{} lies inside the member {}: take a directory elsewhere", .path.display(), .member.display())]
    InsideMember {
        /// The mount point.
        path: PathBuf,
        /// The member.
        member: PathBuf,
    },
    /// A member lies in it.
    #[error("{} contains the member {}: take a directory elsewhere", .path.display(), .member.display())]
    AroundMember {
        /// The mount point.
        path: PathBuf,
        /// The member.
        member: PathBuf,
    },
}

/// The mount point without symbolic links. If a process that died has left a mount there, that is said.
///
/// # Errors
/// [`BadMountpoint::Unreachable`], [`BadMountpoint::Dead`].
pub fn resolve(path: &Path) -> Result<PathBuf, BadMountpoint> {
    path.canonicalize().map_err(|source| unreachable(path, source))
}

fn unreachable(path: &Path, source: io::Error) -> BadMountpoint {
    match source.raw_os_error() {
        Some(libc::ENOTCONN) => BadMountpoint::Dead { path: path.to_owned() },
        _ => BadMountpoint::Unreachable { path: path.to_owned(), source },
    }
}

/// Checks that a pool can be mounted at `path`, which is resolved.
///
/// # Errors
/// [`BadMountpoint`].
pub fn check(path: &Path) -> Result<(), BadMountpoint> {
    let unreachable = |source| unreachable(path, source);
    if !fs::metadata(path).map_err(unreachable)?.is_dir() {
        return Err(BadMountpoint::NotADirectory { path: path.to_owned() });
    }
    match mount_table::mount_at(path).map_err(unreachable)? {
        Some(entry) if entry.fs_type == FS_TYPE => {
            return Err(BadMountpoint::Mounted { path: path.to_owned(), source_name: entry.source });
        }
        _ => {}
    }
    // Before it is called "not empty", which a member is.
    if open::peek(path).is_ok() {
        return Err(BadMountpoint::IsMember { path: path.to_owned() });
    }
    for above in path.ancestors().skip(1) {
        if open::peek(above).is_ok() {
            return Err(BadMountpoint::InsideMember { path: path.to_owned(), member: above.to_owned() });
        }
    }
    if fs::read_dir(path).map_err(unreachable)?.next().is_some() {
        return Err(BadMountpoint::NotEmpty { path: path.to_owned() });
    }
    Ok(())
}

/// Checks that the mount point at `path` and the member at `member` do not contain each other. A member that is
/// not there contains nothing.
///
/// # Errors
/// [`BadMountpoint`].
pub fn check_beside(path: &Path, member: &Path) -> Result<(), BadMountpoint> {
    let (Ok(own), Ok(other)) = (open::identity(path), open::identity(member)) else { return Ok(()) };
    let (path, member) = (path.to_owned(), member.to_owned());
    match own.clash(&other) {
        None => Ok(()),
        Some(Clash::Same) => Err(BadMountpoint::IsMember { path }),
        Some(Clash::Inside) => Err(BadMountpoint::InsideMember { path, member }),
        Some(Clash::Around) => Err(BadMountpoint::AroundMember { path, member }),
    }
}
