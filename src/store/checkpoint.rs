//! Checkpoints: what changed is merged into the trees, and a new root is published.
//!
//! Ordinary operations go on: the layer of changes is frozen, and new changes go into a new one. Nodes are read
//! and written with no lock held that a reader or a commit needs. The root is published while nobody writes to
//! the log, so that the place where replay begins is exact.

use std::collections::VecDeque;

use super::Store;
use super::compact::{nodes_in, sets_to_empty};
use super::error::{Result, StoreError};
use super::merge::{NodeWriter, merge};
use super::node::Pointer;
use super::overlay::Layer;
use super::root_block::{LiveBytes, RootBlock};
use super::tree::Roots;
use crate::member::superblock::{MetaPointer, Root, Seq, SetId, SetRecord};
use crate::sync::Arc;

/// What a checkpoint holds.
#[derive(Debug, Clone, Copy)]
struct FrozenAt {
    /// The last record whose changes it has.
    included: Seq,
    /// The first record with journaled data that was alive then. What was overtaken since was so by records that
    /// this checkpoint does not have, and that may never reach the log.
    oldest_data: Seq,
}

/// The checkpoint that counts.
#[derive(Debug, Default)]
pub(super) struct LastCheckpoint {
    /// Its number.
    pub number: u64,
    /// Where its root block is.
    pub block: Pointer,
    /// Metadata that it refers to, the root block included.
    pub live: LiveBytes,
    /// What earlier ones referred to and this one does not.
    pub retired: Retired,
}

/// Metadata that the newest root does not refer to, but that readers of older roots may still need. Readers of
/// some roots hold up what those and all later ones gave up.
#[derive(Debug, Default)]
pub(super) struct Retired(VecDeque<(Arc<Roots>, Vec<MetaPointer>)>);

impl Retired {
    /// What the checkpoint that followed `roots` gave up.
    fn push(&mut self, roots: Arc<Roots>, pointers: Vec<MetaPointer>) {
        self.0.push_back((roots, pointers));
    }

    /// Takes out the oldest, if nobody can need it any more. Nobody else can get hold of roots that are not the newest.
    fn pop(&mut self) -> Option<Vec<MetaPointer>> {
        self.0.front().filter(|(roots, _)| Arc::strong_count(roots) == 1)?;
        self.0.pop_front().map(|(_, pointers)| pointers)
    }

    /// Whether something in this set is waiting.
    fn mentions(&self, set: SetId) -> bool {
        self.0.iter().flat_map(|(_, pointers)| pointers).any(|pointer| pointer.set == set)
    }

    /// Nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A checkpoint that is on the members.
#[derive(Debug)]
struct Written {
    number: u64,
    roots: Roots,
    block: Pointer,
    live: LiveBytes,
    /// Records of the sets that the block lies in.
    block_sets: Vec<SetRecord>,
    /// What it gives up.
    replaced: Vec<MetaPointer>,
}

impl Store {
    /// Merges what changed into the trees and moves the journal's tail. Ordinary operations go on.
    ///
    /// # Errors
    /// Those of the pool. The old root then still counts, and nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_as(false)
    }

