//! Reading, writing, attributes, space.

use super::*;

#[test]
fn what_is_written_is_read_from_memory_and_from_disk() {
    let mut rig = Rig::mirror();
    let ino = rig.fs().t_create(ROOT_INO, "file");
    let data = noise(1, 3 * 1024 * 1024 + 777);
    rig.fs().t_write(ino, 0, &data);
    assert!(rig.fs().t_read(ino) == data);
    rig.fs().sync_all().expect("syncs");
    rig.fs().t_cool();
    assert!(rig.fs().t_read(ino) == data);
    let blocks = rig.fs().getattr(ino).expect("there").blocks;
    assert_eq!(blocks, (data.len() as u64).div_ceil(4096) * 8);
    rig.remount();
    let ino = rig.fs().t_find(ROOT_INO, "file").expect("there");
    assert!(rig.fs().t_read(ino) == data);
}

#[test]
fn small_writes_over_flushed_data_are_merged() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    let mut model = noise(2, 200_000);
    fs.t_write(ino, 0, &model);
    for round in 0..30_usize {
        fs.sync_all().expect("syncs");
        fs.t_cool();
        let (at, patch) = (round * 6151 % 190_000, noise(round as u64, 1 + round * 37));
        fs.t_write(ino, at as u64, &patch);
        model[at..at + patch.len()].copy_from_slice(&patch);
        assert!(fs.t_read(ino) == model, "round {round}");
    }
    fs.sync_all().expect("syncs");
    check::tables(fs);
}

#[test]
fn a_hole_reads_as_zeros_and_lseek_finds_the_data() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "sparse");
    fs.t_write(ino, 1_000_000, b"far");
    let seek = |offset, whence| fs.lseek(ino, 0, offset, whence);
    for _ in 0..2 {
        // In memory only, and then from the map.
        assert_eq!(seek(0, Whence::Data).expect("data"), 1_000_000 / 4096 * 4096);
        assert_eq!(seek(0, Whence::Hole).expect("hole"), 0);
        assert_eq!(seek(1_000_000, Whence::Hole).expect("end"), 1_000_003);
        assert_eq!(errno(seek(1_000_003, Whence::Data)), libc::ENXIO);
        fs.sync_all().expect("syncs");
    }
    let data = fs.t_read(ino);
    assert!(data[..1_000_000].iter().all(|byte| *byte == 0) && data[1_000_000..] == *b"far");
    assert_eq!(fs.getattr(ino).expect("there").blocks, 8);
}

#[test]
fn times_go_from_before_1970_to_after_2106() {
    let mut rig = Rig::mirror();
    let ino = rig.fs().t_create(ROOT_INO, "old");
    let at = |seconds, nanos| crate::sync::Timestamp { seconds, nanos };
    let (early, late) = (at(-86_400 * 365 * 100, 999_999_999), at(5_000_000_000, 1));
    let change =
        SetAttr { atime: Some(TimeSet::At(early)), mtime: Some(TimeSet::At(late)), ..SetAttr::default() };
    rig.fs().setattr(ino, &change, &ROOT).expect("sets");
    rig.remount();
    let attr = rig.fs().getattr(ino).expect("there");
    assert_eq!((attr.atime, attr.mtime), (early, late));
}

#[test]
fn times_follow_what_happens() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    let tick = || rig.clock.advance(Duration::from_secs(10));
    tick();
    fs.t_write(ino, 0, b"x");
    let written = fs.getattr(ino).expect("there");
    assert!(written.mtime > written.atime && written.ctime == written.mtime);
    tick();
    fs.t_read(ino);
    let read = fs.getattr(ino).expect("there");
    assert!(read.atime > read.mtime && read.mtime == written.mtime);
    tick();
    fs.t_read(ino);
    assert_eq!(fs.getattr(ino).expect("there").atime, read.atime, "relatime: once for each change");
    rig.clock.advance(Duration::from_secs(100_000));
    fs.t_read(ino);
    assert!(fs.getattr(ino).expect("there").atime > read.atime, "and once a day");
    let dir = fs.getattr(ROOT_INO).expect("there").mtime;
    tick();
    fs.t_create(ROOT_INO, "another");
    assert!(fs.getattr(ROOT_INO).expect("there").mtime > dir);
}

