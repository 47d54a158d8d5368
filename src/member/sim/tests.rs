use super::*;
use crate::member::{AlignedBuf, Area, Disk, MemberError};
use crate::units::{MIB, SECTOR, SECTOR_LEN};

fn sector(value: u8) -> AlignedBuf {
    AlignedBuf::copy_of(&[value; SECTOR_LEN])
}

fn first_byte(disk: &SimDisk, area: Area, offset: u64) -> u8 {
    let mut buf = AlignedBuf::zeroed(SECTOR_LEN);
    disk.read(area, offset, &mut buf).unwrap();
    buf[0]
}

#[test]
fn only_what_was_synced_survives_the_worst() {
    let world = SimWorld::new(1);
    let disk = world.disk("a", 4);
    disk.create_slab(0).unwrap();
    disk.write(Area::Slab(0), 0, &sector(1)).unwrap();
    disk.write(Area::Journal, 0, &sector(2)).unwrap();
    disk.sync(Area::Slab(0)).unwrap();
    disk.write(Area::Slab(0), 0, &sector(3)).unwrap();
    disk.write(Area::Slab(0), SECTOR, &sector(4)).unwrap();
    assert_eq!(first_byte(&disk, Area::Slab(0), 0), 3);
    world.power_cut(PowerCut::Lost, 0);
    assert_eq!(first_byte(&disk, Area::Slab(0), 0), 1);
    assert_ne!(first_byte(&disk, Area::Slab(0), SECTOR), 4);
    assert_eq!(first_byte(&disk, Area::Journal, 0), 0);
    disk.write(Area::Slab(0), 0, &sector(5)).unwrap();
    world.power_cut(PowerCut::Kept, 0);
    world.power_cut(PowerCut::Lost, 0);
    assert_eq!(first_byte(&disk, Area::Slab(0), 0), 5);
}

#[test]
fn subsets_come_in_any_combination_and_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let world = SimWorld::new(1);
        let disk = world.disk("a", 0);
        for (offset, value) in [(0, 1), (0, 2), (SECTOR, 3)] {
            disk.write(Area::Journal, offset, &sector(value)).unwrap();
        }
        world.power_cut(PowerCut::Subset, seed);
        seen.insert([0, SECTOR].map(|offset| first_byte(&disk, Area::Journal, offset)));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [[0, 0], [0, 3], [1, 0], [1, 3], [2, 0], [2, 3]]);
}

#[test]
fn torn_writes_are_torn_at_512_bytes() {
    let (mut partial, mut whole) = (0, 0);
    for seed in 0..100 {
        let world = SimWorld::new(1);
        let disk = world.disk("a", 0);
        disk.write(Area::Journal, 0, &AlignedBuf::copy_of(&[7; 2 * SECTOR_LEN])).unwrap();
        world.power_cut(PowerCut::Torn, seed);
        let mut buf = AlignedBuf::zeroed(2 * SECTOR_LEN);
        disk.read(Area::Journal, 0, &mut buf).unwrap();
        let pieces: Vec<_> = buf.chunks(512).map(|piece| piece[0]).collect();
        assert!(buf.chunks(512).all(|piece| piece.iter().all(|&b| b == piece[0] && (b == 0 || b == 7))));
        match pieces.iter().filter(|&&b| b == 7).count() {
            16 => whole += 1,
            0 => {}
            _ => partial += 1,
        }
    }
    assert!(partial > 20 && whole > 10, "{partial} {whole}");
}

