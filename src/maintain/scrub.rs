//! Scrub: everything that is alive is read from its disks and compared, in every copy and with its parity; what is wrong
//! is healed, and what nothing gives back is noted as damage.
//!
//! First the nodes of the trees, then the data, set after set in the order of their numbers, and within a set in the order
//! of places. Sets that are made while it runs are left out: what is in them was written a moment ago.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::damage::{self, Stretch};
use super::job::{Count, Job, JobError, JobKind, Progress, Step};
use crate::fs::Fs;
use crate::layout::Geometry;
use crate::member::superblock::{MetaPointer, SetId};
use crate::member::wire;
use crate::pool::{Live, Scrubbed};
use crate::store::NodeCursor;
use crate::store::tables::{Extent, ExtentId};
use crate::units::{SECTOR, round_down, round_up};

/// Nodes that one step looks at.
const NODES_AT_ONCE: usize = 128;
/// So often a set to which stripes are being written is tried again; then it is sealed, and comes to an end.
const PATIENCE: u32 = 5;

/// Where a scrub stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum At {
    /// Before its first step.
    Start,
    /// Among the nodes of the trees.
    Nodes(NodeCursor),
    /// Among the data: this set and those behind it, from this offset of its slots on.
    Data { set: SetId, offset: u64 },
    /// At the end.
    End,
}

/// What is kept of a scrub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    at: At,
    /// The last set that it looks at.
    last_set: SetId,
    done_bytes: u64,
    total_bytes: u64,
    checked: u64,
    healed: u64,
    parity: u64,
    dead: u64,
    left: u64,
    lost: u64,
    lost_nodes: u64,
}

/// A scrub.
#[derive(Debug)]
pub struct Scrub {
    state: State,
    /// How often the set at hand was tried in vain.
    tries: u32,
}

impl Scrub {
    /// One that begins at the beginning.
    pub fn new() -> Self {
        let state = State {
            at: At::Start,
            last_set: 0,
            done_bytes: 0,
            total_bytes: 0,
            checked: 0,
            healed: 0,
            parity: 0,
            dead: 0,
            left: 0,
            lost: 0,
            lost_nodes: 0,
        };
        Self { state, tries: 0 }
    }

    /// One that goes on where [`Job::cursor`] was taken.
    ///
    /// # Errors
    /// [`JobError::BadCursor`].
    pub fn resume(cursor: &[u8]) -> Result<Self, JobError> {
        let bad =
            |error: wire::WireError| JobError::BadCursor { kind: JobKind::Scrub, why: error.to_string() };
        Ok(Self { state: wire::unpack(cursor).map_err(bad)?, tries: 0 })
    }

    fn begin(&mut self, fs: &Fs) {
        let data = fs.pool().data_sets();
        let alive = data.iter().map(|set| set.live.max(0) as u64).sum::<u64>();
        let nodes = fs.pool().metadata_sets().iter().map(|set| set.live).sum::<u64>();
        self.state.total_bytes = alive + nodes;
        self.state.last_set = data.last().map_or(0, |set| set.id);
        self.state.at = At::Nodes(NodeCursor::default());
    }

    fn count(&mut self, done: &Scrubbed) -> u64 {
        let lost = done.lost.iter().map(|(_, sectors)| sectors).sum::<u64>();
        self.state.checked += done.checked;
        self.state.done_bytes += done.checked * SECTOR;
        self.state.healed += done.healed;
        self.state.parity += done.parity_rewritten;
        self.state.dead += done.dead_rewritten;
        self.state.left += done.left;
        lost
    }

    /// The next nodes of the trees, each with all its copies.
    fn nodes(&mut self, fs: &Fs, cursor: NodeCursor) -> Result<Step, JobError> {
        let some = fs.store().nodes_from(cursor, NODES_AT_ONCE)?;
        let mut bytes = 0;
        for pointer in &some.pointers {
            bytes += self.node(fs, pointer);
        }
        self.state.at = some.next.map_or(At::Data { set: 0, offset: 0 }, At::Nodes);
        Ok(Step::Moved(bytes))
    }

    /// One piece of a node. One whose set is gone was given up meanwhile.
    fn node(&mut self, fs: &Fs, pointer: &MetaPointer) -> u64 {
        let Some(hold) = fs.pool().hold_copies(pointer.set) else { return 0 };
        let Some(rows) = rows_of(hold.geometry(), pointer) else { return 0 };
        let live = [Live { address: pointer.address, sums: &pointer.sums }];
        let done = fs.pool().scrub(&hold, rows, &live);
        let lost = self.count(&done);
        self.state.lost_nodes += lost;
        if lost > 0 {
            log::error!("{lost} sector(s) of metadata in set {} can't be read or rebuilt", pointer.set);
        }
        done.read_bytes
    }

