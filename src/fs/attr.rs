//! What the file system tells of an inode, and what can be asked to change in it.

use crate::store::tables::{Ino, Inode};
use crate::sync::Timestamp;
use crate::units::SECTOR;

/// Type bits of a mode.
pub const TYPE_MASK: u32 = libc::S_IFMT;
/// Permission bits of a mode, with set-user-id, set-group-id and sticky.
pub const PERMISSION_MASK: u32 = 0o7777;

/// What kind of thing an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device node.
    CharDevice,
    /// A block device node.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    /// The kind that the type bits of a mode say; none when they say no kind there is.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & TYPE_MASK {
            libc::S_IFREG => Self::Regular,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFCHR => Self::CharDevice,
            libc::S_IFBLK => Self::BlockDevice,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            _ => return None,
        })
    }

    /// The type bits of a mode of this kind.
    pub fn bits(self) -> u32 {
        match self {
            Self::Regular => libc::S_IFREG,
            Self::Directory => libc::S_IFDIR,
            Self::Symlink => libc::S_IFLNK,
            Self::CharDevice => libc::S_IFCHR,
            Self::BlockDevice => libc::S_IFBLK,
            Self::Fifo => libc::S_IFIFO,
            Self::Socket => libc::S_IFSOCK,
        }
    }
}

/// An inode's attributes, as `stat` has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// Tells apart successive files of one number.
    pub generation: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Names that lead here.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that it takes, data still in memory included.
    pub blocks: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// What it is.
    pub kind: FileKind,
}

impl Attr {
    /// The attributes of `inode`; `sectors` is what it takes, in memory and on disk.
    pub(super) fn new(ino: Ino, inode: &Inode, sectors: u64) -> Self {
        Self {
            ino,
            generation: inode.generation,
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks: sectors.saturating_mul(SECTOR / 512),
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            crtime: inode.crtime,
            kind: FileKind::from_mode(inode.mode).unwrap_or(FileKind::Regular),
        }
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSet {
    /// The time it is.
    Now,
    /// This one.
    At(Timestamp),
}

/// Attributes to change; what is none stays.
#[derive(Debug, Clone, Default)]
pub struct SetAttr {
    /// Permission bits (type bits are ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: cuts or extends.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<TimeSet>,
    /// Last change of the data.
    pub mtime: Option<TimeSet>,
    /// The handle through which the size is set.
    pub handle: Option<super::Handle>,
}

/// Who asks. Permissions were checked by the kernel, and the umask is applied to modes already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Caller {
    /// The superuser.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

/// Without the bits that would let a file run with another's rights: set-user-id, and set-group-id
/// where the group may execute (without that it means mandatory locking, and stays).
pub(super) fn without_privileges(mode: u32) -> u32 {
    let group_runs = mode & libc::S_IXGRP != 0;
    mode & !(libc::S_ISUID | if group_runs { libc::S_ISGID } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_its_bits() {
        for kind in [
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::CharDevice,
            FileKind::BlockDevice,
            FileKind::Fifo,
            FileKind::Socket,
        ] {
            assert_eq!(FileKind::from_mode(kind.bits() | 0o644), Some(kind));
        }
        assert_eq!(FileKind::from_mode(0o644), None);
    }

    #[test]
    fn privileges_go_but_mandatory_locking_stays() {
        assert_eq!(without_privileges(0o106755), 0o100755);
        assert_eq!(without_privileges(0o102644), 0o102644);
    }
}