#[test]
fn power_is_lost_at_the_operation_chosen() {
    // What a run of four operations leaves, by the operation at which power is lost.
    let run = |stop: u64, policy| {
        let world = SimWorld::new(stop);
        let (a, b) = (world.disk("a", 4), world.disk("b", 4));
        world.stop_after(stop);
        let steps = [
            a.create_slab(0),
            a.write(Area::Slab(0), 0, &sector(1)),
            b.write(Area::Journal, 0, &sector(2)),
            a.sync(Area::Slab(0)),
            b.sync(Area::Journal),
        ];
        let done = steps.iter().take_while(|step| step.is_ok()).count() as u64;
        assert_eq!(steps.iter().filter(|step| step.is_ok()).count() as u64, done);
        assert_eq!(world.is_dark(), stop <= 5);
        if world.is_dark() {
            assert!(a.room().is_err() && b.list_slabs().is_err());
            assert!(a.read(Area::Journal, 0, &mut sector(0)).is_err());
        }
        assert_eq!(world.operations(), stop.min(5));
        world.power_cut(policy, 3);
        assert!(!world.is_dark());
        let slab = a.list_slabs().unwrap() == [0] && first_byte(&a, Area::Slab(0), 0) == 1;
        (done, slab, first_byte(&b, Area::Journal, 0) == 2)
    };
    assert_eq!(run(1, PowerCut::Lost), (0, false, false));
    assert_eq!(run(2, PowerCut::Kept), (1, true, false));
    assert_eq!(run(4, PowerCut::Lost), (3, false, false));
    assert_eq!(run(5, PowerCut::Lost), (4, true, false));
    assert_eq!(run(6, PowerCut::Lost), (5, true, true));
}

