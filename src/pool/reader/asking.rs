//! The slot reads of one request that are under way.

use std::time::Duration;

use super::{AlignedBuf, Arc, MemberId, Outcome, Pool, Set, SlotRead, sources};
use crate::member::{Area, Inbox, Request, SLAB_HEADER_BYTES};

/// The slot reads of one request to the pool. What arrives while something else is waited for is kept.
pub(super) struct Reading<'a> {
    pub pool: &'a Pool,
    pub set: &'a Arc<Set>,
    pub inbox: Inbox,
    asked: Vec<Asked>,
}

/// One slot read.
pub(super) struct Asked {
    pub slot: usize,
    pub at: Duration,
    pub offset: u64,
    outcome: Option<Outcome>,
}

impl<'a> Reading<'a> {
    pub fn new(pool: &'a Pool, set: &'a Arc<Set>) -> Self {
        Self { pool, set, inbox: Inbox::new(&pool.io.clock), asked: Vec::new() }
    }

    pub fn member(&self, slot: usize) -> MemberId {
        self.set.slots[slot].member
    }

    /// What was asked with the number `tag`.
    pub fn asked(&self, tag: usize) -> &Asked {
        &self.asked[tag]
    }

    /// Asks a slot's member, if it is here.
    pub fn ask(&mut self, slot: usize, offset: u64, len: u64) -> Option<usize> {
        let place = self.set.slots[slot];
        let disk = self.pool.member(place.member).disk()?;
        let buf: AlignedBuf = self.pool.buffers.take(len as usize);
        let offset_in_slab = SLAB_HEADER_BYTES + offset;
        let at = self.pool.now();
        let request =
            Request::Read { area: Area::Slab(place.slab), offset: offset_in_slab, buf, len: len as usize };
        self.asked.push(Asked { slot, at, offset, outcome: None });
        Some(self.inbox.ask(&disk, request))
    }

    /// Asks for a read of the plan, unless its member is slow and the others can give it.
    pub fn ask_unless_slow(&mut self, read: &SlotRead) -> Option<usize> {
        let (copies, needed) = sources(self.set, read.runs[0].column, read.offset);
        if needed == 1 {
            copies.into_iter().filter(|&slot| slot != read.slot).for_each(|slot| self.probe(slot, read));
        }
        if self.pool.is_slow(self.member(read.slot)) && self.others_can_give(read) {
            self.probe(read.slot, read);
            return None;
        }
        self.ask(read.slot, read.offset, read.len)
    }

    /// Now and then a slow member is asked what the others give, to see whether it has recovered. Nobody waits for
    /// that.
    fn probe(&mut self, slot: usize, read: &SlotRead) {
        let id = self.member(slot);
        if !self.pool.is_slow(id) {
            return;
        }
        if self.pool.member(id).pulse.take_probe(self.pool.now()) {
            self.ask(slot, read.offset, read.len);
        }
    }

    fn others_can_give(&self, read: &SlotRead) -> bool {
        read.runs.iter().all(|run| {
            let (slots, needed) = sources(self.set, run.column, run.offset);
            slots.into_iter().filter(|&slot| slot != read.slot && self.is_well(slot)).count() >= needed
        })
    }

    /// Whether a slot is there, on a member that answers as quickly as usual.
    pub fn is_well(&self, slot: usize) -> bool {
        self.pool.is_well(&self.set.slots[slot]) && !self.pool.is_slow(self.member(slot))
    }

    /// Notes the next arrival, whatever it is, and gives its number. None when nothing came until `until`.
    pub fn next(&mut self, until: Duration) -> Option<usize> {
        let (tag, outcome) = self.inbox.next(until)?;
        self.asked[tag].outcome = Some(outcome);
        Some(tag)
    }

    /// The outcome of a read, if it has come.
    pub fn take(&mut self, tag: usize) -> Option<Outcome> {
        self.asked[tag].outcome.take()
    }

    /// The answer to a read of the plan; none when it is late and the others should be asked too. If they can't give
    /// it, it is waited for until the deadline.
    pub fn answer(&mut self, tag: usize, read: &SlotRead) -> Option<Outcome> {
        let id = self.member(read.slot);
        let late = self.asked[tag].at + self.pool.member(id).pulse.late_after(read.len as usize);
        if let Some(outcome) = self.wait_for(tag, late) {
            return Some(outcome);
        }
        if self.others_can_give(read) {
            self.pool.member(id).pulse.hedge();
            return None;
        }
        let deadline = self.asked[tag].at + self.pool.io.deadline;
        let outcome = self.wait_for(tag, deadline);
        Some(outcome.unwrap_or_else(|| Err(self.inbox.timeout(tag))))
    }

    fn wait_for(&mut self, tag: usize, until: Duration) -> Option<Outcome> {
        loop {
            if let Some(outcome) = self.take(tag) {
                return Some(outcome);
            }
            self.next(until)?;
        }
    }
}
