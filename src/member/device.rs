//! A member that is a block device, or a regular file laid out like one.
//!
//! ```text
//! 0            superblock copy A
//! 1 MiB        superblock copy B
//! 2 MiB        journal ring
//! slabs_at     slabs, one behind the other, each a header and its payload
//! ```
//!
//! `slabs_at` is the end of the ring, rounded up to a MiB.

use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::error::{MemberError, Result, is_full};
use super::file::{DataFile, OpenAs};
use super::lock::{Held, hold};
use super::open::Bounds;
use super::superblock::{Marks, marks};
use super::{AlignedBuf, Area, Dimensions, Disk, DiskKind, Room, SlabNo};
use crate::limits::{SLABS_MAX, SUPERBLOCK_COPY_BYTES};
use crate::units::{MIB, round_down, round_up};

/// Byte at which the journal ring starts.
const RING_AT: u64 = 2 * SUPERBLOCK_COPY_BYTES;

/// A device or image member, open.
pub struct DeviceDisk {
    path: PathBuf,
    file: Held,
    kind: DiskKind,
    dimensions: Dimensions,
    bounds: Bounds,
    read_only: bool,
    device: u64,
}

/// Bytes of a device member that are no slabs.
pub(super) const fn overhead_bytes(dimensions: &Dimensions) -> u64 {
    round_up(RING_AT + dimensions.ring_bytes, MIB)
}

impl DeviceDisk {
    /// Makes a member: erases both superblocks, and writes the ring once. Durable when this returns.
    pub(super) fn create(path: &Path, dimensions: Dimensions, bounds: Bounds) -> Result<Self> {
        let mut disk = Self::open(path, false, true)?;
        disk.configure(dimensions, bounds);
        let have = capacity(path, bounds)?;
        let need = overhead_bytes(&dimensions) + dimensions.stride();
        if have < need {
            let (name, ring, slab) = (disk.path(), dimensions.ring_bytes, dimensions.slab_bytes);
            return Err(MemberError::TooSmall { name, have, need, ring, slabs: 1, slab });
        }
        // The superblocks first: once they are gone, nobody takes the rest for a member.
        for (offset, len) in [(0, RING_AT), (RING_AT, dimensions.ring_bytes)] {
            disk.file
                .zero(offset, len)
                .and_then(|()| disk.file.sync())
                .map_err(|e| MemberError::access(path, "preparing it", e))?;
        }
        Ok(disk)
    }

    /// Opens the device or image. Its dimensions are unknown until [`DeviceDisk::configure`]: until then
    /// only the superblocks can be read. Nothing is written. `locked` is false for a look in passing.
    pub(super) fn open(path: &Path, read_only: bool, locked: bool) -> Result<Self> {
        let failed = |e: std::io::Error| MemberError::access(path, "opening it", e);
        let kind = kind_of(path)?;
        let mode = if read_only { OpenAs::Read } else { OpenAs::Write };
        // For a block device, O_EXCL asks the kernel whether it is mounted or otherwise taken.
        let claim = locked && kind == DiskKind::Device;
        let file = match DataFile::open_path(path, mode, if claim { OFlags::EXCL } else { OFlags::empty() }) {
            Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => return Err(busy(path)),
            result => result.map_err(failed)?,
        };
        let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
        let (found, device) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => (DiskKind::Device, stat.st_rdev),
            _ => (DiskKind::Image, stat.st_dev),
        };
        if found != kind {
            return Err(failed(std::io::Error::other("it was exchanged while being opened")));
        }
        let file = hold(file, locked, path)?;
        let dimensions = Dimensions { slab_bytes: 0, ring_bytes: 0 };
        let bounds = Bounds::default();
        Ok(Self { path: path.to_owned(), file, kind, dimensions, bounds, read_only, device })
    }

    /// Sets what the superblock says of sizes.
    pub(super) fn configure(&mut self, dimensions: Dimensions, bounds: Bounds) {
        self.dimensions = dimensions;
        self.bounds = bounds;
    }

    /// Erases both superblocks, so that it is no member any more.
    pub(super) fn wipe(path: &Path) -> Result<()> {
        let disk = Self::open(path, false, true)?;
        let failed = |e| MemberError::access(path, "erasing its superblocks", e);
        let len = disk.file.len().map_err(failed)?.min(RING_AT);
        disk.file.zero(0, round_down(len, crate::units::SECTOR)).map_err(failed)?;
        disk.file.sync().map_err(failed)
    }

    /// Byte of the device at which a transfer starts.
    fn position(&self, area: Area, offset: u64) -> u64 {
        offset
            + match area {
                Area::Superblock(copy) => u64::from(copy) * SUPERBLOCK_COPY_BYTES,
                Area::Journal => RING_AT,
                Area::Slab(slab) => self.slab_at(slab),
            }
    }

    fn slab_at(&self, slab: SlabNo) -> u64 {
        overhead_bytes(&self.dimensions) + u64::from(slab) * self.dimensions.stride()
    }

    fn check(&self, area: Area, offset: u64, len: usize) -> Result<()> {
        self.dimensions.check_transfer(self, area, offset, len)?;
        match area {
            Area::Slab(slab) if u64::from(slab) >= SLABS_MAX => {
                Err(MemberError::NoSlab { path: self.path(), slab })
            }
            _ => Ok(()),
        }
    }

    fn writable(&self, doing: &'static str, area: Area, offset: u64) -> Result<()> {
        if self.read_only {
            return Err(MemberError::transfer(&self.path, doing, area, offset, Errno::ROFS));
        }
        Ok(())
    }
}

