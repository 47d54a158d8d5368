//! Random operations against a reference tree, with remounts.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Files of the model stay below this.
const SIZE_MAX: u64 = 400_000;

/// Random numbers of one seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        next_random(&mut self.0) % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.roll(from.len() as u64) as usize])
    }
}

/// The reference: what the file system should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    pub dirs: BTreeMap<Ino, BTreeMap<String, Ino>>,
    pub files: BTreeMap<Ino, Vec<u8>>,
}

impl Tree {
    pub fn new() -> Self {
        Self { dirs: BTreeMap::from([(ROOT_INO, BTreeMap::new())]), files: BTreeMap::new() }
    }

    /// The tree that a file system holds.
    pub fn read(fs: &Fs) -> Self {
        let mut tree = Self::default();
        let mut todo = vec![ROOT_INO];
        while let Some(dir) = todo.pop() {
            let mut entries = Vec::new();
            fs.readdir(dir, 0, &mut |entry| {
                entries.push(entry);
                true
            })
            .expect("reads");
            let mut names = BTreeMap::new();
            for entry in entries.into_iter().filter(|entry| entry.cookie > 2) {
                names.insert(String::from_utf8(entry.name).expect("ascii"), entry.ino);
                match entry.kind {
                    FileKind::Directory => todo.push(entry.ino),
                    _ => drop(tree.files.entry(entry.ino).or_insert_with(|| fs.t_read(entry.ino))),
                }
            }
            tree.dirs.insert(dir, names);
        }
        tree
    }

    fn links(&self, ino: Ino) -> usize {
        self.dirs.values().flat_map(BTreeMap::values).filter(|named| **named == ino).count()
    }

    fn above(&self, dir: Ino) -> Vec<Ino> {
        let mut path = vec![dir];
        while let Some(up) =
            self.dirs.iter().find(|(_, names)| names.values().any(|ino| ino == &path[path.len() - 1]))
        {
            path.push(*up.0);
        }
        path
    }

    /// Forgets what has no name any more, but for what is open.
    fn prune(&mut self, open: &[Ino]) {
        let named: BTreeSet<Ino> = self.dirs.values().flat_map(BTreeMap::values).copied().collect();
        self.files.retain(|ino, _| named.contains(ino) || open.contains(ino));
        self.dirs.retain(|ino, _| named.contains(ino) || *ino == ROOT_INO);
    }

    fn rename(&mut self, (p, n): (Ino, &str), (q, m): (Ino, &str), mode: RenameMode) -> i32 {
        let Some(source) = self.dirs[&p].get(n).copied() else { return libc::ENOENT };
        let target = self.dirs[&q].get(m).copied();
        let is_dir = |tree: &Self, ino: Ino| tree.dirs.contains_key(&ino);
        if p != q && is_dir(self, source) && self.above(q).contains(&source) {
            return libc::EINVAL;
        }
        match (target, mode) {
            (Some(target), RenameMode::Exchange) => {
                if p != q && is_dir(self, target) && self.above(p).contains(&target) {
                    return libc::EINVAL;
                }
                self.dirs.get_mut(&p).expect("dir").insert(n.into(), target);
                self.dirs.get_mut(&q).expect("dir").insert(m.into(), source);
                return 0;
            }
            (None, RenameMode::Exchange) => return libc::ENOENT,
            (Some(_), RenameMode::NoReplace) => return libc::EEXIST,
            (Some(target), _) if target == source => return 0,
            (Some(target), _) => match (is_dir(self, source), is_dir(self, target)) {
                (true, false) => return libc::ENOTDIR,
                (false, true) => return libc::EISDIR,
                (true, true) if !self.dirs[&target].is_empty() => return libc::ENOTEMPTY,
                _ => {}
            },
            (None, _) => {}
        }
        self.dirs.get_mut(&p).expect("dir").remove(n);
        self.dirs.get_mut(&q).expect("dir").insert(m.into(), source);
        0
    }
}

/// A file system, its reference, and what was promised to be durable.
pub struct Player {
    pub tree: Tree,
    pub dice: Dice,
    open: Vec<(Ino, Handle)>,
    /// Content of files that were not touched since their fsync.
    pub durable: BTreeMap<Ino, Vec<u8>>,
}

fn code<T>(result: &Result<T>) -> i32 {
    result.as_ref().err().map_or(0, FsError::errno)
}

impl Player {
    pub fn new(seed: u64) -> Self {
        Self { tree: Tree::new(), dice: Dice::new(seed), open: Vec::new(), durable: BTreeMap::new() }
    }

