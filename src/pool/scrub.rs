//! Scrub of a range of a set: every slot is read from its disk, live sectors are compared with their checksums, copies
//! and parity with what they should be, and what is wrong is written anew.
//!
//! One *sector row* is looked at at a time: the sectors at one offset of all slots. With copies, each live sector is
//! compared in each copy. With parity, every live sector is brought to match first, from whatever combination of the
//! others gives it; only then parity is computed from the bytes that are there and compared. A row in which a live sector
//! is lost keeps its parity: it may still be of use when a member comes back. A row without anything alive protects
//! nothing and is not read.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use super::Pool;
use super::lanes::Lane;
use super::reader::solve::combinations;
use super::sets::Set;
use super::trouble::Kind;
use crate::codec;
use crate::layout::Redundancy;
use crate::member::superblock::{MemberId, SetId, SlabRef};
use crate::member::{AlignedBuf, Area, MemberError, SLAB_HEADER_BYTES};
use crate::sync::Arc;
use crate::units::{KIB, SECTOR, SECTOR_LEN};

/// Live rows with less between them are read together.
const GAP_ROWS: u64 = 64 * KIB / SECTOR;

/// A set that is being scrubbed. While it is held its slabs are not handed out again.
#[derive(Debug)]
pub struct ScrubHold {
    set: Arc<Set>,
    settled: u64,
}

impl ScrubHold {
    /// Bytes of each slot that are written and stay as they are, from 0.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Its geometry.
    pub fn geometry(&self) -> &crate::layout::Geometry {
        &self.set.geometry
    }
}

/// Something alive in a set: contiguous addresses.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    /// Address of the first sector.
    pub address: u64,
    /// Checksum of each sector.
    pub sums: &'a [u32],
}

/// What a scrub found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Live sectors compared, each counted once whatever copies it has.
    pub checked: u64,
    /// Sectors with live data that were wrong or unreadable, and written anew: each copy counts.
    pub healed: u64,
    /// Parity sectors of live rows that were wrong or unreadable, and written anew.
    pub parity_rewritten: u64,
    /// Sectors of live rows in which nothing is alive that could not be read, and were written anew.
    pub dead_rewritten: u64,
    /// Wrong sectors that could not be written anew: their member takes no writes.
    pub left: u64,
    /// Live sectors that nothing gives back: address and number of sectors, ascending.
    pub lost: Vec<(u64, u64)>,
}

impl Scrubbed {
    fn set_lost(&mut self, mut addresses: Vec<u64>) {
        addresses.sort_unstable();
        for address in addresses {
            match self.lost.last_mut() {
                Some((start, sectors)) if *start + *sectors * SECTOR == address => *sectors += 1,
                _ => self.lost.push((address, 1)),
            }
        }
    }
}

/// What became of one sector's reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It was read.
    Read,
    /// Its disk gave an error.
    Failed,
    /// Its member is not here.
    Absent,
}

/// What one slot gave.
struct SlotImage {
    data: AlignedBuf,
    states: Vec<State>,
    error: Option<MemberError>,
}

/// The rows of one read.
struct Span {
    /// Offset of the first row.
    offset: u64,
    images: Vec<SlotImage>,
}

/// What is written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mended {
    Live,
    Parity,
    Dead,
}

/// The scrub of some rows of a set.
struct Scrub<'a> {
    pool: &'a Pool,
    set: &'a Set,
    expected: Expected,
    done: Scrubbed,
    /// Addresses of live sectors that nothing gives back.
    lost: Vec<u64>,
    /// Slabs that were written to.
    touched: BTreeSet<SlabRef>,
    /// Parity as it should be.
    fresh: Vec<AlignedBuf>,
}

/// Checksums of all live sectors of some rows: `[row * columns + column]`.
struct Expected {
    first: u64,
    columns: usize,
    sums: Vec<Option<u32>>,
}

impl Expected {
    fn new(set: &Set, rows: &Range<u64>, live: &[Live]) -> Self {
        let columns = usize::from(set.geometry.columns);
        let count = (rows.end.saturating_sub(rows.start) / SECTOR) as usize;
        let mut sums = vec![None; count * columns];
        for one in live {
            let len = one.sums.len() as u64 * SECTOR;
            for run in set.geometry.runs(one.address, len) {
                for at in (0..run.len).step_by(SECTOR_LEN) {
                    let offset = run.offset + at;
                    if rows.contains(&offset) {
                        let row = ((offset - rows.start) / SECTOR) as usize;
                        let sum = one.sums[((run.at + at) / SECTOR) as usize];
                        sums[row * columns + run.column] = Some(sum);
                    }
                }
            }
        }
        Self { first: rows.start, columns, sums }
    }

