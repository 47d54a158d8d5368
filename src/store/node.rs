//! Nodes of the trees: what a member holds of them, and what memory does.
//!
//! A node is a run of keys and values in order. In memory all of them lie in one piece of bytes, so that looking a key
//! up allocates nothing. On a member a key begins with how many bytes it shares with the one before. A leaf holds the table's own values; in an inner node a key is the
//! first key of a child, and its value says where the child is. **A node's first key is exactly what its parent
//! has for it**: a pointer that leads to the wrong node is noticed.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::error::{Result, StoreError};
use super::tables::Table;
use crate::member::superblock::MetaPointer;
use crate::member::wire;

/// Where a node is: one piece, or a few where it was written across the end of a set.
pub(super) type Pointer = Vec<MetaPointer>;

/// A node of one table's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    table: Table,
    /// 0 for a leaf; one more than its children's otherwise.
    level: u8,
    /// Where each entry's key ends in `bytes`, and then its value: two numbers for each entry.
    ends: Vec<u32>,
    /// Key, value, key, value, with nothing between them.
    bytes: Vec<u8>,
    /// Bytes that it takes on a member.
    encoded_bytes: usize,
}

/// A node on a member. The order of the fields is that of their bytes.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    table: Table,
    level: u8,
    entries: Vec<Shape>,
    /// What each key has of its own, then its value, entry after entry.
    bytes: ByteBuf,
}

/// Lengths of an entry.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Shape {
    /// Bytes of the key that are those of the key before.
    shared: u32,
    /// The other bytes of the key.
    own: u32,
    /// Bytes of the value.
    value: u32,
}

impl Shape {
    /// Of an entry behind one with the key `before`.
    fn of(before: &[u8], key: &[u8], value: &[u8]) -> Self {
        let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
        Self { shared: shared as u32, own: (key.len() - shared) as u32, value: value.len() as u32 }
    }

    /// Bytes of the entry on a member.
    fn encoded_bytes(&self) -> usize {
        let lengths: usize = [self.shared, self.own, self.value].into_iter().map(number_bytes).sum();
        lengths + (self.own + self.value) as usize
    }
}

/// Bytes of a packed number.
fn number_bytes(number: u32) -> usize {
    match number {
        0..=250 => 1,
        251..=0xffff => 3,
        _ => 5,
    }
}

/// What a parent, or the root block, says of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub table: Table,
    pub level: u8,
    /// Its first key; a root's is not known before.
    pub first: Option<&'a [u8]>,
}

