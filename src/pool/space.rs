//! Handing out space: new sets on the emptiest members, and reservations backed by sets made ahead.

use std::collections::{HashMap, VecDeque};

use super::Pool;
use super::error::{PoolError, Result};
use super::roster::Member;
use super::sets::Set;
use crate::layout::{Geometry, Resiliency, Stripe, Width, choose, width_for};
use crate::limits::STRIPE_MAX_BYTES;
use crate::member::superblock::{MemberId, Purpose, SetId, SetRecord, SlabRef};
use crate::member::{DiskKind, MemberError, SlabNo};
use crate::sync::{Arc, MutexGuard};
use crate::units::MIB;

/// Room kept in each class beyond what is reserved: the padding of the stripes of one flush.
pub(super) const PADDING_BYTES: u64 = MIB;

/// Whose request for space it is; each may go deeper into the reserve than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// New data: leaves the reserve alone.
    Ordinary,
    /// A flush of data that was promised space: part of the reserve, where its own estimate was short.
    Flush,
    /// Data that the compactor moves, to give back more than it takes: what metadata does not need. One set
    /// of every layout in use is always left for it.
    Compact,
    /// Metadata of a checkpoint: all of it.
    Metadata,
}

/// Sets being filled, by what they hold.
#[derive(Debug, Default)]
pub struct SpaceState {
    pub(super) classes: HashMap<Key, Class>,
    /// Number within the epoch of the last set made.
    last_set: u64,
    /// Bytes of metadata that the store wants to be able to write at any time.
    pub(super) metadata_bytes: u64,
}

/// What shares sets while they are being filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub resiliency: Resiliency,
    pub purpose: Purpose,
    /// What the compactor moved: it has lived for long, and will longer than what is new.
    pub cold: bool,
}

impl Key {
    pub fn new(resiliency: &Resiliency, purpose: Purpose, urgency: Urgency) -> Self {
        Self { resiliency: *resiliency, purpose, cold: urgency == Urgency::Compact }
    }

    pub fn hot(resiliency: &Resiliency) -> Self {
        Self::new(resiliency, Purpose::Data, Urgency::Ordinary)
    }

    pub fn cold(resiliency: &Resiliency) -> Self {
        Self::new(resiliency, Purpose::Data, Urgency::Compact)
    }
}

#[derive(Debug, Default)]
pub(super) struct Class {
    /// Sets that take stripes now.
    pub open: Vec<Arc<Set>>,
    /// Sets made ahead, for reservations.
    prepared: VecDeque<Arc<Set>>,
    pub reserved: u64,
}