    fn row(&self, offset: u64) -> &[Option<u32>] {
        let row = ((offset - self.first) / SECTOR) as usize;
        &self.sums[row * self.columns..(row + 1) * self.columns]
    }

    /// Runs of rows with something alive, as offsets.
    fn spans(&self) -> Vec<Range<u64>> {
        let mut spans: Vec<Range<u64>> = Vec::new();
        for (row, sums) in self.sums.chunks_exact(self.columns).enumerate() {
            if sums.iter().all(Option::is_none) {
                continue;
            }
            let offset = self.first + row as u64 * SECTOR;
            match spans.last_mut() {
                Some(span) if offset - span.end <= GAP_ROWS * SECTOR => span.end = offset + SECTOR,
                _ => spans.push(offset..offset + SECTOR),
            }
        }
        spans
    }
}

impl Pool {
    /// Takes hold of a set for a scrub. None when it was freed. An error says that stripes are being written to it: try
    /// again a little later, or seal it.
    pub fn hold_for_scrub(&self, id: SetId) -> Option<std::result::Result<ScrubHold, StillWritten>> {
        let set = self.sets.get(id)?;
        Some(match set.settled() {
            Some(settled) => Ok(ScrubHold { set, settled }),
            None => Err(StillWritten),
        })
    }

    /// Takes hold of a set that keeps copies, for a look at something in it whose writing has ended. None when it was
    /// freed, or has parity: then all of a row must be looked at, and stripes that are under way be waited for.
    pub fn hold_copies(&self, id: SetId) -> Option<ScrubHold> {
        let set = self.sets.get(id).filter(|set| matches!(set.geometry.redundancy, Redundancy::Copies(_)))?;
        let settled = set.filled();
        Some(ScrubHold { set, settled })
    }

    /// The set takes no more stripes, so that those that are under way come to an end.
    pub fn seal_set(&self, id: SetId) {
        if let Some(set) = self.sets.get(id) {
            set.seal();
        }
    }

    /// Scrubs `rows` (offsets in the slots, whole sectors, below what is settled). `live` names **everything** that is
    /// alive in them: what it does not name counts as dead, and may become part of new parity as it is. What it names
    /// outside of the rows is left alone.
    pub fn scrub(&self, hold: &ScrubHold, rows: Range<u64>, live: &[Live]) -> Scrubbed {
        let set = &hold.set;
        let rows = rows.start..rows.end.min(hold.settled);
        let parity = match set.geometry.redundancy {
            Redundancy::Copies(_) => 0,
            Redundancy::Parity(parity) => usize::from(parity),
        };
        let mut scrub = Scrub {
            pool: self,
            set,
            expected: Expected::new(set, &rows, live),
            done: Scrubbed::default(),
            lost: Vec::new(),
            touched: BTreeSet::new(),
            fresh: vec![AlignedBuf::zeroed(SECTOR_LEN); parity],
        };
        for span in scrub.expected.spans() {
            let images = self.read_span(set, &span);
            let span = Span { offset: span.start, images };
            scrub.span(&span);
            span.images.into_iter().for_each(|image| self.buffers.give(image.data));
        }
        self.sync_scrubbed(&scrub.touched);
        scrub.done.set_lost(scrub.lost);
        scrub.done
    }

    /// Reads the same range of every slot, all members in parallel.
    fn read_span(&self, set: &Set, span: &Range<u64>) -> Vec<SlotImage> {
        let len = (span.end - span.start) as usize;
        let offset = SLAB_HEADER_BYTES + span.start;
        let jobs = set
            .slots
            .iter()
            .map(|place| {
                let member = self.member(place.member);
                let (disk, area) = (member.disk(), Area::Slab(place.slab));
                // Of one that is set aside it does not matter which sectors can be read.
                let disk_again = disk.clone().filter(|_| member.is_writable());
                let mut data = self.buffers.take(len);
                let job: Box<dyn FnOnce() -> SlotImage + Send> = Box::new(move || {
                    let (state, error) = match &disk {
                        None => (State::Absent, None),
                        Some(disk) => match disk.read(area, offset, &mut data[..len]) {
                            Ok(()) => (State::Read, None),
                            // One that hangs is not asked again, and not written to.
                            Err(error) if error.is_timeout() => (State::Absent, Some(error)),
                            Err(error) => (State::Failed, Some(error)),
                        },
                    };
                    let mut states = vec![state; len / SECTOR_LEN];
                    if let (State::Failed, Some(disk)) = (state, &disk_again) {
                        // One bad sector fails the whole read: which ones are they?
                        for (row, state) in states.iter_mut().enumerate() {
                            let at = row * SECTOR_LEN;
                            let sector = &mut data[at..at + SECTOR_LEN];
                            if disk.read(area, offset + at as u64, sector).is_ok() {
                                *state = State::Read;
                            }
                        }
                    }
                    SlotImage { data, states, error }
                });
                (place.member, job)
            })
            .collect();
        let results = self.lanes.run(Lane::Read, jobs);
        let images = results.into_iter().zip(&set.slots).map(|(image, place)| {
            let image = image.unwrap_or_else(|| SlotImage {
                data: self.buffers.take(len),
                states: vec![State::Absent; len / SECTOR_LEN],
                error: None,
            });
            if let Some(error) = &image.error {
                self.read_failed(place.member, error);
            }
            image
        });
        images.collect()
    }

