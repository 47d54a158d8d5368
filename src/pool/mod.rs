//! Sets, placement, the stripe writer and the verified reader, epochs and health of members. Knows no files.
//!
//! A write goes through [`stripe_writer`] and [`space`] to the members ([`room`] says what is left for whom); a read through [`reader`]; what is
//! durable about the membership is in [`epochs`]. What becomes of a member that fails is in [`failures`]. The pool is given its set table at mount and hands every
//! change of it to its caller, who commits it together with what depends on it.

mod assemble;
mod buffers;
mod create;
mod epochs;
mod error;
mod failures;
mod health;
mod lanes;
mod membership;
mod meta;
pub mod moving;
mod planning;
mod reader;
mod room;
mod roster;
mod scrub;
mod sets;
pub mod simulated;
mod space;
pub mod status;
mod stripe_writer;
#[cfg(test)]
mod tests;
mod trouble;

pub use assemble::{AssembleOptions, Degraded, Found};
pub use create::{CreateOptions, Plan, create, create_on, plan};
pub use epochs::{CurrentEpoch, JournalEnd};
pub use error::{PoolError, Result};
pub use health::SetWithout;
pub use membership::Addition;
pub use meta::MetaUsage;
pub use room::WaitingRoom;
pub use roster::{Member, Roster};
pub use scrub::{Live, ScrubHold, Scrubbed, StillWritten};
pub use sets::SlotMove;
pub use stripe_writer::{Chunk, Piece, Written};

use std::time::Duration;

use uuid::Uuid;

use crate::layout::Resiliency;
use crate::member::guard::GuardOptions;
use crate::member::superblock::{MemberId, SetId, SetRecord, SlabRef};
use crate::member::{Dimensions, PoolLock};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use buffers::Buffers;
use epochs::SuperState;
use lanes::Lanes;
pub use sets::SetUsage;
use sets::{Set, SetTable};
use space::SpaceState;

/// The members and their sets.
#[derive(Debug)]
pub struct Pool {
    members: Roster,
    sets: SetTable,
    space: Mutex<SpaceState>,
    /// Held while the slabs of a new set are made. Taken before [`Pool::space`].
    making_set: Mutex<()>,
    lanes: Lanes,
    /// Deadline and clock of the members' I/O.
    io: GuardOptions,
    buffers: Arc<Buffers>,
    superblock: Mutex<SuperState>,
    /// Rises whenever a member drops out or comes in: an epoch describes the membership of one version.
    membership: AtomicU64,
    epoch_counter: AtomicU64,
    read_only: bool,
    partial: bool,
    refuse_short: AtomicBool,
    uuid: Uuid,
    name: String,
    dimensions: Dimensions,
    resiliency: Resiliency,
    /// Holds the pool's lock on this machine.
    guard: Option<PoolLock>,
}

/// What assembly found out.
struct PoolParts {
    members: Vec<Member>,
    sets: SetTable,
    read_only: bool,
    partial: bool,
    refuse_short: bool,
    io: GuardOptions,
    state: SuperState,
}

impl Pool {
    fn from_parts(parts: PoolParts) -> Self {
        let superblock = &parts.state.superblock;
        let counter = superblock.epochs.last().map_or(0, |epoch| epoch.counter);
        Self {
            lanes: Lanes::new(&parts.io),
            io: parts.io,
            members: Roster::new(parts.members),
            sets: parts.sets,
            space: Mutex::default(),
            making_set: Mutex::default(),
            buffers: Arc::default(),
            membership: AtomicU64::new(0),
            // Sets made before the first epoch of this mount is published carry its number already.
            epoch_counter: AtomicU64::new(counter + 1),
            read_only: parts.read_only,
            partial: parts.partial,
            refuse_short: AtomicBool::new(parts.refuse_short),
            uuid: superblock.pool,
            name: superblock.name.clone(),
            dimensions: superblock.dimensions,
            resiliency: superblock.resiliency,
            superblock: Mutex::new(parts.state),
            guard: None,
        }
    }

    /// The pool's UUID.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The pool's name.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Sizes that are the same on every member.
    pub fn dimensions(&self) -> Dimensions {
        self.dimensions
    }

    /// Whether the pool was assembled read-only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Resiliency of the root directory.
    pub fn default_resiliency(&self) -> Resiliency {
        self.resiliency
    }

    /// Whether it refuses to write with less redundancy than asked for.
    pub fn refuses_short_writes(&self) -> bool {
        self.refuse_short.load(Ordering::Acquire)
    }

