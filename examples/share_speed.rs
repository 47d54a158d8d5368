//! How fast a file's extents are shared with a copy of it: `cargo run --release --example share_speed [EXTENTS]`.
//!
//! The file is made of records alone, of extents of 128 KiB without any data behind them, on simulated disks in
//! memory: what is measured is what the file system does, not what disks do. 81,920 extents are 10 GiB.

use std::error::Error;
use std::time::Instant;

use poolfs::fs::{Caller, Fs, FsOptions, OpenFlags, SetAttr};
use poolfs::layout::Resiliency;
use poolfs::pool::simulated::SimPool;
use poolfs::store::Tx;
use poolfs::store::tables::{Extent, Ino, MapEntry, Owner, ROOT_INO, Table, extent_key, map_key, place_key};

const EXTENT_BYTES: u64 = 128 << 10;
/// Numbers that the file system has not come to.
const FIRST_EXTENT: u64 = 1 << 32;
const SET: u64 = 1 << 60;
/// Extents in one transaction.
const BATCH: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let extents: u64 = std::env::args().nth(1).map_or(Ok(81_920), |text| text.parse())?;
    let sim = SimPool::create(1, &[2000, 2000], Resiliency::parse("mirror")?)?;
    let options = FsOptions { background: false, ..FsOptions::default() };
    let fs = Fs::mount(sim.open(&[])?, options)?;
    let (source, target) = (file(&fs, "source")?, file(&fs, "target")?);
    let bytes = extents * EXTENT_BYTES;
    let size = SetAttr { size: Some(bytes), ..SetAttr::default() };
    fs.setattr(source, &size, &Caller::ROOT)?;
    fabricate(&fs, source, extents)?;
    let start = Instant::now();
    let mut done = 0;
    while done < bytes {
        done += fs.copy_file_range((source, 0, done), (target, 0, done), bytes - done)?;
    }
    let took = start.elapsed();
    println!(
        "{extents} extents, {} MiB, shared in {:.3} s: {:.1} µs for each",
        bytes >> 20,
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / extents as f64
    );
    Ok(())
}

fn file(fs: &Fs, name: &str) -> Result<Ino, Box<dyn Error>> {
    let (attr, _) = fs.create(ROOT_INO, name.as_bytes(), 0o644, OpenFlags::READ_WRITE, &Caller::ROOT)?;
    Ok(attr.ino)
}

/// Puts the records of a file of so many extents.
fn fabricate(fs: &Fs, ino: Ino, extents: u64) -> Result<(), Box<dyn Error>> {
    let len = EXTENT_BYTES as u32;
    for from in (0..extents).step_by(BATCH as usize) {
        let mut tx = Tx::new();
        for n in from..extents.min(from + BATCH) {
            let (id, at) = (FIRST_EXTENT + n, n * EXTENT_BYTES);
            let extent = Extent {
                set: SET,
                address: at,
                len,
                owner: Owner { ino, origin: at },
                sums: vec![7; (EXTENT_BYTES / 4096) as usize],
            };
            tx.put(Table::Map, map_key(ino, at), &MapEntry { len: EXTENT_BYTES, extent: Some((id, 0)) });
            tx.put(Table::Extents, extent_key(id), &extent);
            tx.put(Table::Places, place_key(SET, at), &vec![(id, len)]);
        }
        fs.store().commit(tx)?;
        if from % (10 * BATCH) == 0 {
            fs.store().checkpoint()?;
        }
    }
    fs.store().checkpoint()?;
    Ok(())
}
