//! What a command says when something does not work.

use std::path::PathBuf;

use poolfs::control::ControlError;
use poolfs::control::mountpoint::BadMountpoint;
use poolfs::layout::BadResiliency;
use poolfs::member::MemberError;
use poolfs::pool::PoolError;
use poolfs::units::BadSize;
use uuid::Uuid;

/// Result of a command: the exit code when it was done.
pub type Result<T> = std::result::Result<T, ToolError>;

/// What can go wrong, one variant for each distinct fact.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A size that is none.
    #[error("{what}: {source}")]
    Size {
        /// The argument.
        what: &'static str,
        /// What is wrong.
        source: BadSize,
    },
    /// Columns that are none.
    #[error("--columns {text:?} is not possible: take a number of data columns, or auto")]
    Columns {
        /// What was typed.
        text: String,
    },
    /// A layout that can't be.
    #[error(transparent)]
    Resiliency(#[from] BadResiliency),
    /// A member that is written wrongly.
    #[error(transparent)]
    Spec(MemberError),
    /// A member that can't be used.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Registry, socket, finding a pool.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The mount point can't be used.
    #[error(transparent)]
    Mountpoint(#[from] BadMountpoint),
    /// The name is taken.
    #[error(
        "there is a pool called {name:?} already ({uuid}): take another name, or destroy that one with \
         `poolctl destroy {uuid}`"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The other pool.
        uuid: Uuid,
    },
    /// Made, but not registered.
    #[error(
        "the pool was made, but not entered into the registry: {source}. It mounts with `poolfs mount MOUNTPOINT {member}`"
    )]
    NotRegistered {
        /// Why not.
        source: ControlError,
        /// One of its members.
        member: String,
    },
    /// It is mounted.
    #[error("{name} is mounted at {mountpoint}: `poolfs umount {mountpoint}` unmounts it")]
    Mounted {
        /// The pool.
        name: String,
        /// Where.
        mountpoint: String,
    },
    /// It is not mounted.
    #[error("{name} is not mounted: {}", match .mountpoint {
        Some(place) => format!("`poolfs mount {place}` mounts it"),
        None => "mount it with `poolfs mount MOUNTPOINT MEMBER...`".to_owned(),
    })]
    NotMounted {
        /// The pool.
        name: String,
        /// Where it is mounted when it is.
        mountpoint: Option<String>,
    },
    /// A pool that this command opened can't do what was asked for.
    #[error("{name}: {why}")]
    Refused {
        /// The pool.
        name: String,
        /// Why not.
        why: String,
    },
    /// Nothing was ever written to it.
    #[error("{name} was never mounted: there is nothing in it yet")]
    NeverMounted {
        /// The pool.
        name: String,
    },
    /// Several pools are known, and none was named.
    #[error("{verb} which? Mounted are {pools}: name one")]
    WhichPool {
        /// The command.
        verb: &'static str,
        /// The pools.
        pools: String,
    },
    /// The job did not come to its end.
    #[error("{what} {how}")]
    JobEnded {
        /// The job.
        what: String,
        /// `was cancelled`, or why it failed.
        how: String,
    },
    /// No such job.
    #[error("no job {job} is known: `poolctl jobs` shows those that run, `poolctl events` those that ended")]
    NoSuchJob {
        /// Its number.
        job: u64,
    },
    /// A setting that is none.
    #[error("{text:?} can't be set: {why}")]
    Setting {
        /// What was typed.
        text: String,
        /// What can be.
        why: String,
    },
    /// A file that is in no mounted pool.
    #[error("{path} does not lie in a mounted pool")]
    NotInPool {
        /// The path.
        path: String,
    },
    /// It could not be checked to the end.
    #[error("{name} can't be checked: {source}")]
    Check {
        /// The pool.
        name: String,
        /// Why not.
        source: poolfs::fs::FsError,
    },
    /// Nobody was there to say yes.
    #[error("{what}: not done without a confirmation. Give --force to do it without being asked")]
    NotConfirmed {
        /// What was to be done.
        what: String,
    },
    /// None of the members is there.
    #[error("none of the members of {name} can be reached: {members}. Attach at least one")]
    NoMemberHere {
        /// The pool.
        name: String,
        /// Where they should be.
        members: String,
    },
    /// Something was not erased.
    #[error("{failed} of {all} members were not erased; the rest of the pool is gone")]
    NotErased {
        /// So many were not.
        failed: usize,
        /// Of so many.
        all: usize,
    },
    /// The system refused.
    #[error("{doing}: {source}")]
    System {
        /// What was being done, with the path.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A member is named in a way that JSON and TOML can't hold.
    #[error("{}: the path is not UTF-8, which the registry can't hold", .path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
}

impl ToolError {
    /// 2 for what was typed wrongly, 1 for what failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::WhichPool { .. } | Self::Setting { .. } => 2,
            Self::Size { .. } | Self::Columns { .. } | Self::Resiliency(_) | Self::Spec(_) => 2,
            _ => 1,
        }
    }

    /// For `map_err`: the system refused while something was being done.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }
}
