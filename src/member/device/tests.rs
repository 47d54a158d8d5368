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
