//! Every job stopped at its writes and syncs, by every way in which power can go; then it is recovered, compared, and
//! run to its end.

use super::*;
use crate::maintain::evacuate::Evacuate;
use crate::maintain::rebalance::Rebalance;
use crate::maintain::repair::Repair;

type Start = fn(&Rig) -> Result<Box<dyn Job>, JobError>;

/// Plays `prepare` and the job, stopped at growing numbers of operations; `lost` is missing from the beginning on.
fn every_stop(what: &str, prepare: fn() -> Rig, start: Start, lost: &[usize], tolerance: usize) {
    let mut stop = 1;
    loop {
        let mut rig = prepare();
        let policy = PowerCut::ALL[stop as usize % PowerCut::ALL.len()];
        let what = format!("{what} stopped at {stop}, {policy:?}");
        rig.sim.world.stop_after(rig.sim.world.operations() + stop);
        let work = |rig: &Rig| -> Result<(), JobError> {
            try_run(rig, &mut *start(rig)?)?;
            rig.fs().sync_all()?;
            Ok(rig.fs().store().checkpoint()?)
        };
        let done = work(&rig).is_ok() && !rig.sim.world.is_dark();
        rig.fs = None;
        rig.sim.world.power_cut(policy, stop);
        rig.mount(lost);
        rig.verify(&what);
        rig.write(2, MIB);
        match start(&rig) {
            Ok(mut job) => try_run(&rig, &mut *job).unwrap_or_else(|error| panic!("{what}: {error}")),
            // It had come to its end.
            Err(JobError::Pool(crate::pool::PoolError::NoSuchMember { .. })) => {}
            Err(error) => panic!("{what}: {error}"),
        }
        rig.verify(&format!("{what}, at its end"));
        if done || stop % 5 == 0 {
            rig.prove_redundancy(tolerance, &what);
        }
        if done {
            break;
        }
        stop += 1 + stop / 10;
    }
    assert!(stop > 10, "{what}: the job does something");
}

#[test]
fn moving_everything_away_from_a_member() {
    let prepare = || {
        let mut rig = Rig::new("mirror", &[40; 3]);
        rig.write(6, 4 * MIB);
        rig
    };
    every_stop("evacuation", prepare, |rig| Ok(Box::new(Evacuate::new(rig.fs(), 1)?)), &[], 1);
}

#[test]
fn writing_everything_anew_without_a_member() {
    let prepare = || {
        let mut rig = Rig::new("parity", &[40; 4]);
        rig.write(6, 5 * MIB);
        rig
    };
    every_stop("narrowing", prepare, |rig| Ok(Box::new(Evacuate::new(rig.fs(), 0)?)), &[], 1);
}

#[test]
fn replacing_a_member() {
    let prepare = || {
        let mut rig = Rig::new("parity", &[40; 3]);
        rig.write(6, 5 * MIB);
        rig.add(40);
        rig
    };
    every_stop("replacement", prepare, |rig| Ok(Box::new(Evacuate::replace(rig.fs(), 2, 3)?)), &[], 1);
}

#[test]
fn rebuilding_a_lost_member() {
    let prepare = || {
        let mut rig = Rig::new("parity columns=2", &[40; 4]);
        rig.write(6, 5 * MIB);
        rig.fs().unmount().expect("unmounts");
        rig.mount(&[1]);
        rig
    };
    every_stop("rebuild", prepare, |rig| Ok(Box::new(Repair::new(rig.fs(), false))), &[1], 1);
}

#[test]
fn evening_out() {
    let prepare = || {
        let mut rig = Rig::new("parity", &[40; 3]);
        rig.write(6, 12 * MIB);
        rig.add(40);
        rig
    };
    every_stop("rebalance", prepare, |rig| Ok(Box::new(Rebalance::new(rig.fs()))), &[], 1);
}
