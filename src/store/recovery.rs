//! Recovery: from the root and the journal to the tables as they were when the last acknowledged record was
//! appended.
//!
//! Reading comes first and changes nothing. Only then, at a read-write mount, a new epoch is published with
//! the root that was found, so that no later write can spoil what an older superblock refers to.

use super::checkpoint::{LastCheckpoint, Retired};
use super::data_index::DataIndex;
use super::error::{Result, StoreError};
use super::journal::Journal;
use super::node::check_pointer;
use super::node_cache::NodeCache;
use super::overlay::Overlay;
use super::room::Room;
use super::root_block::{LiveBytes, RootBlock};
use super::tables::{SET_KEY_MAX, Table};
use super::tree::Roots;
use super::tx::Op;
use super::{JournaledData, Store, StoreOptions};
use crate::member::ring::{RecordHeader, RingReader, record_bytes};
use crate::member::superblock::{Epoch, Root, Seq, SetRecord};
use crate::member::wire;
use crate::pool::{JournalEnd, Pool, PoolError};
use crate::sync::{Arc, Mutex, RwLock};
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
    pub fn recover(pool: Arc<Pool>, options: StoreOptions) -> Result<(Self, Vec<JournaledData>)> {
        let root = pool.root();
        let (roots, last_checkpoint) = load_root(&pool, root.as_ref())?;
        let mut overlay = Overlay::new(roots);
        let mut replay = replay(&pool, root.as_ref(), &mut overlay, options.force)?;
        let journaled = replay.data.take_bytes();
        let included = root.as_ref().map_or(0, |root| root.included);
        let last = replay.last.max(included);
        let tail = root.as_ref().map_or((1, 0), |root| (root.tail_seq, root.tail_position));
        let head = round_up(replay.end, SECTOR);
        let mut store = Self {
            journal: Journal::new(last, tail, head),
            overlay: RwLock::new(overlay),
            nodes: NodeCache::new(Arc::clone(&pool), options.cache_bytes),
            data: Mutex::new(replay.data),
            left: Mutex::default(),
            room: Room::new(pool.offered_bytes(), options.node_bytes),
            last_checkpoint: Mutex::new(last_checkpoint),
            last_checkpoint_at: Mutex::new(options.clock.elapsed()),
            node_bytes: options.node_bytes,
            to_empty: Mutex::default(),
            clock: options.clock,
            pool,
        };
        store.load_sets()?;
        if !store.pool.read_only() {
            let end = JournalEnd { next_seq: last + 1, tail_seq: tail.0, live: tail.1..head };
            store.pool.publish(&end, |superblock| superblock.clean = false)?;
            let trees = store.last_checkpoint.lock().live.total();
            store.pool.start_writing();
            // Only now it is known how much the members offer: until the sets were loaded, what they use was not.
            store.room = Room::new(store.pool.offered_bytes(), store.node_bytes);
            store.note_room(trees);
        }
        Ok((store, journaled))
    }

    /// Hands the set table to the pool. The records say how much is alive in each set.
    fn load_sets(&self) -> Result<()> {
        let found = self.scan(Table::Sets, &[], &SET_KEY_MAX, usize::MAX)?;
        let records: Result<Vec<SetRecord>> =
            found.iter().map(|(_, value)| unpack(value, "a set's record")).collect();
        Ok(self.pool.load_sets(&records?)?)
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

/// Reads the root block, and takes the sets into use that hold metadata.
fn load_root(pool: &Pool, root: Option<&Root>) -> Result<(Roots, LastCheckpoint)> {
    let Some(root) = root else { return Ok((Roots::default(), LastCheckpoint::default())) };
    check_pointer(&root.block).map_err(|what| StoreError::Damaged { what: format!("the root: {what}") })?;
    pool.check_readable()?;
    let block = RootBlock::decode(&pool.read_metadata(&root.block)?)?;
    pool.load_metadata_sets(&block.sets)?;
    let live = LiveBytes::of(&pool.metadata_sets());
    let last = LastCheckpoint {
        number: root.checkpoint,
        block: root.block.clone(),
        live,
        retired: Retired::default(),
    };
    Ok((block.roots()?, last))
}

fn unpack<T: serde::de::DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    wire::unpack(bytes).map_err(|error| StoreError::Damaged { what: format!("{what}: {error}") })
}

fn replay(pool: &Pool, root: Option<&Root>, overlay: &mut Overlay, force: bool) -> Result<Replay> {
    let (mut seq, mut position, included) =
        root.map_or((1, 0, 0), |root| (root.tail_seq, root.tail_position, root.included));
    let ring_bytes = pool.dimensions().ring_bytes;
    let epochs = pool.epochs();
    let rings = pool.rings();
    let disks: Vec<_> = rings.iter().filter_map(|&id| pool.members().get(usize::from(id))?.disk()).collect();
    let mut readers: Vec<RingReader> =
        disks.iter().map(|disk| RingReader::new(&**disk, ring_bytes)).collect();
    let mut replay = Replay { last: seq - 1, end: position, data: DataIndex::for_replay() };
    let mut acked = 0;
    while let Some((at, header, payload)) = next_record(&mut readers, position, seq, &epochs) {
        let ops: Vec<Op> = unpack(&payload, "a journal record")?;
        for op in ops {
            apply(op, seq, included, overlay, &mut replay.data);
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

fn apply(op: Op, seq: Seq, included: Seq, overlay: &mut Overlay, data: &mut DataIndex) {
    let is_new = seq > included;
    match op {
        Op::Put { table, key, value } if is_new => {
            overlay.apply(table, key.into_vec(), Some(value.into_vec()));
        }
        Op::Delete { table, key } if is_new => overlay.apply(table, key.into_vec(), None),
        Op::Put { .. } | Op::Delete { .. } => {}
        Op::Data { ino, offset, bytes } => data.insert(ino, offset, &bytes, seq),
        Op::DropData { ino, from, to, upto } => data.remove(ino, from, to, upto.min(seq)),
    }
}
