//! Recovery: from the root and the journal to the tables as they were when the last acknowledged record was
//! appended.
//!
//! Reading comes first and changes nothing. Only then, at a read-write mount, a new epoch is published with
//! the root that was found, so that no later write can spoil what an older superblock refers to.

use std::collections::BTreeMap;

use super::checkpoint::{Blob, RootBlock, Written};
use super::data_index::DataIndex;
use super::error::{Result, StoreError};
use super::journal::Journal;
use super::overlay::{Base, Overlay};
use super::tables::{self, Extent, Table};
use super::tx::Op;
use super::{JournaledData, Store};
use crate::member::ring::{RecordHeader, RingReader, record_bytes};
use crate::member::superblock::{Epoch, Root, Seq, SetRecord};
use crate::member::wire;
use crate::pool::{JournalEnd, Pool, PoolError};
use crate::sync::{Arc, Clock, Mutex, RwLock};
use crate::units::{MIB, SECTOR, round_up};

/// How far beyond the end of the log a record is looked for that would show that some are lost.
const LOOK_AHEAD_BYTES: u64 = 5 * MIB;

/// What replay found.
#[derive(Debug)]
struct Replay {
    /// The last record.
    last: Seq,
    /// Where the log ends.
    end: u64,
    /// Journaled data that is alive.
    data: DataIndex,
}

impl Store {
    /// Reads the root and replays the journal. Hands the set table to the pool, and at a read-write mount
    /// begins a new epoch. Commits stay in memory until [`Store::start`].
    ///
    /// # Errors
    /// [`PoolError::TooFewLeft`], [`PoolError::LostRecords`], [`StoreError::Damaged`], and those of reading.
    pub fn recover(pool: Arc<Pool>, clock: Clock, force: bool) -> Result<(Self, Vec<JournaledData>)> {
        let root = pool.root();
        let (mut base, written) = load_root(&pool, root.as_ref())?;
        let mut replay = replay(&pool, root.as_ref(), &mut base, force)?;
        load_sets(&pool, &base)?;
        let journaled = replay.data.take_bytes();
        let included = root.as_ref().map_or(0, |root| root.included);
        let last = replay.last.max(included);
        let tail = root.as_ref().map_or((1, 0), |root| (root.tail_seq, root.tail_position));
        let head = round_up(replay.end, SECTOR);
        if !pool.read_only() {
            let end = JournalEnd { next_seq: last + 1, tail_seq: tail.0, live: tail.1..head };
            pool.publish(&end, |superblock| superblock.clean = false)?;
            pool.expect_metadata(3 * written.bytes + 4 * MIB);
            pool.start_writing();
        }
        let store = Self {
            journal: Journal::new(last, tail, head),
            pool,
            overlay: RwLock::new(Overlay::new(base)),
            data: Mutex::new(replay.data),
            last_checkpoint: Mutex::new(written),
            last_checkpoint_at: Mutex::new(clock.elapsed()),
            clock,
        };
        Ok((store, journaled))
    }

    /// Begins to write the log: a first checkpoint holds everything that recovery found and that was committed
    /// since. All journaled data must be flushed before.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when journaled data was not flushed; those of [`Store::checkpoint`].
    pub fn start(&self) -> Result<()> {
        if self.pool.read_only() {
            return Ok(());
        }
        let left = self.data.lock().bytes();
        if left > 0 {
            return Err(StoreError::Damaged {
                what: format!("{left} bytes of journaled data could not be flushed"),
            });
        }
        self.checkpoint()?;
        self.journal.lock().start();
        self.pool.delete_stray_slabs();
        Ok(())
    }
}

fn load_root(pool: &Pool, root: Option<&Root>) -> Result<(Base, Written)> {
    let mut base = Base::default();
    let Some(root) = root else { return Ok((base, Written::default())) };
    pool.adopt_metadata(&root.block);
    let block: RootBlock = decode(&pool.read_metadata(&root.block)?, "the root block")?;
    let mut bytes = 0;
    for pointers in &block.blobs {
        pool.adopt_metadata(pointers);
        let encoded = pool.read_metadata(pointers)?;
        bytes += encoded.len() as u64;
        let blob: Blob = decode(&encoded, "a table")?;
        let table = &mut base[blob.table as usize];
        for (key, value) in blob.entries {
            table.insert(key.into_vec().into_boxed_slice(), value.into_vec().into_boxed_slice());
        }
    }
    Ok((base, Written { number: root.checkpoint, block: root.block.clone(), root: block, bytes }))
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    wire::decode(bytes).map_err(|error| StoreError::Damaged { what: format!("{what}: {error}") })
}

