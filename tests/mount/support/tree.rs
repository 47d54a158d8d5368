//! What a directory holds, to be compared with what it should hold.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files are read by this many threads: on a mount, most of the time goes into waiting.
const READERS: usize = 4;

/// One entry, as far as a copy must agree with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    size: u64,
    device: u64,
    target: Option<OsString>,
    checksum: Option<u32>,
}

impl Item {
    fn new(path: &Path, meta: &Metadata) -> Self {
        let kind = kind(meta);
        let target = (kind == "link").then(|| fs::read_link(path).expect("a link is read").into_os_string());
        let is_node = matches!(kind, "character device" | "block device");
        Self {
            kind,
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            // That of a directory is the file system's own affair.
            size: if kind == "directory" { 0 } else { meta.size() },
            device: if is_node { meta.rdev() } else { 0 },
            target,
            checksum: None,
        }
    }
}

fn kind(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "link",
        () if kind.is_fifo() => "pipe",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () => "block device",
    }
}

/// All that a directory holds, by path below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<PathBuf, Item>);

impl Tree {
    /// Reads everything below `root`. What can't be read is a failure.
    #[track_caller]
    pub fn read(root: &Path) -> Self {
        let mut items = BTreeMap::new();
        walk(root, Path::new(""), &mut items);
        let files: Vec<PathBuf> =
            items.iter().filter(|(_, item)| item.kind == "file").map(|(path, _)| path.clone()).collect();
        for (path, sum) in checksums(root, &files) {
            let sum = sum.unwrap_or_else(|error| panic!("{}: {error}", root.join(&path).display()));
            if let Some(item) = items.get_mut(&path) {
                item.checksum = Some(sum);
            }
        }
        Self(items)
    }

    /// The part below `dir`, as if it had been read there.
    pub fn below(&self, dir: &str) -> Self {
        let inner = self.0.iter().filter_map(|(path, item)| {
            let inner = path.strip_prefix(dir).ok().filter(|inner| !inner.as_os_str().is_empty());
            inner.map(|inner| (inner.to_owned(), item.clone()))
        });
        Self(inner.collect())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Checksum of one file.
    #[track_caller]
    pub fn checksum(&self, path: &str) -> u32 {
        self.0.get(Path::new(path)).and_then(|item| item.checksum).unwrap_or_else(|| panic!("no file {path}"))
    }

    /// Must hold the same as `self`; fails with the first differences.
    #[track_caller]
    pub fn assert_same(&self, found: &Self, what: &str) {
        let mut differences = Vec::new();
        for (path, expected) in &self.0 {
            match found.0.get(path) {
                None => differences.push(format!("{} is missing", path.display())),
                Some(item) if item != expected => {
                    differences.push(format!("{}: expected {expected:?}\n  found {item:?}", path.display()));
                }
                Some(_) => {}
            }
        }
        for path in found.0.keys().filter(|path| !self.0.contains_key(*path)) {
            differences.push(format!("{} is there, and should not be", path.display()));
        }
        if !differences.is_empty() {
            let shown = differences.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
            panic!("{what}: {} of {} differ:\n{shown}", differences.len(), self.len());
        }
    }
}

fn walk(root: &Path, below: &Path, items: &mut BTreeMap<PathBuf, Item>) {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let entry = entry.unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let path = entry.path();
        let meta = fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = below.join(entry.file_name());
        let twice = items.insert(name.clone(), Item::new(&path, &meta));
        assert!(twice.is_none(), "{} is listed twice", path.display());
        if meta.is_dir() {
            walk(root, &name, items);
        }
    }
}

fn checksums(root: &Path, files: &[PathBuf]) -> Vec<(PathBuf, std::io::Result<u32>)> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(files.len()));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut buf = vec![0; 1 << 20];
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let sum = checksum(&root.join(path), &mut buf);
                    done.lock().expect("no reader panicked").push((path.clone(), sum));
                }
            });
        }
    });
    done.into_inner().expect("no reader panicked")
}

fn checksum(path: &Path, buf: &mut [u8]) -> std::io::Result<u32> {
    let mut file = File::open(path)?;
    let mut sum = 0;
    loop {
        let n = file.read(buf)?;
        if n == 0 {
            return Ok(sum);
        }
        sum = crc32c::crc32c_append(sum, &buf[..n]);
    }
}

/// Checksum of one file.
#[track_caller]
pub fn checksum_of(path: &Path) -> u32 {
    checksum(path, &mut vec![0; 1 << 20]).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
