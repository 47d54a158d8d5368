//! Bad input to `poolctl create`.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::bench::{Bench, is_root};

/// Refused, with these words, and nothing changed.
#[track_caller]
fn refused(bench: &Bench, code: i32, args: &[&str], words: &[&str]) {
    let before = bench.snapshot();
    bench.poolctl(args).refused(code, words);
    assert_eq!(bench.snapshot(), before, "{args:?} changed something");
}

#[test]
fn no_members() {
    refused(&Bench::new(), 2, &["create", "tank"], &["MEMBER"]);
}

#[test]
fn too_few_for_the_layout() {
    let bench = Bench::new();
    let (a, b) = (bench.member("a"), bench.member("b"));
    refused(&bench, 1, &["create", "tank", &a], &["mirror", "at least 2", "1 "]);
    refused(&bench, 1, &["create", "tank", &a, &b, "--resiliency", "parity"], &["parity", "at least 3"]);
    refused(
        &bench,
        1,
        &["create", "tank", &a, &b, "--resiliency", "mirror", "--copies", "3"],
        &["at least 3"],
    );
    let wide = ["create", "tank", &a, &b, "--resiliency", "simple", "--columns", "3"];
    refused(&bench, 1, &wide, &["at least 3"]);
}

#[test]
fn the_same_member_twice() {
    let bench = Bench::new();
    let (a, b) = (bench.member("a"), bench.member("b"));
    symlink(bench.at("a"), bench.at("link")).expect("a link");
    let link = bench.text("link");
    let detour = format!("{}/../a/.", bench.text("b"));
    for again in [&a, &link, &detour] {
        refused(&bench, 1, &["create", "tank", &a, &b, again], &["same member"]);
    }
    fs::write(bench.at("image"), vec![0; 1 << 20]).expect("an image");
    fs::hard_link(bench.at("image"), bench.at("image2")).expect("a hard link");
    let images = [bench.text("image"), bench.text("image2")];
    refused(&bench, 1, &["create", "tank", &images[0], &images[1]], &["same member"]);
}

#[test]
fn the_same_member_through_a_bind_mount() {
    let bench = Bench::new();
    let a = bench.member("a");
    bench.dirs(&["bound"]);
    let bind = Command::new("mount").arg("--bind").args([bench.at("a"), bench.at("bound")]).status();
    if !is_root() || !bind.is_ok_and(|status| status.success()) {
        eprintln!("skipped: bind mounts are not allowed here");
        return;
    }
    refused(&bench, 1, &["create", "tank", &a, &bench.text("bound")], &["same member"]);
}

#[test]
fn one_inside_another() {
    let bench = Bench::new();
    let a = bench.member("a");
    bench.dirs(&["outer/inner"]);
    let (outer, inner) = (bench.text("outer"), bench.text("outer/inner"));
    refused(&bench, 1, &["create", "tank", &a, &outer, &inner], &["inside"]);
    refused(&bench, 1, &["create", "tank", &a, &inner, &outer], &["inside"]);
}

#[test]
fn a_member_of_another_pool() {
    let bench = Bench::new();
    bench.pool("first", &["a", "b"], &[]);
    let (a, c) = (bench.text("a"), bench.member("c"));
    refused(&bench, 1, &["create", "second", &c, &a], &["--force"]);
}

#[test]
fn a_used_device_without_force() {
    let bench = Bench::new();
    let mut image = vec![0; 64 << 20];
    // What ext4 puts there.
    image[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    fs::write(bench.at("image"), image).expect("an image");
    let (a, image) = (bench.member("a"), bench.text("image"));
    refused(&bench, 1, &["create", "tank", &a, &image], &["--force", "image"]);
    bench.poolctl(&["create", "tank", &a, &image, "--force"]).done();
}

#[test]
fn a_directory_that_is_not_empty() {
    let bench = Bench::new();
    let (a, b) = (bench.member("a"), bench.member("b"));
    fs::write(bench.at("b/precious"), "data").expect("a file");
    refused(&bench, 1, &["create", "tank", &a, &b], &["b"]);
    // Files of others are never destroyed.
    refused(&bench, 1, &["create", "tank", &a, &b, "--force"], &["b"]);
}

#[test]
fn missing_and_unsuitable_members() {
    let bench = Bench::new();
    let a = bench.member("a");
    refused(&bench, 1, &["create", "tank", &a, &bench.text("nothing")], &["nothing"]);
    refused(&bench, 1, &["create", "tank", &a, "/dev/null"], &["/dev/null"]);
}

#[test]
fn a_read_only_member() {
    let bench = Bench::new();
    let a = bench.member("a");
    bench.dirs(&["ro"]);
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "ro", "tmpfs"]).arg(bench.at("ro")).status();
    if !is_root() || !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    refused(&bench, 1, &["create", "tank", &a, &bench.text("ro")], &["ro"]);
}