impl Class {
    /// Bytes of payload that its sets can still take.
    pub fn room(&self) -> u64 {
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
            let class = state.classes.entry(Key::hot(resiliency)).or_default();
            self.drop_unusable(class);
            if class.room() >= class.reserved + bytes + PADDING_BYTES {
                class.reserved += bytes;
                return Ok(());
            }
            match self.make_set(&mut state, resiliency, Purpose::Data, Urgency::Ordinary) {
                Ok(set) => {
                    state.classes.entry(Key::hot(resiliency)).or_default().prepared.extend(set);
                }
                Err(PoolError::NoSpace { .. }) if warm_up(&mut state, resiliency) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives a reservation back: the data was written, or dropped.
    pub fn release(&self, resiliency: &Resiliency, bytes: u64) {
        let mut state = self.space.lock();
        if let Some(class) = state.classes.get_mut(&Key::hot(resiliency)) {
            class.reserved = class.reserved.saturating_sub(bytes);
        }
    }

    /// Says how much metadata a checkpoint may have to write; the reserve grows with it.
    pub fn expect_metadata(&self, bytes: u64) {
        self.space.lock().metadata_bytes = bytes;
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
        let key = Key::new(resiliency, purpose, urgency);
        let mut state = self.space.lock();
        while at < total {
            let class = state.classes.entry(key).or_default();
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
                Ok(set) => state.classes.entry(key).or_default().open.extend(set),
                Err(PoolError::NoSpace { .. }) if !key.cold && warm_up(&mut state, resiliency) => {}
                Err(error) => {
                    taken.iter().for_each(|taken| taken.set.written());
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Begins to empty a member, or gives that up. Meanwhile it takes no new sets; those that were being filled are
    /// closed, and those made ahead given back.
    pub fn set_draining(&self, id: MemberId, draining: bool) {
        let Some(member) = self.members().get(usize::from(id)) else { return };
        member.set_draining(draining);
        let mut state = self.space.lock();
        for class in state.classes.values_mut() {
            self.drop_unusable(class);
        }
        // With the lock held, so that nobody takes one that is being deleted.
        if draining && member.is_writable() {
            member.kept_slabs().into_iter().for_each(|slab| delete_free_slab(member, slab));
        }
    }

    /// Every set that is made from now on has this number, or a higher one.
    pub fn next_set(&self) -> SetId {
        let state = self.space.lock();
        (self.epoch_counter() << 32) | (state.last_set + 1)
    }

    /// Takes up filling a set where it was left at the last unmount or crash.
    pub(super) fn reopen_set(&self, set: &Arc<Set>) {
        let key = Key::new(&set.resiliency, set.purpose, Urgency::Ordinary);
        let mut state = self.space.lock();
        let class = state.classes.entry(key).or_default();
        let whole = set.slots.iter().all(|slot| self.is_well(slot));
        if set.room() > 0 && whole && self.set_may_grow(set) {
            class.open.push(Arc::clone(set));
        }
    }

    /// Forgets a freed set as a place to write to.
    pub(super) fn close_set(&self, set: &Set) {
        let mut state = self.space.lock();
        for class in state.classes.values_mut() {
            class.open.retain(|open| open.id != set.id);
        }
    }

    /// Gives slabs back that were freed two checkpoints ago, or that nothing durable ever referred to.
    pub(super) fn return_slabs(&self, slabs: &[SlabRef]) {
        for slot in slabs {
            let member = self.member(slot.member);
            member.return_slab(slot.slab, || {
                if member.is_writable() && member.makes_slabs() {
                    delete_free_slab(member, slot.slab);
                }
            });
        }
    }

    /// Deletes the free slabs that members kept for the next sets.
    pub(super) fn delete_kept_slabs(&self) {
        for member in self.members().iter().filter(|member| member.is_writable()) {
            member.kept_slabs().into_iter().for_each(|slab| delete_free_slab(member, slab));
        }
    }

    /// Takes a slab of a member, and makes it. None when it has none but `held` to give.
    pub(super) fn take_and_make_slab(
        &self,
        member: &Member,
        held: u64,
    ) -> Option<(SlabNo, std::result::Result<(), MemberError>)> {
        let (slab, is_there) = member.take_slab(held)?;
        let made = match member.disk() {
            Some(_) if is_there => Ok(()),
            Some(disk) => disk.create_slab(slab),
            None => Err(MemberError::NoSlab { path: member.path.clone(), slab }),
        };
        Some((slab, made))
    }

    /// Makes a set on the members with the most free space. None when somebody else has made one meanwhile: look
    /// again whether another is needed.
    ///
    /// The slabs are made with `state` unlocked, one set at a time: a disk may take long over that, or hang, and who
    /// only wants to know what room there is must not wait for it.
    fn make_set(
        &self,
        state: &mut MutexGuard<'_, SpaceState>,
        resiliency: &Resiliency,
        purpose: Purpose,
        urgency: Urgency,
    ) -> Result<Option<Arc<Set>>> {
        let before = state.last_set;
        let _turn = MutexGuard::unlocked(state, || self.making_set.lock());
        if state.last_set != before {
            return Ok(None);
        }
        loop {
            MutexGuard::unlocked(state, || self.refresh_rooms());
            let held: Vec<u64> =
                self.members().iter().map(|member| self.held_back(member, urgency, state)).collect();
            let (width, chosen) = self.choose(resiliency, &held)?;
            if let Some(slots) = MutexGuard::unlocked(state, || self.take_slabs(&chosen, &held))? {
                return self.register_set(state, resiliency, purpose, width, slots).map(Some);
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
                    if member.takes_sets() { member.free_slabs().saturating_sub(*held) } else { 0 }
                },
            )
            .collect();
        if let Some(choice) = choose(&free, resiliency).filter(|(width, _)| !width.short) {
            return Ok(choice);
        }
        // Full members are no reason to write with less redundancy; missing ones are.
        let writable = self.members().iter().filter(|member| member.takes_sets()).count();
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
            let Some((slab, made)) = self.take_and_make_slab(member, held[index]) else {
                member.mark_full();
                self.return_slabs(&slots);
                return Ok(None);
            };
            slots.push(SlabRef { member: member.id, slab });
            match made {
                Ok(()) => {}
                Err(MemberError::NoSpace { .. }) => {
                    self.return_slabs(&slots);
                    member.mark_full();
                    return Ok(None);
                }
                Err(error) => {
                    self.return_slabs(&slots);
                    self.slab_failed(member.id, &error);
                    return if error.is_own_shortage() { Err(error.into()) } else { Ok(None) };
                }
            }
        }
        Ok(Some(slots))
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
            let usable = self.set_may_grow(set);
            if !usable {
                set.seal();
            }
            usable && set.room() > 0
        });
        let (keep, lost): (VecDeque<_>, VecDeque<_>) =
            class.prepared.drain(..).partition(|set| self.set_may_grow(set));
        class.prepared = keep;
        for set in lost {
            self.sets.forget(set.id);
            self.return_slabs(&set.slots);
        }
    }

    /// A member came: sets made ahead that would be wider now are given back, and those that are short take no more.
    pub(super) fn drop_narrow(&self) {
        let mut state = self.space.lock();
        for class in state.classes.values_mut() {
            let would_grow = |set: &Arc<Set>| {
                let now = self.width_now(&set.resiliency);
                now.is_some_and(|now| now.columns > set.geometry.columns || (set.short && !now.short))
            };
            let (narrow, keep): (VecDeque<_>, VecDeque<_>) = class.prepared.drain(..).partition(would_grow);
            class.prepared = keep;
            for set in narrow {
                self.sets.forget(set.id);
                self.return_slabs(&set.slots);
            }
            class.open.iter().filter(|set| set.short && would_grow(set)).for_each(|set| set.seal());
            class.open.retain(|set| set.room() > 0);
        }
    }

    /// Sets made ahead and never written are given back: at unmount, and when room is short.
    pub(super) fn drop_prepared(&self) {
        let mut state = self.space.lock();
        for class in state.classes.values_mut() {
            for set in std::mem::take(&mut class.prepared) {
                self.sets.forget(set.id);
                self.return_slabs(&set.slots);
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
            .filter_map(|member| member.disk().map(|disk| (member, disk)))
            .filter(|(_, disk)| disk.kind() == DiskKind::Directory)
            .collect();
        for (_, disk) in &directories {
            *sharing.entry(disk.device_id()).or_default() += 1;
        }
        for (member, disk) in directories {
            match disk.room() {
                Ok(room) => {
                    let sharers = sharing.get(&disk.device_id()).copied().unwrap_or(1);
                    let spare = room.below.unwrap_or(room.slabs) / sharers;
                    member.set_spare(spare, room.slabs);
                }
                Err(error) if error.is_vanished() => self.member_failed(member.id, &error),
                Err(error) => log::debug!("room of {}: {error}", member.path),
            }
        }
    }
}

fn delete_free_slab(member: &Member, slab: SlabNo) {
    if let Some(disk) = member.disk()
        && let Err(error) = disk.delete_slab(slab)
    {
        log::warn!("slab {slab} is free but stays allocated: {error}");
    }
}

/// Lets anybody fill the sets that the compactor was filling: when there is no room for a set more. Says
/// whether there were any.
fn warm_up(state: &mut SpaceState, resiliency: &Resiliency) -> bool {
    let cold = state.classes.get_mut(&Key::cold(resiliency)).map(|class| std::mem::take(&mut class.open));
    let Some(open) = cold.filter(|open| open.iter().any(|set| set.room() > 0)) else { return false };
    state.classes.entry(Key::hot(resiliency)).or_default().open.extend(open);
    true
}

fn take_from_open(class: &mut Class, remaining: u64) -> Option<(Arc<Set>, Stripe)> {
    class.open.iter().find_map(|set| {
        let most = STRIPE_MAX_BYTES * u64::from(set.geometry.columns);
        set.take_stripe(remaining.min(most)).map(|stripe| (Arc::clone(set), stripe))
    })
}
