//! Moving slots of sets to slabs on other members: because a member is to go, is gone, or has more than its share.
//!
//! A set whose slot moves takes no more stripes, and those in flight end first: up to its fill mark it then stays as it
//! is. Each byte up to there is copied from the old slab, or, where that can't be read or does not match its
//! checksum, rebuilt from the other slots; dead bytes too, since they are part of parity. Only when the new slab is
//! synced is the set's record changed ([`Move::slot_move`], committed by the store), and the old slab is used again
//! when no root that recovery could use has it: as with sets that are freed.
//!
//! Several slots move side by side in rounds ([`copy_some`]): one read of each member they need, then one write each,
//! while the next round is read. Whoever drops a [`Move`] before it is committed has changed nothing.

mod chunk;
mod sums;

pub use sums::KnownSums;

use super::Pool;
use super::error::{PoolError, Result};
use super::lanes::{Lane, Started};
use super::sets::{Set, SlotMove};
use super::space::Urgency;
use crate::layout::Redundancy;
use crate::member::header::SlabHeader;
use crate::member::superblock::{MemberId, Purpose, SetId, SlabRef};
use crate::member::{AlignedBuf, Area, MemberError, SLAB_HEADER_BYTES};
use crate::sync::Arc;
use crate::units::MIB;
use chunk::Chunk;

/// Bytes of a slot that one round copies. A rotation is a multiple of it, or a slab smaller than it.
const ROUND_BYTES: u64 = 2 * MIB;

/// Sectors that neither the old slab nor the other slots give back. Reading them gives an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unsaved {
    /// The set.
    pub set: SetId,
    /// Address in its payload, in bytes.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A slot of a set, for those who plan moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotInfo {
    /// The set.
    pub set: SetId,
    /// Which of its slots.
    pub slot: usize,
    /// Where it is now.
    pub place: SlabRef,
    /// What the set holds.
    pub purpose: Purpose,
    /// Bytes of the slot that were written.
    pub fill: u64,
    /// Bytes of the set's payload that are alive.
    pub live: u64,
    /// How many more slots the set could lose, as it is now; below 0 it can't be read.
    pub spare: i64,
    /// It can be moved, or is going to be able to: no other slot of the set is on its way.
    pub free: bool,
}

/// A slot on its way to another slab.
#[derive(Debug)]
pub struct Move {
    pool: Arc<Pool>,
    set: Arc<Set>,
    slot: usize,
    to: SlabRef,
    sums: KnownSums,
    done: u64,
    end: u64,
    unsaved: Vec<Unsaved>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Copying,
    Synced,
    Failed,
    Committed,
}

type Outcome = std::result::Result<(), MemberError>;
type Read = (AlignedBuf, Outcome);

impl Move {
    /// Takes a slab on member `to` for a slot of a set that takes no more stripes ([`Pool::quiet`]). `sums`: of
    /// what is alive in the set, as of then. None when the set is not as the caller thinks, or there is no room.
    ///
    /// # Errors
    /// Those of making the slab for which no member is to blame.
    pub fn begin(
        pool: &Arc<Pool>,
        set: SetId,
        slot: usize,
        to: MemberId,
        sums: KnownSums,
    ) -> Result<Option<Self>> {
        if pool.read_only() {
            return Err(PoolError::ReadOnly);
        }
        let Some(set) = pool.sets.get(set) else { return Ok(None) };
        let there = slot < set.slots.len() && set.slots.iter().all(|place| place.member != to);
        if !there || !set.is_still() || !set.begin_moving() {
            return Ok(None);
        }
        // Another move may have ended between the look and the claim.
        let current = pool.sets.get(set.id).is_some_and(|now| Arc::ptr_eq(&now, &set));
        let slab = if current { pool.take_slab_on(to) } else { Ok(None) };
        let Ok(Some(slab)) = slab else {
            set.end_moving();
            return slab.map(|_| None);
        };
        let end = set.filled();
        let to = SlabRef { member: to, slab };
        let pool = Arc::clone(pool);
        let (done, unsaved, stage) = (0, Vec::new(), Stage::Copying);
        Ok(Some(Self { pool, set, slot, to, sums, done, end, unsaved, stage }))
    }

    /// What it becomes when it is committed. None before all is copied and synced.
    pub fn slot_move(&self) -> Option<SlotMove> {
        let from = self.set.slots[self.slot];
        let moved = SlotMove { set: self.set.id, slot: self.slot, from, to: self.to };
        (self.stage == Stage::Synced).then_some(moved)
    }

