//! Which ranges of which files have their newest durable bytes in the journal only.
//!
//! The journal's tail must not pass a record of such data, and recovery gives it back to the cache.

use std::collections::{BTreeMap, HashMap};

use super::JournaledData;
use super::tables::Ino;
use crate::member::superblock::Seq;

/// Journaled data that no flush has overtaken.
#[derive(Debug, Default)]
pub(super) struct DataIndex {
    files: HashMap<Ino, BTreeMap<u64, Piece>>,
    /// Bytes alive by record.
    by_seq: BTreeMap<Seq, u64>,
    bytes: u64,
    /// Keep the bytes themselves: during replay.
    keep: bool,
}

#[derive(Debug, Clone)]
struct Piece {
    len: u64,
    seq: Seq,
    bytes: Vec<u8>,
}

impl Piece {
    /// The part from `skip` on, `len` long.
    fn part(&self, skip: u64, len: u64) -> Piece {
        let bytes = self.bytes.get(skip as usize..(skip + len) as usize).unwrap_or_default().to_vec();
        Piece { len, seq: self.seq, bytes }
    }
}

impl DataIndex {
    /// An index that keeps the bytes too.
    pub fn for_replay() -> Self {
        Self { keep: true, ..Self::default() }
    }

    /// Record `seq` holds data.
    pub fn insert(&mut self, ino: Ino, offset: u64, bytes: &[u8], seq: Seq) {
        let len = bytes.len() as u64;
        self.remove(ino, offset, offset.saturating_add(len), Seq::MAX);
        let bytes = if self.keep { bytes.to_vec() } else { Vec::new() };
        self.count(seq, len as i64);
        self.files.entry(ino).or_default().insert(offset, Piece { len, seq, bytes });
    }

    /// Data in `[from, to)` of records up to `upto` counts no more.
    pub fn remove(&mut self, ino: Ino, from: u64, to: u64, upto: Seq) {
        let Some(pieces) = self.files.get_mut(&ino) else { return };
        let first = pieces.range(..from).next_back().map_or(from, |(offset, _)| *offset);
        let hit: Vec<u64> = pieces
            .range(first..to)
            .filter(|(offset, piece)| *offset + piece.len > from && piece.seq <= upto)
            .map(|(offset, _)| *offset)
            .collect();
        let mut changes = Vec::new();
        for offset in hit {
            let Some(piece) = pieces.remove(&offset) else { continue };
            let end = offset + piece.len;
            let (cut_from, cut_to) = (from.max(offset), to.min(end));
            if offset < cut_from {
                pieces.insert(offset, piece.part(0, cut_from - offset));
            }
            if cut_to < end {
                pieces.insert(cut_to, piece.part(cut_to - offset, end - cut_to));
            }
            changes.push((piece.seq, cut_to - cut_from));
        }
        if pieces.is_empty() {
            self.files.remove(&ino);
        }
        for (seq, bytes) in changes {
            self.count(seq, -(bytes as i64));
        }
    }

    fn count(&mut self, seq: Seq, delta: i64) {
        self.bytes = self.bytes.saturating_add_signed(delta);
        let alive = self.by_seq.entry(seq).or_default();
        *alive = alive.saturating_add_signed(delta);
        if *alive == 0 {
            self.by_seq.remove(&seq);
        }
    }

    /// Bytes alive.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest record that holds data that is alive.
    pub fn oldest(&self) -> Option<Seq> {
        self.by_seq.keys().next().copied()
    }

    /// The newest record that holds data of `ino`; 0 for none.
    pub fn newest_of(&self, ino: Ino) -> Seq {
        self.files.get(&ino).and_then(|pieces| pieces.values().map(|piece| piece.seq).max()).unwrap_or(0)
    }

    /// Files that have data here.
    pub fn files(&self) -> Vec<Ino> {
        self.files.keys().copied().collect()
    }

    /// All of it, for the cache; from now on only the ranges are kept.
    pub fn take_bytes(&mut self) -> Vec<JournaledData> {
        self.keep = false;
        let mut all = Vec::new();
        for (&ino, pieces) in &mut self.files {
            for (&offset, piece) in pieces.iter_mut() {
                all.push(JournaledData { ino, offset, bytes: std::mem::take(&mut piece.bytes) });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(index: &mut DataIndex) -> Vec<(u64, Vec<u8>)> {
        let mut all: Vec<_> = index.take_bytes().into_iter().map(|data| (data.offset, data.bytes)).collect();
        all.sort();
        all
    }

    #[test]
    fn newer_data_replaces_older_in_its_range_only() {
        let mut index = DataIndex::for_replay();
        index.insert(1, 0, &[1; 12], 5);
        index.insert(1, 4, &[2; 4], 6);
        assert_eq!((index.bytes(), index.oldest(), index.newest_of(1)), (12, Some(5), 6));
        assert_eq!(bytes_of(&mut index), [(0, vec![1; 4]), (4, vec![2; 4]), (8, vec![1; 4])]);
    }

    #[test]
    fn a_flush_leaves_data_that_is_newer_than_its_capture() {
        let mut index = DataIndex::for_replay();
        index.insert(1, 0, &[1; 8], 5);
        index.insert(1, 4, &[2; 8], 7);
        index.remove(1, 0, 100, 6);
        assert_eq!(index.oldest(), Some(7));
        assert_eq!(bytes_of(&mut index), [(4, vec![2; 8])]);
        index.remove(1, 0, u64::MAX, Seq::MAX);
        assert_eq!((index.bytes(), index.oldest(), index.files().len()), (0, None, 0));
    }
}
