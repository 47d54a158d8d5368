//! Mounts a file system, serves it until it is unmounted, unmounts it.

use std::io;
use std::mem::{ManuallyDrop, replace};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::UnmountFlags;

use super::border::{Border, Waiting};
use super::mount_table::{self, FS_TYPE};
use super::negotiate::Negotiated;
use crate::fs::Fs;
use crate::sync::{Arc, JoinHandle, spawn};

/// Fewest threads that serve the kernel. More when there are more CPUs: they wait for disks much of the time.
const THREADS_MIN: usize = 8;
/// How far the kernel reads ahead once it may be told: what one request can carry.
const READ_AHEAD_KIB: u32 = 1024;

/// Options of mount(8) that the kernel takes for any file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum KernelFlag {
    ReadOnly,
    NoSuid,
    NoDev,
    NoExec,
    NoAtime,
    Sync,
    DirSync,
}

/// How to mount.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// What the mount table shows as the source.
    pub source: String,
    /// Options of the kernel.
    pub flags: Vec<KernelFlag>,
    /// Other users may use the mount too. Always so for root.
    pub allow_other: bool,
}

/// Why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system refused.
    #[error("{mountpoint} can't be mounted: {source}{}", hint(.source))]
    Refused {
        /// Where it was to be mounted.
        mountpoint: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The mount was made and is not where it should be.
    #[error("{mountpoint} was mounted, but the system does not list it")]
    Vanished {
        /// Where it should be.
        mountpoint: PathBuf,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            ". Is the kernel's fuse module loaded (modprobe fuse)? Is fusermount3 installed?"
        }
        io::ErrorKind::PermissionDenied => {
            ". Other users are let in (allow_other) only by root, or when /etc/fuse.conf says user_allow_other"
        }
        _ => "",
    }
}

/// Why a file system could not be unmounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Programs use it.
    #[error(
        "{mountpoint} is in use: a program has a file or its working directory there. `fuser -vm {mountpoint}` names it"
    )]
    Busy {
        /// The mount point.
        mountpoint: String,
    },
    /// The system refused.
    #[error("{mountpoint} can't be unmounted: {reason}")]
    Refused {
        /// The mount point.
        mountpoint: String,
        /// What the system said.
        reason: String,
    },
}

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    session: JoinHandle<io::Result<()>>,
    waiting: Arc<Waiting>,
    unmounter: Unmounter,
}

/// Mounts `fs` at `mountpoint`, which must be absolute and free of symbolic links. Once this returns the mount
/// answers.
///
/// # Errors
/// [`MountError`]; then nothing is mounted.
pub fn mount(fs: Arc<Fs>, mountpoint: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    let threads =
        std::thread::available_parallelism().map_or(THREADS_MIN, |n| (2 * n.get()).max(THREADS_MIN));
    let waiting = Arc::new(Waiting::new(threads));
    let border = Border { fs, negotiated: Negotiated::default(), waiting: Arc::clone(&waiting) };
    let refused = |source| MountError::Refused { mountpoint: mountpoint.to_owned(), source };
    let session = Session::new(border, mountpoint, &config(options, threads)).map_err(refused)?;
    let background = session.spawn().map_err(refused)?;
    // What fuser keeps to unmount with is given up: when the mount has ended by itself, fuser 0.18 unmounts once
    // more, and may hit what was mounted there since. It costs a file descriptor for the life of the process.
    let mut background = ManuallyDrop::new(background);
    let session = replace(&mut background.guard, std::thread::spawn(|| Ok(())));
    let listed = mount_table::mount_at(mountpoint).ok().flatten().filter(|entry| entry.fs_type == FS_TYPE);
    let Some(entry) = listed else {
        return Err(MountError::Vanished { mountpoint: mountpoint.to_owned() });
    };
    let unmounter = Unmounter { mountpoint: mountpoint.to_owned(), device: entry.device };
    unmounter.read_ahead_more();
    Ok(Mounted { session, waiting, unmounter })
}

fn config(options: &MountOptions, threads: usize) -> Config {
    let root = rustix::process::geteuid().is_root();
    let mut mount_options = vec![
        // A comma would end the name and begin another option.
        MountOption::FSName(options.source.replace(',', "_")),
        // As an option of the kernel: fuser passes a subtype of its own to fusermount only, and root's mounts
        // would appear as plain "fuse".
        MountOption::CUSTOM("subtype=poolfs".into()),
        MountOption::DefaultPermissions,
    ];
    let has = |flag| options.flags.contains(&flag);
    // fuser forbids suid and devices unless told otherwise, for root too. mount(8) does not.
    if root && !has(KernelFlag::NoSuid) {
        mount_options.push(MountOption::Suid);
    }
    if root && !has(KernelFlag::NoDev) {
        mount_options.push(MountOption::Dev);
    }
    mount_options.extend(options.flags.iter().map(|flag| match flag {
        KernelFlag::ReadOnly => MountOption::RO,
        KernelFlag::NoSuid => MountOption::NoSuid,
        KernelFlag::NoDev => MountOption::NoDev,
        KernelFlag::NoExec => MountOption::NoExec,
        KernelFlag::NoAtime => MountOption::NoAtime,
        KernelFlag::Sync => MountOption::Sync,
        KernelFlag::DirSync => MountOption::DirSync,
    }));
    let mut config = Config::default();
    config.mount_options = mount_options;
    config.acl = if root || options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads);
    config
}

