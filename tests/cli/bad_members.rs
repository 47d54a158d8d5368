//! Members that are damaged, foreign, copied or gone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::bench::{Bench, can_mount};

/// Where the second copy of a superblock begins in a directory member's file.
const COPY_B: u64 = 1 << 20;

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("the superblock");
    file.write_all_at(bytes, at).expect("written");
}

/// A pool over two directories that was mounted once, so that both superblock copies are in use.
fn used_pool(bench: &Bench) {
    bench.pool("tank", &["a", "b"], &["--mountpoint", &bench.text("mnt")]);
    bench.poolfs(&["mount", &bench.text("mnt")]).done();
    fs::write(bench.at("mnt/file"), "content").expect("a file");
    bench.poolfs(&["umount", &bench.text("mnt")]).done();
}

fn mounts_and_holds_the_file(bench: &Bench) {
    bench.poolfs(&["mount", &bench.text("mnt"), "-o", "wait=0,degraded=yes"]).done();
    assert_eq!(fs::read_to_string(bench.at("mnt/file")).expect("the file"), "content");
    bench.poolfs(&["umount", &bench.text("mnt")]).done();
}

#[test]
fn one_damaged_superblock_copy_is_shown_and_does_no_harm() {
    if !can_mount() {
        return;
    }
    for at in [0, COPY_B] {
        let bench = Bench::new();
        used_pool(&bench);
        overwrite(&bench.at("a/superblock"), at + 100, b"rotten bits");
        let shown = bench.poolctl(&["examine", &bench.text("a")]).done();
        assert!(shown.out.contains("DAMAGED"), "{}", shown.out);
        mounts_and_holds_the_file(&bench);
    }
}

#[test]
fn a_member_with_two_damaged_copies_is_missing() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    used_pool(&bench);
    overwrite(&bench.at("a/superblock"), 100, b"rotten bits");
    overwrite(&bench.at("a/superblock"), COPY_B + 100, b"rotten bits");
    bench.poolctl(&["examine", &bench.text("a")]).refused(1, &["damaged"]);
    bench.poolctl(&["status", "tank"]).code(3);
    mounts_and_holds_the_file(&bench);
}

#[test]
fn a_newer_format_is_refused() {
    let bench = Bench::new();
    bench.pool("tank", &["a", "b"], &[]);
    bench.dirs(&["mnt"]);
    for member in ["a", "b"] {
        let path = bench.at(member).join("superblock");
        let mut envelope = fs::read(&path).expect("the superblock")[..64].to_vec();
        envelope[8..12].copy_from_slice(&99u32.to_le_bytes());
        envelope[20..24].fill(0);
        let crc = crc32c::crc32c(&envelope);
        envelope[20..24].copy_from_slice(&crc.to_le_bytes());
        overwrite(&path, 0, &envelope);
    }
    let before = bench.snapshot();
    bench.poolfs(&["mount", &bench.text("mnt"), &bench.text("a")]).refused(1, &["99", "newer"]);
    bench.poolctl(&["examine", &bench.text("a")]).refused(1, &["99", "newer"]);
    assert_eq!(bench.snapshot(), before);
}

#[test]
fn a_cloned_member_is_refused() {
    let bench = Bench::new();
    bench.pool("tank", &["a", "b"], &[]);
    bench.dirs(&["mnt"]);
    let copied = Command::new("cp").arg("-r").args([bench.at("a"), bench.at("clone")]).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let before = bench.snapshot();
    let (mnt, a, clone) = (bench.text("mnt"), bench.text("a"), bench.text("clone"));
    bench.poolfs(&["mount", &mnt, &a, &clone]).refused(1, &["copy", "clone"]);
    assert_eq!(bench.snapshot(), before);
}

#[test]
fn members_of_two_pools_are_not_mixed() {
    let bench = Bench::new();
    bench.pool("one", &["a", "b"], &[]);
    bench.pool("two", &["c", "d"], &[]);
    bench.dirs(&["mnt"]);
    let before = bench.snapshot();
    bench
        .poolfs(&["mount", &bench.text("mnt"), &bench.text("a"), &bench.text("c")])
        .refused(1, &["another pool"]);
    assert_eq!(bench.snapshot(), before);
}

#[test]
fn too_few_members_are_named_with_what_would_help() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = bench.text("mnt");
    bench.pool("tank", &["a", "b", "c"], &["--resiliency", "parity", "--mountpoint", &mnt]);
    bench.poolfs(&["mount", &mnt]).done();
    fs::write(bench.at("mnt/file"), vec![7; 3 << 20]).expect("a file");
    bench.poolfs(&["umount", &mnt]).done();
    for gone in ["b", "c"] {
        fs::rename(bench.at(gone), bench.at(&format!("gone-{gone}"))).expect("renamed");
    }
    let before = bench.snapshot();
    bench.poolfs(&["mount", &mnt, "-o", "wait=0"]).refused(1, &[&bench.text("b"), &bench.text("c")]);
    assert_eq!(bench.snapshot(), before);
    bench.poolctl(&["status", "tank"]).code(4);
    // One of them back is enough.
    fs::rename(bench.at("gone-b"), bench.at("b")).expect("renamed");
    bench.poolctl(&["status", "tank"]).code(3);
    bench.poolfs(&["mount", &mnt, "-o", "wait=0"]).done();
    assert_eq!(fs::read(bench.at("mnt/file")).expect("the file"), vec![7; 3 << 20]);
}

#[test]
fn an_incomplete_pool_is_refused_when_every_member_is_asked_for() {
    let bench = Bench::new();
    bench.pool("tank", &["a", "b"], &[]);
    bench.dirs(&["mnt"]);
    fs::rename(bench.at("b"), bench.at("gone")).expect("renamed");
    let before = bench.snapshot();
    let args = ["mount", &bench.text("mnt"), &bench.text("a"), "-o", "wait=0,degraded=no"];
    bench.poolfs(&args).refused(1, &[&bench.text("b")]);
    assert_eq!(bench.snapshot(), before);
}
