//! The programs that are measured, in a world of their own: no registry and no sockets of the user.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::failure::{Failure, Result};

/// The release programs and the world they run in.
#[derive(Debug)]
pub struct Programs {
    poolfs: PathBuf,
    poolctl: PathBuf,
    world: PathBuf,
}

impl Programs {
    /// Those that were built beside this one. What they leave behind lies in `world`.
    pub fn beside_this(world: &Path) -> Result<Self> {
        let me = this_program()?;
        // This program is in target/PROFILE/examples.
        let beside = me.ancestors().nth(2).unwrap_or(Path::new("."));
        let built = |name: &str| {
            let path = beside.join(name);
            if path.is_file() { Ok(path) } else { Err(Failure::NotBuilt { path }) }
        };
        Ok(Self { poolfs: built("poolfs")?, poolctl: built("poolctl")?, world: world.to_owned() })
    }

    /// `poolctl ARGS`.
    pub fn poolctl(&self, args: &[&OsStr]) -> Result<()> {
        self.run(&self.poolctl, args)
    }

    /// `poolfs ARGS`.
    pub fn poolfs(&self, args: &[&OsStr]) -> Result<()> {
        self.run(&self.poolfs, args)
    }

    fn run(&self, program: &Path, args: &[&OsStr]) -> Result<()> {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("POOLFS_REGISTRY", self.world.join("pools.toml"))
            .env("XDG_RUNTIME_DIR", &self.world)
            .stdin(Stdio::null());
        run(&mut command)
    }
}

/// Where this program is.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|source| Failure::Io { doing: "finding this program".into(), source })
}

/// Runs a command to its end. Ctrl-C does not reach it: what it began must be known here to be undone.
fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let failed = |said: String| Failure::Program { line: line.clone(), said };
    // Through a file: the process in the background that is left behind would keep a pipe open until it ends.
    let said = tempfile::NamedTempFile::new().map_err(|e| failed(e.to_string()))?;
    let errors = said.reopen().map_err(|e| failed(e.to_string()))?;
    let status = command
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(errors)
        .status()
        .map_err(|e| failed(e.to_string()))?;
    if status.success() {
        return Ok(());
    }
    let text = std::fs::read_to_string(said.path()).unwrap_or_default();
    Err(failed(format!("{status}, {}", text.trim())))
}
