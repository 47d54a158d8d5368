//! Members that come and go while the store is in use, stopped at every write and sync.

use super::super::{Result, Store, StoreError};
use super::{History, check, delete_extents, open, put_extent, sets_of, state_of};
use crate::layout::Resiliency;
use crate::member::Disk;
use crate::member::open::Bounds;
use crate::member::sim::PowerCut;
use crate::member::superblock::{MemberId, read_superblock};
use crate::pool::simulated::SimPool;
use crate::pool::status::MemberHealth;
use crate::pool::{Found, PoolError};
use crate::sync::Arc;

type Work = fn(&SimPool, &Store, &mut History) -> Result<()>;

/// A pool on so many disks, and one disk more that is no member yet.
fn pool_and_spare(resiliency: &str, members: usize) -> SimPool {
    let resiliency = Resiliency::parse(resiliency).expect("known");
    let mut sim = SimPool::create(1, &vec![24; members], resiliency).expect("creates");
    let spare = sim.world.disk(&format!("disk{members}"), 24);
    sim.disks.push(spare);
    sim
}

fn disk(sim: &SimPool, index: usize) -> Arc<dyn Disk> {
    Arc::clone(&sim.disks[index]) as Arc<dyn Disk>
}

fn found(sim: &SimPool, index: usize) -> Found {
    let superblock = read_superblock(&*sim.disks[index]).expect("has a superblock");
    Found { disk: disk(sim, index), superblock }
}

fn health(store: &Store, member: MemberId) -> MemberHealth {
    store.pool().status().members[usize::from(member)].health
}

/// Writes some extents, deletes one, and syncs.
fn some_changes(store: &Store, history: &mut History, from: u64) -> Result<()> {
    for id in from..from + 3 {
        put_extent(store, id, 1 + (id as usize * 37) % 90)?;
        history.states.push(state_of(store));
    }
    delete_extents(store, from)?;
    history.states.push(state_of(store));
    store.sync(store.last_seq())?;
    history.acknowledged = history.states.len() - 1;
    Ok(())
}

/// Stops `work` at every operation, recovers without up to `lost_most` of the members, and goes on: members that can
/// come back do, and in the end every single one may be lost.
fn every_stop(resiliency: &str, members: usize, lost_most: usize, work: Work) {
    let mut stop = 1;
    loop {
        let mut done = true;
        for lost in sets_of(members, lost_most) {
            let policy = PowerCut::ALL[(stop as usize + lost.len()) % PowerCut::ALL.len()];
            let what = format!("{resiliency} stopped at {stop}, {policy:?}, lost {lost:?}");
            let sim = pool_and_spare(resiliency, members);
            let mut history = History::default();
            let store = open(&sim, &[]).expect("opens");
            history.states.push(state_of(&store));
            some_changes(&store, &mut history, 1).expect("writes");
            sim.world.stop_after(sim.world.operations() + stop);
            done &= work(&sim, &store, &mut history).is_ok() && !sim.world.is_dark();
            drop(store);
            sim.world.power_cut(policy, stop);
            let store = open(&sim, &lost).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&store, &history, &what);
            let mut history = History { states: vec![state_of(&store)], acknowledged: 0 };
            some_changes(&store, &mut history, 50).unwrap_or_else(|error| panic!("{what}: {error}"));
            for member in 0..store.pool().members().len() {
                let comes_back = [MemberHealth::Offline, MemberHealth::Missing];
                if comes_back.contains(&health(&store, member as MemberId)) {
                    store.bring_online(found(&sim, member)).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            }
            some_changes(&store, &mut history, 60).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&store, &history, &format!("{what}, all back"));
            let count = store.pool().members().len();
            store.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(store);
            let kept: Vec<_> = sim.disks.iter().map(|disk| disk.snapshot()).collect();
            for gone in 0..count {
                let store = open(&sim, &[gone]).unwrap_or_else(|error| panic!("{what} {gone}: {error}"));
                check(&store, &history, &format!("{what}, in the end without {gone}"));
                sim.disks.iter().zip(&kept).for_each(|(disk, kept)| disk.restore(kept));
            }
        }
        if done {
            break;
        }
        stop += 1;
    }
    assert!(stop > 5, "the work does something");
}

#[test]
fn adding_a_member_can_be_interrupted_anywhere() {
    let work: Work = |sim, store, history| {
        let id = store.add_disk(disk(sim, sim.disks.len() - 1), Bounds::default())?;
        assert_eq!(usize::from(id), sim.disks.len() - 1);
        some_changes(store, history, 10)?;
        store.checkpoint()?;
        some_changes(store, history, 20)
    };
    every_stop("parity", 3, 1, work);
    every_stop("mirror", 2, 0, work);
}

