//! File map arithmetic: pure, no I/O.
//!
//! A file's map is a list of segments that do not overlap. A [`MapEdit`] learns the segments that lie
//! where it is going to work, cuts and inserts in memory, and then says which records of the map change
//! and how many bytes of which extents the file refers to more or less than before.

use std::collections::BTreeMap;

use crate::store::tables::{ExtentId, MapEntry};

/// A range of a file and what holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First byte in the file, a multiple of the sector.
    pub start: u64,
    /// Bytes, a multiple of the sector, never 0.
    pub len: u64,
    /// The extent and the offset in it; none for reserved space that nothing was written to.
    pub extent: Option<(ExtentId, u32)>,
}

impl Segment {
    /// The record at the key of [`Segment::start`].
    pub fn entry(&self) -> MapEntry {
        MapEntry { len: self.len, extent: self.extent }
    }

    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// The extent, and the offset in the file at which its first byte would lie (wrapping). All parts of a
    /// segment have the same.
    pub fn origin(&self) -> Option<(ExtentId, u64)> {
        self.extent.map(|(id, at)| (id, self.start.wrapping_sub(u64::from(at))))
    }

    /// The part of it in `[from, to)`; none when there is none.
    pub fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (start, end) = (self.start.max(from), self.end().min(to));
        if start >= end {
            return None;
        }
        // An extent is at most 1 MiB long, so the offset in it fits.
        let extent = self.extent.map(|(id, at)| (id, at.saturating_add((start - self.start) as u32)));
        Some(Self { start, len: end - start, extent })
    }
}

/// Changes of one file's map.
#[derive(Debug, Default)]
pub struct MapEdit {
    original: BTreeMap<u64, Segment>,
    view: BTreeMap<u64, Segment>,
    refs: BTreeMap<(ExtentId, u64), i64>,
    removed: u64,
    added: u64,
    reserved_removed: u64,
    #[cfg(test)]
    reserved_added: u64,
}

impl MapEdit {
    /// Nothing known, nothing changed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in segments as they are stored. All that overlap a range must be known before the range is
    /// cut, inserted or filled. What is known already is not taken again.
    pub fn learn(&mut self, segments: impl IntoIterator<Item = Segment>) {
        for segment in segments {
            if self.original.insert(segment.start, segment).is_none() {
                self.view.insert(segment.start, segment);
            }
        }
    }

    /// Makes a hole of `[from, to)`.
    pub fn cut(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let before = self.view.range(..from).next_back().map(|(_, segment)| *segment);
        let touched: Vec<Segment> = before
            .filter(|segment| segment.end() > from)
            .into_iter()
            .chain(self.view.range(from..to).map(|(_, segment)| *segment))
            .collect();
        for segment in touched {
            self.view.remove(&segment.start);
            for kept in [segment.part(0, from), segment.part(to, u64::MAX)].into_iter().flatten() {
                self.view.insert(kept.start, kept);
            }
            let gone = segment.part(from, to).map_or(0, |part| part.len);
            self.removed += gone;
            match segment.origin() {
                Some(origin) => *self.refs.entry(origin).or_default() -= gone as i64,
                None => self.reserved_removed += gone,
            }
        }
    }

    /// Puts `segment` over whatever is there.
    pub fn insert(&mut self, segment: Segment) {
        self.cut(segment.start, segment.end());
        self.view.insert(segment.start, segment);
        self.added += segment.len;
        if let Some(origin) = segment.origin() {
            *self.refs.entry(origin).or_default() += segment.len as i64;
        }
    }

    /// Puts reserved space into all holes of `[from, to)`. Returns its bytes.
    pub fn fill_holes(&mut self, from: u64, to: u64) -> u64 {
        let mut filled = 0;
        for (start, end) in self.holes(from, to) {
            self.view.insert(start, Segment { start, len: end - start, extent: None });
            filled += end - start;
        }
        self.added += filled;
        #[cfg(test)]
        {
            self.reserved_added += filled;
        }
        filled
    }

    /// The holes in `[from, to)`, in order.
    pub fn holes(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let before = self.view.range(..from).next_back().map(|(_, segment)| segment.end());
        let mut at = before.unwrap_or(0).max(from);
        for segment in self.view.range(from..to).map(|(_, segment)| segment) {
            if segment.start > at {
                holes.push((at, segment.start));
            }
            at = at.max(segment.end());
        }
        if at < to {
            holes.push((at, to));
        }
        holes
    }

