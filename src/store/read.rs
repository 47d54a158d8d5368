//! Reading the tables: the layers of changes in memory first, then the trees.
//!
//! Under the lock a reader looks into the layers and takes hold of the roots, both of one moment. The trees it
//! reads without a lock: checkpoints and commits go on meanwhile.

use std::ops::Bound;

use serde::de::DeserializeOwned;

use super::Store;
use super::error::{Result, StoreError};
use super::overlay::{Changed, ChunkBack};
use super::tables::Table;
use super::tree::{Roots, Tree};
use crate::member::wire;

/// Changes are taken out of the layers in chunks of so many.
const CHUNK_CHANGES: usize = 512;
/// Fewer are not worth the way there.
const CHUNK_CHANGES_MIN: usize = 16;

/// A key with its value.
type Pair = (Vec<u8>, Vec<u8>);

impl Store {
    /// The value of `key`.
    ///
    /// # Errors
    /// Those of reading the pool; [`StoreError::Damaged`].
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.look_up(table, key, |value| value.map(<[u8]>::to_vec))
    }

    /// The decoded value of `key`.
    ///
    /// # Errors
    /// As [`Store::get`]; [`StoreError::Damaged`] also when the value is not what it should be.
    pub fn read<V: DeserializeOwned>(&self, table: Table, key: &[u8]) -> Result<Option<V>> {
        let decoded = self.look_up(table, key, |value| value.map(wire::unpack).transpose())?;
        decoded.map_err(|error| StoreError::Damaged { what: format!("a value of {table:?}: {error}") })
    }

    fn look_up<T>(&self, table: Table, key: &[u8], with: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        let roots = {
            let overlay = self.overlay.read();
            match overlay.find(table, key) {
                Some(change) => return Ok(with(change)),
                None => overlay.roots(),
            }
        };
        let entry = self.tree(&roots, table).find(key)?;
        Ok(with(entry.as_ref().map(|entry| entry.value())))
    }

    /// Keys in `[from, to)` in order, at most `limit` of them. A long range is not read at one moment: what is
    /// committed meanwhile may be seen from some key on. Whoever minds holds a lock on what the range is of.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn scan(&self, table: Table, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>> {
        let mut found = Vec::new();
        let mut from = from.to_vec();
        while found.len() < limit && *from < *to {
            let wanted = (limit - found.len()).clamp(CHUNK_CHANGES_MIN, CHUNK_CHANGES);
            let (chunk, roots) = {
                let overlay = self.overlay.read();
                (overlay.changes(table, &from, to, wanted), overlay.roots())
            };
            let end = chunk.end.as_deref().unwrap_or(to);
            self.scan_chunk(&self.tree(&roots, table), (&from, end), chunk.changes, limit, &mut found)?;
            match chunk.end {
                Some(end) => from = end,
                None => break,
            }
        }
        Ok(found)
    }

    /// The tree's entries of a range, with all changes of that range.
    fn scan_chunk(
        &self,
        tree: &Tree,
        (from, to): (&[u8], &[u8]),
        changes: Vec<Changed>,
        limit: usize,
        found: &mut Vec<Pair>,
    ) -> Result<()> {
        let mut changes = changes.into_iter().peekable();
        tree.visit(from, to, |key, value| {
            while let Some((key, value)) = changes.next_if(|(changed, _)| &**changed < key) {
                found.extend(value.map(|value| (key, value)));
            }
            match changes.next_if(|(changed, _)| &**changed == key) {
                Some((key, value)) => found.extend(value.map(|value| (key, value))),
                None => found.push((key.to_vec(), value.to_vec())),
            }
            found.len() < limit
        })?;
        // More than wanted when the tree ended first, or when it stopped at the limit.
        found.extend(changes.filter_map(|(key, value)| Some((key, value?))));
        found.truncate(limit);
        Ok(())
    }

    /// The last key at or below `key` and at or above `floor`.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn last_at_or_before(&self, table: Table, floor: &[u8], key: &[u8]) -> Result<Option<Pair>> {
        let mut upper = Bound::Included(key.to_vec());
        loop {
            let bound = upper.as_ref().map(|key| &**key);
            if is_empty(floor, bound) {
                return Ok(None);
            }
            let (back, roots) = {
                let overlay = self.overlay.read();
                (overlay.changes_back(table, floor, bound, CHUNK_CHANGES), overlay.roots())
            };
            let in_tree = last_in_tree(&self.tree(&roots, table), floor, bound, &back)?;
            let found = match (in_tree, back.found) {
                (Some(in_tree), Some(changed)) if in_tree.0 > changed.0 => Some(in_tree),
                (in_tree, None) => in_tree,
                (_, changed) => changed,
            };
            match back.gone.into_iter().next_back() {
                Some(lowest) if found.is_none() && back.more => upper = Bound::Excluded(lowest),
                _ => return Ok(found),
            }
        }
    }

    /// The tree of a table, as of some roots.
    pub(super) fn tree<'a>(&'a self, roots: &'a Roots, table: Table) -> Tree<'a> {
        Tree::new(&self.nodes, roots, table)
    }
}

fn is_empty(floor: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Included(key) => floor > key,
        Bound::Excluded(key) => floor >= key,
        Bound::Unbounded => false,
    }
}

/// The last key of the tree in a range that no change says is gone; above the changes that `back` has not got.
fn last_in_tree(tree: &Tree, floor: &[u8], upper: Bound<&[u8]>, back: &ChunkBack) -> Result<Option<Pair>> {
    let (mut key, mut inclusive) = match upper {
        Bound::Included(key) => (key.to_vec(), true),
        Bound::Excluded(key) => (key.to_vec(), false),
        Bound::Unbounded => return Ok(None),
    };
    let lowest = back.gone.last().filter(|_| back.more).map_or(floor, |lowest| lowest);
    while let Some(entry) = tree.last_below(&key, inclusive)?.filter(|entry| entry.key() >= lowest) {
        // They go downwards.
        if back.gone.binary_search_by(|gone| entry.key().cmp(gone.as_slice())).is_err() {
            return Ok(Some((entry.key().to_vec(), entry.value().to_vec())));
        }
        (key, inclusive) = (entry.key().to_vec(), false);
    }
    Ok(None)
}
