//! Files of many sizes made, overwritten and removed, as over weeks, while the pool is kept at a degree of
//! fullness.

use std::collections::HashMap;

use poolfs::fs::{Caller, Fs, OpenFlags};
use poolfs::store::tables::ROOT_INO;
use poolfs::units::{KIB, MIB, format_size};

use super::ground::{Done, Ground, Lap, Place, fill, memory, roll, write_all};
use super::{Outcome, size};

const BLOCK: u64 = 4096;
/// Files are of any size between these, small ones as often as large ones.
const FILE_MIN_BYTES: u64 = KIB;
const FILE_MAX_DOUBLINGS: u64 = 14;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Payload that the pool holds.
    #[arg(long, default_value = "4G", value_parser = size)]
    payload: u64,
    /// Degrees of fullness, in per cent of what the pool offers.
    #[arg(long, value_delimiter = ',', default_values_t = [70, 80, 90, 95, 97])]
    full: Vec<u64>,
    /// How often the pool's payload is written at each degree.
    #[arg(long, default_value_t = 2)]
    times: u64,
}

/// A file that is there: its length, and the version of its content.
struct Known {
    len: u64,
    version: u64,
}

/// The pool and what should be in it.
struct Life {
    fs: poolfs::sync::Arc<Fs>,
    files: HashMap<u64, Known>,
    next: u64,
    random: u64,
    written: u64,
}

/// Measures, and prints the table.
pub fn run(args: &Args) -> Outcome<()> {
    let ground = Ground::new(&args.place, args.payload)?;
    let mut life = Life { fs: ground.mount()?, files: HashMap::new(), next: 1, random: 7, written: 0 };
    println!("{} in {}", format_size(args.payload), ground.path().display());
    println!(
        "\n| full, % | MB/s | bytes to members for each byte | moved for each byte | nodes for each MiB | longest step, s | resident, MiB | files |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for &full in &args.full {
        // Filling is not measured.
        while life.fullness() < full {
            life.create()?;
        }
        let mut lap = Lap::start(&life.fs);
        life.written = 0;
        while life.written < args.payload * args.times {
            lap.step(|| life.step(full))?;
        }
        life.fs.sync_all()?;
        let Done { rate, amplification, moved, nodes, longest } = lap.end(&life.fs, life.written);
        let (resident, files) = (memory("VmRSS:") / MIB, life.files.len());
        println!(
            "| {full} | {rate:.1} | {amplification:.2} | {moved:.2} | {nodes:.1} | {longest:.2} | {resident} | {files} |"
        );
    }
    let Life { fs, files, next, random, written } = life;
    fs.unmount()?;
    // The members are free only when nobody has the file system any more.
    drop(fs);
    let mut life = Life { fs: ground.mount()?, files, next, random, written };
    let bad = life.compare()?;
    println!("\ncompared after a remount: {bad} of {} files differ", life.files.len());
    let names: Vec<u64> = life.files.keys().copied().collect();
    for name in names {
        life.remove(name)?;
    }
    life.fs.sync_all()?;
    println!("emptied: {:?}", life.fs.pool().status().space);
    life.fs.unmount()?;
    drop(life);
    ground.proves_sound()?;
    if bad > 0 { Err(format!("{bad} files differ").into()) } else { Ok(()) }
}

fn name_of(file: u64) -> Vec<u8> {
    format!("{file:08}").into_bytes()
}

impl Life {
    fn fullness(&self) -> u64 {
        let space = self.fs.pool().status().space;
        let offered = space.total - (space.free - space.available);
        (offered - space.available) * 100 / offered.max(1)
    }

    /// One thing that users do: a new file, one overwritten, or one removed.
    fn step(&mut self, full: u64) -> Outcome<()> {
        let victim = self.any();
        if self.fullness() >= full {
            self.remove(victim)?;
        }
        if roll(&mut self.random, 4) == 0 { self.overwrite(victim) } else { self.create() }
    }

