//! The kernel's types to ours and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, RenameFlags, TimeOrNow};

use crate::fs::{Attr, FileKind, FsError, OpenFlags, RenameMode, TimeSet, XattrMode};
use crate::sync::Timestamp;

/// What `st_blksize` says: how much programs had better transfer at once.
const BEST_TRANSFER_BYTES: u32 = 128 * 1024;

/// Attributes as the kernel wants them.
pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: to_system(attr.atime),
        mtime: to_system(attr.mtime),
        ctime: to_system(attr.ctime),
        crtime: to_system(attr.crtime),
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BEST_TRANSFER_BYTES,
        flags: 0,
    }
}

/// Attributes of no file at all, with inode number 0.
pub(super) fn no_attr() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// The type of a file as the kernel names it.
pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Our time as the system's. Every timestamp has one: both are 64 bits of seconds and nanoseconds.
pub(super) fn to_system(time: Timestamp) -> SystemTime {
    let whole = if time.seconds >= 0 {
        UNIX_EPOCH.checked_add(Duration::from_secs(time.seconds.unsigned_abs()))
    } else {
        UNIX_EPOCH.checked_sub(Duration::from_secs(time.seconds.unsigned_abs()))
    };
    whole.and_then(|t| t.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

/// The time that the kernel sent, out of what fuser 0.18 made of it.
///
/// Before 1970 fuser subtracts the nanoseconds where it should add them: the kernel's (-5 s, 200 ms), which is
/// -4.8 s, arrives as -5.2 s. Its mistake loses nothing, so the seconds and nanoseconds sent are read off its
/// result as they went in. (A fuser without the mistake would need this function changed; the test of the mount
/// that sets such times tells.)
pub(super) fn from_fuser(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            // Wrapping: i64::MIN seconds are sent as they are, and their negative is no i64.
            Timestamp { seconds: (before.as_secs() as i64).wrapping_neg(), nanos: before.subsec_nanos() }
        }
    }
}

/// A time to be set.
pub(super) fn time_set(time: TimeOrNow) -> TimeSet {
    match time {
        TimeOrNow::Now => TimeSet::Now,
        TimeOrNow::SpecificTime(at) => TimeSet::At(from_fuser(at)),
    }
}

/// Flags of open(2), as they come in.
pub(super) fn open_flags(flags: i32) -> OpenFlags {
    let mode = flags & libc::O_ACCMODE;
    OpenFlags {
        read: mode != libc::O_WRONLY,
        write: mode != libc::O_RDONLY,
        append: flags & libc::O_APPEND != 0,
        truncate: flags & libc::O_TRUNC != 0,
        direct: flags & libc::O_DIRECT != 0,
        // O_SYNC contains the bit of O_DSYNC.
        sync: flags & libc::O_SYNC == libc::O_SYNC,
        dsync: flags & libc::O_DSYNC != 0,
    }
}

/// Flags of renameat2(2); `None` for those that are not supported.
pub(super) fn rename_mode(flags: RenameFlags) -> Option<RenameMode> {
    if flags.is_empty() {
        Some(RenameMode::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Some(RenameMode::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Some(RenameMode::Exchange)
    } else {
        None
    }
}

/// Flags of setxattr(2); `None` for those that do not exist.
pub(super) fn xattr_mode(flags: i32) -> Option<XattrMode> {
    match flags {
        0 => Some(XattrMode::Either),
        libc::XATTR_CREATE => Some(XattrMode::Create),
        libc::XATTR_REPLACE => Some(XattrMode::Replace),
        _ => None,
    }
}

/// An error as the kernel wants it. Those that say that data or a member is in trouble are logged: the program
/// sees a number only.
pub(super) fn errno(request: &str, error: &FsError) -> Errno {
    let number = error.errno();
    if matches!(number, libc::EIO | libc::EUCLEAN | libc::ENOMEM) {
        log::error!("{request}: {error}");
    } else {
        log::debug!("{request}: {error}");
    }
    Errno::from_i32(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fuser's `system_time_from_time` does to the seconds and nanoseconds that the kernel sends.
    fn as_fuser_has_it(seconds: i64, nanos: u32) -> SystemTime {
        if seconds >= 0 {
            UNIX_EPOCH + Duration::new(seconds as u64, nanos)
        } else {
            UNIX_EPOCH - Duration::new(seconds.wrapping_neg() as u64, nanos)
        }
    }

    #[test]
    fn times_of_any_century_arrive_as_they_were_sent() {
        let cases = [
            (0, 0),
            (0, 999_999_999),
            (-1, 0),
            (-1, 1),
            (-1, 999_999_999),
            (-5, 200_000_000),
            (-2_208_988_800, 123_456_789),
            (i64::MIN, 0),
            (i64::MIN + 1, 999_999_999),
            (i64::from(u32::MAX) + 1, 5),
            (i64::MAX, 999_999_999),
        ];
        for (seconds, nanos) in cases {
            assert_eq!(from_fuser(as_fuser_has_it(seconds, nanos)), Timestamp { seconds, nanos });
        }
    }

    #[test]
    fn times_of_any_century_leave_as_they_are() {
        for (seconds, nanos) in [(0, 1), (-1, 999_999_999), (-5, 200_000_000), (5_000_000_000, 7), (-1, 0)] {
            let sent = to_system(Timestamp { seconds, nanos });
            let signed = match sent.duration_since(UNIX_EPOCH) {
                Ok(d) => d.as_nanos() as i128,
                Err(e) => -(e.duration().as_nanos() as i128),
            };
            assert_eq!(signed, i128::from(seconds) * 1_000_000_000 + i128::from(nanos));
        }
    }

    #[test]
    fn o_sync_and_o_dsync_are_told_apart() {
        let sync = open_flags(libc::O_WRONLY | libc::O_SYNC);
        let dsync = open_flags(libc::O_WRONLY | libc::O_DSYNC);
        assert!(sync.sync && sync.dsync && !sync.read && sync.write);
        assert!(!dsync.sync && dsync.dsync);
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(rename_mode(RenameFlags::RENAME_WHITEOUT), None);
        assert_eq!(rename_mode(RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_NOREPLACE), None);
        assert_eq!(xattr_mode(3), None);
    }
}
