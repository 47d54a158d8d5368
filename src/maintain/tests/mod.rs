//! Jobs over simulated disks.

mod flips;
mod members;
mod running;

use super::*;
use crate::fs::{Caller, FsOptions, OpenFlags};
use crate::layout::Resiliency;
use crate::member::sim::{PowerCut, next_random};
use crate::pool::simulated::SimPool;
use crate::store::tables::{Ino, ROOT_INO};
use crate::sync::Clock;
use crate::units::MIB;

/// A pool on simulated disks, mounted and looked after, all on the caller's thread.
struct Rig {
    sim: SimPool,
    clock: Clock,
    maintenance: Option<Arc<Maintenance>>,
}

impl Rig {
    fn new(resiliency: &str, disks: usize, slabs: u64) -> Self {
        let resiliency = Resiliency::parse(resiliency).expect("known");
        let sim = SimPool::create(1, &vec![slabs; disks], resiliency).expect("creates");
        let mut rig = Self { sim, clock: Clock::manual(), maintenance: None };
        rig.mount(&[]);
        rig
    }

    fn mount(&mut self, lost: &[usize]) {
        let options = FsOptions {
            cache_bytes: 8 * MIB,
            background: false,
            clock: self.clock.clone(),
            ..FsOptions::default()
        };
        let pool = self.sim.open(lost).expect("assembles");
        let fs = Fs::mount(pool, options).expect("mounts");
        let options = MaintainOptions { grace: Some(GRACE), announce: true, ..MaintainOptions::default() };
        self.maintenance = Some(Maintenance::start(&fs, options));
    }

    fn unmount(&mut self) {
        if let Some(maintenance) = self.maintenance.take() {
            maintenance.stop();
            maintenance.fs().unmount().expect("unmounts");
        }
    }

    fn crash(&mut self, policy: PowerCut, seed: u64) {
        self.maintenance = None;
        self.sim.world.power_cut(policy, seed);
        self.mount(&[]);
    }

    fn maintenance(&self) -> &Arc<Maintenance> {
        self.maintenance.as_ref().expect("mounted")
    }

    fn fs(&self) -> &Arc<Fs> {
        self.maintenance().fs()
    }

    fn scheduler(&self) -> &Scheduler {
        self.maintenance().scheduler()
    }

    /// A file of so many bytes, which follow from the seed, durable.
    fn file(&self, name: &str, seed: u64, len: usize) -> Ino {
        let fs = self.fs();
        let (attr, handle) = fs
            .create(ROOT_INO, name.as_bytes(), 0o644, OpenFlags::READ_WRITE, &Caller::ROOT)
            .expect("creates");
        let data = noise(seed, len);
        for (index, part) in data.chunks(MIB as usize).enumerate() {
            let at = index as u64 * MIB;
            assert_eq!(fs.write(attr.ino, handle, at, part, false).expect("writes"), part.len());
        }
        fs.release(attr.ino, handle).expect("releases");
        fs.forget(attr.ino, 1);
        fs.sync_all().expect("durable");
        attr.ino
    }

    /// What a sector of a file reads as: past the cache.
    fn sector(&self, ino: Ino, at: u64) -> Result<Vec<u8>, crate::fs::FsError> {
        let mut buf = vec![0xEE; 4096];
        self.fs().cache().drop_clean();
        self.fs().read(ino, 0, at, &mut buf)?;
        Ok(buf)
    }

    /// Runs jobs until none can go on, at most so many steps.
    fn run_jobs(&self, steps: usize) {
        for _ in 0..steps {
            let running = |job: &scheduler::JobStatus| !job.state.has_ended();
            if !self.scheduler().jobs().iter().any(running) {
                return;
            }
            self.scheduler().run_step();
            self.clock.advance(Duration::from_millis(1500));
        }
        panic!("the jobs do not end: {:?}", self.scheduler().jobs());
    }

    /// Runs a scrub to its end, and gives its counts.
    fn scrub(&self) -> std::collections::BTreeMap<String, u64> {
        let id = self.scheduler().start_kind(&JobKind::Scrub).expect("starts").id;
        self.run_jobs(10_000);
        let jobs = self.scheduler().jobs();
        let job = jobs.iter().find(|job| job.id == id).expect("it is remembered");
        assert_eq!(job.state, scheduler::JobState::Done, "{job:?}");
        job.counts.iter().map(|count| (count.what.clone(), count.number)).collect()
    }
}

/// Bytes that follow from the seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len.div_ceil(8)).flat_map(|_| next_random(&mut state).to_le_bytes()).take(len).collect()
}
