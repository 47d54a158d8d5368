//! The tables in memory: the base that the last checkpoint wrote, and what changed since, in two layers.
//!
//! Changes go into the active layer. A checkpoint freezes it, writes base and frozen layer merged, and then
//! folds the frozen layer into the base; meanwhile changes go into a new active layer.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;
use std::ops::Bound;

use super::tables::Table;
use crate::sync::Arc;

type Bytes = Box<[u8]>;

/// Keys and values of all tables.
pub(super) type Base = [BTreeMap<Bytes, Bytes>; Table::ALL.len()];
/// Changes of all tables: a value, or nothing for a key that is gone.
pub(super) type Layer = [BTreeMap<Bytes, Option<Bytes>>; Table::ALL.len()];

/// The three layers.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    base: Arc<Base>,
    frozen: Option<Arc<Layer>>,
    active: Layer,
    active_bytes: u64,
}

impl Overlay {
    /// Nothing but a base.
    pub fn new(base: Base) -> Self {
        Self { base: Arc::new(base), ..Self::default() }
    }

    /// Sets or removes a key.
    pub fn apply(&mut self, table: Table, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.active_bytes += (key.len() + value.as_ref().map_or(0, Vec::len) + 64) as u64;
        self.active[table as usize].insert(key.into_boxed_slice(), value.map(Vec::into_boxed_slice));
    }

    /// Memory of the active layer, about.
    pub fn active_bytes(&self) -> u64 {
        self.active_bytes
    }

    /// The value of a key.
    pub fn get(&self, table: Table, key: &[u8]) -> Option<&[u8]> {
        let index = table as usize;
        if let Some(change) = self.active[index].get(key) {
            return change.as_deref();
        }
        if let Some(change) = self.frozen.as_ref().and_then(|frozen| frozen[index].get(key)) {
            return change.as_deref();
        }
        self.base[index].get(key).map(|value| &**value)
    }

    /// Keys in `[from, to)` in order, at most `limit` of them.
    pub fn scan(&self, table: Table, from: &[u8], to: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        if from >= to {
            return Vec::new();
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        self.merged(table, bounds).take(limit).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    /// The last key in `[floor, key]`.
    pub fn last_at_or_before(&self, table: Table, floor: &[u8], key: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let index = table as usize;
        let mut upper = Bound::Included(key.to_vec());
        loop {
            let range = (Bound::Included(floor), upper.as_ref().map(|bound| &bound[..]));
            if let (Bound::Included(from), Bound::Excluded(to)) = range
                && from >= to
            {
                return None;
            }
            let active = self.active[index].range::<[u8], _>(range).next_back().map(|(key, _)| key);
            let frozen = self.frozen.as_ref();
            let frozen = frozen
                .and_then(|frozen| frozen[index].range::<[u8], _>(range).next_back())
                .map(|(key, _)| key);
            let base = self.base[index].range::<[u8], _>(range).next_back().map(|(key, _)| key);
            let last = [active, frozen, base].into_iter().flatten().max()?;
            if let Some(value) = self.get(table, last) {
                return Some((last.to_vec(), value.to_vec()));
            }
            upper = Bound::Excluded(last.to_vec());
        }
    }

    fn merged<'a>(
        &'a self,
        table: Table,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let index = table as usize;
        let active = Some(self.active[index].range::<[u8], _>(bounds).peekable());
        let frozen = self.frozen.as_ref().map(|frozen| frozen[index].range::<[u8], _>(bounds).peekable());
        merge(self.base[index].range::<[u8], _>(bounds).peekable(), frozen, active)
    }

    /// Freezes the active layer, and gives base and frozen layer for writing.
    pub fn freeze(&mut self) -> (Arc<Base>, Arc<Layer>) {
        let frozen = Arc::new(std::mem::take(&mut self.active));
        self.active_bytes = 0;
        self.frozen = Some(Arc::clone(&frozen));
        (Arc::clone(&self.base), frozen)
    }

    /// Folds the frozen layer into the base: the checkpoint is published.
    pub fn fold(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        let frozen = Arc::try_unwrap(frozen).unwrap_or_else(|shared| (*shared).clone());
        let base = Arc::make_mut(&mut self.base);
        for (table, changes) in base.iter_mut().zip(frozen) {
            for (key, change) in changes {
                match change {
                    Some(value) => table.insert(key, value),
                    None => table.remove(&key),
                };
            }
        }
    }

    /// Puts the frozen layer back under the active one: the checkpoint failed.
    pub fn thaw(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        let frozen = Arc::try_unwrap(frozen).unwrap_or_else(|shared| (*shared).clone());
        let newer = std::mem::replace(&mut self.active, frozen);
        for (table, changes) in self.active.iter_mut().zip(newer) {
            table.extend(changes);
        }
    }
}

/// All keys of one table as base and frozen layer have them, in order.
pub(super) fn merged_table<'a>(
    base: &'a Base,
    frozen: &'a Layer,
    table: Table,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let everything: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
    let index = table as usize;
    let frozen = frozen[index].range::<[u8], _>(everything).peekable();
    merge(base[index].range::<[u8], _>(everything).peekable(), Some(frozen), None)
}

