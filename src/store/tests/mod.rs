//! The store over simulated disks: every crash point of a scripted workload, with members lost as well.

mod additions;
mod failures;
mod members;
mod trees;

use std::collections::BTreeMap;

use super::tables::{Extent, Owner, Table, extent_key, ref_key, single};
use super::{Store, StoreOptions, Tx};
use crate::layout::Resiliency;
use crate::member::sim::PowerCut;
use crate::pool::simulated::SimPool;
use crate::pool::{Chunk, Pool};
use crate::sync::{Arc, Clock};
use crate::units::SECTOR_LEN;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the workload did: the state of the keys after each commit, and how many commits were acknowledged.
#[derive(Default)]
struct History {
    states: Vec<Model>,
    acknowledged: usize,
}

fn options() -> StoreOptions {
    // Trees get some levels.
    StoreOptions { clock: Clock::manual(), node_bytes: 700, ..StoreOptions::default() }
}

fn open(sim: &SimPool, lost: &[usize]) -> super::Result<Store> {
    open_with(sim, lost, options())
}

fn open_with(sim: &SimPool, lost: &[usize], options: StoreOptions) -> super::Result<Store> {
    let pool = sim.open(lost)?;
    let (store, journaled) = Store::recover(pool, options)?;
    assert!(journaled.is_empty(), "this workload journals no data");
    store.start()?;
    Ok(store)
}

fn block(seed: u64, sectors: usize) -> Vec<u8> {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..sectors * SECTOR_LEN).map(|_| (crate::member::sim::next_random(&mut random) >> 32) as u8).collect()
}

/// Writes an extent of `sectors` sectors whose content follows from `id`, and commits it.
fn put_extent(store: &Store, id: u64, sectors: usize) -> super::Result<()> {
    let pool: &Arc<Pool> = store.pool();
    let data = block(id, sectors);
    let written = pool.write(&pool.default_resiliency(), &[Chunk(vec![&data])])?;
    let mut tx = Tx::new();
    for (index, piece) in written.pieces.iter().enumerate() {
        let extent = Extent {
            set: piece.set,
            address: piece.address,
            len: piece.len as u32,
            owner: Owner::default(),
            sums: piece.sums.clone(),
        };
        let number = id * 100 + index as u64;
        tx.put(Table::Extents, extent_key(number), &extent);
        tx.put(Table::Refs, ref_key(number, 1, 0), &extent.len);
        tx.live(piece.set, piece.len as i64);
    }
    store.commit(tx).map(|_| ())
}

fn delete_extents(store: &Store, id: u64) -> super::Result<()> {
    let mut tx = Tx::new();
    for (key, value) in store.scan(Table::Extents, &extent_key(id * 100), &extent_key(id * 100 + 100), 100)? {
        let extent: Extent = crate::member::wire::unpack(&value).expect("decodes");
        tx.live(extent.set, -i64::from(extent.len));
        tx.delete(Table::Refs, ref_key(single(&key).expect("a number"), 1, 0));
        tx.delete(Table::Extents, key);
    }
    store.commit(tx).map(|_| ())
}

fn state_of(store: &Store) -> Model {
    let all = store.scan(Table::Extents, &[], &[0xff; 9], usize::MAX).expect("scans");
    all.into_iter().chain(store.scan(Table::Inodes, &[], &[0xff; 9], usize::MAX).expect("scans")).collect()
}

/// A few rounds of everything: small changes, extents, deletions, syncs, checkpoints. Stops at the first error.
fn workload(store: &Store, history: &mut History) -> super::Result<()> {
    history.states.push(state_of(store));
    for round in 0u64..6 {
        let mut tx = Tx::new();
        tx.put(Table::Inodes, vec![b'k', (round % 3) as u8], &(round, "small"));
        store.commit(tx)?;
        history.states.push(state_of(store));
        put_extent(store, round + 1, 1 + (round as usize * 37) % 90)?;
        history.states.push(state_of(store));
        if round % 2 == 1 {
            store.sync(store.last_seq())?;
            history.acknowledged = history.states.len() - 1;
        }
        if round >= 2 {
            delete_extents(store, round - 1)?;
            history.states.push(state_of(store));
        }
        if round == 3 {
            store.checkpoint()?;
            history.acknowledged = history.states.len() - 1;
        }
    }
    store.sync(store.last_seq())?;
    history.acknowledged = history.states.len() - 1;
    Ok(())
}

