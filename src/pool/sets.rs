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
    /// Bytes that extents or metadata hold.
    pub live: AtomicI64,
    /// Parts of it can't be read, so the compactor leaves it alone. Forgotten at unmount.
    pub stuck: AtomicBool,
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
            live: AtomicI64::new(record.live as i64),
            stuck: AtomicBool::new(false),
            fill: Mutex::new(Fill {
                at: record.fill,
                sealed: record.sealed,
                writers: 0,
                headers_written: !fresh,
            }),
        }
    }

    /// Its record as of now.
    pub fn record(&self) -> SetRecord {
        let fill = self.fill.lock();
        SetRecord {
            id: self.id,
            purpose: self.purpose,
            geometry: self.geometry,
            resiliency: self.resiliency,
            slots: self.slots.clone(),
            fill: fill.at,
            sealed: fill.sealed,
            short: self.short,
            live: self.live.load(Ordering::Acquire).max(0) as u64,
        }
    }

    /// How much of it is in use.
    pub fn usage(&self) -> SetUsage {
        let fill = self.fill.lock();
        SetUsage {
            id: self.id,
            resiliency: self.resiliency,
            capacity: self.geometry.payload_bytes(),
            live: self.live.load(Ordering::Acquire),
            open: fill.writers > 0 || !fill.sealed && fill.at < self.geometry.slab_bytes,
            stuck: self.stuck.load(Ordering::Acquire),
        }
    }

    /// Bytes of payload that can still be written.
    pub fn room(&self) -> u64 {
        let fill = self.fill.lock();
        if fill.sealed {
            return 0;
        }
        (self.geometry.slab_bytes - fill.at) * u64::from(self.geometry.columns)
    }

    /// Bytes of each slot that were handed out to stripes.
    pub fn filled(&self) -> u64 {
        self.fill.lock().at
    }

    /// Bytes of each slot that nobody writes to any more; none while a stripe is being written.
    pub fn settled(&self) -> Option<u64> {
        let fill = self.fill.lock();
        (fill.writers == 0).then_some(fill.at)
    }

    /// No more stripes from now on.
    pub fn seal(&self) {
        self.fill.lock().sealed = true;
    }

    /// The next stripe for a stream with `remaining` bytes; none when the set is full or sealed.
    /// Counts the caller as a writer until [`Set::written`].
    pub fn take_stripe(&self, remaining: u64) -> Option<Stripe> {
        let mut fill = self.fill.lock();
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
        let mut fill = self.fill.lock();
        fill.writers = fill.writers.saturating_sub(1);
    }

    /// True once: the caller then writes the slab headers.
    pub fn take_header_duty(&self) -> bool {
        let mut fill = self.fill.lock();
        !std::mem::replace(&mut fill.headers_written, true)
    }

    /// Nothing in it is alive, nobody writes to it, and it takes no more (or `also_open`).
    pub fn is_dead(&self, also_open: bool) -> bool {
        let mut fill = self.fill.lock();
        let done = fill.sealed || fill.at >= self.geometry.slab_bytes || (also_open && fill.at > 0);
        let dead = done && fill.writers == 0 && self.live.load(Ordering::Acquire) <= 0;
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
    /// Freed sets, each with the number of the checkpoint that will hold its removal.
    freed: Mutex<Vec<(u64, Arc<Set>)>>,
    /// The checkpoint that holds what is freed now.
    including: AtomicU64,
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
        if let Some(set) = self.sets.write().remove(&id) {
            self.freed.lock().push((self.including.load(Ordering::Acquire), set));
        }
    }

    /// Takes out a set that nothing durable ever referred to; its slabs are free at once.
    pub fn forget(&self, id: SetId) {
        self.sets.write().remove(&id);
    }

    /// Notes that the tables of checkpoint `number` are fixed: what is freed from now on comes into the next.
    pub fn checkpoint_begun(&self, number: u64) {
        self.including.store(number + 1, Ordering::Release);
    }

    /// Notes that checkpoint `number` is published, and returns the sets whose slabs may be used again:
    /// those that are gone from the root before it too, so that the previous root stays whole.
    pub fn checkpoint_published(&self, number: u64) -> Vec<Arc<Set>> {
        let mut freed = self.freed.lock();
        let (ready, waiting) = freed
            .drain(..)
            .partition(|(tag, set): &(u64, Arc<Set>)| *tag < number && Arc::strong_count(set) == 1);
        *freed = waiting;
        ready.into_iter().map(|(_, set)| set).collect()
    }

    /// Slabs of freed sets that a checkpoint or two will make free.
    pub fn waiting_slabs(&self) -> Vec<SlabRef> {
        self.freed.lock().iter().flat_map(|(_, set)| set.slots.iter().copied()).collect()
    }
}
