//! Checkpoints: the tables are written whole to metadata sets, and a new root is published.
//!
//! Ordinary operations go on: the layer of changes is frozen, and new changes go into a new one. The root is
//! published while nobody writes to the log, so that the place where replay begins is exact.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::Store;
use super::error::{Result, StoreError};
use super::overlay::{Base, Layer, merged_table};
use super::tables::Table;
use crate::member::superblock::{MetaPointer, Root, Seq};
use crate::member::wire;
use crate::units::MIB;

/// A blob is written when it has grown to this size.
const BLOB_BYTES: u64 = 2 * MIB;

/// A run of one table's keys and values, in order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Blob {
    /// The table.
    pub table: Table,
    /// Keys and values.
    pub entries: Vec<(ByteBuf, ByteBuf)>,
}

/// What the root's block says: where the blobs are.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RootBlock {
    /// The blobs, in the order of tables and keys.
    pub blobs: Vec<Vec<MetaPointer>>,
}

/// What a checkpoint holds.
#[derive(Debug, Clone, Copy)]
struct FrozenAt {
    /// The last record whose changes it has.
    included: Seq,
    /// The first record with journaled data that was alive then. What was overtaken since was so by records that
    /// this checkpoint does not have, and that may never reach the log.
    oldest_data: Seq,
}

/// A checkpoint that is on the members: its block, and everything the block points to.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Number of the checkpoint.
    pub number: u64,
    /// Where the block is.
    pub block: Vec<MetaPointer>,
    /// What it says.
    pub root: RootBlock,
    /// Bytes of all of it.
    pub bytes: u64,
}

impl Written {
    /// Every pointer of it.
    pub fn pointers(&self) -> impl Iterator<Item = &MetaPointer> {
        self.block.iter().chain(self.root.blobs.iter().flatten())
    }
}

impl Store {
    /// Writes the tables and moves the journal's tail. Ordinary operations go on.
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

    fn checkpoint_as(&self, clean: bool) -> Result<()> {
        if self.pool.read_only() {
            return Err(StoreError::ReadOnly);
        }
        let mut last = self.last_checkpoint.lock();
        match self.free_idle_sets() {
            // They are freed by a later one: this one makes room in the log.
            Err(StoreError::JournalFull) => {}
            outcome => outcome?,
        }
        let number = last.number + 1;
        let (frozen_at, base, frozen) = {
            let journal = self.journal.lock();
            let included = journal.next_seq - 1;
            let oldest_data = self.data.lock().oldest().unwrap_or(Seq::MAX);
            let (base, frozen) = self.overlay.write().freeze();
            self.pool.checkpoint_begun(number);
            (FrozenAt { included, oldest_data }, base, frozen)
        };
        let result = self.write_tables(number, &base, &frozen).and_then(|written| {
            self.log_what_is_included(frozen_at.included)?;
            self.publish_root(&written, frozen_at, clean)?;
            Ok(written)
        });
        drop((base, frozen));
        match result {
            Ok(written) => {
                self.overlay.write().fold();
                for pointer in last.pointers() {
                    self.pool.release_metadata(std::slice::from_ref(pointer));
                }
                self.pool.expect_metadata(3 * written.bytes + 4 * MIB);
                self.pool.checkpoint_published(number);
                *last = written;
                self.last_checkpoint_at.lock().clone_from(&self.clock.elapsed());
                Ok(())
            }
            Err(error) => {
                self.overlay.write().thaw();
                Err(error)
            }
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

    fn write_tables(&self, number: u64, base: &Base, frozen: &Layer) -> Result<Written> {
        let mut written = Written { number, ..Written::default() };
        let result = self.write_blobs(base, frozen, &mut written);
        if result.is_err() {
            for pointer in written.pointers() {
                self.pool.release_metadata(std::slice::from_ref(pointer));
            }
        }
        result.map(|()| written)
    }

    fn write_blobs(&self, base: &Base, frozen: &Layer, written: &mut Written) -> Result<()> {
        for table in Table::ALL {
            let mut blob = Blob { table, entries: Vec::new() };
            let mut bytes = 0;
            for (key, value) in merged_table(base, frozen, table) {
                bytes += (key.len() + value.len() + 16) as u64;
                blob.entries.push((ByteBuf::from(key.to_vec()), ByteBuf::from(value.to_vec())));
                if bytes >= BLOB_BYTES {
                    self.write_blob(&mut blob, written)?;
                    bytes = 0;
                }
            }
            if !blob.entries.is_empty() {
                self.write_blob(&mut blob, written)?;
            }
        }
        let block = wire::encode(&written.root);
        written.bytes += block.len() as u64;
        written.block = self.pool.write_metadata(&block)?;
        Ok(())
    }

    fn write_blob(&self, blob: &mut Blob, written: &mut Written) -> Result<()> {
        let bytes = wire::encode(blob);
        blob.entries.clear();
        written.bytes += bytes.len() as u64;
        written.root.blobs.push(self.pool.write_metadata(&bytes)?);
        Ok(())
    }

    /// A root must not run ahead of the log: it would have inodes of which only the log has the data, and lack
    /// what voids older data in the log.
    fn log_what_is_included(&self, included: Seq) -> Result<()> {
        if self.journal.lock().is_started() { self.journal.sync(&self.pool, included) } else { Ok(()) }
    }

    /// Publishes a root while nobody writes to the log.
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
        let meta_sets = self.pool.metadata_sets();
        let published = self.pool.publish(&end, |superblock| {
            superblock.root = Some(root);
            superblock.meta_sets = meta_sets;
            superblock.clean = clean;
        });
        if let Err(error) = published {
            // Some members may have the new root: what it refers to must not be touched any more.
            drop(turn);
            self.journal.poison(&error.to_string());
            return Err(error.into());
        }
        self.journal.root_published(tail);
        Ok(())
    }
}
