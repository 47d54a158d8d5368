//! A member that is a directory on a mounted file system.
//!
//! ```text
//! superblock        copy A, then copy B, each SUPERBLOCK_COPY_BYTES
//! journal           the ring
//! slabs/NNNNNNNN    one file for each slab: header, then payload; the name is its number
//! ```
//!
//! Everything is opened relative to the directory itself and never through a link, so that neither a
//! file put there by someone else, nor a file system mounted over it later, leads writes elsewhere.

mod files;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::error::{MemberError, Result, is_full};
use super::file::{DataFile, OpenAs, remove_at, sync_dir};
use super::lock::{Held, hold};
use super::open::Bounds;
use super::{Area, Dimensions, Disk, DiskKind, Room, SlabNo};
use crate::limits::{SLABS_MAX, SUPERBLOCK_COPY_BYTES};
use files::{Contents, JOURNAL, SLABS, SUPERBLOCK, open_dir, open_dir_at, slab_name};

pub(super) use files::{contents, wipe};

/// Most slab files that one member keeps open.
const OPEN_SLABS: NonZeroUsize = NonZeroUsize::new(128).unwrap();
/// Bytes of the superblock file.
const SUPERBLOCK_FILE_BYTES: u64 = 2 * SUPERBLOCK_COPY_BYTES;

/// A directory member, open.
pub struct DirectoryDisk {
    path: PathBuf,
    root: OwnedFd,
    slabs_dir: OwnedFd,
    superblock: Held,
    journal: DataFile,
    handles: Mutex<LruCache<SlabNo, Arc<DataFile>>>,
    existing: Mutex<BTreeSet<SlabNo>>,
    dimensions: Dimensions,
    bounds: Bounds,
    read_only: bool,
    device: u64,
}

/// Bytes of a directory member that are no slabs.
pub(super) fn overhead_bytes(dimensions: &Dimensions) -> u64 {
    SUPERBLOCK_FILE_BYTES + dimensions.ring_bytes
}

impl DirectoryDisk {
    /// Makes the files of a member in an empty directory, with zeros in the superblocks and the ring, and
    /// locks it. All of it is durable when this returns; when it fails, what it made is removed.
    pub(super) fn create(path: &Path, dimensions: Dimensions, bounds: Bounds) -> Result<Self> {
        let root = open_dir(path)?;
        let made = Self::create_in(&root, path, dimensions);
        if let Err(error) = made {
            // Only files of our own making: an existing one stops create_in before it makes any.
            if !matches!(&error, MemberError::Used { .. } | MemberError::InUse { .. }) {
                let _ = wipe(path);
            }
            return Err(error);
        }
        let (superblock, journal, slabs_dir) = made?;
        let files = Files { root, superblock, journal, slabs_dir };
        let mut disk = Self::from_files(path, files, false)?;
        disk.configure(dimensions, bounds);
        Ok(disk)
    }