    /// Keys (offsets) of records to delete.
    pub fn deletes(&self) -> impl Iterator<Item = u64> + '_ {
        self.original.keys().copied().filter(|start| !self.view.contains_key(start))
    }

    /// Records to write.
    pub fn puts(&self) -> impl Iterator<Item = Segment> + '_ {
        self.view.values().copied().filter(|segment| self.original.get(&segment.start) != Some(segment))
    }

    /// For each extent and origin ([`Segment::origin`]) how many bytes more (or fewer) the file refers to.
    pub fn refs(&self) -> impl Iterator<Item = (ExtentId, u64, i64)> + '_ {
        let changed = self.refs.iter().filter(|(_, delta)| **delta != 0);
        changed.map(|((extent, origin), delta)| (*extent, *origin, *delta))
    }

    /// How many references change, about.
    pub fn ref_count(&self) -> usize {
        self.refs.len()
    }

    /// Bytes that the file had and has no more: written and reserved.
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Bytes that were put in: written and reserved.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Bytes of reserved space among [`MapEdit::removed`].
    pub fn reserved_removed(&self) -> u64 {
        self.reserved_removed
    }

    /// Bytes of reserved space among [`MapEdit::added`].
    #[cfg(test)]
    pub fn reserved_added(&self) -> u64 {
        self.reserved_added
    }

    /// Whether no record changes.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.puts().next().is_none() && self.deletes().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const S: u64 = 4096;
    const SECTORS: u64 = 64;

    /// Small, fast and repeatable; the tests print the seed.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % sides
        }
    }

    /// What a sector of the model holds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Cell {
        Hole,
        Reserved,
        At(ExtentId, u64),
    }

    fn render(stored: &BTreeMap<u64, Segment>) -> Vec<Cell> {
        let mut cells = vec![Cell::Hole; SECTORS as usize];
        for segment in stored.values() {
            for sector in 0..segment.len / S {
                let cell = &mut cells[(segment.start / S + sector) as usize];
                assert_eq!(*cell, Cell::Hole, "segments overlap");
                *cell = match segment.extent {
                    None => Cell::Reserved,
                    Some((id, at)) => Cell::At(id, u64::from(at) / S + sector),
                };
            }
        }
        cells
    }

    fn overlapping(stored: &BTreeMap<u64, Segment>, from: u64, to: u64) -> Vec<Segment> {
        stored.values().copied().filter(|s| s.start < to && s.end() > from).collect()
    }

    fn referenced(cells: &[Cell]) -> BTreeMap<(ExtentId, u64), i64> {
        let mut counts = BTreeMap::new();
        for (index, cell) in cells.iter().enumerate() {
            if let Cell::At(id, at) = cell {
                let origin = (index as u64 * S).wrapping_sub(at * S);
                *counts.entry((*id, origin)).or_default() += S as i64;
            }
        }
        counts
    }

    #[test]
    fn edits_agree_with_a_model_of_sectors() {
        for seed in 1..400 {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
            let mut stored: BTreeMap<u64, Segment> = BTreeMap::new();
            let mut cells = vec![Cell::Hole; SECTORS as usize];
            let mut refs: BTreeMap<(ExtentId, u64), i64> = BTreeMap::new();
            let mut next_extent = 1;
            for _ in 0..20 {
                let mut edit = MapEdit::new();
                let before = cells.clone();
                for _ in 0..1 + dice.roll(4) {
                    let from = dice.roll(SECTORS);
                    let to = from + 1 + dice.roll(SECTORS - from);
                    edit.learn(overlapping(&stored, from * S, to * S));
                    match dice.roll(3) {
                        0 => {
                            edit.cut(from * S, to * S);
                            cells[from as usize..to as usize].fill(Cell::Hole);
                        }
                        1 => {
                            // Also of extents that the file refers to already, as a copy within it does.
                            let (id, at) = (1 + dice.roll(next_extent), dice.roll(3));
                            let extent = Some((id, (at * S) as u32));
                            edit.insert(Segment { start: from * S, len: (to - from) * S, extent });
                            for sector in from..to {
                                cells[sector as usize] = Cell::At(id, at + sector - from);
                            }
                            next_extent = next_extent.max(id + 1);
                        }
                        _ => {
                            edit.fill_holes(from * S, to * S);
                            for cell in &mut cells[from as usize..to as usize] {
                                if *cell == Cell::Hole {
                                    *cell = Cell::Reserved;
                                }
                            }
                        }
                    }
                }
                for key in edit.deletes().collect::<Vec<_>>() {
                    assert!(stored.remove(&key).is_some());
                }
                for segment in edit.puts().collect::<Vec<_>>() {
                    stored.insert(segment.start, segment);
                }
                for (extent, origin, delta) in edit.refs() {
                    *refs.entry((extent, origin)).or_default() += delta;
                }
                refs.retain(|_, bytes| *bytes != 0);
                assert_eq!(render(&stored), cells, "seed {seed}");
                assert_eq!(refs, referenced(&cells), "seed {seed}");
                let held = |cells: &[Cell]| cells.iter().filter(|c| **c != Cell::Hole).count() as u64 * S;
                assert_eq!(held(&before) + edit.added() - edit.removed(), held(&cells), "seed {seed}");
                let reserved =
                    |cells: &[Cell]| cells.iter().filter(|c| **c == Cell::Reserved).count() as u64 * S;
                assert_eq!(
                    reserved(&before) + edit.reserved_added() - edit.reserved_removed(),
                    reserved(&cells),
                    "seed {seed}"
                );
            }
        }
    }

    #[test]
    fn nothing_changed_means_no_records() {
        let segment = Segment { start: 0, len: 2 * S, extent: Some((1, 0)) };
        let mut edit = MapEdit::new();
        edit.learn([segment]);
        edit.cut(4 * S, 8 * S);
        assert!(edit.is_empty());
    }

    #[test]
    fn a_cut_inside_a_segment_leaves_both_ends() {
        let mut edit = MapEdit::new();
        edit.learn([Segment { start: 0, len: 4 * S, extent: Some((7, S as u32)) }]);
        edit.cut(S, 2 * S);
        let puts: Vec<_> = edit.puts().collect();
        assert_eq!(
            puts,
            [
                Segment { start: 0, len: S, extent: Some((7, S as u32)) },
                Segment { start: 2 * S, len: 2 * S, extent: Some((7, 3 * S as u32)) }
            ]
        );
        assert_eq!(edit.deletes().count(), 0);
        assert_eq!(edit.refs().collect::<Vec<_>>(), [(7, 0_u64.wrapping_sub(S), -(S as i64))]);
    }
}