impl Mounted {
    /// Something that unmounts it, from any thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Waits until it is unmounted, by whomever, and the last request has its reply. What was written is then
    /// still to be made durable, by [`Fs::unmount`].
    ///
    /// # Errors
    /// When the connection to the kernel broke.
    pub fn wait(self) -> io::Result<()> {
        let ended =
            self.session.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the session panicked")));
        self.waiting.drain();
        ended
    }
}

/// Unmounts what was mounted, and nothing else: not what may be mounted at the same place later.
#[derive(Debug, Clone)]
pub struct Unmounter {
    mountpoint: PathBuf,
    device: String,
}

impl Unmounter {
    /// Unmounts, if it is still mounted. `lazily` takes the name away at once even while programs use it; the
    /// mount ends when they are done.
    ///
    /// # Errors
    /// [`UnmountError::Busy`] while programs use it, unless `lazily`.
    pub fn unmount(&self, lazily: bool) -> Result<(), UnmountError> {
        match mount_table::mount_at(&self.mountpoint) {
            Ok(Some(entry)) if entry.device == self.device => unmount(&self.mountpoint, lazily),
            _ => Ok(()),
        }
    }

    /// Lets the kernel read ahead by whole requests. Only root may; disks gain much, memory nothing.
    fn read_ahead_more(&self) {
        let path = format!("/sys/class/bdi/{}/read_ahead_kb", self.device);
        if let Err(error) = std::fs::write(&path, READ_AHEAD_KIB.to_string()) {
            log::debug!("read-ahead stays as the kernel has it: {path}: {error}");
        }
    }
}

/// Unmounts whatever is mounted at `mountpoint`: as root by itself, otherwise with the help of fusermount3.
///
/// # Errors
/// [`UnmountError`].
pub fn unmount(mountpoint: &Path, lazily: bool) -> Result<(), UnmountError> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let name = mountpoint.display().to_string();
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => with_fusermount(mountpoint, lazily),
        Err(rustix::io::Errno::BUSY) => Err(UnmountError::Busy { mountpoint: name }),
        Err(error) => Err(UnmountError::Refused { mountpoint: name, reason: error.to_string() }),
    }
}

fn with_fusermount(mountpoint: &Path, lazily: bool) -> Result<(), UnmountError> {
    let refused = |reason| UnmountError::Refused { mountpoint: mountpoint.display().to_string(), reason };
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(mountpoint).stdin(Stdio::null());
    let output =
        command.output().map_err(|e| refused(format!("fusermount3, which it takes, does not start: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.contains("busy") {
        return Err(UnmountError::Busy { mountpoint: mountpoint.display().to_string() });
    }
    Err(refused(said))
}

/// Unmounts on SIGTERM and SIGINT (and SIGHUP), in a thread that lives as long as the process. `before` is
/// called first, to make durable what can be. While programs use the mount its name is taken away, and it ends
/// when they are done; a second signal calls `give_up`, which had better end the process.
///
/// # Errors
/// When the signals can't be caught.
pub fn unmount_on_signals(
    unmounter: Unmounter,
    before: impl Fn() + Send + 'static,
    give_up: impl Fn() + Send + 'static,
) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    spawn("signals", move || {
        let mut asked = false;
        for signal in signals.forever() {
            log::info!("signal {signal}: unmounting");
            before();
            if asked {
                give_up();
            }
            asked = true;
            if let Err(error) = unmounter.unmount(false) {
                log::warn!("{error}. It is unmounted from view, and ends when no program uses it any more");
                if let Err(error) = unmounter.unmount(true) {
                    log::error!("{error}");
                }
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_the_source_are_no_options() {
        let options = MountOptions { source: "a,suid,b".into(), ..MountOptions::default() };
        let config = config(&options, 8);
        assert!(config.mount_options.contains(&MountOption::FSName("a_suid_b".into())));
    }

    #[test]
    fn options_that_contradict_each_other_are_not_sent() {
        let flags = vec![KernelFlag::NoSuid, KernelFlag::NoDev, KernelFlag::ReadOnly];
        let config = config(&MountOptions { flags, ..MountOptions::default() }, 8);
        assert!(!config.mount_options.contains(&MountOption::Suid));
        assert!(!config.mount_options.contains(&MountOption::Dev));
        assert!(config.mount_options.contains(&MountOption::RO));
    }
}
