//! Rewriting sets that are partly dead.

use super::compact::{Pace, Step};
use super::model::Dice;
use super::*;
use crate::store::tables::{Extent, Owner, Table, ino_key};

const S: u64 = 4096;

/// Rewrites everything that gains anything.
pub(super) fn compact_all(fs: &Fs) -> Result<()> {
    while fs.compact_step(Pace::FLAT_OUT)? != Step::Nothing {}
    Ok(())
}

/// Files in which pages were overwritten, cut, punched and shared, so that their first sets are partly dead,
/// and what they hold.
fn half_dead(fs: &Fs, seed: u64, bytes: u64) -> Vec<(Ino, Vec<u8>)> {
    let mut dice = Dice::new(seed);
    let mut files: Vec<(Ino, Vec<u8>)> = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let most = [9_000, 200_000, 3_000_000][dice.roll(3) as usize];
        let len = left.min(1 + dice.roll(most));
        left -= len;
        let ino = fs.t_create(ROOT_INO, &format!("f{}", files.len()));
        let data = noise(dice.roll(1 << 40), len as usize);
        fs.t_write(ino, 0, &data);
        files.push((ino, data));
    }
    fs.sync_all().expect("syncs");
    for index in 0..files.len() {
        let share = dice.roll(4) == 0;
        if share {
            let to = fs.t_create(ROOT_INO, &format!("s{index}"));
            let (ino, data) = &files[index];
            let n = fs.copy_file_range((*ino, 0, 0), (to, 0, 0), data.len() as u64).expect("copies");
            let copied = data[..n as usize].to_vec();
            files.push((to, copied));
        }
        let (ino, data) = &mut files[index];
        for _ in 0..dice.roll(12) {
            let at = dice.roll(data.len() as u64);
            let len = (1 + dice.roll(60_000)).min(data.len() as u64 - at);
            let range = at as usize..(at + len) as usize;
            if dice.roll(3) == 0 {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                fs.fallocate(*ino, fs.open(*ino, OpenFlags::READ_WRITE).expect("opens"), at, len, mode)
                    .expect("punches");
                data[range].fill(0);
            } else {
                let new = noise(dice.roll(1 << 40), len as usize);
                fs.t_write(*ino, at, &new);
                data[range].copy_from_slice(&new);
            }
        }
    }
    fs.sync_all().expect("syncs");
    files
}

fn verify(fs: &Fs, files: &[(Ino, Vec<u8>)], what: &str) {
    fs.t_cool();
    for (ino, data) in files {
        assert!(fs.t_read(*ino) == *data, "{what}: content of {ino}");
    }
}

/// Payload of all data sets that is not alive.
fn dead(fs: &Fs) -> i64 {
    fs.pool.data_sets().iter().filter(|set| !set.open).map(|set| set.capacity as i64 - set.live).sum()
}

#[test]
fn what_is_alive_moves_and_the_rest_is_given_back() {
    for (seed, (resiliency, disks)) in
        [("mirror", 2), ("simple", 3), ("parity", 3), ("parity:2", 5), ("striped-mirror", 4)]
            .iter()
            .enumerate()
    {
        let mut rig = Rig::new(resiliency, *disks, 160);
        let files = half_dead(rig.fs(), seed as u64 + 1, 30 * MIB);
        let before = dead(rig.fs());
        compact_all(rig.fs()).expect("compacts");
        check::tables(rig.fs());
        verify(rig.fs(), &files, resiliency);
        let after = dead(rig.fs());
        assert!(after < before / 3, "{resiliency}: {before} dead before, {after} after");
        rig.remount();
        verify(rig.fs(), &files, resiliency);
    }
}

