//! The process in the background, and the one that waits for it.
//!
//! No fork: the waiting process starts the same program again, with a pipe as its standard output. The new one
//! leaves the terminal's session, mounts, says `ready` on the pipe, and lets go of the pipe and of the terminal.
//! Until then its errors appear where the user sees them.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use poolfs::member::runtime_dir;

use super::error::{CliError, Result};
use super::memory::{self, ENVIRONMENT};
use super::request::MountRequest;
use super::serve::serve;

const READY: &str = "ready";

/// Starts the process in the background with the arguments of this one, and returns once its mount answers.
///
/// # Errors
/// [`CliError::DaemonFailed`] when it ended before; it has said why.
pub fn start_and_wait(request: &MountRequest) -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let mut child = Command::new(std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")))
        .arg0("poolfs")
        .envs(ENVIRONMENT.into_iter().filter(|_| !memory::is_said()))
        .arg("--daemonised-child")
        .args(super::args::normalised(arguments.iter().cloned()).into_iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(CliError::system("starting the process in the background"))?;
    let said_ready = child.stdout.take().is_some_and(|pipe| {
        BufReader::new(pipe).lines().map_while(|line| line.ok()).any(|line| line == READY)
    });
    if said_ready {
        return Ok(());
    }
    let status = child.wait().map_err(CliError::system("waiting for the process in the background"))?;
    // It has said why, unless it had no time to.
    let died = status.code().is_none().then(|| format!(": its process ended by {status}"));
    Err(CliError::DaemonFailed { mountpoint: request.mountpoint.clone(), died: died.unwrap_or_default() })
}

/// Is the process in the background.
///
/// # Errors
/// Those of [`serve`]. Before the mount answers they appear on the terminal, afterwards in the log.
pub fn be_the_daemon(request: &MountRequest) -> Result<()> {
    // An error means that it leads a session already.
    let _ = rustix::process::setsid();
    let log_path = log_path(request)?;
    let mut detached = false;
    let served = serve(request, Some(&log_path), || {
        let log = open_log(&log_path)?;
        std::env::set_current_dir("/").map_err(CliError::system("leaving the directory"))?;
        let mut pipe = std::io::stdout();
        // Nobody waits any more: the mount was given up.
        writeln!(pipe, "{READY}")
            .and_then(|()| pipe.flush())
            .map_err(CliError::system("announcing the mount"))?;
        leave_terminal(&log)?;
        detached = true;
        super::log_freely();
        Ok(())
    });
    if let (true, Err(error)) = (detached, &served) {
        log::error!("{error}");
    }
    served
}

/// Standard output and error go to the log from now on.
fn leave_terminal(log: &File) -> Result<()> {
    let failed = |e: rustix::io::Errno| CliError::system("leaving the terminal")(e.into());
    rustix::stdio::dup2_stdout(log).map_err(failed)?;
    rustix::stdio::dup2_stderr(log).map_err(failed)?;
    Ok(())
}

fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(CliError::system(format!("opening the log {}", path.display())))
}

/// One log for each mount point, started anew with each mount.
fn log_path(request: &MountRequest) -> Result<PathBuf> {
    let name = request.mountpoint.display().to_string().trim_matches('/').replace('/', "-");
    let path = runtime_dir()?.join(format!("{name}.log"));
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CliError::System { doing: format!("clearing the log {}", path.display()), source: error })
        }
        _ => Ok(path),
    }
}
