//! The set table in memory: every set in use, how full it is and how much of it is alive.

use std::collections::HashMap;

use crate::layout::{Geometry, Resiliency, Stripe};
use crate::member::superblock::{Purpose, SetId, SetRecord, SlabRef};
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, RwLock};

/// A slab set in use. Whoever reads or writes it holds its `Arc`: slabs are not handed out again before
/// the last one is gone.
#[derive(Debug)]
pub struct Set {
    /// Its number.
    pub id: SetId,
    /// What it holds.
    pub purpose: Purpose,
    /// How addresses map to slots.
    pub geometry: Geometry,
    /// The resiliency it was made for.
    pub resiliency: Resiliency,
    /// One slab for each slot.
    pub slots: Vec<SlabRef>,
    /// It has less redundancy than its resiliency asks for.
    pub short: bool,
    state: Arc<State>,
}

/// What changes in a set. When a slot moves to another slab, this goes on in the set that replaces the old one.
#[derive(Debug)]
struct State {
    live: AtomicI64,
    stuck: AtomicBool,
    /// A slot of it is being moved.
    moving: AtomicBool,
    fill: Mutex<Fill>,
}

/// How much of a set is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetUsage {
    /// Its number.
    pub id: SetId,
    /// The resiliency it was made for.
    pub resiliency: Resiliency,
    /// Bytes of payload.
    pub capacity: u64,
    /// Bytes of those that are alive.
    pub live: i64,
    /// It takes more stripes, or some are being written.
    pub open: bool,
    /// Parts of it can't be read, so it stays as it is.
    pub stuck: bool,
}

impl SetUsage {
    /// Bytes that rewriting it gives back: dead ones, and those of a sealed set that were never written.
    pub fn gain(&self) -> u64 {
        self.capacity.saturating_sub(self.live.max(0) as u64)
    }

    /// Whether rewriting it gives back enough to be worth it when space is very short.
    pub fn gains(&self) -> bool {
        !self.stuck && self.gain() >= self.capacity / 64
    }
}

#[derive(Debug)]
struct Fill {
    at: u64,
    sealed: bool,
    writers: u32,
    headers_written: bool,
}

impl Set {
    /// The set that a record describes. `fresh`: its slab headers are not written yet.
    pub fn new(record: &SetRecord, fresh: bool) -> Self {
        Self {
            id: record.id,
            purpose: record.purpose,
            geometry: record.geometry,
            resiliency: record.resiliency,
            slots: record.slots.clone(),
            short: record.short,
            state: Arc::new(State {
                live: AtomicI64::new(record.live as i64),
                stuck: AtomicBool::new(false),
                moving: AtomicBool::new(false),
                fill: Mutex::new(Fill {
                    at: record.fill,
                    sealed: record.sealed,
                    writers: 0,
                    headers_written: !fresh,
                }),
            }),
        }
    }

    /// The same set with another slab for one slot.
    fn with_slot(&self, slot: usize, to: SlabRef) -> Self {
        let mut slots = self.slots.clone();
        slots[slot] = to;
        Self { slots, state: Arc::clone(&self.state), ..*self }
    }

    /// Bytes that extents or metadata hold.
    pub fn live(&self) -> i64 {
        self.state.live.load(Ordering::Acquire)
    }

    /// Counts bytes that are alive, or no more.
    pub fn count_live(&self, delta: i64) {
        self.state.live.fetch_add(delta, Ordering::AcqRel);
    }

    /// Parts of it can't be read, so the compactor leaves it alone. Forgotten at unmount.
    pub fn mark_stuck(&self) {
        self.state.stuck.store(true, Ordering::Release);
    }

    /// Claims the set for one who moves a slot of it. False when another one does already.
    pub fn begin_moving(&self) -> bool {
        !self.state.moving.swap(true, Ordering::AcqRel)
    }

    /// A slot of it is being moved.
    pub fn is_moving(&self) -> bool {
        self.state.moving.load(Ordering::Acquire)
    }

