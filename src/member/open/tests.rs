use std::path::PathBuf;

use super::super::superblock::{tests::sample, write_superblock};
use super::super::{AlignedBuf, Area};
use super::*;
use crate::units::{MIB, SECTOR_LEN};

const DIMENSIONS: Dimensions = Dimensions { slab_bytes: MIB, ring_bytes: 8 * MIB };

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn directory(&self, name: &str) -> MemberSpec {
        let path = self.dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        MemberSpec::new(path)
    }

    fn image(&self, name: &str) -> MemberSpec {
        let path = self.dir.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(20 * MIB).unwrap();
        MemberSpec::new(path)
    }

    fn both(&self) -> [MemberSpec; 2] {
        [self.directory("d"), self.image("i")]
    }
}

fn entries(path: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn members_are_made_and_opened() {
    let place = Place::new();
    for spec in place.both() {
        let disk = create(&spec, DIMENSIONS, false).unwrap();
        assert_eq!(disk.kind(), probe(&spec.path).unwrap());
        write_superblock(&*disk, &sample(1)).unwrap();
        disk.create_slab(0).unwrap();
        let sector = AlignedBuf::copy_of(&[9; SECTOR_LEN]);
        disk.write(Area::Slab(0), MIB, &sector).unwrap();
        assert!(matches!(open(&spec.path, None, true), Err(MemberError::InUse { .. })));
        assert_eq!(peek(&spec.path).unwrap(), sample(1));
        drop(disk);
        let (disk, superblock) = open(&spec.path, None, true).unwrap();
        assert_eq!(superblock, sample(1));
        let mut back = AlignedBuf::zeroed(SECTOR_LEN);
        disk.read(Area::Slab(0), MIB, &mut back).unwrap();
        assert_eq!(back[..], sector[..]);
        assert!(disk.write(Area::Slab(0), 0, &sector).is_err() && disk.sync(Area::Journal).is_err());
        disk.read(Area::Journal, 8 * MIB - 4096, &mut back).unwrap();
        assert!(back.iter().all(|&b| b == 0));
    }
}

#[test]
fn what_is_no_member_is_not_opened_and_not_written() {
    let place = Place::new();
    for spec in place.both() {
        assert!(matches!(open(&spec.path, None, false), Err(MemberError::NoSuperblock { .. })));
        assert!(matches!(peek(&spec.path), Err(MemberError::NoSuperblock { .. })));
    }
    assert!(entries(&place.dir.path().join("d")).is_empty());
    let nothing = place.dir.path().join("nothing");
    assert!(matches!(open(&nothing, None, false), Err(MemberError::Access { .. })));
    assert!(matches!(probe(Path::new("/dev/null")), Err(MemberError::Unsuitable { .. })));
    // Made, but never given a superblock.
    for spec in [place.directory("e"), place.image("j")] {
        drop(create(&spec, DIMENSIONS, false).unwrap());
        assert!(matches!(open(&spec.path, None, false), Err(MemberError::NoSuperblock { .. })));
    }
}

#[test]
fn used_members_need_force() {
    let place = Place::new();
    for spec in place.both() {
        write_superblock(&*create(&spec, DIMENSIONS, false).unwrap(), &sample(1)).unwrap();
        for made in [check(&spec, false), create(&spec, DIMENSIONS, false).map(drop)] {
            assert!(matches!(made, Err(MemberError::Used { .. })), "{made:?}");
        }
        assert_eq!(peek(&spec.path).unwrap(), sample(1));
        let disk = create(&spec, DIMENSIONS, true).unwrap();
        assert!(matches!(peek(&spec.path), Err(MemberError::NoSuperblock { .. })));
        assert!(matches!(create(&spec, DIMENSIONS, true), Err(MemberError::InUse { .. })));
        write_superblock(&*disk, &sample(1)).unwrap();
        assert!(disk.list_slabs().unwrap().is_empty());
    }
}

#[test]
fn files_of_others_are_never_deleted() {
    let place = Place::new();
    let spec = place.directory("d");
    let note = spec.path.join("note");
    std::fs::write(&note, "mine").unwrap();
    for force in [false, true] {
        assert!(matches!(create(&spec, DIMENSIONS, force), Err(MemberError::Unsuitable { .. })));
    }
    assert!(wipe(&spec.path).is_err());
    assert_eq!(entries(&spec.path), [note]);
}

#[test]
fn an_image_with_data_needs_force() {
    let place = Place::new();
    let spec = place.image("i");
    let mut content = vec![0; 20 << 20];
    content[1080..1082].copy_from_slice(b"\x53\xef");
    std::fs::write(&spec.path, &content).unwrap();
    let made = create(&spec, DIMENSIONS, false);
    assert!(made.unwrap_err().to_string().contains("an ext file system"));
    assert_eq!(std::fs::read(&spec.path).unwrap(), content);
    assert!(matches!(wipe(&spec.path), Err(MemberError::NoSuperblock { .. })));
    create(&spec, DIMENSIONS, true).unwrap();
}

#[test]
fn erased_members_are_gone() {
    let place = Place::new();
    for spec in place.both() {
        let disk = create(&spec, DIMENSIONS, false).unwrap();
        write_superblock(&*disk, &sample(1)).unwrap();
        write_superblock(&*disk, &sample(2)).unwrap();
        assert!(matches!(wipe(&spec.path), Err(MemberError::InUse { .. })));
        drop(disk);
        wipe(&spec.path).unwrap();
        assert!(matches!(peek(&spec.path), Err(MemberError::NoSuperblock { .. })));
    }
    assert!(entries(&place.dir.path().join("d")).is_empty());
}

#[test]
fn bounds_come_from_the_superblock_or_the_caller() {
    let place = Place::new();
    for spec in place.both() {
        let mut superblock = sample(1);
        superblock.members[1].limit_bytes = 13 * MIB;
        superblock.members[1].reserve_bytes = 0;
        write_superblock(&*create(&spec, DIMENSIONS, false).unwrap(), &superblock).unwrap();
        assert_eq!(open(&spec.path, None, false).unwrap().0.room().unwrap().slabs, 2);
        let bounds = Bounds { limit_bytes: 12 * MIB, reserve_bytes: 0 };
        assert_eq!(open(&spec.path, Some(bounds), false).unwrap().0.room().unwrap().slabs, 1);
    }
}

#[test]
fn capacity_is_what_may_be_used() {
    let place = Place::new();
    let [directory, image] = place.both();
    assert_eq!(capacity(&image).unwrap(), 20 * MIB);
    let limited = |spec: &MemberSpec, limit_bytes, reserve_bytes| {
        capacity(&MemberSpec { bounds: Bounds { limit_bytes, reserve_bytes }, ..spec.clone() }).unwrap()
    };
    assert_eq!(limited(&image, 5 * MIB, 0), 5 * MIB);
    assert_eq!(limited(&image, 50 * MIB, 0), 20 * MIB);
    assert_eq!(limited(&directory, 1000, 0), 1000);
    assert_eq!(limited(&directory, 0, u64::MAX), 0);
}

#[test]
fn impossible_dimensions_are_refused() {
    let place = Place::new();
    let spec = place.directory("d");
    let dimensions = Dimensions { slab_bytes: 3 * MIB, ..DIMENSIONS };
    assert!(create(&spec, dimensions, false).is_err());
    assert!(entries(&spec.path).is_empty());
}

#[test]
fn directories_on_one_file_system_share_what_is_free() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let specs: Vec<MemberSpec> = [&one, &other].map(|dir| MemberSpec::new(dir.path())).into();
    let alone = capacity(&specs[0]).unwrap();
    let shared = capacities(&specs).unwrap();
    // Others write to the file system meanwhile.
    assert!(shared[0] < alone * 6 / 10 && shared[1] < alone * 6 / 10, "{shared:?} of {alone}");
    let limited =
        MemberSpec { bounds: Bounds { limit_bytes: 5 * MIB, reserve_bytes: 0 }, ..specs[0].clone() };
    assert_eq!(capacities(&[limited, specs[1].clone()]).unwrap()[0], 5 * MIB);
}
