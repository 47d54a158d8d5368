//! `poolfs demo`: a pool to try things out on.

use std::fs;
use std::path::{Path, PathBuf};

use poolfs::layout::{Kind, Resiliency};
use poolfs::member::open::{self, Bounds, MemberSpec};
use poolfs::pool::{CreateOptions, create};
use poolfs::units::GIB;

use super::error::{CliError, Result};
use super::request::MountRequest;
use super::serve::serve;

const DISKS: usize = 4;

/// Makes a parity pool over four directories in `directory`, or takes the one that is there from last time, and
/// serves it until it is unmounted.
///
/// # Errors
/// [`CliError`].
pub fn demo(directory: Option<&Path>) -> Result<()> {
    let directory = match directory {
        Some(directory) => directory.to_owned(),
        None => std::env::temp_dir().join(format!("poolfs-demo-{}", std::process::id())),
    };
    let disks: Vec<PathBuf> = (1..=DISKS).map(|n| directory.join(format!("disk{n}"))).collect();
    let mountpoint = directory.join("pool");
    for path in disks.iter().chain([&mountpoint]) {
        fs::create_dir_all(path).map_err(CliError::system(format!("making {}", path.display())))?;
    }
    if !disks.iter().any(|disk| open::peek(disk).is_ok()) {
        create(&CreateOptions {
            name: "demo".into(),
            members: disks.iter().map(|path| spec(path)).collect(),
            resiliency: Resiliency::new(Kind::Parity, None, None, None, None)?,
            slab_bytes: None,
            force: false,
        })?;
    }
    let request = MountRequest::of_mountpoint(&mountpoint, &disks, &["wait=0".into()], None)?;
    let (shown, here) = (request.mountpoint.clone(), directory.clone());
    serve(&request, None, move || {
        explain(&here, &shown);
        Ok(())
    })?;
    println!(
        "The pool is unmounted. `poolfs demo {0}` mounts it again; rm -r {0} removes it.",
        directory.display()
    );
    Ok(())
}

/// A gigabyte of each directory at most: it is for trying out.
fn spec(path: &Path) -> MemberSpec {
    MemberSpec { path: path.to_owned(), bounds: Bounds { limit_bytes: GIB, reserve_bytes: 0 } }
}

fn explain(directory: &Path, mountpoint: &Path) {
    let (dir, pool) = (directory.display(), mountpoint.display());
    println!(
        "\
A pool over four directories that stand for disks, with parity: any one of them can be lost.

  {pool}      the pool; use it like any directory
  {dir}/disk1 ... disk4      the disks

Things to try, in another terminal:

  cp -r /usr/share/doc {pool}/ && df -h {pool}
  poolctl status {pool}

  Then end this with Ctrl-C, take a disk away, and start again: everything is still there.
  mv {dir}/disk2 {dir}/gone && poolfs demo {dir}
  mv {dir}/gone {dir}/disk2      brings it back

Ctrl-C unmounts the pool and ends the demo."
    );
}