#[test]
fn the_same_seed_gives_the_same_disks() {
    let run = |seed: u64| {
        let world = SimWorld::new(seed);
        let disk = world.disk("a", 0);
        for i in 0..50 {
            disk.write(Area::Journal, i * SECTOR, &sector(i as u8 + 1)).unwrap();
        }
        world.power_cut(PowerCut::Torn, seed);
        (0..50).map(|i| first_byte(&disk, Area::Journal, i * SECTOR)).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn slabs_hold_garbage_and_remember() {
    let world = SimWorld::new(1);
    let disk = world.disk("a", 2);
    assert!(matches!(disk.write(Area::Slab(0), 0, &sector(1)), Err(MemberError::NoSlab { slab: 0, .. })));
    disk.create_slab(9).unwrap();
    assert_ne!(first_byte(&disk, Area::Slab(9), 0), 0);
    disk.write(Area::Slab(9), 0, &sector(1)).unwrap();
    disk.create_slab(9).unwrap();
    assert_eq!(first_byte(&disk, Area::Slab(9), 0), 1);
    disk.create_slab(3).unwrap();
    assert!(matches!(disk.create_slab(0), Err(MemberError::NoSpace { slab: 0, .. })));
    disk.delete_slab(9).unwrap();
    disk.delete_slab(9).unwrap();
    world.power_cut(PowerCut::Kept, 0);
    assert_eq!(disk.list_slabs().unwrap(), [3]);
    disk.create_slab(9).unwrap();
    assert_eq!(first_byte(&disk, Area::Slab(9), 0), 1);
}

#[test]
fn faults_come_and_go() {
    let world = SimWorld::new(1);
    let disk = world.disk("a", 2);
    disk.create_slab(0).unwrap();
    let area = Area::Slab(0);
    disk.write(area, 0, &sector(1)).unwrap();
    let errno = |result: Result<(), MemberError>| match result {
        Err(MemberError::Io { source, .. }) => source.raw_os_error(),
        other => panic!("{other:?}"),
    };
    let mut buf = sector(0);
    disk.fail_all();
    assert_eq!(errno(disk.read(area, 0, &mut buf)), Some(5));
    assert_eq!(errno(disk.sync(area)), Some(5));
    assert!(disk.room().is_err());
    disk.vanish();
    assert_eq!(errno(disk.write(area, 0, &buf)), Some(19));
    disk.revive();
    disk.set_read_only(true);
    assert_eq!(errno(disk.write(area, 0, &buf)), Some(30));
    assert_eq!(errno(disk.create_slab(1)), Some(30));
    assert_eq!(first_byte(&disk, area, 0), 1);
    disk.revive();
    disk.set_full(true);
    assert_eq!(disk.room().unwrap().slabs, 1);
    assert!(matches!(disk.create_slab(1), Err(MemberError::NoSpace { .. })));
    disk.fail_writes(area, 0..SECTOR);
    assert_eq!(errno(disk.write(area, 0, &buf)), Some(5));
    disk.write(area, SECTOR, &buf).unwrap();
}

#[test]
fn unreadable_sectors_can_be_written() {
    let world = SimWorld::new(1);
    let disk = world.disk("a", 2);
    disk.fail_reads(Area::Journal, 100..5 * SECTOR);
    let mut buf = AlignedBuf::zeroed(4 * SECTOR_LEN);
    assert!(disk.read(Area::Journal, 0, &mut buf).is_err());
    disk.write(Area::Journal, SECTOR, &buf).unwrap();
    disk.read(Area::Journal, SECTOR, &mut buf).unwrap();
    assert!(disk.read(Area::Journal, 0, &mut sector(0)).is_err());
    disk.write(Area::Journal, 0, &sector(1)).unwrap();
    disk.read(Area::Journal, 0, &mut buf).unwrap();
}

#[test]
fn a_failed_sync_leaves_its_writes_in_doubt() {
    let world = SimWorld::new(1);
    let disk = world.disk("a", 2);
    disk.write(Area::Journal, 0, &sector(1)).unwrap();
    disk.fail_syncs(true);
    assert!(disk.sync(Area::Journal).is_err());
    disk.fail_syncs(false);
    disk.write(Area::Journal, SECTOR, &sector(2)).unwrap();
    disk.sync(Area::Journal).unwrap();
    assert_eq!(first_byte(&disk, Area::Journal, 0), 1);
    world.power_cut(PowerCut::Lost, 0);
    assert_eq!(first_byte(&disk, Area::Journal, 0), 0);
    assert_eq!(first_byte(&disk, Area::Journal, SECTOR), 2);
}

#[test]
fn a_disk_can_be_set_back() {
    let world = SimWorld::new(1);
    let disk = world.disk("a", 2);
    disk.create_slab(0).unwrap();
    disk.write(Area::Slab(0), 0, &sector(1)).unwrap();
    disk.sync(Area::Slab(0)).unwrap();
    disk.write(Area::Slab(0), 0, &sector(2)).unwrap();
    let then = disk.snapshot();
    disk.create_slab(1).unwrap();
    disk.sync(Area::Slab(0)).unwrap();
    disk.restore(&then);
    assert_eq!(disk.list_slabs().unwrap(), [0]);
    assert_eq!(first_byte(&disk, Area::Slab(0), 0), 1);
    disk.flip(Area::Slab(0), 0, 7);
    assert_eq!(first_byte(&disk, Area::Slab(0), 0), 129);
    world.power_cut(PowerCut::Lost, 0);
    assert_eq!(first_byte(&disk, Area::Slab(0), 0), 129);
    disk.restore(&then);
    assert_eq!(first_byte(&disk, Area::Slab(0), 0), 1);
}

#[test]
fn what_was_done_is_counted() {
    let world = SimWorld::new(1);
    let disk = world.disk("a", 2);
    disk.write(Area::Journal, SECTOR, &sector(1)).unwrap();
    disk.sync(Area::Journal).unwrap();
    first_byte(&disk, Area::Journal, 0);
    let expected =
        SimCounters { reads: 1, read_bytes: 4096, writes: 1, written_bytes: 4096, syncs: 1, unaligned: 0 };
    assert_eq!(disk.counters(), expected);
    assert_eq!(disk.written_ranges(), [Written { area: Area::Journal, offset: SECTOR, len: SECTOR }]);
    disk.forget_written();
    assert!(disk.written_ranges().is_empty());
    assert!(matches!(disk.write(Area::Journal, 8 * MIB, &sector(1)), Err(MemberError::OutOfArea { .. })));
}