#[test]
fn it_can_be_interrupted_anywhere_and_members_may_be_lost_too() {
    for (resiliency, disks, lost) in [("mirror", 2, 1), ("parity", 3, 1), ("simple", 2, 0)] {
        let mut stop = 1;
        loop {
            let mut rig = Rig::new(resiliency, disks, 64);
            let files = half_dead(rig.fs(), 77, 4 * MIB);
            rig.fs().store.checkpoint().expect("takes a checkpoint");
            rig.sim.world.stop_after(rig.sim.world.operations() + stop);
            let work = || -> Result<()> {
                compact_all(rig.fs())?;
                rig.fs().sync_all()?;
                rig.fs().store.checkpoint()?;
                Ok(rig.fs().store.checkpoint()?)
            };
            let done = work().is_ok() && !rig.sim.world.is_dark();
            let policy = PowerCut::ALL[stop as usize % PowerCut::ALL.len()];
            rig.fs = None;
            rig.sim.world.power_cut(policy, stop);
            let gone: Vec<usize> = (0..lost).map(|n| (stop as usize + n) % disks).collect();
            let pool = rig.sim.open(&gone).expect("assembles");
            rig.fs = Some(Fs::mount(pool, options(&rig.clock)).expect("mounts"));
            check::tables(rig.fs());
            verify(rig.fs(), &files, &format!("{resiliency} stopped at {stop}"));
            compact_all(rig.fs()).expect("compacts");
            check::tables(rig.fs());
            verify(rig.fs(), &files, &format!("{resiliency} stopped at {stop}, and compacted again"));
            if done {
                break;
            }
            stop += 1 + stop / 12;
        }
        assert!(stop > 10, "compaction does something");
    }
}

#[test]
fn ticks_compact_when_space_gets_short_and_hardly_before() {
    let rig = Rig::new("mirror", 2, 128);
    let fs = rig.fs();
    let punch = |ino: Ino, upto: u64| {
        let handle = fs.open(ino, OpenFlags::READ_WRITE).expect("opens");
        for at in (0..upto).step_by(256 << 10) {
            fs.fallocate(ino, handle, at, 128 << 10, 3).expect("punches");
        }
        fs.release(ino, handle).expect("closes");
    };
    let ticks = |n: u64| {
        for _ in 0..n {
            rig.clock.advance(Duration::from_secs(31));
            fs.tick();
        }
    };
    let ino = fs.t_create(ROOT_INO, "file");
    fs.t_write(ino, 0, &noise(1, 60 * MIB as usize));
    fs.sync_all().expect("syncs");
    punch(ino, 60 * MIB);
    ticks(10);
    let half_dead = dead(fs);
    assert!(half_dead > 28 << 20, "space is plenty, and sets half alive are left alone: {half_dead}");
    let more = fs.t_create(ROOT_INO, "more");
    fs.t_write(more, 0, &noise(2, 40 * MIB as usize));
    fs.sync_all().expect("syncs");
    assert!(fs.pool.free_permille() < 150, "space is short now");
    let before = fs.pool.space(&fs.pool.default_resiliency());
    ticks(20);
    assert!(fs.pool.free_permille() > 220, "{} are free", fs.pool.free_permille());
    let after = fs.pool.space(&fs.pool.default_resiliency());
    assert!(after.available + 3 * MIB >= before.available, "what was promised is there");
    check::tables(fs);
}

#[test]
fn a_set_that_cannot_be_read_is_left_alone() {
    let rig = Rig::new("simple", 2, 128);
    let fs = rig.fs();
    let files = half_dead(fs, 5, 20 * MIB);
    fs.sync_all().expect("syncs");
    for (disk, slab) in [(0, 0), (1, 1), (0, 2)] {
        for sector in 0..40 {
            rig.sim.disks[disk].flip(crate::member::Area::Slab(slab), 4096 + sector * 4096 + 5, 3);
        }
    }
    fs.t_cool();
    let mut failures = 0;
    loop {
        match fs.compact_step(Pace::FLAT_OUT) {
            Ok(Step::Nothing) => break,
            Ok(_) => {}
            Err(_) => failures += 1,
        }
        assert!(failures < 10, "it is tried again and again");
    }
    assert!(failures > 0, "something could not be read");
    check::tables(fs);
    let readable = |ino: Ino, len: usize| fs.read(ino, 0, 0, &mut vec![0; len]).is_ok();
    let good = files.iter().filter(|(ino, data)| readable(*ino, data.len())).count();
    assert!(good > 0 && good < files.len(), "{good} of {} can be read", files.len());
}

