//! What changed since the last checkpoint, in memory, over the roots of its trees.
//!
//! Changes go into the active layer. A checkpoint freezes it and merges it into the trees; meanwhile changes go
//! into a new active layer. When the new roots are published, the frozen layer is gone.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;
use std::ops::Bound;

use super::tables::Table;
use super::tree::Roots;
use crate::sync::Arc;

type Bytes = Box<[u8]>;

/// Changes of all tables: a value, or nothing for a key that is gone.
pub(super) type Layer = [BTreeMap<Bytes, Option<Bytes>>; Table::ALL.len()];
/// A key, and its value or that it is gone.
pub(super) type Changed = (Vec<u8>, Option<Vec<u8>>);

/// Memory of an entry besides its key and value, about.
const ENTRY_BYTES: u64 = 64;
/// Bytes in a node of an entry besides its key and value, about.
const LENGTHS_BYTES: u64 = 9;
/// Changes are copied out in chunks of at most so many bytes.
const CHUNK_BYTES: usize = 256 * 1024;

/// The layers, and the roots below.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    roots: Arc<Roots>,
    frozen: Option<Arc<Layer>>,
    active: Layer,
    size: LayerSize,
}

/// How much a layer holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayerSize {
    /// Changed keys.
    pub changes: u64,
    /// Memory, about.
    pub bytes: u64,
    /// Bytes in nodes, at most: of what is put.
    pub stored: u64,
}

impl LayerSize {
    /// One change more.
    fn add(&mut self, key_bytes: usize, value: Option<&[u8]>) {
        self.changes += 1;
        self.bytes += entry_bytes(key_bytes, value);
        self.stored += stored_bytes(key_bytes, value);
    }

    /// One change fewer.
    fn remove(&mut self, key_bytes: usize, value: Option<&[u8]>) {
        self.changes -= 1;
        self.bytes -= entry_bytes(key_bytes, value);
        self.stored -= stored_bytes(key_bytes, value);
    }
}

fn entry_bytes(key_bytes: usize, value: Option<&[u8]>) -> u64 {
    ENTRY_BYTES + (key_bytes + value.map_or(0, <[u8]>::len)) as u64
}

fn stored_bytes(key_bytes: usize, value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| LENGTHS_BYTES + (key_bytes + value.len()) as u64)
}

/// A part of a range of changes.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// The changes, in order.
    pub changes: Vec<Changed>,
    /// Where the chunk ends; none when it is the whole range.
    pub end: Option<Vec<u8>>,
}

/// Changes of a range from its end backwards, as far as the first key that is there.
#[derive(Debug, Default)]
pub(super) struct ChunkBack {
    /// Keys that are gone, from the last backwards.
    pub gone: Vec<Vec<u8>>,
    /// The last key that is there.
    pub found: Option<(Vec<u8>, Vec<u8>)>,
    /// There are more changes before the last of `gone`.
    pub more: bool,
}

impl Overlay {
    /// Nothing but roots.
    pub fn new(roots: Roots) -> Self {
        Self { roots: Arc::new(roots), ..Self::default() }
    }

    /// The roots below the layers.
    pub fn roots(&self) -> Arc<Roots> {
        Arc::clone(&self.roots)
    }

    /// Sets or removes a key.
    pub fn apply(&mut self, table: Table, key: Vec<u8>, value: Option<Vec<u8>>) {
        let key_bytes = key.len();
        self.size.add(key_bytes, value.as_deref());
        let old =
            self.active[table as usize].insert(key.into_boxed_slice(), value.map(Vec::into_boxed_slice));
        if let Some(old) = old {
            self.size.remove(key_bytes, old.as_deref());
        }
    }

    /// How much the active layer holds.
    pub fn active_size(&self) -> LayerSize {
        self.size
    }

    /// What became of a key since the last checkpoint; none when nothing did.
    pub fn find(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.layers(table).find_map(|layer| layer.get(key)).map(Option::as_deref)
    }

    /// Changes of keys in `[from, to)`, in order: all, or the first ones, about `limit`.
    pub fn changes(&self, table: Table, from: &[u8], to: &[u8], limit: usize) -> Chunk {
        let mut chunk = Chunk::default();
        let mut bytes = 0;
        let mut merged = merge(self.ranges(table, (Bound::Included(from), Bound::Excluded(to)))).peekable();
        while let Some((key, value)) = merged.next() {
            bytes += key.len() + value.map_or(0, <[u8]>::len);
            chunk.changes.push((key.to_vec(), value.map(<[u8]>::to_vec)));
            if chunk.changes.len() >= limit || bytes >= CHUNK_BYTES {
                chunk.end = merged.peek().map(|(key, _)| key.to_vec());
                break;
            }
        }
        chunk
    }

    /// Changes of keys from `floor` up to `upper`, from there backwards; see [`ChunkBack`].
    pub fn changes_back(&self, table: Table, floor: &[u8], upper: Bound<&[u8]>, limit: usize) -> ChunkBack {
        let mut back = ChunkBack::default();
        let mut upper = upper;
        loop {
            let bounds = (Bound::Included(floor), upper);
            let last = self.layers(table).filter_map(|layer| layer.range::<[u8], _>(bounds).next_back());
            // Of equal keys the first counts: that of the active layer.
            let Some((key, value)) = last.rev().max_by_key(|(key, _)| *key) else { return back };
            if let Some(value) = value {
                back.found = Some((key.to_vec(), value.to_vec()));
                return back;
            }
            back.gone.push(key.to_vec());
            if back.gone.len() >= limit {
                back.more = true;
                return back;
            }
            upper = Bound::Excluded(key);
            if **key <= *floor {
                return back;
            }
        }
    }