    /// Notes that the set's record says so now: the slab belongs to the set.
    pub fn committed(&mut self) {
        self.stage = Stage::Committed;
    }

    /// Everything is copied and synced.
    pub fn is_copied(&self) -> bool {
        self.stage == Stage::Synced
    }

    /// The new member failed: the move comes to nothing.
    pub fn has_failed(&self) -> bool {
        self.stage == Stage::Failed
    }

    /// The members that the next round reads from and writes to.
    pub fn members(&self) -> Vec<MemberId> {
        if !self.is_copying() {
            return Vec::new();
        }
        let sources = self.chunk().first_sources(&self.pool);
        sources.into_iter().map(|slot| self.set.slots[slot].member).chain([self.to.member]).collect()
    }

    /// The old slab is on a member that is away and may come back: with what could not be saved, perhaps.
    pub fn may_return(&self) -> bool {
        let from = self.set.slots[self.slot];
        self.pool.has_lost_slot(&from) && self.pool.member(from.member).is_active()
    }

    /// The set.
    pub fn set(&self) -> SetId {
        self.set.id
    }

    /// What the set holds.
    pub fn purpose(&self) -> Purpose {
        self.set.purpose
    }

    /// What could not be saved.
    pub fn unsaved(&self) -> &[Unsaved] {
        &self.unsaved
    }

    fn chunk(&self) -> Chunk<'_> {
        let len = ROUND_BYTES.min(self.set.geometry.rotation_bytes()).min(self.end - self.done);
        Chunk { set: &self.set, slot: self.slot, offset: self.done, len, sums: &self.sums }
    }

    fn is_copying(&self) -> bool {
        self.stage == Stage::Copying && self.done < self.end
    }
}

impl Drop for Move {
    fn drop(&mut self) {
        self.set.end_moving();
        if self.stage != Stage::Committed {
            self.pool.return_slabs(&[self.to]);
        }
    }
}

/// What a round brings to one member.
struct RoundWrite {
    index: usize,
    member: MemberId,
    job: Box<dyn FnOnce() -> Outcome + Send>,
}

/// Copies about `budget` bytes, taking all moves on side by side, and syncs those that are complete. Returns the bytes
/// copied. A move whose new member failed says so.
pub fn copy_some(pool: &Pool, moves: &mut [Move], budget: u64) -> u64 {
    let mut copied = 0;
    let mut flight: Option<(Vec<(usize, MemberId)>, Started<Outcome>)> = None;
    while copied < budget.max(1) {
        let turn: Vec<usize> = (0..moves.len()).filter(|&index| moves[index].is_copying()).collect();
        if turn.is_empty() {
            break;
        }
        let mut writes = Vec::new();
        for (index, buf, unsaved, len) in pool.read_round(moves, &turn) {
            copied += len;
            writes.push(pool.write_of(&moves[index], index, buf, len));
            moves[index].unsaved.extend(unsaved);
            moves[index].done += len;
        }
        pool.land_moves(flight.take(), moves);
        let jobs = writes.iter().map(|write| (write.index, write.member)).collect();
        let writes = writes.into_iter().map(|write| (write.member, write.job)).collect();
        flight = Some((jobs, pool.lanes.start(Lane::Write, writes)));
    }
    pool.land_moves(flight.take(), moves);
    pool.sync_moves(moves);
    copied
}

impl Pool {
    /// Lets a set take no more stripes. True when none is in flight any more, so that it can be moved; otherwise ask
    /// again soon.
    pub fn quiet(&self, set: SetId) -> bool {
        let Some(set) = self.sets.get(set) else { return false };
        set.seal();
        self.close_set(&set);
        set.is_still()
    }

    /// Slots for which `wanted` says so, with what is known of their sets.
    pub fn slots(&self, wanted: impl Fn(&SlabRef) -> bool) -> Vec<SlotInfo> {
        let mut found = Vec::new();
        for set in self.sets.all() {
            for (slot, _) in set.slots.iter().enumerate().filter(|(_, place)| wanted(place)) {
                found.push(self.slot_info(&set, slot));
            }
        }
        found.sort_unstable_by_key(|slot| (slot.set, slot.slot));
        found
    }

    pub(super) fn slot_info(&self, set: &Set, slot: usize) -> SlotInfo {
        SlotInfo {
            set: set.id,
            slot,
            place: set.slots[slot],
            purpose: set.purpose,
            fill: set.filled(),
            live: set.live().max(0) as u64,
            spare: self.spare(set),
            free: !set.is_moving(),
        }
    }

