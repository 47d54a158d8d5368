//! Time, real or driven by a test.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;
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
    Manual(Arc<Mutex<Virtual>>),
}

/// Time that only the program moves.
#[derive(Debug, Default)]
struct Virtual {
    now: Duration,
    /// The own time of threads that do something [aside](Clock::aside).
    aside: HashMap<ThreadId, Duration>,
}

impl Virtual {
    /// The time that the calling thread is at.
    fn here(&mut self) -> &mut Duration {
        match self.aside.get_mut(&std::thread::current().id()) {
            Some(own) => own,
            None => &mut self.now,
        }
    }
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Source::System { start: Instant::now() })
    }

    /// A clock that stands until [`Clock::advance`] or [`Clock::sleep`] moves it. Starts in 2001.
    pub fn manual() -> Self {
        Self(Source::Manual(Arc::default()))
    }

    /// Moves a manual clock; a system clock is left alone.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(time) = &self.0 {
            *time.lock().here() += by;
        }
    }

    /// Moves a manual clock on to `then`, if it is not there yet; a system clock is left alone.
    pub fn advance_to(&self, then: Duration) {
        if let Source::Manual(time) = &self.0 {
            let mut time = time.lock();
            let here = time.here();
            *here = then.max(*here);
        }
    }

    /// Whether only the program moves this clock. Then nothing happens while somebody waits: who waits for
    /// something that is known to end at some time moves the clock there.
    pub fn is_manual(&self) -> bool {
        matches!(self.0, Source::Manual(_))
    }

    /// Lets time pass: the system's by waiting, a manual clock's by moving it.
    pub fn sleep(&self, how_long: Duration) {
        match &self.0 {
            Source::System { .. } if how_long > Duration::ZERO => std::thread::sleep(how_long),
            Source::System { .. } => {}
            Source::Manual(_) => self.advance(how_long),
        }
    }

    /// Does something that goes on beside the caller, as far as a manual clock is concerned: time that passes
    /// in it does not pass for the caller. Gives also when it ended. With the system's clock the caller has
    /// waited for it.
    pub fn aside<R>(&self, work: impl FnOnce() -> R) -> (R, Duration) {
        let Source::Manual(time) = &self.0 else {
            let result = work();
            return (result, self.elapsed());
        };
        let own = std::thread::current().id();
        let outer = {
            let mut time = time.lock();
            let now = *time.here();
            time.aside.insert(own, now)
        };
        let result = work();
        let mut time = time.lock();
        let ended = time.aside.remove(&own).unwrap_or(time.now);
        if let Some(outer) = outer {
            time.aside.insert(own, outer);
        }
        (result, ended)
    }

    /// Time since the clock was made; never goes back.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Source::System { start } => start.elapsed(),
            Source::Manual(time) => *time.lock().here(),
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
            Source::Manual(_) => {
                let now = self.elapsed();
                Timestamp { seconds: 1_000_000_000 + now.as_secs() as i64, nanos: now.subsec_nanos() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_goes_on_aside_takes_no_time_of_the_caller() {
        let clock = Clock::manual();
        clock.sleep(SECOND);
        let ((inner, early), ended) = clock.aside(|| {
            clock.sleep(2 * SECOND);
            let inner = clock.aside(|| clock.sleep(10 * SECOND)).1;
            (inner, clock.elapsed())
        });
        assert_eq!((inner, early, ended), (13 * SECOND, 3 * SECOND, 3 * SECOND));
        assert_eq!(clock.elapsed(), SECOND);
        clock.advance_to(ended);
        clock.advance_to(SECOND);
        assert_eq!(clock.elapsed(), 3 * SECOND);
    }
}
