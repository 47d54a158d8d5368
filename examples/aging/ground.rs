//! A pool over directories of its own, and what is known of its process and of its members.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use poolfs::fs::{CheckOptions, Fs, FsOptions};
use poolfs::layout::Resiliency;
use poolfs::member::open::{Bounds, MemberSpec};
use poolfs::pool::{AssembleOptions, CreateOptions, Pool, create};
use poolfs::sync::Arc;
use poolfs::units::MIB;

use super::Outcome;

/// Where the pool lies, and how large it is.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// Where the members' directories go [default: the system's directory for temporary files].
    #[arg(long, value_name = "DIR")]
    members: Option<PathBuf>,
    /// Members.
    #[arg(long, default_value_t = 3)]
    disks: u64,
    /// Resiliency of the pool.
    #[arg(long, default_value = "parity")]
    resiliency: String,
    /// Memory for file data.
    #[arg(long, default_value = "256M", value_parser = super::size)]
    cache: u64,
}

/// A pool of this run. Everything is removed when it is dropped.
pub struct Ground {
    dir: tempfile::TempDir,
    members: Vec<PathBuf>,
    cache: u64,
}

impl Ground {
    /// Makes a pool that holds about `payload` bytes.
    pub fn new(place: &Place, payload: u64) -> Outcome<Self> {
        let resiliency = Resiliency::parse(&place.resiliency)?;
        let parent = place.members.clone().unwrap_or_else(std::env::temp_dir);
        let dir = tempfile::Builder::new().prefix("poolfs-aging-").tempdir_in(parent)?;
        let members: Vec<PathBuf> = (0..place.disks).map(|n| dir.path().join(format!("disk{n}"))).collect();
        // What a set over all members holds of payload, in slabs.
        let redundant =
            place.disks.saturating_sub(u64::from(resiliency.parity)) / u64::from(resiliency.copies.max(1));
        let shares = redundant.max(1);
        let ring = payload / 512;
        let limit_bytes = payload.div_ceil(shares) + ring.max(8 * MIB) + 4 * MIB;
        for member in &members {
            std::fs::create_dir(member)?;
        }
        let spec = |path: &PathBuf| MemberSpec {
            path: path.clone(),
            bounds: Bounds { limit_bytes, reserve_bytes: 0 },
        };
        create(&CreateOptions {
            name: "aging".into(),
            members: members.iter().map(spec).collect(),
            resiliency,
            slab_bytes: None,
            force: false,
        })?;
        Ok(Self { dir, members, cache: place.cache })
    }

    /// Where it lies.
    pub fn path(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Mounts it, without FUSE.
    pub fn mount(&self) -> Outcome<Arc<Fs>> {
        self.assemble(false)
    }

    fn assemble(&self, read_only: bool) -> Outcome<Arc<Fs>> {
        let options = AssembleOptions { wait: Duration::ZERO, read_only, ..AssembleOptions::default() };
        let pool = Pool::assemble(&self.members, &options)?;
        Ok(Fs::mount(pool, FsOptions { cache_bytes: self.cache, ..FsOptions::default() })?)
    }

    /// Checks all tables against each other, and errors with what is wrong. It must not be mounted.
    pub fn proves_sound(&self) -> Outcome<()> {
        let report = self.assemble(true)?.check(CheckOptions { data: true })?;
        for finding in &report.findings {
            eprintln!("{:?}: {}", finding.area, finding.what);
        }
        if !report.findings.is_empty() {
            return Err("the tables contradict each other".into());
        }
        println!(
            "checked: {} extents in {} sets, {} nodes, all data; nothing is wrong",
            report.extents, report.sets, report.tree_nodes
        );
        Ok(())
    }
}

/// Writes all of `data`. Where room is short a write takes what fits, and the next says that there is none.
pub fn write_all(fs: &Fs, ino: u64, handle: u64, offset: u64, data: &[u8]) -> poolfs::fs::Result<()> {
    let mut done = 0;
    while done < data.len() {
        done += fs.write(ino, handle, offset + done as u64, &data[done..], false)?;
    }
    Ok(())
}

/// Bytes written to all members since the pool was mounted.
pub fn written_to_members(fs: &Fs) -> u64 {
    fs.pool().status().members.iter().map(|member| member.traffic.written_bytes).sum()
}

/// A line of this process's `/proc/self/status`, in bytes.
pub fn memory(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) * 1024
}

/// How much was done in how long.
pub struct Lap {
    start: Instant,
    written: u64,
    moved: u64,
    nodes: u64,
    longest: Duration,
}

/// What a [`Lap`] came to.
pub struct Done {
    /// MB per second of what the program wrote.
    pub rate: f64,
    /// Bytes written to members for each byte that the program wrote.
    pub amplification: f64,
    /// Bytes that the compactor moved for each.
    pub moved: f64,
    /// Nodes of the trees written for each MiB.
    pub nodes: f64,
    /// The longest step in seconds.
    pub longest: f64,
}

impl Lap {
    /// Begins now.
    pub fn start(fs: &Fs) -> Self {
        Self {
            start: Instant::now(),
            written: written_to_members(fs),
            moved: fs.moved_bytes(),
            nodes: fs.store().nodes_written(),
            longest: Duration::ZERO,
        }
    }

    /// Does one thing, and notes if it took longest.
    pub fn step<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = Instant::now();
        let result = work();
        self.longest = self.longest.max(before.elapsed());
        result
    }

    /// What it came to, if `bytes` were written by the program.
    pub fn end(&self, fs: &Fs, bytes: u64) -> Done {
        let seconds = self.start.elapsed().as_secs_f64();
        let bytes = bytes as f64;
        Done {
            rate: bytes / 1e6 / seconds,
            amplification: (written_to_members(fs) - self.written) as f64 / bytes,
            moved: (fs.moved_bytes() - self.moved) as f64 / bytes,
            nodes: (fs.store().nodes_written() - self.nodes) as f64 / (bytes / MIB as f64),
            longest: self.longest.as_secs_f64(),
        }
    }
}

/// A number from a seed (splitmix64), below `bound`.
pub fn roll(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % bound
}

/// Fills a block with what `name` and its version say, never alike for two of them.
pub fn fill(block: &mut [u8], name: u64, version: u64) {
    let mut state = name ^ version.rotate_left(40);
    for word in block.chunks_mut(8) {
        let bytes = roll(&mut state, u64::MAX).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}
