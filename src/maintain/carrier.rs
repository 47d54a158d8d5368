//! Moves slots and rewrites sets, a bounded amount at a time: what all jobs that move data have in common.

use std::collections::{HashMap, HashSet};

use super::job::{JobError, Unsaved};
use super::load::Load;
use crate::fs::{Fs, FsError};
use crate::member::superblock::{MemberId, Purpose, SetId};
use crate::pool::PoolError;
use crate::pool::moving::{Copier, KnownSums, Move, SlotInfo};
use crate::sync::Arc;
use crate::units::SECTOR;

/// Most slots that are on their way side by side.
const MOVES_MAX: usize = 16;
/// Most chunks that are in memory at a time.
const CHUNKS_MAX: u64 = 64;
/// Out of so many times as many slots those are chosen that keep all members busy.
const CHOICE: usize = 4;
/// So many sets are tried before it is said that none can be written anew now.
const REWRITES_TRIED: usize = 8;
/// Checkpoints in a row that may change nothing: what was given up is used again after the second.
const CHECKPOINTS_MAX: u32 = 3;

/// What there is to do with some slots.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// Moves that began.
    pub count: usize,
    /// Slots whose sets are being written to, or moved by somebody: try again soon.
    pub busy: usize,
    /// Slots of sets in which nothing is alive: checkpoints free them.
    pub dead: usize,
    /// Slots for which no member has room.
    pub homeless: Vec<SlotInfo>,
    /// Slots that can't be rebuilt, or not in full, as long as their member is away. It may come back, with all of it.
    pub unsaved: usize,
}

/// The moves under way, and the set that is being rewritten.
#[derive(Debug, Default)]
pub(super) struct Carrier {
    /// A slot of a member that may come back moves only if nothing of it is lost by that.
    cautious: bool,
    /// Sets with slots that could not be rebuilt in full.
    damaged: HashSet<SetId>,
    copier: Copier,
    moves: Vec<Move>,
    rewriting: Option<(SetId, u64)>,
    checkpoints: u32,
    unsaved: Vec<Unsaved>,
}

impl Carrier {
    /// One that leaves slots where they are that it can't rebuild in full, as long as their member may come back.
    pub fn cautious() -> Self {
        let mut made = Self::default();
        made.cautious = true;
        made
    }

    /// So little is on its way that more can be begun.
    pub fn wants_more(&self, fs: &Fs) -> bool {
        self.moves.len() * 4 <= most_moves(fs) * 3
    }

