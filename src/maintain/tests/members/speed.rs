//! How long jobs take in virtual time: each disk moves so many bytes a second, one request after the other, and what
//! goes on side by side takes as long as the busiest disk. The order of requests is that of the real code.

use super::*;
use crate::maintain::evacuate::Evacuate;
use crate::maintain::rebalance::Rebalance;
use crate::maintain::repair::Repair;
use crate::member::open::MemberSpec;
use crate::member::sim::SimWorld;
use crate::member::{Area, Dimensions, DiskKind, Result as MemberResult, Room, SlabNo};
use crate::pool::{AssembleOptions, Degraded, create_on};
use crate::sync::Mutex;

/// One request: the disk, whether it writes, and its bytes; 0 is a sync.
type Request = (usize, bool, u64);

/// A disk that notes what is read of slabs and written to them.
#[derive(Debug)]
struct Watched {
    disk: Arc<dyn Disk>,
    number: usize,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Watched {
    fn note(&self, area: Area, writes: bool, len: usize) {
        if matches!(area, Area::Slab(_)) {
            self.log.lock().push((self.number, writes, len as u64));
        }
    }
}

impl Disk for Watched {
    fn kind(&self) -> DiskKind {
        self.disk.kind()
    }
    fn path(&self) -> String {
        self.disk.path()
    }
    fn read(&self, area: Area, offset: u64, buf: &mut [u8]) -> MemberResult<()> {
        self.note(area, false, buf.len());
        self.disk.read(area, offset, buf)
    }
    fn write(&self, area: Area, offset: u64, buf: &[u8]) -> MemberResult<()> {
        self.note(area, true, buf.len());
        self.disk.write(area, offset, buf)
    }
    fn sync(&self, area: Area) -> MemberResult<()> {
        self.note(area, true, 0);
        self.disk.sync(area)
    }
    fn create_slab(&self, slab: SlabNo) -> MemberResult<()> {
        self.disk.create_slab(slab)
    }
    fn delete_slab(&self, slab: SlabNo) -> MemberResult<()> {
        self.disk.delete_slab(slab)
    }
    fn list_slabs(&self) -> MemberResult<Vec<SlabNo>> {
        self.disk.list_slabs()
    }
    fn room(&self) -> MemberResult<Room> {
        self.disk.room()
    }
    fn device_id(&self) -> u64 {
        self.disk.device_id()
    }
}

impl Rig {
    /// Mounts with all slab traffic noted.
    fn mount_watched(&mut self, lost: &[usize]) -> Arc<Mutex<Vec<Request>>> {
        self.fs = None;
        let log = Arc::new(Mutex::new(Vec::new()));
        let here = (0..self.sim.disks.len()).filter(|index| !lost.contains(index));
        let found = here
            .map(|number| {
                let Found { disk, superblock } = self.found(number);
                let watched = Watched { disk, number, log: Arc::clone(&log) };
                Found { disk: Arc::new(watched), superblock }
            })
            .collect();
        let options =
            AssembleOptions { threads: false, degraded: Degraded::Yes, ..AssembleOptions::default() };
        let pool = Pool::assemble_disks(found, &options).expect("assembles");
        let options = FsOptions {
            cache_bytes: 64 * MIB,
            background: false,
            clock: self.clock.clone(),
            ..FsOptions::default()
        };
        self.fs = Some(Fs::mount(pool, options).expect("mounts"));
        log.lock().clear();
        log
    }
}

/// Time of moves in units of bytes: reads of a round go on together with the writes of the round before.
fn time_of_rounds(log: &[Request], disks: usize) -> u64 {
    stages(log, disks).iter().map(|stage| stage.iter().max().copied().unwrap_or(0)).sum()
}

fn stages(log: &[Request], disks: usize) -> Vec<Vec<u64>> {
    let mut stages: Vec<Vec<u64>> = vec![vec![0; disks]];
    let mut writing = false;
    for &(disk, writes, bytes) in log {
        // Reads that follow writes begin a new round, and its stage; the writes before it belong to that too.
        if writes && !writing {
            stages.push(vec![0; disks]);
        }
        writing = writes;
        if let Some(stage) = stages.last_mut() {
            stage[disk] += bytes;
        }
    }
    stages
}

/// A pool whose slabs have several rounds, as those of real disks have.
fn large_slabs(resiliency: &str, members: usize) -> SimPool {
    let resiliency = Resiliency::parse(resiliency).expect("known");
    let dimensions = Dimensions { slab_bytes: 4 * MIB, ring_bytes: 8 * MIB };
    let world = SimWorld::with_dimensions(1, dimensions);
    let disks: Vec<_> = (0..members).map(|index| world.disk(&format!("disk{index}"), 150)).collect();
    let specs =
        disks.iter().map(|disk| (Arc::clone(disk) as Arc<dyn Disk>, MemberSpec::new("sim"))).collect();
    create_on(specs, "test", resiliency, dimensions).expect("creates");
    SimPool { world, disks }
}

/// A rebuild has at least 70 % of the speed of a copy in which all members take part all the time.
#[test]
fn rebuilding_and_emptying_keep_all_members_busy() {
    for (resiliency, members) in [("mirror", 5), ("parity columns=2", 6), ("parity:2 columns=3", 8)] {
        for lost in [true, false] {
            let mut rig = Rig::on(large_slabs(resiliency, members));
            rig.write(20, 300 * MIB);
            rig.fs().unmount().expect("unmounts");
            let log = rig.mount_watched(if lost { &[0] } else { &[] });
            let mut job: Box<dyn Job> = match lost {
                true => Box::new(Repair::new(rig.fs(), false)),
                false => Box::new(Evacuate::new(rig.fs(), 0).expect("begins")),
            };
            for _ in 0..1000 {
                if job.step(rig.fs(), 64 * MIB).expect("goes on") == Step::Done {
                    break;
                }
            }
            let log = log.lock().clone();
            let all: u64 = log.iter().map(|(_, _, bytes)| bytes).sum();
            // No copy is faster than the disk from which most must be read.
            let reads = |number| {
                let of_it = log.iter().filter(|(disk, writes, _)| *disk == number && !writes);
                of_it.map(|(_, _, bytes)| bytes).sum::<u64>()
            };
            let most = (0..members).map(reads).max().unwrap_or(0);
            let best = (all / (members - usize::from(lost)) as u64).max(most);
            let took = time_of_rounds(&log, members);
            assert!(all > 20 * MIB, "{resiliency}: {all}");
            println!("{resiliency}, lost {lost}: {:.0} %", best as f64 / took as f64 * 100.0);
            assert!(took * 7 <= best * 10, "{resiliency}, lost {lost}: {best} at best, {took} it took");
        }
    }
}

/// After adding a member and evening out, reading everything takes at most 5 % longer than from a new pool.
#[test]
fn evened_out_files_read_as_fast_as_in_a_new_pool() {
    for (resiliency, old, new) in [("parity", 3, 4), ("mirror", 2, 4), ("simple", 2, 3)] {
        let read_all = |rig: &mut Rig| {
            rig.fs().unmount().expect("unmounts");
            let log = rig.mount_watched(&[]);
            rig.files.iter().for_each(|(name, data)| assert!(rig.read(name).expect("reads") == *data));
            let disks = rig.sim.disks.len();
            let mut busy = vec![0; disks];
            log.lock().iter().for_each(|(disk, _, bytes)| busy[*disk] += bytes);
            busy.into_iter().max().unwrap_or(0)
        };
        let mut grown = Rig::new(resiliency, &vec![400; old]);
        grown.write(40, 200 * MIB);
        for _ in old..new {
            grown.add(400);
        }
        run(&grown, &mut Rebalance::new(grown.fs()));
        let mut fresh = Rig::new(resiliency, &vec![400; new]);
        fresh.write(40, 200 * MIB);
        let (grown, fresh) = (read_all(&mut grown), read_all(&mut fresh));
        println!("{resiliency}: {grown} of {fresh}");
        assert!(grown * 100 <= fresh * 105, "{resiliency}: {grown}, new {fresh}");
    }
}
