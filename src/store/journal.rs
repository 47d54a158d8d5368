//! The journal's writing side: records queue up, one caller at a time writes a group of them to all ring
//! holders, and everybody whose record was in it goes on.
//!
//! The barriers all stand here: [`Journal::write_group`] returns only after the records are on every ring
//! holder of an epoch that every member knows of.

use std::collections::VecDeque;

use super::error::{Result, StoreError};
use crate::limits::RECORD_MAX_BYTES;
use crate::member::AlignedBuf;
use crate::member::ring::{RecordHeader, encode_record, record_bytes};
use crate::member::superblock::Seq;
use crate::pool::{CurrentEpoch, JournalEnd, Pool};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};
use crate::units::{SECTOR, round_up};

/// Room in the ring for the padding of groups that are not written yet: a sector each, and few.
const PADDING_BYTES: u64 = 64 * 1024;
/// Most bytes of one group commit.
const GROUP_MAX_BYTES: u64 = 4 << 20;

/// The end of the log in memory.
#[derive(Debug)]
pub(super) struct Journal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    /// Number that the next committed record gets.
    pub next_seq: Seq,
    /// Records that are not in the log yet.
    pending: VecDeque<(Seq, Vec<u8>)>,
    pending_bytes: u64,
    /// Last record in the log, on all ring holders.
    written: Seq,
    /// Everything up to here is durable: in the log, or in a published root.
    durable: Seq,
    /// First record of the live log, and where it lies.
    tail: (Seq, u64),
    /// Where the next group goes.
    head: u64,
    /// First record and position of each group of the live log.
    groups: VecDeque<(Seq, u64)>,
    /// Somebody writes a group, or publishes a root.
    busy: bool,
    /// Records are kept for the log; before the mount has started they are not.
    started: bool,
    poisoned: Option<String>,
}

/// The right to write to the log, or to publish a root.
pub(super) struct Turn<'a> {
    journal: &'a Journal,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.journal.state.lock().busy = false;
        self.journal.changed.notify_all();
    }
}