#[test]
fn readers_writers_and_copies_go_on_meanwhile() {
    let rig = Rig::new("parity", 3, 200);
    let fs = rig.fs();
    let data = noise(3, 6 * MIB as usize);
    let fixed = fs.t_create(ROOT_INO, "fixed");
    fs.t_write(fixed, 0, &data);
    fs.sync_all().expect("syncs");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, data) = (&over, &data);
        let compactor = scope.spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Acquire) {
                fs.compact_step(Pace::FLAT_OUT).expect("compacts");
                fs.store.checkpoint().expect("takes a checkpoint");
            }
        });
        let workers: Vec<_> = (0..3_u64)
            .map(|worker| {
                scope.spawn(move || {
                    let name = format!("w{worker}");
                    for round in 0..40_u64 {
                        let ino = fs.t_create(ROOT_INO, &name);
                        let at = (round % 8) * 64 * S;
                        let n = fs.copy_file_range((fixed, 0, 0), (ino, 0, 0), 4 * MIB).expect("copies");
                        assert_eq!(n, 4 * MIB);
                        fs.t_write(ino, at, &[worker as u8; 4096]);
                        fs.t_write(fixed, at, &data[at as usize..][..30_000]);
                        fs.flush_files(&[ino, fixed]).expect("flushes");
                        fs.cache.drop_clean_of(ino);
                        fs.cache.drop_clean_of(fixed);
                        let mut buf = vec![0; 4 * MIB as usize];
                        fs.read(ino, 0, 0, &mut buf).expect("reads");
                        buf[at as usize..][..4096].copy_from_slice(&data[at as usize..][..4096]);
                        assert!(buf == data[..4 * MIB as usize], "worker {worker} round {round}");
                        fs.unlink(ROOT_INO, name.as_bytes()).expect("unlinks");
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("no panic");
        }
        over.store(true, std::sync::atomic::Ordering::Release);
        compactor.join().expect("no panic");
    });
    fs.sync_all().expect("syncs");
    check::tables(fs);
    fs.t_cool();
    assert!(fs.t_read(fixed) == data);
}

/// Two files refer to an extent that becomes another one. Between the two changes the first file goes, and with
/// it the new extent.
#[test]
fn a_new_extent_that_is_gone_before_its_next_file_comes_is_there_again() {
    use super::change::Change;
    use super::map::{MapEdit, Segment};
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    let data = noise(1, 4 * S as usize);
    let chunk = crate::pool::Chunk(vec![&data[..]]);
    let written = fs.pool.rewrite(&fs.pool.default_resiliency(), &[chunk]).expect("writes");
    let piece = written.pieces[0].clone();
    let len = piece.len as u32;
    let extent =
        Extent { set: piece.set, address: piece.address, len, owner: Owner::default(), sums: piece.sums };
    let id = fs.extent_numbers.next(&fs.store).expect("a number");
    let files = ["first", "second", "third"].map(|name| fs.t_create(ROOT_INO, name));
    for ino in files {
        {
            let node = fs.nodes.get(&fs.store, ino).expect("there");
            let mut state = node.state.write();
            let mut edit = MapEdit::new();
            edit.insert(Segment { start: 0, len: piece.len, extent: Some((id, 0)) });
            let mut change = Change::new();
            change.map(ino, &edit);
            change.create_unless_there(id, extent.clone());
            (state.inode.size, state.persisted_size) = (4 * S, 4 * S);
            state.inode.sectors = 4;
            change.tx.put(Table::Inodes, ino_key(ino), &state.inode);
            fs.commit(change).expect("commits");
        }
        if ino == files[0] {
            fs.unlink(ROOT_INO, b"first").expect("unlinks");
            assert!(fs.pool.data_sets().iter().all(|set| set.live == 0));
        }
    }
    drop(written);
    check::tables(fs);
    rig.remount();
    for ino in &files[1..] {
        assert!(rig.fs().t_read(*ino) == data);
    }
}
