//! What users of pools have met, with members that go, come back, fill up or die, and processes that are killed.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::disks::{Disk, copy_members};
use crate::support::pool::TestPool;
use crate::support::run::{LONG, SHORT, run};
use crate::support::scratch::{is_mounted, type_and_source};
use crate::support::tree::Tree;
use crate::support::{Random, am_root};

const MIB: usize = 1 << 20;

fn fill(dir: &Path, files: usize, bytes: usize, seed: u64) {
    let mut random = Random::new(seed);
    for number in 0..files {
        fs::write(dir.join(format!("f{number}")), random.bytes(bytes)).expect("written");
    }
}

/// A mount of copies of the members, as they were at one moment.
struct Snapshot {
    members: Vec<PathBuf>,
    mountpoint: PathBuf,
    world: PathBuf,
}

impl Snapshot {
    fn of(pool: &TestPool, name: &str) -> Self {
        let world = pool.scratch().join(name);
        let members = copy_members(&pool.disks, &world);
        let mountpoint = world.join("mnt");
        for dir in [&mountpoint, &world.join("run")] {
            fs::create_dir_all(dir).expect("a directory");
        }
        Self { members, mountpoint, world }
    }

    /// Mounts the copies in a world of their own, and reads everything.
    fn read(&self, pool: &TestPool) -> Tree {
        let own = |command: &mut Command| {
            command.env("XDG_RUNTIME_DIR", self.world.join("run"));
            command.env("POOLFS_REGISTRY", self.world.join("pools.toml"));
            run(command, LONG).ok();
        };
        own(pool.poolfs(&["mount"]).arg(&self.mountpoint).args(&self.members).args(["-o", "wait=0"]));
        let tree = Tree::read(&self.mountpoint);
        own(pool.poolfs(&["umount"]).arg(&self.mountpoint));
        tree
    }
}

/// However a mount ends in order, what was written is on the members by then.
#[test]
fn when_a_mount_has_ended_everything_is_on_the_members() {
    type End = fn(&TestPool);
    let ends: [(&str, End); 4] = [
        ("poolfs umount", |pool| {
            run(pool.poolfs(&["umount"]).arg(pool.path()), LONG).ok();
        }),
        ("umount", |pool| {
            run(Command::new("umount").arg(pool.path()), LONG).ok();
        }),
        ("SIGTERM", |pool| pool.signal(Signal::TERM)),
        ("fusermount3", |pool| {
            run(Command::new("fusermount3").arg("-u").arg(pool.path()), LONG).ok();
        }),
    ];
    let pool = TestPool::mounted("mirror", &Disk::directories(2, "600M"));
    for (round, (how, end)) in ends.into_iter().enumerate() {
        fill(pool.path(), 100, MIB, round as u64);
        fs::remove_file(pool.path().join("f1")).expect("removed");
        let expected = Tree::read(pool.path());
        let pid = pool.pid();
        end(&pool);
        // `poolfs umount` promises it at its return; the others when the process has ended.
        if how == "poolfs umount" {
            assert!(!pool.is_served(), "{how} returned, and the process goes on");
        }
        pool.wait_for_end(pid);
        assert!(!is_mounted(pool.path()), "{how}: a stale mount is left");
        expected.assert_same(&Snapshot::of(&pool, &format!("snapshot{round}")).read(&pool), how);
        pool.mount();
        expected.assert_same(&Tree::read(pool.path()), how);
    }
}

#[test]
fn sigterm_ends_a_mount_that_a_program_uses() {
    let pool = TestPool::mounted("mirror", &Disk::directories(2, "300M"));
    fill(pool.path(), 5, MIB, 1);
    let expected = Tree::read(pool.path());
    let open = fs::File::open(pool.path().join("f1")).expect("opened");
    let pid = pool.pid();
    pool.signal(Signal::TERM);
    crate::support::run::until("the mount to go out of sight", SHORT, || !is_mounted(pool.path()));
    let durable = Snapshot::of(&pool, "snapshot");
    drop(open);
    pool.wait_for_end(pid);
    expected.assert_same(&durable.read(&pool), "copied while a file was still open");
}

