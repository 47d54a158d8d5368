//! The compactor: rewrites sets that are mostly dead, so that their space comes back.
//!
//! Nothing in a set is reused before the whole set is free, so space that was overwritten or deleted comes
//! back only when what is still alive in its set lies elsewhere. The compactor picks the set that gives
//! back most for what has to be moved ([`victims`]), reads what is alive in it, writes that to sets of its
//! own, and commits where it lies now ([`carry`]). It works in steps of a few MiB, holds no lock while it
//! reads or writes, and rests between steps, less the shorter space gets.
//!
//! It may stop, or the power may go, after any step: each leaves everything it moved in one place or the
//! other. A set that holds something unreadable is left as it is.

mod cargo;
mod carry;
mod freed;
mod victims;

use std::time::Duration;

use super::Fs;
use super::error::Result;
use crate::member::superblock::SetId;
use crate::pool::moving::Move;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(super) use cargo::Reference;
pub(super) use victims::Pace;

/// Bytes that one step moves, about.
const STEP_BYTES: u64 = 8 << 20;
/// Steps that one tick makes at most where there are no threads.
const TICK_STEPS: u64 = 64;

/// What the compactor is at.
#[derive(Debug, Default)]
pub(super) struct Compactor {
    /// The set being rewritten. Held during a step.
    work: Mutex<Option<Work>>,
    /// No step begins any more.
    stopped: AtomicBool,
    /// Bytes that were moved since the mount.
    moved: AtomicU64,
}

/// A set that is being rewritten.
#[derive(Debug, Clone, Copy)]
struct Work {
    set: SetId,
    /// The address to go on from.
    from: u64,
    /// What was alive in it at the start.
    live: i64,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// No set is worth it, or none can be rewritten now.
    Nothing,
    /// Part of a set was moved.
    Part,
    /// The last part of a set was moved.
    Set,
}

impl Compactor {
    /// No step begins from now on; the one under way ends before this returns.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        drop(self.work.lock());
    }
}

impl Fs {
    /// Bytes of file data that the compactor moved since the mount.
    pub fn moved_bytes(&self) -> u64 {
        self.compactor.moved.load(Ordering::Relaxed)
    }

    /// How fast to go.
    pub(super) fn compaction_pace(&self) -> Pace {
        Pace::of(self.pool.free_permille())
    }

    /// Moves a few MiB, of the set that was begun or of the best one.
    pub(super) fn compact_step(&self, pace: Pace) -> Result<Step> {
        self.await_log_room();
        self.drop_places_of_freed()?;
        let mut work = self.compactor.work.lock();
        if self.compactor.stopped.load(Ordering::Acquire) {
            return Ok(Step::Nothing);
        }
        let begun = work.take().filter(|work| self.pool.set_usage(work.set).is_some());
        let Some(begun) = begun.or_else(|| self.next_victim(pace)) else { return Ok(Step::Nothing) };
        let set = begun.set;
        let Some(usage) = self.pool.set_usage(set) else { return Ok(Step::Nothing) };
        let (cargo, next) = self.gather(set, begun.from)?;
        if !cargo.is_empty()
            && let Err(error) = self.carry(&usage, cargo)
        {
            self.give_up(set, &error);
            return Err(error);
        }
        if let Some(from) = next {
            *work = Some(Work { from, ..begun });
            return Ok(Step::Part);
        }
        // What somebody came to share meanwhile is left for another pass; but a pass must be good for something.
        if self.pool.set_usage(set).is_some_and(|left| left.live >= begun.live) {
            log::warn!("nothing of set {set} could be moved");
            self.pool.mark_stuck(set);
        }
        Ok(Step::Set)
    }

    /// Moves a few MiB of one set, from address `from` on, to sets as they are made now: for jobs that want it empty,
    /// however much of it is alive. It must take no more stripes. Returns the bytes moved and the address to go on from;
    /// none at the end.
    ///
    /// # Errors
    /// Those of reading and writing; then nothing is lost, and what was moved before stays moved.
    pub fn rewrite_part(&self, set: SetId, from: u64) -> Result<(u64, Option<u64>)> {
        self.may_change()?;
        let _turn = self.compactor.work.lock();
        if self.compactor.stopped.load(Ordering::Acquire) {
            return Err(super::FsError::Unmounted);
        }
        let Some(usage) = self.pool.set_usage(set) else { return Ok((0, None)) };
        let (cargo, next) = self.gather(set, from)?;
        let bytes = cargo.iter().map(cargo::Cargo::bytes).sum();
        if !cargo.is_empty() {
            self.carry(&usage, cargo)?;
        }
        Ok((bytes, next))
    }

    /// Makes moved slots count; see [`crate::store::Store::commit_moves`].
    ///
    /// # Errors
    /// Those of committing.
    pub fn commit_slot_moves(&self, moves: Vec<Move>) -> Result<usize> {
        self.may_change()?;
        self.ease_log();
        Ok(self.store.commit_moves(moves)?)
    }

    fn next_victim(&self, pace: Pace) -> Option<Work> {
        let room = |resiliency: &_| self.pool.room_to_compact(resiliency);
        let best = victims::best(&self.pool.data_sets(), pace, room)?;
        Some(Work { set: best.id, from: 0, live: best.live })
    }

    /// A set that can't be read in full stays as it is until the next mount.
    fn give_up(&self, set: SetId, error: &super::FsError) {
        // One that is gone died by itself while it was looked at.
        if error.is_no_space() || self.pool.set_usage(set).is_none() {
            return;
        }
        log::warn!("set {set} is not compacted: {error}");
        self.pool.mark_stuck(set);
    }

    /// Compacts as fast as it goes for somebody who waits for room, until checkpoints would give enough of it.
    pub(super) fn compact_for_room(&self) {
        loop {
            let waiting = self.pool.waiting_room();
            if victims::is_harvest_enough(waiting, self.store.tree_bytes()) {
                return;
            }
            let pace = if waiting.bytes > 0 { Pace::SWIFT } else { Pace::FLAT_OUT };
            match self.compact_step(pace) {
                Ok(Step::Nothing) => return,
                Ok(_) => {}
                Err(error) => {
                    log::debug!("while making room: {error}");
                    return;
                }
            }
        }
    }

    /// What is due at a tick without threads.
    pub(super) fn compact_at_tick(&self) {
        let pace = self.compaction_pace();
        for _ in 0..TICK_STEPS / u64::from(pace.rest + 1) {
            match self.compact_step(pace) {
                Ok(Step::Nothing) => break,
                Ok(_) => {}
                Err(error) => {
                    log::debug!("compacting: {error}");
                    break;
                }
            }
        }
    }

    /// One step of the compactor's thread. Returns how long to rest after it.
    pub(super) fn compact_in_background(&self) -> Duration {
        let start = self.clock.elapsed();
        let pace = self.compaction_pace();
        let outcome = self.compact_step(pace);
        if victims::is_harvest_due(
            self.pool.free_permille(),
            self.pool.waiting_room(),
            self.store.tree_bytes(),
        ) {
            log::debug!("harvest: {:?}", self.pool.waiting_room());
            self.free_what_is_dead();
        }
        let took = self.clock.elapsed().saturating_sub(start);
        match outcome {
            Ok(Step::Nothing) => victims::IDLE,
            Ok(_) => pace.rest_after(took),
            Err(error) => {
                log::debug!("compacting: {error}");
                victims::IDLE
            }
        }
    }
}
