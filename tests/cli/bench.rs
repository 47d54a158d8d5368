//! A directory to try commands in, and what came of them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Takes this much of each member, so that many pools fit anywhere.
pub const SIZE: &str = "size=64M";

/// A fresh directory with a registry of its own. Pools that are still mounted in it are unmounted at the end.
pub struct Bench {
    dir: tempfile::TempDir,
}

/// What a command did.
pub struct Ran {
    line: String,
    code: Option<i32>,
    /// What it printed.
    pub out: String,
    /// What it complained about.
    pub err: String,
}

/// Everything below a directory: kinds, sizes, and checksums of content.
pub type Snapshot = BTreeMap<PathBuf, (u32, u64, u32)>;

impl Bench {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("poolfs-cli-").tempdir().expect("a directory");
        Self { dir }
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("the directory").join(name)
    }

    /// The same as text.
    pub fn text(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// Makes directories in it.
    pub fn dirs(&self, names: &[&str]) {
        for name in names {
            fs::create_dir_all(self.at(name)).expect("a directory");
        }
    }

    /// A member of limited size in it, made if need be, as it is typed.
    pub fn member(&self, name: &str) -> String {
        self.dirs(&[name]);
        format!("{},{SIZE}", self.text(name))
    }

    /// Makes a pool over `members` in it.
    pub fn pool(&self, name: &str, members: &[&str], more: &[&str]) {
        let members: Vec<String> = members.iter().map(|member| self.member(member)).collect();
        let mut args = vec!["create", name];
        args.extend(members.iter().map(String::as_str));
        args.extend(more);
        self.poolctl(&args).done();
    }

    pub fn poolctl(&self, args: &[&str]) -> Ran {
        self.run(env!("CARGO_BIN_EXE_poolctl"), args)
    }

    pub fn poolfs(&self, args: &[&str]) -> Ran {
        self.run(env!("CARGO_BIN_EXE_poolfs"), args)
    }

    fn run(&self, program: &str, args: &[&str]) -> Ran {
        let output: Output = Command::new(program)
            .args(args)
            .env("POOLFS_REGISTRY", self.at("pools.toml"))
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .output()
            .expect("the command starts");
        Ran {
            line: format!("{program} {}", args.join(" ")),
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Everything in it but the registry and the mount points named `mnt`.
    pub fn snapshot(&self) -> Snapshot {
        let mut found = Snapshot::new();
        add(self.dir.path(), &mut found);
        found
            .retain(|path, _| path.strip_prefix(self.dir.path()).is_ok_and(|p| !p.starts_with("pools.lock")));
        found
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let Ok(table) = fs::read_to_string("/proc/self/mountinfo") else { return };
        let here = self.dir.path().display().to_string();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).filter(|p| p.starts_with(&here));
        for point in points {
            let unmounted = self.poolfs(&["umount", point]).is_done();
            if !unmounted && !self.poolfs(&["umount", "-l", point]).is_done() {
                let _ = Command::new("umount").args(["-l", point]).status();
            }
        }
    }
}

fn add(dir: &Path, found: &mut Snapshot) {
    for entry in fs::read_dir(dir).expect("a listing") {
        let path = entry.expect("an entry").path();
        let meta = path.symlink_metadata().expect("metadata");
        let content = if meta.is_file() { crc32c::crc32c(&fs::read(&path).expect("content")) } else { 0 };
        if meta.is_dir() {
            add(&path, found);
        }
        let size = if meta.is_dir() { 0 } else { meta.len() };
        found.insert(path, (meta.mode(), size, content));
    }
}

impl Ran {
    fn is_done(&self) -> bool {
        self.code == Some(0)
    }

    fn shown(&self) -> String {
        format!("{}\nexit code {:?}\n{}{}", self.line, self.code, self.out, self.err)
    }

    /// It worked.
    #[track_caller]
    pub fn done(self) -> Self {
        assert!(self.is_done(), "{}", self.shown());
        self
    }

    /// It ended with this code.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}", self.shown());
        self
    }

    /// It failed with this code, and said something with all of these words, and nothing of panics.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.shown());
        for word in words {
            assert!(self.err.contains(word), "{word:?} is missing in\n{}", self.shown());
        }
        assert!(!self.err.contains("panicked"), "{}", self.shown());
    }

    /// What it printed, as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{}", self.shown()))
    }
}

/// Whether this machine can mount at all; a test that must is skipped otherwise, and says so.
pub fn can_mount() -> bool {
    let can = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("skipped: /dev/fuse can't be opened");
    }
    can
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}
