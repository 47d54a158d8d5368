//! How busy the members are with moves: so that those come next that keep all of them busy.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::fs::Fs;
use crate::member::superblock::MemberId;
use crate::pool::moving::SlotInfo;

/// What each member is to read and to write in a round, in chunks.
#[derive(Debug, Default)]
pub(super) struct Load {
    reads: HashMap<MemberId, u64>,
    writes: HashMap<MemberId, u64>,
    /// All of them: so many are in memory at a time.
    pub chunks: u64,
}

impl Load {
    /// Counts a move.
    pub fn add(&mut self, sources: &[MemberId], to: MemberId) {
        sources.iter().for_each(|id| *self.reads.entry(*id).or_default() += 1);
        *self.writes.entry(to).or_default() += 1;
        self.chunks += sources.len() as u64 + 1;
    }

    /// The slot whose sources have least to read, and among equals the one of whose sources most is to come.
    pub fn best_of(&self, fs: &Fs, slots: &[SlotInfo]) -> usize {
        let sources: Vec<Vec<MemberId>> = slots.iter().map(|slot| fs.pool().sources_of(slot)).collect();
        let mut to_come: HashMap<MemberId, u64> = HashMap::new();
        sources.iter().flatten().for_each(|id| *to_come.entry(*id).or_default() += 1);
        let most = |sources: &[MemberId], counts: &HashMap<MemberId, u64>| {
            sources.iter().map(|id| counts.get(id).copied().unwrap_or(0)).max().unwrap_or(0)
        };
        let key = |index: &usize| {
            let sources = &sources[*index];
            (most(sources, &self.reads), Reverse(most(sources, &to_come)))
        };
        (0..slots.len()).min_by_key(key).unwrap_or(0)
    }

    /// The target that has least to do.
    pub fn best_target(&self, targets: Vec<MemberId>) -> Option<MemberId> {
        let load = |counts: &HashMap<MemberId, u64>, id: &MemberId| counts.get(id).copied().unwrap_or(0);
        targets.into_iter().min_by_key(|id| load(&self.writes, id) + load(&self.reads, id))
    }
}
