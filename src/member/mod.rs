//! One disk of a pool: a directory, a block device or image file, or a simulated disk.
//!
//! A member offers three kinds of areas ([`Area`]): two superblock copies, a journal ring and
//! numbered slabs. All bytes that poolfs keeps go through the one trait [`Disk`]; nothing reaches
//! around it. Above the raw areas stand the formats that describe a member by itself
//! ([`superblock`], [`header`]).

pub mod buffer;
pub mod device;
pub mod directory;
mod error;
mod file;
pub mod guard;
pub mod header;
mod lock;
pub mod metered;
pub mod open;
pub mod pulse;
pub mod request;
pub mod ring;
pub mod sim;
pub mod superblock;
pub mod wire;

pub use buffer::AlignedBuf;
pub use error::{MemberError, Result};
pub use lock::{PoolLock, lock_pool, runtime_dir};
pub use request::{Answer, Bytes, Inbox, Outcome, Reply, Request};

use crate::limits::SUPERBLOCK_COPY_BYTES;
use crate::units::{SECTOR, SECTOR_LEN};

/// Number of a slab on its member, from 0.
pub type SlabNo = u32;

/// Bytes of the header that every slab begins with; the payload follows it.
pub const SLAB_HEADER_BYTES: u64 = SECTOR;

/// One of the places of a member that bytes can be read from and written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// Superblock copy 0 (A) or 1 (B), each [`crate::limits::SUPERBLOCK_COPY_BYTES`] long.
    Superblock(u8),
    /// The journal ring, from 0 to the ring's size.
    Journal,
    /// A slab: its header, then its payload (see [`SLAB_HEADER_BYTES`]).
    Slab(SlabNo),
}

/// What kind of thing a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum DiskKind {
    /// A directory on a mounted file system.
    Directory,
    /// A block device.
    Device,
    /// A regular file that is laid out like a block device.
    Image,
    /// Memory, for tests.
    Simulated,
}

impl DiskKind {
    /// Whether [`Disk::list_slabs`] says which slabs exist: on a device or in an image all do, always.
    pub const fn lists_slabs(self) -> bool {
        !matches!(self, Self::Device | Self::Image)
    }
}

/// How much room a member has for slabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Slabs that may exist in all: what its limit or its size allows. On devices and images, every slab
    /// number must be below it.
    pub slabs: u64,
    /// Of a directory: slabs that the free space below would give beyond those that exist. Members on one
    /// file system share it, and it moves with what else is stored there.
    pub below: Option<u64>,
}

/// The sizes that fix where things lie on a member. Chosen once, when the member is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Dimensions {
    /// Payload bytes of a slab (a power of two); a slab takes [`SLAB_HEADER_BYTES`] more.
    pub slab_bytes: u64,
    /// Bytes of the journal ring, a multiple of the sector.
    pub ring_bytes: u64,
}

impl Dimensions {
    /// Bytes that one slab takes on a member, header included.
    pub const fn stride(&self) -> u64 {
        SLAB_HEADER_BYTES + self.slab_bytes
    }

    /// Bytes of an area.
    pub const fn area_bytes(&self, area: Area) -> u64 {
        match area {
            Area::Superblock(_) => SUPERBLOCK_COPY_BYTES,
            Area::Journal => self.ring_bytes,
            Area::Slab(_) => self.stride(),
        }
    }

    /// Refuses a transfer that leaves its area or does not keep to sectors: on a device it would hit
    /// the neighbour.
    fn check_transfer(&self, disk: &dyn Disk, area: Area, offset: u64, len: usize) -> Result<()> {
        let end = offset.checked_add(len as u64);
        let within = end.is_some_and(|end| end <= self.area_bytes(area));
        let known = !matches!(area, Area::Superblock(2..));
        if within && known && offset.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR_LEN) {
            return Ok(());
        }
        Err(MemberError::OutOfArea { path: disk.path(), area, offset, len: len as u64 })
    }
}

/// All I/O of one member.
///
/// Offsets and lengths are multiples of the sector, and buffers start on a sector's boundary in
/// memory ([`AlignedBuf`]), so that every implementation can pass them on with `O_DIRECT`.
/// Every transfer is whole or an error. Nothing is durable before [`Disk::sync`] of its area
/// returned; between two syncs writes may reach the medium in any order, or torn.
/// Calls may come from several threads at once.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// What kind of thing it is.
    fn kind(&self) -> DiskKind;

    /// Path or name, for people.
    fn path(&self) -> String;

    /// Fills `buf` from `area` at `offset`.
    ///
    /// # Errors
    /// [`MemberError::Io`] when the medium fails, [`MemberError::NoSlab`] for a slab that was never made.
    fn read(&self, area: Area, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `buf` to `area` at `offset`. See [`Disk::read`] for the errors.
    ///
    /// # Errors
    /// As [`Disk::read`]; also [`MemberError::NoSpace`] when the file system below is full.
    fn write(&self, area: Area, offset: u64, buf: &[u8]) -> Result<()>;

    /// Returns when all earlier writes to `area` are durable.
    ///
    /// # Errors
    /// [`MemberError::Io`]; then nothing is known of any write since the last sync that succeeded.
    fn sync(&self, area: Area) -> Result<()>;

    /// Makes slab `slab` with its whole space allocated, durably (as a name: the content is undefined
    /// and must be treated as unwritten). Making one that exists is no error.
    ///
    /// # Errors
    /// [`MemberError::NoSpace`] when there is no room: the member is full, not failed.
    fn create_slab(&self, slab: SlabNo) -> Result<()>;

    /// Gives a slab's space back. Deleting one that does not exist is no error.
    ///
    /// # Errors
    /// [`MemberError::Io`].
    fn delete_slab(&self, slab: SlabNo) -> Result<()>;

    /// The slabs that exist, in ascending order. Nothing where all exist always
    /// ([`DiskKind::lists_slabs`]).
    ///
    /// # Errors
    /// [`MemberError::Io`].
    fn list_slabs(&self) -> Result<Vec<SlabNo>>;

    /// Room for slabs, as of now.
    ///
    /// # Errors
    /// [`MemberError::Io`].
    fn room(&self) -> Result<Room>;

    /// Has a request carried out, and the outcome sent by `reply`. A disk that has threads of its own returns at
    /// once; the others return when it is done.
    fn start(&self, request: Request, reply: Reply) {
        let clock = reply.clock().clone();
        let (outcome, ended) = clock.aside(|| request.carry_out(self));
        reply.send(ended, outcome);
    }

    /// An id of the device below (`st_dev` for a directory or image, `st_rdev` for a device): members
    /// with equal ids fail together.
    fn device_id(&self) -> u64;
}
