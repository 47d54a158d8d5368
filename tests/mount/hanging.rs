//! A disk that hangs in the kernel, where nothing can call a thread back.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::disks::Disk;
use crate::support::pool::TestPool;
use crate::support::run::{LONG, run, until_true};
use crate::support::tree::Tree;
use crate::support::{Random, am_root};

const MIB: usize = 1 << 20;
/// The deadline of a request to a member, and then some for a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(75);

/// Writes go on, reads and `status` do not even wait, the mount ends, and the next one does without that disk,
/// although the old process still hangs in it. When the disk comes round, it is taken back, and what the old process
/// had given it harms nobody.
#[test]
fn a_disk_that_hangs_hangs_neither_mount_nor_status_nor_unmount() {
    if !am_root() {
        return;
    }
    let pool = TestPool::mounted("mirror", &Disk::images(3, "400M"));
    let mut random = Random::new(5);
    fs::create_dir(pool.path().join("before")).expect("a directory");
    for number in 0..20 {
        fs::write(pool.path().join(format!("before/f{number}")), random.bytes(MIB)).expect("written");
    }
    pool.remount();
    let before = Tree::read(pool.path());
    let frozen = pool.disks[1].freeze();
    let large = random.bytes(48 * MIB);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let began = Instant::now();
            let path = pool.path().join("large");
            fs::write(&path, &large).and_then(|()| fs::File::open(&path)?.sync_all()).expect("no error");
            began.elapsed()
        });
        let (mut slowest_read, mut slowest_status) = (Duration::ZERO, Duration::ZERO);
        while !writer.is_finished() {
            let began = Instant::now();
            before
                .below("before")
                .assert_same(&Tree::read(&pool.path().join("before")), "while a disk hangs");
            slowest_read = slowest_read.max(began.elapsed());
            let began = Instant::now();
            pool.status_json();
            slowest_status = slowest_status.max(began.elapsed());
            std::thread::sleep(Duration::from_millis(100));
        }
        let took = writer.join().expect("no error");
        eprintln!(
            "writing took {took:?}; the slowest read {slowest_read:?}, the slowest status {slowest_status:?}"
        );
        assert!(took < LONGEST, "writing took {took:?}");
        assert!(slowest_read < DEADLINE / 2, "the slowest read took {slowest_read:?}");
        assert!(slowest_status < DEADLINE / 2, "the slowest status took {slowest_status:?}");
    });
    let member = &pool.status_json()["members"][1];
    assert_eq!(member["health"], "failing", "{member}");
    let all = Tree::read(pool.path());
    let pid = pool.pid();
    let began = Instant::now();
    run(pool.poolfs(&["umount"]).arg(pool.path()), LONG).ok();
    assert!(began.elapsed() < LONGEST, "umount took {:?}", began.elapsed());
    pool.mount();
    all.assert_same(&Tree::read(pool.path()), "without the disk that hangs");
    pool.unmount();
    drop(frozen);
    assert!(
        until_true(LONG, || rustix::process::test_kill_process(pid).is_err()),
        "the old process ends now"
    );
    pool.mount();
    all.assert_same(&Tree::read(pool.path()), "with the disk again");
    pool.remount();
    all.assert_same(&Tree::read(pool.path()), "with the disk again, and once more");
}
