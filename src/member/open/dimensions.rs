//! Choosing the sizes that all members of a new pool share.

use super::super::error::{MemberError, Result};
use super::super::{Dimensions, device};
use crate::limits::{
    RING_MAX_BYTES, RING_MIN_BYTES, RING_SHARE, SLAB_MAX_BYTES, SLAB_MIN_BYTES, SLABS_MAX, SLABS_PER_MEMBER,
};
use crate::units::{MIB, format_size, round_up};

/// Fewest slabs that a member must have room for.
pub const SLABS_MIN: u64 = 4;

/// Bytes that a member of any kind must offer at least.
pub const fn required_bytes(dimensions: &Dimensions) -> u64 {
    // A device keeps the same things as a directory, and rounds up; so its need is enough for both.
    device::overhead_bytes(dimensions) + SLABS_MIN * dimensions.stride()
}

/// Slabs that fit a member which offers `bytes` (see [`super::capacity`]).
pub const fn slabs_in(bytes: u64, dimensions: &Dimensions) -> u64 {
    bytes.saturating_sub(device::overhead_bytes(dimensions)) / dimensions.stride()
}

/// Chooses the sizes of slab and ring for members that offer `capacities` bytes each (see
/// [`super::capacity`]). `slab` is what the user asked for; `interleave` is in bytes.
///
/// A slab is about a 1024th of the smallest member, a power of two, at least the interleave, and larger
/// where the largest member would otherwise have more than [`SLABS_MAX`] slabs.
///
/// # Errors
/// [`MemberError::BadSlabSize`] for a slab that can't be; [`MemberError::TooSmall`] for the smallest member
/// when it can't hold what [`required_bytes`] says, named by its place in the list.
pub fn choose_dimensions(capacities: &[u64], slab: Option<u64>, interleave: u64) -> Result<Dimensions> {
    let smallest = capacities.iter().copied().min().unwrap_or(0);
    let largest = capacities.iter().copied().max().unwrap_or(0);
    let slab_bytes = match slab {
        Some(slab) => check_slab(slab, largest, interleave)?,
        None => automatic_slab(smallest, largest, interleave),
    };
    let ring_bytes = round_up(smallest / RING_SHARE, MIB).clamp(RING_MIN_BYTES, RING_MAX_BYTES);
    let dimensions = Dimensions { slab_bytes, ring_bytes };
    let need = required_bytes(&dimensions);
    match capacities.iter().position(|&have| have < need) {
        None => Ok(dimensions),
        Some(at) => Err(MemberError::TooSmall {
            name: format!("member {} of {}", at + 1, capacities.len()),
            have: capacities[at],
            need,
            ring: ring_bytes,
            slabs: SLABS_MIN,
            slab: slab_bytes,
        }),
    }
}

fn automatic_slab(smallest: u64, largest: u64, interleave: u64) -> u64 {
    let share = (smallest / SLABS_PER_MEMBER).max(1);
    let rounded = 1 << share.ilog2();
    let needed = largest.div_ceil(SLABS_MAX).checked_next_power_of_two().unwrap_or(SLAB_MAX_BYTES);
    rounded.max(needed).max(interleave).clamp(SLAB_MIN_BYTES, SLAB_MAX_BYTES)
}

fn check_slab(slab: u64, largest: u64, interleave: u64) -> Result<u64> {
    let bad = |why: String| Err(MemberError::BadSlabSize { slab, why });
    if !slab.is_power_of_two() || !(SLAB_MIN_BYTES..=SLAB_MAX_BYTES).contains(&slab) {
        let (min, max) = (format_size(SLAB_MIN_BYTES), format_size(SLAB_MAX_BYTES));
        return bad(format!("take a power of two from {min} to {max}"));
    }
    if slab < interleave {
        return bad(format!("a slab holds at least one interleave, which is {}", format_size(interleave)));
    }
    if slab < SLAB_MAX_BYTES && largest / slab > SLABS_MAX {
        return bad(format!(
            "the largest member offers {}, more than {SLABS_MAX} slabs of it",
            format_size(largest)
        ));
    }
    Ok(slab)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GIB, KIB, TIB};

    fn chosen(capacities: &[u64]) -> (u64, u64) {
        let chosen = choose_dimensions(capacities, None, 256 * KIB).unwrap();
        assert_eq!(chosen.validate(), Ok(()));
        (chosen.slab_bytes / MIB, chosen.ring_bytes / MIB)
    }

    #[test]
    fn sizes_follow_the_smallest_member_within_limits() {
        assert_eq!(chosen(&[20 * MIB; 2]), (1, 8));
        assert_eq!(chosen(&[GIB]), (1, 16));
        assert_eq!(chosen(&[5 * GIB, 9 * GIB]), (4, 80));
        assert_eq!(chosen(&[TIB]), (256, 256));
        assert_eq!(chosen(&[15 * TIB; 3]), (256, 256));
        // A small member beside a large one: the large one decides, for the sake of its slabs' count.
        assert_eq!(chosen(&[4 * GIB, TIB]), (16, 64));
    }

    #[test]
    fn a_given_slab_is_checked() {
        let with = |slab, interleave| choose_dimensions(&[GIB], Some(slab), interleave);
        assert_eq!(with(2 * MIB, 64 * KIB).unwrap().slab_bytes, 2 * MIB);
        for slab in [0, 1, 512 * KIB, 3 * MIB, 512 * MIB] {
            assert!(matches!(with(slab, 64 * KIB), Err(MemberError::BadSlabSize { .. })), "{slab}");
        }
        assert!(choose_dimensions(&[TIB], Some(MIB), 64 * KIB).is_err());
    }

    #[test]
    fn members_without_room_are_named_with_the_numbers() {
        let error = choose_dimensions(&[GIB, 8 * MIB], None, 256 * KIB).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("member 2 of 2") && text.contains("8.0 MiB") && text.contains("14.0 MiB"),
            "{text}"
        );
        assert!(choose_dimensions(&[300 * MIB], Some(256 * MIB), MIB).is_err());
        assert!(choose_dimensions(&[], None, MIB).is_ok());
        assert!(choose_dimensions(&[0], None, MIB).is_err());
    }
}
