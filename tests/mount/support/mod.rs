//! What the tests on real mounts share: pools of scratch members, mounted with the real programs.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`run`] | commands, each with a time limit, so that a mount that hangs fails a test instead of hanging it |
//! | [`scratch`] | directories that are unmounted and removed at the end, however it ends |
//! | [`disks`] | members: directories or images, which can be pulled out, given back, and broken |
//! | [`pool`] | [`pool::TestPool`]: creates, mounts, unmounts, kills, asks for the state |
//! | [`tree`] | what a directory holds, by checksum |
//! | [`sources`] | real trees to copy |
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

pub mod disks;
pub mod pool;
pub mod run;
pub mod scratch;
pub mod sources;
pub mod tree;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Random enough for tests, and the same for the same seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(&mut out);
        out
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        for piece in out.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            piece.copy_from_slice(&number[..piece.len()]);
        }
    }
}

/// Is the program there? Where it must be (`CI` is set), its absence is a failure; elsewhere it is said.
pub fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        let why = format!("{program} is not installed; `./test` installs what the tests use");
        assert!(!in_ci(), "{why}");
        eprintln!("NOT TESTED: {why}");
    }
    found
}

/// Is this root? What only root can test is said to be left out elsewhere.
pub fn am_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        assert!(!in_ci(), "these tests need root");
        eprintln!("NOT TESTED: this test makes file systems of its own, which only root can mount");
    }
    root
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

/// Held by the tests that move gigabytes, so that memory holds what they write: one at a time.
pub fn heavy() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}
