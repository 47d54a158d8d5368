//! Bad input to `poolfs`.

use std::fs;

use crate::bench::{Bench, can_mount};

#[track_caller]
fn refused(bench: &Bench, code: i32, args: &[&str], words: &[&str]) {
    let before = bench.snapshot();
    bench.poolfs(args).refused(code, words);
    assert_eq!(bench.snapshot(), before, "{args:?} changed something");
}

#[test]
fn mount_points_that_can_not_be() {
    let bench = Bench::new();
    bench.pool("tank", &["a", "b"], &[]);
    bench.dirs(&["full", "mnt"]);
    fs::write(bench.at("full/file"), "data").expect("a file");
    fs::write(bench.at("file"), "data").expect("a file");
    let a = bench.text("a");
    let mount = |place: &str, words: &[&str]| refused(&bench, 1, &["mount", &bench.text(place), &a], words);
    mount("full", &["not empty"]);
    mount("file", &["not a directory"]);
    mount("nothing", &["nothing"]);
    mount("a", &["member"]);
    mount("b", &["member"]);
    mount("b/slabs", &["inside the member"]);
}

#[test]
fn nothing_is_registered() {
    let bench = Bench::new();
    bench.dirs(&["mnt"]);
    refused(&bench, 1, &["mount", &bench.text("mnt")], &["no pool is registered", "poolctl create"]);
    refused(&bench, 1, &["nosuchpool", &bench.text("mnt")], &["nosuchpool"]);
    refused(&bench, 1, &["mount", &bench.text("mnt"), &bench.text("nothing")], &["nothing"]);
    bench.dirs(&["empty"]);
    refused(&bench, 1, &["mount", &bench.text("mnt"), &bench.text("empty")], &["not a member"]);
}

#[test]
fn options_that_make_no_sense() {
    let bench = Bench::new();
    bench.pool("tank", &["a", "b"], &[]);
    bench.dirs(&["mnt"]);
    let (mnt, a) = (bench.text("mnt"), bench.text("a"));
    let with = |options: &str, word: &str| refused(&bench, 2, &["mount", &mnt, &a, "-o", options], &[word]);
    with("frobnicate", "frobnicate");
    with("ro,chache=1G", "chache");
    with("cache=1", "cache=1");
    with("cache=much", "much");
    with("cache=999999T", "memory");
    with("commit=0", "commit=0");
    with("wait=soon", "wait=soon");
    with("degraded=maybe", "auto, yes, no, partial");
    with("write-cache=sometimes", "writeback");
    with("short-writes=perhaps", "refuse");
    with("diverged", "ro");
    refused(&bench, 2, &["mount", &mnt, &a, "--frobnicate"], &["--frobnicate"]);
    refused(&bench, 2, &["mount"], &["MOUNTPOINT"]);
}

#[test]
fn two_mounts_at_once() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.pool("tank", &["a", "b"], &["--mountpoint", &bench.text("mnt")]);
    bench.dirs(&["elsewhere"]);
    let (mnt, elsewhere, b) = (bench.text("mnt"), bench.text("elsewhere"), bench.text("b"));
    bench.poolfs(&["mount", &mnt]).done();
    bench.poolfs(&["mount", &mnt]).refused(1, &["mounted already"]);
    bench.poolfs(&["mount", &elsewhere, &b]).refused(1, &["in use"]);
    bench.poolctl(&["destroy", "tank", "--force"]).refused(1, &["poolfs umount"]);
    bench.poolfs(&["umount", &mnt]).done();
    bench.poolfs(&["umount", &mnt]).refused(1, &["not a mounted pool"]);
    bench.poolfs(&["mount", &elsewhere, &b]).done();
}
