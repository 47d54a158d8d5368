//! Truncation, holes, allocation.

use super::*;

#[test]
fn what_was_cut_reads_as_zeros_ever_after() {
    for flush in [false, true] {
        let mut rig = Rig::mirror();
        let ino = rig.fs().t_create(ROOT_INO, "file");
        rig.fs().t_write(ino, 0, &[7; 20_000]);
        if flush {
            rig.fs().sync_all().expect("syncs");
            rig.fs().t_cool();
        }
        rig.fs().t_size(ino, 5_000);
        rig.fs().t_size(ino, 20_000);
        let mut expected = vec![7; 5_000];
        expected.resize(20_000, 0);
        assert!(rig.fs().t_read(ino) == expected);
        // The journal alone is made durable; the zeroed page is dirty still.
        rig.fs().store.sync(rig.fs().store.last_seq()).expect("syncs");
        rig.crash(PowerCut::Lost, 3);
        let got = rig.fs().t_read(ino);
        assert_eq!(got.len(), 20_000);
        assert!(got[5_000..].iter().all(|byte| *byte == 0), "flushed before: {flush}");
        assert!(!flush || got == expected);
        check::tables(rig.fs());
    }
}

#[test]
fn a_flush_in_flight_does_not_bring_back_what_was_cut() {
    let mut rig = Rig::mirror();
    let fs = rig.fs().clone();
    let ino = fs.t_create(ROOT_INO, "file");
    fs.t_write(ino, 0, &[7; 40_000]);
    // By hand: capture, cut, then commit the captured data.
    let node = fs.nodes.peek(ino).expect("in memory");
    let taken = fs.capture_for_test(&node);
    fs.t_size(ino, 10_000);
    fs.t_write(ino, 30_000, b"new");
    fs.finish_for_test(taken);
    fs.t_size(ino, 35_000);
    let mut expected = vec![7; 10_000];
    expected.resize(35_000, 0);
    expected[30_000..30_003].copy_from_slice(b"new");
    assert!(fs.t_read(ino) == expected);
    fs.store.sync(fs.store.last_seq()).expect("syncs");
    drop((node, fs));
    rig.crash(PowerCut::Lost, 3);
    let got = rig.fs().t_read(ino);
    assert!(got[10_000..].iter().all(|byte| *byte == 0 || b"new".contains(byte)), "cut bytes are back");
}

#[test]
fn an_overwrite_during_a_flush_stays_dirty() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    fs.t_write(ino, 0, &[1; 8192]);
    let node = fs.nodes.peek(ino).expect("in memory");
    let taken = fs.capture_for_test(&node);
    fs.t_write(ino, 4096, &[2; 4096]);
    fs.fsync(ino, true).expect("through the journal");
    fs.finish_for_test(taken);
    assert_eq!(fs.cache.dirty_bytes_of(ino), 4096);
    assert!(fs.store.data_seq(ino) > 0, "the newer journaled data is alive");
    fs.sync_all().expect("syncs");
    assert_eq!(fs.store.data_seq(ino), 0);
    fs.t_cool();
    let data = fs.t_read(ino);
    assert!(data[..4096] == [1; 4096] && data[4096..] == [2; 4096]);
    check::tables(fs);
}

#[test]
fn holes_are_punched_and_ranges_zeroed() {
    let mut rig = Rig::mirror();
    let ino = rig.fs().t_create(ROOT_INO, "file");
    let mut model = noise(8, 100_000);
    rig.fs().t_write(ino, 0, &model);
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    for (round, (from, len)) in [(1000, 500), (5000, 30_000), (40_960, 8192)].into_iter().enumerate() {
        rig.fs().fallocate(ino, 0, from as u64, len as u64, punch).expect("punches");
        model[from..from + len].fill(0);
        assert!(rig.fs().t_read(ino) == model);
        rig.fs().sync_all().expect("syncs");
        if round == 1 {
            rig.fs().t_cool();
        }
    }
    let blocks = rig.fs().getattr(ino).expect("there").blocks;
    assert_eq!(blocks, (25 - 6 - 2) * 8);
    rig.fs().fallocate(ino, 0, 60_000, 60_000, libc::FALLOC_FL_ZERO_RANGE).expect("zeroes");
    model.resize(120_000, 0);
    model[60_000..].fill(0);
    rig.remount();
    assert!(rig.fs().t_read(ino) == model);
    assert_eq!(rig.fs().lseek(ino, 0, 0, Whence::Hole).expect("hole"), 8192);
    assert_eq!(rig.fs().lseek(ino, 0, 8192, Whence::Data).expect("data"), 32_768);
}

