//! Scratch directories, with what is mounted below them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the directory for scratch space, in place of the system's for temporary files.
pub const PLACE: &str = "POOLFS_TEST_DIR";

/// A directory of its own, unmounted and removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one, in [`PLACE`].
    pub fn new() -> Self {
        Self::in_dir(&std::env::var_os(PLACE).map_or_else(std::env::temp_dir, PathBuf::from))
    }

    /// Makes one in `place`.
    pub fn in_dir(place: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let place = place.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", place.display()));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = place.join(format!("poolfs-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        Self(dir)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A new directory in it.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The innermost first: what is mounted last may lie on what was mounted before.
        for mount in mounted_below(&self.0).iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(mount).output();
        }
        // Other file systems may still be there if that failed: their files are not ours to remove.
        if mounted_below(&self.0).is_empty() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// What is mounted below `dir`, in the order in which it was mounted. No path of these is touched.
pub fn mounted_below(dir: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(PathBuf::from).filter(|point| point.starts_with(dir)).collect()
}

/// Is something mounted at exactly `path`?
pub fn is_mounted(path: &Path) -> bool {
    mounted_below(path).iter().any(|point| point == path)
}

/// File system type of what is mounted at exactly `path`.
pub fn type_and_source(path: &Path) -> Option<(String, String)> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().rev().find(|line| line.split(' ').nth(4).map(Path::new) == Some(path))?;
    let mut rest = line.split(" - ").nth(1)?.split(' ');
    Some((rest.next()?.to_owned(), rest.next()?.to_owned()))
}
