//! What can go wrong on one member.

use super::{Area, SlabNo};

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
        source: std::io::Error,
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
}
