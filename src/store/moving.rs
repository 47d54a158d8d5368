//! What the tables have to do with slots that move: the checksums of what lies there, and the records of their sets.

use std::collections::{HashMap, HashSet};

use super::error::Result;
use super::node::Expected;
use super::node_cache::Heat;
use super::tables::Table;
use super::tree::{Roots, TreeRoot};
use super::{Store, Tx};
use crate::member::superblock::{MetaPointer, Purpose, SetId};
use crate::pool::moving::{KnownSums, Move};

/// Moves that are committed in one record: each brings the record of a set.
const MOVES_AT_ONCE: usize = 256;

/// Runs of checksums, by set.
type Runs = HashMap<SetId, Vec<(u64, Vec<u32>)>>;

impl Store {
    /// Checksums of all file data that is alive in a set. Complete for a set that takes no more stripes and has none in
    /// flight; what dies meanwhile may still be among it.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn data_sums(&self, set: SetId) -> Result<KnownSums> {
        let extents = self.extents_in(set, 0..u64::MAX)?;
        Ok(KnownSums::new(extents.into_iter().map(|(_, extent)| (extent.address, extent.sums)).collect()))
    }

    /// Checksums of the nodes and the root block that lie in these sets. No checkpoint runs meanwhile.
    ///
    /// # Errors
    /// Those of reading inner nodes.
    pub fn metadata_sums(&self, sets: &HashSet<SetId>) -> Result<HashMap<SetId, KnownSums>> {
        let mut runs = Runs::new();
        {
            let last = self.last_checkpoint.lock();
            let roots = self.overlay.read().roots();
            note(&last.block, sets, &mut runs);
            self.collect(&roots, sets, &mut runs)?;
        }
        Ok(sets.iter().map(|set| (*set, KnownSums::new(runs.remove(set).unwrap_or_default()))).collect())
    }

    fn collect(&self, roots: &Roots, sets: &HashSet<SetId>, runs: &mut Runs) -> Result<()> {
        for table in Table::ALL {
            if let Some(root) = roots.get(table) {
                note(&root.node, sets, runs);
                self.collect_below(table, root, None, sets, runs)?;
            }
        }
        Ok(())
    }

    /// All nodes below one. Leaves are not read: what points to them says all.
    fn collect_below(
        &self,
        table: Table,
        at: &TreeRoot,
        first: Option<&[u8]>,
        sets: &HashSet<SetId>,
        runs: &mut Runs,
    ) -> Result<()> {
        if at.level == 0 {
            return Ok(());
        }
        let node = self.nodes.read(&at.node, &Expected { table, level: at.level, first }, Heat::Cold)?.node;
        for index in 0..node.len() {
            let child = TreeRoot { level: at.level - 1, node: node.child(index)? };
            note(&child.node, sets, runs);
            self.collect_below(table, &child, Some(node.key(index)), sets, runs)?;
        }
        Ok(())
    }

    /// Makes moves that are copied count. Those of file data are in the log with the next sync, those of metadata
    /// in the next root; until then the old slabs are as they were, and longer. What changed meanwhile stays where it
    /// is. Returns how many count now.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn commit_moves(&self, moves: Vec<Move>) -> Result<usize> {
        let (mut metadata, mut data): (Vec<Move>, Vec<Move>) =
            moves.into_iter().partition(|one| one.purpose() == Purpose::Meta);
        let mut count = 0;
        for moved in &mut metadata {
            if moved.slot_move().is_some_and(|slot_move| self.pool.replace_slot(&slot_move)) {
                moved.committed();
                count += 1;
            }
        }
        for some in data.chunks_mut(MOVES_AT_ONCE) {
            let mut tx = Tx::new();
            for moved in some.iter() {
                tx.live(moved.set(), 0);
            }
            self.commit_with(tx, || {
                for moved in some.iter_mut() {
                    if moved.slot_move().is_some_and(|slot_move| self.pool.replace_slot(&slot_move)) {
                        moved.committed();
                        count += 1;
                    }
                }
            })?;
        }
        Ok(count)
    }

    /// Asks the next checkpoints to write the nodes that lie in these sets to others. They must take no more stripes.
    pub fn empty_metadata_sets(&self, sets: HashSet<SetId>) {
        *self.to_empty.lock() = sets;
    }
}

fn note(pointer: &[MetaPointer], sets: &HashSet<SetId>, runs: &mut Runs) {
    for piece in pointer.iter().filter(|piece| sets.contains(&piece.set)) {
        runs.entry(piece.set).or_default().push((piece.address, piece.sums.clone()));
    }
}
