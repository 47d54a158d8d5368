//! Names within a directory member, and what a directory holds before it is one.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use super::super::error::{MemberError, Result};
use super::super::file::{DataFile, OpenAs, remove_at, sync_dir};
use super::super::lock::hold;
use super::super::superblock::{Marks, marks};
use super::super::{AlignedBuf, SlabNo};
use super::SUPERBLOCK_FILE_BYTES;
use crate::limits::SLABS_MAX;
use crate::units::{SECTOR, round_down};

pub(super) const SUPERBLOCK: &str = "superblock";
pub(super) const JOURNAL: &str = "journal";
pub(super) const SLABS: &str = "slabs";
/// A fresh ext4 has this directory at its top.
const IGNORED: &str = "lost+found";

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Contents {
    /// Nothing.
    Empty,
    /// A member, or one that was being made or removed when something stopped it, and nothing else.
    Member,
    /// Something else: this, and perhaps more.
    Foreign(String),
}

pub(super) fn slab_name(slab: SlabNo) -> String {
    format!("{slab:08}")
}

fn parse_slab_name(name: &str) -> Option<SlabNo> {
    let digits = name.len() == 8 && name.bytes().all(|b| b.is_ascii_digit());
    let slab: SlabNo = if digits { name.parse().ok()? } else { return None };
    (u64::from(slab) < SLABS_MAX).then_some(slab)
}

/// Opens a member's directory, following links: the path is the user's.
pub(super) fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|e| MemberError::access(path, "opening it", e))
}

/// Opens a directory within a member, which must be one itself.
pub(super) fn open_dir_at(root: &OwnedFd, path: &Path, name: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, name, flags, Mode::empty())
        .map_err(|e| MemberError::access(&path.join(name), "opening it", e))
}

fn names(dir: impl AsFd, path: &Path) -> Result<Vec<String>> {
    let failed = |e| MemberError::access(path, "listing it", e);
    let mut names = vec![];
    for entry in Dir::read_from(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name: &CStr = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The slabs that have files; other names are nobody's concern.
pub(super) fn list_slabs(slabs_dir: &OwnedFd, path: &Path) -> Result<BTreeSet<SlabNo>> {
    Ok(names(slabs_dir, path)?.iter().filter_map(|name| parse_slab_name(name)).collect())
}

/// What the directory `path` holds.
pub(in super::super) fn contents(path: &Path) -> Result<Contents> {
    let root = open_dir(path)?;
    let names: Vec<_> = names(&root, path)?.into_iter().filter(|name| name != IGNORED).collect();
    let ours = [SUPERBLOCK, JOURNAL, SLABS];
    if let Some(other) = names.iter().find(|name| !ours.contains(&name.as_str())) {
        return Ok(Contents::Foreign(other.clone()));
    }
    if names.is_empty() {
        return Ok(Contents::Empty);
    }
    // Names prove nothing: the superblock must say that it is one.
    if !is_superblock(&root) {
        return Ok(Contents::Foreign(names[0].clone()));
    }
    if names.iter().any(|name| name == SLABS) {
        let slabs = open_dir_at(&root, path, SLABS)?;
        let slab_names = self::names(&slabs, path)?;
        if let Some(other) = slab_names.into_iter().find(|name| parse_slab_name(name).is_none()) {
            return Ok(Contents::Foreign(format!("{SLABS}/{other}")));
        }
    }
    Ok(Contents::Member)
}

/// Whether the superblock's file is poolfs's. One of only zeros is too: making the member was interrupted.
fn is_superblock(root: &OwnedFd) -> bool {
    let read = || {
        let file = DataFile::open_at(root.as_fd(), SUPERBLOCK, OpenAs::Read)?;
        let len = file.len()?;
        if !len.is_multiple_of(SECTOR) {
            return Ok((Marks::None, false));
        }
        let mut buf = AlignedBuf::zeroed(len.min(SUPERBLOCK_FILE_BYTES) as usize);
        file.read(0, &mut buf)?;
        Ok::<_, std::io::Error>((marks(&buf), buf.iter().all(|&b| b == 0)))
    };
    matches!(read(), Ok((Marks::Superblock, _) | (Marks::None, true)))
}

/// Removes a member's files, the superblock last, so that whatever stops it, the rest is still known for
/// what it is. Does nothing in an empty directory, and refuses one with foreign files.
pub(in super::super) fn wipe(path: &Path) -> Result<()> {
    match contents(path)? {
        Contents::Empty => return Ok(()),
        Contents::Member => {}
        Contents::Foreign(name) => {
            let why = format!("{name:?} is not a file of poolfs, so nothing was deleted");
            return Err(MemberError::Unsuitable { path: path.display().to_string(), why });
        }
    }
    let root = open_dir(path)?;
    let failed = |doing| move |e: std::io::Error| MemberError::access(path, doing, e);
    let superblock = DataFile::open_at(root.as_fd(), SUPERBLOCK, OpenAs::Write)
        .map_err(failed("opening its superblock"))?;
    let superblock = hold(superblock, true, path)?;
    erase(&superblock).map_err(failed("erasing its superblock"))?;
    remove_slabs(&root, path)?;
    remove_at(&root, JOURNAL, AtFlags::empty()).map_err(failed("removing its journal"))?;
    sync_dir(&root).map_err(failed("syncing it"))?;
    remove_at(&root, SUPERBLOCK, AtFlags::empty()).map_err(failed("removing its superblock"))?;
    sync_dir(&root).map_err(failed("syncing it"))
}

/// Overwrites what is there, which needs no space: the file system may be full.
fn erase(superblock: &DataFile) -> std::io::Result<()> {
    let len = round_down(superblock.len()?.min(SUPERBLOCK_FILE_BYTES), SECTOR);
    superblock.zero(0, len)?;
    superblock.sync()
}

fn remove_slabs(root: &OwnedFd, path: &Path) -> Result<()> {
    let slabs = match open_dir_at(root, path, SLABS) {
        Err(MemberError::Access { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(());
        }
        result => result?,
    };
    for slab in list_slabs(&slabs, path)? {
        remove_at(&slabs, &slab_name(slab), AtFlags::empty())
            .map_err(|e| MemberError::access(path, "removing a slab", e))?;
    }
    remove_at(root, SLABS, AtFlags::REMOVEDIR)
        .map_err(|e| MemberError::access(path, "removing its directory of slabs", e))
}