#[test]
fn privileges_are_dropped_by_writers_and_new_owners() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "suid");
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let now = || fs.getattr(ino).expect("there").mode & 0o7777;
    fs.setattr(ino, &mode(0o6755), &ROOT).expect("sets");
    fs.setxattr(ino, b"security.capability", b"all", XattrMode::Create).expect("sets");
    fs.write(ino, 0, 0, b"by root", false).expect("writes");
    assert_eq!(now(), 0o6755);
    fs.write(ino, 0, 0, b"by you", true).expect("writes");
    assert_eq!(now(), 0o755);
    assert_eq!(errno(fs.getxattr(ino, b"security.capability")), libc::ENODATA);
    fs.setattr(ino, &mode(0o4755), &ROOT).expect("sets");
    fs.setattr(ino, &SetAttr { uid: Some(7), ..SetAttr::default() }, &ROOT).expect("sets");
    assert_eq!(now(), 0o755);
    fs.setattr(ino, &mode(0o4755), &ROOT).expect("sets");
    let caller = Caller { uid: 7, gid: 7 };
    fs.setattr(ino, &SetAttr { size: Some(1), ..SetAttr::default() }, &caller).expect("cuts");
    assert_eq!(now(), 0o755);
}

#[test]
fn attributes_are_stored_as_they_are() {
    let mut rig = Rig::mirror();
    let ino = rig.fs().t_create(ROOT_INO, "file");
    let fs = rig.fs();
    let big = noise(3, 64 * 1024);
    fs.setxattr(ino, b"user.big", &big, XattrMode::Create).expect("sets");
    fs.setxattr(ino, b"user.a", b"", XattrMode::Either).expect("sets");
    assert_eq!(errno(fs.setxattr(ino, b"user.a", b"2", XattrMode::Create)), libc::EEXIST);
    assert_eq!(errno(fs.setxattr(ino, b"user.b", b"2", XattrMode::Replace)), libc::ENODATA);
    assert_eq!(errno(fs.setxattr(ino, b"user.c", &[0; 65_537], XattrMode::Either)), libc::E2BIG);
    assert_eq!(errno(fs.setxattr(ino, b"other.c", b"", XattrMode::Either)), libc::EOPNOTSUPP);
    rig.remount();
    let fs = rig.fs();
    assert_eq!(fs.listxattr(ino).expect("lists"), b"user.a\0user.big\0");
    assert!(fs.getxattr(ino, b"user.big").expect("there") == big);
    fs.removexattr(ino, b"user.big").expect("removes");
    assert_eq!(errno(fs.removexattr(ino, b"user.big")), libc::ENODATA);
    fs.unlink(ROOT_INO, b"file").expect("unlinks");
    check::tables(fs);
}

#[test]
fn a_full_pool_refuses_the_write_that_does_not_fit_and_deleting_helps() {
    let rig = Rig::new("mirror", 2, 24);
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "big");
    let block = noise(4, 256 * 1024);
    let mut at = 0;
    let error = loop {
        match fs.write(ino, 0, at, &block, false) {
            Ok(n) => at += n as u64,
            Err(error) => break error,
        }
        assert!(at < 64 * MIB, "it never gets full");
    };
    assert_eq!(error.errno(), libc::ENOSPC);
    assert!(at > 8 * MIB, "only {at} bytes fitted");
    fs.sync_all().expect("everything that was taken can be written");
    let small = fs.t_create(ROOT_INO, "note");
    fs.unlink(ROOT_INO, b"big").expect("unlinks on a full pool");
    fs.tick();
    fs.t_write(small, 0, &block);
    fs.sync_all().expect("syncs");
    check::tables(fs);
}

