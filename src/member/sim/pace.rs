//! How long a simulated disk takes.

use std::time::Duration;

use super::disk::SimDisk;
use super::next_random;
use crate::member::Area;

/// The speed of a disk. By default it takes no time at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// What each request takes, one after the other.
    pub request: Duration,
    /// Up to so much more, by chance.
    pub spread: Duration,
    /// Bytes that it moves in a second, one request after the other; 0: any number at once.
    pub bytes_per_second: u64,
    /// How much later each answer comes, many beside each other.
    pub delay: Duration,
}

/// A write that reaches the medium later than it was made.
#[derive(Debug)]
pub(super) struct Late {
    pub at: Duration,
    pub area: Area,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// What the requests of one disk take.
#[derive(Debug)]
pub(super) struct Pacer {
    pace: Pace,
    random: u64,
    busy_until: Duration,
    pub hang_until: Duration,
    pub late: Vec<Late>,
}

impl Pacer {
    pub(super) fn new(seed: u64) -> Self {
        let zero = Duration::ZERO;
        Self { pace: Pace::default(), random: seed, busy_until: zero, hang_until: zero, late: Vec::new() }
    }

    /// How long a request takes that comes now.
    pub(super) fn wait(&mut self, now: Duration, bytes: u64) -> Duration {
        let Pace { request, spread, bytes_per_second, delay } = self.pace;
        let spread = match spread.as_nanos() as u64 {
            0 => 0,
            most => next_random(&mut self.random) % most,
        };
        let moving = match bytes_per_second {
            0 => 0,
            rate => bytes.saturating_mul(1_000_000_000) / rate,
        };
        let work = request + Duration::from_nanos(spread + moving);
        self.busy_until = self.busy_until.max(now) + work;
        (self.busy_until + delay).max(self.hang_until) - now
    }

    /// The late writes that are due, in the order in which they were made.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<Late> {
        if self.late.is_empty() {
            return Vec::new();
        }
        let (due, later) = std::mem::take(&mut self.late).into_iter().partition(|late| late.at <= now);
        self.late = later;
        due
    }
}

/// Time.
impl SimDisk {
    /// How fast the disk is from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.with_pacer(|pacer, _| pacer.pace = pace);
    }

    /// Nothing that is asked from now on ends earlier than `how_long` from now, and no write reaches the medium
    /// before.
    pub fn hang_for(&self, how_long: Duration) {
        self.with_pacer(|pacer, now| pacer.hang_until = now + how_long);
    }
}
