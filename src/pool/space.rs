//! Handing out space: new sets on the emptiest members, reservations backed by sets made ahead, and
//! what is left for whom.

use std::collections::{HashMap, VecDeque};

use super::Pool;
use super::error::{PoolError, Result};
use super::roster::Member;
use super::sets::Set;
use super::status::Space;
use crate::layout::{Geometry, Resiliency, Stripe, Width, choose, usable_bytes, width_for};
use crate::limits::STRIPE_MAX_BYTES;
use crate::member::superblock::{Purpose, SetRecord, SlabRef};
use crate::member::{DiskKind, MemberError};
use crate::sync::Arc;
use crate::units::MIB;

/// Room kept in each class beyond what is reserved: the padding of the stripes of one flush.
const PADDING_BYTES: u64 = MIB;

/// Whose request for space it is; each may go deeper into the reserve than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// New data: leaves the reserve alone.
    Ordinary,
    /// A flush of data that was promised space: half of the reserve, where its own estimate was short.
    Flush,
    /// Metadata of a checkpoint: all of it.
    Metadata,
}

/// Sets being filled, by what they hold.
#[derive(Debug, Default)]
pub struct SpaceState {
    classes: HashMap<(Resiliency, Purpose), Class>,
    /// Number within the epoch of the last set made.
    last_set: u64,
    /// Bytes of metadata that the store wants to be able to write at any time.
    metadata_bytes: u64,
}

#[derive(Debug, Default)]
struct Class {
    /// Sets that take stripes now.
    open: Vec<Arc<Set>>,
    /// Sets made ahead, for reservations.
    prepared: VecDeque<Arc<Set>>,
    reserved: u64,
}

impl Class {
    fn room(&self) -> u64 {
        self.open.iter().chain(&self.prepared).map(|set| set.room()).sum()
    }
}

/// A stripe handed out, with its place in the writer's stream.
#[derive(Debug)]
pub struct Taken {
    /// The set.
    pub set: Arc<Set>,
    /// The range of its slots.
    pub stripe: Stripe,
    /// Offset of its first byte in the stream.
    pub at: u64,
}

impl Pool {
    /// Sets space aside for `bytes` of file data that are about to become dirty.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] or [`PoolError::ShortRefused`]. Flushing turns reservations into what is
    /// really used, and checkpoints free sets: try again after those.
    pub fn reserve(&self, resiliency: &Resiliency, bytes: u64) -> Result<()> {
        if self.read_only() {
            return Err(PoolError::ReadOnly);
        }
        let mut state = self.space.lock();
        loop {
            let class = state.classes.entry((*resiliency, Purpose::Data)).or_default();
            self.drop_unusable(class);
            if class.room() >= class.reserved + bytes + PADDING_BYTES {
                class.reserved += bytes;
                return Ok(());
            }
            let set = self.make_set(&mut state, resiliency, Purpose::Data, Urgency::Ordinary)?;
            let class = state.classes.entry((*resiliency, Purpose::Data)).or_default();
            class.prepared.push_back(set);
        }
    }

    /// Gives a reservation back: the data was written, or dropped.
    pub fn release(&self, resiliency: &Resiliency, bytes: u64) {
        let mut state = self.space.lock();
        if let Some(class) = state.classes.get_mut(&(*resiliency, Purpose::Data)) {
            class.reserved = class.reserved.saturating_sub(bytes);
        }
    }

    /// Says how much metadata a checkpoint may have to write; the reserve grows with it.
    pub fn expect_metadata(&self, bytes: u64) {
        self.space.lock().metadata_bytes = bytes;
    }

