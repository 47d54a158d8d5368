//! The life of a pool as commands see it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bench::{Bench, can_mount};

#[test]
fn made_listed_examined_destroyed() {
    let bench = Bench::new();
    bench.pool("tank", &["a", "b", "c"], &["--resiliency", "parity"]);
    let list = bench.poolctl(&["list", "--json"]).done().json();
    assert_eq!(list["version"], 1);
    let tank = list["pools"].as_array().and_then(|pools| pools.iter().find(|pool| pool["name"] == "tank"));
    assert!(tank.is_some_and(|pool| pool["mounted"] == false && pool["state"] == "online"), "{list}");
    let status = bench.poolctl(&["status", "tank", "--json"]).done().json();
    assert_eq!((&status["version"], &status["health"]), (&1.into(), &"online".into()));
    assert_eq!(status["members"].as_array().map(Vec::len), Some(3));
    let uuid = status["uuid"].as_str().unwrap_or_default().to_owned();
    // By UUID, and by the path of a member.
    for name in [uuid.as_str(), &bench.text("b")] {
        assert_eq!(bench.poolctl(&["status", name, "--json"]).done().json()["uuid"], status["uuid"]);
    }
    let examined = bench.poolctl(&["examine", &bench.text("c"), "--json"]).done().json();
    assert_eq!((&examined["pool"], &examined["standing"]), (&status["uuid"], &"current".into()));
    let before = bench.snapshot();
    bench.poolctl(&["destroy", "tank"]).refused(1, &["--force"]);
    bench.poolctl(&["destroy", "tank", "-n"]).done();
    assert_eq!(bench.snapshot(), before);
    bench.poolctl(&["destroy", "tank", "--force"]).done();
    for member in ["a", "b", "c"] {
        assert_eq!(fs::read_dir(bench.at(member)).expect("a listing").count(), 0, "{member} is not empty");
    }
    bench.poolctl(&["status", &uuid]).refused(1, &[&uuid]);
    bench.pool("tank", &["a", "b"], &[]);
}

#[test]
fn plans_for_one_layout_and_for_all() {
    let bench = Bench::new();
    let members = [bench.member("a"), bench.member("b"), bench.member("c")];
    let [a, b, c] = members.each_ref().map(String::as_str);
    let before = bench.snapshot();
    let all = bench.poolctl(&["plan", a, b, c, "--json"]).done().json();
    let layouts = all["layouts"].as_array().cloned().unwrap_or_default();
    let usable = |name: &str| {
        layouts.iter().find(|row| row["resiliency"] == name).and_then(|row| row["usable_bytes"].as_u64())
    };
    assert!(usable("simple") > usable("parity") && usable("parity") > usable("mirror"), "{all}");
    assert_eq!(usable("parity:3"), None);
    bench.poolctl(&["plan", a, b, c, "--resiliency", "parity"]).done();
    bench.poolctl(&["plan", a, b, "--resiliency", "parity"]).refused(1, &["at least 3"]);
    assert_eq!(bench.snapshot(), before);
}

#[test]
fn mounted_in_every_form_and_unmounted() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = bench.text("mnt");
    bench.pool("tank", &["a", "b"], &["--mountpoint", &mnt]);
    let (pid_file, source) = (bench.text("pid"), format!("{}:{}", bench.text("a"), bench.text("b")));
    let forms: [&[&str]; 5] = [
        &["mount", &mnt, "--pid-file", &pid_file],
        &["mount", &mnt, &bench.text("b")],
        &["tank", &mnt, "-o", "rw,nosuid,nofail"],
        &[&source, &mnt, "-o", "defaults"],
        &["mount", &mnt, "-o", "noatime,cache=64M,write-cache=writethrough"],
    ];
    for (round, form) in forms.iter().enumerate() {
        bench.poolfs(form).done();
        let entry = mount_entry(&mnt);
        assert!(entry.contains(" - fuse.poolfs "), "{entry}");
        if form[1] == mnt && form[0] == source {
            assert!(entry.contains(&source), "{entry}");
        }
        let file = bench.at("mnt").join(format!("file{round}"));
        fs::write(&file, format!("round {round}")).expect("a file");
        assert_eq!(bench.poolctl(&["status", &mnt, "--json"]).done().json()["mounted"], true);
        bench.poolfs(&["umount", &mnt]).done();
        assert_eq!(fs::read_dir(&mnt).expect("a listing").count(), 0, "still mounted");
        assert!(!Path::new(&pid_file).exists());
    }
    bench.poolfs(&["mount", &mnt, "-o", "ro"]).done();
    for round in 0..forms.len() {
        let text = fs::read_to_string(bench.at("mnt").join(format!("file{round}"))).expect("the file");
        assert_eq!(text, format!("round {round}"));
    }
    assert!(fs::write(bench.at("mnt/new"), "").is_err(), "written although read-only");
}

