//! The journaled store: typed tables, a replicated journal, checkpoints, recovery.
//!
//! Committing a transaction applies it at once for all readers and queues its record; [`Store::sync`] makes it
//! durable. **The journal never refers to data that is not durable**: whoever commits a reference to a stripe
//! has its sync behind him.

mod check;
mod checkpoint;
mod compact;
mod data_index;
mod error;
#[doc(hidden)]
pub mod hostile;
mod journal;
mod membership;
mod merge;
mod moving;
mod node;
mod node_cache;
mod overlay;
mod places;
mod read;
mod recovery;
mod room;
mod root_block;
mod scrub;
pub mod tables;
#[cfg(test)]
mod tests;
mod tree;
mod tx;

pub use check::TreeCounts;
pub use error::{Result, StoreError};
pub use scrub::{NodeCursor, SomeNodes};
pub use tx::Tx;

use std::collections::HashSet;
use std::time::Duration;

use crate::limits::{META_CACHE_DEFAULT_BYTES, NODE_BYTES};
use crate::member::superblock::{Seq, SetId};
use crate::member::wire;
use crate::pool::Pool;
use crate::sync::{Arc, Clock, Mutex, RwLock};
use checkpoint::LastCheckpoint;
use data_index::DataIndex;
use journal::Journal;
use node_cache::NodeCache;
use overlay::Overlay;
use room::Room;
use tables::{Ino, Table};
use tx::Op;

/// A checkpoint is due when this much time has passed since the last and something was committed.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(30);

/// How to open the tables.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The time.
    pub clock: Clock,
    /// Go on although acknowledged records are lost.
    pub force: bool,
    /// Memory for nodes of the trees, in bytes.
    pub cache_bytes: u64,
    /// Most bytes of a new node that has more than one entry. Nodes of any size are read.
    pub node_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            force: false,
            cache_bytes: META_CACHE_DEFAULT_BYTES,
            node_bytes: NODE_BYTES,
        }
    }
}

/// Journaled data found by recovery that no flush has overtaken: goes back into the cache as dirty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournaledData {
    /// The file.
    pub ino: Ino,
    /// Where, in bytes.
    pub offset: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// The pool's room for metadata, as of the last checkpoint.
#[derive(Debug, Default, Clone, Copy)]
struct Left {
    /// Bytes that could be written.
    room: u64,
    /// Bytes of the trees.
    trees: u64,
}

/// The tables of a pool.
#[derive(Debug)]
pub struct Store {
    pool: Arc<Pool>,
    journal: Journal,
    /// Locked after the journal's state where both are needed. Nothing is read or written under it.
    overlay: RwLock<Overlay>,
    nodes: NodeCache,
    data: Mutex<DataIndex>,
    /// Held for the whole of a checkpoint.
    last_checkpoint: Mutex<LastCheckpoint>,
    last_checkpoint_at: Mutex<Duration>,
    room: Room,
    /// What the pool had left for metadata after the last checkpoint, and bytes of the trees then.
    left: Mutex<Left>,
    node_bytes: usize,
    clock: Clock,
    /// Metadata sets that a job wants empty.
    to_empty: Mutex<HashSet<SetId>>,
}

impl Store {
    /// Applies `tx` at once for all readers and queues its record. Durable after [`Store::sync`] of the returned
    /// number, or with the next commit interval. All data that `tx` refers to must be durable already.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], [`StoreError::Poisoned`], [`StoreError::ReadOnly`], [`StoreError::JournalFull`]
    /// (see [`Store::log_is_short`]): then nothing is applied.
    pub fn commit(&self, tx: Tx) -> Result<Seq> {
        self.commit_with(tx, || {})
    }

    /// The same, with something that is done once nothing can fail any more, before the records of sets are looked at.
    fn commit_with(&self, tx: Tx, first: impl FnOnce()) -> Result<Seq> {
        if self.pool.read_only() {
            return Err(StoreError::ReadOnly);
        }
        let has_data = tx.has_data();
        let Tx { mut ops, live, idle, .. } = tx;
        let mut journal = self.journal.lock();
        // A set's record takes its place in the same order as everything else, so that a set's fill never
        // goes back. Live bytes are counted only once nothing can fail any more.
        let estimate =
            ops.iter().map(|op| wire::pack(op).len()).sum::<usize>() + (live.len() + idle.len()) * 512;
        journal.check_commit(estimate, self.pool.dimensions().ring_bytes, has_data)?;
        first();
        for (set, delta) in live {
            self.pool.count_live(set, delta);
            let key = serde_bytes::ByteBuf::from(tables::set_key(set));
            if self.pool.free_if_dead(set, false) {
                free_set(key, &mut ops);
            } else if let Some(record) = self.pool.set_record(set) {
                let value = serde_bytes::ByteBuf::from(wire::pack(&record));
                ops.push(Op::Put { table: Table::Sets, key, value });
            }
        }
        for set in idle {
            if self.pool.free_if_dead(set, true) {
                free_set(serde_bytes::ByteBuf::from(tables::set_key(set)), &mut ops);
            }
        }
        let payload = wire::pack(&ops);
        let seq = journal.push(payload);
        self.apply(ops, seq);
        Ok(seq)
    }

