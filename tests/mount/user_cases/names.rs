//! Names, links, attributes, times, permissions, numbers.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::mem::MaybeUninit;
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RawDir, Timespec, Timestamps, XattrFlags, getxattr, openat, setxattr,
    utimensat,
};
use rustix::io::Errno;

use super::{mounted, refused};
use crate::support::pool::TestPool;
use crate::support::run::{SHORT, run, shell};
use crate::support::{Random, am_root};

fn touch(path: &Path) {
    File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).ino()
}

#[test]
fn rmdir_of_a_full_directory_changes_nothing() {
    let pool = mounted();
    let path = |name: &str| pool.path().join(name);
    fs::create_dir_all(path("a")).and_then(|()| fs::create_dir_all(path("b"))).expect("directories");
    fs::create_dir_all(path("c/s")).expect("directories");
    touch(&path("a/f"));
    touch(&path("b/.h"));
    for full in ["a", "b", "c"] {
        refused(fs::remove_dir(path(full)), Errno::NOTEMPTY);
    }
    refused(fs::remove_dir(path("a/f")), Errno::NOTDIR);
    assert!(fs::remove_file(path("c")).is_err(), "unlink of a directory");
    assert!(path("a/f").exists() && path("b/.h").exists() && path("c/s").exists());
}

#[test]
fn names_have_up_to_255_bytes_of_any_value() {
    let pool = mounted();
    let path = |name: &[u8]| pool.path().join(bytes_name(name));
    let longest = [b'n'; 255];
    let other = [b'm'; 255];
    touch(&path(&longest));
    fs::rename(path(&longest), path(&other)).expect("renamed");
    let too_long = [b'n'; 256];
    refused(File::create(path(&too_long)), Errno::NAMETOOLONG);
    refused(fs::create_dir(path(&too_long)), Errno::NAMETOOLONG);
    refused(fs::rename(path(&other), path(&too_long)), Errno::NAMETOOLONG);
    refused(symlink("x", path(&too_long)), Errno::NAMETOOLONG);
    assert_eq!(rustix::fs::statvfs(pool.path()).expect("statvfs").f_namemax, 255);
    let mut expected: BTreeSet<Vec<u8>> = BTreeSet::from([other.to_vec()]);
    for byte in (1..=255u8).filter(|byte| *byte != b'/' && *byte != b'.') {
        touch(&path(&[byte]));
        expected.insert(vec![byte]);
    }
    pool.remount();
    let found: BTreeSet<Vec<u8>> = fs::read_dir(pool.path())
        .expect("listed")
        .map(|entry| std::os::unix::ffi::OsStringExt::into_vec(entry.expect("an entry").file_name()))
        .collect();
    assert!(found == expected, "names differ after another mount");
    // Deeper than a path can say at once.
    let deep = "cd $PWD && for i in $(seq 22); do n=$(printf 'd%.0s' {1..200}); mkdir $n; cd $n; done; \
                echo deep > leaf; cat leaf";
    assert_eq!(shell(pool.path(), deep, SHORT).ok().out, "deep\n");
    shell(pool.path(), "rm -rf d*", SHORT).ok();
}

fn bytes_name(bytes: &[u8]) -> std::ffi::OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}

#[test]
fn hard_links_are_one_file() {
    let pool = mounted();
    let path = |name: &str| pool.path().join(name);
    fs::create_dir(path("a")).and_then(|()| fs::create_dir(path("b"))).expect("directories");
    fs::write(path("a/f"), "x\n").and_then(|()| fs::hard_link(path("a/f"), path("b/g"))).expect("linked");
    assert_eq!(ino(&path("a/f")), ino(&path("b/g")));
    shell(pool.path(), "cp -al a c && tar -cf - a b | tar tvf - | grep -c 'link to' | grep -x 1", SHORT).ok();
    assert_eq!(fs::metadata(path("c/f")).expect("there").nlink(), 3);
    shell(pool.path(), "echo y >> b/g", SHORT).ok();
    assert_eq!(fs::read_to_string(path("c/f")).expect("read"), "x\ny\n");
    pool.remount();
    assert_eq!(ino(&path("a/f")), ino(&path("c/f")));
    shell(pool.path(), "rm -r a b", SHORT).ok();
    assert_eq!(fs::metadata(path("c/f")).expect("there").nlink(), 1);
}

