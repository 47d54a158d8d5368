//! Disks of memory for tests: the same pool runs on them as on real ones, and everything that can happen
//! to real ones can be made to happen here, again and again from one seed.
//!
//! The fault model:
//!
//! - Each area of a disk has a *live* and a *durable* image. A write changes the live image; a sync of the
//!   area makes everything written to it so far durable, and nothing of other areas.
//! - Making or deleting a slab is durable when the call returns. What a new slab holds is garbage, never
//!   zeros; a slab made anew may hold what it held before it was deleted, valid header and all.
//! - [`SimWorld::stop_after`] loses power at a chosen operation: it and all later ones fail, on all disks,
//!   until [`SimWorld::power_cut`]. The write that was interrupted may still arrive, whole or in part.
//! - A power cut decides about every write that was not synced: lost, kept, torn at 512 bytes, any subset
//!   in any order ([`PowerCut`]), also where they overlap. Then the disks serve what is durable.
//! - A failed sync leaves the writes it was for in doubt: a later sync that succeeds does not make them
//!   durable, although they can be read back until the power fails.
//! - A disk can die, vanish and come back ([`SimDisk::fail_all`], [`SimDisk::vanish`], [`SimDisk::revive`]),
//!   refuse to read or write ranges, be full or read-only, rot ([`SimDisk::flip`]), and be set back to an
//!   earlier state ([`SimDisk::snapshot`]), which makes it a stale member.
//! - A disk can take its time ([`SimDisk::set_pace`]), by the clock of its world, which is a manual one unless
//!   told otherwise: one request after the other, or with a delay for each, beside each other. It can hang
//!   ([`SimDisk::hang_for`]): nothing ends before the hang does, and writes reach the medium only then.
//! - A range that can't be read can be written, and read from then on, as real disks exchange bad sectors.
//!
//! Everything random comes from the seeds given. With one thread, a run is the same each time.

mod disk;
mod faults;
mod image;
mod pace;
mod world;

pub use disk::{SimCounters, SimDisk, SimSnapshot, Written};
pub use image::PowerCut;
pub use pace::Pace;
pub use world::SimWorld;

/// The next number of a sequence that `state` determines (splitmix64).
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
