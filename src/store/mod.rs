//! The journaled store: typed tables in memory, a replicated journal, checkpoints, recovery.

pub mod tables;

use crate::member::superblock::{Seq, SetId};
use crate::pool::Pool;
use crate::sync::Arc;
use tables::{Ino, Table};

/// What can go wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A transaction larger than one journal record.
    #[error("a transaction of {bytes} bytes is larger than a journal record")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
}

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// One atomic change of the tables. Its order is kept: a later operation on the same key wins.
#[derive(Debug, Default, Clone)]
pub struct Tx {}

impl Tx {
    /// An empty transaction.
    pub fn new() -> Self { Self::default() }
    /// Sets `key` to `value` (encoded with [`crate::member::wire`]).
    pub fn put<V: serde::Serialize>(&mut self, table: Table, key: Vec<u8>, value: &V) { let _ = (table, key, value); todo!() }
    /// Sets `key` to these bytes as they are (for [`Table::Xattrs`]).
    pub fn put_raw(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) { let _ = (table, key, value); todo!() }
    /// Removes `key`.
    pub fn delete(&mut self, table: Table, key: Vec<u8>) { let _ = (table, key); todo!() }
    /// Counts `delta` live bytes more (or fewer) in `set`. The store frees a set at 0 by itself, and
    /// writes the set's record with the transaction.
    pub fn live(&mut self, set: SetId, delta: i64) { let _ = (set, delta); todo!() }
    /// Carries file data through the journal: small fsynced writes. `offset` and length are multiples of the sector.
    pub fn data(&mut self, ino: Ino, offset: u64, bytes: Vec<u8>) { let _ = (ino, offset, bytes); todo!() }
    /// Voids journaled data of `ino` in `[from, to)` whose record is at or before `upto`
    /// (`Seq::MAX`: all of it, for truncate, punch and unlink; for a flush: [`Store::data_seq`] at capture).
    pub fn drop_data(&mut self, ino: Ino, from: u64, to: u64, upto: Seq) { let _ = (ino, from, to, upto); todo!() }
    /// Bytes of its record, about.
    pub fn bytes(&self) -> u64 { todo!() }
    /// Nothing in it.
    pub fn is_empty(&self) -> bool { todo!() }
}

/// Journaled data found by recovery that no flush has overtaken: goes back into the cache as dirty.
#[derive(Debug, Clone)]
pub struct JournaledData {
    /// The file.
    pub ino: Ino,
    /// Where.
    pub offset: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// The tables of a pool.
#[derive(Debug)]
pub struct Store {}

impl Store {
    /// Reads the root and replays the journal; writes nothing. Hands the set table to the pool.
    pub fn recover(pool: Arc<Pool>) -> Result<(Self, Vec<JournaledData>)> { let _ = pool; todo!() }
    /// Begins to write: a first checkpoint in a new epoch (after fs has put back journaled data and finished
    /// orphans and intents through ordinary commits). Until then commits stay in memory.
    pub fn start(&self) -> Result<()> { todo!() }
    /// The value of `key`.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> { let _ = (table, key); todo!() }
    /// The decoded value of `key`.
    pub fn read<V: serde::de::DeserializeOwned>(&self, table: Table, key: &[u8]) -> Result<Option<V>> { let _ = (table, key); todo!() }
    /// Keys in `[from, to)` in order, at most `limit` of them.
    pub fn scan(&self, table: Table, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> { let _ = (table, from, to, limit); todo!() }
    /// The last key at or below `key` and at or above `floor`.
    pub fn last_at_or_before(&self, table: Table, floor: &[u8], key: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> { let _ = (table, floor, key); todo!() }
    /// Applies `tx` at once for all readers and queues its record. Durable after [`Store::sync`] of the
    /// returned number, or with the next commit interval. All data that `tx` refers to must be durable already.
    pub fn commit(&self, tx: Tx) -> Result<Seq> { let _ = tx; todo!() }
    /// Returns when the record `seq` and all before it are on all ring holders. Callers share one write.
    pub fn sync(&self, seq: Seq) -> Result<()> { let _ = seq; todo!() }
    /// Number of the last committed record.
    pub fn last_seq(&self) -> Seq { todo!() }
    /// Highest record that holds journaled data of `ino` (0: none). A flush notes it when it captures, before reading pages, under the inode's lock.
    pub fn data_seq(&self, ino: Ino) -> Seq { let _ = ino; todo!() }
    /// Whether `bytes` more of journaled data may be alive now (a quarter of the ring); otherwise flush instead.
    pub fn data_fits(&self, bytes: u64) -> bool { let _ = bytes; todo!() }
    /// Files with journaled data that no flush has overtaken: a checkpoint wants them flushed first.
    pub fn files_with_data(&self) -> Vec<Ino> { todo!() }
    /// The journal is so full (or old) that a checkpoint is due.
    pub fn checkpoint_due(&self) -> bool { todo!() }
    /// Writes the tables and moves the journal's tail. Ordinary operations go on.
    pub fn checkpoint(&self) -> Result<()> { todo!() }
    /// The last checkpoint, published as clean. Call after everything is flushed, with no more commits to come.
    pub fn close(&self) -> Result<()> { todo!() }
    /// The pool below.
    pub fn pool(&self) -> &Arc<Pool> { todo!() }
}
