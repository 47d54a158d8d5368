//! A pool over scratch members, created and mounted with the real programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::disks::{Disk, Slot};
use super::run::{LONG, Ran, SHORT, run, until};
use super::scratch::{Scratch, is_mounted};

/// A whole test may take this long; then its mount is ended, so that whatever hangs in it fails.
const TEST_LIMIT: Duration = Duration::from_secs(1200);

/// Where the programs are: beside the tests, or beside the examples.
fn program(name: &str) -> PathBuf {
    let beside_tests = match name {
        "poolfs" => option_env!("CARGO_BIN_EXE_poolfs"),
        _ => option_env!("CARGO_BIN_EXE_poolctl"),
    };
    beside_tests.map(PathBuf::from).unwrap_or_else(|| {
        let me = std::env::current_exe().expect("this program has a path");
        me.ancestors().nth(2).expect("it lies in target/PROFILE/examples").join(name)
    })
}

/// A pool, its members, and its mount point. What is left of it is removed when it is dropped.
#[derive(Debug)]
pub struct TestPool {
    /// Members, in the order given.
    pub disks: Vec<Slot>,
    /// Options added to each mount.
    pub options: Vec<String>,
    mountpoint: PathBuf,
    watched: Option<mpsc::Sender<()>>,
    // Last: removed when all else is gone.
    scratch: Scratch,
}

impl TestPool {
    /// A pool that is not mounted. `resiliency` is written as `parity:2` or `mirror:3`.
    #[track_caller]
    pub fn create(resiliency: &str, disks: &[Disk]) -> Self {
        Self::create_with(resiliency, disks, &[])
    }

    /// As [`Self::create`], with more arguments of `poolctl create`.
    #[track_caller]
    pub fn create_with(resiliency: &str, disks: &[Disk], more: &[&str]) -> Self {
        let pool = Self::without_pool(disks);
        let specs: Vec<String> = pool.disks.iter().map(Slot::spec).collect();
        let (kind, number) = resiliency.split_once(':').unwrap_or((resiliency, ""));
        let mut command = pool.poolctl(&["create", "tank", "--resiliency", kind]);
        if !number.is_empty() {
            command.args([if kind == "parity" { "--parity" } else { "--copies" }, number]);
        }
        command.arg("--mountpoint").arg(&pool.mountpoint).args(more).args(specs);
        run(&mut command, LONG).ok();
        pool
    }

    /// Empty disks, of which no pool was made yet.
    pub fn without_pool(disks: &[Disk]) -> Self {
        let scratch = Scratch::new();
        Self::in_scratch(scratch, disks)
    }

    /// As [`Self::without_pool`], in a given place.
    pub fn in_scratch(scratch: Scratch, disks: &[Disk]) -> Self {
        let disks = disks.iter().enumerate().map(|(n, &disk)| Slot::new(&scratch, n, disk)).collect();
        scratch.directory("run");
        let mountpoint = scratch.directory("mnt");
        let watched = Some(watch(scratch.path().join("pid")));
        Self { disks, options: Vec::new(), mountpoint, watched, scratch }
    }