    /// Nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.moves.is_empty()
    }

    /// What could not be saved since this was last asked for.
    pub fn take_unsaved(&mut self) -> Vec<Unsaved> {
        std::mem::take(&mut self.unsaved)
    }

    /// Begins to move some of these slots, the first ones first, to one of those members that
    /// `targets` gives for each.
    ///
    /// # Errors
    /// Those of reading the checksums, and of making slabs.
    pub fn begin(
        &mut self,
        fs: &Fs,
        slots: &[SlotInfo],
        targets: impl Fn(&SlotInfo) -> Vec<MemberId>,
    ) -> Result<Begun, JobError> {
        let pool = fs.pool();
        let most = most_moves(fs);
        let mut begun = Begun::default();
        let mut ready = self.ready(fs, slots, most * CHOICE, &targets, &mut begun);
        let mut metadata = self.metadata_sums(fs, &ready)?;
        let mut load = Load::default();
        for moved in &self.moves {
            let (sources, to) = moved.members();
            load.add(&sources, to);
        }
        while self.moves.len() < most && load.chunks < CHUNKS_MAX && !ready.is_empty() {
            let slot = ready.remove(load.best_of(fs, &ready));
            let sums = match slot.purpose {
                Purpose::Meta => metadata.remove(&slot.set).unwrap_or_default(),
                Purpose::Data => fs.store().data_sums(slot.set)?,
            };
            // Those that began meanwhile took some of the room.
            let Some(to) = load.best_target(targets(&slot)) else {
                begun.homeless.push(slot);
                continue;
            };
            let sources = pool.sources_of(&slot);
            if self.begin_one(fs, &slot, to, sums)? {
                begun.count += 1;
                load.add(&sources, to);
            } else {
                begun.busy += 1;
            }
        }
        Ok(begun)
    }

    /// The first slots that can be moved now, at most so many. What is with the others is counted.
    fn ready(
        &self,
        fs: &Fs,
        slots: &[SlotInfo],
        most: usize,
        targets: &impl Fn(&SlotInfo) -> Vec<MemberId>,
        begun: &mut Begun,
    ) -> Vec<SlotInfo> {
        let pool = fs.pool();
        let mut ready: Vec<SlotInfo> = Vec::new();
        for slot in slots {
            if ready.len() == most {
                break;
            }
            let same = ready.iter().any(|other| other.set == slot.set);
            let lost = pool.has_lost_slot(&slot.place);
            let may_return = lost && pool.active_member(slot.place.member).is_ok();
            if may_return && (slot.spare < 0 || self.damaged.contains(&slot.set)) {
                begun.unsaved += 1;
            } else if same || !slot.free || !pool.quiet(slot.set) {
                begun.busy += 1;
            } else if pool.is_dead(slot.set) {
                begun.dead += 1;
            } else if targets(slot).is_empty() {
                begun.homeless.push(*slot);
            } else {
                ready.push(*slot);
            }
        }
        ready
    }

    fn metadata_sums(&self, fs: &Fs, slots: &[SlotInfo]) -> Result<HashMap<SetId, KnownSums>, JobError> {
        let metadata = slots.iter().filter(|slot| slot.purpose == Purpose::Meta);
        let sets: HashSet<SetId> = metadata.map(|slot| slot.set).collect();
        if sets.is_empty() {
            return Ok(HashMap::new());
        }
        Ok(fs.store().metadata_sums(&sets)?)
    }

    fn begin_one(
        &mut self,
        fs: &Fs,
        slot: &SlotInfo,
        to: MemberId,
        sums: KnownSums,
    ) -> Result<bool, JobError> {
        let moved = Move::begin(fs.pool(), slot.set, slot.slot, to, sums)?;
        let begins = moved.is_some();
        self.moves.extend(moved);
        Ok(begins)
    }

    /// Takes the moves on, about `budget` bytes in all, and commits those that are complete. Returns the bytes copied.
    ///
    /// # Errors
    /// Those of committing.
    pub fn carry(&mut self, fs: &Fs, budget: u64) -> Result<u64, JobError> {
        let copied = self.copier.copy_some(fs.pool(), &mut self.moves, budget);
        self.checkpoints = 0;
        self.moves.retain(|moved| !moved.has_failed());
        let (done, rest) = std::mem::take(&mut self.moves).into_iter().partition(Move::is_copied);
        self.moves = rest;
        let mut done: Vec<Move> = done;
        for moved in &done {
            self.unsaved.extend(moved.unsaved().iter().map(Unsaved::from));
        }
        if self.cautious {
            let whole = |moved: &mut Move| moved.unsaved().is_empty() || !moved.may_return();
            let damaged = done.extract_if(.., |moved| !whole(moved));
            self.damaged.extend(damaged.map(|moved| moved.set()));
        }
        if !done.is_empty() {
            fs.commit_slot_moves(done)?;
        }
        Ok(copied)
    }

    /// Writes a part of a set anew, in sets as they would be made now. None when there is no room for it now, or it
    /// can't be read; else the bytes.
    ///
    /// # Errors
    /// What keeps it from being read or written, but want of room.
    fn rewrite(&mut self, fs: &Fs, slot: &SlotInfo) -> Result<Option<u64>, JobError> {
        let from = self.rewriting.filter(|(set, _)| *set == slot.set).map_or(0, |(_, from)| from);
        match fs.rewrite_part(slot.set, from) {
            // It begins anew, and finds nothing that it could move.
            Ok((0, None)) if from == 0 => Ok(None),
            Ok((bytes, next)) => {
                self.rewriting = next.map(|next| (slot.set, next));
                self.checkpoints = 0;
                Ok(Some(bytes))
            }
            Err(error) if error.is_no_space() => {
                self.rewriting = None;
                Ok(None)
            }
            Err(FsError::Pool(PoolError::Unreadable { set, address, sectors })) => {
                log::warn!("set {set} can't be written anew: {sectors} sectors at {address} can't be read");
                self.damaged.insert(slot.set);
                self.unsaved.push(Unsaved { set, address, len: sectors * SECTOR });
                self.rewriting = None;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// [`Carrier::rewrite`] for the first of these sets for which it works: the one that was begun, if it is among them.
    ///
    /// # Errors
    /// As [`Carrier::rewrite`].
    pub fn rewrite_one(&mut self, fs: &Fs, slots: &[SlotInfo]) -> Result<Option<u64>, JobError> {
        let begun = slots.iter().filter(|slot| Some(slot.set) == self.rewriting()).copied();
        let others = slots.iter().filter(|slot| Some(slot.set) != self.rewriting()).copied();
        let chosen: Vec<SlotInfo> = begun.chain(others).take(REWRITES_TRIED).collect();
        for slot in chosen {
            if fs.pool().quiet(slot.set)
                && let Some(bytes) = self.rewrite(fs, &slot)?
            {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Something in the set can't be read, so it can't be written anew.
    pub fn is_damaged(&self, set: SetId) -> bool {
        self.damaged.contains(&set)
    }

    /// The set that is being rewritten.
    pub fn rewriting(&self) -> Option<SetId> {
        self.rewriting.map(|(set, _)| set)
    }

    /// Takes a checkpoint, so that what was given up becomes free. False when the last few changed nothing.
    ///
    /// # Errors
    /// Those of the checkpoint.
    pub fn settle(&mut self, fs: &Fs) -> Result<bool, JobError> {
        if self.checkpoints == CHECKPOINTS_MAX {
            self.checkpoints = 0;
            return Ok(false);
        }
        self.checkpoints += 1;
        fs.store().checkpoint()?;
        Ok(true)
    }
}

/// What is being written ends before the slabs are given back.
impl Drop for Carrier {
    fn drop(&mut self) {
        if let Some(pool) = self.moves.first().map(|moved| Arc::clone(moved.pool())) {
            self.copier.land(&pool, &mut self.moves);
        }
    }
}

/// So many slots are on their way side by side: a few for each member, so that none waits for another.
fn most_moves(fs: &Fs) -> usize {
    let width = fs.pool().members().iter().filter(|member| member.takes_sets()).count();
    (3 * width).clamp(1, MOVES_MAX)
}