    /// Bytes of metadata that can still be written: in sets that are being filled, and in free slabs, those that are
    /// held back from others included. What waits for a checkpoint to become free does not count.
    pub fn metadata_room(&self) -> u64 {
        self.refresh_rooms();
        let wanted = self.metadata_resiliency();
        let writable: Vec<_> = self.members().iter().filter(|member| member.is_writable()).collect();
        let copies = usize::from(wanted.copies).min(writable.len()) as u8;
        if copies < wanted.copies && self.refuses_short_writes() {
            return 0;
        }
        let free: Vec<u64> = writable.iter().map(|member| member.free_slabs()).collect();
        let in_slabs = usable_bytes(&free, &self.metadata_layout(copies), self.dimensions().slab_bytes);
        let state = self.space.lock();
        let open = state.classes.get(&(wanted, Purpose::Meta)).map_or(0, |class| {
            class.open.iter().filter(|set| self.set_is_writable(set)).map(|set| set.room()).sum()
        });
        in_slabs + open
    }

    /// Hands out stripes for a stream of `total` bytes (a multiple of the sector).
    pub(super) fn take_stripes(
        &self,
        resiliency: &Resiliency,
        purpose: Purpose,
        urgency: Urgency,
        total: u64,
    ) -> Result<Vec<Taken>> {
        let mut taken: Vec<Taken> = Vec::new();
        let mut at = 0;
        let mut state = self.space.lock();
        while at < total {
            let class = state.classes.entry((*resiliency, purpose)).or_default();
            self.drop_unusable(class);
            if let Some((set, stripe)) = take_from_open(class, total - at) {
                at += stripe.data_bytes(&set.geometry);
                let start = at - stripe.data_bytes(&set.geometry);
                taken.push(Taken { set, stripe, at: start });
                continue;
            }
            if let Some(set) = class.prepared.pop_front() {
                class.open.push(set);
                continue;
            }
            match self.make_set(&mut state, resiliency, purpose, urgency) {
                Ok(set) => state.classes.entry((*resiliency, purpose)).or_default().open.push(set),
                Err(error) => {
                    taken.iter().for_each(|taken| taken.set.written());
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Takes up filling a set where it was left at the last unmount or crash.
    pub(super) fn reopen_set(&self, set: &Arc<Set>) {
        if set.room() > 0 && self.set_is_writable(set) {
            let mut state = self.space.lock();
            state.classes.entry((set.resiliency, set.purpose)).or_default().open.push(Arc::clone(set));
        }
    }

    /// Forgets a freed set as a place to write to.
    pub(super) fn close_set(&self, set: &Set) {
        let mut state = self.space.lock();
        if let Some(class) = state.classes.get_mut(&(set.resiliency, set.purpose)) {
            class.open.retain(|open| open.id != set.id);
        }
    }

    /// Gives the slabs of sets back that were freed two checkpoints ago, or never written.
    pub(super) fn return_slabs(&self, set: &Set) {
        for slot in &set.slots {
            let member = self.member(slot.member);
            if let (true, Some(disk)) = (member.is_writable() && member.makes_slabs(), &member.disk)
                && let Err(error) = disk.delete_slab(slot.slab)
            {
                log::warn!("slab {} is free but stays allocated: {error}", slot.slab);
            }
            member.return_slab(slot.slab);
        }
    }

    /// Room for `resiliency`, in bytes of payload.
    pub fn space(&self, resiliency: &Resiliency) -> Space {
        self.refresh_rooms();
        let state = self.space.lock();
        let slab_bytes = self.dimensions().slab_bytes;
        let waiting = self.waiting_by_member();
        let free = |urgency| -> Vec<u64> {
            self.members()
                .iter()
                .map(|member| {
                    let free = member.free_slabs() + waiting.get(&member.id).copied().unwrap_or(0);
                    if member.is_writable() {
                        free.saturating_sub(self.held_back(member, urgency, &state))
                    } else {
                        0
                    }
                })
                .collect()
        };
        let (room, reserved) = state
            .classes
            .get(&(*resiliency, Purpose::Data))
            .map_or((0, 0), |class| (class.room(), class.reserved + PADDING_BYTES));
        let ordinary = usable_bytes(&free(Urgency::Ordinary), resiliency, slab_bytes);
        let everything = usable_bytes(&free(Urgency::Metadata), resiliency, slab_bytes);
        let slabs_of = |member: &Member| if member.is_writable() { member.slab_counts().0 } else { 0 };
        let all: Vec<u64> = self.members().iter().map(|member| slabs_of(member)).collect();
        let available = (ordinary + room).saturating_sub(reserved);
        let free = (everything + room).saturating_sub(reserved.saturating_sub(PADDING_BYTES)).max(available);
        Space { total: usable_bytes(&all, resiliency, slab_bytes).max(free), free, available }
    }

    /// Slabs of `member` that a request of this urgency leaves alone.
    fn held_back(&self, member: &Member, urgency: Urgency, state: &SpaceState) -> u64 {
        let (slabs, _) = member.slab_counts();
        let members = self.members().iter().filter(|member| member.is_writable()).count().max(1) as u64;
        let copies = self.metadata_copies() as u64;
        let metadata = (state.metadata_bytes * copies).div_ceil(members * self.dimensions().slab_bytes);
        let reserve = (slabs / 50).max(2) + metadata;
        match urgency {
            Urgency::Ordinary => reserve,
            Urgency::Flush => reserve.div_ceil(2),
            Urgency::Metadata => 0,
        }
    }

    /// Makes a set on the members with the most free space.
    fn make_set(
        &self,
        state: &mut SpaceState,
        resiliency: &Resiliency,
        purpose: Purpose,
        urgency: Urgency,
    ) -> Result<Arc<Set>> {
        loop {
            self.refresh_rooms();
            let held: Vec<u64> =
                self.members().iter().map(|member| self.held_back(member, urgency, state)).collect();
            let (width, chosen) = self.choose(resiliency, &held)?;
            match self.take_slabs(&chosen, &held)? {
                Some(slots) => return self.register_set(state, resiliency, purpose, width, slots),
                None => continue,
            }
        }
    }

    /// Width and members of a new set.
    fn choose(&self, resiliency: &Resiliency, held: &[u64]) -> Result<(Width, Vec<usize>)> {
        let free: Vec<u64> = self
            .members()
            .iter()
            .zip(held)
            .map(
                |(member, held)| {
                    if member.is_writable() { member.free_slabs().saturating_sub(*held) } else { 0 }
                },
            )
            .collect();
        if let Some(choice) = choose(&free, resiliency).filter(|(width, _)| !width.short) {
            return Ok(choice);
        }
        // Full members are no reason to write with less redundancy; missing ones are.
        let writable = self.members().iter().filter(|member| member.is_writable()).count();
        if writable == 0 {
            return Err(PoolError::NoWritableMember);
        }
        if writable >= resiliency.min_members() {
            return Err(PoolError::NoSpace { resiliency: *resiliency });
        }
        if self.refuses_short_writes() {
            return Err(PoolError::ShortRefused { resiliency: *resiliency });
        }
        let mut with_room: Vec<usize> = (0..free.len()).filter(|&index| free[index] > 0).collect();
        with_room.sort_by_key(|&index| std::cmp::Reverse(free[index]));
        let width =
            width_for(resiliency, with_room.len()).ok_or(PoolError::NoSpace { resiliency: *resiliency })?;
        with_room.truncate(width.slots());
        Ok((width, with_room))
    }

    /// Takes and makes one slab on each chosen member. None when one turned out to be full or to fail:
    /// choose again.
    fn take_slabs(&self, chosen: &[usize], held: &[u64]) -> Result<Option<Vec<SlabRef>>> {
        let mut slots: Vec<SlabRef> = Vec::with_capacity(chosen.len());
        for &index in chosen {
            let member = &self.members()[index];
            let Some(slab) = member.take_slab(held[index]) else {
                member.mark_full();
                self.give_up(&slots);
                return Ok(None);
            };
            slots.push(SlabRef { member: member.id, slab });
            let made = match &member.disk {
                Some(disk) => disk.create_slab(slab),
                None => Err(MemberError::NoSlab { path: member.path.clone(), slab }),
            };
            match made {
                Ok(()) => {}
                Err(MemberError::NoSpace { .. }) => {
                    self.give_up(&slots);
                    member.mark_full();
                    return Ok(None);
                }
                Err(error) => {
                    self.give_up(&slots);
                    self.slab_failed(member.id, &error);
                    return if error.is_own_shortage() { Err(error.into()) } else { Ok(None) };
                }
            }
        }
        Ok(Some(slots))
    }

    fn give_up(&self, slots: &[SlabRef]) {
        for slot in slots {
            let member = self.member(slot.member);
            if let (true, Some(disk)) = (member.makes_slabs(), &member.disk)
                && let Err(error) = disk.delete_slab(slot.slab)
            {
                log::warn!("slab {} is free but stays allocated: {error}", slot.slab);
            }
            member.return_slab(slot.slab);
        }
    }

    fn register_set(
        &self,
        state: &mut SpaceState,
        resiliency: &Resiliency,
        purpose: Purpose,
        width: Width,
        slots: Vec<SlabRef>,
    ) -> Result<Arc<Set>> {
        state.last_set += 1;
        let record = SetRecord {
            id: (self.epoch_counter() << 32) | state.last_set,
            purpose,
            geometry: Geometry {
                redundancy: width.redundancy,
                columns: width.columns,
                interleave: resiliency.interleave,
                slab_bytes: self.dimensions().slab_bytes,
                first: state.last_set as u32,
            },
            resiliency: *resiliency,
            slots,
            fill: 0,
            sealed: false,
            short: width.short,
            live: 0,
        };
        if width.short {
            log::warn!("too few members are left: new {resiliency} data is written with less redundancy");
        }
        let set = Arc::new(Set::new(&record, true));
        self.sets.insert(Arc::clone(&set));
        Ok(set)
    }

    /// Closes sets that lost a member: full ones, sealed ones, and those no longer writable.
    fn drop_unusable(&self, class: &mut Class) {
        class.open.retain(|set| {
            let usable = self.set_is_writable(set);
            if !usable {
                set.seal();
            }
            usable && set.room() > 0
        });
        let (keep, lost): (VecDeque<_>, VecDeque<_>) =
            class.prepared.drain(..).partition(|set| self.set_is_writable(set));
        class.prepared = keep;
        for set in lost {
            self.sets.forget(set.id);
            self.return_slabs(&set);
        }
    }

    /// Sets made ahead and never written are given back: at unmount, and when room is short.
    pub(super) fn drop_prepared(&self) {
        let mut state = self.space.lock();
        for class in state.classes.values_mut() {
            for set in std::mem::take(&mut class.prepared) {
                self.sets.forget(set.id);
                self.return_slabs(&set);
            }
        }
    }

    /// Asks directories how much room they have now. Members on one file system share what is free there.
    pub(super) fn refresh_rooms(&self) {
        let mut sharing: HashMap<u64, u64> = HashMap::new();
        let directories: Vec<_> = self
            .members()
            .iter()
            .filter(|member| member.is_writable())
            .filter_map(|member| member.disk.as_ref().map(|disk| (member, disk)))
            .filter(|(_, disk)| disk.kind() == DiskKind::Directory)
            .collect();
        for (_, disk) in &directories {
            *sharing.entry(disk.device_id()).or_default() += 1;
        }
        for (member, disk) in directories {
            match disk.room() {
                Ok(room) => {
                    let (_, used) = member.slab_counts();
                    let sharers = sharing.get(&disk.device_id()).copied().unwrap_or(1);
                    let spare = room.below.unwrap_or(room.slabs) / sharers;
                    member.set_room((used + spare).min(room.slabs));
                }
                Err(error) => log::debug!("room of {}: {error}", member.path),
            }
        }
    }

    fn waiting_by_member(&self) -> HashMap<u16, u64> {
        let mut waiting: HashMap<u16, u64> = HashMap::new();
        for slot in self.sets.waiting_slabs() {
            *waiting.entry(slot.member).or_default() += 1;
        }
        waiting
    }
}

fn take_from_open(class: &mut Class, remaining: u64) -> Option<(Arc<Set>, Stripe)> {
    class.open.iter().find_map(|set| {
        let most = STRIPE_MAX_BYTES * u64::from(set.geometry.columns);
        set.take_stripe(remaining.min(most)).map(|stripe| (Arc::clone(set), stripe))
    })
}
