//! Empty files: made, asked for, removed. Rates are in thousands a second.

use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, io};

use super::super::failure::{Failure, Result};
use super::super::stop;
use super::super::target::Target;
use super::{Found, Row, costed};

/// Directories that the files are spread over.
const DIRECTORIES: usize = 10;

/// Makes `files` files, asks for each, removes them.
pub fn measure(target: &Target<'_>, files: usize, mut found: impl FnMut(Row, Found)) -> Result<()> {
    let root = target.path();
    let directories: Vec<PathBuf> = (0..DIRECTORIES).map(|n| root.join(format!("names-{n}"))).collect();
    for dir in &directories {
        fs::create_dir(dir).map_err(Failure::at("making", dir))?;
    }
    let paths: Vec<PathBuf> = (0..files)
        .filter_map(|n| Some(directories.get(n / files.div_ceil(DIRECTORIES))?.join(format!("file-{n:06}"))))
        .collect();
    let each =
        |step: fn(&Path) -> io::Result<()>, doing| costed(target, files as f64, || rate(&paths, step, doing));
    found(Row::Create, each(|path| fs::File::create_new(path).map(drop), "creating")?);
    forget_names();
    found(Row::Stat, each(|path| fs::metadata(path).map(drop), "asking for")?);
    found(Row::Unlink, each(|path| fs::remove_file(path), "removing")?);
    for dir in &directories {
        fs::remove_dir(dir).map_err(Failure::at("removing", dir))?;
    }
    Ok(())
}

fn rate(paths: &[PathBuf], step: fn(&Path) -> io::Result<()>, doing: &'static str) -> Result<f64> {
    let since = Instant::now();
    for path in paths {
        stop::check()?;
        step(path).map_err(Failure::at(doing, path))?;
    }
    Ok(paths.len() as f64 / 1e3 / since.elapsed().as_secs_f64())
}

/// The kernel would answer from what it remembers of the creation. Only root can make it forget.
pub fn forget_names() {
    const DENTRIES_AND_INODES: &str = "2";
    if let Err(error) = fs::write("/proc/sys/vm/drop_caches", DENTRIES_AND_INODES) {
        log::debug!("names stay in the kernel's cache: {error}");
    }
}