/// The write hole: a stripe is being rewritten, the process dies, and so does a member. What nobody touched is
/// there, whichever member it is.
#[test]
fn a_crash_during_overwrites_and_a_lost_member_cost_no_neighbour() {
    let mut pool = TestPool::mounted("parity", &Disk::directories(4, "500M"));
    fs::create_dir(pool.path().join("cold")).expect("a directory");
    fill(&pool.path().join("cold"), 60, MIB / 2, 3);
    let hot = pool.path().join("hot");
    fs::write(&hot, vec![0; 8 * MIB]).and_then(|()| fs::File::open(&hot)?.sync_all()).expect("written");
    fs::File::open(pool.path()).and_then(|dir| dir.sync_all()).expect("synced");
    let expected = Tree::read(&pool.path().join("cold"));
    // All of it is on the members before the first crash.
    pool.remount();
    for victim in 0..4 {
        let mut writer = Command::new("python3");
        let program = "import os,random\nf=os.open('hot',os.O_RDWR)\n\
            while 1: os.pwrite(f,bytes([random.randrange(256)])*4096,random.randrange(2048)*4096); os.fdatasync(f)";
        writer.args(["-c", program]).current_dir(pool.path()).stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = writer.spawn().expect("a writer");
        std::thread::sleep(Duration::from_millis(700));
        pool.crash();
        crate::support::run::wait(&mut child, SHORT).expect("the writer ends with its mount");
        pool.pull(&[victim]);
        pool.mount();
        expected.assert_same(&Tree::read(&pool.path().join("cold")), &format!("without member {victim}"));
        let found = fs::read(pool.path().join("hot")).expect("the hot file is read");
        for (number, block) in found.chunks(4096).enumerate() {
            assert!(block.iter().all(|byte| *byte == block[0]), "block {number} of the hot file is mixed");
        }
        pool.unmount();
        pool.restore(&[victim]);
        pool.mount();
        expected.assert_same(&Tree::read(&pool.path().join("cold")), "all back");
    }
}

/// One member gone: mounts as often as needed, says so, and goes on. Too many gone: refused, and nothing is touched.
#[test]
fn missing_members_are_named_and_their_places_left_alone() {
    for (resiliency, survives) in [("mirror", 1), ("parity", 1), ("mirror:3", 2)] {
        let mut pool = TestPool::mounted(resiliency, &Disk::directories(3, "300M"));
        fill(pool.path(), 10, MIB, 2);
        let mut expected = Tree::read(pool.path());
        pool.unmount();
        for lost in 0..3 {
            pool.pull(&[lost]);
            for time in 0..2 {
                let said = pool.mount();
                let path = pool.disks[lost].path().display().to_string();
                assert!(said.err.contains(&path), "the missing member is not named: {said}");
                expected.assert_same(&Tree::read(pool.path()), &format!("{resiliency} without {lost}"));
                let status = pool.status();
                assert_eq!(status.code, Some(3), "degraded: {status}");
                assert!(status.out.contains(&path), "status does not name it: {status}");
                fs::write(pool.path().join(format!("d{lost}{time}")), "degraded").expect("written");
                expected = Tree::read(pool.path());
                pool.unmount();
                pool.disks[lost].assert_untouched();
            }
            pool.restore(&[lost]);
            pool.mount();
            expected.assert_same(&Tree::read(pool.path()), &format!("{resiliency}, {lost} is back"));
            pool.unmount();
        }
        let too_many: Vec<usize> = (0..=survives).collect();
        if too_many.len() < 3 {
            pool.pull(&too_many);
            let said = pool.try_mount(&["degraded=yes"]).exits(1);
            let named =
                too_many.iter().any(|&n| said.err.contains(&pool.disks[n].path().display().to_string()));
            assert!(named, "none of the missing is named: {said}");
            assert!(!is_mounted(pool.path()));
            pool.restore(&too_many);
        }
        pool.mount();
        expected.assert_same(&Tree::read(pool.path()), resiliency);
        pool.unmount();
    }
}

