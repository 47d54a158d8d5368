//! Real data: what is put into a pool, and how it is compared.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::support::pool::TestPool;
use crate::support::run::{LONG, python, run, shell};
use crate::support::sources::{make_up_files, shared_files, source_tree, write_random};
use crate::support::tree::Tree;
use crate::support::{Random, have};

const SQLITE: &str = include_str!("../sqlite.py");
const MIB: u64 = 1 << 20;

/// How much goes in.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// The sources of this machine's crates and its shared files, or a small made-up tree.
    real_trees: bool,
    /// Bytes of the one large file.
    large_bytes: u64,
}

impl Amount {
    /// Real trees and 2 GiB.
    pub const REAL: Self = Self { real_trees: true, large_bytes: 2048 * MIB };
    /// A small tree and 64 MiB.
    pub const SMALL: Self = Self { real_trees: false, large_bytes: 64 * MIB };
    /// The small tree and 512 MiB: for the many pools of the full matrix.
    #[cfg(feature = "soak")]
    pub const MIDDLE: Self = Self { real_trees: false, large_bytes: 512 * MIB };
}

/// What a pool must hold.
pub struct Content {
    expected: Tree,
    repository: bool,
    databases: bool,
}

impl Content {
    /// Puts it into the mounted pool, and compares it with the originals.
    pub fn put(pool: &TestPool, amount: Amount) -> Self {
        let root = pool.path();
        if amount.real_trees {
            copy_compared(&source_tree(pool.scratch()), &root.join("sources"));
            let shared = root.join("shared");
            fs::create_dir(&shared).expect("a directory");
            for entry in shared_files() {
                let name = entry.file_name().expect("it has a name");
                copy_compared(&entry, &shared.join(name));
            }
        } else {
            let made_up = pool.scratch().join("made up");
            make_up_files(&made_up, 1000, 5);
            copy_compared(&made_up, &root.join("sources"));
        }
        let sum = write_random(&root.join("large"), amount.large_bytes, 11);
        let repository = clone(root);
        let databases = have("python3");
        if databases {
            fs::create_dir(root.join("databases")).expect("a directory");
            python(root, SQLITE, &["write", "databases"], LONG).ok();
        }
        let expected = Tree::read(root);
        assert_eq!(expected.checksum("large"), sum, "the large file reads otherwise than it was written");
        Self { expected, repository, databases }
    }

    /// Compares all of it.
    #[track_caller]
    pub fn check(&self, pool: &TestPool, what: &str) {
        let what = format!("{what} ({})", pool.path().display());
        self.expected.assert_same(&Tree::read(pool.path()), &what);
        if self.repository {
            shell(
                &pool.path().join("clone"),
                "git fsck --full && test -z \"$(GIT_OPTIONAL_LOCKS=0 git status --porcelain)\"",
                LONG,
            )
            .ok();
        }
        if self.databases {
            // A copy: even reading a database writes beside it.
            let copy = pool.scratch().join("databases");
            let _ = fs::remove_dir_all(&copy);
            run(Command::new("cp").arg("-a").arg(pool.path().join("databases")).arg(&copy), LONG).ok();
            python(pool.scratch(), SQLITE, &["verify", "databases"], LONG).ok();
        }
    }

    /// More is written, some is overwritten, renamed, cut and removed; all of it is expected from now on.
    pub fn change(&mut self, pool: &TestPool) {
        let root = pool.path();
        let more = pool.scratch().join("more");
        make_up_files(&more, 500, 9);
        copy_compared(&more, &root.join("more"));
        let sum = write_random(&root.join("second large"), 64 * MIB, 12);
        overwrite_pieces(&root.join("large"));
        fs::rename(root.join("sources"), root.join("moved")).expect("renamed");
        let first = first_file(&root.join("moved")).expect("there are files");
        OpenOptions::new().write(true).open(&first).and_then(|f| f.set_len(1)).expect("cut");
        fs::remove_dir_all(root.join("moved").join(last_directory(&root.join("moved")))).expect("removed");
        if self.databases {
            fs::create_dir(root.join("more databases")).expect("a directory");
            python(root, SQLITE, &["write", "more databases"], LONG).ok();
        }
        self.expected = Tree::read(root);
        assert_eq!(self.expected.checksum("second large"), sum, "the second large file");
    }
}

/// Random pieces of the file, some of them not aligned, overwritten and read back.
fn overwrite_pieces(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("opened");
    let len = file.metadata().expect("its size").len();
    let mut random = Random::new(77);
    let mut written: Vec<(u64, Vec<u8>)> = Vec::new();
    for _ in 0..200 {
        let at = random.below(len / 200_000) * 200_000;
        let size = random.between(1, 190_000) as usize;
        let piece = random.bytes(size);
        file.write_all_at(&piece, at).expect("overwritten");
        written.retain(|(start, _)| *start != at);
        written.push((at, piece));
    }
    file.sync_all().expect("synced");
    for (at, piece) in written {
        let mut found = vec![0; piece.len()];
        file.read_exact_at(&mut found, at).expect("read");
        assert!(found == piece, "what was written at {at} reads otherwise");
    }
}

fn copy_compared(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").arg(from).arg(to), LONG).ok();
    if from.is_dir() && !from.is_symlink() {
        let what = format!("copy of {}", from.display());
        Tree::read(from).assert_same(&Tree::read(to), &what);
    }
}

/// Clones this project's own repository; makes one of its sources where there is none.
fn clone(root: &Path) -> bool {
    if !have("git") {
        return false;
    }
    let project = env!("CARGO_MANIFEST_DIR");
    let has_history = Path::new(project).join(".git").exists();
    let line = if has_history {
        format!(
            "git -c advice.detachedHead=false clone -q --no-hardlinks '{project}' clone && git -C clone fsck --full"
        )
    } else {
        format!(
            "mkdir clone && cp -a '{project}/src' '{project}/Cargo.toml' clone/ && cd clone && git init -q && \
             git add . && git -c user.name=t -c user.email=t@example.org commit -qm all && git gc -q && git fsck --full"
        )
    };
    shell(root, &line, LONG).ok();
    true
}

fn first_file(dir: &Path) -> Option<std::path::PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries.iter().find(|path| path.is_file() && !path.is_symlink()).cloned().or_else(|| {
        entries.iter().filter(|path| path.is_dir() && !path.is_symlink()).find_map(|path| first_file(path))
    })
}

fn last_directory(dir: &Path) -> std::ffi::OsString {
    let entries = fs::read_dir(dir).expect("listed").flatten().filter(|entry| entry.path().is_dir());
    entries.map(|entry| entry.file_name()).max().expect("there is one")
}
