//! The verified reader: one plan of slot reads for a request, in parallel, every sector checked. What does
//! not match is rebuilt from the other slots, returned, and written back where it belongs.
//!
//! Nobody waits for one member when the others can answer. A read that takes much longer than its member usually
//! does is also asked of the others, and the first good answer wins; what a slow member holds is asked of the
//! others at once. All of it works by the members' pulses (see [`crate::member::pulse`]).

mod asking;
mod rebuild;
pub(super) mod solve;

use self::asking::Reading;
use self::rebuild::{Bad, Cause};
use super::Pool;
use super::error::{PoolError, Result};
use super::sets::Set;
use crate::codec;
use crate::layout::{Redundancy, Run};
use crate::member::superblock::{MemberId, SetId};
use crate::member::{AlignedBuf, Answer, MemberError, Outcome};
use crate::sync::Arc;
use crate::units::{SECTOR, SECTOR_LEN};

/// Copies of a mirror take turns every so many bytes of a set's payload.
const TURN_BYTES: u64 = 1 << 20;

/// One read of one slot, for one or more runs that lie there side by side.
#[derive(Debug)]
struct SlotRead {
    slot: usize,
    offset: u64,
    len: u64,
    runs: Vec<Run>,
}

impl SlotRead {
    /// Every sector of it.
    fn sectors(&self) -> Vec<Bad> {
        let of = |run: &Run| {
            let column = run.column;
            let (offset, at) = (run.offset, run.at);
            (0..run.len).step_by(SECTOR_LEN).map(move |more| Bad {
                column,
                offset: offset + more,
                at: (at + more) as usize,
            })
        };
        self.runs.iter().flat_map(of).collect()
    }
}

/// What is read: a range of a set, with what it must match.
struct Wanted<'a> {
    address: u64,
    sums: &'a [u32],
    buf: &'a mut [u8],
}

impl Wanted<'_> {
    /// Takes a sector, if it is the right one.
    fn take(&mut self, bad: &Bad, sector: &[u8]) -> bool {
        let good = codec::checksum(sector) == self.sums[bad.at / SECTOR_LEN];
        if good {
            self.buf[bad.at..bad.at + SECTOR_LEN].copy_from_slice(sector);
        }
        good
    }
}

