//! Making, opening and erasing members: the face of this layer for commands and mounts.
//!
//! Nothing here writes to a directory that holds no superblock, except [`create`], which is asked to.

mod dimensions;
mod identity;
mod spec;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use super::device::{self, DeviceDisk};
use super::directory::{self, DirectoryDisk};
use super::error::{MemberError, Result};
use super::superblock::{Superblock, read_superblock};
use super::{AlignedBuf, Area, Dimensions, Disk, DiskKind};
use crate::limits::SUPERBLOCK_COPY_BYTES;

pub use dimensions::{SLABS_MIN, choose_dimensions, required_bytes, slabs_in};
pub use identity::{Clash, Identity, identity};
pub use spec::{Bounds, MemberSpec};

/// What kind of member a path can be. Links are followed.
///
/// # Errors
/// [`MemberError::Access`] when it does not exist or can't be looked at; [`MemberError::Unsuitable`] when it
/// is neither a directory nor a block device nor a regular file.
pub fn probe(path: &Path) -> Result<DiskKind> {
    let found = std::fs::metadata(path).map_err(|e| MemberError::access(path, "looking for it", e))?;
    let kind = found.file_type();
    match () {
        () if kind.is_dir() => Ok(DiskKind::Directory),
        () if kind.is_block_device() => Ok(DiskKind::Device),
        () if kind.is_file() => Ok(DiskKind::Image),
        () => {
            let why = "it is neither a directory nor a block device nor an image file".to_owned();
            Err(MemberError::Unsuitable { path: path.display().to_string(), why })
        }
    }
}

/// Bytes that a path could offer if it became a member: what is free, or the device's size, within the
/// limit and less the reserve. Nothing is written.
///
/// # Errors
/// As [`probe`]; [`MemberError::Access`].
pub fn capacity(spec: &MemberSpec) -> Result<u64> {
    match probe(&spec.path)? {
        DiskKind::Directory => directory::capacity(&spec.path, spec.bounds),
        _ => device::capacity(&spec.path, spec.bounds),
    }
}

/// [`capacity`] of each of several paths that are to be members of one pool: directories on one file system
/// share what is free there, in equal parts.
///
/// # Errors
/// As [`capacity`].
pub fn capacities(specs: &[MemberSpec]) -> Result<Vec<u64>> {
    let mut devices = Vec::with_capacity(specs.len());
    for spec in specs {
        let is_directory = probe(&spec.path)? == DiskKind::Directory;
        devices.push(if is_directory { Some(identity(&spec.path)?.id.0) } else { None });
    }
    let share = |(spec, device): (&MemberSpec, &Option<u64>)| {
        let sharers = devices.iter().filter(|other| device.is_some() && *other == device).count() as u64;
        if sharers < 2 {
            return capacity(spec);
        }
        let unlimited = MemberSpec { bounds: Bounds { limit_bytes: 0, ..spec.bounds }, ..spec.clone() };
        let limit = if spec.bounds.limit_bytes == 0 { u64::MAX } else { spec.bounds.limit_bytes };
        Ok((capacity(&unlimited)? / sharers).min(limit))
    };
    specs.iter().zip(&devices).map(share).collect()
}

/// Whether [`create`] would take the path, without changing anything: so that a command can check all
/// members before it touches the first.
///
/// # Errors
/// [`MemberError::Used`] when it holds something that `force` would destroy; [`MemberError::Unsuitable`] when
/// it can't be a member, which `force` does not change: a mounted device, a directory with files of others;
/// [`MemberError::InUse`]; [`MemberError::Access`].
pub fn check(spec: &MemberSpec, force: bool) -> Result<()> {
    match probe(&spec.path)? {
        DiskKind::Directory => directory::check(&spec.path, force),
        _ => device::check(&spec.path, force),
    }
}

