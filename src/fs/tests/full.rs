//! Pools that are full, or nearly.

use super::compaction::compact_all;
use super::model::Dice;
use super::*;

/// Writes to a file until nothing more fits; returns its size.
fn fill(fs: &Fs, ino: Ino, seed: u64) -> u64 {
    let block = noise(seed, MIB as usize);
    let mut at = 0;
    loop {
        match fs.write(ino, 0, at, &block, false) {
            Ok(n) => at += n as u64,
            Err(error) if error.is_no_space() => {
                fs.sync_all().expect("what was taken can be written out");
                match fs.write(ino, 0, at, &block, false) {
                    Ok(n) => at += n as u64,
                    Err(error) if error.is_no_space() => return at,
                    Err(error) => panic!("{error}"),
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Overwrites pages here and there until nothing more fits, or so often.
fn churn(fs: &Fs, ino: Ino, size: u64, times: u64, seed: u64) {
    let mut dice = Dice::new(seed);
    for n in 0..times {
        let at = dice.roll(size / 4096) * 4096;
        let len = (4096 * (1 + dice.roll(16))).min(size - at);
        match fs.write(ino, 0, at, &noise(n, len as usize), false) {
            Ok(_) => {}
            Err(error) if error.is_no_space() => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn available(fs: &Fs) -> u64 {
    fs.pool.space(&fs.pool.default_resiliency()).available
}

const LAYOUTS: [(&str, usize); 6] =
    [("simple", 2), ("mirror", 2), ("mirror:3", 3), ("striped-mirror", 4), ("parity", 3), ("parity:2", 5)];

#[test]
fn a_pool_filled_to_the_last_byte_and_churned_gives_everything_back() {
    for (resiliency, disks) in LAYOUTS {
        let mut rig = Rig::new(resiliency, disks, 64);
        let before = available(rig.fs());
        let ino = rig.fs().t_create(ROOT_INO, "file");
        let size = fill(rig.fs(), ino, 1);
        assert!(size * 50 >= before * 48, "{resiliency}: {size} of {before} were written");
        churn(rig.fs(), ino, size, 2000, 2);
        check::tables(rig.fs());
        rig.fs().unlink(ROOT_INO, b"file").expect("a full pool lets go");
        rig.fs().sync_all().expect("syncs");
        rig.remount();
        for _ in 0..2 {
            rig.fs().store.checkpoint().expect("takes a checkpoint");
        }
        assert!(rig.fs().pool.data_sets().is_empty(), "{resiliency}: all sets are free");
        let after = available(rig.fs());
        assert!(after + 4 * MIB >= before, "{resiliency}: {before} before, {after} after");
    }
}

/// Fills the rest of the pool, and compares with what was promised.
fn keep_word(fs: &Fs, what: &str) {
    let promised = available(fs);
    let more = fs.t_create(ROOT_INO, "more");
    let stored = fill(fs, more, 9);
    let gap = promised.abs_diff(stored);
    let total = fs.pool.space(&fs.pool.default_resiliency()).total;
    assert!(
        gap <= total / 50 + 4 * MIB,
        "{what}: {promised} were promised, {stored} could be written, of {total} in all"
    );
    check::tables(fs);
}

#[test]
fn what_is_shown_as_available_can_be_written_in_an_old_pool() {
    for (resiliency, slabs) in [
        ("mirror", vec![100, 100]),
        ("simple", vec![80, 80]),
        ("parity", vec![80, 80, 80]),
        ("parity", vec![60, 90, 120]),
        ("mirror", vec![60, 90, 120]),
        ("parity:2", vec![60, 60, 60, 60, 60]),
    ] {
        let mut rig = Rig::on(resiliency, &slabs);
        let fs = rig.fs().clone();
        let ino = fs.t_create(ROOT_INO, "file");
        let size = available(&fs) * 3 / 4 / MIB * MIB;
        for at in (0..size).step_by(MIB as usize) {
            fs.t_write(ino, at, &noise(at, MIB as usize));
        }
        fs.sync_all().expect("syncs");
        churn(&fs, ino, size, 300, 3);
        fs.sync_all().expect("syncs");
        // A third of it goes, in pieces of a fraction of a set.
        for at in (0..size).step_by(768 << 10) {
            fs.fallocate(ino, fs.open(ino, OpenFlags::READ_WRITE).expect("opens"), at, 256 << 10, 3)
                .expect("punches");
        }
        fs.sync_all().expect("syncs");
        drop(fs);
        rig.remount();
        keep_word(rig.fs(), &format!("{resiliency} on {slabs:?}"));
    }
}

#[test]
fn what_is_shown_as_available_can_be_written_without_a_member() {
    let mut rig = Rig::on("parity", &[80, 80, 80, 80]);
    let ino = rig.fs().t_create(ROOT_INO, "file");
    let size = available(rig.fs()) / 2 / MIB * MIB;
    for at in (0..size).step_by(MIB as usize) {
        rig.fs().t_write(ino, at, &noise(at, MIB as usize));
    }
    rig.fs().sync_all().expect("syncs");
    churn(rig.fs(), ino, size, 500, 3);
    rig.fs().unmount().expect("unmounts");
    rig.fs = None;
    let pool = rig.sim.open(&[1]).expect("assembles");
    rig.fs = Some(Fs::mount(pool, options(&rig.clock)).expect("mounts"));
    keep_word(rig.fs(), "parity without a member");
}

#[test]
fn a_full_pool_takes_no_more_names_before_its_reserve_is_gone_and_lets_all_go() {
    let mut rig = Rig::mirror();
    let fs = rig.fs().clone();
    let big = fs.t_create(ROOT_INO, "big");
    fill(&fs, big, 1);
    let mut made = 0;
    let value = noise(7, 60_000);
    let error = loop {
        let name = format!("name {made}");
        let outcome = fs.create(ROOT_INO, name.as_bytes(), 0o644, OpenFlags::READ_WRITE, &ROOT).and_then(
            |(attr, handle)| {
                fs.release(attr.ino, handle).expect("closes");
                fs.forget(attr.ino, 1);
                fs.setxattr(attr.ino, b"user.filler", &value, XattrMode::Either)
            },
        );
        match outcome {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
        if made % 16 == 0 {
            rig.clock.advance(Duration::from_secs(31));
            fs.tick();
        }
        assert!(made < 5000, "it never ends");
    };
    assert_eq!(error.errno(), libc::ENOSPC);
    assert!(made > 3, "there is room for some names");
    let names = fs.t_names(ROOT_INO);
    fs.rename(ROOT_INO, b"name 0", ROOT_INO, b"another", RenameMode::Replace).expect("renames go on");
    fs.t_size(big, MIB);
    fs.rename(ROOT_INO, b"another", ROOT_INO, b"name 0", RenameMode::Replace).expect("renames go on");
    for name in names.iter().filter(|name| *name != "." && *name != "..") {
        fs.unlink(ROOT_INO, name.as_bytes()).expect("deletes go on");
    }
    drop(fs);
    rig.remount();
    let again = rig.fs().t_create(ROOT_INO, "again");
    assert!(fill(rig.fs(), again, 2) > 30 * MIB);
}

#[test]
fn sets_go_on_being_filled_after_a_checkpoint_an_unmount_and_a_crash() {
    let mut rig = Rig::new("parity", 3, 64);
    let ino = rig.fs().t_create(ROOT_INO, "file");
    for n in 0..60_u64 {
        rig.fs().t_write(ino, n * 4096, &noise(n, 4096));
        rig.fs().sync_all().expect("syncs");
        match n % 3 {
            0 => rig.fs().store.checkpoint().expect("takes a checkpoint"),
            1 => rig.remount(),
            _ => rig.crash(PowerCut::Lost, n),
        }
    }
    let sets = rig.fs().pool.data_sets().len();
    assert!(sets <= 3, "60 sectors lie in {sets} sets");
}

#[test]
fn writes_wait_for_the_compactor_before_they_find_the_pool_full() {
    let rig = Rig::new("parity", 3, 64);
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    let size = fill(fs, ino, 1);
    // Half of every 64 KiB of it goes: no set is free by itself.
    let handle = fs.open(ino, OpenFlags::READ_WRITE).expect("opens");
    for at in (0..size).step_by(64 << 10) {
        fs.fallocate(ino, handle, at, 32 << 10, 3).expect("punches");
    }
    fs.release(ino, handle).expect("closes");
    fs.sync_all().expect("syncs");
    let more = fs.t_create(ROOT_INO, "more");
    let stored = fill(fs, more, 2);
    assert!(stored >= size / 2 - size / 20, "{stored} after half of {size} was given back");
    check::tables(fs);
    compact_all(fs).expect("compacts");
    check::tables(fs);
}
