//! How much room there is: what is left for whom, what can still be written, how short it is getting.

use std::collections::{HashMap, HashSet};

use super::Pool;
use super::roster::Member;
use super::space::{Key, PADDING_BYTES, SpaceState, Urgency};
use super::status::Space;
use crate::layout::{Resiliency, usable_bytes};
use crate::member::superblock::{MemberId, Purpose};

/// Room that comes with the next checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRoom {
    /// Bytes of slabs.
    pub bytes: u64,
    /// Of all slabs, in thousandths.
    pub permille: u64,
}

/// What compaction could give back.
#[derive(Debug, Default)]
struct Reclaimable {
    /// Slabs of each member in sets that gain from being rewritten.
    slabs: HashMap<MemberId, u64>,
    /// Bytes that are alive in them, by what they are to be written as.
    live: HashMap<Resiliency, u64>,
}

impl Pool {
    /// Room for `resiliency`, in bytes of payload. What the compactor can give back counts as available, since
    /// a write that finds no room waits for it.
    pub fn space(&self, resiliency: &Resiliency) -> Space {
        self.refresh_rooms();
        let reclaimable = self.reclaimable();
        let state = self.space.lock();
        let slab_bytes = self.dimensions().slab_bytes;
        let key = Key::hot(resiliency);
        let cold = state.classes.get(&Key { cold: true, ..key }).map_or(0, |class| class.room());
        let hot = state.classes.get(&key);
        let (room, reserved) = hot.map_or((0, 0), |class| (class.room(), class.reserved + PADDING_BYTES));
        let room = room + cold;
        let usable = |urgency| {
            let free = self.free_by_member(&state, urgency, &HashMap::new());
            let plain = usable_bytes(&free, resiliency, slab_bytes);
            let all = self.free_by_member(&state, urgency, &reclaimable.slabs);
            plain.max(self.usable_after(&all, &reclaimable.live, resiliency))
        };
        let slabs_of = |member: &Member| if member.takes_sets() { member.slab_counts().0 } else { 0 };
        let all: Vec<u64> = self.members().iter().map(|member| slabs_of(member)).collect();
        let available = (usable(Urgency::Ordinary) + room).saturating_sub(reserved);
        let everything = usable(Urgency::Metadata) + room;
        let free = everything.saturating_sub(reserved.saturating_sub(PADDING_BYTES)).max(available);
        Space { total: usable_bytes(&all, resiliency, slab_bytes).max(free), free, available }
    }

    /// Payload for `resiliency` in these free slabs, once what is alive in rewritten sets lies there too.
    fn usable_after(&self, free: &[u64], live: &HashMap<Resiliency, u64>, resiliency: &Resiliency) -> u64 {
        let slab_bytes = self.dimensions().slab_bytes;
        let all = u128::from(usable_bytes(free, resiliency, slab_bytes));
        let mut left = all;
        for (kind, bytes) in live {
            // Padding of the batches, and the last set, which is not full.
            let bytes = u128::from(bytes + bytes / 128);
            let same = u128::from(usable_bytes(free, kind, slab_bytes));
            // As a share of all the room, since another layout takes more or less of it.
            left = left.saturating_sub((bytes * all).checked_div(same).unwrap_or(all));
        }
        left as u64
    }

    fn free_by_member(
        &self,
        state: &SpaceState,
        urgency: Urgency,
        more: &HashMap<MemberId, u64>,
    ) -> Vec<u64> {
        let waiting = self.waiting_by_member();
        let of =
            |counts: &HashMap<MemberId, u64>, member: &Member| counts.get(&member.id).copied().unwrap_or(0);
        let free = |member: &Member| {
            let free = member.free_slabs() + of(&waiting, member) + of(more, member);
            free.saturating_sub(self.held_back(member, urgency, state))
        };
        self.members().iter().map(|member| if member.takes_sets() { free(member) } else { 0 }).collect()
    }

    fn waiting_by_member(&self) -> HashMap<MemberId, u64> {
        let mut waiting = HashMap::new();
        for slot in self.sets.waiting_slabs() {
            *waiting.entry(slot.member).or_default() += 1;
        }
        waiting
    }

    fn reclaimable(&self) -> Reclaimable {
        let mut found = Reclaimable::default();
        for set in self.sets.all().into_iter().filter(|set| set.purpose == Purpose::Data) {
            let usage = set.usage();
            if usage.open || !usage.gains() {
                continue;
            }
            *found.live.entry(usage.resiliency).or_default() += usage.live.max(0) as u64;
            for slot in &set.slots {
                *found.slabs.entry(slot.member).or_default() += 1;
            }
        }
        found
    }

