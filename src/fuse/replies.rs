//! What requests share: replies in the shapes that fuser wants them, and the rest of a write that must wait.

use fuser::{
    Errno, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyWrite, ReplyXattr,
    Request,
};

use super::border::{Border, TTL, answer};
use super::convert::file_attr;
use crate::fs::{Attr, Caller, Handle, OpenFlags};
use crate::sync::Arc;

pub(super) fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid() }
}

pub(super) fn send_entry(reply: ReplyEntry, attr: Attr) {
    reply.entry(&TTL, &file_attr(&attr), Generation(attr.generation));
}

pub(super) fn send_attr(reply: ReplyAttr, attr: Attr) {
    reply.attr(&TTL, &file_attr(&attr));
}

pub(super) fn send_ok(reply: ReplyEmpty, (): ()) {
    reply.ok();
}

/// The two steps of reading attributes and lists of them: how long is it, and give it to me.
pub(super) fn send_xattr(reply: ReplyXattr, size: u32, value: &[u8]) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}

impl Border {
    /// How the kernel is to treat a file that was opened.
    pub(super) fn fopen_flags(&self, flags: OpenFlags) -> FopenFlags {
        let mut granted = if flags.direct && self.negotiated.direct_io {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        };
        if !flags.write {
            // Closing what was only read has nothing to tell us.
            granted |= FopenFlags::FOPEN_NOFLUSH;
        }
        granted
    }

    /// The rest of a write that found no room: it waits here while few do, else on a thread of its own with a copy
    /// of its data.
    pub(super) fn write_later(
        &self,
        ino: INodeNo,
        handle: Handle,
        offset: u64,
        data: &[u8],
        kill_priv: bool,
        reply: ReplyWrite,
    ) {
        let send = |reply: ReplyWrite, len: usize| reply.written(len as u32);
        if let Some(_loan) = self.waiting.write_loans.take() {
            return answer("write", reply, || self.fs.write(ino.0, handle, offset, data, kill_priv), send);
        }
        let Some(place) = self.waiting.writes.place(data.len()) else {
            log::warn!("too many writes wait for room: one more is refused with ENOSPC");
            return reply.error(Errno::ENOSPC);
        };
        let (fs, data) = (Arc::clone(&self.fs), data.to_vec());
        place.park(Box::new(move || {
            answer("write", reply, || fs.write(ino.0, handle, offset, &data, kill_priv), send);
        }));
    }
}