    fn apply(&self, ops: Vec<Op>, seq: Seq) {
        let mut overlay = self.overlay.write();
        for op in ops {
            match op {
                Op::Put { table, key, value } => overlay.apply(table, key.into_vec(), Some(value.into_vec())),
                Op::Delete { table, key } => overlay.apply(table, key.into_vec(), None),
                Op::Data { ino, offset, bytes } => self.data.lock().insert(ino, offset, &bytes, seq),
                Op::DropData { ino, from, to, upto } => self.data.lock().remove(ino, from, to, upto.min(seq)),
            }
        }
    }

    /// Returns when record `seq` and all before it are durable. Callers share one write.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] once the journal could not be written; [`StoreError::JournalFull`].
    pub fn sync(&self, seq: Seq) -> Result<()> {
        if self.pool.read_only() {
            return Ok(());
        }
        self.journal.sync(&self.pool, seq)
    }

    /// Makes an epoch durable that is due because a member dropped out. Called now and then, so that the
    /// members' superblocks tell of it even if nobody writes.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] when no member is left that takes writes.
    pub fn settle_membership(&self) -> Result<()> {
        if !self.pool.epoch_is_due() {
            return Ok(());
        }
        let turn = self.journal.turn()?;
        let end = self.journal.lock().end();
        let result = self.pool.current_epoch(&end);
        drop(turn);
        if let Err(error) = result {
            self.journal.poison(&error.to_string());
            return Err(error.into());
        }
        Ok(())
    }

    /// Bytes of committed records that are in memory only, until the next [`Store::sync`].
    pub fn waiting_bytes(&self) -> u64 {
        self.journal.lock().waiting_bytes()
    }

    /// Number of the last committed record.
    pub fn last_seq(&self) -> Seq {
        self.journal.lock().next_seq - 1
    }

    /// Highest record that holds journaled data of `ino`; 0 for none. A flush notes it when it captures, before
    /// reading pages, under the inode's lock.
    pub fn data_seq(&self, ino: Ino) -> Seq {
        self.data.lock().newest_of(ino)
    }

    /// Whether `bytes` more of journaled data may be committed now; otherwise flush instead. A quarter of the ring
    /// may be alive. And what waits for the log must fit into it as far as the last journaled data: a root that is
    /// published because the log is full must not have inodes of which only the log has the data.
    pub fn data_fits(&self, bytes: u64) -> bool {
        let ring = self.pool.dimensions().ring_bytes;
        let used = self.journal.lock().used_bytes();
        used + bytes <= ring / 2 && self.data.lock().bytes() + bytes <= ring / 4
    }

    /// Whether the log has so little room left that its tail must move, whatever it takes. Whoever changes
    /// something waits for that before he begins: what is committed must fit into the log, since no root may hold
    /// what the log has not got.
    pub fn log_is_short(&self) -> bool {
        self.journal.lock().used_bytes() > self.pool.dimensions().ring_bytes / 4 * 3
    }

    /// Whether whoever changes something has to wait for a checkpoint before he begins: [`Store::log_is_short`], or
    /// so much changed in memory that the pool might lack the room to write it.
    pub fn must_wait(&self) -> bool {
        let trees = self.left.lock().trees;
        self.log_is_short() || self.room.is_exceeded(self.overlay.read().active_size(), trees)
    }

    /// Whether the tables may grow: after the next checkpoint there will be room for yet another one, of changes
    /// that make room. Whoever adds names, attributes or other entries asks first; who removes some need not.
    pub fn may_grow(&self) -> bool {
        let left = *self.left.lock();
        let layer = self.overlay.read().active_size();
        left.room >= self.room.checkpoint_bytes(layer, left.trees) + self.room.reserve_bytes(left.trees) / 2
    }

    /// Asks the pool how much room there is, and says how much is to be kept.
    fn note_room(&self, trees: u64) {
        self.pool.expect_metadata(self.room.reserve_bytes(trees));
        *self.left.lock() = Left { room: self.pool.metadata_room(), trees };
    }

    /// Files with journaled data that no flush has overtaken: a checkpoint wants them flushed first, or the
    /// journal's tail stays where their data is.
    pub fn files_with_data(&self) -> Vec<Ino> {
        self.data.lock().files()
    }

    /// The journal is so full, so much has changed, or the last checkpoint so long ago, that another is due.
    pub fn checkpoint_due(&self) -> bool {
        let used = self.journal.lock().used_bytes();
        let layer = self.overlay.read().active_size();
        let trees = self.left.lock().trees;
        let age = self.clock.elapsed().saturating_sub(*self.last_checkpoint_at.lock());
        used > self.pool.dimensions().ring_bytes / 2
            || self.room.is_used(layer, trees)
            || (layer.changes > 0 && age > CHECKPOINT_INTERVAL)
    }

    /// Bytes of the trees, as of the last checkpoint.
    pub fn tree_bytes(&self) -> u64 {
        self.left.lock().trees
    }

    /// Nodes of the trees that were read from members since the mount.
    pub fn nodes_read(&self) -> u64 {
        self.nodes.reads()
    }

    /// Nodes of the trees that checkpoints wrote since the mount.
    pub fn nodes_written(&self) -> u64 {
        self.nodes.writes()
    }

    /// Memory that nodes of the trees take, about.
    pub fn cache_bytes(&self) -> u64 {
        self.nodes.memory_bytes()
    }

    /// The pool below.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

/// The set with this key is free: its record goes, and whoever writes rows of its own for it learns of it.
fn free_set(key: serde_bytes::ByteBuf, ops: &mut Vec<Op>) {
    ops.push(Op::Put { table: Table::Freed, key: key.clone(), value: serde_bytes::ByteBuf::new() });
    ops.push(Op::Delete { table: Table::Sets, key });
}