/// Everything that was acknowledged is there, nothing is half there, and every extent reads right.
fn check(store: &Store, history: &History, what: &str) {
    store.check_trees().unwrap_or_else(|error| panic!("{what}: {error}"));
    let state = state_of(store);
    let found = history.states.iter().rposition(|known| *known == state);
    assert!(
        found.is_some_and(|index| index >= history.acknowledged),
        "{what}: found state {found:?} of {}, acknowledged {}",
        history.states.len(),
        history.acknowledged
    );
    let mut contents: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for (key, value) in store.scan(Table::Extents, &[], &[0xff; 9], usize::MAX).expect("scans") {
        let id = single(&key).expect("a number") / 100;
        let extent: Extent = crate::member::wire::unpack(&value).expect("decodes");
        let mut buf = vec![0; extent.len as usize];
        store.pool().read(extent.set, extent.address, &extent.sums, &mut buf).expect("reads");
        contents.entry(id).or_default().extend(buf);
    }
    for (id, content) in contents {
        assert!(content == block(id, content.len() / SECTOR_LEN), "{what}: extent {id} reads wrong");
    }
}

fn sets_of(members: usize, most: usize) -> Vec<Vec<usize>> {
    (0..1usize << members)
        .map(|mask| (0..members).filter(|member| mask & (1 << member) != 0).collect::<Vec<_>>())
        .filter(|lost| lost.len() <= most)
        .collect()
}

/// Counts the operations of the workload, then stops at each one, cuts the power by every policy, and
/// recovers with every loss that the layout promises to survive.
fn every_crash_point(resiliency: &str, members: usize, stride: u64) {
    let resiliency = Resiliency::parse(resiliency).expect("known");
    let slabs = vec![24; members];
    let mut history = History::default();
    let sim = SimPool::create(1, &slabs, resiliency).expect("creates");
    let before = sim.world.operations();
    workload(&open(&sim, &[]).expect("opens"), &mut history).expect("runs");
    let operations = sim.world.operations() - before;
    assert!(operations > 50, "the workload does something");
    for (index, stop) in (1..=operations).step_by(stride as usize).enumerate() {
        for lost in sets_of(members, resiliency.tolerance()) {
            let policy = PowerCut::ALL[(index + lost.len()) % PowerCut::ALL.len()];
            let what = format!("{resiliency} stopped at {stop} of {operations}, {policy:?}, lost {lost:?}");
            let sim = SimPool::create(1, &slabs, resiliency).expect("creates");
            let mut history = History::default();
            history.states.push(Model::new());
            sim.world.stop_after(sim.world.operations() + stop);
            if let Ok(store) = open(&sim, &[]) {
                let _ = workload(&store, &mut history);
            }
            sim.world.power_cut(policy, stop);
            let store = open(&sim, &lost).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&store, &history, &what);
            // It goes on: written to, closed, and opened again.
            put_extent(&store, 70, 40).unwrap_or_else(|error| panic!("{what}: {error}"));
            let expected = History { states: vec![state_of(&store)], acknowledged: 0 };
            store.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(store);
            let store = open(&sim, &[]).unwrap_or_else(|error| panic!("{what}, all back: {error}"));
            check(&store, &expected, &format!("{what}, all back"));
        }
    }
}

#[test]
fn every_crash_point_of_a_mirror() {
    every_crash_point("mirror", 2, 1);
}

#[test]
fn every_crash_point_of_parity() {
    every_crash_point("parity", 3, 1);
}

#[test]
fn every_crash_point_of_double_parity() {
    every_crash_point("parity:2", 4, 3);
}

#[test]
fn every_crash_point_of_simple() {
    every_crash_point("simple", 2, 1);
}

#[test]
fn every_crash_point_of_a_striped_mirror() {
    every_crash_point("striped-mirror", 4, 3);
}

