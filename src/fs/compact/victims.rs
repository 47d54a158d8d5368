//! Which set to rewrite next, and how fast to go. Pure.

use std::cmp::Reverse;
use std::time::Duration;

use crate::layout::Resiliency;
use crate::pool::{SetUsage, WaitingRoom};
use crate::units::{KIB, MIB};

/// Rest when there is nothing to do.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// Longest rest between two steps.
const REST_MAX: Duration = Duration::from_secs(5);
/// Freed sets become usable with checkpoints, and those cost the more the more often they are taken: so with less
/// than this usable, one is taken once this share is waiting, or so many bytes that the trees are small beside them.
const HARVEST_FREE_PERMILLE: u64 = 40;
/// See [`HARVEST_FREE_PERMILLE`].
const HARVEST_PERMILLE: u64 = 80;
/// See [`HARVEST_FREE_PERMILLE`].
const HARVEST_MIN_BYTES: u64 = 128 * MIB;
/// See [`HARVEST_FREE_PERMILLE`]: so many times the bytes of the trees.
const HARVEST_TREES: u64 = 16;
/// What rewriting a set costs beside moving its bytes: looking at its extents, records, checkpoints.
const SET_COST_BYTES: u64 = 256 * KIB;

/// Whether checkpoints are worth taking only to make freed sets usable. `free`: of the room, in thousandths, with what
/// is waiting.
pub(super) fn is_harvest_due(free: u64, waiting: WaitingRoom, tree_bytes: u64) -> bool {
    free.saturating_sub(waiting.permille) < HARVEST_FREE_PERMILLE && is_harvest(waiting, tree_bytes, 1)
}

/// The same for somebody who waits for room: half a harvest will do.
pub(super) fn is_harvest_enough(waiting: WaitingRoom, tree_bytes: u64) -> bool {
    is_harvest(waiting, tree_bytes, 2)
}

/// Whether a `part`th of a harvest is waiting.
fn is_harvest(waiting: WaitingRoom, tree_bytes: u64, part: u64) -> bool {
    let bytes = HARVEST_MIN_BYTES + HARVEST_TREES * tree_bytes;
    waiting.permille >= HARVEST_PERMILLE / part || waiting.bytes >= bytes / part
}

/// How fast to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// A set is rewritten if at most so many thousandths of it are alive.
    pub live_most: u64,
    /// Rest so many times as long as the step took.
    pub rest: u32,
}

impl Pace {
    /// Somebody waits for room: everything that gains anything.
    pub const FLAT_OUT: Self = Self { live_most: 985, rest: 0 };

    /// Somebody waits for room, and some comes with the next checkpoints: what is not worth much is left.
    pub const SWIFT: Self = Self { live_most: 750, rest: 0 };

    /// The pace when so many thousandths of the room are free, with what comes with the next checkpoints. The later a set
    /// is rewritten, the more of it is dead by itself: so not much is done ahead.
    pub fn of(free_permille: u64) -> Self {
        match free_permille {
            201.. => Self { live_most: 250, rest: 20 },
            151..=200 => Self { live_most: 500, rest: 4 },
            101..=150 => Self { live_most: 900, rest: 1 },
            _ => Self { live_most: 950, rest: 0 },
        }
    }

    /// How long to rest after a step that took so long.
    pub fn rest_after(self, took: Duration) -> Duration {
        took.saturating_mul(self.rest).min(REST_MAX)
    }
}

/// The set that gives back most for what has to be moved. `room`: what can be written in a layout now; a set
/// is begun only if all that is alive in it fits.
pub(super) fn best(sets: &[SetUsage], pace: Pace, room: impl Fn(&Resiliency) -> u64) -> Option<SetUsage> {
    let mut worth: Vec<&SetUsage> = sets.iter().filter(|set| is_worth_it(set, pace)).collect();
    worth.sort_by_key(|set| Reverse(benefit(set)));
    worth.into_iter().find(|set| needs(set) <= room(&set.resiliency)).copied()
}

fn is_worth_it(set: &SetUsage, pace: Pace) -> bool {
    !set.open && set.gains() && live(set) * 1000 <= set.capacity * pace.live_most
}

fn live(set: &SetUsage) -> u64 {
    set.live.max(0) as u64
}

/// Bytes given back for each MiB of work.
fn benefit(set: &SetUsage) -> u64 {
    set.gain().saturating_mul(MIB) / (live(set) + SET_COST_BYTES)
}

/// What is alive, with the padding of each step.
fn needs(set: &SetUsage) -> u64 {
    live(set) + live(set) / 128 + if live(set) > 0 { 4 * KIB } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::{IDLE, Pace, REST_MAX, SetUsage};
    use crate::layout::Resiliency;
    use crate::units::MIB;
    use std::time::Duration;

    fn set(id: u64, live: i64, open: bool) -> SetUsage {
        let resiliency = Resiliency::parse("mirror").expect("known");
        SetUsage { id, resiliency, capacity: 64 * MIB, live, open, stuck: false }
    }

    fn best(sets: &[SetUsage], pace: Pace, room: impl Fn(&Resiliency) -> u64) -> Option<u64> {
        super::best(sets, pace, room).map(|set| set.id)
    }

    const M: i64 = MIB as i64;

    #[test]
    fn the_deadest_closed_set_that_fits_comes_first() {
        let sets = [set(1, 40 * M, false), set(2, 10 * M, false), set(3, 0, true), set(4, 20 * M, false)];
        let plenty = |_: &Resiliency| u64::MAX;
        assert_eq!(best(&sets, Pace::FLAT_OUT, plenty), Some(2));
        assert_eq!(best(&sets[..1], Pace::FLAT_OUT, plenty), Some(1));
        assert_eq!(best(&sets, Pace::FLAT_OUT, |_| 9 * MIB), None);
        let stuck = [SetUsage { stuck: true, ..sets[1] }, sets[3]];
        assert_eq!(best(&stuck, Pace::FLAT_OUT, plenty), Some(4));
    }

    #[test]
    fn what_is_nearly_full_of_live_data_is_left_alone_until_space_is_short() {
        let plenty = |_: &Resiliency| u64::MAX;
        let sets = [set(1, 60 * M, false), set(2, 64 * M, false)];
        assert_eq!(best(&sets, Pace::of(500), plenty), None);
        assert_eq!(best(&sets, Pace::of(150), plenty), None);
        assert_eq!(best(&sets, Pace::of(10), plenty), Some(1));
        assert_eq!(best(&sets[1..], Pace::FLAT_OUT, plenty), None);
    }

    #[test]
    fn it_goes_faster_the_shorter_space_gets() {
        let rests: Vec<u32> = [900, 201, 200, 150, 100, 0].map(|free| Pace::of(free).rest).to_vec();
        assert!(rests.is_sorted_by(|a, b| a >= b), "{rests:?}");
        assert_eq!(Pace::of(0).rest_after(IDLE), Duration::ZERO);
        assert_eq!(Pace::of(900).rest_after(Duration::from_secs(9)), REST_MAX);
    }
}
