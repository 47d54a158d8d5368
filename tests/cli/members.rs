//! Members that come and go while the pool is mounted, as people type it.

use std::fs;

use crate::bench::{Bench, can_mount};

/// A parity pool over members `a` to `d`, mounted, with files; its mount point.
fn mounted(bench: &Bench) -> String {
    let mnt = bench.text("mnt");
    bench.dirs(&["mnt"]);
    bench.pool("tank", &["a", "b", "c", "d"], &["--resiliency", "parity", "--mountpoint", &mnt]);
    bench.poolfs(&["mount", &mnt]).done();
    for number in 0..8_u8 {
        fs::write(bench.at(&format!("mnt/file{number}")), vec![number; 1_500_000]).expect("a file");
    }
    let synced = std::process::Command::new("sync").arg(&mnt).status();
    assert!(synced.is_ok_and(|status| status.success()));
    mnt
}

fn assert_files(bench: &Bench) {
    for number in 0..8_u8 {
        let read = fs::read(bench.at(&format!("mnt/file{number}"))).expect("a file");
        assert!(read == vec![number; 1_500_000], "file{number} reads as something else");
    }
}

fn state_of(bench: &Bench, member: &str) -> String {
    let status = bench.poolctl(&["status", "tank", "--json"]).json();
    let members = status["members"].as_array().cloned().unwrap_or_default();
    let found = members.iter().rfind(|one| one["path"] == bench.text(member).as_str());
    found.and_then(|one| one["health"].as_str()).unwrap_or("unknown").to_owned()
}

#[test]
fn members_are_added_replaced_and_removed() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = mounted(&bench);
    let [e, f] = [bench.member("e"), bench.member("f")];
    let planned = bench.poolctl(&["add", "tank", &e, "-n"]).done();
    assert!(planned.out.contains("slabs") && planned.out.contains("nothing was changed"), "{}", planned.out);
    assert_eq!(fs::read_dir(bench.at("e")).expect("a listing").count(), 0, "a dry run changed something");
    bench.poolctl(&["add", "tank", &e, "--rebalance"]).done();
    assert_files(&bench);
    assert_eq!(state_of(&bench, "e"), "online");
    bench.poolctl(&["replace", "tank", &bench.text("a"), &f]).done();
    assert_files(&bench);
    assert_eq!(state_of(&bench, "a"), "removed");
    bench.poolctl(&["remove", "tank", "1", "-n"]).done();
    bench.poolctl(&["remove", "tank", &bench.text("b")]).done();
    assert_eq!(state_of(&bench, "b"), "removed");
    assert_files(&bench);
    bench.poolctl(&["repair", "tank"]).done();
    bench.poolctl(&["rebalance", "tank", "-n"]).done();
    bench.poolfs(&["umount", &mnt]).done();
    bench.poolctl(&["check", "tank", "--data"]).done();
    bench.poolfs(&["mount", &mnt]).done();
    assert_files(&bench);
}

#[test]
fn a_member_goes_offline_and_comes_back() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    mounted(&bench);
    let d = bench.text("d");
    bench.poolctl(&["offline", "tank", &d]).done();
    assert_eq!(state_of(&bench, "d"), "offline");
    let status = bench.poolctl(&["status", "tank"]).code(3);
    let advice = format!("`poolctl online tank {d}`");
    assert!(status.out.contains(&advice), "{}", status.out);
    fs::write(bench.at("mnt/more"), vec![9; 700_000]).expect("a file");
    bench.poolctl(&["offline", "tank", &bench.text("a")]).refused(1, &["could not be read"]);
    // What is advised mends it.
    bench.poolctl(&["online", "tank", &d]).done();
    assert_eq!(state_of(&bench, "d"), "online");
    assert_files(&bench);
    bench.poolctl(&["repair", "tank"]).done();
    assert_eq!(bench.poolctl(&["status", "tank", "--json"]).done().json()["health"], "online");
    // A member that was given up is rebuilt elsewhere.
    bench.poolctl(&["remove", "tank", &d, "--lost"]).refused(1, &["online"]);
    bench.poolctl(&["offline", "tank", &d]).done();
    bench.poolctl(&["remove", "tank", &d, "--lost"]).done();
    assert_files(&bench);
    bench.poolctl(&["online", "tank", &d]).refused(1, &["taken out of the pool"]);
}