    fn create_in(root: &OwnedFd, path: &Path, dims: Dimensions) -> Result<(Held, DataFile, OwnedFd)> {
        let failed = |doing| move |e: std::io::Error| MemberError::access(path, doing, e);
        let superblock = match DataFile::open_at(root.as_fd(), SUPERBLOCK, OpenAs::Create) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                let found = "a member made just now by another process".to_owned();
                return Err(MemberError::Used { path: path.display().to_string(), found });
            }
            result => result.map_err(failed("making the superblock's file"))?,
        };
        let superblock = hold(superblock, true, path)?;
        let write = |file: &DataFile, len| file.zero(0, len).and_then(|()| file.sync());
        write(&superblock, SUPERBLOCK_FILE_BYTES).map_err(failed("writing the superblock's file"))?;
        let journal = DataFile::open_at(root.as_fd(), JOURNAL, OpenAs::Create)
            .map_err(failed("making the journal's file"))?;
        // Allocated as one piece where that is possible, then written once, so that syncing it later moves
        // no metadata of the file system below.
        journal.allocate(0, dims.ring_bytes).map_err(failed("making room for the journal"))?;
        write(&journal, dims.ring_bytes).map_err(failed("writing the journal"))?;
        rustix::fs::mkdirat(root, SLABS, Mode::from_raw_mode(0o700))
            .map_err(|e| MemberError::access(path, "making the directory for slabs", e))?;
        let slabs_dir = open_dir_at(root, path, SLABS)?;
        sync_dir(&slabs_dir).and_then(|()| sync_dir(root)).map_err(failed("syncing the directory"))?;
        Ok((superblock, journal, slabs_dir))
    }

    /// Opens an existing member. Its dimensions are unknown until [`DirectoryDisk::configure`]: until then
    /// only the superblocks can be read. Nothing is written. `locked` is false for a look in passing.
    pub(super) fn open(path: &Path, read_only: bool, locked: bool) -> Result<Self> {
        let root = open_dir(path)?;
        let mode = if read_only { OpenAs::Read } else { OpenAs::Write };
        let superblock = match DataFile::open_at(root.as_fd(), SUPERBLOCK, mode) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(MemberError::NoSuperblock { path: path.display().to_string() });
            }
            result => result.map_err(|e| MemberError::access(path, "opening its superblock", e))?,
        };
        let superblock = hold(superblock, locked, path)?;
        let journal = DataFile::open_at(root.as_fd(), JOURNAL, mode)
            .map_err(|e| MemberError::access(path, "opening its journal", e))?;
        let slabs_dir = open_dir_at(&root, path, SLABS)?;
        Self::from_files(path, Files { root, superblock, journal, slabs_dir }, read_only)
    }

    fn from_files(path: &Path, files: Files, read_only: bool) -> Result<Self> {
        let stat = rustix::fs::fstat(&files.root);
        let device = stat.map_err(|e| MemberError::access(path, "looking at it", e))?.st_dev;
        let existing = files::list_slabs(&files.slabs_dir, path)?;
        Ok(Self {
            path: path.to_owned(),
            root: files.root,
            slabs_dir: files.slabs_dir,
            superblock: files.superblock,
            journal: files.journal,
            handles: Mutex::new(LruCache::new(OPEN_SLABS)),
            existing: Mutex::new(existing),
            dimensions: Dimensions { slab_bytes: 0, ring_bytes: 0 },
            bounds: Bounds::default(),
            read_only,
            device,
        })
    }

    /// Sets what the superblock says of sizes.
    pub(super) fn configure(&mut self, dimensions: Dimensions, bounds: Bounds) {
        self.dimensions = dimensions;
        self.bounds = bounds;
    }

    /// Passes `transfer` the file that holds `area`.
    fn with_file(
        &self,
        area: Area,
        doing: &'static str,
        offset: u64,
        transfer: impl FnOnce(&DataFile, u64) -> std::io::Result<()>,
    ) -> Result<()> {
        let slab;
        let (file, base) = match area {
            Area::Superblock(copy) => (&*self.superblock, u64::from(copy) * SUPERBLOCK_COPY_BYTES),
            Area::Journal => (&self.journal, 0),
            Area::Slab(number) => {
                slab = self.slab(number)?;
                (&*slab, 0)
            }
        };
        transfer(file, base).map_err(|e| MemberError::transfer(&self.path, doing, area, offset, e))
    }

    /// The file of a slab, kept open for the next time.
    fn slab(&self, slab: SlabNo) -> Result<Arc<DataFile>> {
        if let Some(file) = self.handles.lock().get(&slab) {
            return Ok(Arc::clone(file));
        }
        let mode = if self.read_only { OpenAs::Read } else { OpenAs::Write };
        let file = match DataFile::open_at(self.slabs_dir.as_fd(), &slab_name(slab), mode) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(MemberError::NoSlab { path: self.path(), slab });
            }
            result => result.map_err(|e| self.slab_error("opening", slab, e))?,
        };
        let len = file.len().map_err(|e| self.slab_error("opening", slab, e))?;
        if len != self.dimensions.stride() {
            let what = format!("its file has {len} bytes instead of {}", self.dimensions.stride());
            return Err(self.slab_error("opening", slab, std::io::Error::other(what)));
        }
        Ok(self.keep(slab, file))
    }

    fn keep(&self, slab: SlabNo, file: DataFile) -> Arc<DataFile> {
        let file = Arc::new(file);
        // The one that has to go is closed after the lock is released.
        let _closed = self.handles.lock().push(slab, Arc::clone(&file));
        file
    }

    fn slab_error(&self, doing: &'static str, slab: SlabNo, error: impl Into<std::io::Error>) -> MemberError {
        MemberError::transfer(&self.path, doing, Area::Slab(slab), 0, error)
    }

    fn writable(&self, doing: &'static str, area: Area, offset: u64) -> Result<()> {
        if self.read_only {
            return Err(MemberError::transfer(&self.path, doing, area, offset, Errno::ROFS));
        }
        Ok(())
    }

    /// Makes the file of a slab, or completes one that a crash left short.
    fn make_slab(&self, slab: SlabNo) -> Result<DataFile> {
        let name = slab_name(slab);
        let dir = self.slabs_dir.as_fd();
        let file = match DataFile::open_at(dir, &name, OpenAs::Create) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                DataFile::open_at(dir, &name, OpenAs::Write)
            }
            result => result,
        };
        let file = file.map_err(|e| self.slab_error("making", slab, e))?;
        if let Err(error) = self.fill(&file) {
            // Whatever else went wrong, a file without its space must not stay.
            let removed = remove_at(dir, &name, AtFlags::empty());
            let error = if is_full(&error) { error } else { removed.err().unwrap_or(error) };
            return Err(self.slab_error("allocating", slab, error));
        }
        Ok(file)
    }

    fn fill(&self, file: &DataFile) -> std::io::Result<()> {
        let stride = self.dimensions.stride();
        if !file.allocate(0, stride)? {
            file.zero(0, stride)?;
        }
        file.set_len(stride)?;
        file.sync()
    }
}