    /// Slabs of `member` that a request of this urgency leaves alone.
    pub(super) fn held_back(&self, member: &Member, urgency: Urgency, state: &SpaceState) -> u64 {
        let (slabs, _) = member.slab_counts();
        let members = self.members().iter().filter(|member| member.takes_sets()).count().max(1) as u64;
        let copies = self.metadata_copies() as u64;
        let metadata = (state.metadata_bytes * copies).div_ceil(members * self.dimensions().slab_bytes);
        let reserve = (slabs / 50).max(2);
        // One set of every layout in use, for the compactor.
        let compact = state.layouts().len().max(1) as u64;
        match urgency {
            Urgency::Ordinary => reserve + compact + metadata,
            Urgency::Flush => reserve.div_ceil(2) + compact + metadata,
            // Metadata may have grown by deleting and cutting: one checkpoint is left in any case.
            Urgency::Compact => metadata.div_ceil(2),
            Urgency::Metadata => 0,
        }
    }

    /// How much of the room for file data is left, in thousandths: of that layout in use for which it is least.
    /// What comes with the next checkpoints counts, what the compactor could give back does not.
    pub fn free_permille(&self) -> u64 {
        self.refresh_rooms();
        let state = self.space.lock();
        let slab_bytes = self.dimensions().slab_bytes;
        let free = self.free_by_member(&state, Urgency::Ordinary, &HashMap::new());
        let slabs_of = |member: &Member| if member.takes_sets() { member.slab_counts().0 } else { 0 };
        let all: Vec<u64> = self.members().iter().map(|member| slabs_of(member)).collect();
        let share = |resiliency: &Resiliency| {
            let total = usable_bytes(&all, resiliency, slab_bytes).max(1);
            usable_bytes(&free, resiliency, slab_bytes).saturating_mul(1000) / total
        };
        state.layouts().iter().map(share).min().unwrap_or(1000)
    }

    /// Bytes that the compactor can write now in this layout.
    pub fn room_to_compact(&self, resiliency: &Resiliency) -> u64 {
        let state = self.space.lock();
        let cold = state.classes.get(&Key::cold(resiliency)).map_or(0, |class| class.room());
        let free: Vec<u64> = self
            .members()
            .iter()
            .map(|member| match member.takes_sets() {
                true => member.free_slabs().saturating_sub(self.held_back(member, Urgency::Compact, &state)),
                false => 0,
            })
            .collect();
        cold + usable_bytes(&free, resiliency, self.dimensions().slab_bytes)
    }

    /// Bytes of metadata that can still be written: in sets that are being filled, and in free slabs, those that are
    /// held back from others included. What waits for a checkpoint to become free does not count.
    pub fn metadata_room(&self) -> u64 {
        self.refresh_rooms();
        let wanted = self.metadata_resiliency();
        let writable: Vec<_> = self.members().iter().filter(|member| member.takes_sets()).collect();
        let copies = usize::from(wanted.copies).min(writable.len()) as u8;
        if copies < wanted.copies && self.refuses_short_writes() {
            return 0;
        }
        let free: Vec<u64> = writable.iter().map(|member| member.free_slabs()).collect();
        let in_slabs = usable_bytes(&free, &self.metadata_layout(copies), self.dimensions().slab_bytes);
        let state = self.space.lock();
        let open =
            state.classes.get(&Key::new(&wanted, Purpose::Meta, Urgency::Metadata)).map_or(0, |class| {
                class.open.iter().filter(|set| self.set_may_grow(set)).map(|set| set.room()).sum()
            });
        in_slabs + open
    }

    /// Slabs of freed sets that can be used again after a checkpoint or two.
    pub fn waiting_room(&self) -> WaitingRoom {
        let slabs = self.sets.waiting_slabs().len() as u64;
        let writable = self.members().iter().filter(|member| member.is_writable());
        let all: u64 = writable.map(|member| member.slab_counts().0).sum();
        WaitingRoom { bytes: slabs * self.dimensions().slab_bytes, permille: slabs * 1000 / all.max(1) }
    }

    /// Slabs that are free on members that take writes.
    pub fn free_slabs(&self) -> u64 {
        let writable = self.members().iter().filter(|member| member.takes_sets());
        writable.map(|member| member.free_slabs()).sum()
    }
}

impl SpaceState {
    /// The layouts of file data in use.
    fn layouts(&self) -> HashSet<Resiliency> {
        let data = self.classes.keys().filter(|key| key.purpose == Purpose::Data);
        data.map(|key| key.resiliency).collect()
    }
}