type Changes<'a> = Option<Peekable<Range<'a, Bytes, Option<Bytes>>>>;

/// Merges three sorted layers; the later argument wins.
fn merge<'a>(
    mut base: Peekable<Range<'a, Bytes, Bytes>>,
    mut frozen: Changes<'a>,
    mut active: Changes<'a>,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    std::iter::from_fn(move || {
        loop {
            let heads = [
                base.peek().map(|(key, _)| *key),
                frozen.as_mut().and_then(|layer| layer.peek().map(|(key, _)| *key)),
                active.as_mut().and_then(|layer| layer.peek().map(|(key, _)| *key)),
            ];
            let key = heads.into_iter().flatten().min()?;
            let mut value: Option<&'a [u8]> = None;
            if let Some((_, found)) = base.next_if(|(head, _)| *head == key) {
                value = Some(found);
            }
            for layer in [&mut frozen, &mut active].into_iter().flatten() {
                if let Some((_, change)) = layer.next_if(|(head, _)| *head == key) {
                    value = change.as_deref();
                }
            }
            if let Some(value) = value {
                return Some((&**key, value));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(found: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(u8, u8)> {
        found.into_iter().map(|(key, value)| (key[0], value[0])).collect()
    }

    #[test]
    fn layers_are_seen_as_one() {
        let mut overlay = Overlay::default();
        for key in [1, 3, 5, 7] {
            overlay.apply(Table::Map, vec![key], Some(vec![10 + key]));
        }
        overlay.freeze();
        overlay.fold();
        overlay.apply(Table::Map, vec![3], None);
        overlay.apply(Table::Map, vec![4], Some(vec![24]));
        overlay.freeze();
        overlay.apply(Table::Map, vec![4], Some(vec![34]));
        overlay.apply(Table::Map, vec![7], None);
        let expected = [(1, 11), (4, 34), (5, 15)];
        assert_eq!(keys(overlay.scan(Table::Map, &[0], &[99], 10)), expected);
        assert_eq!(keys(overlay.scan(Table::Map, &[0], &[99], 2)), expected[..2]);
        assert_eq!(overlay.last_at_or_before(Table::Map, &[0], &[9]), Some((vec![5], vec![15])));
        assert_eq!(overlay.last_at_or_before(Table::Map, &[2], &[3]), None);
        assert_eq!(overlay.get(Table::Map, &[3]), None);
        overlay.thaw();
        assert_eq!(keys(overlay.scan(Table::Map, &[0], &[99], 10)), expected);
        overlay.freeze();
        overlay.fold();
        assert_eq!(keys(overlay.scan(Table::Map, &[0], &[99], 10)), expected);
    }
}
