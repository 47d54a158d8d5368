//! Evens out the use of the members, and writes sets anew that are narrower than new ones would be.
//!
//! Wider sets come first, since they move everything anyway: as long as the pool could hold more in sets that are made
//! now, those that were there at the start are written anew, the narrowest first, each once at most. Then slots go from
//! the member that is fullest, as a share of what it offers, to the emptiest.

use super::carrier::Carrier;
use super::job::{Job, JobError, JobKind, Progress, Step};
use super::plan::{self, Plan};
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
        // What is written anew must not go into those.
        narrow(&pool, before).iter().for_each(|slot| {
            pool.quiet(slot.set);
        });
        let progress = Progress { total_bytes: Self::plan(fs).total_bytes(), ..Progress::default() };
        Self { pool, before, carrier: Carrier::default(), progress }
    }

    fn next(&mut self, fs: &Fs, budget: u64) -> Result<Step, JobError> {
        if !self.carrier.is_idle() {
            let bytes = self.carrier.carry(fs, budget)?;
            return Ok(self.progress.moved(bytes));
        }
        let mut rewrites = narrow(&self.pool, self.before);
        rewrites.retain(|slot| !self.carrier.is_damaged(slot.set));
        if !rewrites.is_empty() {
            if let Some(bytes) = self.carrier.rewrite_one(fs, &rewrites)? {
                return Ok(self.progress.moved(bytes));
            }
            // What was rewritten is free after some checkpoints.
            if self.carrier.settle(fs)? {
                return Ok(Step::Moved(0));
            }
            return Ok(Step::Pending(format!("{} sets wait for room, or are in use", rewrites.len())));
        }
        let Some((to, slots)) = next_moves(&self.pool) else { return Ok(Step::Done) };
        let begun = self.carrier.begin(fs, &slots, |_| vec![to])?;
        if begun.count > 0 {
            let bytes = self.carrier.carry(fs, budget)?;
            return Ok(self.progress.moved(bytes));
        }
        if self.carrier.settle(fs)? {
            return Ok(Step::Moved(0));
        }
        Ok(Step::Pending(format!("{} sets are in use", slots.len())))
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

/// How full a member is, in thousandths, with its number, its slabs and those in use.
type Share = (u64, MemberId, u64, u64);

/// How full each member is that takes sets.
fn shares(pool: &Pool) -> Vec<Share> {
    let members = pool.use_by_member().into_iter();
    members.map(|(id, slabs, used)| (used * 1000 / slabs.max(1), id, slabs, used)).collect()
}

/// Which slots to move next, and to which member: from the fullest to the emptiest of those that differ by enough and
/// have sets that can be moved. None when it is even, or nothing can be.
fn next_moves(pool: &Pool) -> Option<(MemberId, Vec<SlotInfo>)> {
    let mut shares = shares(pool);
    shares.sort_unstable();
    for from in shares.iter().rev() {
        let mut slots = pool.slots(|place| place.member == from.1);
        slots.retain(|slot| slot.fill > 0 && slot.live > 0 && slot.free);
        for to in shares.iter().take_while(|to| are_uneven(from, to)) {
            // Both are equally full then.
            let (slabs, used) = (from.2 + to.2, from.3 + to.3);
            let surplus = from.3.saturating_sub(from.2 * used / slabs.max(1)).max(1);
            let outside = |slot: &&SlotInfo| {
                let set = pool.set_record(slot.set);
                set.is_some_and(|set| set.slots.iter().all(|place| place.member != to.1))
            };
            let movable: Vec<SlotInfo> =
                slots.iter().filter(outside).take(surplus as usize).copied().collect();
            if !movable.is_empty() {
                return Some((to.1, movable));
            }
        }
    }
    None
}

fn are_uneven(fuller: &Share, emptier: &Share) -> bool {
    let two_slabs = 2000 / fuller.2.min(emptier.2).max(1);
    fuller.0 > emptier.0 + UNEVEN_PERMILLE.max(two_slabs)
}

/// About how much must move until all are equally full.
fn uneven_bytes(pool: &Pool) -> u64 {
    let Some((_, next)) = next_moves(pool) else { return 0 };
    let shares = shares(pool);
    let (slabs, used) = shares.iter().fold((0, 0), |(slabs, used), one| (slabs + one.2, used + one.3));
    let above = |one: &Share| one.3.saturating_sub(one.2 * used / u64::max(slabs, 1));
    let above = shares.iter().map(above).sum::<u64>() * pool.dimensions().slab_bytes;
    above.min(plan::filled(&next) * shares.len() as u64)
}