impl Pool {
    /// Reads, verifies, and where needed rebuilds and heals. `address` and `buf` are whole sectors; `sums`
    /// has one checksum for each.
    ///
    /// # Errors
    /// [`PoolError::Unreadable`] names the first sectors that nothing gives back; `buf` is undefined then.
    /// [`PoolError::NoSet`] for a set that does not exist.
    pub fn read(&self, set: SetId, address: u64, sums: &[u32], buf: &mut [u8]) -> Result<()> {
        let set = self.sets.get(set).ok_or(PoolError::NoSet { set })?;
        let end = address.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > set.geometry.payload_bytes()) || sums.len() * SECTOR_LEN != buf.len() {
            return Err(PoolError::Damaged {
                what: format!("a reference to {} bytes at {address} of set {}", buf.len(), set.id),
            });
        }
        let plan = self.plan(&set, address, buf.len() as u64);
        let mut wanted = Wanted { address, sums, buf };
        let mut reading = Reading::new(self, &set);
        let asked: Vec<Option<usize>> = plan.iter().map(|read| reading.ask_unless_slow(read)).collect();
        for (read, tag) in plan.iter().zip(asked) {
            self.deliver(&mut reading, read, tag, &mut wanted)?;
        }
        Ok(())
    }

    /// Waits for one slot's answer, and takes from it what is right and from the others what is not.
    fn deliver(
        &self,
        reading: &mut Reading,
        read: &SlotRead,
        tag: Option<usize>,
        wanted: &mut Wanted,
    ) -> Result<()> {
        let Some(tag) = tag else {
            return reading.rebuild(read.slot, read.sectors(), Cause::Avoided, wanted);
        };
        let member = reading.set.slots[read.slot].member;
        match reading.answer(tag, read) {
            Some(Ok(answer)) => {
                let bad = self.take_answer(read, answer, wanted);
                if bad.is_empty() {
                    return Ok(());
                }
                self.note_mismatches(member, reading.set, bad.len());
                reading.rebuild(read.slot, bad, Cause::Wrong, wanted)
            }
            Some(Err(error)) => {
                self.read_failed(member, &error);
                let cause = if heals(&error) { Cause::Wrong } else { Cause::Avoided };
                reading.rebuild(read.slot, read.sectors(), cause, wanted)
            }
            None => reading.rebuild(read.slot, read.sectors(), Cause::Late(tag), wanted),
        }
    }

    /// Copies the sectors that match, and returns the others.
    fn take_answer(&self, read: &SlotRead, answer: Answer, wanted: &mut Wanted) -> Vec<Bad> {
        let Answer::Bytes(data) = answer else { return read.sectors() };
        let mut bad = Vec::new();
        for run in &read.runs {
            let from = (run.offset - read.offset) as usize;
            let range = run.at as usize..(run.at + run.len) as usize;
            let out = &mut wanted.buf[range.clone()];
            out.copy_from_slice(&data[from..from + run.len as usize]);
            let sums = &wanted.sums[range.start / SECTOR_LEN..range.end / SECTOR_LEN];
            bad.extend(mismatches(out, sums).map(|index| Bad {
                column: run.column,
                offset: run.offset + index as u64 * SECTOR,
                at: range.start + index * SECTOR_LEN,
            }));
        }
        self.buffers.give(data);
        bad
    }

    /// Chooses a slot for each run, and joins runs that lie side by side in one slot.
    fn plan(&self, set: &Set, address: u64, len: u64) -> Vec<SlotRead> {
        let mut plan: Vec<SlotRead> = Vec::new();
        for run in set.geometry.runs(address, len) {
            let slot = self.pick_copy(set, &run, address);
            let neighbour =
                plan.iter_mut().find(|read| read.slot == slot && read.offset + read.len == run.offset);
            match neighbour {
                Some(read) => {
                    read.len += run.len;
                    read.runs.push(run);
                }
                None => plan.push(SlotRead { slot, offset: run.offset, len: run.len, runs: vec![run] }),
            }
        }
        plan
    }

    /// The copy to read first: they take turns, and members that are not well come last.
    fn pick_copy(&self, set: &Set, run: &Run, address: u64) -> usize {
        let copies: Vec<usize> = set.geometry.copies_of(run.column, run.offset).collect();
        if let [only] = copies[..] {
            return only;
        }
        let turn = ((address + run.at) / TURN_BYTES) as usize;
        let rank = |slot: usize| {
            let id = set.slots[slot].member;
            let member = self.member(id);
            match (member.is_writable(), self.is_well(&set.slots[slot])) {
                (true, true) if !self.is_slow(id) => 0,
                (_, true) if !self.is_slow(id) => 1,
                (_, true) => 2,
                (_, false) => 3,
            }
        };
        let rotated = (0..copies.len()).map(|index| copies[(index + turn) % copies.len()]);
        rotated.min_by_key(|&slot| rank(slot)).unwrap_or(copies[0])
    }

    /// Whether what a member holds is better asked of the others.
    fn is_slow(&self, id: MemberId) -> bool {
        self.member(id).pulse.is_slow(self.now())
    }

    fn note_mismatches(&self, id: MemberId, set: &Set, sectors: usize) {
        let member = self.member(id);
        member.trouble.count(super::trouble::Kind::Checksum, sectors as u64, self.now());
        log::warn!("{}: {sectors} sector(s) of set {} did not match their checksums", member.path, set.id);
    }
}

/// Whether a failed read may be mended by writing the sectors again. Not where the member does not answer.
fn heals(error: &MemberError) -> bool {
    !error.is_timeout() && !error.is_vanished() && !error.is_own_shortage()
}

/// Slots that can give back what lies at `offset` of `column`, and how many of them it takes.
fn sources(set: &Set, column: usize, offset: u64) -> (Vec<usize>, usize) {
    match set.geometry.redundancy {
        Redundancy::Copies(_) => (set.geometry.copies_of(column, offset).collect(), 1),
        Redundancy::Parity(_) => ((0..set.geometry.slots()).collect(), usize::from(set.geometry.columns)),
    }
}

/// Indices of the sectors of `data` that do not match.
fn mismatches<'a>(data: &'a [u8], sums: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
    data.chunks_exact(SECTOR_LEN)
        .zip(sums)
        .enumerate()
        .filter(|(_, (sector, sum))| codec::checksum(sector) != **sum)
        .map(|(index, _)| index)
}