#[test]
fn a_member_that_dies_in_the_middle_costs_nothing() {
    for victim in 0..3 {
        let sim = SimPool::create(7, &[24; 3], Resiliency::parse("parity").expect("known")).expect("creates");
        let store = open(&sim, &[]).expect("opens");
        let mut history = History::default();
        put_extent(&store, 50, 30).expect("writes");
        sim.disks[victim].fail_all();
        workload(&store, &mut history).expect("goes on without it");
        check(&store, &history, "degraded");
        drop(store);
        sim.world.power_cut(PowerCut::Lost, 3);
        let store = open(&sim, &[victim]).expect("opens degraded");
        check(&store, &history, "degraded, after a crash");
    }
}

#[test]
fn a_member_written_apart_has_diverged_and_is_left_alone() {
    let sim = SimPool::create(8, &[24; 2], Resiliency::parse("mirror").expect("known")).expect("creates");
    open(&sim, &[]).expect("opens").close().expect("closes");
    // Each half lives a life of its own, as when two machines mount one half each.
    let first = open(&sim, &[1]).expect("opens without the second");
    put_extent(&first, 1, 10).expect("writes");
    first.sync(first.last_seq()).expect("syncs");
    let kept = state_of(&first);
    drop(first);
    let second = open(&sim, &[0]).expect("opens without the first");
    put_extent(&second, 2, 10).expect("writes");
    second.sync(second.last_seq()).expect("syncs");
    drop(second);
    let first = open(&sim, &[1]).expect("opens without the second");
    put_extent(&first, 3, 10).expect("writes");
    first.close().expect("closes");
    drop(first);
    let both = open(&sim, &[]).expect("opens with the fresher half");
    let health: Vec<_> = both.pool().status().members.iter().map(|member| member.health).collect();
    use crate::pool::status::MemberHealth::{Diverged, Online};
    assert_eq!(health, [Online, Diverged]);
    assert!(kept.iter().all(|(key, _)| state_of(&both).contains_key(key)), "the fresher half is whole");
}

#[test]
fn an_epoch_begun_and_never_used_is_no_divergence() {
    let sim = SimPool::create(8, &[24; 3], Resiliency::parse("parity").expect("known")).expect("creates");
    let store = open(&sim, &[]).expect("opens");
    put_extent(&store, 1, 10).expect("writes");
    store.close().expect("closes");
    drop(store);
    // A mount that gets as far as the new epoch on one member only.
    let snapshots: Vec<_> = sim.disks.iter().map(|disk| disk.snapshot()).collect();
    drop(sim.open(&[]).map(|pool| Store::recover(pool, options())).expect("assembles"));
    sim.disks[1].restore(&snapshots[1]);
    sim.disks[2].restore(&snapshots[2]);
    let store = open(&sim, &[0]).expect("opens without the one that knows the epoch");
    put_extent(&store, 2, 10).expect("writes");
    store.close().expect("closes");
    drop(store);
    let store = open(&sim, &[]).expect("opens");
    assert!(
        store
            .pool()
            .status()
            .members
            .iter()
            .all(|member| { member.health == crate::pool::status::MemberHealth::Online })
    );
}

#[test]
fn a_lost_record_is_noticed_and_never_passed_over() {
    use crate::member::Area;
    let sim = SimPool::create(9, &[24; 2], Resiliency::parse("mirror").expect("known")).expect("creates");
    let store = open(&sim, &[]).expect("opens");
    for id in 1..6 {
        put_extent(&store, id, 4).expect("writes");
        store.sync(store.last_seq()).expect("syncs");
    }
    let tail = store.pool().root().expect("there").tail_position;
    drop(store);
    // The second group is damaged on one ring: the other gives it. On both: refused, and named.
    sim.disks[0].flip(Area::Journal, tail + 4096 + 100, 2);
    open_only(&sim).expect("one good copy is enough");
    sim.disks[1].flip(Area::Journal, tail + 4096 + 100, 2);
    let refused = open_only(&sim).expect_err("records are lost");
    assert!(refused.to_string().contains("acknowledged"), "{refused}");
}

/// Replays without writing anything.
fn open_only(sim: &SimPool) -> super::Result<()> {
    let snapshots: Vec<_> = sim.disks.iter().map(|disk| disk.snapshot()).collect();
    let result = Store::recover(sim.open(&[])?, options()).map(|_| ());
    for (disk, snapshot) in sim.disks.iter().zip(&snapshots) {
        disk.restore(snapshot);
    }
    result
}
