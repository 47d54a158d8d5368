//! What is measured: a directory, the null file system, pools. Each starts empty and can be started again with
//! nothing in memory.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use poolfs::fuse::session::unmount;
use poolfs::units::{GIB, MIB};
use rustix::process::{Pid, Signal, kill_process};

use super::failure::{Failure, Result};
use super::nullfs::READY;
use super::programs::{Programs, this_program};
use super::scratch::Scratch;

/// Linux counts so in `/proc` on every machine, whatever it counts in itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// A kind of target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory beside the members.
    Plain,
    /// A FUSE file system that does nothing.
    Null,
    /// A pool.
    Pool(Shape),
}

/// A pool's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    name: &'static str,
    title: &'static str,
    resiliency: &'static str,
    members: usize,
}

impl Shape {
    /// What the tables call it.
    pub fn title(self) -> &'static str {
        self.title
    }

    /// What `poolctl create --resiliency` calls it.
    pub fn resiliency(self) -> &'static str {
        self.resiliency
    }

    /// How many members it has here.
    pub fn members(self) -> usize {
        self.members
    }
}

/// Parity over three members.
pub const PARITY: Shape = Shape { name: "parity", title: "parity 2+1", resiliency: "parity", members: 3 };
const MIRROR: Shape = Shape { name: "mirror", title: "mirror", resiliency: "mirror", members: 2 };
const STRIPED_MIRROR: Shape =
    Shape { name: "striped-mirror", title: "striped mirror", resiliency: "striped-mirror", members: 4 };

/// Everything that is measured, in the order of the tables.
pub const ALL: [Kind; 5] =
    [Kind::Plain, Kind::Null, Kind::Pool(PARITY), Kind::Pool(MIRROR), Kind::Pool(STRIPED_MIRROR)];

impl Kind {
    /// What `--only` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Null => "null",
            Self::Pool(shape) => shape.name,
        }
    }

    /// What the tables call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain directory",
            Self::Null => "null file system",
            Self::Pool(shape) => shape.title,
        }
    }
}

/// Where and how targets are made.
#[derive(Debug)]
pub struct Ground<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// Mount points lie here.
    pub mounts: &'a Scratch,
    /// Members and the plain directory lie here.
    pub media: &'a Scratch,
    /// Bytes that a target must be able to hold.
    pub capacity: u64,
    /// Options of the pools' mounts.
    pub options: &'a str,
}

/// A target that runs.
#[derive(Debug)]
pub struct Target<'a> {
    kind: Kind,
    ground: &'a Ground<'a>,
    path: PathBuf,
    members: Vec<PathBuf>,
    null: Option<Child>,
    mounted: bool,
}

impl<'a> Target<'a> {
    /// Starts an empty one.
    pub fn start(kind: Kind, ground: &'a Ground<'a>) -> Result<Self> {
        let path = match kind {
            Kind::Plain => ground.media.directory("plain")?,
            _ => ground.mounts.directory(&format!("mnt-{}", kind.name()))?,
        };
        let mut target = Self { kind, ground, path, members: Vec::new(), null: None, mounted: false };
        if let Kind::Pool(shape) = kind {
            target.create_pool(shape)?;
        }
        target.mount()?;
        Ok(target)
    }

    /// Where files are written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has forgotten its files after [`Self::restart`].
    pub fn forgets(&self) -> bool {
        self.kind == Kind::Null
    }

    /// Directories that hold what was written.
    pub fn media(&self) -> Vec<PathBuf> {
        match self.kind {
            Kind::Plain => vec![self.path.clone()],
            Kind::Null => Vec::new(),
            Kind::Pool(_) => self.members.clone(),
        }
    }

