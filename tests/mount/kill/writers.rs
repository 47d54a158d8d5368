//! Programs that keep account of what was acknowledged to them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::Random;
use crate::support::sources::make_up_files;

/// A program, and what it expects after a crash.
pub trait Writer: Send {
    /// Does something. An error ends it for this time.
    fn step(&mut self) -> io::Result<()>;
    /// After a crash: what was acknowledged is there, and nothing else than what was written. What is found counts
    /// as acknowledged from now on, since it was read from the members.
    fn check(&mut self, what: &str);
    /// Removes what it wrote, so that the pool does not fill up.
    fn clear(&mut self);
}

/// One of each, in directories of their own.
pub fn all(root: &Path, seed: u64) -> Vec<Box<dyn Writer>> {
    let dir = |name: &str| {
        let dir = root.join(name);
        fs::create_dir(&dir).expect("a directory");
        dir
    };
    let random = |n: u64| Random::new(seed * 100 + n);
    let made_up = root.join("../made up");
    make_up_files(&made_up, 1500, seed);
    let writers: Vec<Box<dyn Writer>> = vec![
        Box::new(Creator { dir: dir("created"), random: random(1), next: 0, files: BTreeMap::new() }),
        Box::new(Overwriter::new(dir("overwritten"), random(2))),
        Box::new(Replacer {
            dir: dir("replaced"),
            rename: true,
            random: random(3),
            versions: Versions::default(),
        }),
        Box::new(Replacer {
            dir: dir("rewritten"),
            rename: false,
            random: random(4),
            versions: Versions::default(),
        }),
        Box::new(Appender { path: dir("appended").join("log"), random: random(5), written: 0, synced: 0 }),
        Box::new(Copier { from: made_up, to: dir("copied"), next: 0 }),
    ];
    File::open(root).and_then(|root| root.sync_all()).expect("synced");
    writers
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Where two contents differ first, and how.
fn first_difference(found: &[u8], expected: &[u8]) -> Option<String> {
    if found == expected {
        return None;
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
    let zeros = found[at..].iter().take_while(|&&byte| byte == 0).count();
    Some(format!(
        "{} bytes instead of {}; differs from byte {at} on, where {zeros} zeros are",
        found.len(),
        expected.len()
    ))
}

/// What a sync said of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// There, with this content.
    There { seed: u64, len: usize },
    /// Not there.
    Gone,
    /// Something was begun and not acknowledged.
    Open,
}

/// Creates files and syncs them; renames and removes some, and syncs the directory.
struct Creator {
    dir: PathBuf,
    random: Random,
    next: u64,
    files: BTreeMap<String, Known>,
}

impl Creator {
    fn create(&mut self) -> io::Result<()> {
        self.next += 1;
        let name = format!("file{}", self.next);
        let (seed, len) = (self.random.number(), self.random.below(300_000) as usize);
        // Most are small, as most files are.
        let len = if self.random.below(4) == 0 { len } else { len / 50 };
        self.files.insert(name.clone(), Known::Open);
        let mut file = File::create(self.dir.join(&name))?;
        file.write_all(&Random::new(seed).bytes(len))?;
        file.sync_all()?;
        self.files.insert(name, Known::There { seed, len });
        Ok(())
    }

    fn some_file(&mut self) -> Option<(String, Known)> {
        let there: Vec<_> =
            self.files.iter().filter(|(_, known)| matches!(known, Known::There { .. })).collect();
        let chosen = there.get(self.random.below(there.len().max(1) as u64) as usize)?;
        Some((chosen.0.clone(), *chosen.1))
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some((old, known)) = self.some_file() else { return Ok(()) };
        self.next += 1;
        let new = format!("renamed{}", self.next);
        self.files.insert(old.clone(), Known::Open);
        self.files.insert(new.clone(), Known::Open);
        fs::rename(self.dir.join(&old), self.dir.join(&new))?;
        sync_dir(&self.dir)?;
        self.files.insert(old, Known::Gone);
        self.files.insert(new, known);
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        let Some((name, _)) = self.some_file() else { return Ok(()) };
        self.files.insert(name.clone(), Known::Open);
        fs::remove_file(self.dir.join(&name))?;
        sync_dir(&self.dir)?;
        self.files.insert(name, Known::Gone);
        Ok(())
    }
}

impl Writer for Creator {
    fn step(&mut self) -> io::Result<()> {
        match self.random.below(10) {
            0 | 1 => self.rename(),
            2 => self.remove(),
            _ => self.create(),
        }
    }

    fn check(&mut self, what: &str) {
        for (name, known) in &self.files {
            let path = self.dir.join(name);
            match known {
                Known::There { seed, len } => {
                    let found = fs::read(&path).unwrap_or_else(|e| panic!("{what}: synced file {name}: {e}"));
                    let difference = first_difference(&found, &Random::new(*seed).bytes(*len));
                    assert!(
                        difference.is_none(),
                        "{what}: synced file {name}: {}",
                        difference.unwrap_or_default()
                    );
                }
                Known::Gone => assert!(!path.exists(), "{what}: {name} was removed or renamed, and is back"),
                Known::Open => {}
            }
        }
        for entry in fs::read_dir(&self.dir).expect("listed").flatten() {
            let name = entry.file_name().into_string().expect("names are text");
            assert!(self.files.contains_key(&name), "{what}: {name} was never made");
        }
        // What was under way is settled now, one way or the other: it is removed.
        let open: Vec<String> = self
            .files
            .iter()
            .filter(|(_, known)| **known == Known::Open)
            .map(|(name, _)| name.clone())
            .collect();
        for name in open {
            let _ = fs::remove_file(self.dir.join(&name));
            self.files.remove(&name);
        }
        sync_dir(&self.dir).expect("synced");
    }

    fn clear(&mut self) {
        fs::remove_dir_all(&self.dir).and_then(|()| fs::create_dir(&self.dir)).expect("emptied");
        self.files.clear();
    }
}

const BLOCK: usize = 4096;
const BLOCKS: u64 = 2048;

/// Overwrites blocks of a file in place; each says which version it is.
struct Overwriter {
    path: PathBuf,
    random: Random,
    acknowledged: Vec<u64>,
    written: Vec<u64>,
}

impl Overwriter {
    fn new(dir: PathBuf, random: Random) -> Self {
        let path = dir.join("hot");
        let file = File::create(&path).expect("made");
        for block in 0..BLOCKS {
            file.write_all_at(&Self::content(block, 0), block * BLOCK as u64).expect("written");
        }
        file.sync_all().expect("synced");
        let versions = vec![0; BLOCKS as usize];
        Self { path, random, acknowledged: versions.clone(), written: versions }
    }

    fn content(block: u64, version: u64) -> Vec<u8> {
        let mut out = Random::new(block << 32 | version).bytes(BLOCK);
        out[..8].copy_from_slice(&version.to_le_bytes());
        out
    }
}

impl Writer for Overwriter {
    fn step(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        let mut touched = Vec::new();
        for _ in 0..self.random.between(1, 12) {
            let block = self.random.below(BLOCKS);
            touched.push(block as usize);
            let version = &mut self.written[block as usize];
            *version += 1;
            file.write_all_at(&Self::content(block, *version), block * BLOCK as u64)?;
        }
        file.sync_data()?;
        // Not all that was written: some of it may have been lost by the last crash.
        for block in touched {
            self.acknowledged[block] = self.written[block];
        }
        Ok(())
    }

    fn check(&mut self, what: &str) {
        let file = File::open(&self.path).unwrap_or_else(|e| panic!("{what}: the overwritten file: {e}"));
        assert_eq!(
            file.metadata().expect("its size").len(),
            BLOCKS * BLOCK as u64,
            "{what}: overwritten file"
        );
        for block in 0..BLOCKS {
            let mut found = vec![0; BLOCK];
            file.read_exact_at(&mut found, block * BLOCK as u64)
                .unwrap_or_else(|e| panic!("{what}: block {block}: {e}"));
            let version = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
            let (least, most) = (self.acknowledged[block as usize], self.written[block as usize]);
            assert!(
                (least..=most).contains(&version),
                "{what}: block {block} has version {version}, acknowledged {least}, written {most}"
            );
            assert!(
                found == Self::content(block, version),
                "{what}: block {block}, version {version}, is mixed"
            );
            self.acknowledged[block as usize] = version;
        }
        // Versions written and lost are not written again with the same number.
    }

    fn clear(&mut self) {}
}

/// Versions of a file that is always replaced as a whole.
#[derive(Debug, Default)]
struct Versions {
    written: u64,
    acknowledged: u64,
}

/// Replaces a file as editors do: by a rename over it, or by truncating and writing it again. Only some of it is
/// synced; whole it must always be.
struct Replacer {
    dir: PathBuf,
    rename: bool,
    random: Random,
    versions: Versions,
}

impl Replacer {
    fn content(version: u64) -> Vec<u8> {
        let mut random = Random::new(version);
        let len = 8 + random.below(if version.is_multiple_of(7) { 2_000_000 } else { 60_000 });
        let mut out = random.bytes(len as usize);
        out[..8].copy_from_slice(&version.to_le_bytes());
        out
    }

    fn path(&self) -> PathBuf {
        self.dir.join("config")
    }
}

impl Writer for Replacer {
    fn step(&mut self) -> io::Result<()> {
        self.versions.written += 1;
        let version = self.versions.written;
        let sync = self.random.below(4) == 0;
        let written_to = if self.rename { self.dir.join("config.new") } else { self.path() };
        let mut file = File::create(&written_to)?;
        file.write_all(&Self::content(version))?;
        if self.rename {
            drop(file);
            fs::rename(&written_to, self.path())?;
            if sync {
                sync_dir(&self.dir)?;
                self.versions.acknowledged = version;
            }
        } else if sync {
            file.sync_all()?;
            self.versions.acknowledged = version;
        }
        Ok(())
    }

    fn check(&mut self, what: &str) {
        let how = if self.rename { "renamed over" } else { "truncated and rewritten" };
        let found = match fs::read(self.path()) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.versions.acknowledged == 0 => {
                return;
            }
            Err(error) => panic!("{what}: file {how}: {error}"),
        };
        if found.is_empty() && self.versions.acknowledged == 0 {
            // The very first version had no predecessor to fall back to.
            return;
        }
        assert!(found.len() >= 8, "{what}: file {how} has {} bytes", found.len());
        let version = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
        let (least, most) = (self.versions.acknowledged, self.versions.written);
        assert!(
            (least..=most).contains(&version),
            "{what}: file {how} has version {version}, acknowledged {least}, written {most}"
        );
        let difference = first_difference(&found, &Self::content(version));
        assert!(
            difference.is_none(),
            "{what}: file {how}, version {version}: {}",
            difference.unwrap_or_default()
        );
        self.versions.acknowledged = version;
    }

    fn clear(&mut self) {}
}

