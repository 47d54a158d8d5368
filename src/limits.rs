//! Sizes and limits of the whole program, in one place. Units stand in the names.

use crate::units::{GIB, KIB, MIB};

/// Most bytes of file data in one extent.
pub const EXTENT_MAX_BYTES: u64 = MIB;
/// Most bytes of each slot that one stripe takes, and that are written with one request: larger ones would
/// leave the processor's cache between being built and being written.
pub const STRIPE_MAX_BYTES: u64 = MIB;
/// Smallest and largest interleave (bytes of one column in one row).
pub const INTERLEAVE_MIN_BYTES: u64 = 64 * KIB;
/// See [`INTERLEAVE_MIN_BYTES`].
pub const INTERLEAVE_MAX_BYTES: u64 = MIB;
/// Interleave of a pool that was not told another.
pub const INTERLEAVE_DEFAULT_BYTES: u64 = 256 * KIB;
/// Most data columns that automatic columns use.
pub const AUTO_COLUMNS_MAX: u8 = 8;
/// Most data columns that a layout can be given.
pub const COLUMNS_MAX: u8 = 32;
/// Smallest and largest slab.
pub const SLAB_MIN_BYTES: u64 = MIB;
/// See [`SLAB_MIN_BYTES`].
pub const SLAB_MAX_BYTES: u64 = 256 * MIB;
/// A member is divided into about this many slabs.
pub const SLABS_PER_MEMBER: u64 = 1024;
/// Most slabs on one member.
pub const SLABS_MAX: u64 = 64 * 1024;
/// Smallest and largest journal ring.
pub const RING_MIN_BYTES: u64 = 8 * MIB;
/// See [`RING_MIN_BYTES`].
pub const RING_MAX_BYTES: u64 = 256 * MIB;
/// The ring takes this part (one over) of the smallest member.
pub const RING_SHARE: u64 = 64;
/// A node of a tree is encoded in about so many bytes at most; an entry that is larger has a node of its own.
pub const NODE_BYTES: usize = 16 * 1024;
/// Most bytes of one journal record, its header included.
pub const RECORD_MAX_BYTES: u64 = MIB;
/// Bytes of one superblock copy.
pub const SUPERBLOCK_COPY_BYTES: u64 = MIB;
/// Most members of one pool.
pub const MEMBERS_MAX: usize = 256;
/// Journal records that wait in memory are written out at about this size, however young they are.
pub const JOURNAL_WAITING_BYTES: u64 = 4 * MIB;
/// Longest name of a pool, in bytes.
pub const POOL_NAME_MAX_BYTES: usize = 64;
/// Longest file name, in bytes.
pub const NAME_MAX_BYTES: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_MAX_BYTES: usize = 4095;
/// Longest value of an extended attribute, in bytes (as Linux has it).
pub const XATTR_VALUE_MAX_BYTES: usize = 64 * 1024;
/// Most links to one file (as ext4 has it).
pub const LINKS_MAX: u32 = 65_000;
/// Largest file, in bytes: sixteen TiB and one sector less than the file map could address.
pub const FILE_MAX_BYTES: u64 = i64::MAX as u64 - 4095;
/// Most data that one fsync sends through the journal instead of building a stripe.
pub const SMALL_FSYNC_BYTES: u64 = 256 * KIB;
/// Content of files up to this size is kept in a table (see the `fs` module's `inline`). At most a sector.
pub const INLINE_MAX_BYTES: u64 = 2048;
/// The cache takes at most this much unless it is told otherwise.
pub const CACHE_DEFAULT_MAX_BYTES: u64 = GIB;
/// Memory for nodes of the metadata's trees unless it is told otherwise.
pub const META_CACHE_DEFAULT_BYTES: u64 = 64 * MIB;
/// Smallest `cache=` and `meta-cache=`.
pub const CACHE_MIN_BYTES: u64 = 8 * MIB;
/// Inodes kept in memory above which those are dropped with which nothing is going on (about 600 bytes each).
pub const NODES_KEPT: usize = 16 * 1024;
/// Most bytes that one flush gathers before it writes stripes.
pub const FLUSH_BATCH_BYTES: u64 = 16 * MIB;
