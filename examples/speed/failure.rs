//! Why a measurement ended early.

use std::io;
use std::path::{Path, PathBuf};

/// What all of the benchmark returns.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("`{line}` failed: {said}")]
    Program {
        /// Its command line.
        line: String,
        /// What it complained about.
        said: String,
    },
    /// The programs to be measured are not there.
    #[error("{path} is not there: `cargo build --release` makes it")]
    NotBuilt {
        /// Where it was expected.
        path: PathBuf,
    },
    /// The members need more room.
    #[error("{place} has {free} free, this run needs {needed}: name another place or less data")]
    NoRoom {
        /// Where members would be made.
        place: PathBuf,
        /// What is free there.
        free: String,
        /// What it takes.
        needed: String,
    },
    /// A file held something else than what was written.
    #[error("{path} holds something else at byte {offset} than what was written")]
    WrongData {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
    },
    /// The library refused.
    #[error("{doing}: {said}")]
    Library {
        /// What was being done.
        doing: String,
        /// What it complained about.
        said: String,
    },
    /// A directory lists other entries than were made.
    #[error("{seen} entries are listed, {expected} were made")]
    Listed {
        /// How many were made.
        expected: u64,
        /// How many are listed.
        seen: u64,
    },
    /// An argument that names nothing.
    #[error("{name:?} is neither a workload nor a target: there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Somebody stopped it.
    #[error("stopped")]
    Stopped,
}

impl Failure {
    /// For `map_err`: the system refused while `doing` this to `path`.
    pub fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let doing = format!("{doing} {}", path.display());
        move |source| Self::Io { doing, source }
    }
}
