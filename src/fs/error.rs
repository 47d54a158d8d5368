//! What can go wrong in the file system, and the errno that each fact becomes at the border.

use crate::cache::CacheError;
use crate::pool::PoolError;
use crate::store::StoreError;
use crate::store::tables::Ino;

use super::Handle;

/// Result of a file system operation.
pub type Result<T> = std::result::Result<T, FsError>;

/// One variant for each distinct fact. [`FsError::errno`] is what a program sees.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The inode does not exist (any more).
    #[error("there is no inode {ino}")]
    NoSuchInode {
        /// Its number.
        ino: Ino,
    },
    /// The directory has no such name.
    #[error("directory {parent} holds no {:?}", String::from_utf8_lossy(.name))]
    NoSuchName {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
    },
    /// The name is taken.
    #[error("directory {parent} holds {:?} already", String::from_utf8_lossy(.name))]
    Exists {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
    },
    /// A directory was needed.
    #[error("inode {ino} is not a directory")]
    NotADirectory {
        /// What is not one.
        ino: Ino,
    },
    /// Anything but a directory was needed.
    #[error("inode {ino} is a directory")]
    IsADirectory {
        /// What is one.
        ino: Ino,
    },
    /// A regular file was needed.
    #[error("inode {ino} is not a regular file")]
    NotAFile {
        /// What is not one.
        ino: Ino,
    },
    /// Only a symbolic link can be read as one.
    #[error("inode {ino} is not a symbolic link")]
    NotASymlink {
        /// What is not one.
        ino: Ino,
    },
    /// The directory still has entries.
    #[error("directory {ino} is not empty")]
    NotEmpty {
        /// The directory.
        ino: Ino,
    },
    /// Longer than a name may be.
    #[error(
        "a name of {bytes} bytes is longer than the {} that a name may have",
        crate::limits::NAME_MAX_BYTES
    )]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A symbolic link's target is longer than it may be.
    #[error(
        "a link target of {bytes} bytes is longer than the {} it may have",
        crate::limits::SYMLINK_MAX_BYTES
    )]
    TargetTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Empty, or with a byte that no name may hold.
    #[error("{:?} can't be a name", String::from_utf8_lossy(.name))]
    BadName {
        /// What was asked for.
        name: Vec<u8>,
    },
    /// The file has as many names as it may have.
    #[error("inode {ino} has {} links, which is the most a file may have", crate::limits::LINKS_MAX)]
    TooManyLinks {
        /// The file.
        ino: Ino,
    },
    /// A directory was to become its own ancestor.
    #[error("directory {ino} can't be moved into itself")]
    IntoItself {
        /// The directory.
        ino: Ino,
    },
    /// Beyond the end of the largest file.
    #[error("a file can't reach {end} bytes")]
    FileTooLarge {
        /// Where it would have ended.
        end: u64,
    },
    /// Nothing at or after this offset.
    #[error("inode {ino} has nothing at or after byte {offset}")]
    PastTheEnd {
        /// The file.
        ino: Ino,
        /// The offset asked for.
        offset: u64,
    },
    /// A request that makes no sense.
    #[error("{what}")]
    Invalid {
        /// Why.
        what: &'static str,
    },
    /// A request that this file system does not know.
    #[error("{what} is not supported")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// A request that is not allowed on this kind of inode.
    #[error("{what} is not permitted on inode {ino}")]
    NotPermitted {
        /// The inode.
        ino: Ino,
        /// What was asked for.
        what: &'static str,
    },
    /// The handle is not open, or not open for this.
    #[error("handle {handle} is not open for this")]
    BadHandle {
        /// The handle.
        handle: Handle,
    },
    /// The inode has no such extended attribute.
    #[error("inode {ino} has no attribute {:?}", String::from_utf8_lossy(.name))]
    NoXattr {
        /// The inode.
        ino: Ino,
        /// The attribute.
        name: Vec<u8>,
    },
    /// The extended attribute is there already, and was to be made.
    #[error("inode {ino} has the attribute {:?} already", String::from_utf8_lossy(.name))]
    XattrExists {
        /// The inode.
        ino: Ino,
        /// The attribute.
        name: Vec<u8>,
    },
    /// The value of an extended attribute is longer than it may be.
    #[error("a value of {bytes} bytes is longer than an attribute's value may be")]
    XattrTooLarge {
        /// Its length.
        bytes: usize,
    },
    /// The names of an inode's extended attributes would be longer in all than a program can list.
    #[error("inode {ino} has no room for more extended attributes")]
    XattrsFull {
        /// The inode.
        ino: Ino,
    },
    /// Reading failed and nothing gives the bytes back.
    #[error("{len} bytes at {offset} of inode {ino} can't be read: {message}")]
    Unreadable {
        /// The file.
        ino: Ino,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
        /// Why.
        message: String,
    },
    /// The tables contradict each other.
    #[error("the metadata of inode {ino} is damaged ({what}); `poolctl check` tells more")]
    Damaged {
        /// The inode.
        ino: Ino,
        /// What is wrong.
        what: &'static str,
    },
    /// What was written while moving data is not what was read.
    #[error(
        "data of set {set} changed in memory while it was being moved, and was left where it is: is the memory of this machine sound?"
    )]
    Miscarried {
        /// The set it was to be moved from.
        set: crate::member::superblock::SetId,
    },
    /// No room, also after everything was written out.
    #[error("no space left in the pool")]
    NoSpace,
    /// The mount takes no changes.
    #[error("the pool is mounted read-only")]
    ReadOnly,
    /// The file system has been unmounted.
    #[error("the file system is unmounted")]
    Unmounted,
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The cache failed.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl FsError {
    /// The errno that a program gets.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoSuchInode { .. } | Self::NoSuchName { .. } => libc::ENOENT,
            Self::Exists { .. } | Self::XattrExists { .. } => libc::EEXIST,
            Self::NotADirectory { .. } => libc::ENOTDIR,
            Self::IsADirectory { .. } => libc::EISDIR,
            Self::NotAFile { .. } | Self::NotASymlink { .. } | Self::BadName { .. } => libc::EINVAL,
            Self::IntoItself { .. } | Self::Invalid { .. } => libc::EINVAL,
            Self::NotEmpty { .. } => libc::ENOTEMPTY,
            Self::NameTooLong { .. } | Self::TargetTooLong { .. } => libc::ENAMETOOLONG,
            Self::TooManyLinks { .. } => libc::EMLINK,
            Self::FileTooLarge { .. } => libc::EFBIG,
            Self::PastTheEnd { .. } => libc::ENXIO,
            Self::Unsupported { .. } => libc::EOPNOTSUPP,
            Self::NotPermitted { .. } => libc::EPERM,
            Self::BadHandle { .. } => libc::EBADF,
            Self::NoXattr { .. } => libc::ENODATA,
            Self::XattrTooLarge { .. } => libc::E2BIG,
            Self::XattrsFull { .. } | Self::NoSpace => libc::ENOSPC,
            Self::ReadOnly => libc::EROFS,
            Self::Pool(error) => pool_errno(error),
            Self::Store(error) => store_errno(error),
            Self::Miscarried { .. }
            | Self::Unreadable { .. }
            | Self::Damaged { .. }
            | Self::Unmounted
            | Self::Cache(_) => libc::EIO,
        }
    }

    /// Whether more room would have helped.
    pub fn is_no_space(&self) -> bool {
        !matches!(self, Self::XattrsFull { .. }) && self.errno() == libc::ENOSPC
    }
}

fn pool_errno(error: &PoolError) -> i32 {
    match error {
        PoolError::NoSpace { .. } => libc::ENOSPC,
        PoolError::ReadOnly => libc::EROFS,
        _ => libc::EIO,
    }
}

fn store_errno(error: &StoreError) -> i32 {
    match error {
        StoreError::Pool(error) => pool_errno(error),
        StoreError::JournalFull => libc::ENOSPC,
        StoreError::ReadOnly | StoreError::Poisoned { .. } => libc::EROFS,
        StoreError::TooLarge { .. } | StoreError::Damaged { .. } => libc::EIO,
    }
}
