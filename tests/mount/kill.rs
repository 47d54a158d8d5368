//! The serving process is killed at random moments, while programs copy, overwrite, rename and sync. Whatever a
//! sync acknowledged must be there afterwards, and nothing may be half there.

mod writers;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::writers::Writer;
use crate::support::disks::Disk;
use crate::support::pool::TestPool;
use crate::support::run::until_true;
use crate::support::tree::Tree;
use crate::support::{Random, heavy};

/// Times that the process is killed, over all layouts.
const ROUNDS: u64 = if cfg!(feature = "soak") { 200 } else { 20 };

/// A layout, and sets of members that may be gone after a crash.
struct Layout {
    resiliency: &'static str,
    members: usize,
    losses: &'static [&'static [usize]],
}

const LAYOUTS: [Layout; 4] = [
    Layout { resiliency: "mirror", members: 3, losses: &[&[], &[0], &[], &[1], &[2]] },
    Layout { resiliency: "parity", members: 4, losses: &[&[], &[3], &[], &[1], &[0]] },
    Layout { resiliency: "parity:2", members: 5, losses: &[&[], &[0, 4], &[2], &[1, 3], &[]] },
    Layout { resiliency: "simple", members: 2, losses: &[&[]] },
];

fn rounds(layout: &Layout, rounds: u64, seed: u64) {
    let mut pool = TestPool::mounted(layout.resiliency, &Disk::directories(layout.members, "1500M"));
    let mut random = Random::new(seed);
    let mut writers = writers::all(pool.path(), seed);
    for round in 0..rounds {
        let moment = Duration::from_millis(random.between(30, 2500));
        let lost = layout.losses[round as usize % layout.losses.len()];
        let what = format!(
            "{}, seed {seed}, round {round}: killed after {moment:?}, then without {lost:?}",
            layout.resiliency
        );
        eprintln!("{what}");
        work_until_killed(&pool, &mut writers, moment);
        pool.pull(lost);
        pool.mount_with(&["degraded=yes"]);
        assert_consistent(pool.path(), &what);
        for writer in &mut writers {
            writer.check(&what);
        }
        if !lost.is_empty() {
            pool.unmount();
            pool.restore(lost);
            pool.mount();
            for writer in &mut writers {
                writer.check(&format!("{what}, all back"));
            }
        }
        if round % 5 == 4 {
            for writer in &mut writers {
                writer.clear();
            }
        }
    }
    pool.unmount();
    pool.mount();
    for writer in &mut writers {
        writer.check("in the end");
    }
}

/// All writers work, each in a thread, until the process is killed under them.
fn work_until_killed(pool: &TestPool, writers: &mut [Box<dyn Writer>], moment: Duration) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in writers.iter_mut() {
            scope.spawn(|| {
                // The first error is that of the kill; before it there must be none.
                while !stop.load(Ordering::Acquire) {
                    if let Err(error) = writer.step() {
                        let after_the_kill =
                            until_true(Duration::from_secs(10), || stop.load(Ordering::Acquire));
                        assert!(after_the_kill, "before the process was killed: {error}");
                    }
                }
            });
        }
        std::thread::sleep(moment);
        // Both orders are in it: the flag may be seen after the error.
        pool.signal(rustix::process::Signal::KILL);
        stop.store(true, Ordering::Release);
    });
    pool.bury();
}

/// Every directory can be listed and every file read, and links are counted right.
#[track_caller]
fn assert_consistent(root: &Path, what: &str) {
    let tree = Tree::read(root);
    assert!(tree.len() > 0, "{what}: the pool is empty");
    let mut links = std::collections::BTreeMap::new();
    for path in tree.0.keys() {
        use std::os::unix::fs::MetadataExt;
        let meta = std::fs::symlink_metadata(root.join(path)).expect("there a moment ago");
        if meta.is_file() {
            links.entry(meta.ino()).or_insert((meta.nlink(), 0)).1 += 1;
        }
    }
    for (ino, (counted, found)) in links {
        assert_eq!(counted, found, "{what}: inode {ino} says it has {counted} names");
    }
}

#[test]
fn mirror() {
    let _alone = heavy();
    rounds(&LAYOUTS[0], ROUNDS * 3 / 10, 1);
}

#[test]
fn parity() {
    let _alone = heavy();
    rounds(&LAYOUTS[1], ROUNDS * 3 / 10, 2);
}

#[test]
fn double_parity() {
    let _alone = heavy();
    rounds(&LAYOUTS[2], ROUNDS * 3 / 10, 3);
}

#[test]
fn simple() {
    let _alone = heavy();
    rounds(&LAYOUTS[3], ROUNDS / 10, 4);
}