#[test]
fn sizes_that_make_no_sense() {
    let bench = Bench::new();
    let (a, b) = (bench.member("a"), bench.member("b"));
    let with = |option: &str, value: &str, code: i32, word: &str| {
        refused(&bench, code, &["create", "tank", &a, &b, option, value], &[word]);
    };
    with("--slab", "much", 2, "much");
    with("--slab", "3M", 1, "power of two");
    with("--slab", "512M", 1, "power of two");
    with("--interleave", "1K", 2, "64K");
    with("--interleave", "100K", 2, "64K");
    with("--interleave", "2M", 2, "64K");
    with("--columns", "0", 2, "columns");
    with("--columns", "many", 2, "many");
    with("--copies", "4", 2, "2 or 3");
    with("--resiliency", "raid5", 2, "raid5");
    let path = bench.text("b");
    for bad in ["size=0", "size=-1", "size=1X", "size=99999999999999999999T", "colour=red", "size=1G,size=2G"]
    {
        refused(&bench, 2, &["create", "tank", &a, &format!("{path},{bad}")], &["b"]);
    }
    refused(&bench, 2, &["create", "tank", &a, &b, "--frobnicate"], &["--frobnicate"]);
}

#[test]
fn numbers_that_the_layout_does_not_have() {
    let bench = Bench::new();
    let (a, b) = (bench.member("a"), bench.member("b"));
    refused(&bench, 2, &["create", "tank", &a, &b, "--resiliency", "simple", "--copies", "2"], &["simple"]);
    refused(
        &bench,
        2,
        &["create", "tank", &a, &b, "--resiliency", "parity", "--parity", "4"],
        &["1, 2 or 3"],
    );
    refused(&bench, 2, &["create", "tank", &a, &b, "--resiliency", "mirror", "--parity", "1"], &["parity"]);
}

#[test]
fn too_little_space() {
    let bench = Bench::new();
    bench.dirs(&["a", "b"]);
    let tiny = [format!("{},size=1M", bench.text("a")), format!("{},size=1M", bench.text("b"))];
    refused(&bench, 1, &["create", "tank", &tiny[0], &tiny[1]], &["1.0 MiB"]);
}

#[test]
fn names_that_can_not_be() {
    let bench = Bench::new();
    let (a, b) = (bench.member("a"), bench.member("b"));
    let long = "x".repeat(65);
    for name in ["", "a/b", "a b", ".hidden", long.as_str()] {
        refused(&bench, 1, &["create", name, &a, &b], &["name"]);
    }
}

#[test]
fn a_name_that_is_taken() {
    let bench = Bench::new();
    bench.pool("tank", &["a", "b"], &[]);
    let (c, d) = (bench.member("c"), bench.member("d"));
    refused(&bench, 1, &["create", "tank", &c, &d], &["tank", "poolctl destroy"]);
}

#[test]
fn a_mount_point_that_is_a_member() {
    let bench = Bench::new();
    let (a, b) = (bench.member("a"), bench.member("b"));
    let place = bench.text("a");
    refused(&bench, 1, &["create", "tank", &a, &b, "--mountpoint", &place], &["member"]);
}

#[test]
fn a_dry_run_changes_nothing() {
    let bench = Bench::new();
    let (a, b) = (bench.member("a"), bench.member("b"));
    let before = bench.snapshot();
    let ran = bench.poolctl(&["create", "tank", &a, &b, "-n", "--mountpoint", &bench.text("mnt")]).done();
    assert!(ran.out.contains("would make pool tank") && ran.out.contains("usable"), "{}", ran.out);
    assert_eq!(bench.snapshot(), before);
}
