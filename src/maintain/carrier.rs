//! Moves slots and rewrites sets, a bounded amount at a time: what all jobs that move data have in common.

use std::collections::HashSet;

use super::job::{JobError, Unsaved};
use crate::fs::Fs;
use crate::member::superblock::{MemberId, Purpose, SetId};
use crate::pool::moving::{KnownSums, Move, SlotInfo, copy_some};

/// Most slots that are on their way side by side.
const MOVES_MAX: usize = 8;
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
}

/// The moves under way, and the set that is being rewritten.
#[derive(Debug, Default)]
pub(super) struct Carrier {
    moves: Vec<Move>,
    rewriting: Option<(SetId, u64)>,
    checkpoints: u32,
    unsaved: Vec<Unsaved>,
}

impl Carrier {
    /// Nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.moves.is_empty()
    }

    /// What could not be saved since this was last asked for.
    pub fn take_unsaved(&mut self) -> Vec<Unsaved> {
        std::mem::take(&mut self.unsaved)
    }

    /// Begins to move some of these slots, the first ones first, to where `target` says.
    ///
    /// # Errors
    /// Those of reading the checksums, and of making slabs.
    pub fn begin(
        &mut self,
        fs: &Fs,
        slots: &[SlotInfo],
        target: impl Fn(&SlotInfo) -> Option<MemberId>,
    ) -> Result<Begun, JobError> {
        let pool = fs.pool();
        let width = pool.members().iter().filter(|member| member.takes_sets()).count();
        let most = width.clamp(1, MOVES_MAX);
        let mut begun = Begun::default();
        let mut chosen: Vec<SlotInfo> = Vec::new();
        for slot in slots {
            if chosen.len() == most {
                break;
            }
            let same = chosen.iter().any(|other| other.set == slot.set);
            if same || !slot.free || !pool.quiet(slot.set) {
                begun.busy += 1;
            } else if pool.is_dead(slot.set) {
                begun.dead += 1;
            } else if target(slot).is_none() {
                begun.homeless.push(*slot);
            } else {
                chosen.push(*slot);
            }
        }
        let metadata: HashSet<SetId> =
            chosen.iter().filter(|slot| slot.purpose == Purpose::Meta).map(|slot| slot.set).collect();
        let mut metadata = match metadata.is_empty() {
            true => Default::default(),
            false => fs.store().metadata_sums(&metadata)?,
        };
        for slot in chosen {
            let sums = match slot.purpose {
                Purpose::Meta => metadata.remove(&slot.set).unwrap_or_default(),
                Purpose::Data => fs.store().data_sums(slot.set)?,
            };
            // Those that began meanwhile took some of the room.
            let begins = match target(&slot) {
                Some(to) => self.begin_one(fs, &slot, to, sums)?,
                None => false,
            };
            if begins { begun.count += 1 } else { begun.busy += 1 }
        }
        Ok(begun)
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
        let copied = copy_some(fs.pool(), &mut self.moves, budget);
        self.checkpoints = 0;
        self.moves.retain(|moved| !moved.has_failed());
        let (done, rest) = std::mem::take(&mut self.moves).into_iter().partition(Move::is_copied);
        self.moves = rest;
        let done: Vec<Move> = done;
        for moved in &done {
            self.unsaved.extend(moved.unsaved().iter().map(Unsaved::from));
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
    pub fn rewrite(&mut self, fs: &Fs, slot: &SlotInfo) -> Result<Option<u64>, JobError> {
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
            Err(error) => Err(error.into()),
        }
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
