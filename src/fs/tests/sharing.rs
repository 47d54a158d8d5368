//! Files that share extents.

use super::*;

const S: u64 = 4096;

/// Bytes that are alive in all data sets.
fn live(fs: &Fs) -> i64 {
    fs.pool.data_sets().iter().map(|usage| usage.live).sum()
}

fn copy(fs: &Fs, (from, at): (Ino, u64), (to, to_at): (Ino, u64), len: u64) -> u64 {
    let mut done = 0;
    while done < len {
        match fs.copy_file_range((from, 0, at + done), (to, 0, to_at + done), len - done).expect("copies") {
            0 => break,
            n => done += n,
        }
    }
    done
}

fn blocks(fs: &Fs, ino: Ino) -> u64 {
    fs.getattr(ino).expect("there").blocks
}

#[test]
fn a_copy_takes_no_space_and_lives_on_its_own() {
    let mut rig = Rig::new("parity", 3, 64);
    let data = noise(1, 40 * MIB as usize);
    let (from, to) = (rig.fs().t_create(ROOT_INO, "from"), rig.fs().t_create(ROOT_INO, "to"));
    rig.fs().t_write(from, 0, &data);
    rig.fs().sync_all().expect("syncs");
    let before = live(rig.fs());
    // Twice what the pool could hold if it were copied.
    for name in ["a", "b", "c", "d", "e"] {
        let more = rig.fs().t_create(ROOT_INO, name);
        assert_eq!(copy(rig.fs(), (from, 0), (more, 0), u64::MAX), data.len() as u64);
    }
    assert_eq!(copy(rig.fs(), (from, 0), (to, 0), u64::MAX), data.len() as u64);
    assert!(!rig.fs().cache.has_dirty(to), "everything is shared");
    assert_eq!(live(rig.fs()), before);
    assert_eq!(blocks(rig.fs(), to), blocks(rig.fs(), from));
    rig.remount();
    let fs = rig.fs();
    fs.t_write(from, 5 * S, &[7; 100]);
    fs.unlink(ROOT_INO, b"a").expect("unlinks");
    fs.unlink(ROOT_INO, b"from").expect("unlinks");
    fs.t_write(to, 9 * S, &[8; 10]);
    fs.sync_all().expect("syncs");
    check::tables(fs);
    fs.t_cool();
    let b = fs.t_find(ROOT_INO, "b").expect("there");
    assert!(fs.t_read(b) == data);
    let mut changed = data.clone();
    changed[9 * S as usize..9 * S as usize + 10].fill(8);
    assert!(fs.t_read(to) == changed);
    for name in ["b", "c", "d", "e", "to"] {
        fs.unlink(ROOT_INO, name.as_bytes()).expect("unlinks");
    }
    rig.remount();
    assert_eq!(live(rig.fs()), 0);
    assert!(rig.fs().pool.data_sets().is_empty(), "all space is free again");
}

#[test]
fn holes_reservations_and_edges_are_copied_as_they_are() {
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    let (from, to) = (fs.t_create(ROOT_INO, "from"), fs.t_create(ROOT_INO, "to"));
    fs.t_write(from, 0, &noise(1, 3 * S as usize + 17));
    fs.fallocate(from, fs.open(from, OpenFlags::READ_WRITE).expect("opens"), 8 * S, 4 * S, 0).expect("ok");
    fs.t_write(from, 20 * S, &noise(2, 100));
    fs.t_write(to, 0, &noise(3, 30 * S as usize));
    let expected = {
        let mut expected = fs.t_read(to);
        let source = fs.t_read(from);
        expected[2 * S as usize + 5..2 * S as usize + source.len()].copy_from_slice(&source[5..]);
        expected
    };
    let size = fs.t_read(from).len() as u64;
    assert_eq!(copy(fs, (from, 5), (to, 2 * S + 5), u64::MAX / 4), size - 5);
    assert!(fs.t_read(to) == expected);
    fs.sync_all().expect("syncs");
    let found = extents::segments(&fs.store, to, 0, u64::MAX, 100).expect("a map");
    assert!(found.iter().any(|segment| segment.extent.is_none() && segment.start == 10 * S));
    assert!(!found.iter().any(|segment| segment.part(6 * S, 10 * S).is_some()), "a hole: {found:?}");
    check::tables(fs);
    rig.remount();
    assert!(rig.fs().t_read(to) == expected);
}

#[test]
fn a_file_shares_with_itself() {
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    let data = noise(1, 10 * S as usize);
    fs.t_write(ino, 0, &data);
    assert_eq!(copy(fs, (ino, 0), (ino, 10 * S), 10 * S), 10 * S);
    assert_eq!(copy(fs, (ino, 5 * S), (ino, S), 2 * S), 2 * S);
    assert_eq!(fs.copy_file_range((ino, 0, 19 * S), (ino, 0, 20 * S), S).expect("copies"), S);
    assert_eq!(fs.copy_file_range((ino, 0, 20 * S + 1), (ino, 0, 30 * S), 5 * S).expect("copies"), S - 1);
    fs.t_size(ino, 20 * S);
    let mut expected = data.repeat(2);
    expected.copy_within(5 * S as usize..7 * S as usize, S as usize);
    assert!(fs.t_read(ino) == expected);
    assert_eq!(live(fs), 10 * S as i64);
    // The first half goes: the second still has all of it.
    fs.fallocate(ino, fs.open(ino, OpenFlags::READ_WRITE).expect("opens"), 0, 10 * S, 3).expect("punches");
    expected[..10 * S as usize].fill(0);
    rig.remount();
    assert!(rig.fs().t_read(ino) == expected);
}

