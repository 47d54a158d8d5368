use super::super::AlignedBuf;
use super::*;
use crate::units::{MIB, SECTOR_LEN};

const DIMENSIONS: Dimensions = Dimensions { slab_bytes: MIB, ring_bytes: 8 * MIB };

fn create(path: &Path, limit_bytes: u64) -> DirectoryDisk {
    DirectoryDisk::create(path, DIMENSIONS, Bounds { limit_bytes, reserve_bytes: 0 }).unwrap()
}

fn reopen(path: &Path, read_only: bool) -> DirectoryDisk {
    let mut disk = DirectoryDisk::open(path, read_only, true).unwrap();
    disk.configure(DIMENSIONS, Bounds::default());
    disk
}

#[test]
fn every_area_keeps_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let disk = create(dir.path(), 0);
    disk.create_slab(3).unwrap();
    disk.create_slab(3).unwrap();
    let areas = [Area::Superblock(0), Area::Superblock(1), Area::Journal, Area::Slab(3)];
    for (i, area) in areas.into_iter().enumerate() {
        disk.write(area, 4096, &AlignedBuf::copy_of(&[i as u8 + 1; SECTOR_LEN])).unwrap();
        disk.sync(area).unwrap();
    }
    drop(disk);
    let disk = reopen(dir.path(), true);
    assert_eq!(disk.list_slabs().unwrap(), [3]);
    for (i, area) in areas.into_iter().enumerate() {
        let mut buf = AlignedBuf::zeroed(2 * SECTOR_LEN);
        disk.read(area, 0, &mut buf).unwrap();
        assert!(buf[SECTOR_LEN..].iter().all(|&b| b == i as u8 + 1), "{area:?}");
    }
    let sector = AlignedBuf::zeroed(SECTOR_LEN);
    assert!(disk.write(Area::Journal, 0, &sector).is_err());
    assert!(disk.create_slab(4).is_err() && disk.delete_slab(3).is_err());
}

#[test]
fn slabs_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let disk = create(dir.path(), 0);
    let mut sector = AlignedBuf::zeroed(SECTOR_LEN);
    assert!(matches!(disk.read(Area::Slab(1), 0, &mut sector), Err(MemberError::NoSlab { slab: 1, .. })));
    disk.create_slab(1).unwrap();
    disk.create_slab(0).unwrap();
    assert_eq!(disk.list_slabs().unwrap(), [0, 1]);
    disk.delete_slab(1).unwrap();
    disk.delete_slab(1).unwrap();
    assert_eq!(disk.list_slabs().unwrap(), [0]);
    assert!(matches!(disk.write(Area::Slab(1), 0, &sector), Err(MemberError::NoSlab { .. })));
}

#[test]
fn transfers_keep_to_their_area_and_to_sectors() {
    let dir = tempfile::tempdir().unwrap();
    let disk = create(dir.path(), 0);
    disk.create_slab(0).unwrap();
    let sector = AlignedBuf::zeroed(SECTOR_LEN);
    for (area, offset) in [
        (Area::Superblock(0), MIB),
        (Area::Superblock(2), 0),
        (Area::Journal, 8 * MIB),
        (Area::Slab(0), MIB + 4096),
        (Area::Slab(0), 512),
        (Area::Slab(0), u64::MAX - 4095),
    ] {
        let written = disk.write(area, offset, &sector);
        assert!(matches!(written, Err(MemberError::OutOfArea { .. })), "{area:?} {offset}");
    }
    assert!(disk.write(Area::Journal, 0, &sector[..100]).is_err());
}

#[test]
fn a_limit_counts_what_is_no_slab_too() {
    let dir = tempfile::tempdir().unwrap();
    let overhead = overhead_bytes(&DIMENSIONS);
    let disk = create(dir.path(), overhead + 2 * DIMENSIONS.stride() + 5);
    assert_eq!(disk.room().unwrap().slabs, 2);
    disk.create_slab(0).unwrap();
    disk.create_slab(7).unwrap();
    assert!(matches!(disk.create_slab(1), Err(MemberError::NoSpace { slab: 1, .. })));
    disk.create_slab(7).unwrap();
    disk.delete_slab(0).unwrap();
    disk.create_slab(1).unwrap();
}

#[test]
fn more_slabs_than_open_files_work() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = create(dir.path(), 0);
    disk.configure(Dimensions { slab_bytes: 4096, ..DIMENSIONS }, Bounds::default());
    let slabs = OPEN_SLABS.get() as u32 + 20;
    for slab in 0..slabs {
        disk.create_slab(slab).unwrap();
        disk.write(Area::Slab(slab), 4096, &AlignedBuf::copy_of(&slab.to_le_bytes())).unwrap();
    }
    assert_eq!(disk.handles.lock().len(), OPEN_SLABS.get());
    let mut sector = AlignedBuf::zeroed(SECTOR_LEN);
    for slab in 0..slabs {
        disk.read(Area::Slab(slab), 4096, &mut sector).unwrap();
        assert_eq!(sector[..4], slab.to_le_bytes());
    }
}

