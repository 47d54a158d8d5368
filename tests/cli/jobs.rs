//! Jobs, events and questions about a mounted pool, as people type them.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::bench::{Bench, can_mount};

/// A parity pool over three members, mounted, with one file of 12 MiB; its mount point.
fn mounted(bench: &Bench, options: &str) -> String {
    let mnt = bench.text("mnt");
    bench.dirs(&["mnt"]);
    bench.pool("tank", &["a", "b", "c"], &["--resiliency", "parity", "--mountpoint", &mnt]);
    bench.poolfs(&["mount", &mnt, "--pid-file", &bench.text("pid"), "-o", options]).done();
    fs::write(bench.at("mnt/file"), content()).expect("a file");
    sync(bench);
    mnt
}

fn content() -> Vec<u8> {
    (0..12 << 20_u32).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Everything is in stripes.
fn sync(bench: &Bench) {
    assert!(Command::new("sync").arg(bench.at("mnt")).status().is_ok_and(|status| status.success()));
    bench.poolctl(&["locate", &bench.text("mnt/file")]).done();
}

/// Overwrites every 37th sector of all slabs of a member that hold something; says how many.
fn spoil(member: &Path) -> u64 {
    let mut spoiled = 0;
    let mut slabs: Vec<PathBuf> =
        fs::read_dir(member.join("slabs")).expect("slabs").map(|entry| entry.expect("one").path()).collect();
    slabs.sort();
    for slab in slabs {
        let file = fs::OpenOptions::new().read(true).write(true).open(&slab).expect("a slab");
        let sectors = file.metadata().expect("its length").len() / 4096;
        for sector in (1..sectors).step_by(37) {
            let mut buf = [0; 4096];
            file.read_exact_at(&mut buf, sector * 4096).expect("read");
            if buf.iter().any(|byte| *byte != 0) {
                buf[100] ^= 0x40;
                file.write_all_at(&buf, sector * 4096).expect("written");
                spoiled += 1;
            }
        }
        file.sync_all().expect("synced");
    }
    spoiled
}

fn number(value: &serde_json::Value, what: &str) -> u64 {
    let counts = value["counts"].as_array().cloned().unwrap_or_default();
    counts.iter().find(|one| one["what"] == what).and_then(|one| one["number"].as_u64()).unwrap_or(0)
}

#[test]
fn a_scrub_heals_and_says_so_everywhere() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = mounted(&bench, "rw");
    let before = bench.snapshot();
    bench.poolctl(&["scrub", "tank", "-n"]).done();
    assert_eq!(
        bench.poolctl(&["jobs", "tank", "--json"]).done().json()["pools"][0]["jobs"][0],
        serde_json::Value::Null
    );
    drop(before);
    assert!(spoil(&bench.at("b")) > 20);
    let ran = bench.poolctl(&["scrub", "tank"]).done();
    assert!(ran.out.contains("scrub is done") && ran.out.contains("healed"), "{}", ran.out);
    let jobs = bench.poolctl(&["jobs", "tank", "--json"]).done().json();
    let job = &jobs["pools"][0]["jobs"][0];
    assert_eq!((&job["state"], number(job, "lost")), (&"done".into(), 0), "{job}");
    assert!(number(job, "healed") + number(job, "parity-rewritten") > 20, "{job}");
    let status = bench.poolctl(&["status", "tank", "--json"]).done().json();
    assert_eq!(status["last_scrub"]["id"], job["id"]);
    assert!(bench.poolctl(&["status", "tank"]).done().out.contains("scrub: last one ended"));
    let events = bench.poolctl(&["events", "tank", "--json"]).done().json();
    let kinds: Vec<&str> = events["events"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|event| event["what"].as_str())
        .collect();
    for kind in ["mounted", "job-started", "job-done"] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
    bench.poolctl(&["scrub", "tank"]).done();
    let again = bench.poolctl(&["jobs", "tank", "--json"]).done().json();
    assert_eq!(number(&again["pools"][0]["jobs"][0], "healed"), 0);
    assert!(fs::read(bench.at("mnt/file")).expect("the file") == content());
    bench.poolfs(&["umount", &mnt]).done();
    bench.poolctl(&["check", "tank", "--data"]).done();
    // Without a mount it is the same.
    spoil(&bench.at("c"));
    let ran = bench.poolctl(&["scrub", "tank"]).done();
    assert!(ran.out.contains("scrub is done"), "{}", ran.out);
    assert!(bench.poolctl(&["events", "tank"]).done().out.contains("scrub is done"));
    bench.poolctl(&["check", "tank", "--data"]).done();
    bench.poolctl(&["iostat", "tank"]).refused(1, &["not mounted", &format!("poolfs mount {mnt}")]);
    bench.poolfs(&["mount", &mnt]).done();
    let events = bench.poolctl(&["events", "tank"]).done();
    assert!(events.out.contains("scrub is done"), "events survive an unmount: {}", events.out);
}