    /// The next rows of the data.
    fn data(&mut self, fs: &Fs, set: SetId, offset: u64, budget: u64) -> Result<Step, JobError> {
        let sets = fs.pool().data_sets();
        let next = sets.iter().map(|usage| usage.id).find(|id| *id >= set && *id <= self.state.last_set);
        let Some(id) = next else {
            damage::forget_gone(fs)?;
            self.state.at = At::End;
            return Ok(Step::Done);
        };
        let offset = if id == set { offset } else { 0 };
        self.state.at = At::Data { set: id, offset };
        let hold = match fs.pool().hold_for_scrub(id) {
            // It was freed since a moment ago.
            None => return Ok(self.next_set(id)),
            Some(Ok(hold)) => hold,
            Some(Err(_)) => {
                self.tries += 1;
                if self.tries >= PATIENCE {
                    fs.pool().seal_set(id);
                }
                return Ok(Step::Pending(format!("data is being written to set {id}")));
            }
        };
        self.tries = 0;
        if offset >= hold.settled() {
            return Ok(self.next_set(id));
        }
        let rows = window(hold.geometry(), offset, hold.settled(), budget);
        let lying = fs.store().extents_in(id, addresses(hold.geometry(), &rows))?;
        let live: Vec<Live> =
            lying.iter().map(|(_, one)| Live { address: one.address, sums: &one.sums }).collect();
        let done = fs.pool().scrub(&hold, rows.clone(), &live);
        self.state.lost += self.count(&done);
        note_damage(fs, &addresses(hold.geometry(), &rows), &lying, &done)?;
        self.state.at = At::Data { set: id, offset: rows.end };
        Ok(Step::Moved(done.read_bytes))
    }

    fn next_set(&mut self, id: SetId) -> Step {
        self.tries = 0;
        self.state.at = At::Data { set: id + 1, offset: 0 };
        Step::Moved(0)
    }
}

impl Default for Scrub {
    fn default() -> Self {
        Self::new()
    }
}

impl Job for Scrub {
    fn kind(&self) -> JobKind {
        JobKind::Scrub
    }

    fn progress(&self) -> Progress {
        let State { done_bytes, total_bytes, .. } = self.state;
        // What was alive when it began may be more or less by now.
        let total_bytes = if self.state.at == At::End { done_bytes } else { total_bytes.max(done_bytes) };
        Progress { done_bytes, total_bytes, unsaved: Vec::new() }
    }

    fn step(&mut self, fs: &Fs, budget_bytes: u64) -> Result<Step, JobError> {
        match self.state.at.clone() {
            At::Start => {
                self.begin(fs);
                Ok(Step::Moved(0))
            }
            At::Nodes(cursor) => self.nodes(fs, cursor),
            At::Data { set, offset } => self.data(fs, set, offset, budget_bytes),
            At::End => Ok(Step::Done),
        }
    }

    fn cursor(&self) -> Vec<u8> {
        wire::pack(&self.state)
    }

    fn counts(&self) -> Vec<Count> {
        let State { checked, healed, parity, dead, left, lost, lost_nodes, .. } = self.state;
        let all = [
            ("checked", checked),
            ("healed", healed),
            ("parity-rewritten", parity),
            ("dead-rewritten", dead),
            ("not-writable", left),
            ("lost", lost),
            ("lost-metadata", lost_nodes),
        ];
        all.map(|(what, number)| Count { what: what.to_owned(), number }).to_vec()
    }
}

/// Rows of slots from `offset` on, so many that reading them takes about `budget` bytes. They start and end where all
/// columns hold one contiguous range of addresses.
fn window(geometry: &Geometry, offset: u64, settled: u64, budget: u64) -> Range<u64> {
    let wanted = budget / geometry.slots() as u64;
    let end = if geometry.columns == 1 {
        offset + round_down(wanted, SECTOR).max(SECTOR)
    } else {
        let row = geometry.row_bytes();
        round_down(offset, row) + round_down(wanted, row).max(row)
    };
    offset..end.min(settled)
}

/// The addresses that lie in these rows, in all columns: the rows start at a whole row, and addresses beyond the end of
/// the last one belong to it too.
fn addresses(geometry: &Geometry, rows: &Range<u64>) -> Range<u64> {
    let k = u64::from(geometry.columns);
    if k == 1 {
        return rows.clone();
    }
    let row = geometry.row_bytes();
    round_down(rows.start, row) * k..round_up(rows.end, row) * k
}

/// Rows of a piece of metadata; none where its addresses are not contiguous in the slots, which no writer makes.
fn rows_of(geometry: &Geometry, pointer: &MetaPointer) -> Option<Range<u64>> {
    let len = pointer.padded_bytes();
    let fits = pointer.address.checked_add(len).is_some_and(|end| end <= geometry.payload_bytes());
    (geometry.columns == 1 && fits).then(|| pointer.address..pointer.address + len)
}

/// Notes what is lost of the extents in these addresses, and that the rest of them is good.
fn note_damage(
    fs: &Fs,
    looked_at: &Range<u64>,
    lying: &[(ExtentId, Extent)],
    done: &Scrubbed,
) -> Result<(), JobError> {
    for (id, extent) in lying {
        let (address, len) = (extent.address, u64::from(extent.len));
        let within = |range: Range<u64>| {
            let (start, end) = (range.start.max(address), range.end.min(address + len));
            (start < end).then(|| Stretch { at: start - address, len: end - start })
        };
        let Some(seen) = within(looked_at.clone()) else { continue };
        let lost: Vec<Stretch> = done
            .lost
            .iter()
            .filter_map(|(start, sectors)| within(*start..start + sectors * SECTOR))
            .collect();
        damage::replace(fs, *id, seen, &lost)?;
    }
    Ok(())
}
