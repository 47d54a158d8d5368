//! Numbers for those who plan moves: what there is room for, and which sets gain from being written anew.

use std::collections::{HashMap, HashSet};

use super::Pool;
use super::moving::SlotInfo;
use super::roster::Member;
use super::sets::Set;
use super::space::Urgency;
use crate::layout::{Redundancy, Resiliency, Width, usable_bytes, width_for};
use crate::member::superblock::{MemberId, Purpose, SetId};
use crate::sync::Arc;

impl Pool {
    /// The layouts that file data has, and the one that new data gets.
    pub fn layouts(&self) -> HashSet<Resiliency> {
        let sets = self.sets.all();
        let data = sets.iter().filter(|set| set.purpose == Purpose::Data && set.live() > 0);
        data.map(|set| set.resiliency).chain([self.default_resiliency()]).collect()
    }

    /// Slabs that can be moved to, of each member that takes sets. What waits for a checkpoint is among them.
    pub fn room_by_member(&self) -> HashMap<MemberId, u64> {
        self.refresh_rooms();
        let state = self.space.lock();
        let mut room = self.free_for_moves();
        for (id, free) in &mut room {
            *free = free.saturating_sub(self.held_back(self.member(*id), Urgency::Flush, &state));
        }
        room
    }

    /// Free slabs of each member that takes sets, with what waits for a checkpoint.
    fn free_for_moves(&self) -> HashMap<MemberId, u64> {
        let takes = self.members().iter().filter(|member| member.takes_sets());
        let mut free: HashMap<MemberId, u64> = takes.map(|member| (member.id, member.free_slabs())).collect();
        for slot in self.sets.waiting_slabs() {
            free.entry(slot.member).and_modify(|free| *free += 1);
        }
        free
    }

    /// Slabs that each member offers which takes sets, and how many of them are in use. What waits for a checkpoint is
    /// not in use.
    pub fn use_by_member(&self) -> Vec<(MemberId, u64, u64)> {
        let takes = self.members().iter().filter(|member| member.takes_sets());
        let mut members: Vec<(MemberId, u64, u64)> = takes
            .map(|member| {
                let (slabs, used) = member.slab_counts();
                (member.id, slabs, used)
            })
            .collect();
        for slot in self.sets.waiting_slabs() {
            if let Some((_, _, used)) = members.iter_mut().find(|(id, ..)| *id == slot.member) {
                *used = used.saturating_sub(1);
            }
        }
        members
    }

    /// Bytes of data that the members which take writes could hold in all, without those in `out`.
    pub fn capacity_without(&self, out: &[MemberId], resiliency: &Resiliency) -> u64 {
        self.refresh_rooms();
        let stays = |member: &&Arc<Member>| member.is_writable() && !out.contains(&member.id);
        let slabs: Vec<u64> =
            self.members().iter().filter(stays).map(|member| member.slab_counts().0).collect();
        usable_bytes(&slabs, resiliency, self.dimensions().slab_bytes)
    }

    /// Bytes of data of one layout that the pool holds and can take with the sets as they are, and what it would be if
    /// they were all made anew.
    pub fn capacity_of_sets(&self, resiliency: &Resiliency) -> (u64, u64) {
        let slab_bytes = self.dimensions().slab_bytes;
        let mut free = self.free_for_moves();
        let usable = |free: &HashMap<MemberId, u64>| {
            let free: Vec<u64> = free.values().copied().collect();
            usable_bytes(&free, resiliency, slab_bytes)
        };
        let mut now = usable(&free);
        for set in self.data_of(resiliency) {
            now += set.geometry.payload_bytes();
            for place in &set.slots {
                free.entry(place.member).and_modify(|free| *free += 1);
            }
        }
        (now, usable(&free))
    }

    fn data_of(&self, resiliency: &Resiliency) -> Vec<Arc<Set>> {
        let mut sets = self.sets.all();
        sets.retain(|set| set.purpose == Purpose::Data && set.resiliency == *resiliency);
        sets
    }

    /// The shape of a new set of this layout, members taken as they come.
    pub(super) fn width_now(&self, resiliency: &Resiliency) -> Option<Width> {
        let eligible = self.members().iter().filter(|member| member.takes_sets()).count();
        width_for(resiliency, eligible)
    }

    /// Whether what is alive in the set could be written anew now, with full redundancy.
    pub fn has_room_for_new(&self, set: SetId) -> bool {
        let Some(set) = self.sets.get(set) else { return false };
        let full = self.width_now(&set.resiliency).is_some_and(|width| !width.short);
        full && self.room_to_compact(&set.resiliency) >= set.live().max(0) as u64
    }

    /// Data sets with less redundancy than their layout asks for, that could have it now.
    pub fn sets_to_widen(&self) -> Vec<SlotInfo> {
        self.data_sets_that(|set| set.short && self.has_room_for_new(set.id))
    }

    /// Data sets with fewer columns than a new set of their layout would have, the narrowest first.
    pub fn narrow_sets(&self, resiliency: &Resiliency) -> Vec<SlotInfo> {
        let width = self.width_now(resiliency);
        let mut sets = self.data_sets_that(|set| {
            let narrower = width.is_some_and(|width| set.geometry.columns < width.columns);
            set.resiliency == *resiliency && narrower
        });
        let columns = |slot: &SlotInfo| self.sets.get(slot.set).map_or(0, |set| set.geometry.columns);
        sets.sort_by_key(|slot| (columns(slot), slot.set));
        sets
    }

    fn data_sets_that(&self, wanted: impl Fn(&Set) -> bool) -> Vec<SlotInfo> {
        let sets = self.sets.all();
        let data = sets.iter().filter(|set| set.purpose == Purpose::Data && set.live() > 0);
        let mut found: Vec<SlotInfo> =
            data.filter(|set| wanted(set)).map(|set| self.slot_info(set, 0)).collect();
        found.sort_unstable_by_key(|slot| slot.set);
        found
    }

    /// Metadata sets with fewer copies than new ones would have.
    pub fn thin_metadata(&self) -> HashSet<SetId> {
        let eligible = self.members().iter().filter(|member| member.takes_sets()).count();
        let copies = self.metadata_copies().min(eligible);
        let thin = |set: &&Arc<Set>| match set.geometry.redundancy {
            Redundancy::Copies(own) => usize::from(own) < copies,
            Redundancy::Parity(_) => false,
        };
        let sets = self.sets.all();
        let metadata = sets.iter().filter(|set| set.purpose == Purpose::Meta && set.live() > 0);
        metadata.filter(thin).map(|set| set.id).collect()
    }

    /// Nothing in the set is alive, and it takes no more: it goes with a checkpoint or two.
    pub fn is_dead(&self, set: SetId) -> bool {
        let Some(set) = self.sets.get(set) else { return true };
        let dead = set.is_still() && set.live() <= 0;
        if dead && set.purpose == Purpose::Meta {
            self.free_if_dead(set.id, true);
        }
        dead
    }
}
