//! One open file or device of a member: whole transfers, past the page cache where that is possible.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::AlignedBuf;
use crate::units::{MIB, SECTOR_LEN};

/// Bytes written at a time when a file is filled with zeros.
const ZEROING_LEN: usize = MIB as usize;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenAs {
    /// It must exist, and is only read.
    Read,
    /// It must exist.
    Write,
    /// It must not exist yet.
    Create,
}

/// An open file or device.
#[derive(Debug)]
pub(super) struct DataFile {
    file: File,
}

impl DataFile {
    /// Opens `name` within `dir`, which must be a regular file itself: a link or a pipe that somebody put
    /// there must not lead reads and writes elsewhere.
    pub(super) fn open_at(dir: BorrowedFd<'_>, name: &str, mode: OpenAs) -> io::Result<Self> {
        let file = Self::open(mode, OFlags::NOFOLLOW, |flags| {
            rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))
        })?;
        let found = FileType::from_raw_mode(rustix::fs::fstat(&file.file)?.st_mode);
        if found != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(file)
    }

    /// Opens a device or image by its path, following links. `extra` is added to the flags.
    pub(super) fn open_path(path: &Path, mode: OpenAs, extra: OFlags) -> io::Result<Self> {
        Self::open(mode, extra, |flags| rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)))
    }

    /// Opens with `O_DIRECT`, or without it where the file system refuses that. `O_NONBLOCK` keeps a pipe
    /// from stopping us; it means nothing for files and devices.
    fn open(
        mode: OpenAs,
        extra: OFlags,
        open: impl Fn(OFlags) -> rustix::io::Result<rustix::fd::OwnedFd>,
    ) -> io::Result<Self> {
        let access = match mode {
            OpenAs::Read => OFlags::RDONLY,
            OpenAs::Write => OFlags::RDWR,
            OpenAs::Create => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        let flags = access | extra | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match retry_on_intr(|| open(flags | OFlags::DIRECT)) {
            Err(Errno::INVAL) => {
                // The file may have been made before O_DIRECT was refused.
                let flags = if mode == OpenAs::Create { flags - OFlags::EXCL } else { flags };
                retry_on_intr(|| open(flags))?
            }
            result => result?,
        };
        Ok(Self { file: File::from(fd) })
    }

    /// Fills `buf` from `offset`; an early end is an error.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if is_aligned(buf) {
            return self.with_fallback(|| self.file.read_exact_at(buf, offset));
        }
        let mut bounce = AlignedBuf::zeroed(buf.len());
        self.with_fallback(|| self.file.read_exact_at(&mut bounce, offset))?;
        buf.copy_from_slice(&bounce[..buf.len()]);
        Ok(())
    }

    /// Writes all of `buf` at `offset`.
    pub(super) fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        if is_aligned(buf) {
            return self.with_fallback(|| self.file.write_all_at(buf, offset));
        }
        let bounce = AlignedBuf::copy_of(buf);
        self.with_fallback(|| self.file.write_all_at(&bounce[..buf.len()], offset))
    }

    /// Some file systems take `O_DIRECT` when a file is opened, and refuse the transfer: from then on this
    /// file goes through the page cache.
    fn with_fallback(&self, mut transfer: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        match transfer() {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                let flags = rustix::fs::fcntl_getfl(&self.file)?;
                if !flags.contains(OFlags::DIRECT) {
                    return Err(error);
                }
                rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
                transfer()
            }
            result => result,
        }
    }

    /// Returns when all that was written is durable, and so is the length.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fdatasync(&self.file))?)
    }

    /// Bytes of the file or device.
    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.file, SeekFrom::End(0))?)
    }

    /// Takes space for a range, so that writing there can't fail for want of it, and makes the file that
    /// long. `false` where the file system can't do that.
    pub(super) fn allocate(&self, offset: u64, len: u64) -> io::Result<bool> {
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len)) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the space of a range back, where the file system can do that.
    pub(super) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, offset, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes zeros over a range.
    pub(super) fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = AlignedBuf::zeroed(ZEROING_LEN);
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(zeros.len() as u64);
            self.write(offset + done, &zeros[..piece as usize])?;
            done += piece;
        }
        Ok(())
    }

    /// Makes the file exactly `len` bytes long.
    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

impl AsFd for DataFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes what was created in or removed from a directory durable.
pub(super) fn sync_dir(dir: impl AsFd) -> io::Result<()> {
    match retry_on_intr(|| rustix::fs::fsync(&dir)) {
        // Some file systems have nothing to sync in a directory, and say so like this.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file; one that is not there is removed already.
pub(super) fn remove_at(dir: impl AsFd, name: &str, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Callers keep buffers on a sector's boundary; one that is not is copied rather than refused.
fn is_aligned(buf: &[u8]) -> bool {
    buf.as_ptr().addr().is_multiple_of(SECTOR_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (tempfile::TempDir, File) {
        let temp = tempfile::tempdir().unwrap();
        let file = File::open(temp.path()).unwrap();
        (temp, file)
    }

    #[test]
    fn aligned_and_other_buffers_come_back() {
        let (_temp, dir) = dir();
        let file = DataFile::open_at(dir.as_fd(), "f", OpenAs::Create).unwrap();
        file.zero(0, 3 * MIB).unwrap();
        assert_eq!(file.len().unwrap(), 3 * MIB);
        let odd = [&[9u8], &[7; 8192][..]].concat();
        file.write(4096, &odd[1..]).unwrap();
        let mut back = vec![0; 8193];
        file.read(4096, &mut back[1..]).unwrap();
        assert_eq!(back[1..], odd[1..]);
        let mut buf = AlignedBuf::zeroed(16384);
        file.read(0, &mut buf).unwrap();
        assert!(buf[..4096].iter().all(|&b| b == 0) && buf[4096..12288].iter().all(|&b| b == 7));
        file.sync().unwrap();
        assert_eq!(file.read(3 * MIB, &mut buf).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn links_pipes_and_existing_files_are_refused() {
        let (temp, dir) = dir();
        std::fs::write(temp.path().join("precious"), "data").unwrap();
        std::os::unix::fs::symlink("precious", temp.path().join("link")).unwrap();
        rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for mode in [OpenAs::Read, OpenAs::Write, OpenAs::Create] {
            assert!(DataFile::open_at(dir.as_fd(), "link", mode).is_err());
            assert!(DataFile::open_at(dir.as_fd(), "pipe", mode).is_err());
        }
        assert!(DataFile::open_at(dir.as_fd(), "precious", OpenAs::Create).is_err());
        assert!(DataFile::open_at(dir.as_fd(), "nothing", OpenAs::Write).is_err());
    }
}