    fn any(&mut self) -> u64 {
        let skip = roll(&mut self.random, self.next);
        // Numbers are dense enough that the next that is there is soon found.
        (skip..self.next).chain(1..skip).find(|file| self.files.contains_key(file)).unwrap_or(0)
    }

    fn create(&mut self) -> Outcome<()> {
        let doublings = roll(&mut self.random, FILE_MAX_DOUBLINGS + 1);
        let base = FILE_MIN_BYTES << doublings;
        let len = base + roll(&mut self.random, base);
        let file = self.next;
        self.next += 1;
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (made, handle) = self.fs.create(ROOT_INO, &name_of(file), 0o644, flags, &Caller::ROOT)?;
        self.files.insert(file, Known { len, version: 0 });
        let outcome = self.write(made.ino, handle, file, 0);
        self.fs.release(made.ino, handle)?;
        self.fs.forget(made.ino, 1);
        match outcome {
            // A full pool is no failure here; the file is not kept half written.
            Err(error) if error.is_no_space() => self.remove(file),
            outcome => Ok(outcome?),
        }
    }

    /// Writes a file from `from` on, a block's content by its number and the file's version.
    fn write(&mut self, ino: u64, handle: u64, file: u64, from: u64) -> poolfs::fs::Result<()> {
        let Some(Known { len, version }) = self.files.get(&file) else { return Ok(()) };
        let (len, version) = (*len, *version);
        let mut data = vec![0; MIB as usize];
        let mut at = from;
        while at < len {
            let part = MIB.min(len - at) as usize;
            for (index, block) in data[..part].chunks_mut(BLOCK as usize).enumerate() {
                fill(block, file << 24 | (at / BLOCK + index as u64), version);
            }
            write_all(&self.fs, ino, handle, at, &data[..part])?;
            self.written += part as u64;
            at += part as u64;
        }
        Ok(())
    }

    /// Writes a whole file anew, in place.
    fn overwrite(&mut self, file: u64) -> Outcome<()> {
        let Some(known) = self.files.get_mut(&file) else { return Ok(()) };
        known.version += 1;
        let found = self.fs.lookup(ROOT_INO, &name_of(file))?;
        let handle = self.fs.open(found.ino, OpenFlags { write: true, ..OpenFlags::default() })?;
        let outcome = self.write(found.ino, handle, file, 0);
        self.fs.release(found.ino, handle)?;
        self.fs.forget(found.ino, 1);
        match outcome {
            Err(error) if error.is_no_space() => self.remove(file),
            outcome => Ok(outcome?),
        }
    }

    fn remove(&mut self, file: u64) -> Outcome<()> {
        if self.files.remove(&file).is_some() {
            self.fs.unlink(ROOT_INO, &name_of(file))?;
        }
        Ok(())
    }

    fn compare(&self) -> Outcome<u64> {
        let mut bad = 0;
        for (&file, known) in &self.files {
            let found = self.fs.lookup(ROOT_INO, &name_of(file))?;
            let handle = self.fs.open(found.ino, OpenFlags { read: true, ..OpenFlags::default() })?;
            let mut content = vec![0; known.len as usize];
            let mut len = 0;
            while len < content.len() {
                let end = content.len().min(len + MIB as usize);
                match self.fs.read(found.ino, handle, len as u64, &mut content[len..end])? {
                    0 => break,
                    got => len += got,
                }
            }
            let mut expected = vec![0; BLOCK as usize];
            let same = content.chunks(BLOCK as usize).enumerate().all(|(index, block)| {
                fill(&mut expected, file << 24 | index as u64, known.version);
                block == &expected[..block.len()]
            });
            let differs = !same || len as u64 != known.len || found.size != known.len;
            if differs {
                eprintln!("file {file}: {len} of {} bytes, size {}, the same: {same}", known.len, found.size);
            }
            bad += u64::from(differs);
            self.fs.release(found.ino, handle)?;
            self.fs.forget(found.ino, 1);
        }
        Ok(bad)
    }
}