#[test]
fn times_that_were_set_stay() {
    let pool = mounted();
    let path = |name: &str| pool.path().join(name);
    fs::write(path("s"), Random::new(48).bytes(3 << 20)).expect("written");
    let script = "touch -d '2020-01-15 12:34:56.5' s; cp -p s t";
    shell(pool.path(), script, SHORT).ok();
    let modified = |name: &str| {
        let meta = fs::symlink_metadata(path(name)).expect("there");
        (meta.mtime(), meta.mtime_nsec())
    };
    let set = modified("s");
    assert_eq!(set.1, 500_000_000);
    let program = "import os;f=os.open('u',66);os.write(f,b'x'*300000);os.utime('u',(5,5));os.close(f)";
    crate::support::run::python(pool.path(), program, &[], SHORT).ok();
    // Longer than the cache keeps data back.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!((modified("t"), modified("u")), (set, (5, 0)), "when the data was flushed");
    pool.remount();
    assert_eq!((modified("t"), modified("u")), (set, (5, 0)), "after another mount");
    shell(pool.path(), "echo z >> u", SHORT).ok();
    assert!(modified("u").0 > 1_000_000_000, "a write moves the time");
    for (name, seconds, nanos) in [("old", -5_000_000_000i64, 123), ("new", 6_000_000_000, 999_999_999)] {
        touch(&path(name));
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, path(name), &times, AtFlags::empty()).expect("set");
        assert_eq!(modified(name).0, seconds, "{name}");
    }
    // Before 1970 fuser loses the nanoseconds' sign; after 2106 all is exact.
    assert_eq!(modified("new"), (6_000_000_000, 999_999_999));
    pool.remount();
    assert_eq!((modified("old").0, modified("new").0), (-5_000_000_000, 6_000_000_000));
}

#[test]
fn links_have_times_and_owners_of_their_own() {
    let pool = mounted();
    let path = |name: &str| pool.path().join(name);
    let script = "ln -s nowhere l; touch -h -d @1000 l; echo t > t; touch -d @7 t; ln -s t k; touch -h -d @9 k; \
                  stat -c %Y l t k; tar -cf - l k t | (mkdir o; tar -C o -xpf -); stat -c '%N %Y' o/l";
    let said = shell(pool.path(), script, SHORT).ok().out;
    assert_eq!(said, "1000\n7\n9\n'o/l' -> 'nowhere' 1000\n");
    if am_root() {
        lchown(path("k"), Some(12), Some(34)).expect("given away");
        assert_eq!(fs::metadata(path("t")).expect("there").uid(), 0, "the target's owner");
        assert_eq!(fs::symlink_metadata(path("k")).expect("there").uid(), 12);
    }
}

#[test]
fn set_id_bits_go_and_modes_are_enforced() {
    if !am_root() {
        return;
    }
    let mut pool = TestPool::create("mirror", &crate::support::disks::Disk::directories(2, "300M"));
    pool.options.push("allow_other".into());
    pool.mount();
    // The way to the mount is open to the other user.
    fs::set_permissions(pool.scratch(), Permissions::from_mode(0o755)).expect("opened");
    let path = |name: &str| pool.path().join(name);
    let mode = |name: &str| fs::metadata(path(name)).expect("there").mode() & 0o7777;
    let other = |line: &str| {
        let mut command = Command::new("sh");
        run(command.args(["-c", line]).current_dir(pool.path()).uid(23456).gid(23456), SHORT)
    };
    fs::set_permissions(pool.path(), Permissions::from_mode(0o755)).expect("set");
    fs::write(path("s"), "x").expect("written");
    fs::set_permissions(path("s"), Permissions::from_mode(0o4777)).expect("set");
    other("echo x >> s").ok();
    assert_eq!(mode("s"), 0o777, "a write by another user");
    fs::write(path("t"), "xyz").expect("written");
    fs::set_permissions(path("t"), Permissions::from_mode(0o4777)).expect("set");
    other("truncate -s 1 t").ok();
    assert_eq!(mode("t"), 0o777, "a truncation by another user");
    fs::write(path("c"), "x").expect("written");
    fs::set_permissions(path("c"), Permissions::from_mode(0o6755)).expect("set");
    chown(path("c"), Some(4242), Some(4242)).expect("given away");
    assert_eq!(mode("c"), 0o755, "a change of the owner");
    fs::write(path("p"), "secret").expect("written");
    fs::set_permissions(path("p"), Permissions::from_mode(0o600)).expect("set");
    for denied in ["cat p", "touch new", "rm p", "mv p q", "chmod 777 p"] {
        assert_ne!(other(denied).code, Some(0), "{denied}");
    }
    fs::create_dir(path("shared")).expect("a directory");
    chown(path("shared"), None, Some(777)).expect("given to a group");
    fs::set_permissions(path("shared"), Permissions::from_mode(0o3777)).expect("set");
    other("touch shared/f && mkdir shared/d").ok();
    assert_eq!(fs::metadata(path("shared/f")).expect("there").gid(), 777, "the group is inherited");
    assert_eq!(mode("shared/d") & 0o2000, 0o2000, "and so is the bit");
    fs::write(path("shared/mine"), "x").expect("written");
    assert_ne!(other("rm -f shared/mine").code, Some(0), "sticky");
}

