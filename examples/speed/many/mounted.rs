//! The pool behind a mount, as programs meet it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::super::failure::{Failure, Result};
use super::super::target::{Ground, Kind, PARITY, Target};
use super::super::work::forget_names;
use super::Tree;

/// A mounted pool.
pub struct Mounted<'a>(Target<'a>);

impl<'a> Mounted<'a> {
    /// A new pool.
    pub fn start(ground: &'a Ground<'a>) -> Result<Self> {
        Ok(Self(Target::start(Kind::Pool(PARITY), ground)?))
    }

    fn path(&self, directory: &str, name: &str) -> PathBuf {
        self.0.path().join(directory).join(name)
    }
}

impl Tree for Mounted<'_> {
    fn make_directory(&mut self, name: &str) -> Result<()> {
        let path = self.0.path().join(name);
        fs::create_dir(&path).map_err(Failure::at("making", &path))
    }

    fn make_file(&mut self, directory: &str, name: &str, content: &[u8]) -> Result<()> {
        let path = self.path(directory, name);
        let made = fs::File::create_new(&path).and_then(|mut file| file.write_all(content));
        made.map_err(Failure::at("making", &path))
    }

    fn look_up(&mut self, directory: &str, name: &str) -> Result<u64> {
        let path = self.path(directory, name);
        Ok(fs::metadata(&path).map_err(Failure::at("asking for", &path))?.len())
    }

    fn forget_names(&self) {
        forget_names();
    }

    fn list(&mut self, directory: &str, each: &mut dyn FnMut()) -> Result<()> {
        let path = self.0.path().join(directory);
        for entry in fs::read_dir(&path).map_err(Failure::at("listing", &path))? {
            entry.map_err(Failure::at("listing", &path))?;
            each();
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(Duration, Duration)> {
        let since = Instant::now();
        self.0.unmount()?;
        let unmounting = since.elapsed();
        let since = Instant::now();
        self.0.restart()?;
        Ok((unmounting, since.elapsed()))
    }

    fn crash(&mut self) -> Result<Duration> {
        self.0.kill()?;
        let since = Instant::now();
        self.0.restart()?;
        Ok(since.elapsed())
    }

    fn pid(&self) -> Option<Pid> {
        self.0.pid()
    }
}
