//! Time, real or driven by a test.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A moment on the calendar: seconds since 1970 (negative before it) and nanoseconds within the
/// second (0 to 999,999,999), as `struct timespec` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 00:00 UTC, rounded down.
    pub seconds: i64,
    /// Nanoseconds after `seconds`.
    pub nanos: u32,
}

/// A source of time: the system's, or one that only a test moves.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System { start: Instant },
    Manual(Arc<Mutex<Duration>>),
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Source::System { start: Instant::now() })
    }

    /// A clock that stands until [`Clock::advance`] moves it. Starts in 2001.
    pub fn manual() -> Self {
        Self(Source::Manual(Arc::new(Mutex::new(Duration::ZERO))))
    }

    /// Moves a manual clock; a system clock is left alone.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(now) = &self.0 {
            *now.lock() += by;
        }
    }

    /// Time since the clock was made; never goes back.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Source::System { start } => start.elapsed(),
            Source::Manual(now) => *now.lock(),
        }
    }

    /// Minutes since midnight, by the clock on the wall: in the time zone of the machine. A manual clock is in UTC.
    pub fn minute_of_day(&self) -> u16 {
        match &self.0 {
            Source::System { .. } => {
                let now = jiff::ZonedDateTime::now();
                now.hour() as u16 * 60 + now.minute() as u16
            }
            Source::Manual(_) => (self.now().seconds.rem_euclid(24 * 3600) / 60) as u16,
        }
    }

    /// The calendar's time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
            }
            Source::Manual(now) => {
                let now = *now.lock();
                Timestamp { seconds: 1_000_000_000 + now.as_secs() as i64, nanos: now.subsec_nanos() }
            }
        }
    }
}
