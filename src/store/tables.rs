//! The tables: what their keys and values are.
//!
//! Keys are bytes whose order is the order of what they stand for: numbers are big-endian. Values are
//! packed by [`crate::member::wire`].

use serde::{Deserialize, Serialize};

use crate::layout::Resiliency;
use crate::member::superblock::SetId;
use crate::sync::Timestamp;

/// Number of an inode. The root directory is [`ROOT_INO`]; numbers are never used again.
pub type Ino = u64;
/// Number of an extent, never used again.
pub type ExtentId = u64;

/// The root directory (as FUSE has it).
pub const ROOT_INO: Ino = 1;

/// The tables of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Table {
    /// [`ino_key`] -> [`Inode`].
    Inodes,
    /// [`entry_key`] -> [`Entry`]: what a directory holds, by name.
    Entries,
    /// [`cookie_key`] -> [`CookieEntry`]: the same by cookie, in the order that readdir gives.
    Cookies,
    /// [`xattr_key`] -> the value's bytes as they are.
    Xattrs,
    /// [`map_key`] -> [`MapEntry`]: which extent holds which range of a file.
    Map,
    /// [`extent_key`] -> [`Extent`].
    Extents,
    /// [`ref_key`] -> u32: bytes of an extent that a file refers to. That an extent's [`Owner`] refers to all of it,
    /// and nobody else to anything, goes without saying, so most extents have no row here.
    Refs,
    /// [`place_key`] -> [`Batch`]: extents that were written to a set side by side, from this address on. A row is
    /// written once and stays as it is until the set is free: what its extents became is in [`Table::Extents`].
    Places,
    /// [`set_key`] -> [`crate::member::superblock::SetRecord`]. Written by the store alone.
    Sets,
    /// [`ino_key`] -> nothing: unlinked, but open when last seen.
    Orphans,
    /// [`ino_key`] -> [`Intent`]: a removal of many records that is under way.
    Intents,
    /// A name -> u64: counters.
    Counters,
    /// [`ino_key`] -> the first bytes of a small file, as they are.
    Inline,
    /// [`set_key`] -> nothing: sets that are free, and whose rows in [`Table::Places`] are still to go.
    Freed,
    /// [`number_key`] -> a job that is to go on after a crash (see `maintain`).
    Jobs,
    /// [`damage_key`] -> sectors of an extent that nothing gives back (see `maintain`).
    Damage,
    /// [`number_key`] -> something that happened (see `maintain`).
    Events,
    /// A name -> a setting, as text.
    Settings,
}

impl Table {
    /// All tables, in the order of their numbers.
    pub const ALL: [Table; 18] = [
        Table::Inodes,
        Table::Entries,
        Table::Cookies,
        Table::Xattrs,
        Table::Map,
        Table::Extents,
        Table::Refs,
        Table::Places,
        Table::Sets,
        Table::Orphans,
        Table::Intents,
        Table::Counters,
        Table::Inline,
        Table::Freed,
        Table::Jobs,
        Table::Damage,
        Table::Events,
        Table::Settings,
    ];
}

/// Everything about a file but its data and its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead here.
    pub nlink: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Tells apart successive files of one number for NFS; numbers are not reused, so always 1 here.
    pub generation: u64,
    /// Bytes.
    pub size: u64,
    /// Sectors that extents and reservations hold for this file, and one for its content in [`Table::Inline`]
    /// (`st_blocks` is eight times it).
    pub sectors: u64,
    /// What its first sector holds is in [`Table::Inline`], and not in [`Table::Map`].
    pub inline: bool,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of this record.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// Of a directory: the directory it is in.
    pub parent: Ino,
    /// Of a directory: the cookie that the next entry gets (first is 3; 1 and 2 are `.` and `..`).
    pub next_cookie: u64,
    /// Of a directory: how many entries it has.
    pub entries: u64,
    /// How its data is kept.
    pub resiliency: Resiliency,
    /// Where a symbolic link leads.
    pub target: Option<Vec<u8>>,
}

/// What a name in a directory leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The inode.
    pub ino: Ino,
    /// Its type: the `S_IFMT` bits of the mode.
    pub kind: u32,
    /// Key of the same entry in [`Table::Cookies`].
    pub cookie: u64,
}

/// The same entry seen from its cookie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CookieEntry {
    /// The name, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// The inode.
    pub ino: Ino,
    /// Its type, as in [`Entry`].
    pub kind: u32,
}

/// What holds a range of a file, from the offset in its key. Ranges of one file do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapEntry {
    /// Length in bytes, a multiple of the sector.
    pub len: u64,
    /// The extent and the offset in it (a multiple of the sector); none for space that fallocate
    /// reserved and nothing was written to.
    pub extent: Option<(ExtentId, u32)>,
}

/// An immutable run of file data. Its record changes only when it moves to another place, so that neither
/// an overwrite nor sharing rewrites the checksums. One to which nobody refers any more is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The set it lies in.
    pub set: SetId,
    /// Address in the set's payload, a multiple of the sector.
    pub address: u64,
    /// Bytes, a multiple of the sector, at most [`crate::limits::EXTENT_MAX_BYTES`].
    pub len: u32,
    /// For whom it was written.
    pub owner: Owner,
    /// CRC-32C of each sector.
    #[serde(with = "sum_bytes")]
    pub sums: Vec<u32>,
}