#[test]
fn attributes_are_kept_to_the_byte() {
    let pool = mounted();
    let file = pool.path().join("f");
    touch(&file);
    let values: [(&str, Vec<u8>); 4] = [
        ("user.DOSATTRIB", b"\0\0\x05\0\x20\xff\0".to_vec()),
        ("user.empty", Vec::new()),
        ("user.medium", Random::new(56).bytes(402)),
        ("user.large", Random::new(57).bytes(60_000)),
    ];
    for (name, value) in &values {
        setxattr(&file, *name, value, XattrFlags::empty()).expect("set");
    }
    let check = |path: &Path, values: &[(&str, Vec<u8>)]| {
        for (name, value) in values {
            let mut found = vec![0u8; 65_536];
            let len = getxattr(path, *name, found.as_mut_slice()).expect("read");
            assert!(&found[..len] == value.as_slice(), "{name} of {}", path.display());
        }
    };
    let mut small = [0u8; 3];
    assert_eq!(getxattr(&file, "user.medium", small.as_mut_slice()), Err(Errno::RANGE));
    assert_eq!(getxattr(&file, "user.none", small.as_mut_slice()), Err(Errno::NODATA));
    assert_eq!(setxattr(&file, "user.empty", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&file, "user.none", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
    let moved = pool.path().join("g");
    fs::rename(&file, &moved).expect("renamed");
    shell(pool.path(), "cp -a g h", SHORT).ok();
    check(&moved, &values);
    check(&pool.path().join("h"), &values);
    pool.remount();
    check(&moved, &values);
    fs::remove_file(&moved).expect("removed");
    touch(&moved);
    let mut names = [0u8; 100];
    assert_eq!(rustix::fs::listxattr(&moved, names.as_mut_slice()), Ok(0), "a new file has none");
}

#[test]
fn numbers_of_inodes_are_unique_and_stay() {
    let pool = mounted();
    let path = |name: &str| pool.path().join(name);
    (0..300).for_each(|n| touch(&path(&n.to_string())));
    let numbers = || -> Vec<(std::ffi::OsString, u64)> {
        let mut all: Vec<_> = fs::read_dir(pool.path())
            .expect("listed")
            .flatten()
            .map(|entry| {
                assert_eq!(entry.ino(), ino(&entry.path()), "{:?}", entry.file_name());
                (entry.file_name(), entry.ino())
            })
            .collect();
        all.sort();
        all
    };
    let before = numbers();
    assert_eq!(before.iter().map(|(_, ino)| ino).collect::<BTreeSet<_>>().len(), 300, "unique");
    fs::create_dir(path("d")).expect("a directory");
    let seven = ino(&path("7"));
    fs::rename(path("7"), path("d/x"))
        .and_then(|()| fs::write(path("d/x"), "more"))
        .expect("moved and written");
    assert_eq!(ino(&path("d/x")), seven, "after a rename");
    pool.remount();
    assert_eq!(ino(&path("d/x")), seven, "after another mount");
    fs::rename(path("d/x"), path("7")).and_then(|()| fs::remove_dir(path("d"))).expect("moved back");
    assert_eq!(numbers(), before);
    touch(&path("fresh"));
    assert!(before.iter().all(|(_, ino)| *ino != self::ino(&path("fresh"))), "a new file has a new number");
}

#[test]
fn one_run_of_rm_removes_all() {
    let pool = mounted();
    let make =
        "for i in $(seq 12); do mkdir -p t/$i/x/y; (cd t/$i; seq -f 'file%.0f' 250 | xargs touch); done";
    for remove in ["rm -rf t", "find t -delete", "rm -rf t & rm -rf t; wait; test ! -e t"] {
        shell(pool.path(), make, SHORT).ok();
        let said = shell(pool.path(), remove, SHORT);
        assert!(fs::read_dir(pool.path()).expect("listed").next().is_none(), "{said}");
    }
}

/// Reads a directory with a buffer of `bytes`, and resumes at the cookie of each entry.
fn names_in_pieces(dir: &Path, bytes: usize) -> Vec<CString> {
    let handle = openat(CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("opened");
    let mut buf = vec![MaybeUninit::uninit(); bytes];
    let mut names = Vec::new();
    let mut entries = RawDir::new(handle, &mut buf);
    while let Some(entry) = entries.next() {
        names.push(entry.expect("an entry").file_name().to_owned());
    }
    names
}

#[test]
fn directories_are_read_in_small_pieces() {
    let pool = mounted();
    let name = |n: usize| format!("{n:04}{:0width$}", 0, width = n * 53 % 240 + 1);
    (1..=1500).for_each(|n| touch(&pool.path().join(name(n))));
    for bytes in [512, 4096, 65_536] {
        let names = names_in_pieces(pool.path(), bytes);
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!((names.len(), unique.len()), (1502, 1502), "in pieces of {bytes} bytes");
    }
    // Resumed at every cookie: what follows is the same each time.
    let dir = openat(CWD, pool.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("opened");
    let mut buf = vec![MaybeUninit::uninit(); 65_536];
    let mut cookies = Vec::new();
    let mut entries = RawDir::new(&dir, &mut buf);
    while let Some(entry) = entries.next() {
        let entry = entry.expect("an entry");
        cookies.push((entry.next_entry_cookie(), entry.file_name().to_owned()));
    }
    for pair in cookies.windows(2).step_by(37) {
        rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(pair[0].0)).expect("resumed");
        let mut buf = vec![MaybeUninit::uninit(); 512];
        let mut entries = RawDir::new(&dir, &mut buf);
        let found = entries.next().expect("one more").expect("an entry").file_name().to_owned();
        assert_eq!(found, pair[1].1, "what follows cookie {}", pair[0].0);
    }
    // Entries come and go while a listing is under way: what stays is listed, once.
    let mut buf = vec![MaybeUninit::uninit(); 512];
    let dir = openat(CWD, pool.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("opened");
    let mut entries = RawDir::new(&dir, &mut buf);
    let mut seen = Vec::new();
    let mut step = 0usize;
    while let Some(entry) = entries.next() {
        seen.push(entry.expect("an entry").file_name().to_owned());
        step += 1;
        if step.is_multiple_of(10) && step / 10 <= 70 {
            let number = step / 10 * 20;
            fs::remove_file(pool.path().join(name(number))).expect("removed");
            touch(&pool.path().join(format!("fresh{number}")));
        }
    }
    let unique: BTreeSet<_> = seen.iter().cloned().collect();
    assert_eq!(seen.len(), unique.len(), "listed twice");
    for n in (1..=1500).filter(|n| n % 20 != 0) {
        assert!(unique.contains(&CString::new(name(n)).expect("no NUL")), "{} was there all along", name(n));
    }
}

#[test]
fn a_time_of_access_does_not_cost_a_write() {
    // Not a promise of speed: reading must not change what a backup compares.
    let pool = mounted();
    let file = pool.path().join("f");
    fs::write(&file, "x").expect("written");
    let before = fs::metadata(&file).expect("there");
    fs::read(&file).expect("read");
    let after = fs::metadata(&file).expect("there");
    assert_eq!((before.mtime(), before.ctime()), (after.mtime(), after.ctime()));
    assert!(after.accessed().expect("a time") <= SystemTime::now());
}
