//! The requests of the kernel.

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use poolfs::member::AlignedBuf;
use poolfs::sync::Mutex;

use super::negotiate::{Negotiated, negotiate};
use super::tree::{Maker, Tree};

/// As the pool has it.
const TTL: Duration = Duration::from_secs(3600);
/// Most bytes that the kernel asks for at once, unless its limit was raised.
const READ_MAX_BYTES: usize = 1024 * 1024;
/// What statfs tells of a file system without end.
const BLOCKS: u64 = 1 << 40;
const BLOCK_BYTES: u32 = 4096;

/// The file system.
#[derive(Debug)]
pub struct Null {
    tree: Mutex<Tree>,
    zeros: AlignedBuf,
    negotiated: Negotiated,
}

impl Null {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            tree: Mutex::new(Tree::new()),
            zeros: AlignedBuf::zeroed(READ_MAX_BYTES),
            negotiated: Negotiated::default(),
        }
    }

    /// As the pool treats files that are opened with these flags.
    fn fopen_flags(&self, flags: i32) -> FopenFlags {
        let mut granted = if flags & libc::O_DIRECT != 0 && self.negotiated.direct_io {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        };
        if flags & libc::O_ACCMODE == libc::O_RDONLY {
            granted |= FopenFlags::FOPEN_NOFLUSH;
        }
        granted
    }
}

fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn maker(req: &Request, mode: u32) -> Maker {
    Maker { uid: req.uid(), gid: req.gid(), mode }
}

fn done(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Null {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.negotiated = negotiate(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.tree.lock().lookup(parent, name);
        match found {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.tree.lock().attr(ino);
        match found {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = self.tree.lock().attr_mut(ino).map(|attr| {
            attr.perm = mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
            attr.uid = uid.unwrap_or(attr.uid);
            attr.gid = gid.unwrap_or(attr.gid);
            attr.size = size.unwrap_or(attr.size);
            attr.atime = atime.map_or(attr.atime, time);
            attr.mtime = mtime.map_or(attr.mtime, time);
            attr.ctime = SystemTime::now();
            *attr
        });
        match changed {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let made = self.tree.lock().make(parent, name, FileType::Directory, maker(req, mode));
        match made {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.tree.lock().make(parent, name, FileType::RegularFile, maker(req, mode));
        match made {
            Ok(attr) => {
                reply.created(&TTL, &attr, Generation(0), FileHandle(attr.ino.0), self.fopen_flags(flags));
            }
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.tree.lock().remove(parent, name);
        done(reply, removed);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.tree.lock().remove(parent, name);
        done(reply, removed);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let renamed = self.tree.lock().rename(parent, name, newparent, newname);
        done(reply, renamed);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(ino.0), self.fopen_flags(flags.0));
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = self.tree.lock().attr(ino).map_or(0, |attr| attr.size);
        let len = end.saturating_sub(offset).min(size.into()) as usize;
        reply.data(&self.zeros[..len.min(READ_MAX_BYTES)]);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Ok(attr) = self.tree.lock().attr_mut(ino) {
            attr.size = attr.size.max(offset + data.len() as u64);
            attr.blocks = attr.size.div_ceil(512);
            attr.mtime = SystemTime::now();
        }
        reply.written(data.len() as u32);
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(ino.0), FopenFlags::empty());
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (cookie, name, attr) in self.tree.lock().list(ino, offset) {
            if reply.add(attr.ino, cookie, attr.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        for (cookie, name, attr) in self.tree.lock().list(ino, offset) {
            if reply.add(attr.ino, cookie, name, &TTL, attr, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let files = self.tree.lock().len();
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, files, BLOCKS, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    // The kernel must not learn that there are no attributes at all: a pool has some, and is asked for them.
    fn getxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENODATA);
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }
}