#[test]
fn an_extent_shared_by_many_never_counts_more_than_itself() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    fs.t_write(ino, 0, &noise(1, 16 * S as usize));
    let copies: Vec<Ino> = (0..150).map(|n| fs.t_create(ROOT_INO, &format!("c{n}"))).collect();
    for (n, to) in copies.iter().enumerate() {
        assert_eq!(copy(fs, (ino, n as u64 % 15 * S), (*to, 3 * S), 2 * S), 2 * S);
    }
    assert_eq!(live(fs), 16 * S as i64);
    fs.t_size(ino, 0);
    fs.sync_all().expect("syncs");
    assert_eq!(live(fs), 16 * S as i64);
    check::tables(fs);
    for n in 0..149 {
        fs.unlink(ROOT_INO, format!("c{n}").as_bytes()).expect("unlinks");
    }
    assert_eq!(live(fs), 2 * S as i64);
    check::tables(fs);
}

#[test]
fn dirty_data_is_flushed_before_it_is_shared() {
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    let (from, to) = (fs.t_create(ROOT_INO, "from"), fs.t_create(ROOT_INO, "to"));
    let data = noise(1, 20 * S as usize);
    fs.t_write(from, 0, &data);
    fs.t_write(to, 0, &noise(2, 20 * S as usize));
    assert_eq!(copy(fs, (from, 0), (to, 0), 20 * S), 20 * S);
    fs.fsync(to, true).expect("syncs");
    rig.crash(PowerCut::Lost, 1);
    assert!(rig.fs().t_read(to) == data);
}

#[test]
fn copies_and_deletions_by_many_at_once_leave_the_counts_right() {
    let rig = Rig::new("mirror", 2, 128);
    let fs = rig.fs();
    let data = noise(1, 300 * S as usize);
    let shared = fs.t_create(ROOT_INO, "shared");
    fs.t_write(shared, 0, &data);
    fs.sync_all().expect("syncs");
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (fs, data) = (fs.clone(), &data);
            scope.spawn(move || {
                for round in 0..60_u64 {
                    let name = format!("{worker}");
                    let ino = fs.t_create(ROOT_INO, &name);
                    assert_eq!(copy(&fs, (shared, 0), (ino, 0), u64::MAX / 4), data.len() as u64);
                    fs.t_write(ino, round * S, &[9; 4096]);
                    if worker == 0 {
                        fs.t_write(shared, round * S, &data[(round * S) as usize..][..4096]);
                        fs.sync_all().expect("syncs");
                    }
                    let mut buf = vec![0; 4096];
                    fs.read(ino, 0, (round + 1) * S, &mut buf).expect("reads");
                    assert!(buf == data[((round + 1) * S) as usize..][..4096]);
                    fs.unlink(ROOT_INO, name.as_bytes()).expect("unlinks");
                }
            });
        }
    });
    fs.sync_all().expect("syncs");
    check::tables(fs);
    assert!(fs.t_read(shared) == data);
    fs.unlink(ROOT_INO, b"shared").expect("unlinks");
    assert_eq!(live(fs), 0);
}

#[test]
fn what_lies_in_a_row_is_copied_and_the_rest_is_shared() {
    let mut rig = Rig::new("parity", 3, 64);
    let data = noise(3, 8 * MIB as usize);
    let (from, to) = (rig.fs().t_create(ROOT_INO, "from"), rig.fs().t_create(ROOT_INO, "to"));
    for ino in [from, to] {
        rig.fs().t_write(ino, 0, &data[..1000]);
    }
    rig.fs().sync_all().expect("syncs");
    // It grows, and its first sector stays where it is.
    rig.fs().t_write(from, S, &data[S as usize..]);
    rig.fs().sync_all().expect("syncs");
    let before = live(rig.fs());
    assert_eq!(copy(rig.fs(), (from, 0), (to, 0), u64::MAX), data.len() as u64);
    rig.fs().sync_all().expect("syncs");
    assert!(live(rig.fs()) <= before + S as i64, "all but the first sector is shared");
    // The other way round: a shared sector takes the place of a row.
    let small = rig.fs().t_create(ROOT_INO, "small");
    rig.fs().t_write(small, 0, &data[..500]);
    rig.fs().sync_all().expect("syncs");
    assert_eq!(copy(rig.fs(), (from, S), (small, 0), S), S);
    rig.remount();
    check::tables(rig.fs());
    let mut expected = data.clone();
    expected[1000..S as usize].fill(0);
    for ino in [from, to] {
        assert!(rig.fs().t_read(ino) == expected);
    }
    assert!(rig.fs().t_read(small) == data[S as usize..2 * S as usize]);
}