/// Makes a member with an empty ring and no superblock yet, and locks it.
///
/// A directory must be empty. With `force`, an old member in it is erased, but never a file of others; and
/// of a device or image, everything.
///
/// # Errors
/// Those of [`check`]; [`MemberError::Unsuitable`] for dimensions that can't be; [`MemberError::TooSmall`];
/// [`MemberError::Access`] when it can't be written, also for want of space.
pub fn create(spec: &MemberSpec, dimensions: Dimensions, force: bool) -> Result<Arc<dyn Disk>> {
    let path = &*spec.path;
    dimensions.validate().map_err(|why| MemberError::Unsuitable { path: path.display().to_string(), why })?;
    check(spec, force)?;
    if probe(path)? == DiskKind::Directory {
        if force {
            directory::wipe(path)?;
        }
        return Ok(Arc::new(DirectoryDisk::create(path, dimensions, spec.bounds)?));
    }
    Ok(Arc::new(DeviceDisk::create(path, dimensions, spec.bounds)?))
}

/// Opens a member, locks it for as long as it is open, and reads its superblock. Nothing is written.
///
/// `bounds` are the limit and reserve that now apply; `None` takes those of its own superblock.
///
/// # Errors
/// Those of [`read_superblock`], above all [`MemberError::NoSuperblock`] for a directory or device that is no
/// member (an empty mount point, for instance); [`MemberError::InUse`]; [`MemberError::Access`].
pub fn open(path: &Path, bounds: Option<Bounds>, read_only: bool) -> Result<(Arc<dyn Disk>, Superblock)> {
    open_as(path, bounds, read_only, true)
}

/// Reads the superblock of a member that may be in use: without its lock, and without writing.
///
/// # Errors
/// As [`open`], but for [`MemberError::InUse`].
pub fn peek(path: &Path) -> Result<Superblock> {
    Ok(open_as(path, None, true, false)?.1)
}

/// Both superblock copies of a member as they are, damaged ones too: without its lock, and without writing.
///
/// # Errors
/// Those of [`probe`], and those of opening. Each copy has its own, as [`Superblock::decode`] has them.
pub fn copies(path: &Path) -> Result<[Result<Superblock>; 2]> {
    let disk: Box<dyn Disk> = match probe(path)? {
        DiskKind::Directory => Box::new(DirectoryDisk::open(path, true, false)?),
        _ => Box::new(DeviceDisk::open(path, true, false)?),
    };
    let read = |copy| {
        let mut bytes = AlignedBuf::zeroed(SUPERBLOCK_COPY_BYTES as usize);
        disk.read(Area::Superblock(copy), 0, &mut bytes)?;
        Superblock::decode(&disk.path(), &bytes)
    };
    Ok([read(0), read(1)])
}

/// Erases a member: a directory is empty afterwards, a device or image has no superblock. What is no
/// member is left alone.
///
/// # Errors
/// [`MemberError::InUse`]; [`MemberError::NoSuperblock`] for a device or image that has none;
/// [`MemberError::Unsuitable`] for a directory with files of others; [`MemberError::Access`].
pub fn wipe(path: &Path) -> Result<()> {
    if probe(path)? == DiskKind::Directory {
        return directory::wipe(path);
    }
    // A damaged superblock is still one, and the user wants to be rid of it.
    match peek(path) {
        Err(error @ MemberError::NoSuperblock { .. }) => Err(error),
        _ => DeviceDisk::wipe(path),
    }
}

fn open_as(
    path: &Path,
    bounds: Option<Bounds>,
    read_only: bool,
    locked: bool,
) -> Result<(Arc<dyn Disk>, Superblock)> {
    if probe(path)? == DiskKind::Directory {
        let mut disk = DirectoryDisk::open(path, read_only, locked)?;
        let superblock = read_superblock(&disk)?;
        disk.configure(superblock.dimensions, bounds.unwrap_or_else(|| own_bounds(&superblock)));
        return Ok((Arc::new(disk), superblock));
    }
    let mut disk = DeviceDisk::open(path, read_only, locked)?;
    let superblock = read_superblock(&disk)?;
    disk.configure(superblock.dimensions, bounds.unwrap_or_else(|| own_bounds(&superblock)));
    Ok((Arc::new(disk), superblock))
}

/// What a superblock says of its own member.
fn own_bounds(superblock: &Superblock) -> Bounds {
    let own = superblock.members.get(usize::from(superblock.member));
    own.map_or_else(Bounds::default, |own| Bounds {
        limit_bytes: own.limit_bytes,
        reserve_bytes: own.reserve_bytes,
    })
}

#[cfg(test)]
mod tests;
