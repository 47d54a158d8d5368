//! Where bytes lie: pure arithmetic from addresses to slots. No I/O, no locks, no metadata.
//!
//! A set has `n` slots. Its payload is one linear address space: row `r` holds `k x` [`Geometry::row_bytes`]
//! bytes, column after column. A stripe covers the same byte range in every slot.
//! Slots are rotated every [`Geometry::rotation_bytes`] of a slot, so that parity and copies move
//! from member to member.
//!
//! From a wish to a set: [`Resiliency`] is what people ask for, [`choose`] picks the members and the
//! [`Width`] of the next set, [`Geometry`] is the arithmetic of that set for the rest of its life.

mod capacity;
mod geometry;
mod resiliency;
mod stripe;
mod width;

#[cfg(test)]
mod published_arrays;

pub use capacity::{choose, usable_bytes};
pub use geometry::{BadGeometry, Geometry, Place, Redundancy, Run};
pub use resiliency::{BadResiliency, Kind, Resiliency};
pub use stripe::{Segment, Stripe};
pub use width::{Width, width_for};
