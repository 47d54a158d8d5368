//! The trees against a plain map: random transactions, checkpoints, crashes and reopenings, with nodes so small
//! that the trees get deep.

use std::collections::BTreeMap;

use super::super::tables::{Table, single};
use super::super::{Store, StoreOptions, TreeCounts, Tx};
use crate::layout::Resiliency;
use crate::member::sim::{PowerCut, next_random};
use crate::pool::simulated::SimPool;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Clock};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const TABLES: [Table; 3] = [Table::Inodes, Table::Xattrs, Table::Counters];
const TOP: [u8; 40] = [0xff; 40];

fn options(node_bytes: usize) -> StoreOptions {
    StoreOptions { clock: Clock::manual(), node_bytes, cache_bytes: 256 << 10, ..StoreOptions::default() }
}

fn sim(slabs: u64) -> SimPool {
    SimPool::create(1, &[slabs; 2], Resiliency::parse("mirror").expect("known")).expect("creates")
}

fn open(sim: &SimPool, options: StoreOptions) -> Store {
    let pool = sim.open(&[]).expect("assembles");
    let (store, _) = Store::recover(pool, options).expect("recovers");
    store.start().expect("starts");
    store
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A store, and what should be in it.
struct Rig {
    sim: SimPool,
    store: Option<Store>,
    node_bytes: usize,
    random: u64,
    /// Numbers of keys are below this.
    span: u64,
    models: [Model; 3],
    /// The models when everything was last durable.
    durable: [Model; 3],
    /// After each transaction since.
    since: Vec<[Model; 3]>,
}

impl Rig {
    fn new(seed: u64, node_bytes: usize, span: u64) -> Self {
        let sim = sim(96);
        let store = Some(open(&sim, options(node_bytes)));
        let (models, durable) = (Default::default(), Default::default());
        Self { sim, store, node_bytes, random: seed, span, models, durable, since: Vec::new() }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }

    fn roll(&mut self, below: u64) -> u64 {
        next_random(&mut self.random) % below
    }

    /// Keys of several lengths, some of them the beginning of others.
    fn random_key(&mut self) -> Vec<u8> {
        let mut key = self.roll(self.span).to_be_bytes()[6..].to_vec();
        if self.roll(3) == 0 {
            let len = self.roll(20) as usize;
            key.extend((0..len).map(|index| index as u8 * 7));
        }
        key
    }

    fn random_value(&mut self) -> Vec<u8> {
        let len = match self.roll(400) {
            0 => 30_000,
            1..20 => self.roll(3000),
            _ => self.roll(60),
        };
        let byte = self.roll(256) as u8;
        vec![byte; len as usize]
    }

    /// One transaction: puts, deletes, or a range of keys that goes.
    fn commit(&mut self) {
        let mut tx = Tx::new();
        for _ in 0..1 + self.roll(12) {
            let table = self.roll(3) as usize;
            let key = self.random_key();
            match self.roll(10) {
                0..6 => {
                    let value = self.random_value();
                    tx.put_raw(TABLES[table], key.clone(), value.clone());
                    self.models[table].insert(key, value);
                }
                6..9 => self.delete(&mut tx, table, key),
                _ => {
                    let many: Vec<Vec<u8>> =
                        self.models[table].range(key..).take(40).map(|(key, _)| key.clone()).collect();
                    many.into_iter().for_each(|key| self.delete(&mut tx, table, key));
                }
            }
        }
        self.store().commit(tx).expect("commits");
        self.since.push(self.models.clone());
    }

    fn delete(&mut self, tx: &mut Tx, table: usize, key: Vec<u8>) {
        tx.delete(TABLES[table], key.clone());
        self.models[table].remove(&key);
    }

    fn note_durable(&mut self) {
        self.durable = self.models.clone();
        self.since.clear();
    }

    fn checkpoint(&mut self) -> TreeCounts {
        self.store().checkpoint().expect("takes a checkpoint");
        self.note_durable();
        self.store().check_trees().expect("the trees are whole")
    }

    fn reopen(&mut self) {
        self.store.take().expect("open").close().expect("closes");
        self.store = Some(open(&self.sim, options(self.node_bytes)));
        self.note_durable();
    }

    /// The power goes; the state that is found is one after some transaction since the last that was durable.
    fn crash(&mut self, seed: u64) {
        self.store = None;
        self.sim.world.power_cut(PowerCut::ALL[seed as usize % PowerCut::ALL.len()], seed);
        self.store = Some(open(&self.sim, options(self.node_bytes)));
        let found = self.everything();
        let known = self.since.iter().rev().chain([&self.durable]).any(|state| *state == found);
        assert!(known, "a state that never was");
        self.models = found;
        self.note_durable();
        self.store().check_trees().expect("the trees are whole");
    }

    fn everything(&self) -> [Model; 3] {
        TABLES.map(|table| {
            self.store().scan(table, &[], &TOP, usize::MAX).expect("scans").into_iter().collect()
        })
    }

    /// Compares whole tables, and random questions.
    fn compare(&mut self) {
        assert_eq!(self.everything(), self.models);
        for _ in 0..60 {
            let index = self.roll(3) as usize;
            let (table, from, to) = (TABLES[index], self.random_key(), self.random_key());
            assert_eq!(
                self.store().get(table, &from).expect("reads"),
                self.models[index].get(&from).cloned()
            );
            let limit = self.roll(30) as usize;
            let found = self.store().scan(table, &from, &to, limit).expect("scans");
            let expected: Vec<_> = if from < to {
                self.models[index].range(from.clone()..to.clone()).take(limit).collect()
            } else {
                Vec::new()
            };
            assert!(found.iter().map(|(key, value)| (key, value)).eq(expected));
            let found = self.store().last_at_or_before(table, &from, &to).expect("finds");
            let expected = if from <= to { self.models[index].range(from..=to).next_back() } else { None };
            assert_eq!(found.as_ref().map(|(key, value)| (key, value)), expected);
        }
    }
}

fn play(seed: u64, node_bytes: usize, span: u64, steps: u64) {
    let mut rig = Rig::new(seed, node_bytes, span);
    for step in 0..steps {
        for _ in 0..1 + rig.roll(30) {
            rig.commit();
        }
        rig.compare();
        match rig.roll(12) {
            0 => rig.reopen(),
            1 => rig.crash(seed * 1000 + step),
            2 => {
                let last = rig.store().last_seq();
                rig.store().sync(last).expect("syncs");
                rig.note_durable();
                rig.crash(seed * 1000 + step);
            }
            3..10 => drop(rig.checkpoint()),
            _ => {}
        }
        rig.compare();
    }
    // Everything goes: no node is left.
    for (index, table) in TABLES.into_iter().enumerate() {
        let keys: Vec<_> = rig.models[index].keys().cloned().collect();
        for some in keys.chunks(100) {
            let mut tx = Tx::new();
            some.iter().for_each(|key| tx.delete(table, key.clone()));
            rig.store().commit(tx).expect("commits");
            rig.models[index].retain(|key, _| !some.contains(key));
        }
        rig.checkpoint();
    }
    assert_eq!(rig.checkpoint(), TreeCounts::default());
}

#[test]
fn deep_trees_are_what_a_map_is() {
    for (seed, node_bytes) in [(1, 300), (2, 500), (3, 1000), (4, 300)] {
        play(seed, node_bytes, 3000, 40);
    }
}

#[test]
fn trees_of_ordinary_nodes_are_what_a_map_is() {
    play(11, crate::limits::NODE_BYTES, 50_000, 40);
}

/// A store with so many keys in one table, checkpointed.
fn filled(sim: &SimPool, keys: u64) -> Store {
    let options = StoreOptions { cache_bytes: 1 << 20, ..options(crate::limits::NODE_BYTES) };
    let store = open(sim, options);
    for first in (0..keys).step_by(500) {
        let mut tx = Tx::new();
        for number in first..(first + 500).min(keys) {
            tx.put_raw(Table::Inodes, key(number * 2), vec![number as u8; 100]);
        }
        store.commit(tx).expect("commits");
        if store.checkpoint_due() {
            store.checkpoint().expect("takes a checkpoint");
        }
    }
    store.checkpoint().expect("takes a checkpoint");
    store
}

#[test]
fn a_checkpoint_writes_what_changed_and_the_way_there() {
    let store = filled(&sim(200), 100_000);
    let counts = store.check_trees().expect("whole");
    assert_eq!((counts.entries, counts.levels), (100_000, 3));
    assert!(counts.encoded_bytes > counts.nodes * 14_000, "appended nodes are nearly full: {counts:?}");
    let before = store.nodes_written();
    for number in [7, 70_001, 140_001] {
        let mut tx = Tx::new();
        tx.put_raw(Table::Inodes, key(number), vec![1; 100]);
        store.commit(tx).expect("commits");
    }
    store.checkpoint().expect("takes a checkpoint");
    let written = store.nodes_written() - before;
    // Full nodes become two, at each level.
    assert!(written <= 2 * (3 + 3) + 1, "{written} nodes for three changes");
    let before = store.nodes_written();
    let mut tx = Tx::new();
    tx.delete(Table::Inodes, key(11));
    tx.put_raw(Table::Inodes, key(7), vec![1; 100]);
    store.commit(tx).expect("commits");
    store.checkpoint().expect("takes a checkpoint");
    assert_eq!(store.nodes_written() - before, 0, "nothing is other than it was");
    store.check_trees().expect("whole");
}

#[test]
fn mounting_reads_a_few_nodes_of_many() {
    let sim = sim(200);
    let store = filled(&sim, 100_000);
    store.close().expect("closes");
    drop(store);
    let store = open(&sim, options(crate::limits::NODE_BYTES));
    assert!(store.nodes_read() <= 3, "{} nodes", store.nodes_read());
    assert_eq!(store.get(Table::Inodes, &key(100_000)).expect("reads"), Some(vec![80; 100]));
    assert!(store.nodes_read() <= 6, "{} nodes", store.nodes_read());
    assert!(store.cache_bytes() < 6 * 20_000);
}

#[test]
fn memory_for_nodes_is_bounded() {
    let sim = sim(200);
    let store = filled(&sim, 100_000);
    assert!(store.cache_bytes() <= 1 << 20);
    assert_eq!(store.scan(Table::Inodes, &[], &TOP, usize::MAX).expect("scans").len(), 100_000);
    assert!(store.cache_bytes() <= 1 << 20);
    let before = store.nodes_read();
    store.get(Table::Inodes, &key(2)).expect("reads");
    assert!(store.nodes_read() <= before + 1, "the scan threw out inner nodes");
}

/// Readers see each transaction whole, before, while and after a checkpoint takes it into the trees.
#[test]
fn readers_and_writers_go_on_during_checkpoints() {
    let sim = sim(200);
    let store = Arc::new(filled(&sim, 2_000));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|reader| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (mut random, mut last, mut rounds) = (reader, 0, 0_u64);
                while !stop.load(Ordering::Acquire) {
                    let number = next_random(&mut random) % 2_000 * 2;
                    let value = store.get(Table::Inodes, &key(number)).expect("reads").expect("is there");
                    let version = single(&value[..8]).expect("a number");
                    let pair = store
                        .last_at_or_before(Table::Inodes, &[], &key(number + 1))
                        .expect("finds")
                        .expect("is there");
                    let found = store.scan(Table::Inodes, &key(number), &key(number + 2), 9).expect("scans");
                    assert_eq!((pair.0, found.len()), (key(number), 1));
                    let newer = [&pair.1, &found[0].1].map(|value| single(&value[..8]).expect("a number"));
                    if version < 1 << 32 {
                        assert!(version <= newer[0] && newer[0] <= newer[1], "an older value came back");
                        last = last.max(version);
                    }
                    rounds += 1;
                }
                (rounds, last)
            })
        })
        .collect();
    let writer = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut random = 99;
            let mut version = 0_u64;
            while !stop.load(Ordering::Acquire) {
                version += 1;
                let mut tx = Tx::new();
                for _ in 0..20 {
                    let number = next_random(&mut random) % 2_000 * 2;
                    let mut value = version.to_be_bytes().to_vec();
                    value.extend([0; 92]);
                    tx.put_raw(Table::Inodes, key(number), value);
                    tx.put_raw(Table::Counters, key(number), vec![1; 50]);
                    tx.delete(Table::Counters, key(next_random(&mut random) % 2_000 * 2));
                }
                match store.commit(tx) {
                    Ok(_) => {}
                    Err(super::super::StoreError::JournalFull) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
            version
        })
    };
    let begun = store.last_seq();
    while store.last_seq() < begun + 300 {
        store.checkpoint().expect("takes a checkpoint");
    }
    stop.store(true, Ordering::Release);
    let versions = writer.join().expect("writes");
    let rounds: u64 = readers.into_iter().map(|reader| reader.join().expect("reads").0).sum();
    assert!(versions >= 300 && rounds > 100, "{versions} transactions, {rounds} readings");
    store.checkpoint().expect("takes a checkpoint");
    store.checkpoint().expect("takes a checkpoint");
    store.check_trees().expect("whole, and nothing is left over");
}