    /// A slot was moved, or is not going to be.
    pub fn end_moving(&self) {
        self.state.moving.store(false, Ordering::Release);
    }

    /// Nobody writes to it, and it takes no more stripes: what it holds up to its fill mark stays as it is.
    pub fn is_still(&self) -> bool {
        let fill = self.state.fill.lock();
        fill.sealed && fill.writers == 0
    }

    /// Its record as of now.
    pub fn record(&self) -> SetRecord {
        let fill = self.state.fill.lock();
        SetRecord {
            id: self.id,
            purpose: self.purpose,
            geometry: self.geometry,
            resiliency: self.resiliency,
            slots: self.slots.clone(),
            fill: fill.at,
            sealed: fill.sealed,
            short: self.short,
            live: self.live().max(0) as u64,
        }
    }

    /// How much of it is in use.
    pub fn usage(&self) -> SetUsage {
        let fill = self.state.fill.lock();
        SetUsage {
            id: self.id,
            resiliency: self.resiliency,
            capacity: self.geometry.payload_bytes(),
            live: self.live(),
            open: fill.writers > 0 || !fill.sealed && fill.at < self.geometry.slab_bytes,
            stuck: self.state.stuck.load(Ordering::Acquire),
        }
    }

    /// Bytes of payload that can still be written.
    pub fn room(&self) -> u64 {
        let fill = self.state.fill.lock();
        if fill.sealed {
            return 0;
        }
        (self.geometry.slab_bytes - fill.at) * u64::from(self.geometry.columns)
    }

    /// Bytes of each slot that were handed out to stripes.
    pub fn filled(&self) -> u64 {
        self.state.fill.lock().at
    }

    /// Bytes of each slot that nobody writes to any more; none while a stripe is being written.
    pub fn settled(&self) -> Option<u64> {
        let fill = self.state.fill.lock();
        (fill.writers == 0).then_some(fill.at)
    }

    /// No more stripes from now on.
    pub fn seal(&self) {
        self.state.fill.lock().sealed = true;
    }

    /// The next stripe for a stream with `remaining` bytes; none when the set is full or sealed.
    /// Counts the caller as a writer until [`Set::written`].
    pub fn take_stripe(&self, remaining: u64) -> Option<Stripe> {
        let mut fill = self.state.fill.lock();
        if fill.sealed {
            return None;
        }
        let stripe = self.geometry.next_stripe(fill.at, remaining)?;
        fill.at += stripe.height;
        fill.writers += 1;
        Some(stripe)
    }

    /// The writer of one stripe is done with it, and has committed what refers to it (or never will).
    pub fn written(&self) {
        let mut fill = self.state.fill.lock();
        fill.writers = fill.writers.saturating_sub(1);
    }

    /// True once: the caller then writes the slab headers.
    pub fn take_header_duty(&self) -> bool {
        let mut fill = self.state.fill.lock();
        !std::mem::replace(&mut fill.headers_written, true)
    }

    /// Nothing in it is alive, nobody writes to it, and it takes no more (or `also_open`).
    pub fn is_dead(&self, also_open: bool) -> bool {
        let mut fill = self.state.fill.lock();
        let done = fill.sealed || fill.at >= self.geometry.slab_bytes || (also_open && fill.at > 0);
        let dead = done && fill.writers == 0 && self.live() <= 0;
        if dead {
            fill.sealed = true;
        }
        dead
    }
}

/// All sets, and those that wait to be handed out again.
#[derive(Debug, Default)]
pub struct SetTable {
    sets: RwLock<HashMap<SetId, Arc<Set>>>,
    /// Slabs of sets that were freed, or of slots that were moved.
    freed: Mutex<Vec<Freed>>,
    /// The checkpoint that holds what is freed now.
    including: AtomicU64,
}

/// Slabs that will be free.
#[derive(Debug)]
struct Freed {
    /// The number of the checkpoint that will hold the change.
    checkpoint: u64,
    /// The set as it was when it had them. Whoever still reads them holds it too.
    set: Arc<Set>,
    slabs: Vec<SlabRef>,
}

