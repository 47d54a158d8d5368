//! The superblock: what a member says of itself and of its pool.
//!
//! Two copies, A and B; the older one is overwritten and synced, never the newer, so that a torn
//! write costs at most the copy that was out of date anyway. `envelope.rs` has the bytes of a copy,
//! `copies.rs` the choice between the two, `validate.rs` what must hold before anything is used.

mod copies;
mod envelope;
mod validate;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use copies::{read_superblock, write_superblock};
pub(super) use envelope::{Marks, marks};

use super::{Dimensions, DiskKind, SlabNo};
use crate::layout::{Geometry, Resiliency};

/// Number of a member within its pool: an index into the member table, never used again.
pub type MemberId = u16;
/// Number of a slab set, never used again.
pub type SetId = u64;
/// Number of a journal record; rises by one from record to record over the pool's whole life.
pub type Seq = u64;

/// Newest format that this program reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 1;
/// Incompatible features this program knows (none so far).
pub const FEATURES_KNOWN: u64 = 0;

/// Everything in a superblock but its envelope (magic, version, length, checksums).
///
/// The order of the fields, here and in the types below, is their order on the member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Superblock {
    /// The pool.
    pub pool: Uuid,
    /// The pool's name.
    pub name: String,
    /// Incompatible features in use; an unknown one refuses to mount.
    pub features: u64,
    /// This member's number.
    pub member: MemberId,
    /// Rises with every publication; the freshest superblock of the last epoch wins.
    pub sequence: u64,
    /// Sizes that are the same on every member.
    pub dimensions: Dimensions,
    /// Resiliency of a new root directory's children.
    pub resiliency: Resiliency,
    /// Refuse writes that could not have full redundancy.
    pub refuse_short_writes: bool,
    /// Every member that ever was, by number.
    pub members: Vec<MemberRecord>,
    /// Every epoch since the oldest that matters, oldest first. Never empty.
    pub epochs: Vec<Epoch>,
    /// The last checkpoint; none in a pool that was never mounted.
    pub root: Option<Root>,
    /// The pool was unmounted in order, and the root holds everything.
    pub clean: bool,
    /// The pool had all its members when this was written.
    pub healthy: bool,
    /// The sets that the root block lies in. The root block names all others that hold metadata.
    pub meta_sets: Vec<SetRecord>,
    /// Set in a member that left in order: out since this epoch. Such members alone do not mount.
    pub out_since: Option<u64>,
}

/// What the pool knows of one member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its own UUID.
    pub uuid: Uuid,
    /// What it is.
    pub kind: DiskKind,
    /// Where it was last seen.
    pub path: String,
    /// A limit in bytes that the user gave; 0 for none.
    pub limit_bytes: u64,
    /// Free space of the file system below that is left alone; 0 for none.
    pub reserve_bytes: u64,
    /// Slabs it offered when last seen.
    pub slabs: u64,
    /// Whether it still belongs to the pool.
    pub state: MemberState,
    /// Its ring is complete from this record on; none when it holds no ring.
    pub ring_from: Option<Seq>,
}

/// Whether a member belongs to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// Belongs to the pool. Whether it is current says the last epoch.
    Active,
    /// Taken out in order, or declared lost; what it holds counts for nothing.
    Removed,
    /// Belongs to the pool, and is left alone until somebody brings it online again.
    Offline,
}

/// A period during which one fixed set of members was being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Rises by one from epoch to epoch.
    pub counter: u64,
    /// Random, so that two machines never name different epochs alike.
    pub id: u64,
    /// The first record of this epoch: an older epoch's record from there on is void.
    pub first_seq: Seq,
    /// The members being written.
    pub members: Vec<MemberId>,
    /// Those of them that hold a journal ring.
    pub ring_holders: Vec<MemberId>,
}