#[test]
fn allocation_counts_keeps_or_grows_the_size_and_holds_room() {
    let rig = Rig::new("mirror", 2, 24);
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    fs.fallocate(ino, 0, 0, 2 * MIB, libc::FALLOC_FL_KEEP_SIZE).expect("allocates");
    let attr = fs.getattr(ino).expect("there");
    assert_eq!((attr.size, attr.blocks), (0, 4096));
    fs.fallocate(ino, 0, 0, MIB, 0).expect("allocates");
    assert_eq!(fs.getattr(ino).expect("there").size, MIB);
    assert_eq!(fs.lseek(ino, 0, 0, Whence::Hole).expect("unwritten is a hole"), 0);
    // The pool fills up; the promised room is still there.
    let big = fs.t_create(ROOT_INO, "big");
    let block = noise(1, 1 << 18);
    let mut at = 0;
    while let Ok(n) = fs.write(big, 0, at, &block, false) {
        at += n as u64;
    }
    for n in 0..8 {
        fs.t_write(ino, n << 18, &block);
    }
    fs.sync_all().expect("syncs");
    assert_eq!(fs.getattr(ino).expect("there").blocks, 4096);
    check::tables(fs);
    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE, libc::FALLOC_FL_PUNCH_HOLE] {
        assert_eq!(errno(fs.fallocate(ino, 0, 0, 4096, mode)), libc::EOPNOTSUPP);
    }
    assert_eq!(errno(fs.fallocate(ino, 0, 0, 0, 0)), libc::EINVAL);
    assert_eq!(errno(fs.fallocate(ino, 0, u64::MAX - 1, 4096, 0)), libc::EFBIG);
}

#[test]
fn a_long_map_is_cut_in_several_records() {
    let mut rig = Rig::new("mirror", 2, 128);
    let fs = rig.fs();
    let (keep, gone) = (fs.t_create(ROOT_INO, "keep"), fs.t_create(ROOT_INO, "gone"));
    for ino in [keep, gone] {
        for n in 0..2_000 {
            fs.t_write(ino, n * 8192, &[n as u8; 100]);
        }
    }
    fs.sync_all().expect("syncs");
    fs.t_size(keep, 50);
    assert_eq!(fs.getattr(keep).expect("there").blocks, 8);
    fs.unlink(ROOT_INO, b"gone").expect("unlinks");
    check::tables(fs);
    rig.remount();
    assert_eq!(rig.fs().t_read(keep), [0; 50]);
}

#[test]
fn recovery_finishes_a_cut_of_several_records() {
    use crate::store::Tx;
    use crate::store::tables::{Inode, Intent, Table, ino_key};
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    fs.t_write(ino, 0, &noise(1, 300_000));
    fs.sync_all().expect("syncs");
    // The first record of a long cut, and then the power goes.
    let inode: Inode = fs.store.read(Table::Inodes, &ino_key(ino)).expect("reads").expect("there");
    let mut tx = Tx::new();
    tx.put(Table::Inodes, ino_key(ino), &Inode { size: 4096, ..inode });
    tx.put(Table::Intents, ino_key(ino), &Intent::CutMap { from: 4096 });
    fs.store.commit(tx).expect("commits");
    fs.sync_all().expect("syncs");
    rig.fs = None;
    rig.sim.world.power_cut(PowerCut::Lost, 1);
    // Read-only, what is cut reads as gone; read-write, it goes.
    let assemble = crate::pool::AssembleOptions { read_only: true, threads: false, ..Default::default() };
    let pool = rig.sim.assemble(&[], &assemble).expect("assembles");
    let fs = Fs::mount(pool, options(&rig.clock)).expect("mounts");
    let mut buf = [1; 4096];
    fs.load_range(ino, 8192, &mut buf).expect("loads");
    assert_eq!(buf, [0; 4096]);
    drop(fs);
    rig.mount();
    check::tables(rig.fs());
    assert!(rig.fs().t_read(ino) == noise(1, 300_000)[..4096]);
    assert_eq!(rig.fs().getattr(ino).expect("there").blocks, 8);
}

