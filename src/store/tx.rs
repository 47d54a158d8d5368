//! Transactions, and their form in the journal.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::tables::{Ino, Table};
use crate::member::superblock::{Seq, SetId};
use crate::member::wire;

/// One step of a transaction, as the journal keeps it. Values are absolute: applying a step twice is the
/// same as applying it once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Op {
    /// The key has this value from now on.
    Put { table: Table, key: ByteBuf, value: ByteBuf },
    /// The key is gone.
    Delete { table: Table, key: ByteBuf },
    /// File data that no stripe holds yet.
    Data { ino: Ino, offset: u64, bytes: ByteBuf },
    /// Journaled data in this range, of records up to `upto`, counts no more.
    DropData { ino: Ino, from: u64, to: u64, upto: Seq },
}

impl Op {
    /// Bytes in a record, at most.
    fn wire_bytes(&self) -> u64 {
        match self {
            Op::Put { key, value, .. } => 24 + key.len() as u64 + value.len() as u64,
            Op::Delete { key, .. } => 16 + key.len() as u64,
            Op::Data { bytes, .. } => 28 + bytes.len() as u64,
            Op::DropData { .. } => 36,
        }
    }
}

/// One atomic change of the tables. Its order is kept: a later operation on the same key wins.
#[derive(Debug, Default, Clone)]
pub struct Tx {
    pub(super) ops: Vec<Op>,
    /// Changes of sets' live bytes.
    pub(super) live: Vec<(SetId, i64)>,
    /// Sets that are to be freed if nothing in them is alive, although they would take more stripes.
    pub(super) idle: Vec<SetId>,
    bytes: u64,
}

/// Bytes that a set's record takes at most in a transaction.
const SET_RECORD_BYTES: u64 = 512;

impl Tx {
    /// An empty transaction.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(&mut self, op: Op) {
        self.bytes += op.wire_bytes();
        self.ops.push(op);
    }

    /// Sets `key` to `value`.
    pub fn put<V: Serialize>(&mut self, table: Table, key: Vec<u8>, value: &V) {
        self.put_raw(table, key, wire::pack(value));
    }

    /// Sets `key` to these bytes as they are (for [`Table::Xattrs`] and [`Table::Inline`]).
    pub fn put_raw(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.push(Op::Put { table, key: ByteBuf::from(key), value: ByteBuf::from(value) });
    }

    /// Removes `key`.
    pub fn delete(&mut self, table: Table, key: Vec<u8>) {
        self.push(Op::Delete { table, key: ByteBuf::from(key) });
    }

    /// Counts `delta` live bytes more (or fewer) in `set`. The store frees a set at 0 by itself, and writes
    /// the set's record with the transaction.
    pub fn live(&mut self, set: SetId, delta: i64) {
        match self.live.iter_mut().find(|(known, _)| *known == set) {
            Some((_, sum)) => *sum += delta,
            None => {
                self.bytes += SET_RECORD_BYTES;
                self.live.push((set, delta));
            }
        }
    }

    /// Frees `set` if nothing in it is alive, although it would take more stripes.
    pub(super) fn free_idle(&mut self, set: SetId) {
        self.bytes += SET_RECORD_BYTES;
        self.idle.push(set);
    }

    /// Whether it carries file data that only the journal will have.
    pub(super) fn has_data(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Data { .. }))
    }

    /// Carries file data through the journal: small fsynced writes. `offset` and length are multiples of
    /// the sector.
    pub fn data(&mut self, ino: Ino, offset: u64, bytes: Vec<u8>) {
        self.push(Op::Data { ino, offset, bytes: ByteBuf::from(bytes) });
    }

    /// Voids journaled data of `ino` in `[from, to)` whose record is at or before `upto` (`Seq::MAX`: all of
    /// it, for truncate, punch and unlink; for a flush, what [`super::Store::data_seq`] was at capture).
    pub fn drop_data(&mut self, ino: Ino, from: u64, to: u64, upto: Seq) {
        self.push(Op::DropData { ino, from, to, upto });
    }

    /// Bytes of its record, at most.
    pub fn bytes(&self) -> u64 {
        self.bytes + 64
    }

    /// Nothing in it.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.live.is_empty() && self.idle.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_covers_the_record() {
        let mut tx = Tx::new();
        tx.put_raw(Table::Xattrs, vec![1; 20], vec![2; 100]);
        tx.delete(Table::Map, vec![3; 16]);
        tx.data(7, 4096, vec![9; 4096]);
        tx.drop_data(7, 0, 4096, 3);
        assert!(wire::pack(&tx.ops).len() as u64 <= tx.bytes());
        assert_eq!(wire::unpack::<Vec<Op>>(&wire::pack(&tx.ops)).unwrap(), tx.ops);
    }
}