    /// The process that serves a pool.
    pub fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.pid_file()).ok()?;
        text.trim().parse().ok().and_then(Pid::from_raw)
    }

    /// Processor time that the process took that serves it, if one does.
    pub fn processor_time(&self) -> Option<Duration> {
        let null = self.null.as_ref().map(Child::id);
        let pid = null.or_else(|| self.pid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()))?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything. User and system time are the 12th and 13th field behind it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        let ticks = ticks()? + ticks()?;
        Some(Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND))
    }

    /// Stops it and starts it again: the kernel's pages of it and its own memory are gone.
    pub fn restart(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// Kills the process that serves a pool, as it is, and takes away the mount that it leaves.
    pub fn kill(&mut self) -> Result<()> {
        let Some(pid) = self.pid().filter(|pid| self.serves(*pid)) else { return Ok(()) };
        kill_process(pid, Signal::KILL).map_err(|error| self.failed(error.to_string()))?;
        while self.serves(pid) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.mounted = false;
        unmount(&self.path, true).map_err(|error| self.failed(error.to_string()))
    }

    /// Unmounts it and removes what it held.
    pub fn stop(mut self) -> Result<()> {
        self.unmount()?;
        for dir in self.media() {
            std::fs::remove_dir_all(&dir).map_err(Failure::at("removing", &dir))?;
        }
        Ok(())
    }

    fn create_pool(&mut self, shape: Shape) -> Result<()> {
        // More than what is written, as on a real disk: nothing waits for space.
        let limit = self.ground.capacity + 2 * GIB;
        let mut specs = Vec::new();
        for number in 0..shape.members {
            let member = self.ground.media.directory(&format!("{}-{number}", shape.name))?;
            let mut spec = member.clone().into_os_string();
            spec.push(format!(",size={}M", limit.div_ceil(MIB)));
            specs.push(spec);
            self.members.push(member);
        }
        // The registry remembers the pool of the round before.
        let (create, force) = (OsStr::new("create"), OsStr::new("--force"));
        let mut args = vec![create, OsStr::new(shape.name), force];
        args.extend([OsStr::new("--resiliency"), OsStr::new(shape.resiliency)]);
        args.extend(specs.iter().map(|spec| spec.as_os_str()));
        self.ground.programs.poolctl(&args)
    }

    fn mount(&mut self) -> Result<()> {
        match self.kind {
            Kind::Plain => {}
            Kind::Null => self.mount_null()?,
            Kind::Pool(_) => self.mount_pool()?,
        }
        self.mounted = true;
        Ok(())
    }

    fn mount_null(&mut self) -> Result<()> {
        let starting = || Failure::at("starting the null file system at", &self.path);
        let child = Command::new(this_program()?)
            .arg("nullfs")
            .arg(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(starting())?;
        let child = self.null.insert(child);
        let ready = child.stdout.take().is_some_and(|pipe| {
            BufReader::new(pipe).lines().map_while(std::io::Result::ok).any(|line| line == READY)
        });
        if ready { Ok(()) } else { Err(starting()(std::io::Error::other("it ended"))) }
    }

    fn mount_pool(&self) -> Result<()> {
        let options = if self.ground.options.is_empty() { "rw" } else { self.ground.options };
        let pid_file = self.pid_file();
        let mut args = vec![OsStr::new("mount"), self.path.as_os_str()];
        args.extend(self.members.iter().map(|member| member.as_os_str()));
        args.extend([OsStr::new("-o"), OsStr::new(options), OsStr::new("--pid-file"), pid_file.as_os_str()]);
        self.ground.programs.poolfs(&args)
    }

    /// Unmounts it, if it is mounted. Then all that was written is durable.
    pub fn unmount(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        match self.kind {
            Kind::Plain => Ok(()),
            Kind::Null => self.unmount_null(),
            Kind::Pool(_) => self.unmount_pool(),
        }
    }

    fn unmount_null(&mut self) -> Result<()> {
        unmount(&self.path, false).map_err(|error| self.failed(error.to_string()))?;
        match self.null.take() {
            Some(mut child) => child.wait().map(drop).map_err(|error| self.failed(error.to_string())),
            None => Ok(()),
        }
    }

    fn unmount_pool(&self) -> Result<()> {
        let pid = self.pid();
        self.ground.programs.poolfs(&[OsStr::new("umount"), self.path.as_os_str()])?;
        // The process holds its members until its very end.
        while pid.is_some_and(|pid| self.serves(pid)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Numbers of processes are used again; the command line tells.
    fn serves(&self, pid: Pid) -> bool {
        let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&*self.path.to_string_lossy())
    }

    fn failed(&self, said: String) -> Failure {
        Failure::Program { line: format!("umount {}", self.path.display()), said }
    }

    fn pid_file(&self) -> PathBuf {
        self.ground.mounts.path().join(format!("{}.pid", self.kind.name()))
    }
}

impl Drop for Target<'_> {
    /// After an error: whatever still serves is ended. What it leaves mounted goes with the scratch directory.
    fn drop(&mut self) {
        if let Some(child) = &mut self.null {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The file is removed when the mount ends in order.
        if let Some(pid) = self.pid()
            && self.serves(pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