fn replay(pool: &Pool, root: Option<&Root>, base: &mut Base, force: bool) -> Result<Replay> {
    let (mut seq, mut position, included) =
        root.map_or((1, 0, 0), |root| (root.tail_seq, root.tail_position, root.included));
    let ring_bytes = pool.dimensions().ring_bytes;
    let epochs = pool.epochs();
    let rings = pool.rings();
    let mut readers: Vec<RingReader> = rings
        .iter()
        .filter_map(|&id| pool.members()[usize::from(id)].disk.as_deref())
        .map(|disk| RingReader::new(disk, ring_bytes))
        .collect();
    let mut replay = Replay { last: seq - 1, end: position, data: DataIndex::for_replay() };
    let mut acked = 0;
    while let Some((at, header, payload)) = next_record(&mut readers, position, seq, &epochs) {
        let ops: Vec<Op> = decode(&payload, "a journal record")?;
        for op in ops {
            apply(op, seq, included, base, &mut replay.data);
        }
        acked = acked.max(header.acked);
        position = at + record_bytes(payload.len());
        replay.last = seq;
        replay.end = position;
        seq += 1;
    }
    let known = acked.max(look_ahead(&mut readers, position, seq, &epochs));
    if known > replay.last.max(included) {
        let lost = PoolError::LostRecords { first: replay.last + 1, last: known };
        if !force && !pool.read_only() {
            return Err(lost.into());
        }
        log::error!("{lost}");
    }
    Ok(replay)
}

/// The record `seq` from any good copy.
fn next_record(
    readers: &mut [RingReader],
    position: u64,
    seq: Seq,
    epochs: &[Epoch],
) -> Option<(u64, RecordHeader, Vec<u8>)> {
    readers.iter_mut().find_map(|reader| {
        reader.record_at(position).filter(|(_, header, _)| header.seq == seq && counts(header, epochs))
    })
}

/// A record of an epoch in the history that no later epoch made void.
fn counts(header: &RecordHeader, epochs: &[Epoch]) -> bool {
    let own = epochs.iter().any(|epoch| epoch.counter == header.epoch && epoch.id == header.epoch_id);
    own && epochs
        .iter()
        .filter(|epoch| epoch.counter > header.epoch)
        .all(|epoch| header.seq < epoch.first_seq)
}

/// Looks behind the end of the log for a record that says that more was acknowledged. Gives that number; 0
/// when there is none.
fn look_ahead(readers: &mut [RingReader], end: u64, next: Seq, epochs: &[Epoch]) -> Seq {
    let mut highest = 0;
    for reader in readers {
        let mut position = round_up(end, SECTOR);
        while position < end + LOOK_AHEAD_BYTES {
            if let Some((at, header, payload)) = reader.record_at(position)
                && header.seq > next
                && counts(&header, epochs)
            {
                highest = highest.max(header.acked);
                position = at + record_bytes(payload.len());
            } else {
                position = round_up(position + 1, SECTOR);
            }
        }
    }
    highest
}

fn apply(op: Op, seq: Seq, included: Seq, base: &mut Base, data: &mut DataIndex) {
    let is_new = seq > included;
    match op {
        Op::Put { table, key, value } if is_new => {
            base[table as usize]
                .insert(key.into_vec().into_boxed_slice(), value.into_vec().into_boxed_slice());
        }
        Op::Delete { table, key } if is_new => {
            base[table as usize].remove(key.as_slice());
        }
        Op::Put { .. } | Op::Delete { .. } => {}
        Op::Data { ino, offset, bytes } => data.insert(ino, offset, &bytes, seq),
        Op::DropData { ino, from, to, upto } => data.remove(ino, from, to, upto.min(seq)),
    }
}

/// Hands the set table to the pool, with what is alive in each set.
fn load_sets(pool: &Pool, base: &Base) -> Result<()> {
    let mut records: Vec<SetRecord> = Vec::new();
    for value in base[Table::Sets as usize].values() {
        records.push(decode(value, "a set's record")?);
    }
    pool.load_sets(&records)?;
    let mut refs: BTreeMap<u64, u64> = BTreeMap::new();
    for (key, value) in &base[Table::Refs as usize] {
        let (extent, ..) = tables::split_ref(key)
            .ok_or_else(|| StoreError::Damaged { what: "the key of a reference".to_owned() })?;
        let bytes: u32 = decode(value, "a reference")?;
        *refs.entry(extent).or_default() += u64::from(bytes);
    }
    for (key, value) in &base[Table::Extents as usize] {
        let extent: Extent = decode(value, "an extent's record")?;
        let set = extent.set;
        if !pool.has_set(set) {
            return Err(StoreError::Damaged {
                what: format!("an extent lies in set {set}, which does not exist"),
            });
        }
        let referenced = tables::single(key).and_then(|id| refs.get(&id)).copied().unwrap_or(0);
        pool.count_live(set, referenced.min(u64::from(extent.len)) as i64);
    }
    Ok(())
}
