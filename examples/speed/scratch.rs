//! Directories of this run, with what is mounted below them. All is gone when they are dropped.

use std::path::{Path, PathBuf};

use poolfs::fuse::mount_table::mounts;
use poolfs::fuse::session::unmount;
use rustix::fs::statfs;

use super::failure::{Failure, Result};

/// What `statfs` says of a tmpfs.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A directory of its own.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one in `place`.
    pub fn new(place: &Path) -> Result<Self> {
        let place = place.canonicalize().map_err(Failure::at("finding", place))?;
        let dir = tempfile::Builder::new()
            .prefix("poolfs-speed-")
            .tempdir_in(&place)
            .map_err(Failure::at("making a directory in", &place))?;
        Ok(Self(dir.keep()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A directory in it, made if need be.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).map_err(Failure::at("making", &path))?;
        Ok(path)
    }

    fn mounted_below(&self) -> Vec<PathBuf> {
        let all = mounts().unwrap_or_default().into_iter().map(|entry| entry.mountpoint);
        all.filter(|point| point.starts_with(&self.0)).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for point in self.mounted_below().iter().rev() {
            if let Err(error) = unmount(point, true) {
                eprintln!("speed: {error}");
            }
        }
        // What is still mounted holds files that are not ours to remove.
        if !self.mounted_below().is_empty() {
            eprintln!("speed: {} is left, something is still mounted there", self.0.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("speed: removing {}: {error}", self.0.display());
        }
    }
}

/// Whether files at `path` are memory.
pub fn is_tmpfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(TMPFS_MAGIC))
}

/// Fails unless `place` has `needed` bytes free.
pub fn check_room(place: &Path, needed: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(place).map_err(|e| Failure::at("asking for space at", place)(e.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let (free, needed) = (poolfs::units::format_size(free), poolfs::units::format_size(needed));
    Err(Failure::NoRoom { place: place.to_owned(), free, needed })
}
