//! Which slots there are, and where they can go.

use super::chunk::Chunk;
use super::{KnownSums, ROUND_BYTES};
use crate::layout::Redundancy;
use crate::member::superblock::{MemberId, Purpose, SetId, SlabRef};
use crate::pool::Pool;
use crate::pool::sets::Set;
use crate::pool::space::Urgency;

/// Members whose free slabs differ by no more than this share (one over) are equally good to move to ...
const ALIKE_SHARE: u64 = 8;
/// ... and by no more than so many.
const ALIKE_SLABS: u64 = 4;

/// A slot of a set, for those who plan moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotInfo {
    /// The set.
    pub set: SetId,
    /// Which of its slots.
    pub slot: usize,
    /// Where it is now.
    pub place: SlabRef,
    /// What the set holds.
    pub purpose: Purpose,
    /// Bytes of the slot that were written.
    pub fill: u64,
    /// Bytes of the set's payload that are alive.
    pub live: u64,
    /// How many more slots the set could lose, as it is now; below 0 it can't be read.
    pub spare: i64,
    /// It can be moved, or is going to be able to: no other slot of the set is on its way.
    pub free: bool,
}

impl Pool {
    /// Lets a set take no more stripes. True when none is in flight any more, so that it can be moved; otherwise ask
    /// again soon.
    pub fn quiet(&self, set: SetId) -> bool {
        let Some(set) = self.sets.get(set) else { return false };
        set.seal();
        self.close_set(&set);
        set.is_still()
    }

    /// Slots for which `wanted` says so, with what is known of their sets.
    pub fn slots(&self, wanted: impl Fn(&SlabRef) -> bool) -> Vec<SlotInfo> {
        let mut found = Vec::new();
        for set in self.sets.all() {
            for (slot, _) in set.slots.iter().enumerate().filter(|(_, place)| wanted(place)) {
                found.push(self.slot_info(&set, slot));
            }
        }
        found.sort_unstable_by_key(|slot| (slot.set, slot.slot));
        found
    }

    pub(in crate::pool) fn slot_info(&self, set: &Set, slot: usize) -> SlotInfo {
        SlotInfo {
            set: set.id,
            slot,
            place: set.slots[slot],
            purpose: set.purpose,
            fill: set.filled(),
            live: set.live().max(0) as u64,
            spare: self.spare(set),
            free: !set.is_moving(),
        }
    }

    /// The members from which a slot would be read first, if it were moved now.
    pub fn sources_of(&self, slot: &SlotInfo) -> Vec<MemberId> {
        let Some(set) = self.sets.get(slot.set).filter(|set| slot.slot < set.slots.len()) else {
            return Vec::new();
        };
        let sums = KnownSums::default();
        let chunk = Chunk { set: &set, slot: slot.slot, offset: 0, len: ROUND_BYTES, sums: &sums };
        chunk.first_sources(self).into_iter().map(|slot| set.slots[slot].member).collect()
    }

    /// The slot is to be rebuilt elsewhere: its member is away or failed, or its slab is not there.
    pub fn has_lost_slot(&self, place: &SlabRef) -> bool {
        let member = self.member(place.member);
        !member.is_writable() || member.has_lost(place.slab)
    }

    /// How many more slots a set can lose, at least.
    fn spare(&self, set: &Set) -> i64 {
        let lost = set.slots.iter().filter(|place| self.has_lost_slot(place)).count() as i64;
        let tolerance = set.geometry.tolerance() as i64;
        // Copies of different columns may be lost together.
        let fatal = matches!(set.geometry.redundancy, Redundancy::Copies(_))
            && lost > tolerance
            && Self::is_readable_with(set, |member| self.member(member).is_writable());
        if fatal { 0 } else { tolerance - lost }
    }

    /// The members that a slot of this set moves to best: `prefer`, or those with the most free slabs, give or take a
    /// few, that have none of the set. Empty when no such member has room.
    pub fn targets_for(&self, set: SetId, prefer: Option<MemberId>) -> Vec<MemberId> {
        let Some(set) = self.sets.get(set) else { return Vec::new() };
        let state = self.space.lock();
        let room = |id: MemberId| {
            let member = self.members().get(usize::from(id))?;
            let outside = set.slots.iter().all(|place| place.member != id);
            let held = self.held_back(member, Urgency::Flush, &state);
            let free = member.free_slabs().saturating_sub(held);
            (outside && member.takes_sets() && free > 0).then_some(free)
        };
        if let Some(id) = prefer.filter(|&id| room(id).is_some()) {
            return vec![id];
        }
        let ids = self.members().iter().map(|member| member.id);
        let with_room: Vec<(u64, MemberId)> = ids.filter_map(|id| Some((room(id)?, id))).collect();
        let most = with_room.iter().map(|(free, _)| *free).max().unwrap_or(0);
        let enough = most - (most / ALIKE_SHARE).max(ALIKE_SLABS).min(most);
        with_room.into_iter().filter(|(free, _)| *free >= enough).map(|(_, id)| id).collect()
    }
}
