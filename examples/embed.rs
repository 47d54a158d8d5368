//! The library without FUSE: makes a pool over three directories, writes a file, opens the pool again with one
//! directory gone, and reads the file.
//!
//!     cargo run --example embed

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use poolfs::fs::{Caller, Fs, FsOptions, OpenFlags, WriteCache};
use poolfs::layout::Resiliency;
use poolfs::member::open::MemberSpec;
use poolfs::pool::{AssembleOptions, CreateOptions, Pool, create};
use poolfs::store::tables::ROOT_INO;
use poolfs::sync::{Arc, Clock};
use poolfs::units::MIB;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("poolfs-embed-{}", std::process::id()));
    let members: Vec<PathBuf> = (1..=3).map(|n| dir.join(format!("disk{n}"))).collect();
    for member in &members {
        std::fs::create_dir_all(member)?;
    }
    create(&CreateOptions {
        name: "embedded".into(),
        members: members.iter().map(|path| MemberSpec::new(path.as_path())).collect(),
        resiliency: Resiliency::parse("parity")?,
        slab_bytes: None,
        force: false,
    })?;

    write_a_file(&members)?;
    std::fs::remove_dir_all(&members[1])?;
    println!("one directory is gone; the file says: {}", read_it(&members)?);

    Ok(std::fs::remove_dir_all(&dir)?)
}

fn write_a_file(members: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let fs = start(members)?;
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (file, handle) = fs.create(ROOT_INO, b"greeting", 0o644, flags, &Caller::ROOT)?;
    fs.write(file.ino, handle, 0, b"hello from three disks", false)?;
    fs.fsync(file.ino, false)?;
    fs.release(file.ino, handle)?;
    Ok(fs.unmount()?)
}

fn read_it(members: &[PathBuf]) -> Result<String, Box<dyn Error>> {
    let fs = start(members)?;
    let file = fs.lookup(ROOT_INO, b"greeting")?;
    let handle = fs.open(file.ino, OpenFlags { read: true, ..OpenFlags::default() })?;
    let mut text = vec![0; file.size as usize];
    let len = fs.read(file.ino, handle, 0, &mut text)?;
    fs.release(file.ino, handle)?;
    fs.unmount()?;
    Ok(String::from_utf8(text[..len].to_vec())?)
}

fn start(members: &[PathBuf]) -> Result<Arc<Fs>, Box<dyn Error>> {
    // One member that is there is enough: it knows where the others are.
    let here: Vec<PathBuf> = members.iter().filter(|path| Path::new(path).exists()).cloned().collect();
    let pool =
        Pool::assemble(&here, &AssembleOptions { wait: Duration::ZERO, ..AssembleOptions::default() })?;
    let options = FsOptions {
        cache_bytes: 64 * MIB,
        meta_cache_bytes: poolfs::limits::META_CACHE_DEFAULT_BYTES,
        write_cache: WriteCache::Writeback,
        commit: Duration::from_secs(5),
        noatime: false,
        background: true,
        clock: Clock::system(),
        force: false,
    };
    Ok(Fs::mount(pool, options)?)
}