/// At boot the disks may come late: their mount points are empty directories until then.
#[test]
fn a_mount_before_the_disks_are_there() {
    let mut pool = TestPool::mounted("mirror", &Disk::directories(2, "300M"));
    fill(pool.path(), 5, MIB, 4);
    let expected = Tree::read(pool.path());
    pool.unmount();
    pool.pull(&[0, 1]);
    pool.try_mount(&[]).exits(1);
    pool.disks.iter().for_each(crate::support::disks::Slot::assert_untouched);
    pool.restore(&[0]);
    pool.mount_with(&["degraded=yes"]);
    expected.assert_same(&Tree::read(pool.path()), "with one disk");
    fs::write(pool.path().join("x"), "x").expect("written with one disk");
    pool.unmount();
    pool.disks[1].assert_untouched();
    pool.restore(&[1]);
    pool.mount();
    assert_eq!(fs::read_to_string(pool.path().join("x")).expect("read"), "x");
    pool.unmount();
    // A late one is waited for.
    pool.pull(&[1]);
    let before = Instant::now();
    let said = std::thread::scope(|scope| {
        let mount = scope.spawn(|| pool.try_mount(&["wait=20"]));
        std::thread::sleep(Duration::from_secs(1));
        let (from, to) = (pool.scratch().join("pulled1"), pool.disks[1].path());
        fs::remove_dir(&to).and_then(|()| fs::rename(from, to)).expect("given back late");
        mount.join().expect("the mount ends")
    });
    said.ok();
    assert!(before.elapsed() < Duration::from_secs(19), "waited although all were there");
    let health = pool.status_json();
    assert!(health.to_string().contains("online"), "not complete: {health}");
}

