//! Disks that die, vanish or hang while files are written and read.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::pool::AssembleOptions;
use crate::pool::status::{Health, MemberHealth};

/// What is done to a disk in the middle of a write.
const FATES: [(&str, fn(&crate::member::sim::SimDisk)); 3] = [
    ("dies", |disk| disk.fail_all()),
    ("vanishes", |disk| disk.vanish()),
    ("hangs", |disk| disk.hang_for(Duration::from_secs(100_000))),
];

/// "A dead disk during a large write: no error to the program, nothing lost, health and events say what happened."
#[test]
fn a_disk_that_goes_during_a_large_write_takes_nothing_with_it() {
    for (what, fate) in FATES {
        for (resiliency, disks, victim) in
            [("mirror", 2, 0), ("mirror", 3, 1), ("parity", 4, 2), ("parity:2", 5, 4)]
        {
            let mut rig = Rig::new(resiliency, disks, 160);
            let fs = rig.fs();
            let before = fs.t_create(ROOT_INO, "before");
            fs.t_write(before, 0, &noise(1, 3 << 20));
            fs.sync_all().expect("syncs");
            let large = fs.t_create(ROOT_INO, "large");
            let data = noise(2, 32 << 20);
            for (index, part) in data.chunks(1 << 20).enumerate() {
                if index == 17 {
                    fate(&rig.sim.disks[victim]);
                }
                fs.t_write(large, (index as u64) << 20, part);
            }
            fs.fsync(large, false).expect("what the program wrote is durable");
            let status = fs.pool.status();
            assert_eq!(status.health, Health::Degraded, "{resiliency}, one {what}");
            let member = &status.members[victim];
            assert_eq!(member.health, MemberHealth::Failing, "{resiliency}, one {what}");
            assert!(member.note.is_some() && member.write_errors + member.sync_errors + member.timeouts > 0);
            fs.t_cool();
            assert!(fs.t_read(large) == data && fs.t_read(before) == noise(1, 3 << 20));
            // And after a crash, without the disk.
            rig.fs = None;
            rig.sim.world.power_cut(PowerCut::Lost, 7);
            let pool = rig.sim.open(&[victim]).expect("assembles without it");
            let fs = Fs::mount(pool, options(&rig.clock)).expect("mounts");
            assert!(
                fs.t_read(large) == data && fs.t_read(before) == noise(1, 3 << 20),
                "{resiliency}, one {what}"
            );
            check::tables(&fs);
        }
    }
}

/// Everything that a mount does goes on, with real threads and in real time, while a disk hangs: nothing waits longer
/// for it than a few deadlines, and `status` does not wait at all.
#[test]
fn a_disk_that_hangs_hangs_nothing() {
    const DEADLINE: Duration = Duration::from_millis(300);
    // Generous, since other tests run at the same time. Without deadlines all of this takes an hour.
    const LONGEST: Duration = Duration::from_secs(20);
    for (resiliency, disks) in [("mirror", 3), ("parity", 3)] {
        let rig = Rig::new(resiliency, disks, 160);
        rig.fs().unmount().expect("unmounts");
        let clock = Clock::system();
        rig.sim.world.set_clock(clock.clone());
        let assemble = AssembleOptions { threads: true, deadline: DEADLINE, ..rig.sim.options() };
        let pool = rig.sim.assemble(&[], &assemble).expect("assembles");
        let options = FsOptions {
            background: true,
            commit: Duration::from_millis(20),
            clock: clock.clone(),
            ..options(&rig.clock)
        };
        let fs = Fs::mount(pool, options).expect("mounts");
        let old = fs.t_create(ROOT_INO, "old");
        fs.t_write(old, 0, &noise(3, 4 << 20));
        fs.sync_all().expect("syncs");
        let over = AtomicBool::new(false);
        let slowest = |times: &mut dyn FnMut()| {
            let mut slowest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let began = clock.elapsed();
                times();
                slowest = slowest.max(clock.elapsed() - began);
                std::thread::sleep(Duration::from_millis(1));
            }
            slowest
        };
        std::thread::scope(|scope| {
            let (fs, slowest) = (&fs, &slowest);
            let reads = scope.spawn(move || {
                slowest(&mut || {
                    fs.t_cool();
                    assert!(fs.t_read(old) == noise(3, 4 << 20));
                })
            });
            let names = scope.spawn(move || {
                let mut count = 0;
                slowest(&mut || {
                    count += 1;
                    let ino = fs.t_create(ROOT_INO, &format!("new{count}"));
                    fs.t_write(ino, 0, &noise(count, 5000));
                    fs.fsync(ino, false).expect("syncs");
                    assert!(fs.statfs(ROOT_INO).expect("answers").available > 0);
                })
            });
            let status = scope.spawn(move || {
                slowest(&mut || {
                    fs.pool.status();
                })
            });
            let large = fs.t_create(ROOT_INO, "large");
            let data = noise(4, 40 << 20);
            for (index, part) in data.chunks(1 << 20).enumerate() {
                if index == 10 {
                    rig.sim.disks[1].hang_for(Duration::from_secs(3600));
                }
                fs.t_write(large, (index as u64) << 20, part);
            }
            fs.fsync(large, false).expect("syncs");
            fs.t_cool();
            assert!(fs.t_read(large) == data);
            over.store(true, Ordering::Relaxed);
            for (what, thread) in [("reads", reads), ("names", names), ("status", status)] {
                let took = thread.join().expect("no error");
                assert!(took < LONGEST, "{resiliency}: {what} took {took:?}");
            }
        });
        assert_eq!(fs.pool.status().members[1].health, MemberHealth::Failing);
        let began = clock.elapsed();
        fs.unmount().expect("unmounts");
        assert!(clock.elapsed() - began < LONGEST, "unmounting took {:?}", clock.elapsed() - began);
        drop(fs);
        let again = rig.sim.assemble(&[1], &assemble).expect("assembles without it");
        let fs = Fs::mount(again, self::options(&rig.clock)).expect("mounts");
        let large = fs.t_find(ROOT_INO, "large").expect("there");
        assert!(fs.t_read(large) == noise(4, 40 << 20));
    }
}
