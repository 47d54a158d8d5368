//! How long a job rests between its steps, and how fast it is.
//!
//! Programs keep most of the disks' time. Who else uses the disks is seen while the job rests: what goes through the
//! members' meters then is not its own. As long as something did a moment ago, the job works a fifth of the time; otherwise
//! it rests just long enough to look.

use std::collections::VecDeque;
use std::time::Duration;

use super::settings::JobRate;
use crate::member::metered::Traffic;

/// While programs use the disks, a rest is so many times as long as the step before it.
const BUSY_REST: u32 = 4;
/// Otherwise it is this share (one over) of the step.
const IDLE_SHARE: u32 = 20;
/// A rest is at least so long, or nobody else would be seen.
const REST_MIN: Duration = Duration::from_millis(2);
/// And at most so long, unless a rate is set.
const REST_MAX: Duration = Duration::from_secs(2);
/// Programs that used the disks count as using them for so long.
const BUSY_FOR: Duration = Duration::from_secs(1);
/// Less than this in one rest is the file system's own: its journal, a checkpoint's superblock.
const OWN_CALLS: u64 = 2;
/// The rate that is told is that of this time.
const RATE_OVER: Duration = Duration::from_secs(30);

/// What went through all meters.
pub fn sum(traffic: impl Iterator<Item = Traffic>) -> u64 {
    traffic.map(|one| one.reads + one.writes).sum()
}

/// The rests of a job.
#[derive(Debug, Default)]
pub struct Pace {
    /// Calls of all members when the last step ended.
    before_rest: Option<u64>,
    busy_until: Duration,
}

impl Pace {
    /// A step begins at `now`; `calls` is what went through all meters so far.
    pub fn begin(&mut self, now: Duration, calls: u64) {
        if let Some(before) = self.before_rest.take()
            && calls.saturating_sub(before) > OWN_CALLS
        {
            self.busy_until = now + BUSY_FOR;
        }
    }

    /// A step that began at `begun` ended at `now` after `bytes`. Says how long to rest.
    pub fn end(&mut self, begun: Duration, now: Duration, bytes: u64, rate: JobRate, calls: u64) -> Duration {
        self.before_rest = Some(calls);
        let took = now.saturating_sub(begun);
        let rest = if now < self.busy_until { took * BUSY_REST } else { took / IDLE_SHARE };
        let rest = rest.clamp(REST_MIN, REST_MAX);
        match rate {
            JobRate::Auto => rest,
            JobRate::Bytes(rate) => {
                let due = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
                rest.max(due.saturating_sub(took))
            }
        }
    }
}

/// How fast something goes, over the last half minute.
#[derive(Debug, Default)]
pub struct Speed {
    samples: VecDeque<(Duration, u64)>,
}

impl Speed {
    /// At `now` so many bytes are done.
    pub fn note(&mut self, now: Duration, done: u64) {
        while self.samples.len() > 1
            && self.samples.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) > RATE_OVER)
        {
            self.samples.pop_front();
        }
        // Few are enough, however short the steps are.
        let several = self.samples.len() > 1;
        match self.samples.back_mut() {
            Some(last) if several && now.saturating_sub(last.0) < RATE_OVER / 64 => last.1 = done,
            _ => self.samples.push_back((now, done)),
        }
    }

    /// Bytes a second; none before anything is known.
    pub fn rate(&self, now: Duration, done: u64) -> Option<u64> {
        let (at, first) = *self.samples.front()?;
        let took = now.saturating_sub(at).as_secs_f64();
        (took > 0.0).then(|| (done.saturating_sub(first) as f64 / took) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn programs_get_four_fifths_of_the_time() {
        let mut pace = Pace::default();
        pace.begin(Duration::ZERO, 100);
        assert_eq!(
            pace.end(Duration::ZERO, 100 * MS, 1 << 20, JobRate::Auto, 200),
            5 * MS,
            "nobody is there"
        );
        pace.begin(105 * MS, 250);
        assert_eq!(pace.end(105 * MS, 205 * MS, 1 << 20, JobRate::Auto, 300), 400 * MS, "somebody is there");
        pace.begin(605 * MS, 300);
        assert_eq!(pace.end(605 * MS, 705 * MS, 1 << 20, JobRate::Auto, 400), 400 * MS, "a moment ago");
        pace.begin(1205 * MS, 400);
        assert_eq!(pace.end(1205 * MS, 1305 * MS, 1 << 20, JobRate::Auto, 500), 5 * MS, "they are gone");
    }

    #[test]
    fn a_rate_is_kept() {
        let mut pace = Pace::default();
        pace.begin(Duration::ZERO, 0);
        let rest = pace.end(Duration::ZERO, 100 * MS, 1 << 20, JobRate::Bytes(1 << 20), 10);
        assert_eq!(rest, 900 * MS);
        let long = pace.end(Duration::ZERO, 100 * MS, 64 << 20, JobRate::Bytes(1 << 20), 10);
        assert_eq!(long, Duration::from_millis(63_900));
    }

    #[test]
    fn speed_is_that_of_the_last_half_minute() {
        let mut speed = Speed::default();
        assert_eq!(speed.rate(Duration::ZERO, 0), None);
        for second in 0..100_u64 {
            let done = if second < 50 { second * 100 } else { 5000 + (second - 50) * 10 };
            speed.note(Duration::from_secs(second), done);
        }
        assert_eq!(speed.rate(Duration::from_secs(99), 5490), Some(10));
    }
}
