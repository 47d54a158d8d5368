//! What all requests share: the file system, panics caught, errors turned into numbers, waiting moved elsewhere.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fuser::Errno;

use super::convert;
use super::negotiate::Negotiated;
use super::parking::{Loans, Parking};
use crate::fs::{Fs, FsError};
use crate::sync::Arc;

/// How long the kernel may keep names and attributes. The pool has one writer, the kernel itself, which drops or
/// corrects what its own requests change.
pub(super) const TTL: Duration = Duration::from_secs(3600);
/// How long the kernel may remember that a name does not exist.
pub(super) const NEGATIVE_TTL: Duration = Duration::from_secs(5);

/// Most writes that wait for room at one time, and most bytes of theirs that are held. Beyond, they get ENOSPC.
const WAITING_WRITES: usize = 1024;
const WAITING_WRITE_BYTES: usize = 64 * 1024 * 1024;
/// Most syncs and other long requests that wait at one time. Beyond, they hold up a thread of the session.
const WAITING_SYNCS: usize = 1024;
/// Most threads that wait, for each of the two kinds.
const WAITING_THREADS: usize = 32;

/// The file system, seen from the kernel's side.
#[derive(Debug)]
pub(super) struct Border {
    pub(super) fs: Arc<Fs>,
    pub(super) negotiated: Negotiated,
    pub(super) waiting: Arc<Waiting>,
}

/// The requests that are being waited for.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) writes: Parking,
    pub(super) write_loans: Loans,
    syncs: Parking,
    sync_loans: Loans,
}

impl Waiting {
    /// For a session of `threads` threads, half of which requests that wait may hold up.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            writes: Parking::new("parked-write", WAITING_THREADS, WAITING_WRITES, WAITING_WRITE_BYTES),
            write_loans: Loans::new(threads / 4),
            syncs: Parking::new("parked-sync", WAITING_THREADS, WAITING_SYNCS, usize::MAX),
            sync_loans: Loans::new(threads / 4),
        }
    }

    /// Returns when every request that waited has its reply.
    pub(super) fn drain(&self) {
        self.writes.drain();
        self.syncs.drain();
    }

    /// Runs a request that may take long: here while few do, else on a thread of its own.
    fn run_long(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(_loan) = self.sync_loans.take() {
            return job();
        }
        match self.syncs.place(0) {
            Some(place) => place.park(Box::new(job)),
            None => job(),
        }
    }
}

/// A reply that can say that the request failed.
pub(super) trait Fails {
    /// Sends the error.
    fn fail(self, error: Errno);
}

macro_rules! fails {
    ($($reply:ident),*) => {$(
        impl Fails for fuser::$reply {
            fn fail(self, error: Errno) {
                self.error(error);
            }
        }
    )*};
}
fails!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyLseek,
    ReplyOpen,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr
);

/// Does the work of a request. A panic is a fault of ours that must cost this request only: fuser would lose the
/// thread, and with the last one the mount would hang.
pub(super) fn guarded<T>(
    request: &'static str,
    work: impl FnOnce() -> Result<T, FsError>,
) -> Result<T, Errno> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(convert::errno(request, &error)),
        Err(panic) => {
            let message = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("(no message)");
            log::error!("{request}: panic, answered with an I/O error: {message}");
            Err(Errno::EIO)
        }
    }
}

/// Does the work of a request and replies.
pub(super) fn answer<R: Fails, T>(
    request: &'static str,
    reply: R,
    work: impl FnOnce() -> Result<T, FsError>,
    send: impl FnOnce(R, T),
) {
    match guarded(request, work) {
        Ok(value) => send(reply, value),
        Err(error) => reply.fail(error),
    }
}

impl Border {
    /// As [`answer`], for work that may have to wait for a disk.
    pub(super) fn answer_long<R: Fails + Send + 'static, T: 'static>(
        &self,
        request: &'static str,
        reply: R,
        work: impl FnOnce(&Fs) -> Result<T, FsError> + Send + 'static,
        send: fn(R, T),
    ) {
        let fs = Arc::clone(&self.fs);
        self.waiting.run_long(move || answer(request, reply, || work(&fs), send));
    }
}