#[test]
fn nonsense_about_members_is_refused_before_anything_starts() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = mounted(&bench);
    bench.pool("other", &["x", "y"], &[]);
    bench.dirs(&["tiny"]);
    let tiny = format!("{},size=1M", bench.text("tiny"));
    let [a, x] = [bench.text("a"), bench.text("x")];
    bench.poolctl(&["add", "tank", &tiny]).refused(1, &["needs at least"]);
    bench.poolctl(&["add", "tank", &a]).refused(1, &["same member"]);
    bench.poolctl(&["add", "tank", &x]).refused(1, &["--force"]);
    bench.poolctl(&["add", "tank", &bench.text("a/inside")]).refused(1, &[]);
    bench.poolctl(&["add", "tank", &bench.text("nowhere")]).refused(1, &["nowhere"]);
    let fresh = bench.member("fresh");
    bench.poolctl(&["add", "tank", &fresh, &fresh]).refused(1, &["same member"]);
    bench.poolctl(&["add", "tank", &fresh, &tiny]).refused(1, &["needs at least"]);
    assert_eq!(fs::read_dir(bench.at("fresh")).expect("a listing").count(), 0, "it was added all the same");
    bench.poolctl(&["replace", "tank", &a, &tiny]).refused(1, &["needs at least"]);
    bench.poolctl(&["replace", "tank", "99", &fresh]).refused(1, &["no member", &a]);
    bench.poolctl(&["remove", "tank", "nonsense"]).refused(1, &["no member"]);
    bench.poolctl(&["remove", "tank", &a, "--force"]).code(2);
    bench.poolctl(&["online", "tank", &a]).refused(1, &[]);
    bench.poolctl(&["online", "tank", &x]).refused(1, &["belongs to another pool"]);
    bench.poolctl(&["remove", "nonsense", &a]).refused(1, &["nonsense"]);
    bench.poolctl(&["remove", "tank", &a]).done();
    bench.poolctl(&["remove", "tank", &bench.text("b")]).done();
    bench.poolctl(&["remove", "tank", &bench.text("c")]).refused(1, &["needs at least 2 members"]);
    bench.poolfs(&["umount", &mnt]).done();
    bench.poolfs(&["mount", &mnt, "-o", "ro"]).done();
    bench.poolctl(&["scrub", "tank"]).refused(1, &["read-only"]);
    bench.poolctl(&["add", "tank", &fresh]).refused(1, &["read-only"]);
    assert_files(&bench);
}

#[test]
fn members_come_and_go_without_a_mount() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = mounted(&bench);
    bench.poolfs(&["umount", &mnt]).done();
    let before = bench.snapshot();
    bench.poolctl(&["remove", "tank", &bench.text("a"), "-n"]).done();
    bench.poolctl(&["what-if", "tank", "--lose", &bench.text("a")]).code(3);
    assert_eq!(bench.snapshot(), before, "a dry run changed something");
    let [e, f] = [bench.member("e"), bench.member("f")];
    bench.poolctl(&["add", "tank", &e, "--rebalance"]).done();
    bench.poolctl(&["replace", "tank", &bench.text("a"), &f]).done();
    for gone in ["b", "c"] {
        bench.poolctl(&["remove", "tank", &bench.text(gone)]).done();
    }
    bench.poolctl(&["check", "tank", "--data"]).done();
    // The registry knows where its members are now.
    for gone in ["a", "b", "c"] {
        fs::rename(bench.at(gone), bench.at(&format!("{gone}-gone"))).expect("renamed");
    }
    bench.poolfs(&["mount", &mnt]).done();
    assert_files(&bench);
    bench.poolctl(&["scrub", "tank"]).done();
}

#[test]
fn image_files_are_whole_after_another_mount() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let (mnt, image) = (bench.text("mnt"), bench.text("c.img"));
    bench.dirs(&["mnt"]);
    fs::File::create(&image).and_then(|file| file.set_len(100 << 20)).expect("an image");
    let [a, b] = [bench.member("a"), bench.member("b")];
    let args = ["create", "tank", &a, &b, &image, "--resiliency", "parity", "--mountpoint", &mnt];
    bench.poolctl(&args).done();
    bench.poolfs(&["mount", &mnt]).done();
    fs::write(bench.at("mnt/file"), vec![7; 5_000_000]).expect("a file");
    bench.poolfs(&["umount", &mnt]).done();
    bench.poolfs(&["mount", &mnt]).done();
    assert_eq!(bench.poolctl(&["status", "tank", "--json"]).done().json()["health"], "online");
    bench.poolfs(&["umount", &mnt]).done();
    fs::rename(bench.at("a"), bench.at("gone")).expect("pulled");
    bench.poolfs(&["mount", &mnt, "-o", "wait=0"]).done();
    assert!(fs::read(bench.at("mnt/file")).expect("reads") == vec![7; 5_000_000]);
    bench.poolfs(&["umount", &mnt]).done();
}
