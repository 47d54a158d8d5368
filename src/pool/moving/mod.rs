//! Moving slots of sets to slabs on other members: because a member is to go, is gone, or has more than its share.
//!
//! A set whose slot moves takes no more stripes, and those in flight end first: up to its fill mark it then stays as it
//! is. Each byte up to there is copied from the old slab, or, where that can't be read or does not match its
//! checksum, rebuilt from the other slots; dead bytes too, since they are part of parity. Only when the new slab is
//! synced is the set's record changed ([`Move::slot_move`], committed by the store), and the old slab is used again
//! when no root that recovery could use has it: as with sets that are freed.
//!
//! Several slots move side by side in rounds ([`Copier`]): one read of each member they need, then one write each,
//! while the next round is read. Whoever drops a [`Move`] before it is committed has changed nothing.

mod chunk;
mod rounds;
mod select;
mod sums;

pub use rounds::Copier;
pub use select::SlotInfo;
pub use sums::KnownSums;

use super::Pool;
use super::error::{PoolError, Result};
use super::sets::{Set, SlotMove};
use super::space::Urgency;
use crate::member::MemberError;
use crate::member::superblock::{MemberId, Purpose, SetId, SlabRef};
use crate::sync::Arc;
use crate::units::MIB;
use chunk::Chunk;

/// Bytes of a slot that one round copies. A rotation is a multiple of it, or a slab smaller than it.
const ROUND_BYTES: u64 = 2 * MIB;

/// Sectors that neither the old slab nor the other slots give back. Reading them gives an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unsaved {
    /// The set.
    pub set: SetId,
    /// Address in its payload, in bytes.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A slot on its way to another slab.
#[derive(Debug)]
pub struct Move {
    pool: Arc<Pool>,
    set: Arc<Set>,
    slot: usize,
    to: SlabRef,
    sums: KnownSums,
    done: u64,
    end: u64,
    unsaved: Vec<Unsaved>,
    stage: Stage,
    /// How often the new member had dropped out when this began.
    departures: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Copying,
    Synced,
    Failed,
    Committed,
}

type Outcome = std::result::Result<(), MemberError>;

impl Move {
    /// Takes a slab on member `to` for a slot of a set that takes no more stripes ([`Pool::quiet`]). `sums`: of
    /// what is alive in the set, as of then. None when the set is not as the caller thinks, or there is no room.
    ///
    /// # Errors
    /// Those of making the slab for which no member is to blame.
    pub fn begin(
        pool: &Arc<Pool>,
        set: SetId,
        slot: usize,
        to: MemberId,
        sums: KnownSums,
    ) -> Result<Option<Self>> {
        if pool.read_only() {
            return Err(PoolError::ReadOnly);
        }
        let Some(set) = pool.sets.get(set) else { return Ok(None) };
        let there = slot < set.slots.len() && set.slots.iter().all(|place| place.member != to);
        if !there || !set.is_still() || !set.begin_moving() {
            return Ok(None);
        }
        // Another move may have ended between the look and the claim.
        let current = pool.sets.get(set.id).is_some_and(|now| Arc::ptr_eq(&now, &set));
        let slab = if current { pool.take_slab_on(to) } else { Ok(None) };
        let Ok(Some(slab)) = slab else {
            set.end_moving();
            return slab.map(|_| None);
        };
        let end = set.filled();
        let to = SlabRef { member: to, slab };
        let pool = Arc::clone(pool);
        let (done, unsaved, stage) = (0, Vec::new(), Stage::Copying);
        let departures = pool.member(to.member).departures();
        Ok(Some(Self { pool, set, slot, to, sums, done, end, unsaved, stage, departures }))
    }

    /// What it becomes when it is committed. None before all is copied and synced.
    pub fn slot_move(&self) -> Option<SlotMove> {
        let from = self.set.slots[self.slot];
        let moved = SlotMove { set: self.set.id, slot: self.slot, from, to: self.to };
        (self.stage == Stage::Synced).then_some(moved)
    }

    /// Notes that the set's record says so now: the slab belongs to the set.
    pub fn committed(&mut self) {
        self.stage = Stage::Committed;
    }

    /// Everything is copied and synced.
    pub fn is_copied(&self) -> bool {
        self.stage == Stage::Synced
    }

    /// The new member failed: the move comes to nothing.
    pub fn has_failed(&self) -> bool {
        self.stage == Stage::Failed
    }

    /// The members that the next round reads from and writes to.
    pub fn members(&self) -> (Vec<MemberId>, MemberId) {
        let sources = if self.is_copying() { self.chunk().first_sources(&self.pool) } else { Vec::new() };
        (sources.into_iter().map(|slot| self.set.slots[slot].member).collect(), self.to.member)
    }

    /// The old slab is on a member that is away and may come back: with what could not be saved, perhaps.
    pub fn may_return(&self) -> bool {
        let from = self.set.slots[self.slot];
        self.pool.has_lost_slot(&from) && self.pool.member(from.member).is_active()
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The set.
    pub fn set(&self) -> SetId {
        self.set.id
    }

    /// What the set holds.
    pub fn purpose(&self) -> Purpose {
        self.set.purpose
    }

    /// What could not be saved.
    pub fn unsaved(&self) -> &[Unsaved] {
        &self.unsaved
    }

    fn chunk(&self) -> Chunk<'_> {
        let len = ROUND_BYTES.min(self.set.geometry.rotation_bytes()).min(self.end - self.done);
        Chunk { set: &self.set, slot: self.slot, offset: self.done, len, sums: &self.sums }
    }

    fn is_copying(&self) -> bool {
        self.stage == Stage::Copying && self.done < self.end
    }

    /// Everything is written, and is to be synced.
    fn is_written(&self) -> bool {
        self.stage == Stage::Copying && self.done == self.end
    }
}

impl Drop for Move {
    fn drop(&mut self) {
        self.set.end_moving();
        if self.stage != Stage::Committed {
            self.pool.return_slabs(&[self.to]);
        }
    }
}

impl Pool {
    /// Takes and makes a slab on a member. None when it is full or fails.
    fn take_slab_on(&self, id: MemberId) -> Result<Option<crate::member::SlabNo>> {
        let member = self.member(id);
        let taken = {
            // Held until the slab is there: see [`Pool::set_draining`].
            let state = self.space.lock();
            let held = self.held_back(member, Urgency::Flush, &state);
            if member.takes_sets() { self.take_and_make_slab(member, held) } else { None }
        };
        let Some((slab, made)) = taken else { return Ok(None) };
        match made {
            Ok(()) => Ok(Some(slab)),
            Err(error) => {
                self.return_slabs(&[SlabRef { member: id, slab }]);
                self.slab_failed(id, &error);
                if error.is_own_shortage() { Err(error.into()) } else { Ok(None) }
            }
        }
    }

    /// Puts the new slab of a slot into the set table. The caller makes that durable: with the record that the
    /// store commits at the same moment, or for metadata with the next root. False when the set changed meanwhile.
    pub fn replace_slot(&self, moved: &SlotMove) -> bool {
        self.sets.replace_slot(moved)
    }
}