    fn opened(&self) -> Vec<Ino> {
        self.open.iter().map(|(ino, _)| *ino).collect()
    }

    /// One random operation on both. An error that the reference does not expect is returned; nothing else
    /// is done to the reference then.
    pub fn step(&mut self, fs: &Fs) -> Result<()> {
        let dirs: Vec<Ino> = self.tree.dirs.keys().copied().collect();
        let dir = self.dice.pick(&dirs).expect("the root");
        let name = NAMES[self.dice.roll(6) as usize];
        let there = self.tree.dirs[&dir].get(name).copied();
        match self.dice.roll(20) {
            0..=2 => self.create(fs, dir, name, there),
            3 => self.mkdir(fs, dir, name, there),
            4 => self.remove(fs, dir, name, there),
            5 => {
                let to = self.dice.pick(&dirs).expect("the root");
                let mode =
                    [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]
                        [self.dice.roll(4) as usize];
                let new = NAMES[self.dice.roll(6) as usize];
                self.rename(fs, (dir, name), (to, new), mode)
            }
            6 => self.link(fs, dir, name, there),
            _ => {
                let files: Vec<Ino> = self.tree.files.keys().copied().collect();
                match self.dice.pick(&files) {
                    Some(ino) => self.on_file(fs, ino),
                    None => Ok(()),
                }
            }
        }
    }

    fn expect<T>(&self, result: Result<T>, expected: i32, what: &str) -> Result<Option<T>> {
        let got = code(&result);
        if expected == 0 {
            return result.map(Some);
        }
        // A dying pool may answer anything but success.
        assert!(got != 0, "{what}: {expected} expected");
        if got != expected { result.map(Some) } else { Ok(None) }
    }

    fn create(&mut self, fs: &Fs, dir: Ino, name: &str, there: Option<Ino>) -> Result<()> {
        let expected = there.map_or(0, |_| libc::EEXIST);
        let made = fs.create(dir, name.as_bytes(), 0o644, OpenFlags::READ_WRITE, &ROOT);
        if let Some((attr, handle)) = self.expect(made, expected, "create")? {
            fs.forget(attr.ino, 1);
            if self.dice.roll(4) == 0 {
                self.open.push((attr.ino, handle));
            } else {
                fs.release(attr.ino, handle)?;
            }
            self.tree.dirs.get_mut(&dir).expect("dir").insert(name.into(), attr.ino);
            self.tree.files.insert(attr.ino, Vec::new());
        }
        Ok(())
    }

    fn mkdir(&mut self, fs: &Fs, dir: Ino, name: &str, there: Option<Ino>) -> Result<()> {
        let expected = there.map_or(0, |_| libc::EEXIST);
        if let Some(attr) = self.expect(fs.mkdir(dir, name.as_bytes(), 0o755, &ROOT), expected, "mkdir")? {
            fs.forget(attr.ino, 1);
            self.tree.dirs.get_mut(&dir).expect("dir").insert(name.into(), attr.ino);
            self.tree.dirs.insert(attr.ino, BTreeMap::new());
        }
        Ok(())
    }

    fn remove(&mut self, fs: &Fs, dir: Ino, name: &str, there: Option<Ino>) -> Result<()> {
        let as_dir = self.dice.roll(2) == 0;
        let expected = match there {
            None => libc::ENOENT,
            Some(ino) => match (self.tree.dirs.get(&ino), as_dir) {
                (Some(_), false) => libc::EISDIR,
                (Some(names), true) if !names.is_empty() => libc::ENOTEMPTY,
                (None, true) => libc::ENOTDIR,
                _ => 0,
            },
        };
        let result = if as_dir { fs.rmdir(dir, name.as_bytes()) } else { fs.unlink(dir, name.as_bytes()) };
        if self.expect(result, expected, "remove")?.is_some() {
            self.tree.dirs.get_mut(&dir).expect("dir").remove(name);
            self.after_names();
        }
        Ok(())
    }

    fn after_names(&mut self) {
        let open = self.opened();
        self.tree.prune(&open);
        let files = &self.tree.files;
        self.durable.retain(|ino, _| files.contains_key(ino) && !open.contains(ino));
    }

