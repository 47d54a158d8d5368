//! All that a mount takes, checked.

use std::path::{Path, PathBuf};

use poolfs::control::{find, registry};
use poolfs::fs::FsOptions;
use poolfs::fuse::{KernelFlag, MountOptions};
use poolfs::pool::AssembleOptions;
use poolfs::sync::Clock;

use super::error::{CliError, Result};
use super::options::Options;
use poolfs::control::mountpoint;

/// What to mount, where, and how.
#[derive(Debug, Clone)]
pub struct MountRequest {
    /// Where: resolved.
    pub mountpoint: PathBuf,
    /// Members that are known: absolute.
    pub members: Vec<PathBuf>,
    /// What the mount table is to show; the pool's name when not given.
    pub source: Option<String>,
    /// Where to write the number of the process.
    pub pid_file: Option<PathBuf>,
    /// The options.
    pub options: Options,
}

impl MountRequest {
    /// For `poolfs mount`: the members that are named, or those registered for the mount point.
    ///
    /// # Errors
    /// [`CliError`].
    pub fn of_mountpoint(
        mountpoint: &Path,
        members: &[PathBuf],
        options: &[String],
        pid_file: Option<PathBuf>,
    ) -> Result<Self> {
        let options = Options::parse(options)?;
        let mountpoint = mountpoint::resolve(mountpoint)?;
        let members = if members.is_empty() { registered_for(&mountpoint)? } else { absolute(members)? };
        let pid_file = pid_file.map(|path| absolute_path(&path)).transpose()?;
        Ok(Self { mountpoint, members, source: None, pid_file, options })
    }

    /// For the form that mount(8) uses.
    ///
    /// # Errors
    /// [`CliError`].
    pub fn of_source(source: &str, mountpoint: &Path, options: &[String]) -> Result<Self> {
        let options = Options::parse(options)?;
        let mountpoint = mountpoint::resolve(mountpoint)?;
        let members = members_of(source)?;
        Ok(Self { mountpoint, members, source: Some(source.to_owned()), pid_file: None, options })
    }

    /// How to put the pool together.
    pub fn assemble_options(&self) -> AssembleOptions {
        AssembleOptions {
            read_only: self.options.read_only(),
            wait: self.options.wait,
            degraded: self.options.degraded,
            force: self.options.force,
            refuse_short_writes: self.options.refuse_short_writes,
            diverged: self.options.diverged,
            threads: true,
            ..AssembleOptions::default()
        }
    }

    /// How to run the file system.
    pub fn fs_options(&self) -> FsOptions {
        FsOptions {
            cache_bytes: self.options.cache_bytes,
            meta_cache_bytes: self.options.meta_cache_bytes,
            write_cache: self.options.write_cache,
            commit: self.options.commit,
            noatime: self.options.has(KernelFlag::NoAtime),
            force: self.options.force,
            background: true,
            clock: Clock::system(),
        }
    }

    /// How to mount it. `read_only`: the pool was put together read-only, whatever was asked for.
    pub fn mount_options(&self, pool: &str, read_only: bool) -> MountOptions {
        let mut flags = self.options.flags.clone();
        if read_only && !self.options.read_only() {
            flags.push(KernelFlag::ReadOnly);
        }
        let source = self.source.clone().unwrap_or_else(|| pool.to_owned());
        MountOptions { source, flags, allow_other: self.options.allow_other }
    }
}

fn registered_for(mountpoint: &Path) -> Result<Vec<PathBuf>> {
    let registry = registry::load(&registry::path())?;
    let here = |known: &Option<PathBuf>| {
        known
            .as_deref()
            .is_some_and(|known| known == mountpoint || known.canonicalize().is_ok_and(|k| k == mountpoint))
    };
    match registry.pools.into_iter().find(|entry| here(&entry.mountpoint)) {
        Some(entry) => Ok(entry.members),
        None => Err(CliError::NotRegistered { mountpoint: mountpoint.to_owned() }),
    }
}

/// A pool's name or UUID, or `MEMBER[:MEMBER...]`.
fn members_of(source: &str) -> Result<Vec<PathBuf>> {
    if !source.contains('/') {
        return Ok(find::find(source)?.members);
    }
    // A path may hold a colon.
    if Path::new(source).exists() {
        return absolute(&[PathBuf::from(source)]);
    }
    let members: Vec<PathBuf> =
        source.split(':').filter(|part| !part.is_empty()).map(PathBuf::from).collect();
    absolute(&members)
}

fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path| absolute_path(path)).collect()
}

/// The process in the background works in another directory. Members may be missing, so they are not resolved.
fn absolute_path(path: &Path) -> Result<PathBuf> {
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .map_err(CliError::system(format!("resolving {}", path.display())))
}