    /// Makes durable what was written anew.
    fn sync_scrubbed(&self, touched: &BTreeSet<SlabRef>) {
        let jobs = touched
            .iter()
            .map(|place| {
                let (disk, area, id) =
                    (self.member(place.member).disk(), Area::Slab(place.slab), place.member);
                let job: Box<dyn FnOnce() -> (MemberId, Result<(), MemberError>) + Send> =
                    Box::new(move || (id, disk.map_or(Ok(()), |disk| disk.sync(area))));
                (place.member, job)
            })
            .collect();
        for (id, result) in self.lanes.run(Lane::Write, jobs).into_iter().flatten() {
            if let Err(error) = result {
                self.member_failed(id, &error);
            }
        }
    }
}

/// Stripes are being written to the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StillWritten;

impl Scrub<'_> {
    fn span(&mut self, span: &Span) {
        let rows = span.images.first().map_or(0, |image| image.states.len());
        let here = span.images.iter().filter(|image| image.states.first() != Some(&State::Absent)).count();
        self.done.read_bytes += (rows * here) as u64 * SECTOR;
        for row in 0..rows {
            let offset = span.offset + row as u64 * SECTOR;
            let live = self.expected.row(offset).iter().flatten().count() as u64;
            if live == 0 {
                continue;
            }
            self.done.checked += live;
            match self.set.geometry.redundancy {
                Redundancy::Copies(_) => self.copies(span, row, offset),
                Redundancy::Parity(_) => self.parity(span, row, offset),
            }
        }
    }

    /// Compares every copy of every live sector of a row.
    fn copies(&mut self, span: &Span, row: usize, offset: u64) {
        for column in 0..self.expected.columns {
            let Some(sum) = self.expected.row(offset)[column] else { continue };
            let slots: Vec<usize> = self.set.geometry.copies_of(column, offset).collect();
            let right: Vec<bool> = slots.iter().map(|&slot| span.matches(slot, row, sum)).collect();
            let Some(good) = right.iter().position(|right| *right) else {
                slots.iter().for_each(|&slot| self.blame(span, slot, row));
                self.lost.push(self.set.geometry.address_of(column, offset));
                continue;
            };
            for (slot, _) in slots.iter().zip(&right).filter(|(_, right)| !**right) {
                self.mend(span, *slot, row, span.sector(slots[good], row), Mended::Live);
            }
        }
    }

    /// Brings the live sectors of a row to match, then its parity.
    fn parity(&mut self, span: &Span, row: usize, offset: u64) {
        let (k, parity) = (self.expected.columns, self.fresh.len());
        let slots: Vec<usize> =
            (0..k + parity).map(|column| self.set.geometry.slot_of(offset, column)).collect();
        let sums = self.expected.row(offset).to_vec();
        let right = |column: usize| match sums.get(column).copied().flatten() {
            Some(sum) => span.matches(slots[column], row, sum),
            None => span.state(slots[column], row) == State::Read,
        };
        let mut columns: Vec<Option<Cow<[u8]>>> = (0..k + parity)
            .map(|column| right(column).then(|| Cow::Borrowed(span.sector(slots[column], row))))
            .collect();
        if columns[..k].iter().any(Option::is_none)
            && !self.complete(span, row, offset, &slots, &sums, &mut columns)
        {
            return;
        }
        let data: Vec<&[u8]> = columns[..k].iter().flatten().map(|bytes| &**bytes).collect();
        let mut fresh = std::mem::take(&mut self.fresh);
        let mut outputs: Vec<&mut [u8]> = fresh.iter_mut().map(|buf| &mut buf[..]).collect();
        codec::encode(&data, &mut outputs);
        for (bytes, &slot) in fresh.iter().zip(&slots[k..]) {
            if span.state(slot, row) != State::Read || span.sector(slot, row) != &bytes[..] {
                self.mend(span, slot, row, bytes, Mended::Parity);
            }
        }
        self.fresh = fresh;
    }

    /// Fills in the data columns that are not as they should be, and writes them anew. False when parity can't be
    /// compared then: something alive is lost; too little is left; or bytes that are dead are on a member that is not
    /// here, and must go on fitting to their parity.
    fn complete<'s>(
        &mut self,
        span: &'s Span,
        row: usize,
        offset: u64,
        slots: &[usize],
        sums: &[Option<u32>],
        columns: &mut [Option<Cow<'s, [u8]>>],
    ) -> bool {
        let (k, parity) = (self.expected.columns, self.fresh.len());
        let gaps: Vec<usize> = (0..k).filter(|&column| columns[column].is_none()).collect();
        let live = gaps.iter().filter_map(|&column| Some((column, sums[column]?))).collect();
        rebuild_live(columns, k, parity, live);
        let all_live = gaps.iter().all(|&column| columns[column].is_some() || sums[column].is_none());
        let mut complete = true;
        for column in gaps {
            let (slot, state) = (slots[column], span.state(slots[column], row));
            if sums[column].is_none() && state == State::Failed && all_live {
                columns[column] = rebuilt(columns, k, parity, column, None).map(Cow::Owned);
            }
            let kind = if sums[column].is_some() { Mended::Live } else { Mended::Dead };
            match &columns[column] {
                Some(bytes) => self.mend(span, slot, row, bytes, kind),
                None => {
                    complete = false;
                    if kind == Mended::Live {
                        self.blame(span, slot, row);
                        self.lost.push(self.set.geometry.address_of(column, offset));
                    }
                }
            }
        }
        complete
    }

    /// Counts what is wrong with a sector against its member.
    fn blame(&self, span: &Span, slot: usize, row: usize) {
        // Failed reads are counted when they fail.
        if span.state(slot, row) == State::Read {
            let trouble = &self.pool.member(self.set.slots[slot].member).trouble;
            trouble.count(Kind::Checksum, 1, self.pool.now());
        }
    }

    /// Writes a sector anew where its member is here and takes writes, and counts it.
    fn mend(&mut self, span: &Span, slot: usize, row: usize, bytes: &[u8], kind: Mended) {
        if span.state(slot, row) == State::Absent {
            return;
        }
        self.blame(span, slot, row);
        let place = self.set.slots[slot];
        let member = self.pool.member(place.member);
        let takes = member.is_writable() && !self.pool.read_only();
        let Some(disk) = member.disk().filter(|_| takes) else {
            self.done.left += 1;
            return;
        };
        let offset = SLAB_HEADER_BYTES + span.offset + row as u64 * SECTOR;
        if let Err(error) = disk.write(Area::Slab(place.slab), offset, &AlignedBuf::copy_of(bytes)) {
            self.pool.member_failed(place.member, &error);
            self.done.left += 1;
            return;
        }
        member.trouble.count_healed(1);
        self.touched.insert(place);
        match kind {
            Mended::Live => self.done.healed += 1,
            Mended::Parity => self.done.parity_rewritten += 1,
            Mended::Dead => self.done.dead_rewritten += 1,
        }
    }
}