impl Extent {
    /// Where it lies.
    pub fn place(&self) -> Place {
        Place { set: self.set, address: self.address, len: self.len }
    }

    /// Everything but the checksums.
    pub fn head(&self) -> ExtentHead {
        ExtentHead { place: self.place(), owner: self.owner }
    }
}

/// The file for which an extent was written, and the offset in the file less that in the extent (wrapping). It
/// refers to all of the extent, unless a row of [`Table::Refs`] has another number of bytes for it (0 where it
/// refers to nothing of it any more).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The file.
    pub ino: Ino,
    /// As in [`ref_key`].
    pub origin: u64,
}

/// What the record of an [`Extent`] begins with: all but the checksums, so that they need not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentHead {
    /// Where it lies.
    pub place: Place,
    /// For whom it was written.
    pub owner: Owner,
}

/// Extents that were written side by side, and their lengths in bytes.
pub type Batch = Vec<(ExtentId, u32)>;

/// Most extents of a [`Batch`].
pub const BATCH_MAX: usize = 64;

/// Where an extent lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The set.
    pub set: SetId,
    /// Address in the set's payload, a multiple of the sector.
    pub address: u64,
    /// Bytes, a multiple of the sector, at most [`crate::limits::EXTENT_MAX_BYTES`].
    pub len: u32,
}

/// Checksums as bytes, four each, little-endian: as numbers they would take five.
mod sum_bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(sums: &[u32], to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        to.serialize_bytes(&bytes)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u32>, D::Error> {
        let bytes = serde_bytes::ByteBuf::deserialize(from)?;
        let (sums, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(D::Error::custom("the checksums end in the middle of one"));
        }
        Ok(sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
    }
}

/// A removal that takes more than one record. What it names reads as gone from the moment it is there;
/// recovery finishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intent {
    /// Everything of the file's map from this offset on is to go.
    CutMap {
        /// First byte that goes, a multiple of the sector.
        from: u64,
    },
}

/// Key of [`Table::Inodes`], [`Table::Orphans`], [`Table::Intents`] and [`Table::Inline`].
pub fn ino_key(ino: Ino) -> Vec<u8> {
    ino.to_be_bytes().to_vec()
}

/// Key of [`Table::Entries`]; with an empty name, the lower bound of a directory's entries.
pub fn entry_key(parent: Ino, name: &[u8]) -> Vec<u8> {
    let mut key = parent.to_be_bytes().to_vec();
    key.extend_from_slice(name);
    key
}

/// Key of [`Table::Cookies`].
pub fn cookie_key(parent: Ino, cookie: u64) -> Vec<u8> {
    pair_key(parent, cookie)
}

/// Key of [`Table::Xattrs`]; with an empty name, the lower bound of a file's attributes.
pub fn xattr_key(ino: Ino, name: &[u8]) -> Vec<u8> {
    entry_key(ino, name)
}

/// Key of [`Table::Map`].
pub fn map_key(ino: Ino, offset: u64) -> Vec<u8> {
    pair_key(ino, offset)
}

/// Key of [`Table::Extents`].
pub fn extent_key(extent: ExtentId) -> Vec<u8> {
    extent.to_be_bytes().to_vec()
}

/// Key of [`Table::Refs`]: file `ino` refers to the extent with segments whose offset in the file less the
/// offset in the extent is `origin` (wrapping: it may be below 0).
pub fn ref_key(extent: ExtentId, ino: Ino, origin: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(24);
    for part in [extent, ino, origin] {
        key.extend_from_slice(&part.to_be_bytes());
    }
    key
}

/// Key of [`Table::Places`].
pub fn place_key(set: SetId, address: u64) -> Vec<u8> {
    pair_key(set, address)
}

/// Key of [`Table::Damage`]: the extent, and the offset in it of the first sector, in bytes.
pub fn damage_key(extent: ExtentId, at: u64) -> Vec<u8> {
    pair_key(extent, at)
}

/// Key of [`Table::Jobs`] and [`Table::Events`].
pub fn number_key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Above every key of [`Table::Sets`].
pub const SET_KEY_MAX: [u8; 9] = [0xff; 9];

/// Key of [`Table::Sets`].
pub fn set_key(set: SetId) -> Vec<u8> {
    set.to_be_bytes().to_vec()
}

fn pair_key(first: u64, second: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    key.extend_from_slice(&first.to_be_bytes());
    key.extend_from_slice(&second.to_be_bytes());
    key
}

/// The two numbers of a key of two, such as [`map_key`]'s; none when the key has another length.
pub fn split_pair(key: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = key.split_at_checked(8)?;
    Some((u64::from_be_bytes(first.try_into().ok()?), u64::from_be_bytes(second.try_into().ok()?)))
}

/// The extent, inode and origin of a [`ref_key`]; none when the key has another length.
pub fn split_ref(key: &[u8]) -> Option<(ExtentId, Ino, u64)> {
    let (extent, rest) = key.split_at_checked(8)?;
    let (ino, origin) = split_pair(rest)?;
    Some((u64::from_be_bytes(extent.try_into().ok()?), ino, origin))
}

/// The number of a key of one; none when the key has another length.
pub fn single(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}
