//! Where bytes lie: pure arithmetic from addresses to slots. No I/O, no locks, no metadata.
//!
//! A set has `n` slots. Its payload is one linear address space: row `r` holds `k x interleave`
//! bytes, column after column. A stripe covers the same byte range in every slot.
//! Slots are rotated every [`Geometry::rotation_bytes`] of a slot, so that parity and copies move
//! from member to member.

mod capacity;
mod geometry;
mod resiliency;
mod width;

pub use capacity::usable_bytes;
pub use geometry::{Geometry, Place, Redundancy, Run, Stripe};
pub use resiliency::{BadResiliency, Kind, Resiliency};
pub use width::{Width, width_for};