    /// Whether it refuses from now on to write with less redundancy than asked for; durable on all members.
    ///
    /// # Errors
    /// As [`Pool::publish`].
    pub fn refuse_short_writes(&self, end: &JournalEnd, refuse: bool) -> Result<()> {
        self.publish(end, |superblock| superblock.refuse_short_writes = refuse)?;
        self.refuse_short.store(refuse, Ordering::Release);
        Ok(())
    }

    /// All members, by number.
    pub fn members(&self) -> &Roster {
        &self.members
    }

    fn member(&self, id: MemberId) -> &Member {
        // Ids come from set records, which are checked against the member table when they are loaded.
        &self.members[usize::from(id)]
    }

    /// The time by the clock of the members' I/O.
    fn now(&self) -> Duration {
        self.io.clock.elapsed()
    }

    fn epoch_counter(&self) -> u64 {
        self.epoch_counter.load(Ordering::Acquire)
    }

    /// The slab is on a member that can be read, and was not deleted by somebody.
    fn is_well(&self, slab: &SlabRef) -> bool {
        let member = self.member(slab.member);
        member.is_here() && !member.has_lost(slab.slab)
    }

    /// Every slot of the set is on a member that takes new sets, so it may be filled further.
    fn set_may_grow(&self, set: &Set) -> bool {
        set.slots.iter().all(|slot| self.member(slot.member).takes_sets())
    }

    /// Every slot of the set is on a member that takes writes.
    fn set_is_writable(&self, set: &Set) -> bool {
        set.slots.iter().all(|slot| self.member(slot.member).is_writable())
    }

    /// The record of a set as of now; none when it was freed.
    pub fn set_record(&self, id: SetId) -> Option<SetRecord> {
        self.sets.get(id).map(|set| set.record())
    }

    /// Counts live bytes of a set. Call in the order in which the changes are committed.
    pub fn count_live(&self, id: SetId, delta: i64) {
        if let Some(set) = self.sets.get(id) {
            set.count_live(delta);
        }
    }

    /// Frees the set if nothing in it is alive and it takes no more stripes; `also_open`: even if it would.
    /// True when it is free now: its record is to be deleted in the transaction that killed it.
    pub fn free_if_dead(&self, id: SetId, also_open: bool) -> bool {
        let Some(set) = self.sets.get(id) else { return true };
        if !set.is_dead(also_open) {
            return false;
        }
        self.close_set(&set);
        self.sets.free(id);
        true
    }

    /// All data sets that were written to, in order of their numbers.
    pub fn data_sets(&self) -> Vec<SetUsage> {
        use crate::member::superblock::Purpose;
        let sets = self.sets.all();
        let written = sets.iter().filter(|set| set.purpose == Purpose::Data && set.filled() > 0);
        let mut usages: Vec<SetUsage> = written.map(|set| set.usage()).collect();
        usages.sort_by_key(|usage| usage.id);
        usages
    }

    /// How much of one set is in use; none when it was freed.
    pub fn set_usage(&self, id: SetId) -> Option<SetUsage> {
        self.sets.get(id).map(|set| set.usage())
    }

    /// Whether a range of a set's payload, in bytes, lies in stripes that were handed out.
    pub fn is_written(&self, id: SetId, address: u64, len: u64) -> bool {
        let Some(set) = self.sets.get(id) else { return false };
        let fits = address.checked_add(len).is_some_and(|end| end <= set.geometry.payload_bytes());
        let filled = set.filled();
        fits && set.geometry.runs(address, len).all(|run| run.offset + run.len <= filled)
    }

    /// Slabs that two sets have, with both.
    pub fn shared_slabs(&self) -> Vec<(SlabRef, SetId, SetId)> {
        let mut owners = std::collections::HashMap::new();
        let mut shared = Vec::new();
        for set in self.sets.all() {
            for slot in &set.slots {
                if let Some(other) = owners.insert(*slot, set.id) {
                    shared.push((*slot, other, set.id));
                }
            }
        }
        shared
    }

    /// Notes that a set can't be rewritten, because parts of it can't be read.
    pub fn mark_stuck(&self, id: SetId) {
        if let Some(set) = self.sets.get(id) {
            set.mark_stuck();
        }
    }

    /// Data sets in which nothing is alive although they would take more, and those that were closed before anything
    /// was written: freed at a checkpoint.
    pub fn idle_sets(&self) -> Vec<SetId> {
        use crate::member::superblock::Purpose;
        let dead = |set: &Arc<Set>| {
            set.purpose == Purpose::Data && set.live() <= 0 && (set.filled() > 0 || set.is_still())
        };
        self.sets.all().iter().filter(|set| dead(set)).map(|set| set.id).collect()
    }
}
