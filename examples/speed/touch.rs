//! Memory that is free, made memory that is there. A virtual machine whose host takes back what is free gets it
//! again page by page, many times slower than the rest of this benchmark works; whoever writes most would be
//! measured by that. So before each target all free memory becomes page cache, of a file of holes: what the target
//! takes then is taken from there.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use super::failure::{Failure, Result};
use super::scratch::Scratch;
use super::stop;

/// As much may stay free.
const LEFT_FREE_BYTES: u64 = 256 << 20;
/// Read with one call.
const CHUNK_BYTES: usize = 1 << 20;

/// A file of holes, as long as the memory is large.
#[derive(Debug)]
pub struct Holes(File);

impl Holes {
    /// Makes the file in a directory that is on a disk.
    pub fn new(place: &Scratch) -> Result<Self> {
        let path = place.path().join("holes");
        let at = || Failure::at("making", &path);
        let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(at())?;
        file.set_len(meminfo("MemTotal:")).map_err(at())?;
        Ok(Self(file))
    }

    /// Reads until hardly any memory is free, or all is read.
    pub fn fill(&mut self, place: &Scratch) -> Result<()> {
        let at = || Failure::at("reading holes in", place.path());
        let mut chunk = vec![0; CHUNK_BYTES];
        self.0.seek(SeekFrom::Start(0)).map_err(at())?;
        while meminfo("MemFree:") > LEFT_FREE_BYTES {
            stop::check()?;
            if self.0.read(&mut chunk).map_err(at())? == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// A line of `/proc/meminfo`, in bytes; 0 if there is none.
fn meminfo(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) * 1024
}