impl Span {
    fn sector(&self, slot: usize, row: usize) -> &[u8] {
        &self.images[slot].data[row * SECTOR_LEN..][..SECTOR_LEN]
    }

    fn state(&self, slot: usize, row: usize) -> State {
        self.images[slot].states[row]
    }

    fn matches(&self, slot: usize, row: usize, sum: u32) -> bool {
        self.state(slot, row) == State::Read && codec::checksum(self.sector(slot, row)) == sum
    }
}

/// Fills in live columns from combinations of the others until their checksums match; each that is found helps with the
/// next.
fn rebuild_live(columns: &mut [Option<Cow<[u8]>>], k: usize, parity: usize, mut todo: Vec<(usize, u32)>) {
    loop {
        let before = todo.len();
        todo.retain(|&(column, sum)| {
            columns[column] = rebuilt(columns, k, parity, column, Some(sum)).map(Cow::Owned);
            columns[column].is_none()
        });
        if todo.is_empty() || todo.len() == before {
            return;
        }
    }
}

/// A column from a combination of those that are there: one that matches `sum`, or the first where nothing is known.
fn rebuilt(
    columns: &[Option<Cow<[u8]>>],
    k: usize,
    parity: usize,
    wanted: usize,
    sum: Option<u32>,
) -> Option<Vec<u8>> {
    let all = columns.iter().enumerate();
    let present: Vec<(usize, &[u8])> =
        all.filter_map(|(column, bytes)| Some((column, bytes.as_deref()?))).collect();
    let mut out = vec![0; SECTOR_LEN];
    let found = combinations(present.len(), k).any(|chosen| {
        let chosen: Vec<_> = chosen.iter().map(|&index| present[index]).collect();
        codec::reconstruct(k, parity, &chosen, wanted, &mut out).is_ok()
            && sum.is_none_or(|sum| codec::checksum(&out) == sum)
    });
    found.then_some(out)
}