impl Disk for DeviceDisk {
    fn kind(&self) -> DiskKind {
        self.kind
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self, area: Area, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(area, offset, buf.len())?;
        self.file
            .read(self.position(area, offset), buf)
            .map_err(|e| MemberError::transfer(&self.path, "reading", area, offset, e))
    }

    fn write(&self, area: Area, offset: u64, buf: &[u8]) -> Result<()> {
        self.check(area, offset, buf.len())?;
        self.writable("writing", area, offset)?;
        // A slab beyond the end, or beyond a limit set later, must not make an image grow.
        if let Area::Slab(slab) = area
            && u64::from(slab) >= self.room()?.slabs
        {
            return Err(MemberError::NoSlab { path: self.path(), slab });
        }
        self.file
            .write(self.position(area, offset), buf)
            .map_err(|e| MemberError::transfer(&self.path, "writing", area, offset, e))
    }

    fn sync(&self, area: Area) -> Result<()> {
        self.writable("syncing", area, 0)?;
        self.file.sync().map_err(|e| MemberError::transfer(&self.path, "syncing", area, 0, e))
    }

    fn create_slab(&self, slab: SlabNo) -> Result<()> {
        self.writable("making", Area::Slab(slab), 0)?;
        let no_space = || MemberError::NoSpace { path: self.path(), slab };
        if u64::from(slab) >= self.room()?.slabs {
            return Err(no_space());
        }
        if self.kind == DiskKind::Image {
            // The file may be sparse. Where space can't be taken beforehand, a later write may find none.
            let taken = self.file.allocate(self.slab_at(slab), self.dimensions.stride());
            let taken = taken.and_then(|_| self.file.sync());
            taken.map_err(|e| match is_full(&e) {
                true => no_space(),
                false => MemberError::transfer(&self.path, "allocating", Area::Slab(slab), 0, e),
            })?;
        }
        Ok(())
    }

    fn delete_slab(&self, slab: SlabNo) -> Result<()> {
        self.writable("deleting", Area::Slab(slab), 0)?;
        if self.kind == DiskKind::Image && u64::from(slab) < self.room()?.slabs {
            // Only saves space below; what fails here harms nobody.
            if let Err(error) = self.file.punch(self.slab_at(slab), self.dimensions.stride()) {
                log::debug!("{}: punching out slab {slab}: {error}", self.path.display());
            }
        }
        Ok(())
    }

    fn list_slabs(&self) -> Result<Vec<SlabNo>> {
        Ok(vec![])
    }

    fn room(&self) -> Result<Room> {
        let bytes = usable_bytes(&self.file, &self.path, self.bounds)?;
        let slabs = bytes.saturating_sub(overhead_bytes(&self.dimensions)) / self.dimensions.stride();
        Ok(Room { slabs: slabs.min(SLABS_MAX), below: None })
    }

    fn device_id(&self) -> u64 {
        self.device
    }
}

impl std::fmt::Debug for DeviceDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceDisk({})", self.path.display())
    }
}

