//! Members change in random order while programs write, read and delete.

use super::*;
use crate::maintain::evacuate::Evacuate;
use crate::maintain::rebalance::Rebalance;
use crate::maintain::repair::Repair;
use crate::store::tables::Ino;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A program: writes files, reads what it wrote, deletes some, until it is told to stop. Gives what it left.
fn program(fs: &Fs, number: u64, stop: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    let mut random = number;
    let mut files: BTreeMap<String, (Ino, Vec<u8>)> = BTreeMap::new();
    let mut round = 0;
    while !stop.load(Ordering::Acquire) {
        round += 1;
        let name = format!("p{number}-{}", next_random(&mut random) % 12);
        if let Some((ino, data)) = files.remove(&name) {
            let mut buf = vec![0; data.len()];
            assert_eq!(fs.read(ino, 0, 0, &mut buf).expect("reads"), data.len());
            assert!(buf == data, "{name} reads otherwise in round {round}");
            fs.unlink(ROOT_INO, name.as_bytes()).expect("unlinks");
        }
        let data = noise(next_random(&mut random), 1 + (next_random(&mut random) % 900_000) as usize);
        let (attr, handle) = fs
            .create(ROOT_INO, name.as_bytes(), 0o644, OpenFlags::READ_WRITE, &Caller::ROOT)
            .expect("creates");
        fs.write(attr.ino, handle, 0, &data, false).expect("writes");
        if round % 3 == 0 {
            fs.fsync(attr.ino, false).expect("syncs");
            fs.cache().drop_clean_of(attr.ino);
        }
        fs.release(attr.ino, handle).expect("releases");
        fs.forget(attr.ino, 1);
        files.insert(name, (attr.ino, data));
    }
    files.into_iter().map(|(name, (_, data))| (name, data)).collect()
}

/// Steps until it is done, and waits where it must.
fn persist(fs: &Fs, mut job: impl Job) {
    let (mut pending, mut reason) = (0, String::new());
    while pending < 500 {
        match job.step(fs, 2 * MIB).unwrap_or_else(|error| panic!("{}: {error}", job.kind())) {
            Step::Done => return,
            Step::Moved(_) => pending = 0,
            Step::Pending(why) => {
                (pending, reason) = (pending + 1, why);
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
    panic!("{} does not come to an end: {reason}", job.kind());
}

fn change_members(rig: &mut Rig, rounds: u64, seed: u64) {
    let mut random = seed;
    for round in 0..rounds {
        let online: Vec<MemberId> =
            rig.pool().members().iter().filter(|one| one.takes_sets()).map(|one| one.id).collect();
        let one = online[next_random(&mut random) as usize % online.len()];
        let fs = rig.fs().clone();
        match (next_random(&mut random) % 6, online.len()) {
            (0, ..=6) | (_, ..=3) => {
                rig.add(150);
                persist(&fs, Rebalance::new(&fs));
            }
            (0 | 1, _) => persist(&fs, Evacuate::new(&fs, one).expect("can be done")),
            (2, _) => {
                let new = rig.add(150);
                persist(&fs, Evacuate::replace(&fs, one, new).expect("can be done"));
            }
            (3, _) => {
                rig.sim.disks[usize::from(one)].fail_all();
                std::thread::sleep(std::time::Duration::from_millis(30));
                let new = rig.add(150);
                persist(&fs, Repair::new(&fs, true));
                if !rig.pool().members()[usize::from(one)].is_writable() {
                    persist(&fs, Evacuate::replace(&fs, one, new).expect("can be done"));
                } else {
                    rig.sim.disks[usize::from(one)].revive();
                }
            }
            _ => {
                fs.store().take_offline(one, false).expect("the others have it all");
                std::thread::sleep(std::time::Duration::from_millis(next_random(&mut random) % 60));
                let back = (0..500).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    fs.store().bring_online(rig.found(usize::from(one))).is_ok()
                });
                assert!(back, "round {round}: it does not come back");
            }
        }
    }
}

fn rounds(resiliency: &str, seed: u64, count: u64) {
    let mut rig = Rig::new(resiliency, &[150; 4]);
    rig.write(6, 10 * MIB);
    rig.fs().unmount().expect("unmounts");
    rig.clock = Clock::system();
    rig.mount_with(&[], true);
    let stop = AtomicBool::new(false);
    let fs = rig.fs().clone();
    std::thread::scope(|scope| {
        let programs: Vec<_> = (1..=2)
            .map(|number| {
                let (fs, stop) = (&fs, &stop);
                scope.spawn(move || program(fs, number, stop))
            })
            .collect();
        let changing =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change_members(&mut rig, count, seed)));
        stop.store(true, Ordering::Release);
        for program in programs {
            rig.files.extend(program.join().expect("no program fails"));
        }
        changing.expect("every change comes to its end");
    });
    rig.fs().sync_all().expect("syncs");
    persist(&fs, Repair::new(&fs, true));
    drop(fs);
    rig.prove_redundancy(1, "in the end");
}

#[test]
fn programs_notice_nothing_with_parity() {
    rounds("parity", 11, 10);
}

#[test]
fn programs_notice_nothing_with_mirrors() {
    rounds("mirror", 12, 10);
}
