//! What `df` promises is what fits: filling a pool with files of 1 MiB ends within 2 % of it.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::support::disks::Disk;
use crate::support::pool::TestPool;
use crate::support::{Random, am_root};

const MIB: u64 = 1 << 20;
/// The project's promise.
const TOLERANCE_PERCENT: u64 = 2;

struct Space {
    total: u64,
    free: u64,
    available: u64,
}

fn space(path: &Path) -> Space {
    let found = rustix::fs::statvfs(path).expect("statvfs");
    let bytes = |blocks: u64| blocks * found.f_frsize;
    Space { total: bytes(found.f_blocks), free: bytes(found.f_bfree), available: bytes(found.f_bavail) }
}

/// Writes files of 1 MiB until one does not fit; returns the bytes of those that did.
fn fill(dir: &Path) -> u64 {
    let piece = Random::new(3).bytes(MIB as usize);
    for number in 0u64.. {
        let path = dir.join(format!("f{number}"));
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(&piece)?;
            // Once in a while, so that the pool can't only have promised.
            if number % 16 == 0 { file.sync_all() } else { Ok(()) }
        });
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                let _ = std::fs::remove_file(&path);
                return number * MIB;
            }
            Err(error) => panic!("file {number}: {error}, expected that there is no space"),
        }
    }
    unreachable!("space is finite")
}

fn promise_is_kept(resiliency: &str, disks: &[Disk]) {
    let pool = TestPool::mounted(resiliency, disks);
    let before = space(pool.path());
    assert!(before.total >= before.free && before.free >= before.available, "blocks >= free >= avail");
    assert!(before.available > 0, "an empty pool has space");
    let what = format!("{resiliency} on {disks:?}");
    let (first, second) = (one_filling(&pool, &before, &what), {
        // And again, when all was deleted: nothing was lost on the way.
        std::fs::remove_dir_all(pool.path().join("files")).expect("deleting on a full pool");
        rustix::fs::syncfs(File::open(pool.path()).expect("opened")).expect("synced");
        let after = wait_for_space(&pool, &before);
        one_filling(&pool, &after, &format!("{what}, second time"))
    });
    assert!(first.abs_diff(second) <= first / 50, "{what}: {first} fit at first, then {second}");
}

/// Fills the pool; what fits must be what was available, and readable after another mount.
fn one_filling(pool: &TestPool, promised: &Space, what: &str) -> u64 {
    let dir = pool.path().join("files");
    std::fs::create_dir(&dir).expect("a directory");
    let written = fill(&dir);
    let difference = written.abs_diff(promised.available);
    eprintln!("{what}: promised {} MiB, {} MiB fit", promised.available / MIB, written / MIB);
    assert!(
        difference * 100 <= promised.available * TOLERANCE_PERCENT,
        "{what}: promised {} bytes, {written} fit",
        promised.available
    );
    pool.remount();
    let expected = crc32c::crc32c(&Random::new(3).bytes(MIB as usize));
    for number in [0, written / MIB / 2, written / MIB - 1] {
        let sum = crate::support::tree::checksum_of(&dir.join(format!("f{number}")));
        assert_eq!(sum, expected, "{what}: file {number} of a full pool");
    }
    written
}

/// Space comes back with the next checkpoints.
fn wait_for_space(pool: &TestPool, before: &Space) -> Space {
    for _ in 0..300 {
        let now = space(pool.path());
        if now.available * 100 >= before.available * 98 {
            return now;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    space(pool.path())
}

#[test]
fn simple_equal_and_mixed() {
    promise_is_kept("simple", &Disk::directories(2, "300M"));
    promise_is_kept("simple", &["200M", "300M", "600M"].map(Disk::Directory));
}

#[test]
fn mirror_equal_and_mixed() {
    promise_is_kept("mirror", &Disk::directories(2, "400M"));
    promise_is_kept("mirror", &["200M", "300M", "600M"].map(Disk::Directory));
    promise_is_kept("mirror", &["300M", "300M", "1500M"].map(Disk::Directory));
}

#[test]
fn parity_equal_and_mixed() {
    promise_is_kept("parity", &Disk::directories(3, "400M"));
    promise_is_kept("parity", &["200M", "400M", "600M", "700M"].map(Disk::Directory));
    promise_is_kept("parity:2", &["300M", "300M", "400M", "500M", "800M"].map(Disk::Directory));
}

#[test]
fn striped_mirror_equal_and_mixed() {
    promise_is_kept("striped-mirror", &Disk::directories(4, "300M"));
    promise_is_kept("striped-mirror", &["200M", "300M", "400M", "500M", "500M"].map(Disk::Directory));
}

/// On file systems that really end.
#[test]
fn disks_without_a_limit() {
    if am_root() {
        promise_is_kept("mirror", &["300M", "300M", "500M"].map(Disk::Image));
        promise_is_kept("parity", &["300M", "400M", "500M", "500M"].map(Disk::Image));
        promise_is_kept("simple", &["300M", "500M"].map(Disk::Image));
    }
}
