//! Sectors that a slot did not give are found again from the other slots, and written back where that helps.

use std::time::Duration;

use super::asking::Reading;
use super::solve::rebuild_sector;
use super::{AlignedBuf, Answer, Arc, PoolError, Result, Set, Wanted, sources};
use crate::member::{Area, MemberError, SLAB_HEADER_BYTES};
use crate::units::{SECTOR, SECTOR_LEN};

/// A sector that a slot did not give.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bad {
    /// Its column in the set.
    pub column: usize,
    /// Its offset in the slot.
    pub offset: u64,
    /// Its place in what is wanted, in bytes.
    pub at: usize,
}

/// Why sectors are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The member gave wrong bytes or an error: they are written back to it.
    Wrong,
    /// It was not asked, is not here, or does not answer: nothing is known to be wrong there.
    Avoided,
    /// The read of this number takes long, and may still come.
    Late(usize),
}

/// Neighbouring sectors that the same slots give back.
struct Group {
    /// Those slots, the one that failed not among them.
    slots: Vec<usize>,
    /// How many of them it takes.
    needed: usize,
    bad: Vec<Bad>,
}

impl Group {
    fn offset(&self) -> u64 {
        self.bad.first().map_or(0, |bad| bad.offset)
    }

    fn len(&self) -> u64 {
        self.bad.last().map_or(0, |bad| bad.offset + SECTOR - self.offset())
    }
}

/// What is at work to give back one group.
struct Effort {
    /// Reads of other slots that have not come.
    pending: Vec<usize>,
    /// What other slots gave, from the group's start on.
    came: Vec<(usize, AlignedBuf)>,
    /// Slots that were not asked yet, because they are slow.
    spare: Vec<usize>,
    /// The slot itself, if it was not asked.
    avoided: Option<usize>,
    /// The late read itself, as long as it may come.
    late: Option<usize>,
    /// Sectors that are still missing.
    missing: Vec<Bad>,
    /// Nothing is waited for any longer.
    until: Duration,
}

