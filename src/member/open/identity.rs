//! Telling whether two paths are the same member, or one lies inside the other.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::super::error::{MemberError, Result};

/// What a path really is, however it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The path without links.
    pub canonical: PathBuf,
    /// Device and inode of the thing itself; a block device's own number and 0.
    pub id: (u64, u64),
    /// The same of each directory above it, nearest first.
    above: Vec<(u64, u64)>,
}

/// How two members stand in each other's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// Both are the same thing.
    Same,
    /// The first lies inside the second.
    Inside,
    /// The second lies inside the first.
    Around,
}

impl Identity {
    /// Whether `self` and `other` can't both be members of one pool (or one the mount point).
    pub fn clash(&self, other: &Self) -> Option<Clash> {
        if self.id == other.id {
            Some(Clash::Same)
        } else if self.above.contains(&other.id) {
            Some(Clash::Inside)
        } else if other.above.contains(&self.id) {
            Some(Clash::Around)
        } else {
            None
        }
    }
}

/// Finds out what `path` really is.
///
/// # Errors
/// [`MemberError::Access`] when it does not exist or can't be looked at.
pub fn identity(path: &Path) -> Result<Identity> {
    let failed = |e| MemberError::access(path, "looking for it", e);
    let canonical = std::fs::canonicalize(path).map_err(failed)?;
    let found = std::fs::metadata(&canonical).map_err(failed)?;
    let id = match found.file_type().is_block_device() {
        true => (found.rdev(), 0),
        false => (found.dev(), found.ino()),
    };
    let above = canonical.ancestors().skip(1).filter_map(|dir| std::fs::metadata(dir).ok());
    let above = above.map(|found| (found.dev(), found.ino())).collect();
    Ok(Identity { canonical, id, above })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_member_by_another_name_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/inner")).unwrap();
        std::fs::create_dir(at("ab")).unwrap();
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        std::fs::write(at("image"), "").unwrap();
        std::fs::hard_link(at("image"), at("image2")).unwrap();
        let id = |name: &str| identity(&at(name)).unwrap();
        assert_eq!(id("a").clash(&id("link")), Some(Clash::Same));
        assert_eq!(id("a").clash(&id("ab/../a/.")), Some(Clash::Same));
        assert_eq!(id("image").clash(&id("image2")), Some(Clash::Same));
        assert_eq!(id("link/inner").clash(&id("a")), Some(Clash::Inside));
        assert_eq!(id("a").clash(&id("a/inner")), Some(Clash::Around));
        assert_eq!(id("a").clash(&id("ab")), None);
        assert!(identity(&at("nothing")).is_err());
    }
}