/// What a reader still holds is not given up, and is when he lets go.
#[test]
fn nodes_are_given_up_after_their_last_reader() {
    let store = filled(&sim(96), 5_000);
    let roots = store.overlay.read().roots();
    for round in 0..3 {
        let mut tx = Tx::new();
        (0..5_000)
            .step_by(50)
            .for_each(|number| tx.put_raw(Table::Inodes, key(number * 2), vec![round; 100]));
        store.commit(tx).expect("commits");
        store.checkpoint().expect("takes a checkpoint");
        let held = store.tree(&roots, Table::Inodes).find(&key(100)).expect("is readable").expect("is there");
        assert_eq!(held.value(), [50; 100]);
    }
    assert!(!store.last_checkpoint.lock().retired.is_empty());
    drop(roots);
    store.checkpoint().expect("takes a checkpoint");
    assert!(store.last_checkpoint.lock().retired.is_empty());
    store.check_trees().expect("nothing is left over");
}

#[test]
fn metadata_sets_are_filled_further_after_unmounts_and_crashes() {
    let sim = sim(96);
    for round in 0..24 {
        let store = open(&sim, options(crate::limits::NODE_BYTES));
        let mut tx = Tx::new();
        tx.put_raw(Table::Counters, key(round), vec![1; 10]);
        store.commit(tx).expect("commits");
        let used = store.pool().members()[0].slab_counts().1;
        assert!(used <= 2, "{used} slabs in round {round}");
        if round % 2 == 0 {
            store.close().expect("closes");
        } else {
            store.sync(store.last_seq()).expect("syncs");
        }
        drop(store);
        sim.world.power_cut(PowerCut::Lost, round);
    }
    let store = open(&sim, options(crate::limits::NODE_BYTES));
    assert_eq!(store.check_trees().expect("whole").entries, 24);
}