impl Node {
    /// Decodes a node and checks all that the program relies on.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn decode(bytes: &[u8], expected: &Expected) -> Result<Self> {
        let stored: Stored = wire::unpack(bytes).map_err(|error| damaged(expected, error.to_string()))?;
        let node = Self::unfold(&stored, bytes.len()).map_err(|what| damaged(expected, what.to_owned()))?;
        node.check(expected)?;
        Ok(node)
    }

    /// Gives every key all its bytes. Lengths are right, and keys rise.
    fn unfold(stored: &Stored, encoded_bytes: usize) -> std::result::Result<Self, &'static str> {
        let Stored { table, level, entries, bytes: folded } = stored;
        if entries.is_empty() {
            return Err("it has no entries");
        }
        let whole: u64 =
            entries.iter().map(|e| [e.shared, e.own, e.value].map(u64::from).iter().sum::<u64>()).sum();
        if whole > wire::LIMIT_BYTES as u64 {
            return Err("its keys are too long");
        }
        let (mut ends, mut bytes) =
            (Vec::with_capacity(2 * entries.len()), Vec::with_capacity(whole as usize));
        let (mut rest, mut before) = (folded.as_slice(), 0..0);
        for (index, entry) in entries.iter().enumerate() {
            let start = bytes.len();
            let shared = before.start..before.start + entry.shared as usize;
            let own = rest.split_at_checked(entry.own as usize);
            let Some((own, behind)) = own.filter(|_| shared.end <= before.end) else {
                return Err("its entries do not fit it");
            };
            bytes.extend_from_within(shared);
            bytes.extend_from_slice(own);
            let key = start..bytes.len();
            if index > 0 && bytes[before.clone()] >= bytes[key.clone()] {
                return Err("its keys are not in order");
            }
            let Some((value, behind)) = behind.split_at_checked(entry.value as usize) else {
                return Err("its entries do not fit it");
            };
            ends.push(bytes.len() as u32);
            bytes.extend_from_slice(value);
            ends.push(bytes.len() as u32);
            (rest, before) = (behind, key);
        }
        if !rest.is_empty() {
            return Err("its entries do not fill it");
        }
        Ok(Self { table: *table, level: *level, ends, bytes, encoded_bytes })
    }

    /// Checks that this node is the one that its parent means.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn check(&self, expected: &Expected) -> Result<()> {
        let same = self.table == expected.table
            && self.level == expected.level
            && expected.first.is_none_or(|first| self.key(0) == first);
        if same { Ok(()) } else { Err(damaged(expected, "another node is in its place".to_owned())) }
    }

    /// Its bytes on a member.
    pub fn encode(&self) -> Vec<u8> {
        let mut entries = Vec::with_capacity(self.len());
        let mut bytes = Vec::with_capacity(self.encoded_bytes);
        let mut before: &[u8] = &[];
        for index in 0..self.len() {
            let (key, value) = (self.key(index), self.value(index));
            let shape = Shape::of(before, key, value);
            bytes.extend_from_slice(&key[shape.shared as usize..]);
            bytes.extend_from_slice(value);
            entries.push(shape);
            before = key;
        }
        wire::pack(&Stored { table: self.table, level: self.level, entries, bytes: ByteBuf::from(bytes) })
    }

    /// How many bytes [`Node::encode`] gives.
    pub fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }

    /// Memory that it takes, about.
    pub fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + self.ends.len() * 4 + 160) as u64
    }

    /// 0 for a leaf.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Entries, at least one.
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// The key of an entry.
    pub fn key(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[2 * index - 1] };
        &self.bytes[start as usize..self.ends[2 * index] as usize]
    }

    /// The value of an entry.
    pub fn value(&self, index: usize) -> &[u8] {
        &self.bytes[self.ends[2 * index] as usize..self.ends[2 * index + 1] as usize]
    }

    /// The last key.
    pub fn last_key(&self) -> &[u8] {
        self.key(self.len() - 1)
    }

    /// How many entries have keys below `key`, or (`inclusive`) at it or below.
    pub fn count_below(&self, key: &[u8], inclusive: bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let own = self.key(middle);
            if own < key || (inclusive && own == key) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The entry with this key.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let index = self.count_below(key, false);
        (index < self.len() && self.key(index) == key).then_some(index)
    }

    /// Where the child of an entry is; the node is an inner one.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the value is no pointer.
    pub fn child(&self, index: usize) -> Result<Pointer> {
        decode_pointer(self.value(index))
    }
}

/// The value of an inner node's entry.
pub(super) fn encode_pointer(pointer: &Pointer) -> Vec<u8> {
    wire::encode(pointer)
}

fn decode_pointer(bytes: &[u8]) -> Result<Pointer> {
    let damaged = |what: String| StoreError::Damaged { what: format!("a pointer to a node: {what}") };
    let pointer: Pointer = wire::decode(bytes).map_err(|error| damaged(error.to_string()))?;
    check_pointer(&pointer).map_err(damaged)?;
    Ok(pointer)
}

/// Checks a pointer by itself: every piece, and that together they are no more than anything encoded may be.
pub(super) fn check_pointer(pointer: &[MetaPointer]) -> std::result::Result<(), String> {
    if pointer.is_empty() {
        return Err("it leads nowhere".to_owned());
    }
    pointer.iter().try_for_each(MetaPointer::validate)?;
    let bytes: u64 = pointer.iter().map(|piece| u64::from(piece.len)).sum();
    if bytes > wire::LIMIT_BYTES as u64 { Err(format!("{bytes} bytes are too many")) } else { Ok(()) }
}

/// Bytes on a member of a node of so many entries, of so many bytes with their lengths, of which `folded` are no lengths.
fn encoded_bytes(entries: usize, bytes: usize, folded: usize) -> usize {
    // Table, level, two lengths.
    2 + number_bytes(entries as u32) + number_bytes(folded as u32) + bytes
}

