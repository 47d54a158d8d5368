//! Small files: content in a table, and the way out of it.

use super::*;
use crate::limits::INLINE_MAX_BYTES;
use crate::store::Tx;
use crate::store::tables::{Table, ino_key, map_key};

const LIMIT: usize = INLINE_MAX_BYTES as usize;
const TRUNCATE: OpenFlags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };

impl Fs {
    fn t_row(&self, ino: Ino) -> Option<Vec<u8>> {
        self.store.get(Table::Inline, &ino_key(ino)).expect("reads")
    }

    fn t_segments(&self, ino: Ino) -> usize {
        let (from, to) = (map_key(ino, 0), map_key(ino + 1, 0));
        self.store.scan(Table::Map, &from, &to, usize::MAX).expect("scans").len()
    }

    /// A flushed file with this content.
    fn t_small(&self, name: &str, content: &[u8]) -> Ino {
        let ino = self.t_create(ROOT_INO, name);
        self.t_write(ino, 0, content);
        self.sync_all().expect("syncs");
        assert_eq!(self.t_row(ino).as_deref(), Some(content));
        ino
    }

    fn t_rewrite(&self, ino: Ino, content: &[u8]) {
        let handle = self.open(ino, TRUNCATE).expect("opens");
        self.t_write(ino, 0, content);
        self.release(ino, handle).expect("closes");
    }
}

/// The same content from the cache, from the members, after a remount, and after a power cut.
fn reads_everywhere(rig: &mut Rig, ino: Ino, content: &[u8]) {
    for step in ["cached", "cold", "mounted again", "after a power cut"] {
        match step {
            "cold" => rig.fs().t_cool(),
            "mounted again" => rig.remount(),
            "after a power cut" => rig.crash(PowerCut::Lost, 7),
            _ => rig.fs().fsync(ino, false).expect("syncs"),
        }
        assert!(rig.fs().t_read(ino) == content, "{step}");
        check::tables(rig.fs());
    }
}

#[test]
fn a_small_file_takes_a_row_and_no_stripe() {
    let mut rig = Rig::mirror();
    for len in [1, 100, LIMIT - 1, LIMIT] {
        let content = noise(len as u64, len);
        let ino = rig.fs().t_small(&format!("f{len}"), &content);
        let attr = rig.fs().getattr(ino).expect("there");
        assert_eq!((attr.size, attr.blocks), (len as u64, 8));
        assert!(!rig.fs().cache.has_dirty(ino));
        reads_everywhere(&mut rig, ino, &content);
    }
    let larger = rig.fs().t_create(ROOT_INO, "larger");
    rig.fs().t_write(larger, 0, &noise(9, LIMIT + 1));
    rig.fs().sync_all().expect("syncs");
    assert_eq!((rig.fs().t_row(larger), rig.fs().t_segments(larger)), (None, 1));
    let extents = rig.fs().store.scan(Table::Extents, &[], &[0xff; 9], 99).expect("scans");
    assert_eq!(extents.len(), 1, "the larger one's");
}

#[test]
fn an_fsync_leaves_nothing_dirty_and_no_data_in_the_journal() {
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "log");
    let mut content = Vec::new();
    for n in 0..40_u8 {
        fs.t_write(ino, content.len() as u64, &[n; 100]);
        content.extend([n; 100]);
        fs.fsync(ino, n % 2 == 0).expect("syncs");
        if content.len() <= LIMIT {
            assert_eq!((fs.store.data_seq(ino), fs.cache.dirty_bytes_of(ino)), (0, 0));
        }
    }
    drop(rig.fs.take());
    rig.crash(PowerCut::Lost, 1);
    assert!(rig.fs().t_read(ino) == content);
}

#[test]
fn many_small_files_share_transactions_and_the_log_suffices() {
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    // More rows than the ring of 8 MiB holds.
    let content = |n: usize| noise(n as u64, 1500 + n % 500);
    let mut inos = Vec::new();
    for batch in 0..10 {
        let fresh: Vec<Ino> =
            (0..1000).map(|n| fs.t_create(ROOT_INO, &format!("f{}", batch * 1000 + n))).collect();
        for (n, ino) in fresh.iter().enumerate() {
            fs.t_write(*ino, 0, &content(batch * 1000 + n));
        }
        let before = fs.store.last_seq();
        fs.sync_all().expect("syncs");
        let records = fs.store.last_seq() - before;
        assert!(records < 30, "{records} records for 1000 files");
        inos.extend(fresh);
    }
    rig.crash(PowerCut::Lost, 1);
    for (n, ino) in inos.iter().enumerate() {
        assert!(rig.fs().t_read(*ino) == content(n), "file {n}");
    }
}

