//! Which members share a disk, and so fail together.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use poolfs::member::open::MemberSpec;

/// Warnings for members that are on the same disk.
pub fn warnings(members: &[MemberSpec]) -> Vec<String> {
    let mut disks: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for member in members {
        if let Some(disk) = disk_of(&member.path) {
            disks.entry(disk).or_default().push(member.path.display().to_string());
        }
    }
    let shared = disks.into_values().filter(|paths| paths.len() > 1);
    shared
        .map(|paths| {
            format!(
                "{} are on the same disk: they fail together, and losing that disk loses them all",
                paths.join(", ")
            )
        })
        .collect()
}

/// Number of the disk that a path is on; of the whole disk, when that is known to be divided into partitions.
fn disk_of(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    let device = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    Some(whole_disk(device).unwrap_or(device))
}

fn whole_disk(device: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let entry = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if !entry.join("partition").exists() {
        return None;
    }
    let text = fs::read_to_string(entry.parent()?.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}
