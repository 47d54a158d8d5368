//! All simulated disks of one test, which share one power supply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::disk::SimDisk;
use super::image::PowerCut;
use crate::member::Dimensions;
use crate::sync::Clock;
use crate::units::MIB;

/// What becomes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It takes place.
    Go,
    /// Power is lost while it takes place; the flag is chance, where something happens whole or not at all.
    Interrupted(bool),
    /// Power was lost before.
    Dark,
}

/// The power supply.
#[derive(Debug)]
pub(super) struct Power {
    seed: u64,
    operations: AtomicU64,
    stop_at: AtomicU64,
    dark: AtomicBool,
    clock: Mutex<Clock>,
}

impl Power {
    /// Counts an operation that changes something, and decides about it.
    pub(super) fn step(&self) -> Step {
        if self.is_dark() {
            return Step::Dark;
        }
        let number = self.operations.fetch_add(1, Ordering::SeqCst) + 1;
        let stop_at = self.stop_at.load(Ordering::SeqCst);
        if number < stop_at {
            return Step::Go;
        }
        self.dark.store(true, Ordering::SeqCst);
        if number > stop_at {
            return Step::Dark;
        }
        Step::Interrupted(super::next_random(&mut (self.seed ^ number)).is_multiple_of(2))
    }

    pub(super) fn is_dark(&self) -> bool {
        self.dark.load(Ordering::SeqCst)
    }

    /// The clock by which the disks take their time.
    pub(super) fn clock(&self) -> Clock {
        self.clock.lock().clone()
    }
}

/// A set of simulated disks with one power supply. See the [module](super) for what can happen.
#[derive(Debug)]
pub struct SimWorld {
    power: Arc<Power>,
    disks: Mutex<Vec<Arc<SimDisk>>>,
    dimensions: Dimensions,
}

impl SimWorld {
    /// A world without disks; they will have slabs of 1 MiB and rings of 8 MiB.
    pub fn new(seed: u64) -> Self {
        Self::with_dimensions(seed, Dimensions { slab_bytes: MIB, ring_bytes: 8 * MIB })
    }

    /// A world without disks; they will have these sizes.
    pub fn with_dimensions(seed: u64, dimensions: Dimensions) -> Self {
        let power = Power {
            seed,
            operations: AtomicU64::new(0),
            stop_at: AtomicU64::new(u64::MAX),
            dark: AtomicBool::new(false),
            clock: Mutex::new(Clock::manual()),
        };
        Self { power: Arc::new(power), disks: Mutex::new(vec![]), dimensions }
    }

    /// A new disk with room for `slabs` slabs, made as [`crate::member::open::create`] leaves one: zeros in
    /// the ring, no superblock, no slabs.
    pub fn disk(&self, name: &str, slabs: u64) -> Arc<SimDisk> {
        let mut disks = self.disks.lock();
        let id = disks.len() as u64 + 1;
        let disk = Arc::new(SimDisk::new(name, id, slabs, self.dimensions, Arc::clone(&self.power)));
        disks.push(Arc::clone(&disk));
        disk
    }

    /// The clock by which the disks take their time: a manual one, unless another was set.
    pub fn clock(&self) -> Clock {
        self.power.clock()
    }

    /// Sets another clock. With the system's, disks with a pace make their callers wait for real.
    pub fn set_clock(&self, clock: Clock) {
        *self.power.clock.lock() = clock;
    }

    /// All disks, in the order in which they were made.
    pub fn disks(&self) -> Vec<Arc<SimDisk>> {
        self.disks.lock().clone()
    }

    /// The sizes that all disks have.
    pub fn dimensions(&self) -> Dimensions {
        self.dimensions
    }

    /// Writes, syncs, and slabs made and deleted so far, over all disks; attempts that a disk refused count,
    /// those made without power don't.
    pub fn operations(&self) -> u64 {
        self.power.operations.load(Ordering::SeqCst)
    }

    /// Power is lost during operation number `operation` (as [`SimWorld::operations`] counts, from 1).
    /// It and all later ones fail, reads too, until [`SimWorld::power_cut`].
    pub fn stop_after(&self, operation: u64) {
        self.power.stop_at.store(operation, Ordering::SeqCst);
    }

    /// Whether power is lost.
    pub fn is_dark(&self) -> bool {
        self.power.is_dark()
    }

    /// Cuts the power, if it isn't lost already, and switches it on again: `policy`, and where it leaves a
    /// choice, `seed`, decide about each write that was not synced. Dead, full and read-only disks stay so.
    pub fn power_cut(&self, policy: PowerCut, seed: u64) {
        self.power.dark.store(true, Ordering::SeqCst);
        let mut random = seed ^ self.power.seed.rotate_left(32);
        for disk in &*self.disks.lock() {
            disk.power_cut(policy, &mut random);
        }
        self.power.stop_at.store(u64::MAX, Ordering::SeqCst);
        self.power.dark.store(false, Ordering::SeqCst);
    }
}
