//! What is mounted where, as `/proc/self/mountinfo` has it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The type under which our mounts appear.
pub const FS_TYPE: &str = "fuse.poolfs";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Number of this mount, never used twice at a time.
    pub id: u64,
    /// Number of the mounted file system, as `MAJOR:MINOR`.
    pub device: String,
    /// Where.
    pub mountpoint: PathBuf,
    /// Type of the file system.
    pub fs_type: String,
    /// What was mounted, as it was named.
    pub source: String,
}

/// All mounts that this process sees, in the order in which they were made.
///
/// # Errors
/// When the system's table can't be read.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mount at exactly `mountpoint` (the topmost one), if there is one. The path must be absolute and free of
/// symbolic links.
///
/// # Errors
/// When the system's table can't be read.
pub fn mount_at(mountpoint: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rev().find(|entry| entry.mountpoint == mountpoint))
}

/// Processes whose mount namespace still has the file system `device` (see [`MountEntry::device`]) mounted: a
/// namespace made while it was mounted has a copy, and keeps it alive.
pub fn holders(device: &str) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let holds = |pid: &u32| {
        let table = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        parse(&table).iter().any(|entry| entry.device == device && entry.fs_type == FS_TYPE)
    };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(holds).collect()
}

fn parse(table: &[u8]) -> Vec<MountEntry> {
    table.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /mnt/point options... [optional fields] - type source super-options`
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let mountpoint = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = text(&unescape(rest.next()?));
    let source = text(&unescape(rest.next()?));
    Some(MountEntry { id, device, mountpoint, fs_type, source })
}

/// Space, tab, newline and backslash stand as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        match (first, octal(tail)) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..3)?).ok()?;
    u8::from_str_radix(digits, 8).ok()
}

/// Where `path` would be the same file: symbolic links resolved as far as it exists. For paths whose last part
/// may hang, such as the mount point of a dead daemon, only the directory is resolved.
///
/// # Errors
/// When the directory that holds it does not exist.
pub fn resolve_without_touching(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) if name.as_bytes() != b".." => Ok(parent.canonicalize()?.join(name)),
        _ => absolute.canonicalize(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_escapes() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            91 22 0:53 / /mnt/with\\040space rw,nosuid shared:3 master:1 - fuse.poolfs a\\054b rw,user_id=0\n";
        let found = parse(table);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].mountpoint, Path::new("/"));
        assert_eq!(
            found[1],
            MountEntry {
                id: 91,
                device: "0:53".into(),
                mountpoint: "/mnt/with space".into(),
                fs_type: FS_TYPE.into(),
                source: "a,b".into(),
            }
        );
    }

    #[test]
    fn nonsense_is_skipped() {
        assert!(parse(b"\n1 2\nx y z\n5 1 8:1 / /mnt rw no-dash\n").is_empty());
    }
}
