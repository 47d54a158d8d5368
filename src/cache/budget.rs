//! The budget: how many bytes are used and dirty, who may write, and who waits for room.

use std::time::{Duration, Instant};

use super::cache::Inner;
use super::page::PAGE_BYTES;
use crate::limits::FLUSH_BATCH_BYTES;
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::units::MIB;

/// What a writer should do before its data is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Write at once.
    Go,
    /// Write after this pause: the disks are falling behind.
    Slow(Duration),
    /// Wait for room (see [`super::Cache::wait_for_room`]).
    Wait,
}

/// Writers are slowed when dirty data is above this share of its limit, in per cent.
const SLOW_FROM_PERCENT: u64 = 60;
/// How long a writer is held up for each MiB when the limit is all but reached.
const SLOWEST_PER_MIB: Duration = Duration::from_millis(50);
/// The longest pause for one write.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Evicted pages are let go in batches of about so many.
const GARBAGE_PAGES: usize = 256;
/// Shorter pauses are not worth a sleep.
const PAUSE_MIN: Duration = Duration::from_micros(50);

/// The sums of the cache. They are added to under different locks, so each may be off by what is going
/// on right now; a sum that is negative for a moment reads as 0.
#[derive(Debug)]
pub(super) struct Budget {
    /// Most bytes of memory.
    pub limit: u64,
    /// Most dirty bytes.
    pub dirty_limit: u64,
    used: AtomicI64,
    dirty_pages: AtomicI64,
    flying_pages: AtomicI64,
    /// How many wait for room. Guards the condition, so that no wake-up is lost.
    waiting: Mutex<usize>,
    room: Condvar,
}

fn read(sum: &AtomicI64) -> u64 {
    sum.load(Ordering::Acquire).max(0) as u64
}

impl Budget {
    pub fn new(limit: u64, dirty_limit: u64) -> Self {
        Self {
            limit,
            dirty_limit,
            used: AtomicI64::new(0),
            dirty_pages: AtomicI64::new(0),
            flying_pages: AtomicI64::new(0),
            waiting: Mutex::new(0),
            room: Condvar::new(),
        }
    }

    /// Bytes of memory in use, promised room included.
    pub fn used(&self) -> u64 {
        read(&self.used)
    }

    /// Dirty bytes, those in flight included.
    pub fn dirty(&self) -> u64 {
        read(&self.dirty_pages) * PAGE_BYTES
    }

    /// Dirty bytes in flight.
    pub fn flying(&self) -> u64 {
        read(&self.flying_pages) * PAGE_BYTES
    }

    /// Dirty bytes that nobody is writing out yet.
    pub fn waiting(&self) -> u64 {
        self.dirty().saturating_sub(self.flying())
    }

    /// Dirty bytes above which the flusher does not wait for age. Well below the limit, so that the members work
    /// while the program still writes.
    fn pressure(&self) -> u64 {
        self.dirty_limit / 4
    }

    /// Dirty bytes that are to be written out now although they are young: none, or enough for a whole batch,
    /// since small ones cost as much processor time as large ones.
    pub fn excess(&self) -> u64 {
        let excess = self.waiting().saturating_sub(self.pressure());
        if excess >= FLUSH_BATCH_BYTES.min(self.dirty_limit / 4) { excess } else { 0 }
    }

    /// Adds to the bytes in use.
    pub fn charge(&self, cost: i64) {
        self.used.fetch_add(cost, Ordering::AcqRel);
    }

    /// Adds to the dirty pages and to those in flight; wakes those who wait for room if there is more.
    pub fn count(&self, dirty: i64, flying: i64) {
        if dirty != 0 {
            self.dirty_pages.fetch_add(dirty, Ordering::AcqRel);
        }
        if flying != 0 {
            self.flying_pages.fetch_add(flying, Ordering::AcqRel);
        }
        if dirty < 0 && *self.waiting.lock() > 0 {
            self.room.notify_all();
        }
    }

