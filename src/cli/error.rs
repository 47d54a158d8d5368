//! What the command says when something does not work.

use std::path::PathBuf;

use poolfs::control::ControlError;
use poolfs::fs::FsError;
use poolfs::fuse::MountError;
use poolfs::fuse::session::UnmountError;
use poolfs::member::MemberError;
use poolfs::pool::PoolError;

use super::options::BadOption;
use poolfs::control::mountpoint::BadMountpoint;

/// Result of a command.
pub type Result<T> = std::result::Result<T, CliError>;

/// What can go wrong, one variant for each distinct fact.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// An option of `-o` makes no sense.
    #[error(transparent)]
    Option(#[from] BadOption),
    /// Nothing can be mounted there.
    #[error(transparent)]
    Mountpoint(#[from] BadMountpoint),
    /// No pool is registered for a mount point.
    #[error(
        "no pool is registered for {}: name its members (poolfs mount {0} MEMBER...), or make one with \
         `poolctl create NAME MEMBER... --mountpoint {0}`",
        .mountpoint.display()
    )]
    NotRegistered {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// The registry, the socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A layout that can't be.
    #[error(transparent)]
    Resiliency(#[from] poolfs::layout::BadResiliency),
    /// The members.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The file system.
    #[error("the file system of pool {pool} can't be mounted: {source}")]
    Fs {
        /// The pool's name.
        pool: String,
        /// Why.
        source: FsError,
    },
    /// The kernel's side.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The kernel's side, at the end.
    #[error(transparent)]
    Unmount(#[from] UnmountError),
    /// What was written could not be made durable at the end.
    #[error("pool {pool} is unmounted, but not all that was written is durable: {why}")]
    NotDurable {
        /// The pool's name.
        pool: String,
        /// Why.
        why: String,
    },
    /// The connection to the kernel broke.
    #[error("the connection to the kernel broke: {source}. What was written is durable")]
    SessionBroke {
        /// What happened.
        source: std::io::Error,
    },
    /// The process in the background did not come up, and has said why.
    #[error("nothing was mounted at {}{died}", .mountpoint.display())]
    DaemonFailed {
        /// The mount point.
        mountpoint: PathBuf,
        /// How its process died, if it did.
        died: String,
    },
    /// There is no pool to unmount.
    #[error("{} is not a mounted pool", .mountpoint.display())]
    NotMounted {
        /// What was asked for.
        mountpoint: PathBuf,
    },
    /// A file of ours, or a process.
    #[error("{doing}: {source}")]
    System {
        /// What was being done, with the path.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl CliError {
    /// 2 for what was typed wrongly, 1 for what failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Option(_) => 2,
            _ => 1,
        }
    }

    /// For `map_err`: the system refused while something was being done.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }
}
