//! What the size of a node costs and saves: `cargo run --release --example tree_speed`. A table of 200,000 entries
//! like those of small files, over two simulated disks in memory: what remains is the store's own work.

use std::time::{Duration, Instant};

use poolfs::layout::Resiliency;
use poolfs::member::sim::next_random;
use poolfs::pool::simulated::SimPool;
use poolfs::store::tables::Table;
use poolfs::store::{Store, StoreOptions, Tx};
use poolfs::units::{KIB, MIB};

const ENTRIES: u64 = 200_000;
const VALUE_LEN: usize = 120;
const LOOKUPS: u64 = 200_000;
const UPDATES: u64 = 1_000;
const ROUNDS: u32 = 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn open(sim: &SimPool, node_bytes: u64, cache_bytes: u64) -> Outcome<Store> {
    let node_bytes = usize::try_from(node_bytes)?;
    let options = StoreOptions { node_bytes, cache_bytes, ..StoreOptions::default() };
    let (store, _) = Store::recover(sim.open(&[])?, options)?;
    store.start()?;
    Ok(store)
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn put(store: &Store, numbers: impl Iterator<Item = u64>, byte: u8) -> Outcome<()> {
    let numbers: Vec<u64> = numbers.collect();
    for some in numbers.chunks(100) {
        let mut tx = Tx::new();
        some.iter().for_each(|&number| tx.put_raw(Table::Inodes, key(number), vec![byte; VALUE_LEN]));
        store.commit(tx)?;
        if store.checkpoint_due() {
            store.checkpoint()?;
        }
    }
    Ok(())
}

/// Time of one lookup of a random key.
fn look_up(store: &Store) -> Outcome<Duration> {
    let mut random = 1;
    let start = Instant::now();
    for _ in 0..LOOKUPS {
        let found = store.get(Table::Inodes, &key(next_random(&mut random) % ENTRIES))?;
        assert!(found.is_some(), "an entry is missing");
    }
    Ok(start.elapsed() / LOOKUPS as u32)
}

fn written(sim: &SimPool) -> u64 {
    sim.disks[0].counters().written_bytes
}

/// A line for one size.
fn measure(node_bytes: u64) -> Outcome<()> {
    let sim = SimPool::create(1, &[800; 2], Resiliency::parse("mirror")?)?;
    let store = open(&sim, node_bytes, 64 * MIB)?;
    let start = Instant::now();
    put(&store, 0..ENTRIES, 1)?;
    store.checkpoint()?;
    let filling = start.elapsed() / ENTRIES as u32;
    let counts = store.check_trees()?;
    let cached = look_up(&store)?;
    let (mut random, mut checkpoints, mut bytes) = (7, Duration::ZERO, 0);
    for round in 0..ROUNDS {
        put(&store, (0..UPDATES).map(|_| next_random(&mut random) % ENTRIES), round as u8 + 2)?;
        store.sync(store.last_seq())?;
        let (before, start) = (written(&sim), Instant::now());
        store.checkpoint()?;
        checkpoints += start.elapsed();
        bytes += written(&sim) - before;
    }
    store.close()?;
    drop(store);
    let store = open(&sim, node_bytes, MIB)?;
    let cold = look_up(&store)?;
    println!(
        "{:3} KiB  {:6} {:2}  {:9.2?} {:9.2?} {:9.2?}  {:9.2?} {:6.1} KiB",
        node_bytes / KIB,
        counts.nodes,
        counts.levels,
        filling,
        cached,
        cold,
        checkpoints / ROUNDS,
        bytes as f64 / KIB as f64 / f64::from(ROUNDS) / UPDATES as f64,
    );
    Ok(())
}

fn main() -> Outcome<()> {
    println!(
        "                         time of one entry              a checkpoint of {UPDATES} random changes"
    );
    println!("node     nodes levels  created    found, found among   time      written");
    println!("                                 cached  1 MiB cached             for each change");
    for kib in [4, 8, 16, 32, 64] {
        measure(kib * KIB)?;
    }
    Ok(())
}
