//! What can go wrong on one member.

use std::io;
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use super::{Area, SlabNo};
use crate::units::format_size;

/// Result of an operation on a member.
pub type Result<T> = std::result::Result<T, MemberError>;

/// What can go wrong on one member, one variant for each distinct fact.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The medium, or the file system below, failed.
    #[error("{path}: {doing} {area:?} at {offset}: {source}")]
    Io {
        /// The member.
        path: String,
        /// `reading`, `writing`, `syncing` ...
        doing: &'static str,
        /// Where.
        area: Area,
        /// Byte offset within the area.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// No room for a slab: the member is full, not failed.
    #[error("{path}: no space for slab {slab}")]
    NoSpace {
        /// The member.
        path: String,
        /// The slab that did not fit.
        slab: SlabNo,
    },
    /// A slab that does not exist.
    #[error("{path}: slab {slab} does not exist")]
    NoSlab {
        /// The member.
        path: String,
        /// The slab asked for.
        slab: SlabNo,
    },
    /// The member did not answer within the deadline. What becomes of the request is unknown: a write may still
    /// reach the medium at any time.
    #[error("{path}: {doing} {area:?} at {offset}: no answer in {} s", .waited.as_secs_f32())]
    Timeout {
        /// The member.
        path: String,
        /// `reading`, `writing`, `syncing` ...
        doing: &'static str,
        /// Where.
        area: Area,
        /// Byte offset within the area.
        offset: u64,
        /// How long it was waited for.
        waited: Duration,
    },
    /// It could not be opened within the deadline.
    #[error("{path}: no answer in {} s while it was opened; it is taken for missing", .waited.as_secs_f32())]
    OpenTimeout {
        /// The path.
        path: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The member owes an answer for longer than the deadline, so nothing more was asked of it.
    #[error("{path} has not answered for {} s; nothing more is asked of it until it does", .since.as_secs())]
    Hanging {
        /// The member.
        path: String,
        /// Since when.
        since: Duration,
    },
    /// A request was dropped without being carried out: a fault of this program.
    #[error("{path}: a request was dropped by a fault of the program (see the log above)")]
    Dropped {
        /// The member.
        path: String,
    },
    /// Another process uses the member.
    #[error("{path} is in use by another process: is its pool mounted already?")]
    InUse {
        /// The member.
        path: String,
    },
    /// The path can't be a member at all.
    #[error("{path} can't be a member: {why}")]
    Unsuitable {
        /// The path.
        path: String,
        /// Why.
        why: String,
    },
    /// No superblock: not a member of any pool.
    #[error("{path} is not a member of a pool (no superblock)")]
    NoSuperblock {
        /// The path.
        path: String,
    },
    /// Both superblock copies are damaged.
    #[error("{path}: both superblock copies are damaged: {why}. The other members can still form the pool")]
    DamagedSuperblock {
        /// The path.
        path: String,
        /// What is wrong with them.
        why: String,
    },
    /// A format from the future.
    #[error(
        "{path} was written by a newer poolfs (format {found}; this program knows up to {known}): install that version"
    )]
    NewerFormat {
        /// The path.
        path: String,
        /// Version on the member.
        found: u32,
        /// Newest version known here.
        known: u32,
    },
    /// Incompatible features that this program does not know.
    #[error("{path} uses features that this poolfs does not know ({unknown:#x}): install a newer version")]
    UnknownFeatures {
        /// The path.
        path: String,
        /// The unknown bits.
        unknown: u64,
    },
    /// A superblock that would not be valid when read back: a fault of the program. Nothing was written.
    #[error("the superblock of pool {pool} can't be written: {why}")]
    InvalidSuperblock {
        /// The pool.
        pool: Uuid,
        /// What is wrong.
        why: String,
    },
    /// The superblock outgrew its place. Nothing was written.
    #[error("the superblock of pool {pool} has grown to {bytes} bytes, more than a copy has room for")]
    SuperblockTooLarge {
        /// The pool.
        pool: Uuid,
        /// Bytes needed.
        bytes: u64,
    },
    /// The member holds a superblock that is as new or newer. Nothing was written.
    #[error("{path} holds superblock {found} already; {given} would be a step back")]
    SequenceNotRising {
        /// The member.
        path: String,
        /// Sequence on the member.
        found: u64,
        /// Sequence to be written.
        given: u64,
    },
    /// A transfer that does not lie within its area, or not on sectors.
    #[error("{path}: {len} bytes at {offset} are not whole sectors of {area:?}")]
    OutOfArea {
        /// The member.
        path: String,
        /// The area.
        area: Area,
        /// Byte offset within the area.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Something other than a medium's bytes failed: opening, listing, making a file.
    #[error("{path}: {doing}: {source}")]
    Access {
        /// The member, or a file of it.
        path: String,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It holds something that making a member would destroy.
    #[error("{path} holds {found}. --force takes it over and destroys that")]
    Used {
        /// The path.
        path: String,
        /// What was found there.
        found: String,
    },
    /// Too little space for a member.
    #[error(
        "{name} offers {}, but a member needs at least {} (a journal of {} and {slabs} slabs of {}): \
         give more space, or a smaller --slab",
        format_size(*.have), format_size(*.need), format_size(*.ring), format_size(*.slab)
    )]
    TooSmall {
        /// The member, or which of several.
        name: String,
        /// Bytes it offers.
        have: u64,
        /// Bytes it needs.
        need: u64,
        /// Bytes of the journal ring in that.
        ring: u64,
        /// Fewest slabs in that.
        slabs: u64,
        /// Bytes of one slab.
        slab: u64,
    },
    /// A slab size that can't be.
    #[error("slabs of {} are not possible: {why}", format_size(*.slab))]
    BadSlabSize {
        /// Bytes asked for.
        slab: u64,
        /// Why not.
        why: String,
    },
    /// A member that is written in a way that can't be read.
    #[error("{text:?} does not name a member: {why} (write PATH[,size=SIZE][,reserve=SIZE])")]
    BadSpec {
        /// What was typed.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// The pool is mounted on this machine already, perhaps from other members.
    #[error("pool {pool} is in use on this machine already (its lock {lock} is held)")]
    PoolInUse {
        /// The pool.
        pool: Uuid,
        /// The lock file.
        lock: String,
    },
}