/// Appends to a log, and syncs now and then.
struct Appender {
    path: PathBuf,
    random: Random,
    written: u64,
    synced: u64,
}

impl Appender {
    /// The bytes of the log from `start` on, without end.
    fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }
}

impl Writer for Appender {
    fn step(&mut self) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        for _ in 0..self.random.between(1, 20) {
            let end = self.written + self.random.between(1, 3000);
            let bytes: Vec<u8> = (self.written..end).map(Self::byte).collect();
            self.written = end;
            file.write_all(&bytes)?;
        }
        file.sync_data()?;
        self.synced = self.written;
        Ok(())
    }

    fn check(&mut self, what: &str) {
        let mut found = Vec::new();
        match File::open(&self.path) {
            Ok(mut file) => drop(file.read_to_end(&mut found).unwrap_or_else(|e| panic!("{what}: log: {e}"))),
            Err(error) => assert!(self.synced == 0, "{what}: log: {error}"),
        }
        let len = found.len() as u64;
        assert!(len >= self.synced, "{what}: log has {len} bytes, {} were acknowledged", self.synced);
        assert!(len <= self.written, "{what}: log has {len} bytes, {} were written", self.written);
        let wrong = (0..len).find(|&at| found[at as usize] != Self::byte(at));
        assert!(wrong.is_none(), "{what}: log of {len} bytes differs at {wrong:?}");
        (self.written, self.synced) = (len, len);
    }

    fn clear(&mut self) {
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).open(&self.path).expect("opened");
        file.sync_all().expect("synced");
        (self.written, self.synced) = (0, 0);
    }
}

