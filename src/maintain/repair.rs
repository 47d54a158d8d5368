//! Rebuilds what lost redundancy: slots on members that are not here or failed, and sets that were written short.
//!
//! The sets that can lose least come first. A slot goes to a member outside its set; where there is none with room, the
//! set waits, unless it is to be written anew with the members that are left, narrower (`narrow`).

use super::carrier::Carrier;
use super::job::{Job, JobError, JobKind, Progress, Step};
use super::plan::{self, Plan};
use crate::fs::Fs;
use crate::member::superblock::Purpose;
use crate::pool::Pool;
use crate::pool::moving::SlotInfo;
use crate::sync::Arc;

/// Rebuilds what lost redundancy.
#[derive(Debug)]
pub struct Repair {
    pool: Arc<Pool>,
    narrow: bool,
    carrier: Carrier,
    progress: Progress,
}

impl Repair {
    /// What there is to do. Nothing is changed.
    pub fn plan(fs: &Fs) -> Plan {
        let pool = fs.pool();
        let own = pool.default_resiliency();
        let capacity = pool.capacity_without(&[], &own);
        let rewrite_bytes = pool.sets_to_widen().iter().map(|slot| slot.live).sum();
        let move_bytes = plan::filled(&lost(pool));
        Plan { move_bytes, rewrite_bytes, capacity_before: capacity, capacity_after: capacity }
    }

    /// Begins to repair. `narrow`: sets for whose lost slots there is no member are written anew.
    pub fn new(fs: &Fs, narrow: bool) -> Self {
        let total_bytes = Self::plan(fs).total_bytes();
        let progress = Progress { total_bytes, ..Progress::default() };
        Self { pool: Arc::clone(fs.pool()), narrow, carrier: Carrier::cautious(), progress }
    }

    fn next(&mut self, fs: &Fs, budget: u64) -> Result<Step, JobError> {
        if !self.carrier.wants_more(fs) {
            let bytes = self.carrier.carry(fs, budget)?;
            return Ok(self.progress.moved(bytes));
        }
        let slots = lost(&self.pool);
        let pool = Arc::clone(&self.pool);
        let begun = self.carrier.begin(fs, &slots, |slot| pool.targets_for(slot.set, None))?;
        if !self.carrier.is_idle() {
            let bytes = self.carrier.carry(fs, budget)?;
            return Ok(self.progress.moved(bytes));
        }
        let mut rewrites = self.pool.sets_to_widen();
        rewrites.retain(|slot| !self.carrier.is_damaged(slot.set));
        if self.narrow {
            let helps = |slot: &&SlotInfo| {
                slot.purpose == Purpose::Data
                    && !self.carrier.is_damaged(slot.set)
                    && self.pool.has_room_for_new(slot.set)
            };
            rewrites.extend(begun.homeless.iter().filter(helps));
        }
        if let Some(bytes) = self.carrier.rewrite_one(fs, &rewrites)? {
            return Ok(self.progress.moved(bytes));
        }
        let thin = self.pool.thin_metadata();
        let left = begun.busy + begun.dead + begun.homeless.len() + rewrites.len() + thin.len();
        thin.iter().for_each(|set| {
            self.pool.quiet(*set);
        });
        fs.store().empty_metadata_sets(thin);
        if left == 0 {
            return Ok(match begun.unsaved {
                0 => Step::Done,
                n => Step::Pending(format!(
                    "{n} slots can't be rebuilt in full without the members that are away; remove those with --lost to do without"
                )),
            });
        }
        if self.carrier.settle(fs)? {
            return Ok(Step::Moved(0));
        }
        Ok(Step::Pending(match begun.homeless.len() {
            0 => format!("{left} sets are in use, or wait for room"),
            n => format!("{n} sets have lost a slot, and no member outside them has room: add one"),
        }))
    }
}

impl Job for Repair {
    fn kind(&self) -> JobKind {
        JobKind::Repair
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn step(&mut self, fs: &Fs, budget_bytes: u64) -> Result<Step, JobError> {
        let step = self.next(fs, budget_bytes);
        self.progress.unsaved = self.carrier.take_unsaved();
        step
    }

    fn cursor(&self) -> Vec<u8> {
        vec![u8::from(self.narrow)]
    }
}

/// Slots on members that take no writes, those of the sets that can lose least first.
fn lost(pool: &Pool) -> Vec<SlotInfo> {
    let mut slots = pool.slots(|place| pool.has_lost_slot(place));
    slots.retain(|slot| slot.live > 0 || slot.fill > 0);
    slots.sort_by_key(|slot| (slot.spare, slot.fill));
    slots
}
