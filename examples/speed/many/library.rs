//! The pool in this process, without FUSE.

use std::collections::HashMap;
use std::fmt::Display;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use poolfs::fs::{Attr, Caller, Fs, FsOptions, OpenFlags};
use poolfs::layout::Resiliency;
use poolfs::member::open::MemberSpec;
use poolfs::pool::{AssembleOptions, CreateOptions, Pool, create};
use poolfs::store::tables::{Ino, ROOT_INO};
use poolfs::sync::Arc;
use rustix::process::{Pid, getpid};

use super::super::failure::{Failure, Result};
use super::super::programs::this_program;
use super::super::scratch::Scratch;
use super::super::target::PARITY;
use super::{Args, Tree};

/// Threads of a pool that was dropped may hold its members for a moment.
const PATIENCE: Duration = Duration::from_secs(60);
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Starts this program again with one arena, as `poolfs` does: freed memory is used again, and counts once.
pub fn use_one_arena() -> Result<()> {
    if std::env::var_os(ARENAS).is_some() {
        return Ok(());
    }
    let source = Command::new(this_program()?).args(std::env::args_os().skip(1)).env(ARENAS, "1").exec();
    Err(Failure::Io { doing: "starting again with one arena".into(), source })
}

/// A mounted pool, and the numbers of its directories.
pub struct Library {
    fs: Option<Arc<Fs>>,
    members: Vec<PathBuf>,
    options: FsOptions,
    known: bool,
    directories: HashMap<String, Ino>,
}

fn failed<E: Display>(doing: &str) -> impl FnOnce(E) -> Failure {
    move |error| Failure::Library { doing: doing.to_owned(), said: error.to_string() }
}

impl Library {
    /// A new pool in directories of `media`.
    pub fn start(media: &Scratch, args: &Args) -> Result<Self> {
        let members: Vec<PathBuf> =
            (0..PARITY.members()).map(|n| media.directory(&format!("member-{n}"))).collect::<Result<_>>()?;
        create(&CreateOptions {
            name: "many".into(),
            members: members.iter().map(|path| MemberSpec::new(path.as_path())).collect(),
            resiliency: Resiliency::parse(PARITY.resiliency()).map_err(failed("creating the pool"))?,
            slab_bytes: None,
            force: false,
        })
        .map_err(failed("creating the pool"))?;
        let (cache_bytes, meta_cache_bytes) = (args.cache, args.meta_cache);
        let options = FsOptions { cache_bytes, meta_cache_bytes, ..FsOptions::default() };
        let directories = HashMap::new();
        let mut library = Self { fs: None, members, options, known: args.known, directories };
        library.mount()?;
        Ok(library)
    }

    fn mount(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            let since = Instant::now();
            match Pool::assemble(&self.members, &AssembleOptions::default()) {
                Ok(pool) => {
                    let fs = Fs::mount(pool, self.options.clone()).map_err(failed("mounting"))?;
                    self.fs = Some(fs);
                    return Ok(since.elapsed());
                }
                Err(error) if begun.elapsed() > PATIENCE => return Err(failed("assembling the pool")(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn fs(&self) -> Result<&Arc<Fs>> {
        self.fs.as_ref().ok_or(Failure::Stopped)
    }

    fn directory(&self, name: &str) -> Result<Ino> {
        self.directories.get(name).copied().ok_or_else(|| failed("finding a directory")(name))
    }

    /// What the kernel does with what it got, sooner or later.
    fn got(&self, attr: &Attr) -> Result<()> {
        if !self.known {
            self.fs()?.forget(attr.ino, 1);
        }
        Ok(())
    }
}

impl Tree for Library {
    fn make_directory(&mut self, name: &str) -> Result<()> {
        let made = self.fs()?.mkdir(ROOT_INO, name.as_bytes(), 0o755, &Caller::ROOT);
        let attr = made.map_err(failed("making a directory"))?;
        self.directories.insert(name.to_owned(), attr.ino);
        self.got(&attr)
    }

    fn make_file(&mut self, directory: &str, name: &str, content: &[u8]) -> Result<()> {
        let (fs, parent) = (self.fs()?, self.directory(directory)?);
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (attr, handle) = fs
            .create(parent, name.as_bytes(), 0o644, flags, &Caller::ROOT)
            .map_err(failed("creating a file"))?;
        if !content.is_empty() {
            fs.write(attr.ino, handle, 0, content, false).map_err(failed("writing a file"))?;
        }
        fs.release(attr.ino, handle).map_err(failed("closing a file"))?;
        self.got(&attr)
    }

    fn look_up(&mut self, directory: &str, name: &str) -> Result<u64> {
        let found = self.fs()?.lookup(self.directory(directory)?, name.as_bytes());
        let attr = found.map_err(failed("looking a file up"))?;
        self.got(&attr)?;
        Ok(attr.size)
    }

    fn list(&mut self, directory: &str, each: &mut dyn FnMut()) -> Result<()> {
        let ino = self.directory(directory)?;
        let mut sink = |entry: poolfs::fs::DirEntry| {
            if entry.name != b"." && entry.name != b".." {
                each();
            }
            true
        };
        self.fs()?.readdir(ino, 0, &mut sink).map_err(failed("listing a directory"))
    }

    fn restart(&mut self) -> Result<(Duration, Duration)> {
        let since = Instant::now();
        self.fs()?.unmount().map_err(failed("unmounting"))?;
        self.fs = None;
        let unmounting = since.elapsed();
        Ok((unmounting, self.mount()?))
    }

    fn crash(&mut self) -> Result<Duration> {
        self.fs = None;
        self.mount()
    }

    fn pid(&self) -> Option<Pid> {
        Some(getpid())
    }
}
