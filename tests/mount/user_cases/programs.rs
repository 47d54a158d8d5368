//! Programs: locks, git, df, containers.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::mounted;
use crate::support::disks::Disk;
use crate::support::pool::TestPool;
use crate::support::run::{LONG, SHORT, python, shell, until_true};
use crate::support::{am_root, have};

#[test]
fn locks_are_shared_between_processes_and_end_with_them() {
    let pool = mounted();
    let script = "touch l
        flock -x l sleep 1 & sleep .3; flock -n l true && echo 'not locked'; wait; flock -n l true || echo 'still locked'
        flock -x l sleep 100 & k=$!; sleep .3; pkill -9 -P $k; kill -9 $k 2>/dev/null || true; sleep .2; flock -w 5 l true || echo 'left locked'";
    let said = shell(pool.path(), script, SHORT).ok().out;
    assert_eq!(said, "");
    let program = "
import fcntl, os
f = open('l', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
if os.fork() == 0:
    g = open('l', 'r+'); code = 1
    fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 20)
    try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
    except BlockingIOError: code = 0
    os._exit(code)
assert os.wait()[1] == 0, 'a range that is locked was given away'
";
    if have("python3") {
        python(pool.path(), program, &[], SHORT).ok();
    }
}

#[test]
fn git_lives_its_whole_life() {
    if !have("git") {
        return;
    }
    let pool = mounted();
    let script = "
        export GIT_CONFIG_GLOBAL=/dev/null HOME=$PWD
        git init -q r; cd r; seq 999 | split -l 9 - f; git add .
        git -c user.name=a -c user.email=a@b commit -qm 1; git gc -q; git fsck --strict
        test -z \"$(git status --porcelain)\"
        git branch other; git checkout -q other; echo more >> faa; git -c user.name=a -c user.email=a@b commit -qam 2
        git checkout -q -; git merge -q other; git repack -adq
        git clone -q . ../c; git clone -q --no-hardlinks . ../n; git -C ../c fsck --strict; git -C ../n fsck --strict";
    shell(pool.path(), script, LONG).ok();
    let mut created =
        OpenOptions::new().write(true).create_new(true).mode(0o444).open(pool.path().join("ro"));
    created.as_mut().expect("made").write_all(b"x").expect("the handle of a create is writable");
    drop(created);
    pool.remount();
    shell(pool.path(), "git -C c fsck --strict && git -C r fsck --strict", LONG).ok();
}

fn available(path: &Path) -> i64 {
    let found = rustix::fs::statvfs(path).expect("statvfs");
    assert!(found.f_blocks >= found.f_bfree && found.f_bfree >= found.f_bavail);
    (found.f_bavail * found.f_frsize) as i64
}

#[test]
fn df_follows_what_is_written_and_deleted() {
    const LEN: i64 = 64 << 20;
    let pool = mounted();
    let empty = available(pool.path());
    let path = pool.path().join("x");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("made");
    file.write_all(&vec![7; LEN as usize]).and_then(|()| file.sync_all()).expect("written");
    let near = |found: i64, expected: i64| (found - expected).abs() < LEN / 8;
    let taken = empty - available(pool.path());
    assert!(near(taken, LEN), "{taken} bytes were taken by {LEN}");
    fs::remove_file(&path).expect("removed");
    let still = empty - available(pool.path());
    assert!(near(still, LEN), "{still} bytes are taken by a file that is open and deleted");
    drop(file);
    let mut left = 0;
    until_true(std::time::Duration::from_secs(20), || {
        left = empty - available(pool.path());
        near(left, 0)
    });
    assert!(near(left, 0), "{left} bytes are taken by nothing");
}

#[test]
fn layers_of_containers_lie_on_it() {
    if !am_root() {
        return;
    }
    let pool = TestPool::mounted("mirror", &Disk::directories(2, "300M"));
    let script = "
        mkdir -p low/etc ov t; for i in 1 2 3; do echo $i > low/etc/$i; done
        unshare -m sh -ec 'mount -t tmpfs t t; mkdir t/u t/w
            mount -t overlay o -o lowerdir=low,upperdir=t/u,workdir=t/w ov
            rm ov/etc/1; echo x >> ov/etc/2; mv ov/etc/3 ov/etc/4; ls ov/etc; rm -r ov/etc; ls ov | wc -l'
        ls low/etc";
    let has_overlay = fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("overlay"));
    if !has_overlay {
        eprintln!("NOT TESTED: this kernel has no overlay file system");
        return;
    }
    let said = shell(pool.path(), script, SHORT).ok().out;
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["2", "4", "0", "1", "2", "3"]);
}

#[test]
fn statistics_of_a_file_handle_outlive_its_name() {
    let pool = mounted();
    let path = pool.path().join("f");
    fs::write(&path, "x").expect("written");
    let file = File::open(&path).expect("opened");
    fs::rename(&path, pool.path().join("g")).expect("renamed");
    assert_eq!(file.metadata().expect("attributes").len(), 1);
}
