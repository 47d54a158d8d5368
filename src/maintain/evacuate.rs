//! Empties a member, and takes it out of the pool. With another one that takes its place, what it holds goes there.
//!
//! Whatever is still on the member says what is left to do, so it can be broken off at any time and begun again. A slot
//! goes to a member outside its set; where there is none with room, what is alive in the set is written anew, to sets
//! without the member. A member that is not here any more is emptied by rebuilding.

use std::collections::HashSet;

use super::carrier::{Begun, Carrier};
use super::job::{Job, JobError, JobKind, Progress, Step};
use super::plan::{self, Plan, Refusal};
use crate::fs::Fs;
use crate::member::superblock::{MemberId, Purpose, SetId};
use crate::pool::Pool;
use crate::pool::moving::SlotInfo;
use crate::sync::Arc;

/// Empties one member.
#[derive(Debug)]
pub struct Evacuate {
    pool: Arc<Pool>,
    member: MemberId,
    new: Option<MemberId>,
    carrier: Carrier,
    progress: Progress,
}

impl Evacuate {
    /// What emptying a member would come to. Nothing is changed.
    ///
    /// # Errors
    /// [`crate::pool::PoolError::NoSuchMember`], [`Refusal`].
    pub fn plan(fs: &Fs, member: MemberId) -> Result<Plan, JobError> {
        fs.pool().active_member(member)?;
        Ok(plan::emptying(fs, member)?)
    }

    /// Begins to empty a member: it takes no new sets from now on, until this is dropped.
    ///
    /// # Errors
    /// As [`Evacuate::plan`].
    pub fn new(fs: &Fs, member: MemberId) -> Result<Self, JobError> {
        let plan = Self::plan(fs, member)?;
        Ok(Self::with(fs, member, None, &plan))
    }

    /// What moving everything from `old` to `new` would come to. Nothing is changed.
    ///
    /// # Errors
    /// [`crate::pool::PoolError::NoSuchMember`], [`Refusal::NotOnline`], [`Refusal::ReplacementTooSmall`].
    pub fn plan_replacement(fs: &Fs, old: MemberId, new: MemberId) -> Result<Plan, JobError> {
        let pool = fs.pool();
        let (_, used) = pool.active_member(old)?.slab_counts();
        let member = pool.active_member(new)?;
        if !member.takes_sets() || old == new {
            return Err(Refusal::NotOnline { member: new }.into());
        }
        let offered = pool.room_by_member().get(&new).copied().unwrap_or(0);
        if offered < used {
            return Err(Refusal::ReplacementTooSmall { offered, used }.into());
        }
        let own = pool.default_resiliency();
        Ok(Plan {
            move_bytes: plan::filled(&pool.slots(|place| place.member == old)),
            rewrite_bytes: 0,
            capacity_before: pool.capacity_without(&[], &own),
            capacity_after: pool.capacity_without(&[old], &own),
        })
    }

    /// Begins to move everything from `old` to `new`. Where the set has a slot on the new one already, another member
    /// takes the slot.
    ///
    /// # Errors
    /// As [`Evacuate::plan_replacement`].
    pub fn replace(fs: &Fs, old: MemberId, new: MemberId) -> Result<Self, JobError> {
        let plan = Self::plan_replacement(fs, old, new)?;
        Ok(Self::with(fs, old, Some(new), &plan))
    }

    fn with(fs: &Fs, member: MemberId, new: Option<MemberId>, plan: &Plan) -> Self {
        let pool = Arc::clone(fs.pool());
        pool.set_draining(member, true);
        let progress = Progress { total_bytes: plan.total_bytes(), ..Progress::default() };
        Self { pool, member, new, carrier: Carrier::default(), progress }
    }

