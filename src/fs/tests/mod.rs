//! The file system over simulated disks.

mod basics;
mod check;
mod compaction;
mod crash;
mod cutting;
mod full;
mod hanging;
mod inline;
mod large_directory;
mod model;
mod names;
mod nodes;
mod sharing;
mod threads;
mod wrapping;

use super::*;
use crate::layout::Resiliency;
use crate::member::sim::{PowerCut, next_random};
use crate::pool::simulated::SimPool;
use crate::store::tables::ROOT_INO;
use crate::units::MIB;

pub(super) const ROOT: Caller = Caller::ROOT;

/// A pool on simulated disks, mounted.
pub(super) struct Rig {
    pub sim: SimPool,
    pub clock: Clock,
    fs: Option<Arc<Fs>>,
}

pub(super) fn options(clock: &Clock) -> FsOptions {
    FsOptions {
        cache_bytes: 8 * MIB,
        background: false,
        clock: clock.clone(),
        commit: Duration::from_secs(5),
        ..FsOptions::default()
    }
}

impl Rig {
    /// So many disks of so many slabs of 1 MiB.
    pub fn new(resiliency: &str, disks: usize, slabs: u64) -> Self {
        Self::on(resiliency, &vec![slabs; disks])
    }

    /// Disks with so many slabs of 1 MiB each.
    pub fn on(resiliency: &str, slabs: &[u64]) -> Self {
        let resiliency = Resiliency::parse(resiliency).expect("known");
        let sim = SimPool::create(1, slabs, resiliency).expect("creates");
        let mut rig = Self { sim, clock: Clock::manual(), fs: None };
        rig.mount();
        rig
    }

    /// A small mirror.
    pub fn mirror() -> Self {
        Self::new("mirror", 2, 64)
    }

    pub fn mount(&mut self) {
        let pool = self.sim.open(&[]).expect("assembles");
        self.fs = Some(Fs::mount(pool, options(&self.clock)).expect("mounts"));
    }

    pub fn fs(&self) -> &Arc<Fs> {
        self.fs.as_ref().expect("mounted")
    }

    /// Unmounts in order, checks the tables, and mounts again.
    pub fn remount(&mut self) {
        check::tables(self.fs());
        self.fs().unmount().expect("unmounts");
        self.fs = None;
        self.mount();
        check::tables(self.fs());
    }

    /// Cuts the power, and mounts again.
    pub fn crash(&mut self, policy: PowerCut, seed: u64) {
        self.fs = None;
        self.sim.world.power_cut(policy, seed);
        self.mount();
        check::tables(self.fs());
    }
}

/// What the tests need often.
impl Fs {
    pub(super) fn t_create(&self, parent: Ino, name: &str) -> Ino {
        let (attr, handle) = self
            .create(parent, name.as_bytes(), 0o644, OpenFlags::READ_WRITE, &ROOT)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        self.release(attr.ino, handle).expect("releases");
        self.forget(attr.ino, 1);
        attr.ino
    }

    pub(super) fn t_mkdir(&self, parent: Ino, name: &str) -> Ino {
        let attr = self.mkdir(parent, name.as_bytes(), 0o755, &ROOT).expect("mkdir");
        self.forget(attr.ino, 1);
        attr.ino
    }

    pub(super) fn t_find(&self, parent: Ino, name: &str) -> Option<Ino> {
        let attr = self.lookup(parent, name.as_bytes()).ok()?;
        self.forget(attr.ino, 1);
        Some(attr.ino)
    }

    pub(super) fn t_write(&self, ino: Ino, offset: u64, data: &[u8]) {
        assert_eq!(self.write(ino, 0, offset, data, false).expect("writes"), data.len());
    }

    pub(super) fn t_read(&self, ino: Ino) -> Vec<u8> {
        let size = self.getattr(ino).expect("there").size as usize;
        let mut buf = vec![0xEE; size + 10];
        let got = self.read(ino, 0, 0, &mut buf).expect("reads");
        assert_eq!(got, size);
        buf.truncate(size);
        buf
    }

    pub(super) fn t_size(&self, ino: Ino, size: u64) {
        self.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }, &ROOT).expect("truncates");
    }

    pub(super) fn t_names(&self, ino: Ino) -> Vec<String> {
        let mut names = Vec::new();
        self.readdir(ino, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(&entry.name).into_owned());
            true
        })
        .expect("reads");
        names
    }

    /// The first half of a flush of one file.
    pub(super) fn capture_for_test(&self, node: &Arc<node::Node>) -> flush::Taken {
        self.capture(node, flush::Why::Demand, u64::MAX).expect("captures").expect("something is dirty")
    }

    /// The second half.
    pub(super) fn finish_for_test(&self, taken: flush::Taken) {
        self.write_taken(vec![taken]).expect("writes and commits");
    }

    /// Drops everything that is cached and clean.
    pub(super) fn t_cool(&self) {
        self.cache.drop_clean();
    }
}

pub(super) fn errno<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.expect_err("an error").errno()
}

/// Seeds to play: so many, or as POOLFS_SEEDS says (`100` or `17-17`) for long runs and for replaying one.
pub(super) fn seeds(few: u64) -> std::ops::RangeInclusive<u64> {
    let Ok(text) = std::env::var("POOLFS_SEEDS") else { return 1..=few };
    let number = |text: &str| text.parse().expect("POOLFS_SEEDS is a number, or two with a dash between");
    match text.split_once('-') {
        Some((from, to)) => number(from)..=number(to),
        None => 1..=number(&text),
    }
}

/// Bytes that follow from the seed.
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len.div_ceil(8)).flat_map(|_| next_random(&mut state).to_le_bytes()).take(len).collect()
}