#[test]
fn a_file_that_grows_moves_to_an_extent() {
    let mut rig = Rig::mirror();
    let mut content = noise(1, 1000);
    let ino = rig.fs().t_small("file", &content);
    rig.fs().t_write(ino, 1000, &noise(2, 2000));
    content.extend(noise(2, 2000));
    rig.fs().fsync(ino, false).expect("goes to the journal");
    assert!(rig.fs().t_row(ino).is_some(), "the old content is still there");
    rig.fs().sync_all().expect("syncs");
    assert_eq!((rig.fs().t_row(ino), rig.fs().t_segments(ino)), (None, 1));
    assert_eq!(rig.fs().getattr(ino).expect("there").blocks, 8);
    reads_everywhere(&mut rig, ino, &content);
}

#[test]
fn a_file_that_grows_elsewhere_keeps_its_row_until_its_first_sector_is_written() {
    let mut rig = Rig::mirror();
    let mut content = noise(1, 1000);
    let ino = rig.fs().t_small("file", &content);
    rig.fs().t_write(ino, 9000, b"far away");
    content.resize(9000, 0);
    content.extend(b"far away");
    rig.fs().sync_all().expect("syncs");
    assert!(rig.fs().t_row(ino).is_some());
    assert_eq!(rig.fs().getattr(ino).expect("there").blocks, 16);
    reads_everywhere(&mut rig, ino, &content);
    let seek = |whence, at| rig.fs().lseek(ino, 0, at, whence).expect("finds");
    assert_eq!((seek(Whence::Data, 0), seek(Whence::Hole, 0)), (0, 4096));
    assert_eq!((seek(Whence::Data, 4096), seek(Whence::Hole, 8192)), (8192, 9008));
    rig.fs().t_write(ino, 10, b"near");
    content[10..14].copy_from_slice(b"near");
    rig.fs().sync_all().expect("syncs");
    assert_eq!(rig.fs().t_row(ino), None);
    reads_everywhere(&mut rig, ino, &content);
}

#[test]
fn truncation_cuts_a_row() {
    let mut rig = Rig::mirror();
    let content = noise(1, 1500);
    for (index, sizes) in
        [&[700, 1500][..], &[0, 1500], &[700, 9000, 100], &[9000], &[4096, 10], &[1500]].iter().enumerate()
    {
        for flush in [false, true] {
            let ino = rig.fs().t_small(&format!("f{index}{flush}"), &content);
            rig.fs().t_cool();
            let mut expected = content.clone();
            for size in *sizes {
                rig.fs().t_size(ino, *size as u64);
                expected.resize(*size, 0);
                assert!(rig.fs().t_read(ino) == expected, "{sizes:?} at {size}");
                if flush {
                    rig.fs().sync_all().expect("syncs");
                    rig.fs().t_cool();
                }
                check::tables(rig.fs());
            }
            reads_everywhere(&mut rig, ino, &expected);
        }
    }
}

#[test]
fn a_flush_in_flight_does_not_bring_back_what_was_cut_from_a_row() {
    let mut rig = Rig::mirror();
    let fs = rig.fs().clone();
    let ino = fs.t_create(ROOT_INO, "file");
    fs.t_write(ino, 0, &[7; 1500]);
    let node = fs.nodes.peek(ino).expect("in memory");
    let taken = fs.capture_for_test(&node);
    fs.t_size(ino, 500);
    fs.t_size(ino, 1200);
    fs.finish_for_test(taken);
    let mut expected = vec![7; 500];
    expected.resize(1200, 0);
    assert!(fs.t_read(ino) == expected);
    check::tables(&fs);
    fs.store.sync(fs.store.last_seq()).expect("syncs");
    drop((node, fs));
    rig.crash(PowerCut::Lost, 3);
    assert!(rig.fs().t_read(ino) == expected);
}