    /// Whether so many bytes more may become dirty. More than the limit at once may when nothing else is.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.dirty() + bytes.min(self.dirty_limit) <= self.dirty_limit
    }

    /// Whether writers are being slowed.
    pub fn is_slowing(&self) -> bool {
        self.dirty() > self.dirty_limit / 100 * SLOW_FROM_PERCENT
    }

    /// See [`super::Cache::admit`].
    pub fn admit(&self, bytes: u64) -> Admission {
        if !self.has_room(bytes) {
            return Admission::Wait;
        }
        let slow_from = self.dirty_limit / 100 * SLOW_FROM_PERCENT;
        let level = self.dirty() + bytes.min(self.dirty_limit);
        if level <= slow_from {
            return Admission::Go;
        }
        // The square lets writers run freely as long as the disks nearly keep up.
        let over = (level - slow_from) as f64 / (self.dirty_limit - slow_from).max(1) as f64;
        let pause = SLOWEST_PER_MIB.mul_f64(over * over * bytes as f64 / MIB as f64).min(PAUSE_MAX);
        if pause < PAUSE_MIN { Admission::Go } else { Admission::Slow(pause) }
    }

    /// Waits until there is room or the time is over. Returns whether there is room.
    pub fn wait_for_room(&self, bytes: u64, deadline: Duration) -> bool {
        let end = Instant::now().checked_add(deadline);
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        let mut late = false;
        while !late && !self.has_room(bytes) {
            match end {
                Some(end) => late = self.room.wait_until(&mut waiting, end).timed_out(),
                None => self.room.wait(&mut waiting),
            }
        }
        *waiting -= 1;
        self.has_room(bytes)
    }
}

/// Room made for something that is about to be put in the cache; what was not used is given back.
pub(super) struct Room<'a> {
    budget: &'a Budget,
    left: u64,
}

impl Room<'_> {
    /// Pays for something from this room, and what is missing from the budget.
    pub fn pay(&mut self, cost: u64) {
        let own = cost.min(self.left);
        self.left -= own;
        self.budget.charge((cost - own) as i64);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.budget.charge(-(self.left as i64));
    }
}

impl Inner {
    /// Promises room for so many bytes, and evicts clean blocks until the whole is inside the budget
    /// or only what can't be evicted is left. Call without locks.
    pub(super) fn make_room(&self, bytes: u64) -> Room<'_> {
        self.budget.charge(bytes as i64);
        self.evict();
        Room { budget: &self.budget, left: bytes }
    }

    /// Evicts clean blocks until the budget is kept. Call without locks.
    pub(super) fn evict(&self) {
        let mut garbage = Vec::new();
        while self.budget.used() > self.budget.limit {
            let Some((ino, index)) = self.lru.pop() else { break };
            let freed = self.with_known(ino, |state| match state.blocks.get_mut(&index) {
                Some(block) => {
                    block.listed = false;
                    state.drop_clean(index, &self.lru, &mut garbage)
                }
                None => 0,
            });
            self.counters.evictions.fetch_add(freed.unwrap_or(0), Ordering::Relaxed);
            if garbage.len() >= GARBAGE_PAGES {
                self.stock.give(garbage.drain(..));
            }
        }
        if !garbage.is_empty() {
            self.stock.give(garbage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(percent: i64) -> Budget {
        let budget = Budget::new(200 * MIB, 100 * MIB);
        budget.count(percent * (MIB / PAGE_BYTES) as i64, 0);
        budget
    }

    #[test]
    fn writers_are_slowed_gradually_and_stopped_at_the_limit() {
        assert_eq!(at(0).admit(MIB), Admission::Go);
        assert_eq!(at(58).admit(MIB), Admission::Go);
        let pause = |percent| match at(percent).admit(MIB) {
            Admission::Slow(pause) => pause,
            other => panic!("{other:?} at {percent} %"),
        };
        assert!(pause(70) < pause(80) && pause(80) < pause(95));
        assert!(pause(95) <= SLOWEST_PER_MIB);
        assert_eq!(at(100).admit(MIB), Admission::Wait);
        assert_eq!(at(100).admit(1), Admission::Wait);
    }

    #[test]
    fn more_than_the_limit_is_let_in_alone() {
        assert_ne!(at(0).admit(500 * MIB), Admission::Wait);
        assert_eq!(at(1).admit(500 * MIB), Admission::Wait);
    }

    #[test]
    fn waiting_ends_in_time() {
        assert!(!at(100).wait_for_room(1, Duration::ZERO));
        assert!(at(10).wait_for_room(1, Duration::ZERO));
    }
}
