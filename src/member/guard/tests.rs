use super::*;
use crate::member::sim::{SimDisk, SimWorld};
use crate::units::{SECTOR, SECTOR_LEN};

const SECOND: Duration = Duration::from_secs(1);

fn guarded(world: &SimWorld, deadline: Duration) -> (Arc<SimDisk>, Arc<dyn Disk>) {
    let disk = world.disk("a", 4);
    let options = GuardOptions { deadline, clock: world.clock(), threads: true };
    let guarded = Guarded::new(Arc::clone(&disk) as Arc<dyn Disk>, Arc::default(), &options);
    (disk, Arc::new(guarded))
}

/// Everything that can be asked of a disk.
fn everything(disk: &dyn Disk) -> Vec<Result<()>> {
    let mut buf = AlignedBuf::zeroed(SECTOR_LEN);
    vec![
        disk.read(Area::Journal, 0, &mut buf),
        disk.write(Area::Journal, SECTOR, &buf),
        disk.sync(Area::Journal),
        disk.create_slab(1),
        disk.delete_slab(1),
        disk.list_slabs().map(|_| ()),
        disk.room().map(|_| ()),
    ]
}

fn waits_for_nothing(world: &SimWorld, deadline: Duration) {
    let clock = world.clock();
    let (disk, guarded) = guarded(world, deadline);
    everything(&*guarded).into_iter().for_each(|result| result.expect("answers"));
    for first in 0..7 {
        let (disk, guarded) = self::guarded(world, deadline);
        disk.hang_for(1000 * deadline);
        let began = clock.elapsed();
        let buf = &mut AlignedBuf::zeroed(SECTOR_LEN);
        let result = match first {
            0 => guarded.read(Area::Journal, 0, buf),
            1 => guarded.write(Area::Journal, SECTOR, buf),
            2 => guarded.sync(Area::Journal),
            3 => guarded.create_slab(1),
            4 => guarded.delete_slab(1),
            5 => guarded.list_slabs().map(|_| ()),
            _ => guarded.room().map(|_| ()),
        };
        assert!(matches!(result, Err(MemberError::Timeout { .. })), "{result:?}");
        clock.sleep(deadline / 10);
        for result in everything(&*guarded) {
            assert!(matches!(result, Err(MemberError::Hanging { .. })), "{result:?}");
        }
        let took = clock.elapsed() - began;
        assert!(took >= deadline && took < 3 * deadline, "{took:?}");
    }
    disk.hang_for(2 * deadline);
    assert!(guarded.sync(Area::Journal).is_err());
    assert!(guarded.room().is_ok(), "what it said last");
    clock.sleep(3 * deadline);
    everything(&*guarded).into_iter().for_each(|result| result.expect("answers again"));
}

#[test]
fn a_hanging_disk_costs_one_deadline_in_virtual_time() {
    waits_for_nothing(&SimWorld::new(1), SECOND);
}

#[test]
fn a_hanging_disk_costs_one_deadline_with_threads() {
    let world = SimWorld::new(1);
    world.set_clock(Clock::system());
    waits_for_nothing(&world, SECOND / 20);
}

#[test]
fn what_was_given_up_still_reaches_the_medium() {
    let world = SimWorld::new(1);
    let (disk, guarded) = guarded(&world, SECOND);
    disk.hang_for(5 * SECOND);
    let buf = AlignedBuf::copy_of(&[7; SECTOR_LEN]);
    assert!(guarded.write(Area::Journal, 0, &buf).is_err());
    let mut back = AlignedBuf::zeroed(SECTOR_LEN);
    world.clock().sleep(3 * SECOND);
    assert!(guarded.read(Area::Journal, 0, &mut back).is_err());
    world.clock().sleep(3 * SECOND);
    guarded.read(Area::Journal, 0, &mut back).expect("reads");
    assert_eq!(back[0], 7);
}

#[test]
fn what_may_hang_is_done_within_a_time() {
    let path = Path::new("/a/member");
    let slow = within(path, SECOND / 50, || {
        std::thread::sleep(SECOND);
        Ok(1)
    });
    assert!(matches!(slow, Err(MemberError::OpenTimeout { .. })), "{slow:?}");
    assert_eq!(within(path, 60 * SECOND, || Ok(2)).expect("in time"), 2);
    let panicked = within::<()>(path, 60 * SECOND, || panic!("on purpose"));
    assert!(matches!(panicked, Err(MemberError::Dropped { .. })), "{panicked:?}");
}
