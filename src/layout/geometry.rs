//! The arithmetic of one set: address <-> column and offset <-> slot.
//!
//! All offsets are offsets in the payload of a slot: the slab's header is not counted.
//!
//! ```text
//!            column 0          column 1         (k = 2, one row = 2 x row_bytes of address space)
//! row 0   addresses 0..r     r..2r
//! row 1            2r..3r   3r..4r
//! ```
//!
//! Which slot holds a column changes at every rotation boundary. With parity all `k + m` columns move on by
//! one slot. With copies the groups of slots that hold the copies of one column stay together, since two
//! lost slots then do harm only if they are of one group: the columns move on by a group, and
//! each time they have been all the way round, the copies move on within their group.

use serde::{Deserialize, Serialize};

use super::resiliency::interleave_is_possible;
use crate::limits::{COLUMNS_MAX, SLAB_MAX_BYTES};
use crate::units::MIB;

/// Bytes of a slot between rotations, where the slab is that large: coarse enough that a sequential reader
/// on a hard disk does not skip over parity, fine enough that random reads of one file use all members.
const ROTATION_BYTES: u64 = 4 * MIB;

/// What a set has besides its data columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Redundancy {
    /// Each data column is there so many times; 1 is no redundancy.
    Copies(u8),
    /// So many parity columns.
    Parity(u8),
}

impl Redundancy {
    /// Slots of a set with `columns` data columns.
    pub fn slots(self, columns: u8) -> usize {
        match self {
            Self::Copies(copies) => usize::from(columns) * usize::from(copies),
            Self::Parity(parity) => usize::from(columns) + usize::from(parity),
        }
    }

    /// Any this many slots can be lost, with nothing lost.
    pub fn tolerance(self) -> usize {
        match self {
            Self::Copies(copies) => usize::from(copies).saturating_sub(1),
            Self::Parity(parity) => usize::from(parity),
        }
    }
}

/// Why no set can be laid out so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadGeometry {
    /// Not 1 to [`COLUMNS_MAX`] data columns.
    #[error(
        "a set with {columns} data columns is not possible (1 to {COLUMNS_MAX} are): its record is damaged"
    )]
    Columns {
        /// What was claimed.
        columns: u8,
    },
    /// Not 1 to 4 copies, or not 1 to 3 parity columns.
    #[error("a set with {redundancy:?} is not possible: its record is damaged")]
    Redundancy {
        /// What was claimed.
        redundancy: Redundancy,
    },
    /// No possible interleave.
    #[error("a set with an interleave of {interleave} bytes is not possible: its record is damaged")]
    Interleave {
        /// What was claimed, in bytes.
        interleave: u64,
    },
    /// Slabs too small, too large, or no whole number of rotations.
    #[error("a set with slabs of {slab_bytes} bytes is not possible: its record is damaged")]
    Slab {
        /// What was claimed, in bytes.
        slab_bytes: u64,
    },
}

/// The layout of one set, fixed when the set is made.
///
/// Made by [`Geometry::new`], which checks it, as decoding does. The methods are pure arithmetic; they take
/// addresses below [`Geometry::payload_bytes`] and offsets below `slab_bytes`. Others do not panic, but what
/// they give lies in no set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Geometry {
    /// Copies or parity columns.
    pub redundancy: Redundancy,
    /// Data columns (k).
    pub columns: u8,
    /// Bytes of one column in one row, unless there is only one column ([`Geometry::row_bytes`]).
    pub interleave: u64,
    /// Payload bytes of each slot.
    pub slab_bytes: u64,
    /// Where the rotation starts: taken from the set's number, so that the sets of a pool start evenly.
    pub first: u32,
}

/// [`Geometry`] as bytes claim it to be, field for field.
#[derive(Deserialize)]
struct Unchecked {
    redundancy: Redundancy,
    columns: u8,
    interleave: u64,
    slab_bytes: u64,
    first: u32,
}

impl TryFrom<Unchecked> for Geometry {
    type Error = BadGeometry;

    fn try_from(raw: Unchecked) -> Result<Self, BadGeometry> {
        Self::new(raw.redundancy, raw.columns, raw.interleave, raw.slab_bytes, raw.first)
    }
}

/// Where an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The data column, `0..k`.
    pub column: usize,
    /// Offset in the slot, in bytes.
    pub offset: u64,
}

/// A piece of an address range that is contiguous in one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The data column, `0..k`.
    pub column: usize,
    /// Offset in the slot, in bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Where the piece starts in the range asked for, in bytes.
    pub at: u64,
}

impl Geometry {
    /// Checks and makes a geometry. Sizes in bytes; `slab_bytes` must be a whole number of rotations.
    ///
    /// # Errors
    /// [`BadGeometry`] names the value that no set can have.
    pub fn new(
        redundancy: Redundancy,
        columns: u8,
        interleave: u64,
        slab_bytes: u64,
        first: u32,
    ) -> Result<Self, BadGeometry> {
        if !(1..=COLUMNS_MAX).contains(&columns) {
            return Err(BadGeometry::Columns { columns });
        }
        // Metadata has up to four copies.
        if !matches!(redundancy, Redundancy::Copies(1..=4) | Redundancy::Parity(1..=3)) {
            return Err(BadGeometry::Redundancy { redundancy });
        }
        if !interleave_is_possible(interleave) {
            return Err(BadGeometry::Interleave { interleave });
        }
        let made = Self { redundancy, columns, interleave, slab_bytes, first };
        if !(interleave..=SLAB_MAX_BYTES).contains(&slab_bytes)
            || !slab_bytes.is_multiple_of(made.rotation_bytes())
        {
            return Err(BadGeometry::Slab { slab_bytes });
        }
        Ok(made)
    }

