//! What can go wrong in the cache, and on the far side of its backing.

use super::Ino;

/// A piece of a file that could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {offset} can't be read: {message}")]
pub struct LoadError {
    /// Where the first piece that can't be read starts, in bytes from the start of the file.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Why, for people.
    pub message: String,
}

/// A flush that did not get everything to disk. The data is still dirty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FlushError {
    /// Why, for people.
    pub message: String,
}

/// Why a request to the cache failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// A part of the file can't be read from the pool. Every byte of the request before `offset` was
    /// served; other parts of the file may read well.
    #[error("file {ino}: {len} bytes at {offset} can't be read: {message}")]
    Unreadable {
        /// The file.
        ino: Ino,
        /// First byte that can't be read.
        offset: u64,
        /// Bytes that can't be read.
        len: u64,
        /// Why, for people.
        message: String,
    },
    /// Data had to be loaded, and the file system behind the cache is not there (yet, or any more).
    #[error("file {ino}: nothing can be loaded, the file system behind the cache is not mounted")]
    NoBacking {
        /// The file.
        ino: Ino,
    },
    /// A range that ends beyond what a 64-bit offset can name, or is not inside one page where it must be.
    #[error("file {ino}: the range of {len} bytes at {offset} is not one that the cache can hold")]
    BadRange {
        /// The file.
        ino: Ino,
        /// Start of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        len: u64,
    },
}