    fn next(&mut self, fs: &Fs, budget: u64) -> Result<Step, JobError> {
        if !self.carrier.wants_more(fs) {
            let bytes = self.carrier.carry(fs, budget)?;
            return Ok(self.progress.moved(bytes));
        }
        let mut slots = self.pool.slots(|place| place.member == self.member);
        // What is being rewritten first, then what is quick.
        let rewriting = self.carrier.rewriting();
        slots.sort_by_key(|slot| (Some(slot.set) != rewriting, slot.fill));
        let begun = slots.iter().take(1).filter(|slot| Some(slot.set) == rewriting).copied();
        if let Some(bytes) = self.carrier.rewrite_one(fs, &begun.collect::<Vec<_>>())? {
            return Ok(self.progress.moved(bytes));
        }
        let (pool, new) = (Arc::clone(&self.pool), self.new);
        let begun = self.carrier.begin(fs, &slots, |slot| pool.targets_for(slot.set, new))?;
        if !self.carrier.is_idle() {
            let bytes = self.carrier.carry(fs, budget)?;
            return Ok(self.progress.moved(bytes));
        }
        if slots.is_empty() { self.finish(fs) } else { self.otherwise(fs, &begun) }
    }

    /// No slot can be moved: sets are written anew, or there is something to wait for.
    fn otherwise(&mut self, fs: &Fs, begun: &Begun) -> Result<Step, JobError> {
        let damaged = |slot: &SlotInfo| self.carrier.is_damaged(slot.set);
        let unreadable = begun.homeless.iter().filter(|slot| damaged(slot)).count();
        let data = |slot: &&SlotInfo| slot.purpose == Purpose::Data && !damaged(slot);
        let data: Vec<SlotInfo> = begun.homeless.iter().filter(data).copied().collect();
        if let Some(bytes) = self.carrier.rewrite_one(fs, &data)? {
            return Ok(self.progress.moved(bytes));
        }
        let metadata = |slot: &&SlotInfo| slot.purpose == Purpose::Meta;
        let metadata: HashSet<SetId> = begun.homeless.iter().filter(metadata).map(|slot| slot.set).collect();
        fs.store().empty_metadata_sets(metadata);
        if self.carrier.settle(fs)? {
            return Ok(Step::Moved(0));
        }
        let why = match begun.homeless.len() {
            0 if begun.unsaved > 0 => {
                format!(
                    "{} sets on it can't be read without it; remove it with --lost and --force",
                    begun.unsaved
                )
            }
            n if n == unreadable && n > 0 => format!(
                "{n} sets on it hold data that can't be read, and no other member has room for their slots: delete the damaged files, or add a member"
            ),
            0 => format!("{} sets on it are in use", begun.busy + begun.dead),
            n => format!("{n} sets on it fit nowhere else now: no other member has room"),
        };
        Ok(Step::Pending(why))
    }

    /// Nothing is on it any more: once what it gave up is free for good, it leaves.
    fn finish(&mut self, fs: &Fs) -> Result<Step, JobError> {
        let member = self.pool.active_member(self.member)?;
        let (_, slabs) = member.slab_counts();
        if slabs > 0 {
            return match self.carrier.settle(fs)? {
                true => Ok(Step::Moved(0)),
                false => Ok(Step::Pending(format!("{slabs} slabs on it are still being read"))),
            };
        }
        match member.is_writable() {
            true => fs.store().remove_member(self.member)?,
            false => fs.store().give_up_lost(self.member, false)?,
        }
        Ok(Step::Done)
    }
}

impl Job for Evacuate {
    fn kind(&self) -> JobKind {
        match self.new {
            None => JobKind::Evacuate { member: self.member },
            Some(new) => JobKind::Replace { old: self.member, new },
        }
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn step(&mut self, fs: &Fs, budget_bytes: u64) -> Result<Step, JobError> {
        if self.pool.active_member(self.member).is_err() {
            return Ok(Step::Done);
        }
        let step = self.next(fs, budget_bytes);
        self.progress.unsaved = self.carrier.take_unsaved();
        step
    }
}

impl Drop for Evacuate {
    fn drop(&mut self) {
        self.pool.set_draining(self.member, false);
    }
}