/// Where the last checkpoint is, and where the journal starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// Pieces of the root block, in order.
    pub block: Vec<MetaPointer>,
    /// The trees hold every record up to and including this one.
    pub included: Seq,
    /// Replay begins at this record (data records before `included` may still be needed) ...
    pub tail_seq: Seq,
    /// ... which lies at this byte of the endless log; modulo the ring's size, of the ring.
    pub tail_position: u64,
}

/// Points to a run of metadata in a set, with what it takes to verify it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaPointer {
    /// The set.
    pub set: SetId,
    /// Address in the set's payload, a multiple of the sector.
    pub address: u64,
    /// Bytes in use, not padded.
    pub len: u32,
    /// CRC-32C of each sector, the last one padded with zeros.
    pub sums: Vec<u32>,
}

/// A slab on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlabRef {
    /// The member.
    pub member: MemberId,
    /// The slab there.
    pub slab: SlabNo,
}

/// What a set is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// File data.
    Data,
    /// Trees and root blocks.
    Meta,
}

/// One slab on each of several members that together carry one layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRecord {
    /// Its number.
    pub id: SetId,
    /// What it holds.
    pub purpose: Purpose,
    /// How addresses map to slots. The number of slots equals `slots.len()`.
    pub geometry: Geometry,
    /// The resiliency it was made for (wider than `geometry` where members were missing).
    pub resiliency: Resiliency,
    /// One slab for each slot.
    pub slots: Vec<SlabRef>,
    /// Bytes of each slot that may have been written, from 0: the next stripe starts here.
    pub fill: u64,
    /// No more stripes are written to it.
    pub sealed: bool,
    /// It has less redundancy than its resiliency asks for.
    pub short: bool,
    /// Bytes in it that extents hold, or nodes of trees and a root block: at most its payload. At 0 a set that takes
    /// no more stripes is free.
    pub live: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::layout::Redundancy;

    /// Bytes that only the seed decides (splitmix64).
    pub(crate) fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(crate::member::sim::next_random(&mut state).to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    fn member(number: u128) -> MemberRecord {
        MemberRecord {
            uuid: Uuid::from_u128(number),
            kind: DiskKind::Simulated,
            path: format!("disk{number}"),
            limit_bytes: 0,
            reserve_bytes: 4096,
            slabs: 100,
            state: MemberState::Active,
            ring_from: Some(1),
        }
    }

    fn meta_set() -> SetRecord {
        SetRecord {
            id: 5,
            purpose: Purpose::Meta,
            geometry: Geometry::new(Redundancy::Copies(2), 1, 256 << 10, 1 << 20, 0).unwrap(),
            resiliency: Resiliency::parse("mirror").unwrap(),
            slots: vec![SlabRef { member: 0, slab: 3 }, SlabRef { member: 2, slab: 9 }],
            fill: 8192,
            sealed: false,
            short: false,
            live: 8192,
        }
    }

    /// A superblock of three members with everything in it.
    pub(crate) fn sample(sequence: u64) -> Superblock {
        let epoch = |counter, members: &[MemberId]| Epoch {
            counter,
            id: counter * 77,
            first_seq: counter * 10,
            members: members.to_vec(),
            ring_holders: members.to_vec(),
        };
        let pointer = MetaPointer { set: 5, address: 4096, len: 5000, sums: vec![1, 2] };
        Superblock {
            pool: Uuid::from_u128(42),
            name: "tank".to_owned(),
            features: 0,
            member: 1,
            sequence,
            dimensions: Dimensions { slab_bytes: 1 << 20, ring_bytes: 8 << 20 },
            resiliency: Resiliency::parse("mirror").unwrap(),
            refuse_short_writes: false,
            members: vec![member(1), member(2), member(3)],
            epochs: vec![epoch(1, &[0, 1, 2]), epoch(2, &[0, 2])],
            root: Some(Root {
                checkpoint: 3,
                block: vec![pointer],
                included: 20,
                tail_seq: 18,
                tail_position: 1 << 40,
            }),
            clean: false,
            healthy: true,
            meta_sets: vec![meta_set()],
            out_since: None,
        }
    }
}
