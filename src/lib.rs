//! poolfs joins several disks, or directories on disks, into one pool and mounts it.
//!
//! The layers, lowest first; a module imports only what stands above it in this list:
//!
//! | layer | what it is |
//! | --- | --- |
//! | [`units`], [`limits`], [`sync`] | sizes, bounds, threads and time |
//! | [`layout`], [`codec`] | pure arithmetic from addresses to slots; parity and checksums |
//! | [`member`] | one disk: superblock, journal ring, slabs |
//! | [`pool`] | sets, placement, stripe writer, verified reader, epochs. Knows no files |
//! | [`store`] | journal, tables, checkpoint, recovery |
//! | [`cache`] | LRU write-back cache of file data |
//! | [`fs`] | POSIX rules, inodes, directories, file maps |
//! | [`maintain`] | long jobs, what happens to a pool and who is told |
//! | [`fuse`], [`control`] | the border: kernel requests, the socket of a mounted pool |

pub mod cache;
pub mod codec;
pub mod control;
pub mod fs;
pub mod fuse;
pub mod layout;
pub mod limits;
pub mod maintain;
pub mod member;
pub mod pool;
pub mod store;
pub mod sync;
pub mod units;
