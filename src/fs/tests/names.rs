//! Names: creation, removal, links, renames, reading directories.

use super::*;

#[test]
fn names_of_any_bytes_come_back() {
    let mut rig = Rig::mirror();
    let long = [0xffu8; 255];
    rig.fs().mkdir(ROOT_INO, &long, 0o700, &ROOT).expect("makes");
    rig.fs().symlink(ROOT_INO, b"\x01\n", b"../\xfe", &ROOT).expect("makes");
    assert_eq!(errno(rig.fs().mkdir(ROOT_INO, &[b'x'; 256], 0o700, &ROOT)), libc::ENAMETOOLONG);
    assert_eq!(errno(rig.fs().mkdir(ROOT_INO, &long, 0o700, &ROOT)), libc::EEXIST);
    assert_eq!(errno(rig.fs().lookup(ROOT_INO, b"none")), libc::ENOENT);
    rig.remount();
    assert_eq!(rig.fs().lookup(ROOT_INO, &long).expect("there").kind, FileKind::Directory);
    let link = rig.fs().lookup(ROOT_INO, b"\x01\n").expect("there");
    assert_eq!(rig.fs().readlink(link.ino).expect("a link"), b"../\xfe");
    assert_eq!((link.size, link.mode), (4, libc::S_IFLNK | 0o777));
}

#[test]
fn a_device_node_keeps_its_number_and_a_set_group_id_directory_gives_its_group() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let node = fs.mknod(ROOT_INO, b"null", libc::S_IFCHR | 0o666, 259, &ROOT).expect("makes");
    assert_eq!((node.rdev, node.kind), (259, FileKind::CharDevice));
    let dir = fs.t_mkdir(ROOT_INO, "shared");
    let change = SetAttr { mode: Some(0o2775), gid: Some(50), ..SetAttr::default() };
    fs.setattr(dir, &change, &ROOT).expect("sets");
    let caller = Caller { uid: 7, gid: 7 };
    let file = fs.mknod(dir, b"f", libc::S_IFREG | 0o644, 0, &caller).expect("makes");
    let sub = fs.mkdir(dir, b"d", 0o755, &caller).expect("makes");
    assert_eq!((file.uid, file.gid, file.mode & 0o7777), (7, 50, 0o644));
    assert_eq!((sub.gid, sub.mode & 0o7777), (50, 0o2755));
}

#[test]
fn a_file_unlinked_while_open_lives_until_its_last_close() {
    let mut rig = Rig::mirror();
    let fs = rig.fs();
    let (attr, handle) = fs.create(ROOT_INO, b"temp", 0o600, OpenFlags::READ_WRITE, &ROOT).expect("creates");
    fs.t_write(attr.ino, 0, b"kept");
    fs.unlink(ROOT_INO, b"temp").expect("unlinks");
    fs.forget(attr.ino, 1);
    assert_eq!(fs.getattr(attr.ino).expect("still there").nlink, 0);
    fs.sync_all().expect("syncs");
    fs.t_cool();
    assert_eq!(fs.t_read(attr.ino), b"kept");
    assert_eq!(errno(fs.link(attr.ino, ROOT_INO, b"again")), libc::ENOENT);
    fs.release(attr.ino, handle).expect("closes");
    assert_eq!(errno(fs.getattr(attr.ino)), libc::ENOENT);
    check::tables(fs);
    // Open when the power goes: recovery deletes it.
    let (attr, _) = fs.create(ROOT_INO, b"temp", 0o600, OpenFlags::READ_WRITE, &ROOT).expect("creates");
    fs.t_write(attr.ino, 0, &noise(1, 100_000));
    fs.unlink(ROOT_INO, b"temp").expect("unlinks");
    fs.sync_all().expect("syncs");
    rig.crash(PowerCut::Lost, 1);
    assert_eq!(errno(rig.fs().getattr(attr.ino)), libc::ENOENT);
}