#[test]
fn a_scrub_rests_goes_on_and_survives_a_kill() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = mounted(&bench, "rw");
    bench.poolctl(&["set", "tank", "job-rate=1M", "job-window=always"]).done();
    let started = bench.poolctl(&["scrub", "tank", "--background"]).done();
    assert!(started.out.contains("poolctl wait"), "{}", started.out);
    bench.poolctl(&["scrub", "tank"]).refused(1, &["runs already", "poolctl jobs"]);
    let job = || bench.poolctl(&["jobs", "tank", "--json"]).done().json()["pools"][0]["jobs"][0].clone();
    let until = |what: &str, is: &dyn Fn(&serde_json::Value) -> bool| {
        for _ in 0..600 {
            let now = job();
            if is(&now) {
                return now;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("never {what}: {}", job());
    };
    until("moving", &|job| job["done_bytes"].as_u64() > Some(0));
    bench.poolctl(&["scrub", "tank", "--pause"]).done();
    let paused = job();
    assert_eq!(paused["state"], "paused");
    std::thread::sleep(Duration::from_secs(5));
    bench.poolctl(&["scrub", "tank", "--resume"]).done();
    assert_eq!(job()["state"], "running");
    // Its place is kept every few seconds.
    std::thread::sleep(Duration::from_secs(7));
    let before = job();
    let pid = fs::read_to_string(bench.at("pid")).expect("the process").trim().to_owned();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().is_ok_and(|status| status.success()));
    for _ in 0..600 {
        std::thread::sleep(Duration::from_millis(10));
        if fs::read_dir(&mnt).is_err() {
            break;
        }
    }
    bench.poolfs(&["umount", &mnt]).done();
    bench.poolfs(&["mount", &mnt]).done();
    let after = job();
    assert_eq!(after["id"], before["id"], "the job is gone: {after}");
    assert!(after["done_bytes"].as_u64() > Some(0), "it began anew: {after}, it was at {before}");
    bench.poolctl(&["set", "tank", "job-rate=auto"]).done();
    let id = after["id"].as_u64().expect("a number").to_string();
    bench.poolctl(&["wait", "tank", &id]).done();
    assert_eq!(job()["state"], "done");
    bench.poolctl(&["wait", "tank"]).done();
    bench.poolctl(&["wait", "tank", "999"]).refused(1, &["no job 999"]);
    bench.poolctl(&["scrub", "tank", "--cancel"]).refused(1, &["no scrub runs"]);
}

#[test]
fn the_hook_is_told_of_a_lost_member() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let (hook, told) = (bench.at("hook"), bench.at("told"));
    fs::write(&hook, format!("#!/bin/sh\ncat >> {}\n", told.display())).expect("a script");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("may be run");
    bench.dirs(&["mnt"]);
    let relative = bench.poolfs(&["mount", &bench.text("mnt"), "-o", "event-hook=hook"]);
    relative.refused(2, &["event-hook", "absolute"]);
    mounted(&bench, &format!("event-hook={}", hook.display()));
    bench.poolctl(&["offline", "tank", &bench.text("c")]).done();
    let lines = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(&told).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let is_told = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let lines = lines();
        lines.iter().any(|line| line["what"] == "health") && lines.iter().any(|line| line["what"] == "member")
    });
    assert!(is_told, "{:?}", lines());
    assert!(lines().iter().all(|line| line["pool"] == "tank" && line["version"] == 1));
    let numbers: Vec<u64> = lines().iter().filter_map(|line| line["number"].as_u64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "out of order: {numbers:?}");
}

#[test]
fn questions_about_a_mounted_pool() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    mounted(&bench, "rw");
    let [a, b] = [bench.text("a"), bench.text("b")];
    let one = bench.poolctl(&["what-if", "tank", "--lose", &a, "--json"]).code(3).json();
    assert_eq!((&one["health"], &one["sets_unreadable"]), (&"degraded".into(), &0.into()), "{one}");
    let two = bench.poolctl(&["what-if", "tank", "--lose", &a, "1", "--json"]).code(4).json();
    assert_eq!(two["health"], "unavailable");
    assert!(two["files_unreadable"].as_u64() >= Some(1), "{two}");
    assert!(two["examples"].as_array().is_some_and(|paths| paths.contains(&"/file".into())), "{two}");
    bench.poolctl(&["what-if", "tank", "--lose", &b]).code(3);
    bench.poolctl(&["what-if", "tank", "--lose", "nonsense"]).refused(1, &["no member", &a]);
    bench.poolctl(&["what-if", "tank"]).code(2);
    let located = bench.poolctl(&["locate", &bench.text("mnt/file"), "--json"]).done().json();
    let parts = located["parts"].as_array().expect("parts");
    let bytes: u64 = parts.iter().filter_map(|part| part["len"].as_u64()).sum();
    assert_eq!(bytes, 12 << 20, "{located}");
    assert!(parts.iter().all(|part| part["slabs"].as_array().map(Vec::len) == Some(3)));
    bench.poolctl(&["locate", "/"]).refused(1, &["not lie in a mounted pool"]);
    let rates = bench.poolctl(&["iostat", "tank", "--json"]).done().json();
    assert_eq!(rates["members"].as_array().map(Vec::len), Some(3));
    assert!(bench.poolctl(&["iostat", "tank"]).done().out.contains(&a));
    for bad in ["job-rate=fast", "job-window=25:00-01:00", "short-writes=maybe", "colour=blue", "nothing"] {
        bench.poolctl(&["set", "tank", bad]).refused(2, &["can't be set"]);
    }
    bench.poolctl(&["set", "tank", "job-rate=5M", "job-window=01:00-05:30", "short-writes=refuse"]).done();
    let status = bench.poolctl(&["status", "tank", "--json"]).done().json();
    assert_eq!(status["settings"]["job-window"], "01:00-05:30", "{status}");
    assert_eq!(status["settings"]["job-rate"], (5 << 20).to_string());
}
