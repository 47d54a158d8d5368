//! Trouble of one member, counted by kind: since the mount, and in the last ten minutes.

use std::time::Duration;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Read errors of one member within [`WINDOW`] after which it is set aside. A patch of bad sectors that a scrub
/// meets stays below that, and is healed; a disk that gives up passes it within seconds.
pub const READ_ERRORS_MOST: u64 = 50;
/// Unanswered requests of one member within [`WINDOW`] after which it is set aside, if they were only reads. (A
/// write that is not answered sets it aside at once.)
pub const TIMEOUTS_MOST: u64 = 3;
/// How long an error counts as recent, rounded up to a minute.
pub const WINDOW: Duration = Duration::from_secs(600);

const MINUTES: usize = WINDOW.as_secs() as usize / 60;

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Failed reads.
    Read,
    /// Failed writes.
    Write,
    /// Failed syncs.
    Sync,
    /// Sectors whose checksum did not match.
    Checksum,
    /// Requests that were not answered within the deadline.
    Timeout,
}

const KINDS: usize = 5;

/// The counts. See the [module](self).
#[derive(Debug, Default)]
pub struct Trouble {
    totals: [AtomicU64; KINDS],
    healed: AtomicU64,
    recent: Mutex<[Recent; KINDS]>,
}

/// Counts of the last minutes, each in the place of its minute.
#[derive(Debug, Default)]
struct Recent {
    counts: [u64; MINUTES],
    minute: u64,
}

impl Recent {
    /// Forgets what is too old.
    fn turn(&mut self, now: Duration) {
        let minute = now.as_secs() / 60;
        for passed in self.minute + 1..=minute.min(self.minute + MINUTES as u64) {
            self.counts[passed as usize % MINUTES] = 0;
        }
        if minute > self.minute + MINUTES as u64 {
            self.counts = [0; MINUTES];
        }
        self.minute = self.minute.max(minute);
    }

    fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Trouble {
    /// Counts `count` of a kind, and says how many there were in the last ten minutes, these included.
    pub fn count(&self, kind: Kind, count: u64, now: Duration) -> u64 {
        self.totals[kind as usize].fetch_add(count, Ordering::Relaxed);
        let recent = &mut self.recent.lock()[kind as usize];
        recent.turn(now);
        recent.counts[recent.minute as usize % MINUTES] += count;
        recent.sum()
    }

    /// Sectors that were rebuilt and written back.
    pub fn count_healed(&self, sectors: u64) {
        self.healed.fetch_add(sectors, Ordering::Relaxed);
    }

    /// How many of a kind there were since the mount.
    pub fn total(&self, kind: Kind) -> u64 {
        self.totals[kind as usize].load(Ordering::Relaxed)
    }

    /// Sectors rebuilt and written back since the mount.
    pub fn healed(&self) -> u64 {
        self.healed.load(Ordering::Relaxed)
    }

    /// Errors of all kinds in the last ten minutes.
    pub fn recent(&self, now: Duration) -> u64 {
        let mut all = self.recent.lock();
        all.iter_mut().for_each(|recent| recent.turn(now));
        all.iter().map(Recent::sum).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_recent_for_ten_minutes() {
        let trouble = Trouble::default();
        let at = |minutes: u64| Duration::from_secs(60 * minutes + 5);
        assert_eq!(trouble.count(Kind::Read, 2, at(0)), 2);
        assert_eq!(trouble.count(Kind::Read, 1, at(4)), 3);
        assert_eq!(trouble.count(Kind::Timeout, 7, at(9)), 7);
        assert_eq!(trouble.recent(at(9)), 10);
        assert_eq!(trouble.count(Kind::Read, 1, at(10)), 2);
        assert_eq!(trouble.recent(at(18)), 8);
        assert_eq!(trouble.recent(at(500)), 0);
        assert_eq!(trouble.total(Kind::Read), 4);
    }
}