#[test]
fn a_pool_is_checked_when_it_is_not_mounted() {
    let bench = Bench::new();
    let mnt = bench.text("mnt");
    bench.pool("tank", &["a", "b", "c"], &["--resiliency", "parity", "--mountpoint", &mnt]);
    let fresh = bench.poolctl(&["check", "tank", "--json"]).done().json();
    assert_eq!((&fresh["version"], &fresh["never_mounted"]), (&1.into(), &true.into()));
    bench.poolctl(&["check", "nonsense"]).refused(1, &["nonsense"]);
    // By the paths of members, which are all of one pool.
    let members = ["a", "b", "c"].map(|member| bench.text(member));
    let paths = [vec!["check", "--json"], members.iter().map(String::as_str).collect()].concat();
    assert_eq!(bench.poolctl(&paths).done().json()["uuid"], fresh["uuid"]);
    if !can_mount() {
        return;
    }
    bench.poolfs(&["mount", &mnt]).done();
    fs::write(bench.at("mnt/file"), vec![7; 300_000]).expect("a file");
    bench.poolctl(&["check", "tank"]).refused(1, &["mounted at", "umount"]);
    bench.poolfs(&["umount", &mnt]).done();
    let before = bench.snapshot();
    let checked = bench.poolctl(&["check", "tank", "--data", "--json"]).done().json();
    assert_eq!((&checked["health"], &checked["names"]), (&"online".into(), &1.into()), "{checked}");
    assert!(checked["data_bytes"].as_u64() >= Some(300_000), "{checked}");
    assert_eq!(bench.snapshot(), before, "checking changes nothing");
    fs::rename(bench.at("c"), bench.at("gone")).expect("renamed");
    let degraded = bench.poolctl(&["check", "tank", "--data", "--json"]).code(3).json();
    assert_eq!(degraded["findings"].as_array().map(Vec::len), Some(0), "{degraded}");
}

fn mount_entry(mountpoint: &str) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table");
    table.lines().find(|line| line.split(' ').nth(4) == Some(mountpoint)).unwrap_or_default().to_owned()
}

#[test]
fn degraded_mounts_warn_and_say_so() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = bench.text("mnt");
    bench.pool("tank", &["a", "b", "c"], &["--resiliency", "parity", "--mountpoint", &mnt]);
    bench.poolfs(&["mount", &mnt]).done();
    fs::write(bench.at("mnt/file"), "content").expect("a file");
    bench.poolfs(&["umount", &mnt]).done();
    fs::rename(bench.at("c"), bench.at("gone")).expect("renamed");
    let ran = bench.poolfs(&["mount", &mnt, "-o", "wait=0"]).done();
    assert!(ran.err.contains("degraded") && ran.err.contains("poolctl status"), "{}", ran.err);
    let status = bench.poolctl(&["status", "tank", "--json"]).code(3).json();
    assert_eq!(status["health"], "degraded");
    assert_eq!(fs::read_to_string(bench.at("mnt/file")).expect("the file"), "content");
    fs::write(bench.at("mnt/more"), "written while degraded").expect("a file");
}

#[test]
fn sigterm_makes_everything_durable() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let (mnt, pid_file) = (bench.text("mnt"), bench.text("pid"));
    bench.pool("tank", &["a", "b"], &["--mountpoint", &mnt]);
    bench.poolfs(&["mount", &mnt, "--pid-file", &pid_file]).done();
    fs::write(bench.at("mnt/file"), vec![1; 1 << 20]).expect("a file");
    let pid = fs::read_to_string(&pid_file).expect("the process").trim().to_owned();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().is_ok_and(|status| status.success()));
    // The next mount waits for nobody: it is refused while the process lives, so try until it has ended.
    let mounted = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        mount_entry(&mnt).is_empty() && bench.poolfs(&["mount", &mnt]).err.is_empty()
    });
    assert!(mounted, "the process did not end");
    assert_eq!(fs::read(bench.at("mnt/file")).expect("the file"), vec![1; 1 << 20]);
}

#[test]
fn the_mount_of_a_killed_process_is_cleared() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let (mnt, pid_file) = (bench.text("mnt"), bench.text("pid"));
    bench.pool("tank", &["a", "b"], &["--mountpoint", &mnt]);
    bench.poolfs(&["mount", &mnt, "--pid-file", &pid_file]).done();
    fs::write(bench.at("mnt/file"), "content").expect("a file");
    fs::File::open(bench.at("mnt/file")).and_then(|file| file.sync_all()).expect("durable");
    let pid = fs::read_to_string(&pid_file).expect("the process").trim().to_owned();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().is_ok_and(|status| status.success()));
    let dead = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        fs::read_dir(&mnt).is_err()
    });
    assert!(dead, "the mount outlived its process");
    bench.poolfs(&["mount", &mnt]).refused(1, &["poolfs umount"]);
    bench.poolfs(&["umount", &mnt]).done();
    bench.poolfs(&["mount", &mnt]).done();
    assert_eq!(fs::read_to_string(bench.at("mnt/file")).expect("the file"), "content");
}

#[test]
fn umount_does_not_wait_for_other_mount_namespaces() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = bench.text("mnt");
    bench.pool("tank", &["a", "b"], &["--mountpoint", &mnt]);
    bench.poolfs(&["mount", &mnt]).done();
    fs::write(bench.at("mnt/file"), "content").expect("a file");
    let holder =
        Command::new("unshare").args(["--mount", "--propagation", "private", "sleep", "1000"]).spawn();
    let Ok(mut holder) = holder else { return };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let ran = bench.poolfs(&["umount", &mnt]);
    holder.kill().expect("ended");
    holder.wait().expect("ended");
    let ran = ran.done();
    assert!(ran.err.contains("namespaces") && ran.err.contains("durable"), "{}", ran.err);
    assert!(mount_entry(&mnt).is_empty());
    bench.poolfs(&["mount", &mnt, "-o", "wait=5"]);
    bench.poolfs(&["umount", &mnt]);
}