#[test]
fn what_outgrows_its_row_during_the_flush_stays_dirty() {
    let mut rig = Rig::mirror();
    let fs = rig.fs().clone();
    let ino = fs.t_create(ROOT_INO, "file");
    fs.t_write(ino, 0, &[7; 1500]);
    let node = fs.nodes.peek(ino).expect("in memory");
    let taken = fs.capture_for_test(&node);
    fs.t_write(ino, 1500, &[8; 1500]);
    fs.finish_for_test(taken);
    assert_eq!((fs.t_row(ino), fs.cache.dirty_bytes_of(ino)), (None, 4096));
    drop((node, fs));
    let expected = [[7; 1500], [8; 1500]].concat();
    reads_everywhere(&mut rig, ino, &expected);
}

#[test]
fn a_flush_in_flight_does_not_end_a_replacement() {
    for (old, newer, new) in [(500, 600, 700), (50_000, 60_000, 500), (500, 60_000, 60_000)] {
        let mut rig = Rig::mirror();
        let fs = rig.fs().clone();
        let ino = fs.t_create(ROOT_INO, "config");
        let old = noise(1, old);
        fs.t_write(ino, 0, &old);
        fs.sync_all().expect("syncs");
        fs.t_write(ino, 0, &noise(2, newer));
        let node = fs.nodes.peek(ino).expect("in memory");
        let taken = fs.capture_for_test(&node);
        let handle = fs.open(ino, TRUNCATE).expect("opens");
        fs.t_write(ino, 0, &noise(3, new));
        fs.finish_for_test(taken);
        fs.store.sync(fs.store.last_seq()).expect("syncs");
        assert!(fs.t_read(ino) == noise(3, new));
        fs.release(ino, handle).expect("closes");
        drop((node, fs));
        rig.crash(PowerCut::Lost, 3);
        assert!(rig.fs().t_read(ino) == old, "the old content, whole");
    }
}

#[test]
fn a_row_is_punched_zeroed_and_sought() {
    let mut rig = Rig::mirror();
    let mut content = noise(1, 2000);
    let ino = rig.fs().t_small("file", &content);
    rig.fs().t_cool();
    assert_eq!(rig.fs().lseek(ino, 0, 5, Whence::Data).expect("data"), 5);
    assert_eq!(rig.fs().lseek(ino, 0, 5, Whence::Hole).expect("the end"), 2000);
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    rig.fs().fallocate(ino, 0, 100, 200, libc::FALLOC_FL_PUNCH_HOLE | keep).expect("punches");
    content[100..300].fill(0);
    assert!(rig.fs().t_read(ino) == content);
    reads_everywhere(&mut rig, ino, &content);
    rig.fs().fallocate(ino, 0, 500, 100, libc::FALLOC_FL_ZERO_RANGE | keep).expect("zeroes");
    content[500..600].fill(0);
    assert!(rig.fs().t_read(ino) == content);
    reads_everywhere(&mut rig, ino, &content);
    let whole = rig.fs().t_small("whole", &noise(2, 2000));
    rig.fs().fallocate(whole, 0, 0, 8192, libc::FALLOC_FL_PUNCH_HOLE | keep).expect("punches");
    assert_eq!((rig.fs().t_row(whole), rig.fs().getattr(whole).expect("there").blocks), (None, 0));
    reads_everywhere(&mut rig, whole, &[0; 2000]);
}

#[test]
fn fallocate_keeps_the_content() {
    for (flushed, offset, len) in
        [(true, 0, 100), (false, 0, 100_000), (true, 1000, 9000), (true, 8192, 4096)]
    {
        let mut rig = Rig::mirror();
        let mut content = noise(1, 900);
        let ino = rig.fs().t_small("file", &content);
        if !flushed {
            rig.fs().t_write(ino, 900, &noise(2, 600));
            content.extend(noise(2, 600));
        }
        rig.fs().t_cool();
        rig.fs().fallocate(ino, 0, offset, len, libc::FALLOC_FL_KEEP_SIZE).expect("allocates");
        assert!(rig.fs().t_read(ino) == content);
        check::tables(rig.fs());
        rig.fs().store.sync(rig.fs().store.last_seq()).expect("the journal alone");
        rig.crash(PowerCut::Lost, 5);
        let found = rig.fs().t_read(ino);
        assert!(found[..900] == content[..900] && found.len() >= 900);
        rig.fs().t_write(ino, 0, &content);
        reads_everywhere(&mut rig, ino, &content);
        assert!(rig.fs().t_row(ino).is_none(), "it has a map, so no row");
    }
}