#[test]
fn going_offline_and_coming_back_can_be_interrupted_anywhere() {
    let work: Work = |sim, store, history| {
        store.take_offline(1, false)?;
        assert_eq!(health(store, 1), MemberHealth::Offline);
        some_changes(store, history, 10)?;
        store.checkpoint()?;
        some_changes(store, history, 20)?;
        store.bring_online(Found {
            superblock: read_superblock(&*sim.disks[1]).map_err(PoolError::from)?,
            disk: disk(sim, 1),
        })?;
        assert_eq!(health(store, 1), MemberHealth::Online);
        some_changes(store, history, 30)
    };
    every_stop("parity", 3, 0, work);
}

#[test]
fn a_member_that_failed_comes_back_with_all_it_had() {
    for resiliency in ["parity", "mirror"] {
        let sim = pool_and_spare(resiliency, 3);
        let store = open(&sim, &[]).expect("opens");
        let mut history = History::default();
        some_changes(&store, &mut history, 1).expect("writes");
        sim.disks[1].fail_all();
        some_changes(&store, &mut history, 10).expect("goes on without it");
        assert_eq!(health(&store, 1), MemberHealth::Failing);
        sim.disks[1].revive();
        store.bring_online(found(&sim, 1)).expect("comes back");
        some_changes(&store, &mut history, 20).expect("goes on with it");
        store.checkpoint().expect("takes a checkpoint");
        check(&store, &history, "back");
        drop(store);
        sim.world.power_cut(PowerCut::Lost, 1);
        for lost in [0, 2] {
            let kept: Vec<_> = sim.disks.iter().map(|disk| disk.snapshot()).collect();
            let store = open(&sim, &[lost]).expect("opens");
            check(&store, &history, "without another one");
            sim.disks.iter().zip(&kept).for_each(|(disk, kept)| disk.restore(kept));
        }
    }
}

#[test]
fn who_may_not_come_and_who_may_not_go_is_refused_with_the_reason() {
    let sim = pool_and_spare("simple", 2);
    let store = open(&sim, &[]).expect("opens");
    put_extent(&store, 1, 600).expect("writes");
    let refused = |outcome: Result<()>| match outcome.expect_err("refused") {
        StoreError::Pool(error) => error,
        error => panic!("{error}"),
    };
    let left_out = |store: &Store| refused(store.take_offline(1, false));
    assert!(matches!(left_out(&store), PoolError::WouldBeUnreadable { metadata: 0, .. }));
    assert!(matches!(refused(store.bring_online(found(&sim, 0)).map(drop)), PoolError::AlreadyHere { .. }));
    assert!(matches!(refused(store.take_offline(7, true)), PoolError::NoSuchMember { member: 7 }));
    assert!(matches!(refused(store.remove_member(1)), PoolError::NotEmpty { .. }));
    assert!(matches!(refused(store.give_up_lost(1, true)), PoolError::StillHere { .. }));
    store.take_offline(1, true).expect("with force");
    assert!(matches!(refused(store.take_offline(0, true)), PoolError::LastMember { .. }));
    let other = pool_and_spare("mirror", 2);
    assert!(matches!(refused(store.bring_online(found(&other, 0)).map(drop)), PoolError::OtherPool { .. }));
    store.bring_online(found(&sim, 1)).expect("comes back");
    assert_eq!(store.pool().status().sets_unreadable, 0);
    // One that was written alone meanwhile has diverged.
    store.close().expect("closes");
    drop(store);
    let sim = pool_and_spare("mirror", 2);
    open(&sim, &[]).expect("opens").close().expect("closes");
    let alone = open(&sim, &[0]).expect("opens");
    put_extent(&alone, 1, 3).expect("writes");
    alone.close().expect("closes");
    drop(alone);
    let store = open(&sim, &[1]).expect("opens");
    put_extent(&store, 2, 3).expect("writes");
    store.sync(store.last_seq()).expect("syncs");
    assert!(matches!(
        refused(store.bring_online(found(&sim, 1)).map(drop)),
        PoolError::DivergedMember { .. }
    ));
    store.give_up_lost(1, false).expect("nothing lies there alone");
    assert!(matches!(refused(store.bring_online(found(&sim, 1)).map(drop)), PoolError::WasRemoved { .. }));
}

/// A member that left in order is not mounted alone, but with force; nor used before it is brought back.
#[test]
fn one_that_is_offline_stays_so_at_the_next_mount() {
    let sim = pool_and_spare("mirror", 2);
    let store = open(&sim, &[]).expect("opens");
    put_extent(&store, 1, 3).expect("writes");
    store.take_offline(1, false).expect("goes");
    put_extent(&store, 2, 3).expect("writes");
    store.close().expect("closes");
    drop(store);
    assert!(matches!(open(&sim, &[0]), Err(StoreError::Pool(PoolError::OnlyLeavers { .. }))));
    let store = open(&sim, &[]).expect("opens");
    assert_eq!(health(&store, 1), MemberHealth::Offline);
    store.bring_online(found(&sim, 1)).expect("comes back");
    put_extent(&store, 3, 3).expect("writes");
    store.close().expect("closes");
    drop(store);
    let store = open(&sim, &[]).expect("opens");
    assert_eq!(health(&store, 1), MemberHealth::Online);
}