/// Members of 100, 300 and 600 M: space of all is used, also by one file; and an error comes only when it is full.
#[test]
fn no_space_only_when_there_is_none() {
    let sizes = ["100M", "300M", "600M"].map(Disk::Directory);
    let pool = TestPool::mounted("simple", &sizes);
    let mut file = fs::File::create(pool.path().join("one")).expect("made");
    let piece = Random::new(26).bytes(MIB);
    for number in 0..700 {
        file.write_all(&piece).unwrap_or_else(|e| panic!("MiB {number} of 700: {e}"));
    }
    file.sync_all().expect("synced");
    drop(file);
    fs::remove_file(pool.path().join("one")).expect("removed");
    let pool = TestPool::mounted("mirror", &sizes);
    let mut fitted = 0;
    let error = loop {
        match fs::write(pool.path().join(format!("s{fitted}")), &piece) {
            Ok(()) => fitted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!((330..=400).contains(&fitted), "{fitted} MiB fit a mirror of 100, 300 and 600 M");
}

/// A full pool can be emptied, unmounted, mounted.
#[test]
fn a_full_pool_can_delete() {
    let pool = TestPool::mounted("mirror", &Disk::directories(2, "200M"));
    let path = |name: String| pool.path().join(name);
    let piece = Random::new(28).bytes(MIB);
    let mut files = 0;
    while fs::write(path(format!("a{files}")), &piece).is_ok() {
        files += 1;
    }
    assert!(files > 50, "only {files} files fit");
    let mut small = 0;
    while small < 20_000 && fs::write(path(format!("t{small}")), "x").is_ok() {
        small += 1;
    }
    // A directory may still fit or not; it must not hang or break anything.
    let _ = fs::create_dir(path("dir".into()));
    fs::remove_file(path("a0".into())).expect("rm on a full pool");
    fs::OpenOptions::new().write(true).open(path("a1".into())).and_then(|f| f.set_len(0)).expect("truncate");
    fs::rename(path("a2".into()), path("renamed".into())).expect("rename");
    pool.unmount();
    pool.mount();
    assert!(fs::read(path("renamed".into())).expect("read") == piece, "a file of the full pool");
    for entry in fs::read_dir(pool.path()).expect("listed").flatten() {
        let gone =
            if entry.path().is_dir() { fs::remove_dir(entry.path()) } else { fs::remove_file(entry.path()) };
        gone.expect("removed");
    }
    // Space comes back with the next checkpoints.
    let fits = crate::support::run::until_true(Duration::from_secs(40), || {
        let written = (0..10).all(|n| fs::write(path(format!("b{n}")), &piece).is_ok());
        if !written {
            std::thread::sleep(Duration::from_millis(500));
        }
        written
    });
    assert!(fits, "nothing fits after everything was deleted");
    pool.remount();
    assert!(fs::read(path("b9".into())).expect("read") == piece);
}

/// Somebody else fills the disk that a member lies on: the pool can still delete.
#[test]
fn a_member_filled_from_outside() {
    if !am_root() {
        return;
    }
    let pool = TestPool::mounted("mirror", &Disk::images(2, "200M"));
    fill(pool.path(), 30, MIB, 5);
    for disk in &pool.disks {
        let filler = disk.path().join("other");
        let line = format!("dd if=/dev/zero of={} bs=1M status=none || true", filler.display());
        crate::support::run::shell(pool.scratch(), &line, SHORT).ok();
    }
    let mut fitted = 0;
    while fitted < 500 && fs::write(pool.path().join(format!("more{fitted}")), vec![1; MIB]).is_ok() {
        fitted += 1;
    }
    assert!(fitted < 500, "more fits than there is");
    fs::remove_file(pool.path().join("f0")).expect("removed");
    let expected = Tree::read(pool.path());
    pool.remount();
    expected.assert_same(&Tree::read(pool.path()), "after another mount");
}

/// A disk turns read-only, or dies, under a mounted pool: writing goes on, reading goes on, status says which.
#[test]
fn a_member_that_fails_while_in_use() {
    if !am_root() {
        return;
    }
    for (resiliency, dies) in [("mirror", false), ("mirror", true), ("parity", false), ("parity", true)] {
        let what = format!("{resiliency}, {}", if dies { "dies" } else { "turns read-only" });
        let pool = TestPool::mounted(resiliency, &Disk::images(3, "300M"));
        fill(pool.path(), 20, MIB, 6);
        let before = Tree::read(pool.path());
        pool.remount();
        if dies {
            pool.disks[1].die();
        } else {
            pool.disks[1].set_read_only(true);
        }
        for number in 0..60 {
            let path = pool.path().join(format!("n{number}"));
            let written =
                fs::write(&path, number.to_string()).and_then(|()| fs::File::open(&path)?.sync_all());
            written.unwrap_or_else(|error| panic!("{what}: file {number}: {error}"));
        }
        let after = pool.path().join("after");
        fs::create_dir(&after).expect("a directory");
        fill(&after, 10, MIB, 7);
        let now = Tree::read(pool.path());
        for (path, item) in &before.0 {
            assert!(now.0.get(path) == Some(item), "{what}: {} reads otherwise", path.display());
        }
        let status = pool.status();
        let name = pool.disks[1].path().display().to_string();
        assert!(status.out.contains(&name) && status.code == Some(3), "{what}: {status}");
        pool.unmount();
        pool.disks[1].revive();
        pool.mount();
        now.assert_same(&Tree::read(pool.path()), &format!("{what}, all back"));
        pool.unmount();
    }
}

/// The process is killed, and the mount point with it, while files are open; then all goes on.
#[test]
fn what_was_open_at_a_crash_leaves_nothing_behind() {
    let pool = TestPool::mounted("parity", &Disk::directories(3, "300M"));
    let available = |pool: &TestPool| {
        let found = rustix::fs::statvfs(pool.path()).expect("statvfs");
        found.f_bavail * found.f_frsize
    };
    let empty = available(&pool);
    let mut files = Vec::new();
    for number in 0..20 {
        let path = pool.path().join(format!("gone{number}"));
        let mut file = fs::File::create(&path).expect("made");
        file.write_all(&vec![5; MIB]).and_then(|()| file.sync_all()).expect("written");
        fs::remove_file(&path).expect("removed");
        file.write_all(&[6; 4096]).expect("still takes data");
        files.push(file);
    }
    fs::File::open(pool.path()).and_then(|dir| dir.sync_all()).expect("synced");
    pool.crash();
    drop(files);
    pool.mount();
    assert!(fs::read_dir(pool.path()).expect("listed").next().is_none(), "a file without a name came back");
    let mut now = 0;
    crate::support::run::until_true(Duration::from_secs(40), || {
        now = available(&pool);
        now * 100 >= empty * 98
    });
    assert!(now * 100 >= empty * 98, "{} bytes are taken by nothing", empty - now);
}

#[test]
fn the_mount_table_shows_what_was_mounted() {
    let pool = TestPool::create("mirror", &Disk::directories(2, "300M"));
    let mut mount = pool.poolfs(&["tank"]);
    run(mount.arg(pool.path()).args(["-o", "rw,noatime,wait=0"]), SHORT).ok();
    assert_eq!(type_and_source(pool.path()), Some(("fuse.poolfs".into(), "tank".into())));
    run(pool.poolfs(&["umount"]).arg(pool.path()), SHORT).ok();
    let members = pool.members().iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let mut mount = pool.poolfs(&[&members]);
    run(mount.arg(pool.path()).args(["-o", "ro,wait=0"]), SHORT).ok();
    assert_eq!(type_and_source(pool.path()), Some(("fuse.poolfs".into(), members)));
    let error = fs::write(pool.path().join("x"), "x").expect_err("read-only");
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    run(pool.poolfs(&["umount"]).arg(pool.path()), SHORT).ok();
}
