//! Inodes in memory: few of them, and none that is lost or stale.

use super::node_table::NodeTable;
use super::*;
use crate::store::Tx;
use crate::store::tables::{Inode, Table, ino_key};
use crate::sync::Timestamp;

/// Number of the first of [`records`]: above all that are given out.
const FIRST: Ino = 1 << 40;

/// Records of so many files, without names.
fn records(fs: &Fs, count: u64) -> Vec<Ino> {
    let ino = fs.t_create(ROOT_INO, "one");
    let inode: Inode = fs.store.read(Table::Inodes, &ino_key(ino)).expect("reads").expect("there");
    let inos: Vec<Ino> = (FIRST..FIRST + count).collect();
    for some in inos.chunks(1000) {
        let mut tx = Tx::new();
        some.iter().for_each(|ino| tx.put(Table::Inodes, ino_key(*ino), &inode));
        fs.store.commit(tx).expect("commits");
        fs.tick();
    }
    inos
}

#[test]
fn a_hundred_thousand_lookups_leave_few_nodes_in_memory() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let inos = records(fs, 100_000);
    for ino in &inos {
        drop(fs.nodes.get_counted(&fs.store, *ino, 1, 0).expect("there"));
        assert!(fs.nodes.all().len() <= NodeTable::KEPT || ino % 1000 != 0);
    }
    assert_eq!(fs.nodes.known(), inos.len());
    inos.iter().for_each(|ino| fs.forget(*ino, 1));
    assert_eq!(fs.nodes.known(), 0);
}

#[test]
fn what_the_kernel_alone_knows_takes_few_bytes() {
    // The table doubles when it is seven eighths full, and a place takes a byte besides.
    assert!((size_of::<(Ino, u64)>() + 1) * 2 * 8 / 7 <= 40);
}

#[test]
fn attributes_that_wait_are_stored_before_a_node_goes() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let inos = records(fs, 2000);
    rig.clock.advance(Duration::from_secs(100));
    // Changed in memory only, and known to the kernel.
    for ino in &inos {
        let node = fs.nodes.get_counted(&fs.store, *ino, 1, 0).expect("there");
        let mut state = node.state.write();
        state.inode.atime = Timestamp { seconds: *ino as i64, nanos: 0 };
        state.attr_dirty = true;
    }
    assert!(fs.nodes.all().len() >= 2000, "they have to stay until they are stored");
    // The first finds those that no other node's coming has shown to wait.
    fs.tick();
    fs.tick();
    assert!(fs.nodes.all().len() <= NodeTable::KEPT);
    for ino in inos {
        assert_eq!(fs.getattr(ino).expect("there").atime.seconds, ino as i64);
    }
}

#[test]
fn an_inode_without_a_name_stays_until_it_is_forgotten() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "file");
    fs.t_write(ino, 0, b"content");
    fs.lookup(ROOT_INO, b"file").expect("there");
    fs.unlink(ROOT_INO, b"file").expect("unlinks");
    fs.sync_all().expect("syncs");
    for other in records(fs, 500) {
        fs.getattr(other).expect("there");
    }
    assert_eq!(fs.t_read(ino), b"content");
    fs.forget(ino, 1);
    assert_eq!(errno(fs.getattr(ino)), libc::ENOENT);
}

#[test]
fn files_of_which_nothing_is_cached_leave_the_cache() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    for n in 0..300 {
        let ino = fs.t_create(ROOT_INO, &format!("f{n}"));
        fs.t_write(ino, 0, b"content");
        fs.t_read(ino);
    }
    fs.sync_all().expect("syncs");
    fs.t_cool();
    let stats = fs.cache.stats();
    assert_eq!((stats.files, stats.bytes), (0, 0));
}

/// The record is read; then, before it counts, another changes the inode, or deletes it, and its node goes.
#[test]
fn a_record_that_was_overtaken_while_it_was_read_does_not_count() {
    for deleted in [false, true] {
        let rig = Rig::mirror();
        let fs = rig.fs();
        let ino = fs.t_create(ROOT_INO, "file");
        assert!(fs.nodes.peek(ino).is_none());
        let first = AtomicBool::new(true);
        let found = fs.nodes.get_by(ino, 1, 0, || {
            let read = fs.store.read(Table::Inodes, &ino_key(ino))?;
            if first.swap(false, crate::sync::atomic::Ordering::AcqRel) {
                if deleted {
                    fs.unlink(ROOT_INO, b"file")?;
                } else {
                    fs.setattr(ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }, &ROOT)?;
                    fs.nodes.evict(ino);
                }
                assert!(fs.nodes.peek(ino).is_none());
            }
            Ok(read)
        });
        match deleted {
            true => assert_eq!(errno(found), libc::ENOENT),
            false => assert_eq!(found.expect("there").state.read().inode.mode & 0o777, 0o600),
        }
    }
}

/// Each worker owns a file whose mode it changes, and makes, looks up, forgets and unlinks others that all share.
#[test]
fn nodes_that_come_and_go_are_never_stale_and_never_lost() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let dir = fs.t_mkdir(ROOT_INO, "dir");
    let strangers = records(fs, 300);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (strangers, ended) = (&strangers, &ended);
        scope.spawn(move || {
            while !ended.load(crate::sync::atomic::Ordering::Acquire) {
                fs.tick();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let workers: Vec<_> =
            (1..=4_u64).map(|worker| scope.spawn(move || come_and_go(fs, dir, worker, strangers))).collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        ended.store(true, crate::sync::atomic::Ordering::Release);
        results.into_iter().for_each(|result| result.expect("a worker ends well"));
    });
    fs.tick();
    assert_eq!(fs.nodes.known(), 0);
    assert!(fs.store.scan(Table::Orphans, &[], &[0xff; 9], 9).expect("scans").is_empty());
}

fn come_and_go(fs: &Fs, dir: Ino, worker: u64, strangers: &[Ino]) {
    let own = fs.t_create(dir, &format!("own{worker}"));
    let mut dice = model::Dice::new(worker);
    for round in 0..4000_u32 {
        let mode = round % 0o1000;
        fs.setattr(own, &SetAttr { mode: Some(mode), ..SetAttr::default() }, &ROOT).expect("changes");
        let name = format!("common{}", dice.roll(8));
        match dice.roll(4) {
            0 => {
                if let Ok(attr) = fs.mknod(dir, name.as_bytes(), 0o600, 0, &ROOT) {
                    fs.forget(attr.ino, 1);
                }
            }
            1 => drop(fs.unlink(dir, name.as_bytes())),
            _ => {
                if let Ok(attr) = fs.lookup(dir, name.as_bytes()) {
                    // What was looked up is there until it is forgotten, with a name or without.
                    std::thread::yield_now();
                    fs.getattr(attr.ino).expect("known to the kernel");
                    fs.forget(attr.ino, 1);
                }
            }
        }
        for _ in 0..4 {
            let stranger = strangers[dice.roll(strangers.len() as u64) as usize];
            fs.getattr(stranger).expect("there");
        }
        let found = fs.getattr(own).expect("there").mode & 0o777;
        assert_eq!(found, mode, "worker {worker} finds an older mode in round {round}");
    }
}
