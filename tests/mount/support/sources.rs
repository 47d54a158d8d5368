//! Real trees to copy: what a mount is for.

use std::fs;
use std::path::{Path, PathBuf};

use super::Random;

/// A source tree counts from this many files on.
const FILES_LEAST: usize = 5_000;
/// At most this much of the system's shared files is copied.
const SHARED_MOST: Budget = Budget { files: 60_000, bytes: 1 << 30 };

#[derive(Debug, Clone, Copy)]
struct Budget {
    files: usize,
    bytes: u64,
}

/// A tree of sources with thousands of files: those of the crates that Cargo has unpacked, or one made up in
/// `scratch` when there are too few.
pub fn source_tree(scratch: &Path) -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let crates = home.map(|home| home.join("registry/src")).filter(|dir| weigh(dir).files >= FILES_LEAST);
    crates.unwrap_or_else(|| {
        let made_up = scratch.join("sources");
        make_up(&made_up);
        made_up
    })
}

/// As much of `/usr/share` as the budget allows: its entries, in order of their names.
pub fn shared_files() -> Vec<PathBuf> {
    let root = Path::new("/usr/share");
    let mut entries: Vec<PathBuf> =
        fs::read_dir(root).map(|dir| dir.flatten().map(|entry| entry.path()).collect()).unwrap_or_default();
    entries.sort();
    let mut left = SHARED_MOST;
    entries.retain(|entry| {
        let weight = weigh(entry);
        let fits = weight.files <= left.files && weight.bytes <= left.bytes;
        if fits {
            left.files -= weight.files;
            left.bytes -= weight.bytes;
        }
        fits
    });
    entries
}

fn weigh(path: &Path) -> Budget {
    let Ok(meta) = fs::symlink_metadata(path) else { return Budget { files: 0, bytes: 0 } };
    if !meta.is_dir() {
        return Budget { files: 1, bytes: meta.len() };
    }
    let inner = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| weigh(&entry.path()));
    inner.fold(Budget { files: 1, bytes: 0 }, |sum, one| Budget {
        files: sum.files + one.files,
        bytes: sum.bytes + one.bytes,
    })
}

/// A tree like one of sources: many small files, deep directories, links, odd names.
pub fn make_up(root: &Path) {
    make_up_files(root, FILES_LEAST, 1);
}

/// As [`make_up`], with `files` files.
pub fn make_up_files(root: &Path, files: usize, seed: u64) {
    let mut random = Random::new(seed);
    for number in 0..files {
        let dir = root.join(format!("crate-{}/src/{}", number / 50, ["", "a/b", "c"][number % 3]));
        fs::create_dir_all(&dir).expect("a directory");
        let size = match number % 100 {
            0 => random.between(200_000, 2_000_000),
            1..20 => 0,
            _ => random.between(1, 20_000),
        };
        let path = dir.join(format!("file {number}.rs"));
        fs::write(&path, random.bytes(size as usize)).expect("a file");
        match number % 50 {
            7 => std::os::unix::fs::symlink(format!("file {number}.rs"), dir.join("link")).unwrap_or(()),
            8 => fs::hard_link(&path, dir.join(format!("second name of {number}"))).expect("a hard link"),
            _ => {}
        }
    }
}

/// Writes `len` random bytes, a megabyte at a time, and returns their checksum.
pub fn write_random(path: &Path, len: u64, seed: u64) -> u32 {
    use std::io::Write;
    let mut random = Random::new(seed);
    let mut buf = vec![0; 1 << 20];
    let mut file = fs::File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut left, mut sum) = (len, 0);
    while left > 0 {
        let piece = &mut buf[..left.min(1 << 20) as usize];
        random.fill(piece);
        sum = crc32c::crc32c_append(sum, piece);
        file.write_all(piece).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        left -= piece.len() as u64;
    }
    sum
}