#[test]
fn a_truncation_that_nothing_follows_is_committed_in_the_end() {
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "log");
    fs.t_write(ino, 0, &noise(1, 300_000));
    fs.sync_all().expect("syncs");
    // As a log is rotated: cut while another has it open.
    fs.open(ino, OpenFlags::READ_WRITE).expect("opens");
    fs.t_size(ino, 0);
    fs.tick();
    assert_eq!(fs.replacing.lock().len(), 1);
    rig.clock.advance(Duration::from_secs(31));
    fs.tick();
    fs.tick();
    assert!(fs.replacing.lock().is_empty());
    rig.crash(PowerCut::Lost, 1);
    assert!(rig.fs().t_read(ino).is_empty());
}

#[test]
fn a_replaced_file_has_its_old_or_its_new_content() {
    let mut rig = Rig::mirror();
    let fs = rig.fs().clone();
    let ino = fs.t_create(ROOT_INO, "config");
    let (old, new) = (noise(1, 50_000), noise(2, 30_000));
    fs.t_write(ino, 0, &old);
    fs.sync_all().expect("syncs");
    let flags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
    let handle = fs.open(ino, flags).expect("opens");
    assert_eq!(fs.getattr(ino).expect("there").size, 0);
    fs.t_write(ino, 0, &new[..10_000]);
    fs.tick();
    fs.store.sync(fs.store.last_seq()).expect("syncs");
    rig.clock.advance(Duration::from_secs(10));
    fs.tick();
    assert!(fs.t_read(ino) == new[..10_000]);
    drop(fs);
    rig.crash(PowerCut::Lost, 9);
    assert!(rig.fs().t_read(ino) == old, "not closed yet: the old content");
    let fs = rig.fs().clone();
    let again = fs.open(ino, flags).expect("opens");
    assert_ne!(handle, 0);
    fs.t_write(ino, 0, &new);
    fs.release(ino, again).expect("closes");
    fs.tick();
    check::tables(&fs);
    drop(fs);
    rig.crash(PowerCut::Lost, 10);
    assert!(rig.fs().t_read(ino) == new, "closed, and a tick later");
}

#[test]
fn a_checkpoint_leaves_a_file_alone_that_is_being_replaced() {
    let mut rig = Rig::mirror();
    let fs = rig.fs().clone();
    let ino = fs.t_create(ROOT_INO, "config");
    let old = noise(1, 50_000);
    fs.t_write(ino, 0, &old);
    fs.fsync(ino, false).expect("goes to the journal");
    rig.clock.advance(Duration::from_secs(25));
    fs.open(ino, OpenFlags { truncate: true, ..OpenFlags::READ_WRITE }).expect("opens");
    fs.t_write(ino, 0, b"half of the new content");
    rig.clock.advance(Duration::from_secs(6));
    assert!(fs.store.checkpoint_due());
    fs.tick();
    drop(fs);
    rig.crash(PowerCut::Lost, 9);
    assert!(rig.fs().t_read(ino) == old);
}

#[test]
fn a_rename_takes_the_data_with_it() {
    for len in [10_000, 1_500_000] {
        let mut rig = Rig::mirror();
        let fs = rig.fs();
        let old = fs.t_create(ROOT_INO, "name");
        fs.t_write(old, 0, b"old");
        fs.sync_all().expect("syncs");
        let new = fs.t_create(ROOT_INO, "name.tmp");
        let data = noise(3, len);
        fs.t_write(new, 0, &data);
        fs.rename(ROOT_INO, b"name.tmp", ROOT_INO, b"name", RenameMode::Replace).expect("renames");
        fs.store.sync(fs.store.last_seq()).expect("the journal alone");
        rig.crash(PowerCut::Lost, 4);
        let ino = rig.fs().t_find(ROOT_INO, "name").expect("there");
        assert!(rig.fs().t_read(ino) == data, "{len}");
        assert_eq!(rig.fs().t_names(ROOT_INO), [".", "..", "name"]);
    }
}

#[test]
fn a_growing_log_journals_each_page_once() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "log");
    for n in 0..40_u64 {
        fs.t_write(ino, n * 4096, &[n as u8; 4096]);
        let before = fs.store.last_seq();
        fs.fsync(ino, true).expect("syncs");
        assert!(fs.store.last_seq() > before);
    }
    // All forty pages are in the journal; not forty times forty.
    assert!(fs.store.data_fits(rig.sim.world.dimensions().ring_bytes / 4 - 41 * 4096));
}