fn damaged(expected: &Expected, what: String) -> StoreError {
    let Expected { table, level, .. } = expected;
    StoreError::Damaged { what: format!("a node of {table:?} at level {level}: {what}") }
}

/// Entries that nodes are to be made of. Keys are pushed in order.
#[derive(Debug, Default)]
pub(super) struct Draft {
    ends: Vec<u32>,
    bytes: Vec<u8>,
    shapes: Vec<Shape>,
    sum: Sum,
}

/// What entries come to on a member.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    /// Bytes with lengths.
    bytes: usize,
    /// Bytes of keys and values.
    folded: usize,
}

impl Sum {
    fn add(&mut self, shape: Shape) {
        self.bytes += shape.encoded_bytes();
        self.folded += (shape.own + shape.value) as usize;
    }
}

impl Draft {
    /// Adds an entry behind all others.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        debug_assert!(self.last_key().is_none_or(|last| last < key), "keys rise");
        let shape = Shape::of(self.last_key().unwrap_or_default(), key, value);
        self.sum.add(shape);
        self.shapes.push(shape);
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u32);
    }

    fn last_key(&self) -> Option<&[u8]> {
        let [.., _, start, end, _] = self.ends[..] else {
            return self.ends.first().map(|&end| &self.bytes[..end as usize]);
        };
        Some(&self.bytes[start as usize..end as usize])
    }

    /// Adds all entries of a node.
    pub fn push_all(&mut self, node: &Node) {
        (0..node.len()).for_each(|index| self.push(node.key(index), node.value(index)));
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// Bytes of a node of all entries.
    pub fn encoded_bytes(&self) -> usize {
        encoded_bytes(self.len(), self.sum.bytes, self.sum.folded)
    }

    /// Adds all entries of another draft.
    pub fn append(&mut self, other: Self) {
        let mut start = 0;
        for ends in other.ends.chunks_exact(2) {
            let (key, value) = (ends[0] as usize, ends[1] as usize);
            self.push(&other.bytes[start..key], &other.bytes[key..value]);
            start = value;
        }
    }

    /// How many entries from the first on make a node of at least `target` bytes and at most `most`: at least one,
    /// whatever its size; all when they are too few. There must be one.
    pub fn count_for(&self, target: usize, most: usize) -> usize {
        let mut sum = Sum::default();
        for (index, shape) in self.shapes.iter().enumerate() {
            sum.add(*shape);
            let bytes = encoded_bytes(index + 1, sum.bytes, sum.folded);
            if bytes >= target || index + 1 == self.len() {
                return if index > 0 && bytes > most { index } else { index + 1 };
            }
        }
        self.len()
    }

    /// Takes the first `count` entries off, as a node.
    pub fn take_node(&mut self, count: usize, table: Table, level: u8) -> Node {
        let mut sum = Sum::default();
        self.shapes.drain(..count).for_each(|shape| sum.add(shape));
        let cut = self.ends[2 * count - 1];
        let ends = self.ends.drain(..2 * count).collect();
        let bytes: Vec<u8> = self.bytes.drain(..cut as usize).collect();
        self.ends.iter_mut().for_each(|end| *end -= cut);
        // What is now the first has nobody to share with.
        if let Some(first) = self.shapes.first_mut() {
            *first = Shape { shared: 0, own: first.own + first.shared, ..*first };
        }
        self.sum = Sum::default();
        self.shapes.iter().for_each(|shape| self.sum.add(*shape));
        Node { table, level, ends, bytes, encoded_bytes: encoded_bytes(count, sum.bytes, sum.folded) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::sim::next_random;

    const LEAF: Expected = Expected { table: Table::Map, level: 0, first: None };

    fn sample(entries: u8) -> Node {
        let mut draft = Draft::default();
        for index in 0..entries {
            draft.push(&[b'k', index], &vec![index; usize::from(index) % 7]);
        }
        draft.take_node(draft.len(), Table::Map, 0)
    }

    #[test]
    fn nodes_come_back_as_they_were() {
        let node = sample(100);
        let bytes = node.encode();
        assert_eq!(bytes.len(), node.encoded_bytes());
        let back = Node::decode(&bytes, &LEAF).expect("decodes");
        assert_eq!(back, node);
        assert_eq!((back.len(), back.key(7), back.value(6)), (100, &[b'k', 7][..], &[6u8; 6][..]));
        assert_eq!((back.find(&[b'k', 42]), back.find(b"k"), back.find(b"z")), (Some(42), None, None));
        assert_eq!((back.count_below(&[b'k', 3], false), back.count_below(&[b'k', 3], true)), (3, 4));
        assert_eq!((back.count_below(b"", true), back.count_below(b"z", false)), (0, 100));
    }

    #[test]
    fn drafts_are_cut_into_nodes() {
        let mut draft = Draft::default();
        draft.push_all(&sample(10));
        assert_eq!(draft.encoded_bytes(), sample(10).encoded_bytes());
        let front = draft.take_node(4, Table::Map, 0);
        let rest = draft.take_node(6, Table::Map, 0);
        assert_eq!((front.len(), front.last_key(), rest.key(0)), (4, &[b'k', 3][..], &[b'k', 4][..]));
        assert_eq!((rest.value(2), draft.len()), (&[6u8; 6][..], 0));
    }

    #[test]
    fn another_node_than_expected_is_an_error() {
        let bytes = sample(5).encode();
        assert!(Node::decode(&bytes, &Expected { first: Some(&[b'k', 0]), ..LEAF }).is_ok());
        assert!(Node::decode(&bytes, &Expected { first: Some(b"k"), ..LEAF }).is_err());
        assert!(Node::decode(&bytes, &Expected { level: 1, ..LEAF }).is_err());
        assert!(Node::decode(&bytes, &Expected { table: Table::Sets, ..LEAF }).is_err());
    }

    #[test]
    fn contradictions_are_errors() {
        let spoiled = |spoil: fn(&mut Stored)| {
            let mut stored: Stored = wire::unpack(&sample(5).encode()).expect("unpacks");
            spoil(&mut stored);
            Node::decode(&wire::pack(&stored), &LEAF)
        };
        assert!(spoiled(|_| ()).is_ok());
        assert!(spoiled(|stored| stored.entries.clear()).is_err());
        assert!(spoiled(|stored| stored.entries.truncate(4)).is_err());
        assert!(spoiled(|stored| stored.entries[0].shared = 1).is_err());
        assert!(spoiled(|stored| stored.entries[3].shared = 3).is_err());
        assert!(spoiled(|stored| stored.entries[3].shared = u32::MAX).is_err());
        assert!(spoiled(|stored| stored.entries[4].value -= 1).is_err());
        assert!(spoiled(|stored| stored.entries[1].own = 1000).is_err());
        assert!(spoiled(|stored| stored.bytes[1] = 9).is_err());
        assert!(spoiled(|stored| stored.bytes.push(1)).is_err());
        assert!(decode_pointer(&encode_pointer(&Vec::new())).is_err());
        let huge = MetaPointer { set: 1, address: 0, len: u32::MAX, sums: vec![0; 1 << 20] };
        assert!(check_pointer(&[huge]).is_err());
    }

    /// Whatever the bytes are: an error, or a node that can be used.
    fn use_if_decoded(bytes: &[u8]) {
        let Ok(node) = Node::decode(bytes, &LEAF) else { return };
        for index in 0..node.len() {
            assert_eq!(node.find(node.key(index)), Some(index));
            let _ = (node.value(index), node.child(index));
        }
    }

    #[test]
    fn hostile_bytes_do_no_harm() {
        let bytes = sample(40).encode();
        for len in 0..bytes.len() {
            assert!(Node::decode(&bytes[..len], &LEAF).is_err());
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            use_if_decoded(&flipped);
        }
        let mut random = 7;
        for round in 0..20_000 {
            let mut noise: Vec<u8> = (0..round % 97).map(|_| next_random(&mut random) as u8).collect();
            // Half of them get as far as the entries.
            if round % 2 == 0 && noise.len() >= 3 {
                noise[..3].copy_from_slice(&[bytes[0], bytes[1], 2]);
            }
            use_if_decoded(&noise);
        }
    }
}
