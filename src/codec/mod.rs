//! Parity and checksums: pure arithmetic on bytes in memory.
//!
//! Parity columns over data columns `d_0 .. d_(k-1)`, byte for byte, in the field GF(2^8) with the polynomial
//! 0x11d (the one of Linux RAID 6 and of triple parity):
//!
//! ```text
//! P = sum of d_i          Q = sum of 2^i d_i          R = sum of 4^i d_i
//! ```
//!
//! Any `k` of the `k + m` columns give all the others: the coefficients are rows 0, 1 and 2 of a Vandermonde
//! matrix, and squaring is a bijection in this field, so no square piece of the three rows is singular.
//!
//! There are no tables and no intrinsics: everything is made of XOR and of doubling, which the compiler turns
//! into vector instructions on every processor.

mod checksum;
mod combine;
mod encode;
mod field;
mod solve;

#[cfg(test)]
mod tests;

pub use checksum::{checksum, checksums};
pub use encode::encode;
pub use solve::{CodecError, reconstruct};

/// Most parity columns.
pub const PARITY_MAX: usize = 3;
