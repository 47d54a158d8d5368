//! Members come, go, and are evened out, under files whose every byte is compared.

mod crash;
mod full_circle;
mod losses;
mod speed;
mod under_load;

use std::collections::BTreeMap;

use crate::fs::{Caller, CheckOptions, Fs, FsError, FsOptions, OpenFlags};
use crate::layout::Resiliency;
use crate::maintain::job::{Job, JobError, Step, Unsaved};
use crate::member::Disk;
use crate::member::open::Bounds;
use crate::member::sim::{PowerCut, next_random};
use crate::member::superblock::{MemberId, read_superblock};
use crate::pool::simulated::SimPool;
use crate::pool::status::MemberHealth;
use crate::pool::{Found, Pool};
use crate::store::tables::ROOT_INO;
use crate::sync::{Arc, Clock};
use crate::units::MIB;

/// A pool on simulated disks, mounted, and what its files hold.
struct Rig {
    sim: SimPool,
    clock: Clock,
    fs: Option<Arc<Fs>>,
    files: BTreeMap<String, Vec<u8>>,
    seed: u64,
}

impl Rig {
    /// Members with so many slabs of 1 MiB.
    fn new(resiliency: &str, slabs: &[u64]) -> Self {
        let resiliency = Resiliency::parse(resiliency).expect("known");
        let sim = SimPool::create(1, slabs, resiliency).expect("creates");
        Self::on(sim)
    }

    fn on(sim: SimPool) -> Self {
        let mut rig = Self { sim, clock: Clock::manual(), fs: None, files: BTreeMap::new(), seed: 1 };
        rig.mount(&[]);
        rig
    }

    fn mount(&mut self, lost: &[usize]) {
        self.mount_with(lost, false);
    }

    fn mount_with(&mut self, lost: &[usize], background: bool) {
        let options =
            FsOptions { cache_bytes: 8 * MIB, background, clock: self.clock.clone(), ..FsOptions::default() };
        self.fs = None;
        let pool = self.sim.open(lost).unwrap_or_else(|error| panic!("without {lost:?}: {error}"));
        self.fs = Some(Fs::mount(pool, options).unwrap_or_else(|error| panic!("without {lost:?}: {error}")));
    }

    fn fs(&self) -> &Arc<Fs> {
        self.fs.as_ref().expect("mounted")
    }

    fn pool(&self) -> &Arc<Pool> {
        self.fs().pool()
    }

    /// Adds a new disk to the pool.
    fn add(&mut self, slabs: u64) -> MemberId {
        let disk = self.sim.world.disk(&format!("disk{}", self.sim.disks.len()), slabs);
        self.sim.disks.push(Arc::clone(&disk));
        self.fs().store().add_disk(disk, Bounds::default()).expect("added")
    }

    fn found(&self, index: usize) -> Found {
        let disk = Arc::clone(&self.sim.disks[index]) as Arc<dyn Disk>;
        let superblock = read_superblock(&*disk).expect("has a superblock");
        Found { disk, superblock }
    }

    fn health(&self, member: MemberId) -> MemberHealth {
        self.pool().status().members[usize::from(member)].health
    }

    /// So many files more, of about so many bytes in all, durable.
    fn write(&mut self, files: usize, bytes: u64) {
        for _ in 0..files {
            self.seed += 1;
            let name = format!("f{}", self.seed);
            let share = bytes / files as u64;
            let len = share / 2 + next_random(&mut self.seed.clone()) % share.max(1);
            let data = noise(self.seed, len as usize);
            self.put(&name, &data).expect("writes");
            self.files.insert(name, data);
        }
        self.fs().sync_all().expect("syncs");
    }

    fn put(&self, name: &str, data: &[u8]) -> Result<(), FsError> {
        let fs = self.fs();
        let (attr, handle) =
            fs.create(ROOT_INO, name.as_bytes(), 0o644, OpenFlags::READ_WRITE, &Caller::ROOT)?;
        for (index, part) in data.chunks(MIB as usize).enumerate() {
            fs.write(attr.ino, handle, index as u64 * MIB, part, false)?;
        }
        fs.release(attr.ino, handle)?;
        fs.forget(attr.ino, 1);
        Ok(())
    }

    /// Deletes every third file, so that sets are partly dead.
    fn thin_out(&mut self) {
        let names: Vec<String> = self.files.keys().cloned().collect();
        for name in names.iter().step_by(3) {
            self.fs().unlink(ROOT_INO, name.as_bytes()).expect("unlinks");
            self.files.remove(name);
        }
        self.fs().sync_all().expect("syncs");
    }

    /// Every file reads as it was written, and the tables agree.
    fn verify(&self, what: &str) {
        let fs = self.fs();
        fs.cache().drop_clean();
        for (name, data) in &self.files {
            let got = self.read(name).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
            assert!(got == *data, "{what}: {name} reads otherwise");
        }
        let report = fs.check(CheckOptions { data: true }).expect("checks");
        assert_eq!((report.findings, report.more_findings), (Vec::new(), 0), "{what}");
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FsError> {
        let fs = self.fs();
        let attr = fs.lookup(ROOT_INO, name.as_bytes())?;
        fs.forget(attr.ino, 1);
        let mut buf = vec![0; attr.size as usize];
        fs.read(attr.ino, 0, 0, &mut buf)?;
        Ok(buf)
    }

    /// Unmounts, and shows that every `count` of the disks may be missing.
    fn prove_redundancy(&mut self, count: usize, what: &str) {
        self.fs().unmount().expect("unmounts");
        self.fs = None;
        let kept: Vec<_> = self.sim.disks.iter().map(|disk| disk.snapshot()).collect();
        for lost in combinations(self.sim.disks.len(), count) {
            self.mount(&lost);
            let status = self.pool().status();
            assert_eq!(status.sets_unreadable, 0, "{what}, without {lost:?}");
            self.verify(&format!("{what}, without {lost:?}"));
            self.fs = None;
            self.sim.disks.iter().zip(&kept).for_each(|(disk, kept)| disk.restore(kept));
        }
        self.mount(&[]);
        self.verify(what);
    }
}

/// Steps until it is done. Gives what could not be saved.
fn run(rig: &Rig, job: &mut dyn Job) -> Vec<Unsaved> {
    let mut unsaved = Vec::new();
    for _ in 0..20_000 {
        let step = job.step(rig.fs(), 3 * MIB).unwrap_or_else(|error| panic!("{}: {error}", job.kind()));
        unsaved.extend(job.progress().unsaved);
        match step {
            Step::Moved(_) => {}
            Step::Pending(why) => panic!("{} is pending: {why}", job.kind()),
            Step::Done => return unsaved,
        }
    }
    panic!("{} does not come to an end: {:?}", job.kind(), job.progress());
}

/// Steps until it is done, or fails.
fn try_run(rig: &Rig, job: &mut dyn Job) -> Result<(), JobError> {
    for _ in 0..20_000 {
        if job.step(rig.fs(), MIB)? == Step::Done {
            return Ok(());
        }
        if rig.sim.world.is_dark() {
            return Err(FsError::Unmounted.into());
        }
    }
    panic!("{} does not come to an end", job.kind());
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len.div_ceil(8)).flat_map(|_| next_random(&mut state).to_le_bytes()).take(len).collect()
}

fn combinations(n: usize, k: usize) -> Vec<Vec<usize>> {
    (0..1usize << n)
        .map(|mask| (0..n).filter(|one| mask & (1 << one) != 0).collect::<Vec<_>>())
        .filter(|some| some.len() == k)
        .collect()
}