/// The open files of a member.
struct Files {
    root: OwnedFd,
    superblock: Held,
    journal: DataFile,
    slabs_dir: OwnedFd,
}

impl Disk for DirectoryDisk {
    fn kind(&self) -> DiskKind {
        DiskKind::Directory
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self, area: Area, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.dimensions.check_transfer(self, area, offset, buf.len())?;
        self.with_file(area, "reading", offset, |file, base| file.read(base + offset, buf))
    }

    fn write(&self, area: Area, offset: u64, buf: &[u8]) -> Result<()> {
        self.dimensions.check_transfer(self, area, offset, buf.len())?;
        self.writable("writing", area, offset)?;
        self.with_file(area, "writing", offset, |file, base| file.write(base + offset, buf))
    }

    fn sync(&self, area: Area) -> Result<()> {
        self.writable("syncing", area, 0)?;
        self.with_file(area, "syncing", 0, |file, _| file.sync())
    }

    fn create_slab(&self, slab: SlabNo) -> Result<()> {
        self.writable("making", Area::Slab(slab), 0)?;
        // An existing slab of the right length is taken as it is.
        let known = self.existing.lock().contains(&slab);
        if known && self.slab(slab).is_ok() {
            return Ok(());
        }
        let exists = self.existing.lock().len() as u64;
        let room = self.room()?;
        if u64::from(slab) >= SLABS_MAX || exists >= room.slabs || room.below == Some(0) {
            return Err(MemberError::NoSpace { path: self.path(), slab });
        }
        let file = self.make_slab(slab)?;
        sync_dir(&self.slabs_dir).map_err(|e| self.slab_error("making", slab, e))?;
        self.keep(slab, file);
        self.existing.lock().insert(slab);
        Ok(())
    }

    fn delete_slab(&self, slab: SlabNo) -> Result<()> {
        self.writable("deleting", Area::Slab(slab), 0)?;
        let _closed = self.handles.lock().pop(&slab);
        remove_at(&self.slabs_dir, &slab_name(slab), AtFlags::empty())
            .and_then(|()| sync_dir(&self.slabs_dir))
            .map_err(|e| self.slab_error("deleting", slab, e))?;
        self.existing.lock().remove(&slab);
        Ok(())
    }

    fn list_slabs(&self) -> Result<Vec<SlabNo>> {
        Ok(files::list_slabs(&self.slabs_dir, &self.path)?.into_iter().collect())
    }

    fn room(&self) -> Result<Room> {
        // Files that are open outlive their directory, and would hide that it is gone.
        let stat = rustix::fs::fstat(&self.root);
        if stat.map_err(|e| MemberError::access(&self.path, "looking at it", e))?.st_nlink == 0 {
            return Err(MemberError::access(&self.path, "looking at it", Errno::NODEV));
        }
        let stride = self.dimensions.stride();
        let free = free_bytes(&self.root, &self.path)?.saturating_sub(self.bounds.reserve_bytes);
        let limit = match self.bounds.limit_bytes {
            0 => SLABS_MAX,
            limit => limit.saturating_sub(overhead_bytes(&self.dimensions)) / stride,
        };
        Ok(Room { slabs: limit.min(SLABS_MAX), below: Some(free / stride) })
    }

    fn device_id(&self) -> u64 {
        self.device
    }
}

impl std::fmt::Debug for DirectoryDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectoryDisk({})", self.path.display())
    }
}

/// Bytes that the file system of `dir` would still give to an ordinary user.
fn free_bytes(dir: impl AsFd, path: &Path) -> Result<u64> {
    let stat =
        rustix::fs::fstatvfs(dir).map_err(|e| MemberError::access(path, "asking for free space", e))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes that a directory could offer if it became a member.
pub(super) fn capacity(path: &Path, bounds: Bounds) -> Result<u64> {
    let free = free_bytes(open_dir(path)?, path)?.saturating_sub(bounds.reserve_bytes);
    Ok(if bounds.limit_bytes == 0 { free } else { free.min(bounds.limit_bytes) })
}

/// Whether the directory can become a member; with `force`, an old member in it may be destroyed.
pub(super) fn check(path: &Path, force: bool) -> Result<()> {
    match contents(path)? {
        Contents::Empty => {}
        Contents::Member if force => {}
        Contents::Member => {
            let found = "a member of a pool already".to_owned();
            return Err(MemberError::Used { path: path.display().to_string(), found });
        }
        Contents::Foreign(name) => {
            let why = format!("it is not empty (it holds {name:?}), and poolfs deletes no files of others");
            return Err(MemberError::Unsuitable { path: path.display().to_string(), why });
        }
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(path, access).map_err(|e| MemberError::access(path, "it must be writable", e))
}

#[cfg(test)]
mod tests;