#[test]
fn a_small_file_is_replaced_copied_and_deleted() {
    let mut rig = Rig::mirror();
    let ino = rig.fs().t_small("config", &noise(1, 1000));
    for len in [500, 60_000, 700] {
        rig.fs().t_rewrite(ino, &noise(len as u64, len));
        assert!(rig.fs().t_read(ino) == noise(len as u64, len));
        rig.fs().tick();
        check::tables(rig.fs());
        assert_eq!(rig.fs().t_row(ino).is_some(), len <= LIMIT);
        reads_everywhere(&mut rig, ino, &noise(len as u64, len));
    }
    let copy = rig.fs().t_create(ROOT_INO, "copy");
    assert_eq!(rig.fs().copy_file_range((ino, 0, 0), (copy, 0, 0), 9999).expect("copies"), 700);
    reads_everywhere(&mut rig, copy, &noise(700, 700));
    // Onto a row, from a large file, as whole sectors.
    let large = rig.fs().t_create(ROOT_INO, "large");
    rig.fs().t_write(large, 0, &noise(5, 8192));
    rig.fs().sync_all().expect("syncs");
    assert_eq!(rig.fs().copy_file_range((large, 0, 0), (copy, 0, 0), 8192).expect("copies"), 8192);
    reads_everywhere(&mut rig, copy, &noise(5, 8192));
    // From a row that is the head of a larger file.
    let headed = rig.fs().t_small("headed", &noise(6, 1000));
    rig.fs().t_write(headed, 4096, &noise(7, 8192));
    rig.fs().sync_all().expect("syncs");
    assert!(rig.fs().t_row(headed).is_some());
    let onto = rig.fs().t_small("onto", &noise(8, 2000));
    assert_eq!(rig.fs().copy_file_range((headed, 0, 0), (onto, 0, 0), 12_288).expect("copies"), 12_288);
    let whole = [&noise(6, 1000)[..], &[0; 3096], &noise(7, 8192)].concat();
    assert!(rig.fs().t_read(onto) == whole);
    reads_everywhere(&mut rig, onto, &whole);
    reads_everywhere(&mut rig, headed, &whole);
    // A hole onto a row.
    let holed = rig.fs().t_create(ROOT_INO, "holed");
    rig.fs().t_size(holed, 8192);
    let onto = rig.fs().t_small("onto-too", &noise(9, 2000));
    assert_eq!(rig.fs().copy_file_range((holed, 0, 0), (onto, 0, 0), 8192).expect("copies"), 8192);
    reads_everywhere(&mut rig, onto, &[0; 8192]);
    rig.fs().unlink(ROOT_INO, b"config").expect("unlinks");
    assert_eq!(rig.fs().t_row(ino), None);
    rig.remount();
}

#[test]
fn rows_are_there_with_as_many_members_lost_as_the_pool_survives() {
    let mut rig = Rig::new("parity", 3, 64);
    let ino = rig.fs().t_small("file", &noise(1, 1000));
    rig.fs().unmount().expect("unmounts");
    for lost in 0..3 {
        rig.fs = None;
        let pool = rig.sim.open(&[lost]).expect("assembles without one");
        let fs = Fs::mount(pool, options(&rig.clock)).expect("mounts");
        assert!(fs.t_read(ino) == noise(1, 1000));
        fs.unmount().expect("unmounts");
    }
}

#[test]
fn a_row_that_can_not_be_is_an_error() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_small("file", &noise(1, 1000));
    let mut tx = Tx::new();
    tx.put_raw(Table::Inline, ino_key(ino), vec![1; 5000]);
    fs.store.commit(tx).expect("commits");
    fs.t_cool();
    assert_eq!(errno(fs.read(ino, 0, 0, &mut [0; 10])), libc::EIO);
}
