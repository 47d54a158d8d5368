//! How wide the next set can be.

use super::geometry::Redundancy;
use super::resiliency::{Kind, Resiliency};
use crate::limits::AUTO_COLUMNS_MAX;

/// The shape of a new set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Width {
    /// Copies or parity columns.
    pub redundancy: Redundancy,
    /// Data columns (k), at least 1.
    pub columns: u8,
    /// Whether this is less redundancy than was asked for, for want of members.
    pub short: bool,
}

impl Width {
    /// Members that the set takes, one slab on each.
    pub fn slots(&self) -> usize {
        self.redundancy.slots(self.columns)
    }
}

/// The widest set that `eligible` members allow; `None` when there is none.
///
/// Automatic columns take as many members as are eligible, at most [`AUTO_COLUMNS_MAX`] data columns.
/// Given columns are a wish, and narrow the same way, down to one. With fewer members than even that
/// needs, the set is [`Width::short`]: it has what redundancy the members left can carry.
pub fn width_for(resiliency: &Resiliency, eligible: usize) -> Option<Width> {
    let most = resiliency.columns.unwrap_or(AUTO_COLUMNS_MAX);
    let columns = |possible: usize| u8::try_from(possible).unwrap_or(u8::MAX).min(most).max(1);
    let full = |redundancy, columns| Some(Width { redundancy, columns, short: false });
    let short = |redundancy| Some(Width { redundancy, columns: 1, short: true });
    let few = u8::try_from(eligible).unwrap_or(u8::MAX);
    let copies = Redundancy::Copies(resiliency.copies);
    match resiliency.kind {
        _ if eligible == 0 => None,
        Kind::Simple => full(copies, columns(eligible)),
        Kind::Mirror | Kind::StripedMirror if few < resiliency.copies => short(Redundancy::Copies(few)),
        Kind::Mirror => full(copies, 1),
        Kind::StripedMirror => full(copies, columns(eligible / usize::from(resiliency.copies).max(1))),
        Kind::Parity if few == 1 => short(Redundancy::Copies(1)),
        Kind::Parity if few <= resiliency.parity => short(Redundancy::Parity(few - 1)),
        Kind::Parity => {
            let parity = resiliency.parity;
            full(Redundancy::Parity(parity), columns(eligible - usize::from(parity)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Redundancy::{Copies, Parity};
    use super::*;

    fn width(text: &str, eligible: usize) -> Option<(Redundancy, u8, bool)> {
        let width = width_for(&Resiliency::parse(text).unwrap(), eligible)?;
        assert!(width.slots() <= eligible && width.columns >= 1);
        Some((width.redundancy, width.columns, width.short))
    }

    #[test]
    fn nobody_to_write_to_gives_no_set() {
        for text in ["simple", "mirror", "mirror:3", "striped-mirror", "parity", "parity:3"] {
            assert_eq!(width(text, 0), None);
        }
    }

    #[test]
    fn automatic_columns_take_all_up_to_the_limit() {
        assert_eq!(width("simple", 3), Some((Copies(1), 3, false)));
        assert_eq!(width("simple", 300), Some((Copies(1), 8, false)));
        assert_eq!(width("parity", 3), Some((Parity(1), 2, false)));
        assert_eq!(width("parity:2", 10), Some((Parity(2), 8, false)));
        assert_eq!(width("parity:2", 40), Some((Parity(2), 8, false)));
        assert_eq!(width("striped-mirror", 7), Some((Copies(2), 3, false)));
        assert_eq!(width("striped-mirror:3", 7), Some((Copies(3), 2, false)));
        assert_eq!(width("mirror", 7), Some((Copies(2), 1, false)));
    }

    #[test]
    fn given_columns_narrow_down_to_one() {
        assert_eq!(width("parity columns=2", 9), Some((Parity(1), 2, false)));
        assert_eq!(width("parity:2 columns=32", 40), Some((Parity(2), 32, false)));
        assert_eq!(width("parity columns=4", 3), Some((Parity(1), 2, false)));
        assert_eq!(width("parity columns=4", 2), Some((Parity(1), 1, false)));
        assert_eq!(width("striped-mirror columns=2", 3), Some((Copies(2), 1, false)));
        assert_eq!(width("simple columns=4", 1), Some((Copies(1), 1, false)));
    }

    #[test]
    fn too_few_members_give_what_redundancy_is_left() {
        assert_eq!(width("mirror", 1), Some((Copies(1), 1, true)));
        assert_eq!(width("mirror:3", 2), Some((Copies(2), 1, true)));
        assert_eq!(width("striped-mirror:3", 2), Some((Copies(2), 1, true)));
        assert_eq!(width("parity", 1), Some((Copies(1), 1, true)));
        assert_eq!(width("parity:3 columns=8", 3), Some((Parity(2), 1, true)));
        assert_eq!(width("parity:2", 2), Some((Parity(1), 1, true)));
        assert_eq!(width("parity:2", 1), Some((Copies(1), 1, true)));
    }
}