    /// A new pool, mounted.
    #[track_caller]
    pub fn mounted(resiliency: &str, disks: &[Disk]) -> Self {
        let pool = Self::create(resiliency, disks);
        pool.mount();
        pool
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Scratch space beside the members.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Paths of the members.
    pub fn members(&self) -> Vec<PathBuf> {
        self.disks.iter().map(Slot::path).collect()
    }

    /// `poolctl ARGS`, in this pool's own world.
    pub fn poolctl(&self, args: &[&str]) -> Command {
        self.command("poolctl", args)
    }

    /// `poolfs ARGS`, in this pool's own world.
    pub fn poolfs(&self, args: &[&str]) -> Command {
        self.command("poolfs", args)
    }

    fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program(name));
        command
            .args(args)
            .current_dir(self.scratch())
            .env("POOLFS_REGISTRY", self.scratch().join("pools.toml"))
            .env("XDG_RUNTIME_DIR", self.scratch().join("run"));
        command
    }

    /// Mounts; must succeed.
    #[track_caller]
    pub fn mount(&self) -> Ran {
        let ran = self.try_mount(&[]).ok();
        assert!(is_mounted(&self.mountpoint), "mount returned, and nothing is mounted: {ran}");
        ran
    }

    /// Mounts with more options; must succeed.
    #[track_caller]
    pub fn mount_with(&self, options: &[&str]) -> Ran {
        self.try_mount(options).ok()
    }

    /// Tries to mount. Late members are not waited for, unless the options say so.
    #[track_caller]
    pub fn try_mount(&self, options: &[&str]) -> Ran {
        self.try_mount_members(&[], options)
    }

    /// Tries to mount with these members named.
    #[track_caller]
    pub fn try_mount_members(&self, members: &[PathBuf], options: &[&str]) -> Ran {
        let mut all = vec!["wait=0"];
        all.extend(self.options.iter().map(String::as_str));
        all.extend(options);
        let mut command = self.poolfs(&["mount"]);
        command.arg(&self.mountpoint).args(members).args(["-o", &all.join(",")]);
        command.arg("--pid-file").arg(self.pid_file());
        run(&mut command, LONG)
    }

    /// Unmounts; must succeed. Then nothing serves it any more.
    #[track_caller]
    pub fn unmount(&self) {
        let pid = self.pid();
        run(self.poolfs(&["umount"]).arg(&self.mountpoint), LONG).ok();
        assert!(!is_mounted(&self.mountpoint), "umount returned, and it is still mounted");
        self.wait_for_end(pid);
    }

    /// Unmounts and mounts.
    #[track_caller]
    pub fn remount(&self) {
        self.unmount();
        self.mount();
    }

    /// Kills the process that serves the mount, as a crash would, and takes the dead mount away.
    #[track_caller]
    pub fn crash(&self) {
        self.signal(Signal::KILL);
        self.bury();
    }

    /// After the serving process was killed: waits for its end and takes the dead mount away.
    #[track_caller]
    pub fn bury(&self) {
        let pid = read_pid(&self.pid_file()).expect("the pid file holds a number");
        self.wait_for_end(pid);
        run(Command::new("umount").arg("-l").arg(&self.mountpoint), SHORT).ok();
        assert!(!is_mounted(&self.mountpoint), "the dead mount is still there");
    }

    /// Sends the process that serves the mount a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = self.pid();
        kill_process(pid, signal).unwrap_or_else(|e| panic!("signal to process {pid:?}: {e}"));
    }

    /// Waits until the process is gone.
    #[track_caller]
    pub fn wait_for_end(&self, pid: Pid) {
        until("the end of the serving process", LONG, || has_ended(pid));
    }

    /// The process that serves the mount.
    #[track_caller]
    pub fn pid(&self) -> Pid {
        let pid = read_pid(&self.pid_file()).expect("the pid file holds a number");
        assert!(is_ours(pid, self.scratch()), "process {pid:?} does not serve this pool");
        pid
    }

    /// Is there a process that serves it?
    pub fn is_served(&self) -> bool {
        read_pid(&self.pid_file()).is_some_and(|pid| is_ours(pid, self.scratch()))
    }

    fn pid_file(&self) -> PathBuf {
        self.scratch().join("pid")
    }

    /// Resident memory of the serving process, in bytes, and the most that it ever was.
    pub fn memory(&self) -> (u64, u64) {
        let path = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            number.unwrap_or(0) * 1024
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    /// What `poolctl status` says, and its exit code.
    #[track_caller]
    pub fn status(&self) -> Ran {
        run(&mut self.poolctl(&["status", "tank"]), SHORT)
    }

    /// What `poolctl status --json` says.
    #[track_caller]
    pub fn status_json(&self) -> serde_json::Value {
        let ran = run(&mut self.poolctl(&["status", "tank", "--json"]), SHORT);
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran}"))
    }

    /// Takes these members out, between mounts.
    pub fn pull(&mut self, members: &[usize]) {
        for &member in members {
            self.disks[member].pull();
        }
    }

    /// Gives these members back, between mounts.
    pub fn restore(&mut self, members: &[usize]) {
        for &member in members {
            self.disks[member].restore();
        }
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        // Quiet and forceful: this may be in the middle of a failing test, with a mount that hangs.
        self.watched = None;
        let pid = read_pid(&self.pid_file()).filter(|&pid| is_ours(pid, self.scratch()));
        if is_mounted(&self.mountpoint) && !std::thread::panicking() {
            let mut umount = self.poolfs(&["umount"]);
            let _ = run(umount.arg(&self.mountpoint), LONG);
        }
        if let Some(pid) = pid.filter(|&pid| is_ours(pid, self.scratch())) {
            let _ = kill_process(pid, Signal::KILL);
            for _ in 0..500 {
                if has_ended(pid) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if std::thread::panicking() {
            self.show_log();
        }
        if let Some(log) = self.log() {
            let _ = std::fs::remove_file(log);
        }
    }
}

impl TestPool {
    /// What the serving process writes. Root's lies where those of all mounts lie.
    fn log(&self) -> Option<PathBuf> {
        let name = self.mountpoint.display().to_string().trim_matches('/').replace('/', "-") + ".log";
        let dirs = [self.scratch().join("run/poolfs"), PathBuf::from("/run/poolfs")];
        dirs.into_iter().map(|dir| dir.join(&name)).find(|path| path.is_file())
    }

    /// Its end, to explain a failure.
    fn show_log(&self) {
        let Some(path) = self.log() else { return };
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(30);
        eprintln!("--- end of {}\n{}", path.display(), lines[from..].join("\n"));
    }
}

fn read_pid(path: &Path) -> Option<Pid> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok().and_then(Pid::from_raw)
}

/// Is it alive, and a process that was started for the pool in `scratch`? Numbers of processes are used again.
fn is_ours(pid: Pid, scratch: &Path) -> bool {
    if test_kill_process(pid).is_err() {
        return false;
    }
    let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    // Empty for one that has ended and is not yet reaped.
    String::from_utf8_lossy(&line).contains(&*scratch.to_string_lossy())
}

/// Has it ended, with all its threads? Only then are its files closed and its locks free; its memory, and with it its
/// command line, goes earlier.
fn has_ended(pid: Pid) -> bool {
    let dir = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let Ok(stat) = std::fs::read_to_string(dir.join("stat")) else { return true };
    let dead = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']));
    dead && std::fs::read_dir(dir.join("task")).map_or(0, Iterator::count) <= 1
}

/// Ends the mount when the test takes too long: then nothing that waits for it waits any longer.
fn watch(pid_file: PathBuf) -> mpsc::Sender<()> {
    let (alive, gone) = mpsc::channel::<()>();
    let scratch = pid_file.parent().map(Path::to_owned).unwrap_or_default();
    std::thread::spawn(move || {
        if gone.recv_timeout(TEST_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a test takes longer than {TEST_LIMIT:?}: its mount is ended, so that it fails");
            while gone.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Some(pid) = read_pid(&pid_file).filter(|&pid| is_ours(pid, &scratch)) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
    });
    alive
}