    fn rename(&mut self, fs: &Fs, from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Result<()> {
        let mut after = self.tree.clone();
        let expected = after.rename(from, to, mode);
        let result = fs.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), mode);
        if self.expect(result, expected, "rename")?.is_some() {
            self.tree = after;
            self.after_names();
        }
        Ok(())
    }

    fn link(&mut self, fs: &Fs, dir: Ino, name: &str, there: Option<Ino>) -> Result<()> {
        let files: Vec<Ino> = self.tree.files.keys().copied().collect();
        let Some(ino) = self.dice.pick(&files) else { return Ok(()) };
        let expected = match (self.tree.links(ino), there) {
            (0, _) => libc::ENOENT,
            (_, Some(_)) => libc::EEXIST,
            _ => 0,
        };
        if self.expect(fs.link(ino, dir, name.as_bytes()), expected, "link")?.is_some() {
            fs.forget(ino, 1);
            self.tree.dirs.get_mut(&dir).expect("dir").insert(name.into(), ino);
        }
        Ok(())
    }

    fn on_file(&mut self, fs: &Fs, ino: Ino) -> Result<()> {
        let size = self.tree.files[&ino].len() as u64;
        // Some files stay around the size up to which content is kept in a table.
        let small = ino.is_multiple_of(3);
        let at = self.dice.roll(if small { 3_000 } else { SIZE_MAX * 3 / 4 });
        let long = if small { 3_000 } else { 80_000 };
        let len = 1 + self.dice.roll(if self.dice.0.is_multiple_of(3) { long } else { long / 16 });
        let what = self.dice.roll(18);
        if !matches!(what, 6..=9) {
            self.durable.remove(&ino);
        }
        match what {
            0..=3 => {
                let data = noise(self.dice.0, len as usize);
                let n = fs.write(ino, 0, at, &data, false)?;
                assert_eq!(n, data.len());
                self.edit(ino, |file| {
                    file.resize(file.len().max((at + len) as usize), 0);
                    file[at as usize..(at + len) as usize].copy_from_slice(&data);
                });
            }
            4 | 5 => {
                let to = if self.dice.roll(3) == 0 {
                    0
                } else {
                    self.dice.roll(if small { 5_000 } else { SIZE_MAX })
                };
                fs.setattr(ino, &SetAttr { size: Some(to), ..SetAttr::default() }, &ROOT)?;
                self.edit(ino, |file| file.resize(to as usize, 0));
            }
            6 | 7 => {
                let mut buf = vec![0xEE; len as usize];
                let got = fs.read(ino, 0, at, &mut buf)?;
                let file = &self.tree.files[&ino];
                let expected = file.get(at as usize..file.len().min((at + len) as usize)).unwrap_or_default();
                assert!(buf[..got] == *expected, "inode {ino} reads wrong at {at}");
            }
            8 => {
                fs.fsync(ino, self.dice.roll(2) == 0)?;
                if self.tree.links(ino) > 0 && !self.opened().contains(&ino) {
                    self.durable.insert(ino, self.tree.files[&ino].clone());
                }
            }
            9 => self.seek(fs, ino, at.min(size.saturating_sub(1)))?,
            10 => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                fs.fallocate(ino, 0, at, len, mode)?;
                self.edit(ino, |file| zero(file, at, len));
            }
            11 => {
                fs.fallocate(ino, 0, at, len, libc::FALLOC_FL_ZERO_RANGE)?;
                self.edit(ino, |file| {
                    file.resize(file.len().max((at + len) as usize), 0);
                    zero(file, at, len);
                });
            }
            12 => {
                fs.fallocate(ino, 0, at, len, 0)?;
                self.edit(ino, |file| file.resize(file.len().max((at + len) as usize), 0));
            }
            13 => fs.fallocate(ino, 0, at, len, libc::FALLOC_FL_KEEP_SIZE)?,
            14 => {
                // Written anew from nothing, as an editor does.
                let flags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
                let handle = fs.open(ino, flags)?;
                let data = noise(self.dice.0, len as usize);
                let written = fs.write(ino, handle, 0, &data, false);
                fs.release(ino, handle)?;
                written?;
                self.edit(ino, |file| *file = data);
            }
            15 | 16 => self.copy(fs, ino, at, len)?,
            _ => {
                if let Some(index) = self.open.iter().position(|(open, _)| *open == ino) {
                    let (ino, handle) = self.open.remove(index);
                    fs.release(ino, handle)?;
                    self.after_names();
                }
            }
        }
        Ok(())
    }

    /// Copies into `ino` from another file or another part of it, mostly whole sectors.
    fn copy(&mut self, fs: &Fs, ino: Ino, to: u64, len: u64) -> Result<()> {
        let files: Vec<Ino> = self.tree.files.keys().copied().collect();
        let source = self.dice.pick(&files).expect("a file");
        let unit = [4096, 4096, 4096, 1][self.dice.roll(4) as usize];
        let from = self.dice.roll(SIZE_MAX / 2) / unit * unit;
        let (to, len) = (to / unit * unit, len * (1 + self.dice.roll(4)));
        if source == ino && from < to + len && to < from + len {
            return Ok(());
        }
        let content = &self.tree.files[&source];
        let end = content.len().min((from + len) as usize);
        let data = content.get(from as usize..end).unwrap_or_default().to_vec();
        let n = fs.copy_file_range((source, 0, from), (ino, 0, to), len)? as usize;
        assert_eq!(n, data.len(), "copied from {source}");
        if n > 0 {
            self.edit(ino, |file| {
                file.resize(file.len().max(to as usize + n), 0);
                file[to as usize..to as usize + n].copy_from_slice(&data);
            });
        }
        Ok(())
    }

    fn edit(&mut self, ino: Ino, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.tree.files.get_mut(&ino).expect("a file"));
    }

    fn seek(&self, fs: &Fs, ino: Ino, at: u64) -> Result<()> {
        let file = &self.tree.files[&ino];
        let zeros = |from: u64, to: u64| file[from as usize..to as usize].iter().all(|byte| *byte == 0);
        match fs.lseek(ino, 0, at, Whence::Data) {
            Ok(data) => assert!(zeros(at, data), "data before {data} was called a hole"),
            Err(FsError::PastTheEnd { .. }) => {
                assert!(
                    zeros(at.min(file.len() as u64), file.len() as u64),
                    "data after {at} was called a hole"
                );
            }
            Err(error) => return Err(error),
        }
        if at < file.len() as u64 {
            let hole = fs.lseek(ino, 0, at, Whence::Hole)?;
            assert!(hole <= file.len() as u64);
            assert!(
                zeros(hole, (hole / 4096 * 4096 + 4096).max(hole).min(file.len() as u64)) || hole % 4096 != 0
            );
        }
        Ok(())
    }

    /// The mounted time ends: nothing is open any more.
    pub fn close_all(&mut self, fs: Option<&Fs>) {
        for (ino, handle) in std::mem::take(&mut self.open) {
            if let Some(fs) = fs {
                fs.release(ino, handle).expect("closes");
            }
        }
        self.after_names();
    }
}