    /// The members from which a slot would be read first, if it were moved now.
    pub fn sources_of(&self, slot: &SlotInfo) -> Vec<MemberId> {
        let Some(set) = self.sets.get(slot.set).filter(|set| slot.slot < set.slots.len()) else {
            return Vec::new();
        };
        let sums = KnownSums::default();
        let chunk = Chunk { set: &set, slot: slot.slot, offset: 0, len: ROUND_BYTES, sums: &sums };
        chunk.first_sources(self).into_iter().map(|slot| set.slots[slot].member).collect()
    }

    /// The slot is to be rebuilt elsewhere: its member is away or failed, or its slab is not there.
    pub fn has_lost_slot(&self, place: &SlabRef) -> bool {
        let member = self.member(place.member);
        !member.is_writable() || member.has_lost(place.slab)
    }

    /// How many more slots a set can lose, at least.
    fn spare(&self, set: &Set) -> i64 {
        let lost = set.slots.iter().filter(|place| self.has_lost_slot(place)).count() as i64;
        let tolerance = set.geometry.tolerance() as i64;
        // Copies of different columns may be lost together.
        let fatal = matches!(set.geometry.redundancy, Redundancy::Copies(_))
            && lost > tolerance
            && Self::is_readable_with(set, |member| self.member(member).is_writable());
        if fatal { 0 } else { tolerance - lost }
    }

    /// The member that a slot of this set moves to best: `prefer`, or the one with the most free slabs that has none
    /// of the set. None when no such member has room.
    pub fn target_for(&self, set: SetId, prefer: Option<MemberId>) -> Option<MemberId> {
        let set = self.sets.get(set)?;
        let state = self.space.lock();
        let room = |id: MemberId| {
            let member = self.members().get(usize::from(id))?;
            let outside = set.slots.iter().all(|place| place.member != id);
            let held = self.held_back(member, Urgency::Flush, &state);
            let free = member.free_slabs().saturating_sub(held);
            (outside && member.takes_sets() && free > 0).then_some(free)
        };
        if let Some(id) = prefer.filter(|&id| room(id).is_some()) {
            return Some(id);
        }
        let ids = self.members().iter().map(|member| member.id);
        let with_room = ids.filter_map(|id| Some((room(id)?, std::cmp::Reverse(id))));
        with_room.max().map(|(_, std::cmp::Reverse(id))| id)
    }

    /// Takes and makes a slab on a member. None when it is full or fails.
    fn take_slab_on(&self, id: MemberId) -> Result<Option<crate::member::SlabNo>> {
        let member = self.member(id);
        let held = self.held_back(member, Urgency::Flush, &self.space.lock());
        if !member.takes_sets() {
            return Ok(None);
        }
        let Some((slab, made)) = self.take_and_make_slab(member, held) else { return Ok(None) };
        match made {
            Ok(()) => Ok(Some(slab)),
            Err(error) => {
                self.return_slabs(&[SlabRef { member: id, slab }]);
                self.slab_failed(id, &error);
                if error.is_own_shortage() { Err(error.into()) } else { Ok(None) }
            }
        }
    }

    /// Reads the next chunk of each of these moves, and puts right what can be. Gives for each its index, the bytes,
    /// what could not be saved, and its length.
    fn read_round(&self, moves: &[Move], turn: &[usize]) -> Vec<(usize, AlignedBuf, Vec<Unsaved>, u64)> {
        let chunks: Vec<Chunk<'_>> = turn.iter().map(|&index| moves[index].chunk()).collect();
        let wanted: Vec<Vec<usize>> = chunks.iter().map(|chunk| chunk.first_sources(self)).collect();
        let mut reads = self.read_chunks(&chunks, &wanted);
        // Where that is not enough, everything else that can help is read as well.
        let mut built = Vec::with_capacity(chunks.len());
        let mut missing = Vec::with_capacity(chunks.len());
        for (chunk, reads) in chunks.iter().zip(&reads) {
            let (buf, bad) = chunk.build(self, reads);
            missing.push(if bad.is_empty() { Vec::new() } else { chunk.other_sources(self, reads) });
            built.push((buf, bad));
        }
        let more = self.read_chunks(&chunks, &missing);
        for (reads, more) in reads.iter_mut().zip(more) {
            reads.extend(more);
        }
        let mut done = Vec::with_capacity(chunks.len());
        for (((chunk, reads), (mut buf, bad)), &index) in chunks.iter().zip(reads).zip(built).zip(turn) {
            let unsaved = chunk.mend(self, &reads, &bad, &mut buf);
            for (_, data) in reads {
                self.buffers.give(data);
            }
            done.push((index, buf, unsaved, chunk.len));
        }
        done
    }