impl Reading<'_> {
    /// Gets `bad`, sectors of `slot`, from the others.
    ///
    /// # Errors
    /// [`PoolError::Unreadable`].
    pub fn rebuild(&mut self, slot: usize, bad: Vec<Bad>, cause: Cause, wanted: &mut Wanted) -> Result<()> {
        for group in groups(self.set, slot, bad) {
            self.rebuild_group(slot, &group, cause, wanted)?;
            if cause == Cause::Wrong {
                self.heal(slot, &group.bad, wanted);
            }
        }
        Ok(())
    }

    fn rebuild_group(&mut self, slot: usize, group: &Group, cause: Cause, wanted: &mut Wanted) -> Result<()> {
        let mut effort = self.ask_others(slot, group, cause);
        let late = effort.late;
        while !effort.missing.is_empty() {
            if let Some(tag) = self.next_of(&mut effort) {
                self.use_arrival(tag, group, &mut effort, wanted);
            } else if !effort.spare.is_empty() {
                self.ask_spare(group, &mut effort);
            } else if !self.ask_itself(group, &mut effort) {
                let first = effort.missing[0];
                return Err(PoolError::Unreadable {
                    set: self.set.id,
                    address: wanted.address + first.at as u64,
                    sectors: effort.missing.len() as u64,
                });
            }
        }
        if let (Some(tag), true) = (late, effort.late.is_some()) {
            let asked = self.asked(tag);
            let (slab, offset) = (self.set.slots[slot].slab, SLAB_HEADER_BYTES + asked.offset);
            let pulse = &self.pool.member(self.member(slot)).pulse;
            pulse.beaten(Area::Slab(slab), offset, self.pool.now());
        }
        for (_, data) in effort.came {
            self.pool.buffers.give(data);
        }
        Ok(())
    }

    /// Asks the slots that answer as usual; where these are too few, all.
    fn ask_others(&mut self, slot: usize, group: &Group, cause: Cause) -> Effort {
        let here = |slot: &usize| self.pool.is_well(&self.set.slots[*slot]);
        let (mut well, mut spare): (Vec<usize>, Vec<usize>) =
            group.slots.iter().copied().filter(here).partition(|&slot| self.is_well(slot));
        if well.len() < group.needed {
            well.append(&mut spare);
        }
        let pending =
            well.into_iter().filter_map(|slot| self.ask(slot, group.offset(), group.len())).collect();
        let late = if let Cause::Late(tag) = cause { Some(tag) } else { None };
        let avoided = (cause == Cause::Avoided).then_some(slot);
        let until = self.pool.now() + self.pool.io.deadline;
        Effort { pending, came: Vec::new(), spare, avoided, late, missing: group.bad.clone(), until }
    }

    fn ask_spare(&mut self, group: &Group, effort: &mut Effort) {
        let spare = std::mem::take(&mut effort.spare);
        effort.until = self.pool.now() + self.pool.io.deadline;
        effort
            .pending
            .extend(spare.into_iter().filter_map(|slot| self.ask(slot, group.offset(), group.len())));
    }

    /// The others can't give it, so the slot that was avoided is asked itself. False when there is none.
    fn ask_itself(&mut self, group: &Group, effort: &mut Effort) -> bool {
        let Some(slot) = effort.avoided.take() else { return false };
        effort.late = self.ask(slot, group.offset(), group.len());
        effort.until = self.pool.now() + self.pool.io.deadline;
        effort.late.is_some()
    }

    /// The next arrival that belongs to `effort`; none when there will be none.
    fn next_of(&mut self, effort: &mut Effort) -> Option<usize> {
        loop {
            let waits_for = |tag: &usize| effort.pending.contains(tag) || effort.late == Some(*tag);
            if effort.pending.is_empty() && effort.late.is_none() {
                return None;
            }
            let Some(tag) = self.next(effort.until) else {
                self.note_timeouts(effort);
                return None;
            };
            if waits_for(&tag) {
                return Some(tag);
            }
        }
    }

    /// What is still owed at the deadline counts as not answered.
    fn note_timeouts(&mut self, effort: &mut Effort) {
        for tag in effort.pending.drain(..).chain(effort.late.take()) {
            let error = self.inbox.timeout(tag);
            self.pool.read_failed(self.member(self.asked(tag).slot), &error);
        }
    }

    /// Gets as many missing sectors as an arrival makes possible.
    fn use_arrival(&mut self, tag: usize, group: &Group, effort: &mut Effort, wanted: &mut Wanted) {
        let is_late = effort.late == Some(tag);
        if is_late {
            effort.late = None;
        }
        effort.pending.retain(|pending| *pending != tag);
        let slot = self.asked(tag).slot;
        let data = match self.take(tag) {
            Some(Ok(Answer::Bytes(data))) => data,
            Some(Err(error)) => {
                self.pool.read_failed(self.member(slot), &error);
                return;
            }
            _ => return,
        };
        if is_late {
            let start = self.asked(tag).offset;
            effort.missing.retain(|bad| {
                let from = (bad.offset - start) as usize;
                !wanted.take(bad, &data[from..from + SECTOR_LEN])
            });
            self.pool.buffers.give(data);
            return;
        }
        effort.came.push((slot, data));
        if effort.came.len() < group.needed {
            return;
        }
        let mut sector = [0; SECTOR_LEN];
        effort.missing.retain(|bad| {
            let from = (bad.offset - group.offset()) as usize;
            let sum = wanted.sums[bad.at / SECTOR_LEN];
            let place = (bad.column, bad.offset);
            let found = rebuild_sector(&self.set.geometry, place, &effort.came, from, sum, &mut sector);
            !(found && wanted.take(bad, &sector))
        });
    }

    /// Writes rebuilt sectors back. The set can't be reused meanwhile, since its `Arc` is held.
    fn heal(&self, slot: usize, bad: &[Bad], wanted: &Wanted) {
        let place = self.set.slots[slot];
        let member = self.pool.member(place.member);
        let Some(disk) = member.disk().filter(|_| member.is_writable() && !self.pool.read_only()) else {
            return;
        };
        for bad in bad {
            let sector = AlignedBuf::copy_of(&wanted.buf[bad.at..bad.at + SECTOR_LEN]);
            match disk.write(Area::Slab(place.slab), SLAB_HEADER_BYTES + bad.offset, &sector) {
                Ok(()) => member.trouble.count_healed(1),
                // Somebody deleted it: that is for a repair.
                Err(MemberError::NoSlab { .. }) => return,
                Err(error) => {
                    self.pool.member_failed(place.member, &error);
                    return;
                }
            }
        }
        let (path, count) = (&member.path, bad.len());
        log::info!("{path}: {count} sector(s) of set {} rebuilt and written back", self.set.id);
    }
}

/// Groups sectors of `slot` (in the order of their offsets) by the slots that can give them back.
fn groups(set: &Arc<Set>, slot: usize, bad: Vec<Bad>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for bad in bad {
        let (mut slots, needed) = sources(set, bad.column, bad.offset);
        slots.retain(|&other| other != slot);
        match groups.last_mut().filter(|group| group.slots == slots) {
            Some(group) => group.bad.push(bad),
            None => groups.push(Group { slots, needed, bad: vec![bad] }),
        }
    }
    groups
}
