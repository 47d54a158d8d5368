//! What can go wrong in the pool, one variant for each distinct fact.

use uuid::Uuid;

use crate::layout::Resiliency;
use crate::member::MemberError;
use crate::member::superblock::{MemberId, Seq, SetId};
use crate::units::format_size;

/// Result of a pool operation.
pub type Result<T> = std::result::Result<T, PoolError>;

/// What can go wrong in the pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No room.
    #[error("no space left in the pool for {resiliency} data")]
    NoSpace {
        /// The resiliency asked for.
        resiliency: Resiliency,
    },
    /// Too few members are left for full redundancy, and the pool refuses to write with less.
    #[error("too few members are left to write {resiliency} with full redundancy (short-writes=refuse)")]
    ShortRefused {
        /// The resiliency asked for.
        resiliency: Resiliency,
    },
    /// Sectors that no combination of the slots gives back.
    #[error("set {set}: {sectors} sector(s) at address {address} can't be read or rebuilt")]
    Unreadable {
        /// The set.
        set: SetId,
        /// First address.
        address: u64,
        /// How many sectors.
        sectors: u64,
    },
    /// A set that is not in the set table.
    #[error("set {set} is not in the set table: the metadata is damaged, run `poolctl check`")]
    NoSet {
        /// The set.
        set: SetId,
    },
    /// Opened read-only.
    #[error("the pool is mounted read-only")]
    ReadOnly,
    /// One member's own trouble.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// Nobody named a member.
    #[error("no members: name at least one directory, block device or image file")]
    NoMembers,
    /// The layout wants more members.
    #[error("{resiliency} needs at least {needed} members, and {given} were given")]
    TooFewMembers {
        /// The resiliency asked for.
        resiliency: Resiliency,
        /// Members it needs.
        needed: usize,
        /// Members named.
        given: usize,
    },
    /// More members than a pool may have.
    #[error("{given} members are more than a pool can have ({most})")]
    TooManyMembers {
        /// Members named.
        given: usize,
        /// Most that are allowed.
        most: usize,
    },
    /// The same member twice.
    #[error("{first} and {second} are the same member")]
    SameMember {
        /// One path.
        first: String,
        /// The other.
        second: String,
    },
    /// One member inside another.
    #[error("{inner} lies inside {outer}: a member can't contain another")]
    Nested {
        /// The inner path.
        inner: String,
        /// The outer path.
        outer: String,
    },
    /// Two disks claim to be the same member.
    #[error(
        "{first} and {second} are both member {member} of the pool: one is a copy of the other. Name only the one to use"
    )]
    Cloned {
        /// One path.
        first: String,
        /// The other.
        second: String,
        /// The member's number.
        member: MemberId,
    },
    /// A member of some other pool.
    #[error("{path} belongs to another pool ({other}), not to {pool}")]
    OtherPool {
        /// The member.
        path: String,
        /// Its pool.
        other: Uuid,
        /// The pool being put together.
        pool: Uuid,
    },
    /// The pool's name can't be used.
    #[error("{name:?} can't be a pool's name: {why}")]
    BadName {
        /// The name.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// The members are too small for even one set.
    #[error(
        "too little space: {} in slabs of {} is not enough for one set of {resiliency} beside the reserve",
        format_size(*.bytes),
        format_size(*.slab_bytes)
    )]
    TooSmall {
        /// Space of all members.
        bytes: u64,
        /// Slab size.
        slab_bytes: u64,
        /// The resiliency asked for.
        resiliency: Resiliency,
    },
    /// Members are missing, and without them some data can't be read.
    #[error(
        "too few members: {unreadable} of {sets} sets can't be read without {missing}. {helps}; or mount with -o degraded=partial to read what is left"
    )]
    TooFewLeft {
        /// Sets that can't be read.
        unreadable: usize,
        /// Sets in all.
        sets: usize,
        /// Names of the missing members.
        missing: String,
        /// Which of them would be enough.
        helps: String,
    },
    /// `degraded=no`, and members are missing.
    #[error("missing: {missing}. The pool mounts without them with -o degraded=yes")]
    Incomplete {
        /// Names of the missing members.
        missing: String,
    },
    /// No member that is here holds the journal.
    #[error(
        "the journal of the last epoch is on {holders}, and none of these is here: what was written last would be lost. Attach one of them, or mount with -o force to go on without"
    )]
    NoRing {
        /// Names of the ring holders.
        holders: String,
    },
    /// Records that were acknowledged can't be found.
    #[error(
        "journal records {first} to {last} were acknowledged and can't be read: what they hold would be lost. Attach the missing members, or mount with -o ro or -o force"
    )]
    LostRecords {
        /// First lost record.
        first: Seq,
        /// Last lost record.
        last: Seq,
    },
    /// Only members that were taken out in order are here.
    #[error(
        "only members that left the pool at epoch {epoch} are here; newer data is on the others. Mount with -o force to go back to that state"
    )]
    OnlyLeavers {
        /// The epoch since when they are out.
        epoch: u64,
    },
    /// Every member failed.
    #[error("no member is left that takes writes; the pool is read-only until it is mounted again")]
    NoWritableMember,
    /// A read failed in a way that no member can be blamed for.
    #[error("the metadata is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
}
