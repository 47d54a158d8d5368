//! The root block: where the trees' roots are, and which sets hold metadata.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::{Result, StoreError};
use super::node::{Pointer, check_pointer};
use super::tables::Table;
use super::tree::{Roots, TreeRoot};
use crate::member::superblock::{MetaPointer, SetId, SetRecord};
use crate::member::wire;

/// What the root block says. The order of the fields is that of their bytes.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RootBlock {
    /// The tables that have entries, in the order of their numbers.
    roots: Vec<RootRecord>,
    /// The sets that hold metadata, as they were before this block was written. Live bytes are those of the nodes
    /// that these roots refer to: neither those of the roots before, nor this block's own.
    pub sets: Vec<SetRecord>,
}

/// The root of one table.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RootRecord {
    table: Table,
    level: u8,
    node: Pointer,
}

impl RootBlock {
    /// The block for these roots.
    pub fn new(roots: &Roots, sets: Vec<SetRecord>) -> Self {
        let record = |table| {
            let root = roots.get(table)?;
            Some(RootRecord { table, level: root.level, node: root.node.clone() })
        };
        Self { roots: Table::ALL.into_iter().filter_map(record).collect(), sets }
    }

    /// Its bytes on a member.
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(self)
    }

    /// Decodes a block. Its sets are checked by who takes them into use.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        wire::decode(bytes).map_err(|error| damaged(&error.to_string()))
    }

    /// The roots.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a table is there twice, or a pointer makes no sense.
    pub fn roots(&self) -> Result<Roots> {
        let mut roots = Roots::default();
        for RootRecord { table, level, node } in &self.roots {
            check_pointer(node).map_err(|what| damaged(&what))?;
            if roots.get(*table).is_some() {
                return Err(damaged(&format!("{table:?} is there twice")));
            }
            roots.set(*table, Some(TreeRoot { level: *level, node: node.clone() }));
        }
        Ok(roots)
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::Damaged { what: format!("the root block: {what}") }
}

/// Bytes of metadata that a root refers to, by set.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct LiveBytes(BTreeMap<SetId, u64>);

impl LiveBytes {
    /// As the records of the sets have it.
    pub fn of(records: &[SetRecord]) -> Self {
        Self(records.iter().filter(|record| record.live > 0).map(|record| (record.id, record.live)).collect())
    }

    /// Counts what these point to.
    pub fn add(&mut self, pointers: &[MetaPointer]) {
        for pointer in pointers {
            *self.0.entry(pointer.set).or_default() += pointer.padded_bytes();
        }
    }

    /// Takes off what these point to.
    pub fn remove(&mut self, pointers: &[MetaPointer]) {
        for pointer in pointers {
            let left = self.get(pointer.set).saturating_sub(pointer.padded_bytes());
            if left > 0 {
                self.0.insert(pointer.set, left);
            } else {
                self.0.remove(&pointer.set);
            }
        }
    }

    /// Bytes in one set.
    pub fn get(&self, set: SetId) -> u64 {
        self.0.get(&set).copied().unwrap_or(0)
    }

    /// Bytes in all sets.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Puts them into the records of the sets.
    pub fn write_into(&self, mut records: Vec<SetRecord>) -> Vec<SetRecord> {
        records.iter_mut().for_each(|record| record.live = self.get(record.id));
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::sim::next_random;

    fn pointer(set: SetId, sectors: u32) -> MetaPointer {
        MetaPointer { set, address: 4096, len: sectors * 4096 - 100, sums: vec![7; sectors as usize] }
    }

    fn sample() -> RootBlock {
        let mut roots = Roots::default();
        roots.set(Table::Map, Some(TreeRoot { level: 3, node: vec![pointer(1, 4)] }));
        roots.set(Table::Sets, Some(TreeRoot { level: 0, node: vec![pointer(1, 2), pointer(2, 2)] }));
        RootBlock::new(&roots, Vec::new())
    }

    #[test]
    fn blocks_come_back_as_they_were() {
        let block = RootBlock::decode(&sample().encode()).expect("decodes");
        assert_eq!(block, sample());
        let roots = block.roots().expect("makes sense");
        assert_eq!(roots.get(Table::Map).map(|root| root.level), Some(3));
        assert_eq!(roots.get(Table::Inodes), None);
    }

    #[test]
    fn nonsense_is_an_error() {
        let mut twice = sample();
        twice.roots[1].table = Table::Map;
        assert!(twice.roots().is_err());
        let mut nowhere = sample();
        nowhere.roots[0].node.clear();
        assert!(nowhere.roots().is_err());
        let bytes = sample().encode();
        for len in 0..bytes.len() {
            assert!(RootBlock::decode(&bytes[..len]).is_err());
        }
        let mut random = 3;
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let noise = next_random(&mut random) as usize % flipped.len();
            flipped[noise] ^= next_random(&mut random) as u8;
            let _ = RootBlock::decode(&flipped).map(|block| block.roots());
        }
    }

    #[test]
    fn live_bytes_are_counted_in_whole_sectors() {
        let mut live = LiveBytes::default();
        live.add(&[pointer(1, 3), pointer(2, 1), pointer(1, 1)]);
        assert_eq!((live.get(1), live.get(2), live.total()), (4 * 4096, 4096, 5 * 4096));
        live.remove(&[pointer(1, 3), pointer(2, 1)]);
        assert_eq!((live.get(1), live.get(2), live.total()), (4096, 0, 4096));
        live.remove(&[pointer(1, 1)]);
        assert_eq!(live, LiveBytes::default());
    }
}