    /// Reads each chunk from these slots, all members in parallel. What could not be read is not there.
    fn read_chunks(&self, chunks: &[Chunk<'_>], slots: &[Vec<usize>]) -> Vec<Vec<(usize, AlignedBuf)>> {
        let mut places = Vec::new();
        let mut jobs = Vec::new();
        for (index, (chunk, slots)) in chunks.iter().zip(slots).enumerate() {
            for &slot in slots {
                let SlabRef { member, slab } = chunk.set.slots[slot];
                let Some(disk) = self.member(member).disk() else { continue };
                let (offset, len) = (SLAB_HEADER_BYTES + chunk.offset, chunk.len as usize);
                let mut buf = self.buffers.take(len);
                let job: Box<dyn FnOnce() -> Read + Send> = Box::new(move || {
                    let result = disk.read(Area::Slab(slab), offset, &mut buf[..len]);
                    (buf, result)
                });
                places.push((index, slot));
                jobs.push((member, job));
            }
        }
        let mut found: Vec<Vec<(usize, AlignedBuf)>> = chunks.iter().map(|_| Vec::new()).collect();
        for (result, (index, slot)) in self.lanes.run(Lane::Read, jobs).into_iter().zip(places) {
            match result {
                Some((buf, Ok(()))) => found[index].push((slot, buf)),
                Some((_, Err(error))) => self.read_failed(chunks[index].set.slots[slot].member, &error),
                None => {}
            }
        }
        found
    }

    /// The write of one chunk; the first one of a slab brings its header.
    fn write_of(&self, moved: &Move, index: usize, buf: AlignedBuf, len: u64) -> RoundWrite {
        let SlabRef { member, slab } = moved.to;
        let disk = self.member(member).disk();
        let path = self.member(member).path.clone();
        let header = (moved.done == 0).then(|| SlabHeader {
            pool: self.uuid(),
            set: moved.set.id,
            slot: moved.slot as u16,
            member,
            slab,
        });
        let offset = SLAB_HEADER_BYTES + moved.done;
        let buffers = Arc::clone(&self.buffers);
        let job: Box<dyn FnOnce() -> Outcome + Send> = Box::new(move || {
            let disk = disk.ok_or(MemberError::NoSlab { path, slab })?;
            if let Some(header) = header {
                disk.write(Area::Slab(slab), 0, &header.encode())?;
            }
            let result = disk.write(Area::Slab(slab), offset, &buf[..len as usize]);
            buffers.give(buf);
            result
        });
        RoundWrite { index, member, job }
    }

    fn land_moves(&self, flight: Option<(Vec<(usize, MemberId)>, Started<Outcome>)>, moves: &mut [Move]) {
        let Some((places, writes)) = flight else { return };
        for (result, (index, member)) in writes.wait().into_iter().zip(places) {
            self.note_move(result, member, &mut moves[index]);
        }
    }

    fn note_move(&self, result: Option<Outcome>, member: MemberId, moved: &mut Move) {
        match result {
            Some(Ok(())) => return,
            Some(Err(error)) => self.slab_failed(member, &error),
            None => {}
        }
        moved.stage = Stage::Failed;
    }

    /// Syncs the new slabs of those that are copied, all members in parallel.
    fn sync_moves(&self, moves: &mut [Move]) {
        let ready: Vec<usize> = (0..moves.len())
            .filter(|&index| moves[index].stage == Stage::Copying && moves[index].done == moves[index].end)
            .collect();
        let jobs = ready
            .iter()
            .map(|&index| {
                let SlabRef { member, slab } = moves[index].to;
                let disk = self.member(member).disk();
                let job: Box<dyn FnOnce() -> Outcome + Send> =
                    Box::new(move || disk.map_or(Ok(()), |disk| disk.sync(Area::Slab(slab))));
                (member, job)
            })
            .collect();
        for (result, index) in self.lanes.run(Lane::Write, jobs).into_iter().zip(ready) {
            let member = moves[index].to.member;
            moves[index].stage = Stage::Synced;
            self.note_move(result, member, &mut moves[index]);
            // As with stripes: what a member took counts only if nothing of it failed meanwhile.
            if !self.member(member).is_writable() {
                moves[index].stage = Stage::Failed;
            }
        }
    }

    /// Puts the new slab of a slot into the set table. The caller makes that durable: with the record that the
    /// store commits at the same moment, or for metadata with the next root. False when the set changed meanwhile.
    pub fn replace_slot(&self, moved: &SlotMove) -> bool {
        self.sets.replace_slot(moved)
    }
}
