//! One file overwritten at random in small blocks, for several times its size, in a pool with little more room.

use std::time::Instant;

use poolfs::fs::{Caller, Fs, OpenFlags};
use poolfs::store::tables::ROOT_INO;
use poolfs::units::{MIB, format_size};

use super::ground::{Done, Ground, Lap, Place, fill, memory, roll, write_all};
use super::{Outcome, size};

const BLOCK: u64 = 4096;
/// The table has so many rows.
const TENTHS: u64 = 10;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Size of the file.
    #[arg(long, default_value = "4G", value_parser = size)]
    file: u64,
    /// Payload that the pool holds in all, in tenths of the file's size.
    #[arg(long, default_value_t = 16)]
    room_tenths: u64,
    /// How often the file's size is written at random.
    #[arg(long, default_value_t = 3)]
    times: u64,
}

/// Measures, and prints the table.
pub fn run(args: &Args) -> Outcome<()> {
    let ground = Ground::new(&args.place, args.file / 10 * args.room_tenths)?;
    let fs = ground.mount()?;
    let blocks = args.file / BLOCK;
    let mut versions = vec![0_u32; blocks as usize];
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let (file, handle) = fs.create(ROOT_INO, b"image", 0o644, flags, &Caller::ROOT)?;
    println!("{} in {}", format_size(args.file), ground.path().display());
    let first = write_in_order(&fs, file.ino, handle, blocks)?;
    println!("first writing: {first:.0} MB/s; space now {:?}", fs.pool().status().space);

    println!(
        "\n| part | MB/s | bytes to members for each byte | moved for each byte | nodes for each MiB | longest write, s | resident, MiB | available, MiB |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut random = 1;
    let mut rates = Vec::new();
    let writes = blocks * args.times;
    for part in 1..=TENTHS {
        let mut lap = Lap::start(&fs);
        let mut block = vec![0; BLOCK as usize];
        for _ in 0..writes / TENTHS {
            let at = roll(&mut random, blocks);
            versions[at as usize] += 1;
            fill(&mut block, at, u64::from(versions[at as usize]));
            lap.step(|| write_all(&fs, file.ino, handle, at * BLOCK, &block))?;
        }
        fs.fsync(file.ino, false)?;
        let Done { rate, amplification, moved, nodes, longest } = lap.end(&fs, writes / TENTHS * BLOCK);
        rates.push(rate);
        let (resident, available) = (memory("VmRSS:") / MIB, fs.pool().status().space.available / MIB);
        println!(
            "| {part}0 % | {rate:.1} | {amplification:.2} | {moved:.2} | {nodes:.1} | {longest:.2} | {resident} | {available} |"
        );
    }
    let ratio = rates.last().unwrap_or(&0.0) / rates.first().unwrap_or(&1.0);
    println!("\nlast tenth at {ratio:.2} of the first");
    fs.release(file.ino, handle)?;
    fs.unmount()?;
    drop(fs);

    let fs = ground.mount()?;
    let bad = compare(&fs, &versions)?;
    println!("compared after a remount: {bad} of {blocks} blocks differ");
    fs.unmount()?;
    drop(fs);
    ground.proves_sound()?;
    if bad > 0 { Err(format!("{bad} blocks differ").into()) } else { Ok(()) }
}

fn write_in_order(fs: &Fs, ino: u64, handle: u64, blocks: u64) -> Outcome<f64> {
    let start = Instant::now();
    let chunk = MIB / BLOCK;
    let mut data = vec![0; MIB as usize];
    for first in (0..blocks).step_by(chunk as usize) {
        for (index, block) in data.chunks_mut(BLOCK as usize).enumerate() {
            fill(block, first + index as u64, 0);
        }
        let len = chunk.min(blocks - first) * BLOCK;
        write_all(fs, ino, handle, first * BLOCK, &data[..len as usize])?;
    }
    fs.fsync(ino, false)?;
    Ok((blocks * BLOCK) as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn compare(fs: &Fs, versions: &[u32]) -> Outcome<u64> {
    let file = fs.lookup(ROOT_INO, b"image")?;
    let handle = fs.open(file.ino, OpenFlags { read: true, ..OpenFlags::default() })?;
    let (mut found, mut expected) = (vec![0; MIB as usize], vec![0; BLOCK as usize]);
    let mut bad = 0;
    for (index, version) in versions.iter().enumerate() {
        let offset = index as u64 * BLOCK;
        let at = (offset % MIB) as usize;
        if at == 0 {
            fs.read(file.ino, handle, offset, &mut found)?;
        }
        fill(&mut expected, index as u64, u64::from(*version));
        bad += u64::from(found[at..at + BLOCK as usize] != expected);
    }
    fs.release(file.ino, handle)?;
    Ok(bad)
}