    /// Slots (n): `k x copies`, or `k + m`.
    pub fn slots(&self) -> usize {
        self.redundancy.slots(self.columns)
    }

    /// Any this many slots can be lost, with nothing lost.
    pub fn tolerance(&self) -> usize {
        self.redundancy.tolerance()
    }

    /// So many slots are enough to read everything, whichever they are.
    pub fn needed(&self) -> usize {
        self.slots().saturating_sub(self.tolerance())
    }

    /// Bytes of data that the set can hold: the end of its address space.
    pub fn payload_bytes(&self) -> u64 {
        self.slab_bytes * u64::from(self.columns)
    }

    /// Bytes of a slot between rotations: a power of two, a multiple of the interleave, at most a slab.
    pub fn rotation_bytes(&self) -> u64 {
        // The largest power of two within the slab, at most ROTATION_BYTES.
        ROTATION_BYTES.min(1 << self.slab_bytes.max(1).ilog2())
    }

    /// Bytes of one column in a row. With one data column a row is a whole rotation, so that every stripe
    /// is contiguous in addresses, of whatever height.
    pub fn row_bytes(&self) -> u64 {
        if self.columns == 1 { self.rotation_bytes() } else { self.interleave }
    }

    /// Copies of each data column: 1 with parity.
    fn copies(&self) -> usize {
        match self.redundancy {
            Redundancy::Copies(copies) => usize::from(copies),
            Redundancy::Parity(_) => 1,
        }
    }

    /// Number of the rotation at `offset`, counted from the set's start.
    fn turn(&self, offset: u64) -> u64 {
        u64::from(self.first) + offset / self.rotation_bytes()
    }

    /// The slot that holds physical `column` (`0..n`) at `offset`. Data columns are `0..k` and parity columns
    /// `k..k+m`; with copies, physical column `c * copies + i` is copy `i` of data column `c`.
    pub fn slot_of(&self, offset: u64, column: usize) -> usize {
        let turn = self.turn(offset);
        match self.redundancy {
            Redundancy::Parity(_) => add_modulo(column, turn, self.slots()),
            Redundancy::Copies(_) => {
                let (copies, k) = (self.copies(), usize::from(self.columns));
                let group = add_modulo(column / copies, turn, k);
                group * copies + add_modulo(column % copies, turn / k as u64, copies)
            }
        }
    }

    /// The physical column (`0..n`) that `slot` holds at `offset`: the inverse of [`Self::slot_of`].
    pub fn column_of(&self, offset: u64, slot: usize) -> usize {
        let turn = self.turn(offset);
        match self.redundancy {
            Redundancy::Parity(_) => subtract_modulo(slot, turn, self.slots()),
            Redundancy::Copies(_) => {
                let (copies, k) = (self.copies(), usize::from(self.columns));
                let column = subtract_modulo(slot / copies, turn, k);
                column * copies + subtract_modulo(slot % copies, turn / k as u64, copies)
            }
        }
    }

    /// The slots of all copies of data column `column` (`0..k`) at `offset`, copy 0 first; one with parity.
    pub fn copies_of(&self, column: usize, offset: u64) -> impl Iterator<Item = usize> + use<> {
        let geometry = *self;
        let copies = geometry.copies();
        (0..copies).map(move |copy| geometry.slot_of(offset, column * copies + copy))
    }

    /// Where `address` lies.
    pub fn locate(&self, address: u64) -> Place {
        let (k, row_bytes) = (u64::from(self.columns), self.row_bytes());
        let cell = address / row_bytes;
        Place { column: (cell % k) as usize, offset: cell / k * row_bytes + address % row_bytes }
    }

    /// The address of `offset` in data column `column` (`0..k`): the inverse of [`Self::locate`].
    pub fn address_of(&self, column: usize, offset: u64) -> u64 {
        let (k, row_bytes) = (u64::from(self.columns), self.row_bytes());
        (offset / row_bytes * k + column as u64) * row_bytes + offset % row_bytes
    }

    /// Cuts `len` bytes from `address` on into the pieces that are contiguous in one slot, in order.
    pub fn runs(&self, address: u64, len: u64) -> impl Iterator<Item = Run> + use<> {
        let geometry = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= len {
                return None;
            }
            let Place { column, offset } = geometry.locate(address + at);
            let row_bytes = geometry.row_bytes();
            let run = Run { column, offset, len: (row_bytes - offset % row_bytes).min(len - at), at };
            at += run.len;
            Some(run)
        })
    }
}

/// `index` (below `n`) moved on by `by`, round and round.
fn add_modulo(index: usize, by: u64, n: usize) -> usize {
    ((index as u64 + by) % n as u64) as usize
}

/// The inverse of [`add_modulo`].
fn subtract_modulo(index: usize, by: u64, n: usize) -> usize {
    let n = n as u64;
    ((index as u64 + n - by % n) % n) as usize
}

#[cfg(test)]
pub(super) mod tests;