    /// The last checkpoint, published as clean. Call after everything is flushed, with no more commits to come.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn close(&self) -> Result<()> {
        if self.pool.read_only() {
            return Ok(());
        }
        self.checkpoint_as(true)?;
        self.pool.stop_writing();
        Ok(())
    }

    /// Publishes the last checkpoint's root once more, as another checkpoint: then the root before it is gone from all
    /// superblocks, and what the last one freed can be used again, for the price of superblocks. During recovery it is
    /// another checkpoint; before the first checkpoint it is nothing.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`], [`StoreError::Poisoned`]; during recovery as [`Store::checkpoint`].
    pub fn publish_again(&self) -> Result<()> {
        if self.pool.read_only() {
            return Err(StoreError::ReadOnly);
        }
        if !self.journal.lock().is_started() {
            // During recovery what is committed is not in the log: only a checkpoint says where the log begins.
            return self.checkpoint();
        }
        let mut last = self.last_checkpoint.lock();
        let Some(root) = self.pool.root() else { return Ok(()) };
        let turn = self.journal.turn()?;
        let number = last.number + 1;
        let end = {
            let journal = self.journal.lock();
            // Before anything more is freed: that happens under the journal's lock.
            self.pool.checkpoint_repeated(number);
            journal.end()
        };
        let root = Root { checkpoint: number, ..root };
        let published = self.pool.publish(&end, |superblock| superblock.root = Some(root));
        drop(turn);
        if let Err(error) = published {
            self.journal.poison(&error.to_string());
            return Err(error.into());
        }
        last.number = number;
        self.release_retired(&mut last);
        self.pool.checkpoint_published(number);
        self.note_room(last.live.total());
        Ok(())
    }

    fn checkpoint_as(&self, clean: bool) -> Result<()> {
        if self.pool.read_only() {
            return Err(StoreError::ReadOnly);
        }
        let mut last = self.last_checkpoint.lock();
        self.journal.lock().check()?;
        self.release_retired(&mut last);
        match self.free_idle_sets() {
            // They are freed by a later one: this one makes room in the log.
            Err(StoreError::JournalFull) => {}
            outcome => outcome?,
        }
        let number = last.number + 1;
        log::debug!("checkpoint {number}: {:?}", self.overlay.read().active_size());
        let (frozen_at, roots, frozen) = {
            let journal = self.journal.lock();
            let included = journal.next_seq - 1;
            let oldest_data = self.data.lock().oldest().unwrap_or(Seq::MAX);
            let (roots, frozen) = self.overlay.write().freeze();
            self.pool.checkpoint_begun(number);
            (FrozenAt { included, oldest_data }, roots, frozen)
        };
        let mut written = Vec::new();
        let result = self.write_trees(&last, &roots, &frozen, &mut written).and_then(|made| {
            self.log_what_is_included(frozen_at.included)?;
            Ok(made)
        });
        // Until a root is published nobody knows of what was written.
        let made = match result {
            Ok(made) => made,
            Err(error) => {
                self.overlay.write().thaw();
                let known = |set| last.live.get(set) > 0 || last.retired.mentions(set);
                self.pool.take_back_metadata(&written, known);
                self.nodes.forget(&written);
                self.note_room(last.live.total());
                return Err(error);
            }
        };
        if let Err(error) = self.publish_root(&made, frozen_at, clean) {
            self.overlay.write().thaw();
            return Err(error);
        }
        self.overlay.write().publish(Arc::new(made.roots));
        last.retired.push(roots, made.replaced);
        (last.number, last.block, last.live) = (number, made.block, made.live);
        self.release_retired(&mut last);
        self.pool.checkpoint_published(number);
        self.note_room(last.live.total());
        *self.last_checkpoint_at.lock() = self.clock.elapsed();
        Ok(())
    }

    /// Gives up what no root and no reader needs any more.
    fn release_retired(&self, last: &mut LastCheckpoint) {
        while let Some(pointers) = last.retired.pop() {
            self.pool.release_metadata(&pointers);
            self.nodes.forget(&pointers);
        }
    }

    /// Sets that would take more stripes but hold nothing alive are freed, so that their space comes back.
    fn free_idle_sets(&self) -> Result<()> {
        let mut tx = super::Tx::new();
        for set in self.pool.idle_sets() {
            tx.free_idle(set);
            if tx.bytes() > crate::limits::RECORD_MAX_BYTES / 2 {
                self.commit(std::mem::take(&mut tx))?;
            }
        }
        if tx.is_empty() { Ok(()) } else { self.commit(tx).map(|_| ()) }
    }

    /// Writes the trees with the changes, and a root block. What is written is in `written` also after an error.
    fn write_trees(
        &self,
        last: &LastCheckpoint,
        roots: &Roots,
        frozen: &Layer,
        written: &mut Vec<MetaPointer>,
    ) -> Result<Written> {
        let trees = last.live.total();
        let slab_bytes = self.pool.dimensions().slab_bytes;
        let budget = self.room.move_bytes(trees);
        let mut emptied = sets_to_empty(&self.pool.metadata_usage(), &last.live, slab_bytes, budget);
        emptied.extend(self.wanted_empty(&last.live, budget));
        let touched = nodes_in(&self.nodes, roots, &emptied)?;
        let mut writer = NodeWriter::new(&self.pool, &self.nodes, self.node_bytes);
        let merged = merge(&self.nodes, roots, frozen, &touched, &mut writer);
        let nodes = writer.into_written();
        written.extend(nodes.iter().cloned());
        let merged = merged?;
        let mut replaced = merged.replaced;
        replaced.extend(last.block.iter().cloned());
        let mut live = last.live.clone();
        live.add(&nodes);
        live.remove(&replaced);
        let sets = live.write_into(self.pool.metadata_sets());
        let block = self.pool.write_metadata(&[RootBlock::new(&merged.roots, sets).encode()])?.concat();
        written.extend(block.iter().cloned());
        live.add(&block);
        let mut block_sets = live.write_into(self.pool.metadata_sets());
        block_sets.retain(|record| block.iter().any(|piece| piece.set == record.id));
        Ok(Written { number: last.number + 1, roots: merged.roots, block, live, block_sets, replaced })
    }

    /// Of the sets that a job wants empty, as many as may be moved at once.
    fn wanted_empty(&self, live: &LiveBytes, budget: u64) -> Vec<SetId> {
        let wanted = self.to_empty.lock();
        let mut sets: Vec<SetId> = wanted.iter().copied().filter(|set| live.get(*set) > 0).collect();
        sets.sort_unstable();
        let mut moved = 0;
        sets.retain(|set| {
            let fits = moved == 0 || moved + live.get(*set) <= budget;
            moved += live.get(*set);
            fits
        });
        sets
    }

    /// A root must not run ahead of the log: it would have inodes of which only the log has the data, and lack
    /// what voids older data in the log.
    fn log_what_is_included(&self, included: Seq) -> Result<()> {
        if self.journal.lock().is_started() { self.journal.sync(&self.pool, included) } else { Ok(()) }
    }

    /// Publishes a root while nobody writes to the log. When that fails, some members may have the new root: what
    /// it refers to must not be touched any more, and the store takes no more changes.
    fn publish_root(&self, written: &Written, frozen_at: FrozenAt, clean: bool) -> Result<()> {
        let included = frozen_at.included;
        let turn = self.journal.turn()?;
        let (mut end, tail) = {
            let journal = self.journal.lock();
            let tail = if journal.is_started() {
                journal.position_of(frozen_at.oldest_data.min(included + 1))
            } else {
                (included + 1, journal.end().live.end)
            };
            (journal.end(), tail)
        };
        end.tail_seq = tail.0;
        end.live.start = tail.1.min(end.live.end);
        if !self.journal.lock().is_started() {
            end.next_seq = included + 1;
        }
        let root = Root {
            checkpoint: written.number,
            block: written.block.clone(),
            included,
            tail_seq: tail.0,
            tail_position: tail.1,
        };
        let published = self.pool.publish(&end, |superblock| {
            superblock.root = Some(root);
            superblock.meta_sets.clone_from(&written.block_sets);
            superblock.clean = clean;
        });
        if let Err(error) = published {
            drop(turn);
            self.journal.poison(&error.to_string());
            return Err(error.into());
        }
        self.journal.root_published(tail);
        Ok(())
    }
}