/// Copies a tree and syncs nothing: whatever is there of a file must be of that file.
struct Copier {
    from: PathBuf,
    to: PathBuf,
    next: u64,
}

impl Copier {
    fn files(&self) -> Vec<PathBuf> {
        fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
            let mut entries: Vec<PathBuf> =
                fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            entries.sort();
            for path in entries {
                match fs::symlink_metadata(&path) {
                    Ok(meta) if meta.is_dir() => walk(&path, files),
                    Ok(meta) if meta.is_file() => files.push(path),
                    _ => {}
                }
            }
        }
        let mut files = Vec::new();
        walk(&self.from, &mut files);
        files
    }
}

impl Writer for Copier {
    fn step(&mut self) -> io::Result<()> {
        self.next += 1;
        let copy = self.to.join(format!("copy{}", self.next));
        for file in self.files() {
            let to = copy.join(file.strip_prefix(&self.from).expect("below it"));
            fs::create_dir_all(to.parent().expect("it has one"))?;
            // Not fs::copy: the originals are read without errors, and errors of writing are to be seen.
            fs::write(&to, fs::read(&file).expect("the original is read"))?;
        }
        fs::remove_dir_all(copy)
    }

    fn check(&mut self, what: &str) {
        for copy in fs::read_dir(&self.to).expect("listed").flatten() {
            for file in self.files() {
                let below = file.strip_prefix(&self.from).expect("below it");
                let Ok(found) = fs::read(copy.path().join(below)) else { continue };
                let original = fs::read(&file).expect("the original is read");
                assert!(found.len() <= original.len(), "{what}: {} is too long", below.display());
                for (page, (a, b)) in found.chunks(4096).zip(original.chunks(4096)).enumerate() {
                    let same = *a == b[..a.len()];
                    assert!(
                        same || a.iter().all(|byte| *byte == 0),
                        "{what}: page {page} of {} has bytes that it never had",
                        below.display()
                    );
                }
            }
            fs::remove_dir_all(copy.path()).unwrap_or_else(|e| panic!("{what}: removing a copy: {e}"));
        }
    }

    fn clear(&mut self) {}
}