impl MemberError {
    /// Whether the member did not answer in time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Hanging { .. })
    }

    /// Whether the system says that the device, or the directory, is not there any more.
    pub fn is_vanished(&self) -> bool {
        let (Self::Io { source, .. } | Self::Access { source, .. }) = self else { return false };
        let gone = [libc::ENXIO, libc::ENODEV, libc::ESTALE];
        source.raw_os_error().is_some_and(|code| gone.contains(&code))
    }

    /// Whether it is this process that ran short (of descriptors or memory) or has a fault, and not the member
    /// that failed.
    pub fn is_own_shortage(&self) -> bool {
        if matches!(self, Self::Dropped { .. }) {
            return true;
        }
        let (Self::Io { source, .. } | Self::Access { source, .. }) = self else { return false };
        let short = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
        source.raw_os_error().is_some_and(|code| short.contains(&code))
    }

    /// An error of a path that belongs to no area.
    pub(super) fn access(path: &Path, doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Access { path: path.display().to_string(), doing, source: source.into() }
    }

    /// An error of a transfer. A file system without space makes a slab's write [`Self::NoSpace`]: the
    /// member is full, not failed.
    pub(super) fn transfer(
        path: &Path,
        doing: &'static str,
        area: Area,
        offset: u64,
        source: impl Into<io::Error>,
    ) -> Self {
        let (path, source) = (path.display().to_string(), source.into());
        match area {
            Area::Slab(slab) if is_full(&source) => Self::NoSpace { path, slab },
            _ => Self::Io { path, doing, area, offset, source },
        }
    }
}

/// Whether the system says that there is no space, for everybody or for this user.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