/// Who has a device that the kernel calls busy: another poolfs, or somebody else.
fn busy(path: &Path) -> MemberError {
    let file = DataFile::open_path(path, OpenAs::Read, OFlags::empty());
    if let Ok(file) = file
        && let Err(error @ MemberError::InUse { .. }) = hold(file, true, path)
    {
        return error;
    }
    let why = "it is mounted, or something else uses it".to_owned();
    MemberError::Unsuitable { path: path.display().to_string(), why }
}

/// Refuses an image that a loop device shows: it may be mounted, and no lock would tell.
fn check_not_looped(path: &Path) -> Result<()> {
    let canonical =
        std::fs::canonicalize(path).map_err(|e| MemberError::access(path, "looking for it", e))?;
    let Ok(devices) = std::fs::read_dir("/sys/block") else {
        return Ok(());
    };
    for device in devices.flatten() {
        let backing = std::fs::read_to_string(device.path().join("loop/backing_file"));
        if backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == canonical) {
            let why = format!("it is attached to {}, which may be in use", device.file_name().display());
            return Err(MemberError::Unsuitable { path: path.display().to_string(), why });
        }
    }
    Ok(())
}

/// Whether a path is a device or an image.
fn kind_of(path: &Path) -> Result<DiskKind> {
    let kind = super::open::probe(path)?;
    if kind == DiskKind::Directory {
        let why = "it is a directory now".to_owned();
        return Err(MemberError::Unsuitable { path: path.display().to_string(), why });
    }
    Ok(kind)
}

fn usable_bytes(file: &DataFile, path: &Path, bounds: Bounds) -> Result<u64> {
    let size = file.len().map_err(|e| MemberError::access(path, "asking for its size", e))?;
    let limited = if bounds.limit_bytes == 0 { size } else { size.min(bounds.limit_bytes) };
    Ok(limited.min(size.saturating_sub(bounds.reserve_bytes)))
}

/// Bytes that a device or image could offer if it became a member.
pub(super) fn capacity(path: &Path, bounds: Bounds) -> Result<u64> {
    let file = DataFile::open_path(path, OpenAs::Read, OFlags::empty())
        .map_err(|e| MemberError::access(path, "opening it", e))?;
    usable_bytes(&file, path, bounds)
}

/// Whether the device or image can become a member; with `force`, what is on it may be destroyed.
pub(super) fn check(path: &Path, force: bool) -> Result<()> {
    // Locked as a member would be, which also shows whether it is mounted; let go again at the end.
    let disk = DeviceDisk::open(path, false, true)?;
    if disk.kind == DiskKind::Image {
        check_not_looped(path)?;
    }
    let failed = |e| MemberError::access(path, "reading its beginning", e);
    let len = round_down(disk.file.len().map_err(failed)?.min(RING_AT), crate::units::SECTOR);
    let mut start = AlignedBuf::zeroed(len as usize);
    disk.file.read(0, &mut start).map_err(failed)?;
    match signature(&start) {
        Some(found) if !force => {
            Err(MemberError::Used { path: path.display().to_string(), found: found.to_owned() })
        }
        _ => Ok(()),
    }
}

/// What the first two MiB of a device say that it holds. Anything but zeros counts.
fn signature(start: &[u8]) -> Option<&'static str> {
    const KNOWN: [(usize, &[u8], &str); 11] = [
        (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
        (0, b"XFSB", "an XFS file system"),
        (1080, b"\x53\xef", "an ext file system"),
        (65600, b"_BHRfS_M", "a btrfs file system"),
        (4086, b"SWAPSPACE2", "swap space"),
        (512, b"EFI PART", "a partition table (GPT)"),
        (4096, b"EFI PART", "a partition table (GPT)"),
        (512, b"LABELONE", "an LVM volume"),
        (0, b"\xfc\x4e\x2b\xa9", "a part of a RAID (md)"),
        (4096, b"\xfc\x4e\x2b\xa9", "a part of a RAID (md)"),
        (510, b"\x55\xaa", "a partition table or boot sector (MBR)"),
    ];
    if marks(start) == Marks::Superblock {
        return Some("a member of a pool already");
    }
    let at = |&&(at, magic, _): &&(usize, &[u8], &str)| start.get(at..at + magic.len()) == Some(magic);
    let known = KNOWN.iter().find(at).map(|known| known.2);
    known.or_else(|| start.iter().any(|&b| b != 0).then_some("data (its beginning is not all zeros)"))
}

#[cfg(test)]
mod tests;