#[test]
fn hard_links_share_and_count() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let ino = fs.t_create(ROOT_INO, "a");
    let dir = fs.t_mkdir(ROOT_INO, "d");
    assert_eq!(fs.link(ino, dir, b"b").expect("links").nlink, 2);
    fs.forget(ino, 1);
    assert_eq!(errno(fs.link(dir, ROOT_INO, b"e")), libc::EPERM);
    fs.t_write(ino, 0, b"both");
    fs.unlink(ROOT_INO, b"a").expect("unlinks");
    assert_eq!(fs.t_read(fs.t_find(dir, "b").expect("there")), b"both");
    fs.link(ino, dir, b"c").expect("links");
    fs.forget(ino, 1);
    fs.rename(dir, b"b", dir, b"c", RenameMode::Replace).expect("nothing happens");
    assert_eq!(fs.t_names(dir), [".", "..", "b", "c"]);
    check::tables(fs);
}

#[test]
fn directories_count_their_children_and_go_only_when_empty() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let dir = fs.t_mkdir(ROOT_INO, "d");
    let sub = fs.t_mkdir(dir, "sub");
    assert_eq!(fs.getattr(dir).expect("there").nlink, 3);
    assert_eq!(errno(fs.rmdir(ROOT_INO, b"d")), libc::ENOTEMPTY);
    assert_eq!(errno(fs.unlink(ROOT_INO, b"d")), libc::EISDIR);
    assert_eq!(fs.lookup(sub, b"..").expect("up").ino, dir);
    fs.forget(dir, 1);
    let handle = fs.opendir(sub).expect("opens");
    fs.rmdir(dir, b"sub").expect("goes");
    assert_eq!(fs.getattr(dir).expect("there").nlink, 2);
    assert_eq!(errno(fs.mkdir(sub, b"x", 0o755, &ROOT)), libc::ENOENT);
    assert!(fs.t_names(sub).is_empty());
    fs.releasedir(sub, handle).expect("closes");
    check::tables(fs);
    let file = fs.t_create(ROOT_INO, "f");
    assert_eq!(errno(fs.rmdir(ROOT_INO, b"f")), libc::ENOTDIR);
    assert_eq!(errno(fs.mkdir(file, b"x", 0o755, &ROOT)), libc::ENOTDIR);
}

#[test]
fn renames_of_every_kind() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let (a, b) = (fs.t_mkdir(ROOT_INO, "a"), fs.t_mkdir(ROOT_INO, "b"));
    let (file, other) = (fs.t_create(a, "f"), fs.t_create(b, "g"));
    let go =
        |from, name: &str, to, new: &str, mode| fs.rename(from, name.as_bytes(), to, new.as_bytes(), mode);
    assert_eq!(errno(go(a, "f", b, "g", RenameMode::NoReplace)), libc::EEXIST);
    assert_eq!(errno(go(a, "none", b, "g", RenameMode::Replace)), libc::ENOENT);
    go(a, "f", b, "g", RenameMode::Exchange).expect("swaps");
    assert_eq!((fs.t_find(a, "f"), fs.t_find(b, "g")), (Some(other), Some(file)));
    assert_eq!(errno(go(a, "f", a, "none", RenameMode::Exchange)), libc::ENOENT);
    // A directory moves with its way up, and never into itself.
    let sub = fs.t_mkdir(a, "sub");
    let deep = fs.t_mkdir(sub, "deep");
    go(a, "sub", b, "sub", RenameMode::Replace).expect("moves");
    assert_eq!(fs.lookup(sub, b"..").expect("up").ino, b);
    assert_eq!((fs.getattr(a).expect("a").nlink, fs.getattr(b).expect("b").nlink), (2, 3));
    assert_eq!(errno(go(ROOT_INO, "b", deep, "x", RenameMode::Replace)), libc::EINVAL);
    assert_eq!(errno(go(ROOT_INO, "b", b, "x", RenameMode::Replace)), libc::EINVAL);
    assert_eq!(errno(go(sub, "deep", ROOT_INO, "b", RenameMode::Replace)), libc::ENOTEMPTY);
    // Kinds must fit.
    assert_eq!(errno(go(b, "g", b, "sub", RenameMode::Replace)), libc::EISDIR);
    assert_eq!(errno(go(b, "sub", b, "g", RenameMode::Replace)), libc::ENOTDIR);
    // An exchange of a directory and a file moves the link, too.
    go(b, "sub", a, "f", RenameMode::Exchange).expect("swaps");
    assert_eq!((fs.getattr(a).expect("a").nlink, fs.getattr(b).expect("b").nlink), (3, 2));
    // An empty directory is replaced.
    let empty = fs.t_mkdir(ROOT_INO, "empty");
    go(a, "f", ROOT_INO, "empty", RenameMode::Replace).expect("replaces");
    assert_eq!((fs.t_find(ROOT_INO, "empty"), errno(fs.getattr(empty))), (Some(sub), libc::ENOENT));
    check::tables(fs);
}

