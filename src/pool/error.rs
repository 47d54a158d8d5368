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
    /// A member number that the pool does not have.
    #[error("the pool has no member {member}")]
    NoSuchMember {
        /// The number.
        member: MemberId,
    },
    /// It names this pool, but is none of its members.
    #[error(
        "{path} is not a member of this pool, though it says so: it is left over from an attempt to add it. Add it again with --force"
    )]
    NotAMember {
        /// Where it is.
        path: String,
    },
    /// A member that was taken out.
    #[error(
        "{path} was taken out of the pool (member {member}); what it holds counts for nothing. Add it anew with --force"
    )]
    WasRemoved {
        /// Where it is.
        path: String,
        /// Its number when it was a member.
        member: MemberId,
    },
    /// It is a member that is in use.
    #[error("{path} (member {member}) is online already")]
    AlreadyHere {
        /// Where it is.
        path: String,
        /// Its number.
        member: MemberId,
    },
    /// It has a history of its own.
    #[error(
        "{path} (member {member}) has diverged: it was written apart from the others since epoch {epoch}. It is left alone; mount it by itself with -o ro to see what it holds, or remove it with --lost and add it anew"
    )]
    DivergedMember {
        /// Where it is.
        path: String,
        /// Its number.
        member: MemberId,
        /// Its own epoch.
        epoch: u64,
    },
    /// It failed while it was being added, or brought back.
    #[error("{path} failed while it was taken into the pool, which goes on without it")]
    CameToNothing {
        /// Where it is.
        path: String,
    },
    /// What it failed to take is still being written elsewhere.
    #[error(
        "{path} (member {member}) can't come back before what it failed to take lies elsewhere; try again soon"
    )]
    StillWriting {
        /// Where it is.
        path: String,
        /// Its number.
        member: MemberId,
    },
    /// It still owes answers to old requests.
    #[error(
        "{path} (member {member}) can't come back yet: writes that it was given before it left have not ended, and may still overwrite what it holds"
    )]
    OldWrites {
        /// Where it is.
        path: String,
        /// Its number.
        member: MemberId,
    },
    /// It can't be declared lost.
    #[error("{path} (member {member}) is online: it can be removed without --lost")]
    StillHere {
        /// Where it is.
        path: String,
        /// Its number.
        member: MemberId,
    },
    /// No other member takes writes.
    #[error("{path} (member {member}) is the last member that takes writes; the pool can't do without it")]
    LastMember {
        /// Where it is.
        path: String,
        /// Its number.
        member: MemberId,
    },
    /// Something could not be read without it.
    #[error(
        "without {path} (member {member}) {unreadable} of {sets} sets could not be read, {metadata} of them metadata"
    )]
    WouldBeUnreadable {
        /// Where it is.
        path: String,
        /// Its number.
        member: MemberId,
        /// Sets that could not be read.
        unreadable: usize,
        /// Sets in all.
        sets: usize,
        /// Those among the unreadable that hold metadata: with any, force does not help.
        metadata: usize,
    },
    /// It holds something.
    #[error("{path} (member {member}) still holds {slabs} slabs; it must be emptied first")]
    NotEmpty {
        /// Where it is.
        path: String,
        /// Its number.
        member: MemberId,
        /// How many.
        slabs: u64,
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
