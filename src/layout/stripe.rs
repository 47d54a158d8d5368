//! The next stripe of a set, and how a stream of data is laid into it.

use super::geometry::{Geometry, Place};
use crate::units::{SECTOR, round_up};

/// What one flush writes: the bytes `offset .. offset + height` of every slot of a set.
///
/// It never crosses a rotation boundary, and is either some whole rows, or a *low* stripe: a part of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stripe {
    /// Offset in each slot, in bytes.
    pub offset: u64,
    /// Bytes in each slot, a multiple of the sector.
    pub height: u64,
}

/// A piece of a stripe's data that is contiguous in the stream, in addresses and in one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the data stream, in bytes.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Address in the set.
    pub address: u64,
    /// The data column, `0..k`.
    pub column: usize,
    /// Offset in the slot, in bytes.
    pub offset: u64,
}

impl Geometry {
    /// The next stripe of a set that is filled up to slot offset `fill`, for a stream with `remaining` bytes.
    /// Both are multiples of the sector, and `remaining` is not 0. `None` when the set is full.
    ///
    /// Whole rows where `fill` is at the start of one and there is data for them: as many as there are data
    /// for, up to the rotation boundary. Otherwise a low stripe, just high enough for what remains, up to
    /// the row's end. It can hold up to `k` sectors more than what remains: the rest of them is
    /// padding. It can hold less, too: then ask again for the rest.
    pub fn next_stripe(&self, fill: u64, remaining: u64) -> Option<Stripe> {
        if fill >= self.slab_bytes || remaining == 0 {
            return None;
        }
        let (k, row_bytes, rotation_bytes) =
            (u64::from(self.columns), self.row_bytes(), self.rotation_bytes());
        if fill.is_multiple_of(row_bytes) && remaining >= k * row_bytes {
            let rows =
                (remaining / (k * row_bytes)).min((rotation_bytes - fill % rotation_bytes) / row_bytes);
            return Some(Stripe { offset: fill, height: rows * row_bytes });
        }
        let wanted = round_up(remaining.div_ceil(k), SECTOR);
        Some(Stripe { offset: fill, height: wanted.min(row_bytes - fill % row_bytes) })
    }
}

impl Stripe {
    /// Bytes of data that it holds: `k x height`.
    pub fn data_bytes(&self, geometry: &Geometry) -> u64 {
        u64::from(geometry.columns) * self.height
    }

    /// How the stream's next [`Self::data_bytes`] are laid into the stripe, in the stream's order. Whole rows
    /// take them in the order of addresses. A low stripe cuts them by columns: column `c` takes
    /// `c * height .. (c + 1) * height`, so that what is contiguous in the stream stays in one slot.
    pub fn segments(&self, geometry: &Geometry) -> impl Iterator<Item = Segment> + use<> {
        let (geometry, stripe) = (*geometry, *self);
        // One column's bytes of one row of the stripe; a stripe without whole rows is one row.
        let len = stripe.height.min(geometry.row_bytes());
        let pieces = stripe.data_bytes(&geometry).checked_div(len).unwrap_or(0);
        (0..pieces).map(move |piece| {
            let k = u64::from(geometry.columns);
            let place = Place { column: (piece % k) as usize, offset: stripe.offset + piece / k * len };
            Segment {
                at: piece * len,
                len,
                address: geometry.address_of(place.column, place.offset),
                column: place.column,
                offset: place.offset,
            }
        })
    }
}

#[cfg(test)]
mod tests;
