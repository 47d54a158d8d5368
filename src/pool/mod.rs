//! Sets, placement, the stripe writer and the verified reader, epochs and health of members. Knows no files.

pub mod status;

use crate::layout::Resiliency;
use crate::member::superblock::SetId;

/// What can go wrong in the pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No room.
    #[error("no space left in the pool for {resiliency}")]
    NoSpace {
        /// Asked for.
        resiliency: Resiliency,
    },
    /// Sectors that no combination of the slots gives back.
    #[error("set {set}: {sectors} sectors at {address} can't be read or rebuilt")]
    Unreadable {
        /// The set.
        set: SetId,
        /// First address.
        address: u64,
        /// How many.
        sectors: u64,
    },
    /// Opened read-only.
    #[error("the pool is mounted read-only")]
    ReadOnly,
}

/// Result of a pool operation.
pub type Result<T> = std::result::Result<T, PoolError>;

/// Data to be written: slices in order, each a multiple of the sector long.
#[derive(Debug)]
pub struct Chunk<'a>(pub Vec<&'a [u8]>);

/// Where a part of a chunk was written: one future extent.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Index of the chunk.
    pub chunk: usize,
    /// Offset in it.
    pub at: u64,
    /// Bytes, at most [`crate::limits::EXTENT_MAX_BYTES`], a multiple of the sector.
    pub len: u64,
    /// The set.
    pub set: SetId,
    /// Address in the set.
    pub address: u64,
    /// CRC-32C of each sector.
    pub sums: Vec<u32>,
}

/// Stripes that are written and synced, and the promise that their sets stay until it is dropped: commit
/// what refers to them before.
#[derive(Debug)]
pub struct Written {
    /// All pieces of all chunks, ordered by chunk and offset.
    pub pieces: Vec<Piece>,
}

/// The members and their sets.
#[derive(Debug)]
pub struct Pool {}

impl Pool {
    /// Sets space aside for `bytes` of file data that are about to become dirty.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]: flush (which turns reservations into what is really used), then try again, then ENOSPC.
    pub fn reserve(&self, resiliency: &Resiliency, bytes: u64) -> Result<()> { let _ = (resiliency, bytes); todo!() }
    /// Gives a reservation back: the data was written, or dropped.
    pub fn release(&self, resiliency: &Resiliency, bytes: u64) { let _ = (resiliency, bytes); todo!() }
    /// Writes chunks as full stripes and syncs them. Members that fail on the way are dropped and what they
    /// should have taken is written elsewhere.
    pub fn write(&self, resiliency: &Resiliency, chunks: &[Chunk]) -> Result<Written> { let _ = (resiliency, chunks); todo!() }
    /// Reads, verifies, and where needed rebuilds and heals. `address` and `buf` are whole sectors; `sums` has one
    /// checksum for each.
    pub fn read(&self, set: SetId, address: u64, sums: &[u32], buf: &mut [u8]) -> Result<()> { let _ = (set, address, sums, buf); todo!() }
    /// Room for `resiliency`: bytes of payload in all, and what can still be written now (reservations and the reserve taken off).
    pub fn space(&self, resiliency: &Resiliency) -> status::Space { let _ = resiliency; todo!() }
    /// The state of the pool for people and programs.
    pub fn status(&self) -> status::PoolStatus { todo!() }
    /// Whether the pool was assembled read-only.
    pub fn read_only(&self) -> bool { todo!() }
    /// Resiliency of the root directory.
    pub fn default_resiliency(&self) -> Resiliency { todo!() }
}

/// What to make a pool from.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<crate::member::open::MemberSpec>,
    /// Resiliency of the root directory.
    pub resiliency: Resiliency,
    /// Payload bytes of a slab; chosen from the members' sizes if not given.
    pub slab_bytes: Option<u64>,
    /// Take members that were used before.
    pub force: bool,
}

/// Makes a pool. Everything is checked before anything is written.
pub fn create(options: &CreateOptions) -> Result<uuid::Uuid> { let _ = options; todo!() }

/// What to do when members are missing at mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degraded {
    /// Mount if everything can be read; read-only where newer data may be on the missing members.
    Auto,
    /// Mount if everything can be read.
    Yes,
    /// Only with every member.
    No,
    /// Read-only, what can be read.
    Partial,
}

/// How to put a pool together.
#[derive(Debug, Clone)]
pub struct AssembleOptions {
    /// Write nothing.
    pub read_only: bool,
    /// How long to wait for members that are not there yet.
    pub wait: std::time::Duration,
    /// What to do when members are missing.
    pub degraded: Degraded,
    /// Go on although acknowledged records or newer members are lost.
    pub force: bool,
    /// Override of the pool's own setting.
    pub refuse_short_writes: Option<bool>,
    /// Mount a diverged member by itself (with `read_only`).
    pub diverged: bool,
}

impl Pool {
    /// Finds, locks and opens the members (those named, and the others where the pool last saw them), picks the
    /// freshest superblock, and refuses with names and numbers what must not be mounted.
    pub fn assemble(paths: &[std::path::PathBuf], options: &AssembleOptions) -> Result<crate::sync::Arc<Self>> { let _ = (paths, options); todo!() }
}
