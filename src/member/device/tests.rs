use super::*;
use crate::units::SECTOR_LEN;

const DIMENSIONS: Dimensions = Dimensions { slab_bytes: MIB, ring_bytes: 8 * MIB };

fn image(dir: &tempfile::TempDir, len: u64) -> PathBuf {
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(len).unwrap();
    path
}

fn len_of(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn areas_do_not_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, 20 * MIB);
    let disk = DeviceDisk::create(&path, DIMENSIONS, Bounds::default()).unwrap();
    assert_eq!(disk.room().unwrap().slabs, 9);
    let areas: Vec<_> = [Area::Superblock(0), Area::Superblock(1), Area::Journal]
        .into_iter()
        .chain((0..9).map(Area::Slab))
        .collect();
    for (i, &area) in areas.iter().enumerate() {
        if let Area::Slab(slab) = area {
            disk.create_slab(slab).unwrap();
        }
        let len = DIMENSIONS.area_bytes(area) as usize;
        disk.write(area, 0, &AlignedBuf::copy_of(&vec![i as u8 + 1; len])).unwrap();
        disk.sync(area).unwrap();
    }
    for (i, &area) in areas.iter().enumerate() {
        let mut buf = AlignedBuf::zeroed(DIMENSIONS.area_bytes(area) as usize);
        disk.read(area, 0, &mut buf).unwrap();
        assert!(buf.iter().all(|&b| b == i as u8 + 1), "{area:?}");
    }
    assert_eq!(len_of(&path), 20 * MIB);
    assert!(disk.list_slabs().unwrap().is_empty());
}

#[test]
fn nothing_beyond_the_end_or_the_limit_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, 20 * MIB);
    let bounds = Bounds { limit_bytes: 13 * MIB, reserve_bytes: 0 };
    let disk = DeviceDisk::create(&path, DIMENSIONS, bounds).unwrap();
    assert_eq!(disk.room().unwrap().slabs, 2);
    disk.create_slab(1).unwrap();
    let sector = AlignedBuf::zeroed(SECTOR_LEN);
    for slab in [2, 9, 100_000, u32::MAX] {
        assert!(matches!(disk.create_slab(slab), Err(MemberError::NoSpace { .. })));
        assert!(matches!(disk.write(Area::Slab(slab), 0, &sector), Err(MemberError::NoSlab { .. })));
        disk.delete_slab(slab).unwrap();
    }
    assert!(matches!(disk.write(Area::Slab(0), MIB + 4096, &sector), Err(MemberError::OutOfArea { .. })));
    assert_eq!(len_of(&path), 20 * MIB);
}

#[test]
fn space_of_an_image_is_taken_and_given_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, 64 * MIB);
    let disk = DeviceDisk::create(&path, DIMENSIONS, Bounds::default()).unwrap();
    let blocks = || std::fs::metadata(&path).unwrap().blocks();
    let before = blocks();
    disk.create_slab(5).unwrap();
    let taken = blocks();
    disk.delete_slab(5).unwrap();
    assert!(taken >= before && blocks() <= taken);
    assert_eq!(len_of(&path), 64 * MIB);
}

#[test]
fn too_small_images_are_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, 11 * MIB);
    let made = DeviceDisk::create(&path, DIMENSIONS, Bounds::default());
    assert!(matches!(made, Err(MemberError::TooSmall { .. })));
    assert_eq!(len_of(&path), 11 * MIB);
}

#[test]
fn used_devices_are_recognized() {
    for (at, magic, word) in [
        (1080usize, &b"\x53\xef"[..], "ext"),
        (0, b"XFSB", "XFS"),
        (65600, b"_BHRfS_M", "btrfs"),
        (0, b"LUKS\xba\xbe", "LUKS"),
        (512, b"EFI PART", "GPT"),
        (510, b"\x55\xaa", "MBR"),
        (4086, b"SWAPSPACE2", "swap"),
        (0, b"POOLFSSB", "pool"),
        (1 << 20, b"POOLFSSB", "pool"),
        (700_000, b"x", "data"),
    ] {
        let mut start = vec![0; 2 << 20];
        assert_eq!(signature(&start), None);
        start[at..at + magic.len()].copy_from_slice(magic);
        assert!(signature(&start).unwrap().contains(word), "{word}");
    }
    assert_eq!(signature(&[]), None);
}

#[test]
fn an_image_in_use_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, 20 * MIB);
    let disk = DeviceDisk::create(&path, DIMENSIONS, Bounds::default()).unwrap();
    assert!(matches!(DeviceDisk::open(&path, true, true), Err(MemberError::InUse { .. })));
    assert!(matches!(check(&path, true), Err(MemberError::InUse { .. })));
    DeviceDisk::open(&path, true, false).unwrap();
    drop(disk);
    check(&path, false).unwrap();
}

/// A loop device; not everybody may make one, and then there is nothing to test.
struct Loop {
    device: PathBuf,
}

fn run(program: &str, args: &[&std::ffi::OsStr]) -> Option<String> {
    let output = std::process::Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Loop {
    fn attach(image: &Path) -> Option<Self> {
        let device = run("losetup", &["-f".as_ref(), "--show".as_ref(), image.as_ref()])?;
        Some(Self { device: device.into() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d".as_ref(), self.device.as_ref()]);
    }
}

#[test]
fn block_devices_are_members_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, 20 * MIB);
    let Some(looped) = Loop::attach(&path) else {
        return;
    };
    // Its image must not become a member beside it.
    assert!(matches!(check(&path, true), Err(MemberError::Unsuitable { .. })));
    check(&looped.device, false).unwrap();
    let disk = DeviceDisk::create(&looped.device, DIMENSIONS, Bounds::default()).unwrap();
    assert_eq!((disk.kind(), disk.room().unwrap().slabs), (DiskKind::Device, 9));
    assert!(matches!(check(&looped.device, true), Err(MemberError::InUse { .. })));
    disk.create_slab(8).unwrap();
    disk.write(Area::Slab(8), MIB, &AlignedBuf::copy_of(&[6; SECTOR_LEN])).unwrap();
    disk.sync(Area::Slab(8)).unwrap();
    drop(disk);
    let mut disk = DeviceDisk::open(&looped.device, true, true).unwrap();
    disk.configure(DIMENSIONS, Bounds::default());
    let mut buf = AlignedBuf::zeroed(SECTOR_LEN);
    disk.read(Area::Slab(8), MIB, &mut buf).unwrap();
    assert!(buf.iter().all(|&b| b == 6));
}

#[test]
fn a_mounted_device_is_refused_even_with_force() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, 20 * MIB);
    let at = dir.path().join("mnt");
    std::fs::create_dir(&at).unwrap();
    let Some(looped) = Loop::attach(&path) else {
        return;
    };
    let device = looped.device.as_os_str();
    if run("mkfs.ext4", &["-q".as_ref(), device]).is_none() || run("mount", &[device, at.as_ref()]).is_none()
    {
        return;
    }
    let refused = check(&looped.device, true);
    run("umount", &[at.as_ref()]);
    assert!(matches!(refused, Err(MemberError::Unsuitable { .. })), "{refused:?}");
    assert!(matches!(check(&looped.device, false), Err(MemberError::Used { .. })));
}
