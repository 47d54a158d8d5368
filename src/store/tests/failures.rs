//! Checkpoints that fail, and pools that get full.

use super::super::tables::Table;
use super::super::{Store, StoreError, StoreOptions, Tx};
use super::{open_with, options};
use crate::layout::Resiliency;
use crate::member::Area;
use crate::member::sim::PowerCut;
use crate::pool::PoolError;
use crate::pool::simulated::SimPool;
use crate::units::MIB;

fn mirror(slabs: u64, disks: usize) -> SimPool {
    SimPool::create(3, &vec![slabs; disks], Resiliency::parse("mirror").expect("known")).expect("creates")
}

fn ordinary() -> StoreOptions {
    StoreOptions { node_bytes: crate::limits::NODE_BYTES, ..options() }
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn put(store: &Store, numbers: impl Iterator<Item = u64>, byte: u8) {
    let numbers: Vec<u64> = numbers.collect();
    for some in numbers.chunks(200) {
        let mut tx = Tx::new();
        some.iter().for_each(|&number| tx.put_raw(Table::Inodes, key(number), vec![byte; 500]));
        store.commit(tx).expect("commits");
    }
}

fn count(store: &Store, byte: u8) -> usize {
    let found = store.scan(Table::Inodes, &[], &[0xff; 9], usize::MAX).expect("scans");
    found.iter().filter(|(_, value)| value[..] == [byte; 500]).count()
}

#[test]
fn a_checkpoint_without_room_fails_and_leaves_nothing_behind() {
    let sim = mirror(40, 2);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    put(&store, 0..1000, 1);
    store.checkpoint().expect("takes a checkpoint");
    // One slab more, and then no other: some batches are written, and then it fails.
    let used = || store.pool().members()[0].slab_counts().1;
    let slabs = used();
    sim.disks.iter().for_each(|disk| disk.set_capacity(slabs + 1));
    put(&store, 0..8000, 2);
    for _ in 0..3 {
        let refused = store.checkpoint().expect_err("there is no room");
        assert!(matches!(refused, StoreError::Pool(PoolError::NoSpace { .. })), "{refused}");
        store.check_trees().expect("nothing is left over");
        assert_eq!(used(), slabs, "no slab is left over either");
        assert_eq!((count(&store, 1), count(&store, 2)), (0, 8000));
    }
    store.sync(store.last_seq()).expect("the log has room");
    drop(store);
    sim.disks.iter().for_each(|disk| disk.set_capacity(40));
    sim.world.power_cut(PowerCut::Lost, 1);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    store.check_trees().expect("whole");
    assert_eq!((count(&store, 1), count(&store, 2)), (0, 8000));
}

#[test]
fn a_checkpoint_whose_log_fails_leaves_nothing_behind() {
    let sim = mirror(40, 2);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    put(&store, 0..1000, 1);
    store.checkpoint().expect("takes a checkpoint");
    sim.disks.iter().for_each(|disk| disk.fail_writes(Area::Journal, 0..u64::MAX));
    put(&store, 0..1000, 2);
    store.checkpoint().expect_err("the log can't be written");
    store.check_trees().expect("nothing is left over");
    assert_eq!(count(&store, 2), 1000, "reading goes on");
    drop(store);
    sim.disks.iter().for_each(|disk| disk.revive());
    sim.world.power_cut(PowerCut::Lost, 1);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    assert_eq!((count(&store, 1), count(&store, 2)), (1000, 0));
    store.check_trees().expect("whole");
}

#[test]
fn a_root_that_may_be_published_is_not_touched_any_more() {
    let sim = mirror(40, 2);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    put(&store, 0..1000, 1);
    store.checkpoint().expect("takes a checkpoint");
    put(&store, 0..1000, 2);
    store.sync(store.last_seq()).expect("syncs");
    for disk in &sim.disks {
        disk.fail_writes(Area::Superblock(0), 0..u64::MAX);
        disk.fail_writes(Area::Superblock(1), 0..u64::MAX);
    }
    store.checkpoint().expect_err("no superblock can be written");
    assert!(matches!(store.checkpoint(), Err(StoreError::Poisoned { .. } | StoreError::Pool(_))));
    assert_eq!(count(&store, 2), 1000, "reading goes on");
    drop(store);
    sim.disks.iter().for_each(|disk| disk.revive());
    sim.world.power_cut(PowerCut::Subset, 1);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    assert_eq!(count(&store, 2), 1000);
    store.check_trees().expect("whole");
}

#[test]
fn metadata_that_lies_on_missing_members_is_said_to_by_name() {
    let sim = mirror(60, 4);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    for round in 0..8 {
        put(&store, round * 2000..round * 2000 + 2000, 1);
        store.checkpoint().expect("takes a checkpoint");
    }
    store.close().expect("closes");
    drop(store);
    let snapshots: Vec<_> = sim.disks.iter().map(|disk| disk.snapshot()).collect();
    let mut refused = 0;
    for lost in super::sets_of(4, 2) {
        match open_with(&sim, &lost, ordinary()) {
            Ok(store) => assert_eq!(count(&store, 1), 16_000),
            Err(StoreError::Pool(error @ PoolError::TooFewLeft { .. })) => {
                refused += 1;
                assert!(
                    lost.iter().all(|disk| error.to_string().contains(&format!("disk{disk}"))),
                    "{error}"
                );
            }
            Err(error) => panic!("without {lost:?}: {error}"),
        }
        // What it wrote meanwhile is of no interest.
        sim.disks.iter().zip(&snapshots).for_each(|(disk, snapshot)| disk.restore(snapshot));
    }
    assert!(refused > 0, "metadata lies on all pairs of members");
}

/// Some leaves of each set stay as they are while all others are written anew: without compaction every set would
/// stay for the sake of those few.
#[test]
fn mostly_dead_metadata_sets_are_emptied() {
    let sim = mirror(200, 2);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    put(&store, 0..10_000, 1);
    store.checkpoint().expect("takes a checkpoint");
    let waste = || {
        let used: u64 = store.pool().metadata_usage().iter().map(|set| set.used).sum();
        let live = store.last_checkpoint.lock().live.total();
        (used - live, (used / 4).max(4 * MIB))
    };
    let mut most = 0;
    for round in 0..30 {
        put(&store, (0..10_000).filter(|number| number / 30 % 10 >= round % 10), round as u8);
        store.checkpoint().expect("takes a checkpoint");
        most = waste().0.max(most);
        (0..3).for_each(|_| store.checkpoint().expect("takes a checkpoint"));
        let (waste, allowed) = waste();
        assert!(waste <= allowed, "round {round}: {waste} bytes are dead, {allowed} may be");
        store.check_trees().expect("whole");
    }
    assert!(most > 6 * MIB, "there was something to do: {most}");
    put(&store, 0..5_000, 200);
    store.close().expect("closes");
    drop(store);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    let all = store.scan(Table::Inodes, &[], &[0xff; 9], usize::MAX).expect("scans");
    assert_eq!((count(&store, 200), all.len()), (5_000, 10_000));
    store.check_trees().expect("whole");
}

/// Metadata alone fills the pool: what grows is refused in time, and deleting works.
#[test]
fn a_pool_full_of_metadata_can_be_emptied() {
    for slabs in [16, 64] {
        let sim = mirror(slabs, 2);
        let store = open_with(&sim, &[], ordinary()).expect("opens");
        let relieve = || {
            if store.checkpoint_due() || store.log_is_short() {
                store.checkpoint().expect("there is always room for a checkpoint");
            }
        };
        let mut last = 0;
        for _ in 0..3 {
            let first = last;
            while store.may_grow() {
                put(&store, last..last + 20, 1);
                last += 20;
                relieve();
                assert!(last - first < slabs * 4000, "it never gets full");
            }
            assert!(last - first > 1_000, "only {} entries fitted", last - first);
            for number in first..last {
                let mut tx = Tx::new();
                // In no order, so that most leaves change.
                tx.delete(Table::Inodes, key(first + (number - first) * 7919 % (last - first)));
                store.commit(tx).expect("commits");
                relieve();
            }
            for number in first..last {
                let mut tx = Tx::new();
                tx.delete(Table::Inodes, key(number));
                store.commit(tx).expect("commits");
                relieve();
            }
            (0..3).for_each(|_| store.checkpoint().expect("takes a checkpoint"));
            assert_eq!(store.check_trees().expect("whole").entries, 0);
            assert!(store.may_grow());
        }
    }
}

#[test]
fn what_a_checkpoint_freed_is_usable_once_its_root_is_published_again() {
    let sim = mirror(40, 2);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    let used = || store.pool().members()[0].slab_counts().1;
    put(&store, 0..10, 1);
    super::put_extent(&store, 1, 200).expect("writes");
    store.checkpoint().expect("takes a checkpoint");
    super::delete_extents(&store, 1).expect("deletes");
    store.checkpoint().expect("takes a checkpoint");
    let waiting = store.pool().waiting_room().bytes;
    let before = used();
    assert!(waiting > 0, "the root before still refers to it");
    // What is freed from here on is in the tables of both roots.
    super::put_extent(&store, 2, 200).expect("writes");
    let root = store.pool().root().expect("there is one");
    store.publish_again().expect("publishes");
    let again = store.pool().root().expect("there is one");
    assert_eq!((again.checkpoint, &again.block), (root.checkpoint + 1, &root.block));
    assert!(used() <= before && store.pool().waiting_room().bytes < waiting, "its slabs are free");
    store.sync(store.last_seq()).expect("syncs");
    store.check_trees().expect("whole");
    drop(store);
    sim.world.power_cut(PowerCut::Lost, 1);
    let store = open_with(&sim, &[], ordinary()).expect("opens");
    store.check_trees().expect("whole");
    assert_eq!(count(&store, 1), 10);
    store.checkpoint().expect("takes a checkpoint");
    store.check_trees().expect("whole");
}
