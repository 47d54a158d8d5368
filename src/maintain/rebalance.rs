//! Evens out the use of the members, and writes sets anew that are narrower than new ones would be.
//!
//! Wider sets come first, since they move everything anyway: as long as the pool could hold more in sets that are made
//! now, those that were there at the start are written anew, the narrowest first, each once at most. Then slots go from
//! the member that is fullest, as a share of what it offers, to the emptiest.

use super::carrier::Carrier;
use super::job::{Job, JobError, JobKind, Progress, Step};
use super::plan::Plan;
use crate::fs::Fs;
use crate::member::superblock::{MemberId, SetId};
use crate::pool::Pool;
use crate::pool::moving::SlotInfo;
use crate::sync::Arc;

/// It is even enough when the pool holds all but this share (one over) of what a new one would.
const GAP_SHARE: u64 = 128;
/// Shares of use may differ by so many thousandths, and by two slabs.
const UNEVEN_PERMILLE: u64 = 10;

/// Evens out.
#[derive(Debug)]
pub struct Rebalance {
    pool: Arc<Pool>,
    /// Sets below this number were there at the start.
    before: SetId,
    carrier: Carrier,
    progress: Progress,
}

impl Rebalance {
    /// What there is to do. Nothing is changed.
    pub fn plan(fs: &Fs) -> Plan {
        let pool = fs.pool();
        let narrow = narrow(pool, SetId::MAX);
        let own = pool.default_resiliency();
        let rewrite_bytes = narrow.iter().map(|slot| slot.live).sum();
        let (capacity_before, capacity_after) = pool.capacity_of_sets(&own);
        Plan {
            move_bytes: if narrow.is_empty() { uneven_bytes(pool) } else { 0 },
            rewrite_bytes,
            capacity_before,
            capacity_after,
        }
    }

    /// Begins.
    pub fn new(fs: &Fs) -> Self {
        let pool = Arc::clone(fs.pool());
        let before = pool.next_set();
        let progress = Progress { total_bytes: Self::plan(fs).total_bytes(), ..Progress::default() };
        Self { pool, before, carrier: Carrier::default(), progress }
    }

    fn moved(&mut self, bytes: u64) -> Step {
        self.progress.done_bytes += bytes;
        self.progress.total_bytes = self.progress.total_bytes.max(self.progress.done_bytes);
        Step::Moved(bytes)
    }

    fn next(&mut self, fs: &Fs, budget: u64) -> Result<Step, JobError> {
        if !self.carrier.is_idle() {
            let bytes = self.carrier.carry(fs, budget)?;
            return Ok(self.moved(bytes));
        }
        let mut rewrites = narrow(&self.pool, self.before);
        let rewriting = self.carrier.rewriting();
        rewrites.sort_by_key(|slot| Some(slot.set) != rewriting);
        if let Some(slot) = rewrites.first() {
            if self.pool.quiet(slot.set)
                && let Some(bytes) = self.carrier.rewrite(fs, slot)?
            {
                return Ok(self.moved(bytes));
            }
            // What was rewritten is free after some checkpoints.
            if self.carrier.settle(fs)? {
                return Ok(Step::Moved(0));
            }
            return Ok(Step::Pending("there is no room to write sets anew".to_owned()));
        }
        if self.even_out(fs)? {
            let bytes = self.carrier.carry(fs, budget)?;
            return Ok(self.moved(bytes));
        }
        Ok(Step::Done)
    }

    /// Begins to move slots from the fullest member to the emptiest.
    fn even_out(&mut self, fs: &Fs) -> Result<bool, JobError> {
        let Some((from, to, count)) = extremes(&self.pool) else { return Ok(false) };
        let pool = Arc::clone(&self.pool);
        let mut slots = pool.slots(|id| id == from);
        slots.retain(|slot| slot.fill > 0 && slot.live > 0 && slot.set < self.before);
        let outside = |slot: &SlotInfo| {
            let set = pool.set_record(slot.set);
            set.is_some_and(|set| set.slots.iter().all(|place| place.member != to))
        };
        slots.retain(outside);
        slots.truncate(count);
        let begun = self.carrier.begin(fs, &slots, |_| Some(to))?;
        Ok(begun.count > 0)
    }
}

impl Job for Rebalance {
    fn kind(&self) -> JobKind {
        JobKind::Rebalance
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn step(&mut self, fs: &Fs, budget_bytes: u64) -> Result<Step, JobError> {
        let step = self.next(fs, budget_bytes);
        self.progress.unsaved = self.carrier.take_unsaved();
        step
    }
}

/// Sets that are narrower than new ones would be, the narrowest first, as long as writing them anew gains something.
fn narrow(pool: &Pool, before: SetId) -> Vec<SlotInfo> {
    let mut sets = Vec::new();
    for resiliency in pool.layouts() {
        let (now, then) = pool.capacity_of_sets(&resiliency);
        if now + then / GAP_SHARE < then {
            sets.extend(pool.narrow_sets(&resiliency));
        }
    }
    sets.retain(|slot| slot.set < before);
    sets
}

/// How full each member is that takes sets, in thousandths, with its number, its slabs and those in use.
fn shares(pool: &Pool) -> Vec<(u64, MemberId, u64, u64)> {
    let members = pool.members().iter().filter(|member| member.takes_sets());
    members
        .map(|member| {
            let (slabs, used) = member.slab_counts();
            (used * 1000 / slabs.max(1), member.id, slabs, used)
        })
        .collect()
}

/// The fullest and the emptiest member, where they differ by enough, and how many slabs may go from one to the other.
fn extremes(pool: &Pool) -> Option<(MemberId, MemberId, usize)> {
    let shares = shares(pool);
    let fullest = shares.iter().max()?;
    let emptiest = shares.iter().min()?;
    let two_slabs = 2000 / fullest.2.min(emptiest.2).max(1);
    // Both are equally full then.
    let (slabs, used) = (fullest.2 + emptiest.2, fullest.3 + emptiest.3);
    let surplus = fullest.3.saturating_sub(fullest.2 * used / slabs.max(1)).max(1);
    let uneven = fullest.0 > emptiest.0 + UNEVEN_PERMILLE.max(two_slabs);
    uneven.then_some((fullest.1, emptiest.1, surplus as usize))
}

/// About how much must move until all are equally full.
fn uneven_bytes(pool: &Pool) -> u64 {
    if extremes(pool).is_none() {
        return 0;
    }
    let shares = shares(pool);
    let (slabs, used) = shares.iter().fold((0, 0), |(slabs, used), one| (slabs + one.2, used + one.3));
    let above = |one: &(u64, MemberId, u64, u64)| one.3.saturating_sub(one.2 * used / u64::max(slabs, 1));
    shares.iter().map(above).sum::<u64>() * pool.dimensions().slab_bytes
}