fn zero(file: &mut [u8], at: u64, len: u64) {
    let end = file.len().min((at + len) as usize);
    if (at as usize) < end {
        file[at as usize..end].fill(0);
    }
}

fn compare(fs: &Fs, player: &Player, what: &str) {
    let mut expected = player.tree.clone();
    expected.prune(&[]);
    let found = Tree::read(fs);
    assert_eq!(found.dirs, expected.dirs, "{what}");
    for (ino, content) in &expected.files {
        assert!(found.files[ino] == *content, "{what}: content of {ino}");
        assert_eq!(fs.getattr(*ino).expect("there").nlink as usize, expected.links(*ino), "{what}");
    }
}

fn play(seed: u64, resiliency: &str, disks: usize, steps: u64) {
    let mut rig = Rig::new(resiliency, disks, 200);
    let mut player = Player::new(seed);
    for step in 0..steps {
        let what = format!("seed {seed} step {step}");
        player.step(rig.fs()).unwrap_or_else(|error| panic!("{what}: {error}"));
        match player.dice.roll(40) {
            0 => {
                rig.clock.advance(Duration::from_secs(1 + player.dice.roll(20)));
                rig.fs().tick();
            }
            1 => rig.fs().t_cool(),
            2 => rig.fs().sync_all().unwrap_or_else(|error| panic!("{what}: {error}")),
            _ => {}
        }
        if step % 100 == 99 {
            compare(rig.fs(), &player, &what);
            check::tables(rig.fs());
            if step % 300 == 299 {
                player.close_all(Some(rig.fs()));
                rig.remount();
                compare(rig.fs(), &player, &format!("{what}, mounted again"));
            }
        }
    }
}

#[test]
fn random_operations_agree_with_a_reference_tree() {
    for seed in seeds(6) {
        let (resiliency, disks) = [("mirror", 2), ("parity", 3), ("simple", 2)][seed as usize % 3];
        play(seed, resiliency, disks, 900);
    }
}