    /// The layers of a table, the one that counts first.
    fn layers(&self, table: Table) -> impl DoubleEndedIterator<Item = &BTreeMap<Bytes, Option<Bytes>>> {
        let index = table as usize;
        let frozen = self.frozen.as_ref().map(|frozen| &frozen[index]);
        std::iter::once(&self.active[index]).chain(frozen)
    }

    fn ranges<'a>(&'a self, table: Table, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Vec<Changes<'a>> {
        self.layers(table).map(|layer| layer.range::<[u8], _>(bounds).peekable()).collect()
    }

    /// Freezes the active layer, and gives the roots and the frozen layer.
    pub fn freeze(&mut self) -> (Arc<Roots>, Arc<Layer>) {
        let frozen = Arc::new(std::mem::take(&mut self.active));
        self.size = LayerSize::default();
        self.frozen = Some(Arc::clone(&frozen));
        (Arc::clone(&self.roots), frozen)
    }

    /// The frozen layer is in these roots, which are published.
    pub fn publish(&mut self, roots: Arc<Roots>) {
        self.roots = roots;
        self.frozen = None;
    }

    /// Puts the frozen layer back under the active one: the checkpoint failed.
    pub fn thaw(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        let frozen = Arc::try_unwrap(frozen).unwrap_or_else(|shared| (*shared).clone());
        let newer = std::mem::replace(&mut self.active, frozen);
        for (table, changes) in self.active.iter_mut().zip(newer) {
            table.extend(changes);
        }
        self.size = size_of(&self.active);
    }
}

fn size_of(layer: &Layer) -> LayerSize {
    let mut size = LayerSize::default();
    for (key, value) in layer.iter().flatten() {
        size.add(key.len(), value.as_deref());
    }
    size
}

type Changes<'a> = Peekable<Range<'a, Bytes, Option<Bytes>>>;

/// Merges sorted layers; of equal keys the first layer's counts.
fn merge<'a>(mut layers: Vec<Changes<'a>>) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
    std::iter::from_fn(move || {
        let key = layers.iter_mut().filter_map(|layer| layer.peek().map(|(key, _)| *key)).min()?;
        let mut found = None;
        for layer in &mut layers {
            if let Some((_, value)) = layer.next_if(|(head, _)| *head == key) {
                found = found.or(Some(value.as_deref()));
            }
        }
        found.map(|value| (&**key, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layered() -> Overlay {
        let mut overlay = Overlay::default();
        for key in [1, 3, 5, 7] {
            overlay.apply(Table::Map, vec![key], Some(vec![10 + key]));
        }
        overlay.freeze();
        overlay.apply(Table::Map, vec![3], None);
        overlay.apply(Table::Map, vec![4], Some(vec![24]));
        overlay.apply(Table::Map, vec![4], Some(vec![34, 0]));
        overlay.apply(Table::Map, vec![7], None);
        overlay
    }

    type Short = Vec<(u8, Option<u8>)>;

    fn changes(overlay: &Overlay, limit: usize) -> (Short, Option<Vec<u8>>) {
        let chunk = overlay.changes(Table::Map, &[0], &[99], limit);
        let changes = chunk.changes.iter().map(|(key, value)| (key[0], value.as_ref().map(|v| v[0])));
        (changes.collect(), chunk.end)
    }

    #[test]
    fn layers_are_seen_as_one() {
        let mut overlay = layered();
        let all = [(1, Some(11)), (3, None), (4, Some(34)), (5, Some(15)), (7, None)];
        assert_eq!(changes(&overlay, 10), (all.to_vec(), None));
        assert_eq!(changes(&overlay, 2), (all[..2].to_vec(), Some(vec![4])));
        assert_eq!(changes(&overlay, 5), (all.to_vec(), None));
        assert_eq!(overlay.find(Table::Map, &[3]), Some(None));
        assert_eq!(overlay.find(Table::Map, &[5]), Some(Some(&[15][..])));
        assert_eq!(overlay.find(Table::Map, &[6]), None);
        assert_eq!(overlay.find(Table::Sets, &[5]), None);
        overlay.thaw();
        assert_eq!(changes(&overlay, 10), (all.to_vec(), None));
        overlay.freeze();
        overlay.publish(Arc::default());
        assert_eq!(changes(&overlay, 10), (vec![], None));
    }

    #[test]
    fn backwards_as_far_as_a_key_that_is_there() {
        let overlay = layered();
        let back = |upper: Bound<&[u8]>, limit| {
            let back = overlay.changes_back(Table::Map, &[3], upper, limit);
            (
                back.gone.iter().map(|key| key[0]).collect::<Vec<_>>(),
                back.found.map(|(key, _)| key[0]),
                back.more,
            )
        };
        assert_eq!(back(Bound::Included(&[9]), 10), (vec![7], Some(5), false));
        assert_eq!(back(Bound::Excluded(&[7]), 10), (vec![], Some(5), false));
        assert_eq!(back(Bound::Included(&[3]), 10), (vec![3], None, false));
        assert_eq!(back(Bound::Included(&[9]), 1), (vec![7], None, true));
    }

    #[test]
    fn a_key_that_changes_twice_counts_once() {
        let mut overlay = layered();
        assert_eq!(overlay.active_size(), LayerSize { changes: 3, bytes: 3 * 65 + 2, stored: 10 + 2 });
        overlay.thaw();
        assert_eq!(overlay.active_size(), LayerSize { changes: 5, bytes: 5 * 65 + 4, stored: 3 * 10 + 4 });
    }
}