#[test]
fn a_pool_full_of_names_refuses_more_and_deleting_helps() {
    let mut rig = Rig::new("mirror", 2, 16);
    for round in 0..2 {
        let mut made = Vec::new();
        let fs = rig.fs().clone();
        let error = loop {
            let name = format!("{round}-{}-with-a-long-name-{:0100}", made.len(), 0);
            match fs.mknod(ROOT_INO, name.as_bytes(), 0o644, 0, &ROOT) {
                Ok(attr) => fs.forget(attr.ino, 1),
                Err(error) => break error,
            }
            made.push(name);
            if made.len() % 64 == 0 {
                fs.tick();
            }
            assert!(made.len() < 40_000, "it never gets full");
        };
        assert_eq!(error.errno(), libc::ENOSPC);
        assert!(made.len() > 2_000, "only {} names fitted", made.len());
        drop(fs);
        rig.remount();
        let fs = rig.fs().clone();
        for (index, name) in made.iter().enumerate() {
            fs.unlink(ROOT_INO, name.as_bytes()).expect("unlinks on a full pool");
            if index % 64 == 0 {
                fs.tick();
            }
        }
        fs.t_create(ROOT_INO, &format!("after {round}"));
        drop(fs);
        rig.remount();
    }
}

#[test]
fn reservations_are_given_back() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let available = || fs.statfs(ROOT_INO).expect("there").available;
    for n in 0..2 {
        // The first time the pool may make room for its metadata.
        let ino = fs.t_create(ROOT_INO, "file");
        fs.sync_all().expect("syncs");
        let before = available();
        for round in 0..5 {
            fs.t_write(ino, round * 100_000, &noise(round, 300_000));
            assert!(available() < before, "dirty data takes room");
            fs.t_size(ino, 0);
        }
        fs.t_write(ino, 0, &noise(9, 100_000));
        fs.fallocate(ino, 0, 0, 500_000, 0).expect("allocates");
        assert!(available() <= before - 500_000 / 4096);
        fs.unlink(ROOT_INO, b"file").expect("unlinks");
        fs.tick();
        assert!(n == 0 || available() == before);
    }
}

#[test]
fn write_through_is_durable_at_once() {
    for cache in [WriteCache::Writethrough, WriteCache::Off] {
        let mut rig = Rig::mirror();
        rig.fs = None;
        let pool = rig.sim.open(&[]).expect("assembles");
        let options = FsOptions { write_cache: cache, ..options(&rig.clock) };
        rig.fs = Some(Fs::mount(pool, options).expect("mounts"));
        let ino = rig.fs().t_create(ROOT_INO, "file");
        let data = noise(5, 600_000);
        assert_eq!(rig.fs().try_write(ino, 0, 0, &data, false).expect("asks"), WriteOutcome::MustWait);
        rig.fs().t_write(ino, 0, &data);
        rig.crash(PowerCut::Lost, 5);
        assert!(rig.fs().t_read(ino) == data);
    }
}

#[test]
fn a_read_only_pool_takes_no_changes_and_shows_journaled_data() {
    let mut rig = Rig::mirror();
    let ino = rig.fs().t_create(ROOT_INO, "file");
    rig.fs().t_write(ino, 0, b"through the journal");
    rig.fs().fsync(ino, true).expect("syncs");
    rig.fs = None;
    rig.sim.world.power_cut(PowerCut::Lost, 1);
    let assemble = crate::pool::AssembleOptions { read_only: true, threads: false, ..Default::default() };
    let pool = rig.sim.assemble(&[], &assemble).expect("assembles");
    let fs = Fs::mount(pool, options(&rig.clock)).expect("mounts");
    assert_eq!(fs.t_read(ino), b"through the journal");
    assert_eq!(errno(fs.write(ino, 0, 0, b"x", false)), libc::EROFS);
    assert_eq!(errno(fs.mkdir(ROOT_INO, b"d", 0o755, &ROOT)), libc::EROFS);
    assert_eq!(errno(fs.open(ino, OpenFlags::READ_WRITE)), libc::EROFS);
    fs.unmount().expect("unmounts");
}

#[test]
fn copies_within_the_pool() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let (from, to) = (fs.t_create(ROOT_INO, "from"), fs.t_create(ROOT_INO, "to"));
    let data = noise(6, 3_000_000);
    fs.t_write(from, 0, &data);
    let copied = fs.copy_file_range((from, 0, 1000), (to, 0, 7), 10_000_000).expect("copies");
    assert_eq!(copied, 2_999_000);
    assert!(fs.t_read(to)[7..] == data[1000..]);
    assert_eq!(errno(fs.copy_file_range((from, 0, 0), (from, 0, 10), 20)), libc::EINVAL);
}