#[test]
fn links_in_place_of_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious");
    let content = vec![5; DIMENSIONS.stride() as usize];
    std::fs::write(&precious, &content).unwrap();
    let disk = create(dir.path(), 0);
    std::os::unix::fs::symlink(&precious, dir.path().join("slabs/00000001")).unwrap();
    std::fs::create_dir(dir.path().join("slabs/00000002")).unwrap();
    let sector = AlignedBuf::zeroed(SECTOR_LEN);
    for slab in [1, 2] {
        assert!(disk.create_slab(slab).is_err());
        assert!(matches!(disk.write(Area::Slab(slab), 0, &sector), Err(MemberError::Io { .. })));
    }
    drop(disk);
    for name in ["journal", "superblock"] {
        let path = dir.path().join(name);
        std::fs::rename(&path, outside.path().join(name)).unwrap();
        std::os::unix::fs::symlink(outside.path().join(name), &path).unwrap();
        assert!(DirectoryDisk::open(dir.path(), false, true).is_err(), "{name}");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(outside.path().join(name), &path).unwrap();
    }
    std::fs::rename(dir.path().join("slabs"), outside.path().join("slabs")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("slabs"), dir.path().join("slabs")).unwrap();
    assert!(DirectoryDisk::open(dir.path(), false, true).is_err());
    assert_eq!(std::fs::read(&precious).unwrap(), content);
}

#[test]
fn a_slab_file_cut_short_is_an_error_until_it_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 0).create_slab(0).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join("slabs/00000000")).unwrap();
    file.set_len(5000).unwrap();
    let disk = reopen(dir.path(), false);
    let mut sector = AlignedBuf::zeroed(SECTOR_LEN);
    assert!(matches!(disk.read(Area::Slab(0), 0, &mut sector), Err(MemberError::Io { .. })));
    disk.create_slab(0).unwrap();
    disk.read(Area::Slab(0), MIB, &mut sector).unwrap();
}

#[test]
fn a_member_is_locked_while_open() {
    let dir = tempfile::tempdir().unwrap();
    let disk = create(dir.path(), 0);
    assert!(matches!(DirectoryDisk::open(dir.path(), false, true), Err(MemberError::InUse { .. })));
    assert!(matches!(DirectoryDisk::open(dir.path(), true, true), Err(MemberError::InUse { .. })));
    assert!(matches!(wipe(dir.path()), Err(MemberError::InUse { .. })));
    DirectoryDisk::open(dir.path(), true, false).unwrap();
    drop(disk);
    reopen(dir.path(), false);
}

#[test]
fn wiping_removes_members_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 0).create_slab(0).unwrap();
    assert_eq!(contents(dir.path()).unwrap(), Contents::Member);
    for name in ["note", "slabs/note"] {
        let path = dir.path().join(name);
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(contents(dir.path()).unwrap(), Contents::Foreign(name.to_owned()));
        assert!(matches!(wipe(dir.path()), Err(MemberError::Unsuitable { .. })));
        assert!(dir.path().join("slabs/00000000").exists());
        std::fs::remove_file(&path).unwrap();
    }
    wipe(dir.path()).unwrap();
    assert_eq!(contents(dir.path()).unwrap(), Contents::Empty);
    wipe(dir.path()).unwrap();
    std::fs::write(dir.path().join("journal"), "a diary").unwrap();
    assert!(wipe(dir.path()).is_err() && dir.path().join("journal").exists());
    std::fs::write(dir.path().join("superblock"), "so called").unwrap();
    assert!(wipe(dir.path()).is_err() && dir.path().join("superblock").exists());
}

/// Mounts a small file system of memory; not everybody may, and then there is nothing to test.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().ok()?;
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(dir.path());
        command.output().ok()?.status.success().then_some(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_file_system_makes_the_member_full_not_failed() {
    let Some(fs) = Tmpfs::mount("14M") else {
        return;
    };
    let disk = create(fs.0.path(), 0);
    assert_eq!(disk.room().unwrap().below, Some(3));
    let others = fs.0.path().join("others");
    for slab in 0..2 {
        disk.create_slab(slab).unwrap();
    }
    std::fs::write(&others, vec![1; 1 << 20]).unwrap();
    assert_eq!(disk.room().unwrap().below, Some(0));
    assert!(matches!(disk.create_slab(2), Err(MemberError::NoSpace { slab: 2, .. })));
    // Also when it is the file system that says so.
    assert!(matches!(disk.make_slab(2), Err(MemberError::NoSpace { slab: 2, .. })));
    assert_eq!(disk.list_slabs().unwrap(), [0, 1]);
    std::fs::remove_file(&others).unwrap();
    disk.create_slab(2).unwrap();
}

#[test]
fn a_member_that_does_not_fit_leaves_nothing_behind() {
    let Some(fs) = Tmpfs::mount("5M") else {
        return;
    };
    assert!(DirectoryDisk::create(fs.0.path(), DIMENSIONS, Bounds::default()).is_err());
    assert_eq!(contents(fs.0.path()).unwrap(), Contents::Empty);
}

#[test]
fn a_directory_that_is_gone_is_noticed_although_its_files_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    std::fs::create_dir(&path).unwrap();
    let disk = create(&path, 0);
    disk.create_slab(0).unwrap();
    assert!(disk.room().is_ok());
    std::fs::remove_dir_all(&path).unwrap();
    let error = disk.room().expect_err("gone");
    assert!(error.is_vanished(), "{error}");
}
