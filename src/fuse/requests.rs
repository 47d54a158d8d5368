//! One small function for each request of the kernel.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::border::{Border, NEGATIVE_TTL, TTL, answer, guarded};
use super::convert::{self, file_attr, file_type};
use super::negotiate::negotiate;
use super::replies::{caller, send_attr, send_entry, send_ok, send_xattr};
use crate::fs::{Fs, SetAttr, Whence, WriteOutcome};
use crate::member::AlignedBuf;

/// Most bytes that one copy_file_range request copies: the reply has 32 bits for their number. The kernel
/// asks again for the rest, and can be interrupted in between.
const COPY_STEP_BYTES: u64 = 1 << 30;

thread_local! {
    /// Where reads of this thread put what they read, on a page's boundary: unaligned copies are slow.
    static READ_BUFFER: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::zeroed(0));
}

impl Filesystem for Border {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.negotiated = negotiate(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match guarded("lookup", || self.fs.lookup(parent.0, name.as_bytes())) {
            Ok(attr) => send_entry(reply, attr),
            // NFS asks for "." of an inode that it has a handle of.
            Err(Errno::ENOENT) if name == "." || name == ".." => reply.error(Errno::ESTALE),
            Err(Errno::ENOENT) => {
                // Inode 0 says that there is none, and for how long that may be remembered.
                let nothing = convert::no_attr();
                reply.entry_with_ttls(&NEGATIVE_TTL, &NEGATIVE_TTL, &nothing, Generation(0));
            }
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        let _ = guarded("forget", || {
            self.fs.forget(ino.0, nlookup);
            Ok(())
        });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        answer("getattr", reply, || self.fs.getattr(ino.0), send_attr);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(convert::time_set),
            mtime: mtime.map(convert::time_set),
            handle: fh.map(u64::from),
        };
        let caller = caller(req);
        if size.is_some() {
            // Long: the cut may need room, or the page that it ends in.
            return self.answer_long(
                "setattr",
                reply,
                move |fs| fs.setattr(ino.0, &change, &caller),
                send_attr,
            );
        }
        answer("setattr", reply, || self.fs.setattr(ino.0, &change, &caller), send_attr);
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        answer("readlink", reply, || self.fs.readlink(ino.0), |reply, target| reply.data(&target));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let work = || self.fs.mknod(parent.0, name.as_bytes(), mode, rdev, &caller(req));
        answer("mknod", reply, work, send_entry);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let work = || self.fs.mkdir(parent.0, name.as_bytes(), mode, &caller(req));
        answer("mkdir", reply, work, send_entry);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer("unlink", reply, || self.fs.unlink(parent.0, name.as_bytes()), send_ok);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer("rmdir", reply, || self.fs.rmdir(parent.0, name.as_bytes()), send_ok);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let work = || self.fs.symlink(parent.0, name.as_bytes(), target, &caller(req));
        answer("symlink", reply, work, send_entry);
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
        let Some(mode) = convert::rename_mode(flags) else {
            return reply.error(Errno::EINVAL);
        };
        let (name, newname) = (name.as_bytes().to_vec(), newname.as_bytes().to_vec());
        // Long: renaming over a file may have to write the new one's data first.
        let work = move |fs: &Fs| fs.rename(parent.0, &name, newparent.0, &newname, mode);
        self.answer_long("rename", reply, work, send_ok);
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        answer("link", reply, || self.fs.link(ino.0, newparent.0, newname.as_bytes()), send_entry);
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
        let flags = convert::open_flags(flags);
        let work = || self.fs.create(parent.0, name.as_bytes(), mode, flags, &caller(req));
        answer("create", reply, work, |reply, (attr, handle)| {
            let generation = Generation(attr.generation);
            reply.created(&TTL, &file_attr(&attr), generation, FileHandle(handle), self.fopen_flags(flags));
        });
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = convert::open_flags(flags.0);
        answer(
            "open",
            reply,
            || self.fs.open(ino.0, flags),
            |reply, handle| reply.opened(FileHandle(handle), self.fopen_flags(flags)),
        );
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size as usize {
                *buffer = AlignedBuf::zeroed(size as usize);
            }
            let wanted = &mut buffer[..size as usize];
            match guarded("read", || self.fs.read(ino.0, fh.0, offset, wanted)) {
                Ok(len) => reply.data(buffer.get(..len).unwrap_or_default()),
                Err(error) => reply.error(error),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kill_priv = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let handle = fh.0;
        match guarded("write", || self.fs.try_write(ino.0, handle, offset, data, kill_priv)) {
            Ok(WriteOutcome::Done(len)) => reply.written(len as u32),
            Ok(WriteOutcome::MustWait) => self.write_later(ino, handle, offset, data, kill_priv, reply),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        self.answer_long("flush", reply, move |fs| fs.flush(ino.0, fh.0), send_ok);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        answer("release", reply, || self.fs.release(ino.0, fh.0), send_ok);
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.answer_long("fsync", reply, move |fs| fs.fsync(ino.0, datasync), send_ok);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        answer(
            "opendir",
            reply,
            || self.fs.opendir(ino.0),
            |reply, handle| reply.opened(FileHandle(handle), FopenFlags::empty()),
        );
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut listed_any = false;
        let listed = guarded("readdir", || {
            self.fs.readdir(ino.0, offset, &mut |entry| {
                let name = OsStr::from_bytes(&entry.name);
                let taken = !reply.add(INodeNo(entry.ino), entry.cookie, file_type(entry.kind), name);
                listed_any |= taken;
                taken
            })
        });
        match listed {
            Err(error) if !listed_any => reply.error(error),
            // After an error in the middle the kernel asks for the rest, and gets it then.
            _ => reply.ok(),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut listed_any = false;
        let listed = guarded("readdirplus", || {
            self.fs.readdirplus(ino.0, offset, &mut |entry, attr| {
                let name = OsStr::from_bytes(&entry.name);
                let (attr, generation) = (file_attr(&attr), Generation(attr.generation));
                let taken = !reply.add(INodeNo(entry.ino), entry.cookie, name, &TTL, &attr, generation);
                listed_any |= taken;
                taken
            })
        });
        match listed {
            Err(error) if !listed_any => reply.error(error),
            // What was listed is counted as looked up, so it must be sent.
            _ => reply.ok(),
        }
    }

    fn releasedir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        answer("releasedir", reply, || self.fs.releasedir(ino.0, fh.0), send_ok);
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.answer_long("fsyncdir", reply, move |fs| fs.fsyncdir(ino.0), send_ok);
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        answer(
            "statfs",
            reply,
            || self.fs.statfs(ino.0),
            |reply, s| {
                let block = s.block_size;
                reply.statfs(s.blocks, s.free, s.available, s.files, s.files_free, block, s.name_max, block);
            },
        );
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = convert::xattr_mode(flags) else {
            return reply.error(Errno::EINVAL);
        };
        answer("setxattr", reply, || self.fs.setxattr(ino.0, name.as_bytes(), value, mode), send_ok);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let work = || self.fs.getxattr(ino.0, name.as_bytes());
        answer("getxattr", reply, work, |reply, value| send_xattr(reply, size, &value));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let work = || self.fs.listxattr(ino.0);
        answer("listxattr", reply, work, |reply, names| send_xattr(reply, size, &names));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer("removexattr", reply, || self.fs.removexattr(ino.0, name.as_bytes()), send_ok);
    }

    fn access(&self, _req: &Request, ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The mount has default_permissions: the kernel has checked already, and asks only if the file exists.
        answer("access", reply, || self.fs.getattr(ino.0).map(drop), send_ok);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let work = move |fs: &Fs| fs.fallocate(ino.0, fh.0, offset, length, mode);
        self.answer_long("fallocate", reply, work, send_ok);
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        let work = || self.fs.lseek(ino.0, fh.0, offset, whence);
        answer("lseek", reply, work, |reply, found| match i64::try_from(found) {
            Ok(found) => reply.offset(found),
            Err(_) => reply.error(Errno::EOVERFLOW),
        });
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let len = len.min(COPY_STEP_BYTES);
        let (from, to) = ((ino_in.0, fh_in.0, offset_in), (ino_out.0, fh_out.0, offset_out));
        let work = move |fs: &Fs| fs.copy_file_range(from, to, len);
        self.answer_long("copy_file_range", reply, work, |reply, copied| reply.written(copied as u32));
    }
}