impl Journal {
    /// A journal whose last record is `last`; the log goes on at `head`. Its live part begins at `tail`.
    pub fn new(last: Seq, tail: (Seq, u64), head: u64) -> Self {
        Self {
            state: Mutex::new(State {
                next_seq: last + 1,
                pending: VecDeque::new(),
                pending_bytes: 0,
                written: last,
                durable: last,
                tail,
                head,
                groups: VecDeque::from([tail]),
                busy: false,
                started: false,
                poisoned: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// The state, for a commit: whoever holds it decides the order of records.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The store takes no more changes.
    pub fn poison(&self, why: &str) {
        let mut state = self.state.lock();
        if state.poisoned.is_none() {
            log::error!("no more changes are taken: {why}");
            state.poisoned = Some(why.to_owned());
        }
        self.changed.notify_all();
    }

    /// Returns when everything up to `seq` is durable.
    pub fn sync(&self, pool: &Pool, seq: Seq) -> Result<()> {
        loop {
            let mut state = self.state.lock();
            if state.durable >= seq {
                return Ok(());
            }
            state.check()?;
            if state.busy {
                self.changed.wait(&mut state);
                continue;
            }
            // What is committed fits: `check_commit` saw to it.
            let group = state.take_group(pool.dimensions().ring_bytes).ok_or(StoreError::JournalFull)?;
            state.busy = true;
            drop(state);
            let turn = Turn { journal: self };
            let result = self.write_group(pool, &group);
            drop(turn);
            if let Err(error) = result {
                self.poison(&error.to_string());
                return Err(error);
            }
        }
    }

    /// Writes a group until it is on all ring holders of one epoch.
    fn write_group(&self, pool: &Pool, group: &Group) -> Result<()> {
        loop {
            let (end, acked) = {
                let state = self.state.lock();
                (state.end(), state.written)
            };
            let epoch = pool.current_epoch(&end)?;
            let bytes = Arc::new(group.encode(&epoch, acked));
            if pool.append(&epoch, group.position, &bytes) {
                let mut state = self.state.lock();
                state.written = group.last();
                state.durable = state.durable.max(state.written);
                return Ok(());
            }
        }
    }

    /// Waits for the right to publish a root: nobody writes to the log meanwhile.
    pub fn turn(&self) -> Result<Turn<'_>> {
        let mut state = self.state.lock();
        while state.busy {
            self.changed.wait(&mut state);
        }
        state.check()?;
        state.busy = true;
        Ok(Turn { journal: self })
    }

    /// Notes that a root is published, and the log begins at `tail`. Records that the root includes and the log
    /// does not have are not durable by that: journaled data is in the log only.
    pub fn root_published(&self, tail: (Seq, u64)) {
        let mut state = self.state.lock();
        state.tail = tail;
        while state.groups.front().is_some_and(|group| group.1 < tail.1) {
            state.groups.pop_front();
        }
        self.changed.notify_all();
    }
}

impl State {
    /// An error once the store takes no more changes.
    pub fn check(&self) -> Result<()> {
        match &self.poisoned {
            Some(why) => Err(StoreError::Poisoned { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Refuses a commit that can't be taken. `has_data`: it carries file data, which leaves the last quarter of
    /// the ring to the records that release it.
    pub fn check_commit(&self, payload: usize, ring_bytes: u64, has_data: bool) -> Result<()> {
        self.check()?;
        let record = record_bytes(payload);
        if record > RECORD_MAX_BYTES {
            return Err(StoreError::TooLarge { bytes: payload as u64 });
        }
        let limit = if has_data { ring_bytes / 4 * 3 } else { ring_bytes - PADDING_BYTES };
        if self.started && self.used_bytes() + record > limit {
            return Err(StoreError::JournalFull);
        }
        Ok(())
    }

    /// Queues the record of a commit and gives its number.
    pub fn push(&mut self, payload: Vec<u8>) -> Seq {
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.started {
            self.pending_bytes += record_bytes(payload.len());
            self.pending.push_back((seq, payload));
        }
        seq
    }

    /// From now on records go to the log. What was committed before is in the root just published.
    pub fn start(&mut self) {
        self.started = true;
        self.written = self.next_seq - 1;
        self.durable = self.written;
        self.tail = (self.next_seq, self.head);
        self.groups.clear();
    }

    /// Whether records go to the log already.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Bytes of records that wait to be appended: they are in memory.
    pub fn waiting_bytes(&self) -> u64 {
        self.pending_bytes
    }

    /// Bytes of the live log, with what waits to be appended.
    pub fn used_bytes(&self) -> u64 {
        self.head - self.tail.1 + round_up(self.pending_bytes, SECTOR)
    }

    /// Where the log stands.
    pub fn end(&self) -> JournalEnd {
        JournalEnd {
            next_seq: self.written + 1,
            tail_seq: self.tail.0,
            live: self.tail.1..self.head_written(),
        }
    }

    /// End of what is written: the position of the group being written, or the head.
    fn head_written(&self) -> u64 {
        match self.groups.back() {
            Some(&(first, position)) if first > self.written => position.max(self.tail.1),
            _ => self.head,
        }
    }

    /// The place of a group at or before record `seq`: where replay must begin to meet it. Call with the turn
    /// held, so that no group is half written.
    pub fn position_of(&self, seq: Seq) -> (Seq, u64) {
        if seq > self.written {
            return (self.written + 1, self.head);
        }
        self.groups.iter().rev().find(|group| group.0 <= seq).copied().unwrap_or(self.tail)
    }

    /// Takes the next group out of the queue; none when the ring has no room for it.
    fn take_group(&mut self, ring_bytes: u64) -> Option<Group> {
        let room = ring_bytes.saturating_sub(self.head - self.tail.1);
        let mut group = Group { position: self.head, records: Vec::new() };
        let mut bytes = 0;
        while let Some((_, payload)) = self.pending.front() {
            let more = record_bytes(payload.len());
            let fits = round_up(bytes + more, SECTOR) <= room.min(GROUP_MAX_BYTES);
            if !fits {
                break;
            }
            bytes += more;
            group.records.extend(self.pending.pop_front());
        }
        self.pending_bytes -= bytes;
        if group.records.is_empty() {
            return None;
        }
        self.groups.push_back((group.records[0].0, group.position));
        self.head += round_up(bytes, SECTOR);
        Some(group)
    }
}

/// Records that are written together.
#[derive(Debug)]
struct Group {
    position: u64,
    records: Vec<(Seq, Vec<u8>)>,
}

impl Group {
    fn last(&self) -> Seq {
        self.records.last().map_or(0, |(seq, _)| *seq)
    }

    fn encode(&self, epoch: &CurrentEpoch, acked: Seq) -> AlignedBuf {
        let mut bytes = Vec::new();
        for (seq, payload) in &self.records {
            let header = RecordHeader { seq: *seq, epoch: epoch.counter, epoch_id: epoch.id, acked };
            encode_record(&mut bytes, &header, payload);
        }
        AlignedBuf::copy_of(&bytes)
    }
}