/// A slot that gets another slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotMove {
    /// The set.
    pub set: SetId,
    /// Which of its slots.
    pub slot: usize,
    /// The slab that it has.
    pub from: SlabRef,
    /// The slab that it gets: everything up to the fill mark is there and synced.
    pub to: SlabRef,
}

impl SetTable {
    /// The set with this number.
    pub fn get(&self, id: SetId) -> Option<Arc<Set>> {
        self.sets.read().get(&id).cloned()
    }

    /// Adds a set. False when there is one of that number already.
    pub fn insert(&self, set: Arc<Set>) -> bool {
        self.sets.write().insert(set.id, set).is_none()
    }

    /// All sets, in no order.
    pub fn all(&self) -> Vec<Arc<Set>> {
        self.sets.read().values().cloned().collect()
    }

    /// Takes a set out; its slabs wait until the second checkpoint from now is published.
    pub fn free(&self, id: SetId) {
        let removed = self.sets.write().remove(&id);
        if let Some(set) = removed {
            let slabs = set.slots.clone();
            self.note_freed(set, slabs);
        }
    }

    /// Puts another slab in a slot's place; the old one waits as those of freed sets do. False when the set is not
    /// as the mover saw it any more: then nothing changed.
    pub fn replace_slot(&self, moved: &SlotMove) -> bool {
        let mut sets = self.sets.write();
        let Some(old) = sets.get(&moved.set) else { return false };
        let twice = old.slots.iter().enumerate();
        let twice = twice.filter(|(slot, _)| *slot != moved.slot).any(|(_, at)| at.member == moved.to.member);
        if old.slots.get(moved.slot) != Some(&moved.from) || twice {
            return false;
        }
        let new = Arc::new(old.with_slot(moved.slot, moved.to));
        let old = sets.insert(moved.set, new);
        drop(sets);
        if let Some(old) = old {
            self.note_freed(old, vec![moved.from]);
        }
        true
    }

    fn note_freed(&self, set: Arc<Set>, slabs: Vec<SlabRef>) {
        let mut freed = self.freed.lock();
        let checkpoint = self.including.load(Ordering::Acquire);
        freed.push(Freed { checkpoint, set, slabs });
    }

    /// Takes out a set that nothing durable ever referred to; its slabs are free at once.
    pub fn forget(&self, id: SetId) {
        self.sets.write().remove(&id);
    }

    /// Notes that the tables of checkpoint `number` are fixed: what is freed from now on comes into the next.
    pub fn checkpoint_begun(&self, number: u64) {
        self.including.store(number + 1, Ordering::Release);
    }

    /// Notes that the root of the last checkpoint is about to be published again as checkpoint `number`: its tables lack
    /// what was freed since just as the last one's did.
    pub fn checkpoint_repeated(&self, number: u64) {
        let mut freed = self.freed.lock();
        self.including.store(number + 1, Ordering::Release);
        for freed in freed.iter_mut().filter(|freed| freed.checkpoint == number) {
            freed.checkpoint = number + 1;
        }
    }

    /// Notes that checkpoint `number` is published, and returns the slabs that may be used again: those that are
    /// gone from the root before it too, so that the previous root stays whole.
    pub fn checkpoint_published(&self, number: u64) -> Vec<SlabRef> {
        let mut freed = self.freed.lock();
        let (ready, waiting) = freed
            .drain(..)
            .partition(|freed: &Freed| freed.checkpoint < number && Arc::strong_count(&freed.set) == 1);
        *freed = waiting;
        ready.into_iter().flat_map(|freed: Freed| freed.slabs).collect()
    }

    /// Slabs of freed sets that a checkpoint or two will make free.
    pub fn waiting_slabs(&self) -> Vec<SlabRef> {
        self.freed.lock().iter().flat_map(|freed| freed.slabs.iter().copied()).collect()
    }
}
