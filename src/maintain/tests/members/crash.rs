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

/// Jobs and changes of members in any order, the power gone at any time in each.
fn any_order(resiliency: &str, seed: u64) {
    let mut random = seed;
    let mut dice = move |sides: u64| next_random(&mut random) % sides;
    let mut rig = Rig::new(resiliency, &[60; 4]);
    for round in 0..10 {
        let what = format!("{resiliency} seed {seed} round {round}");
        rig.write(3, 3 * MIB);
        if round % 3 == 2 {
            rig.thin_out();
        }
        let takes = |rig: &Rig| -> Vec<MemberId> {
            rig.pool().members().iter().filter(|one| one.takes_sets()).map(|one| one.id).collect()
        };
        let all = takes(&rig);
        let one = all[dice(all.len() as u64) as usize];
        let spare = rig.sim.world.disk(&format!("disk{}", rig.sim.disks.len()), 60);
        let most = if dice(2) == 0 { 60 } else { 1500 };
        let lives = 1 + dice(most);
        rig.sim.world.stop_after(rig.sim.world.operations() + lives);
        let choice = if all.len() > 3 { dice(5) } else { 0 };
        let mut added = false;
        let mut play = || -> Result<(), JobError> {
            let fs = rig.fs();
            let add = |added: &mut bool| {
                *added = true;
                fs.store().add_disk(Arc::clone(&spare) as Arc<dyn Disk>, Bounds::default())
            };
            match choice {
                0 => {
                    add(&mut added)?;
                    try_run(&rig, &mut Rebalance::new(fs))?;
                }
                1 => try_run(&rig, &mut Evacuate::new(fs, one)?)?,
                2 => {
                    let new = add(&mut added)?;
                    try_run(&rig, &mut Evacuate::replace(fs, one, new)?)?;
                }
                3 => {
                    fs.store().take_offline(one, false)?;
                    try_run(&rig, &mut Repair::new(fs, true))?;
                }
                _ => {
                    fs.store().take_offline(one, false)?;
                    fs.sync_all()?;
                    let disk = Arc::clone(&rig.sim.disks[usize::from(one)]) as Arc<dyn Disk>;
                    let superblock = read_superblock(&*disk).map_err(crate::pool::PoolError::from)?;
                    fs.store().bring_online(Found { disk, superblock })?;
                }
            }
            Ok(())
        };
        let outcome = play();
        assert!(outcome.is_ok() || rig.sim.world.is_dark(), "{what}: {outcome:?}");
        if added {
            rig.sim.disks.push(spare);
        }
        rig.fs = None;
        rig.sim.world.power_cut(PowerCut::ALL[dice(4) as usize], dice(1 << 30));
        rig.mount(&[]);
        rig.verify(&what);
        for member in 0..rig.pool().members().len() {
            if rig.health(member as MemberId) == MemberHealth::Offline {
                rig.fs()
                    .store()
                    .bring_online(rig.found(member))
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
            }
        }
        // A disk whose addition came to nothing is one that the pool does not know.
        let known = rig.pool().members().len();
        rig.sim.disks.truncate(known);
    }
    run(&rig, &mut Repair::new(rig.fs(), true));
    rig.prove_redundancy(1, &format!("{resiliency} seed {seed} in the end"));
}

#[test]
fn members_change_in_any_order_with_power_cuts() {
    for seed in 1..=6 {
        any_order(["parity", "mirror", "parity columns=2"][seed as usize % 3], seed);
    }
}