#[test]
fn cookies_stay_valid_while_entries_come_and_go() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let dir = fs.t_mkdir(ROOT_INO, "d");
    for n in 0..400 {
        fs.t_create(dir, &format!("f{n:03}"));
    }
    let mut seen = Vec::new();
    let mut after = 0;
    for step in 0.. {
        let mut part = Vec::new();
        fs.readdir(dir, after, &mut |entry| {
            if part.len() == 7 {
                return false;
            }
            part.push((String::from_utf8(entry.name).expect("ascii"), entry.cookie));
            true
        })
        .expect("reads");
        let Some((_, last)) = part.last() else { break };
        after = *last;
        seen.extend(part.into_iter().map(|(name, _)| name));
        // What was read goes, and something new comes.
        if step % 2 == 0 && step < 100 {
            fs.unlink(dir, seen[seen.len() - 1].as_bytes()).ok();
            fs.t_create(dir, &format!("new{step}"));
        }
    }
    let old: Vec<_> = seen.iter().filter(|name| name.starts_with('f')).cloned().collect();
    let all: Vec<_> = (0..400).map(|n| format!("f{n:03}")).collect();
    assert_eq!(old, all, "each once, in order");
}

#[test]
fn readdirplus_counts_what_it_gives() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    for n in 0..10 {
        fs.t_create(ROOT_INO, &format!("f{n}"));
    }
    let mut taken = Vec::new();
    fs.readdirplus(ROOT_INO, 0, &mut |entry, attr| {
        assert_eq!(entry.ino, attr.ino);
        if taken.len() == 6 {
            return false;
        }
        taken.push(entry);
        true
    })
    .expect("reads");
    assert_eq!(taken[0].name, b".");
    // Unlinked, but known to the kernel: there until it forgets.
    let (known, unknown) = (taken[5].ino, fs.t_find(ROOT_INO, "f9").expect("there"));
    fs.unlink(ROOT_INO, &taken[5].name).expect("unlinks");
    fs.unlink(ROOT_INO, b"f9").expect("unlinks");
    assert!(fs.getattr(known).is_ok());
    assert_eq!(errno(fs.getattr(unknown)), libc::ENOENT);
    fs.forget(known, 1);
    assert_eq!(errno(fs.getattr(known)), libc::ENOENT);
}

#[test]
fn idle_nodes_leave_memory_and_times_are_kept() {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let inos: Vec<Ino> = (0..200).map(|n| fs.t_create(ROOT_INO, &format!("f{n}"))).collect();
    for ino in &inos {
        fs.t_write(*ino, 0, b"x");
        fs.t_read(*ino);
    }
    let atime = fs.getattr(inos[0]).expect("there").atime;
    fs.sync_all().expect("syncs");
    rig.clock.advance(Duration::from_secs(100_000));
    fs.t_read(inos[0]);
    fs.tick();
    fs.tick();
    assert!(fs.nodes.all().len() <= node_table::NodeTable::KEPT, "{} nodes are left", fs.nodes.all().len());
    assert!(fs.getattr(inos[0]).expect("there").atime > atime);
}
