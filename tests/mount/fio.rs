//! fio writes, reads and verifies in all the ways that programs do; nothing may differ.

use std::path::Path;
use std::process::Command;

use crate::support::disks::Disk;
use crate::support::have;
use crate::support::pool::TestPool;
use crate::support::run::{LONG, run};

/// Jobs: a name, and what sets it apart.
const JOBS: [(&str, &str); 17] = [
    ("sequential", "--rw=write --bs=1m --size=192m"),
    ("sequential-small", "--rw=write --bs=4k --size=32m"),
    ("sequential-odd", "--rw=write --bs=13k --size=52m --verify_interval=13k"),
    ("random", "--rw=randwrite --bs=4k --size=64m"),
    ("random-overwrite", "--rw=randwrite --bs=16k --size=64m --overwrite=1 --loops=2"),
    ("random-large", "--rw=randwrite --bs=256k --size=128m"),
    ("mixed-sizes", "--rw=randwrite --bsrange=512-128k --bs_unaligned=1 --size=64m --verify_interval=512"),
    ("mixed-reads", "--rw=randrw --rwmixread=40 --bs=8k --size=64m"),
    ("mmap", "--ioengine=mmap --rw=randwrite --bs=4k --size=64m"),
    ("mmap-sequential", "--ioengine=mmap --rw=write --bs=64k --size=64m"),
    ("direct-psync", "--ioengine=psync --direct=1 --rw=randwrite --bs=4k --size=32m"),
    ("direct-libaio", "--ioengine=libaio --direct=1 --iodepth=16 --rw=randwrite --bs=16k --size=64m"),
    ("direct-sequential", "--ioengine=libaio --direct=1 --iodepth=8 --rw=write --bs=1m --size=128m"),
    ("fsync", "--rw=randwrite --bs=4k --size=8m --fsync=16"),
    ("fdatasync-preallocated", "--rw=randwrite --bs=4k --size=8m --fdatasync=8 --fallocate=posix"),
    (
        "several-on-one-file",
        "--filename=shared --numjobs=4 --offset_increment=16m --size=16m --rw=randwrite --bs=4k",
    ),
    ("several-files", "--numjobs=4 --nrfiles=8 --size=32m --rw=randwrite --bsrange=4k-64k --openfiles=4"),
];

fn run_job(dir: &Path, name: &str, arguments: &str) {
    let mut command = Command::new("fio");
    command
        .args([&format!("--name={name}"), &format!("--directory={}", dir.display())])
        .args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_backlog=0"])
        .args(["--invalidate=1", "--group_reporting", "--randseed=7", "--allow_file_create=1", "--thread=0"])
        .args(arguments.split(' '))
        // The state that fio keeps of a job goes where it runs.
        .current_dir(dir);
    let ran = run(&mut command, LONG).ok();
    assert!(ran.out.contains("err= 0"), "{ran}");
    for path in std::fs::read_dir(dir).expect("listed").flatten() {
        std::fs::remove_file(path.path()).expect("removed");
    }
}

fn all_jobs(pool: &TestPool) {
    for (name, arguments) in JOBS {
        eprintln!("fio {name}");
        run_job(pool.path(), name, arguments);
    }
}

#[test]
fn verifies_on_parity() {
    if have("fio") {
        all_jobs(&TestPool::mounted("parity", &Disk::directories(3, "1G")));
    }
}

/// A cache that holds a fraction of what is written: everything goes to the members and comes back.
#[test]
fn verifies_on_a_mirror_with_a_small_cache() {
    if have("fio") {
        let mut pool = TestPool::create("mirror", &Disk::directories(2, "1G"));
        pool.options.push("cache=16M".into());
        pool.mount();
        all_jobs(&pool);
    }
}

#[test]
fn verifies_without_write_back() {
    if have("fio") {
        for how in ["write-cache=writethrough", "write-cache=off"] {
            let pool = TestPool::create("parity", &Disk::directories(3, "1G"));
            pool.mount_with(&[how]);
            for (name, arguments) in
                [JOBS[0], JOBS[6], JOBS[8], JOBS[10], JOBS[15]].map(|(name, arguments)| (name, arguments))
            {
                run_job(pool.path(), name, &smaller(arguments));
            }
        }
    }
}

/// Every write of these goes to the members before it returns: a fraction of the data does.
fn smaller(arguments: &str) -> String {
    let size =
        |word: &str| if word.starts_with("--size=") { "--size=4m".to_owned() } else { word.to_owned() };
    let words: Vec<String> = arguments.split(' ').map(size).collect();
    words.join(" ").replace("offset_increment=16m", "offset_increment=4m")
}

/// Written, unmounted, verified from the members.
#[test]
fn verifies_after_another_mount_without_a_member() {
    if !have("fio") {
        return;
    }
    let mut pool = TestPool::mounted("parity", &Disk::directories(3, "1G"));
    let fio = |pool: &TestPool, what: &str| {
        let mut command = Command::new("fio");
        command
            .args(["--name=kept", "--rw=randwrite", "--bsrange=4k-64k", "--size=96m", "--verify=crc32c"])
            .args(["--randseed=5", "--verify_fatal=1", what])
            .arg(format!("--directory={}", pool.path().display()))
            .current_dir(pool.scratch());
        run(&mut command, LONG).ok()
    };
    fio(&pool, "--do_verify=0");
    pool.unmount();
    for lost in 0..3 {
        pool.pull(&[lost]);
        pool.mount();
        fio(&pool, "--verify_only=1");
        pool.unmount();
        pool.restore(&[lost]);
    }
}
