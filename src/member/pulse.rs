//! How fast a member answers: what it owes at the moment, what is usual for it, and whether it is slow.
//!
//! Pure bookkeeping: times are given, nothing is asked of the member. What is usual is learned from reads, small
//! and large ones apart: the time within which 99 % of them ended. A read that takes three times that (at least
//! [`HEDGE_MIN`]) is worth asking elsewhere; if the others answer first, that is a mark against the member. A
//! hedge that the member itself wins says nothing: then all are busy.
//!
//! A member is *slow* after [`MARKS_MOST`] marks, or once reads that others have answered are overdue for
//! [`OVERTIME_MOST`] in all. Marks fade: one for every [`FADE_READS`] reads that were not late. Of a slow member
//! nothing is learned; it is trusted again after [`TRUST_READS`] reads in a row that were not late.

use std::time::Duration;

use super::Area;
use super::request::Description;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::units::KIB;

/// No read is asked elsewhere before this time.
pub const HEDGE_MIN: Duration = Duration::from_millis(2);
/// A read is late after this many times its member's usual 99 % time.
pub const HEDGE_FACTOR: u32 = 3;
/// When a read is late as long as nothing is known of the member.
pub const HEDGE_UNKNOWN: Duration = Duration::from_millis(50);
/// A member is slow once others were first this many times.
pub const MARKS_MOST: u32 = 10;
/// A member is slow once its late reads, which others answered, have been late for this long in all.
pub const OVERTIME_MOST: Duration = Duration::from_millis(500);
/// So many reads that were not late take a mark back.
pub const FADE_READS: u32 = 100;
/// A slow member is trusted again after so many reads in a row that were not late.
pub const TRUST_READS: u32 = 8;
/// A slow member is asked about this often, to see whether it has recovered.
pub const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Reads up to this size are small.
const SMALL_MAX_BYTES: usize = 128 * KIB as usize;
/// Reads that must have ended before anything counts as usual.
const SAMPLES_LEAST: u32 = 32;
/// When so many are counted, the counts are halved: older ones fade.
const SAMPLES_MOST: u32 = 2048;

/// A number for a request under way.
pub type Beat = u64;

/// The pulse of one member. See the [module](self).
#[derive(Debug)]
pub struct Pulse {
    state: Mutex<State>,
    slow: AtomicBool,
    /// Nanoseconds after which a read is late: small ones, large ones.
    late_after: [AtomicU64; 2],
    hedged: AtomicU64,
    beaten: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    owed: Vec<Owed>,
    last: Beat,
    usual: [Usual; 2],
    marks: u32,
    /// Lateness of reads that others answered, and that have ended since.
    overtime: Duration,
    /// Reads that were not late: since the last mark was taken back, or while it is slow, in a row.
    good: u32,
    probe_at: Duration,
}

/// A request that has not ended.
#[derive(Debug)]
struct Owed {
    beat: Beat,
    what: Description,
    since: Duration,
    /// Others answered it.
    beaten: bool,
    /// With a manual clock it may be known already when it ends.
    ends: Option<Duration>,
}

/// What a member can be seen to be from its pulse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hedges {
    /// Reads that took long and were also asked elsewhere.
    pub asked: u64,
    /// Those of them that others answered first.
    pub lost: u64,
}

impl Default for Pulse {
    fn default() -> Self {
        let unknown = || AtomicU64::new(HEDGE_UNKNOWN.as_nanos() as u64);
        Self {
            state: Mutex::default(),
            slow: AtomicBool::new(false),
            late_after: [unknown(), unknown()],
            hedged: AtomicU64::new(0),
            beaten: AtomicU64::new(0),
        }
    }
}

fn class(len: usize) -> usize {
    usize::from(len > SMALL_MAX_BYTES)
}

impl Pulse {
    /// A request goes to the member.
    pub fn begin(&self, now: Duration, what: Description) -> Beat {
        let mut state = self.state.lock();
        state.last += 1;
        let beat = state.last;
        state.owed.push(Owed { beat, what, since: now, beaten: false, ends: None });
        beat
    }

    /// A request ended at `at`, or will have by then.
    pub fn ended(&self, beat: Beat, at: Duration, now: Duration) {
        let mut state = self.state.lock();
        if let Some(owed) = state.owed.iter_mut().find(|owed| owed.beat == beat) {
            owed.ends = Some(at);
        }
        self.settle(&mut state, now);
    }

    /// How long the oldest answer has been owed; none when none is.
    pub fn owes_since(&self, now: Duration) -> Option<Duration> {
        let mut state = self.state.lock();
        self.settle(&mut state, now);
        state.owed.iter().map(|owed| now.saturating_sub(owed.since)).max()
    }

    /// How long after it was asked a read of `len` bytes is late.
    pub fn late_after(&self, len: usize) -> Duration {
        Duration::from_nanos(self.late_after[class(len)].load(Ordering::Relaxed))
    }

    /// A read is late and asked elsewhere too.
    pub fn hedge(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
    }

    /// Others answered the read of `area` at `offset`.
    pub fn beaten(&self, area: Area, offset: u64, now: Duration) {
        self.beaten.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.marks += 1;
        let same = |owed: &&mut Owed| {
            owed.what.reads && owed.what.area == area && owed.what.offset == offset && !owed.beaten
        };
        if let Some(owed) = state.owed.iter_mut().find(same) {
            owed.beaten = true;
        }
        self.settle(&mut state, now);
    }

    /// What was asked elsewhere so far.
    pub fn hedges(&self) -> Hedges {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Hedges { asked: read(&self.hedged), lost: read(&self.beaten) }
    }

    /// Whether the member is slow, as of now.
    pub fn is_slow(&self, now: Duration) -> bool {
        let mut state = self.state.lock();
        self.settle(&mut state, now);
        self.slow.load(Ordering::Relaxed)
    }

    /// Whether a slow member should be asked again by now, to see how it does. Says yes once for each time.
    pub fn take_probe(&self, now: Duration) -> bool {
        let mut state = self.state.lock();
        self.settle(&mut state, now);
        let asked = state.owed.iter().any(|owed| owed.what.reads);
        let due = self.slow.load(Ordering::Relaxed) && now >= state.probe_at && !asked;
        if due {
            state.probe_at = now + PROBE_EVERY;
        }
        due
    }

    /// Counts what has ended by now, and judges.
    fn settle(&self, state: &mut State, now: Duration) {
        let mut index = 0;
        while index < state.owed.len() {
            match state.owed[index].ends {
                Some(at) if at <= now => {
                    let owed = state.owed.swap_remove(index);
                    self.count(state, &owed, at);
                }
                _ => index += 1,
            }
        }
        if self.slow.load(Ordering::Relaxed) {
            return;
        }
        let lateness = |owed: &Owed| {
            let late_at = owed.since + self.late_after(owed.what.len);
            if owed.beaten { now.saturating_sub(late_at) } else { Duration::ZERO }
        };
        let outstanding: Duration = state.owed.iter().map(lateness).sum();
        if state.marks >= MARKS_MOST || state.overtime + outstanding >= OVERTIME_MOST {
            self.slow.store(true, Ordering::Relaxed);
            state.good = 0;
            state.probe_at = now + PROBE_EVERY;
        }
    }

    /// Learns from a read that has ended.
    fn count(&self, state: &mut State, owed: &Owed, at: Duration) {
        if !owed.what.reads || owed.what.len == 0 {
            return;
        }
        let took = at.saturating_sub(owed.since);
        let limit = self.late_after(owed.what.len);
        let slow = self.slow.load(Ordering::Relaxed);
        if took > limit {
            if slow {
                state.good = 0;
            } else if owed.beaten {
                state.overtime += took - limit;
            }
        } else {
            state.good += 1;
        }
        if slow {
            if state.good >= TRUST_READS {
                (state.marks, state.overtime, state.good) = (0, Duration::ZERO, 0);
                self.slow.store(false, Ordering::Relaxed);
            }
            return;
        }
        if state.good >= FADE_READS {
            state.good = 0;
            state.marks = state.marks.saturating_sub(1);
            state.overtime = state.overtime.saturating_sub(OVERTIME_MOST / MARKS_MOST);
        }
        // What others answered must not become usual too quickly.
        let class = class(owed.what.len);
        if let Some(usual) = state.usual[class].learn(if owed.beaten { took.min(limit) } else { took }) {
            let late = (usual * HEDGE_FACTOR).max(HEDGE_MIN);
            self.late_after[class].store(late.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// The 99 % time of one kind of reads, from a histogram with four steps to each doubling.
#[derive(Debug)]
struct Usual {
    counts: [u32; 256],
    total: u32,
    since_looked: u32,
}

impl Default for Usual {
    fn default() -> Self {
        Self { counts: [0; 256], total: 0, since_looked: 0 }
    }
}

impl Usual {
    /// Counts one, and now and then says what is usual.
    fn learn(&mut self, took: Duration) -> Option<Duration> {
        self.counts[step_of(took)] += 1;
        self.total += 1;
        self.since_looked += 1;
        if self.since_looked < SAMPLES_LEAST {
            return None;
        }
        self.since_looked = 0;
        if self.total >= SAMPLES_MOST {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        let mut above = self.total / 100;
        let last = (0..self.counts.len()).rev().find(|&step| match above.checked_sub(self.counts[step]) {
            Some(left) => {
                above = left;
                false
            }
            None => true,
        });
        last.map(end_of)
    }
}

/// The step of the histogram that a time falls into.
fn step_of(took: Duration) -> usize {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(4);
    let doubling = 63 - nanos.leading_zeros();
    let quarter = (nanos >> (doubling - 2)) & 3;
    doubling as usize * 4 + quarter as usize
}

/// The end of a step.
fn end_of(step: usize) -> Duration {
    let (doubling, quarter) = (step / 4, step % 4);
    let nanos = ((5 + quarter) as u128) << doubling >> 2;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const AREA: Area = Area::Slab(1);

    fn what(len: usize) -> Description {
        Description { doing: "reading", area: AREA, offset: 0, len, reads: true }
    }

    /// One read after the other; `now` moves on.
    fn read(pulse: &Pulse, now: &mut Duration, took: Duration) {
        let beat = pulse.begin(*now, what(4096));
        *now += took;
        pulse.ended(beat, *now, *now);
    }

    #[test]
    fn steps_hold_what_falls_into_them() {
        for nanos in [1u64, 4, 7, 100, 1_000, 123_456, 10_000_000, u64::MAX / 3] {
            let took = Duration::from_nanos(nanos);
            let end = end_of(step_of(took));
            assert!(end > took && end <= took * 5 / 4 + Duration::from_nanos(8), "{took:?} {end:?}");
        }
    }

    #[test]
    fn a_late_read_is_one_that_takes_three_times_what_is_usual() {
        let (pulse, mut now) = (Pulse::default(), Duration::ZERO);
        assert_eq!(pulse.late_after(4096), HEDGE_UNKNOWN);
        for index in 0..2000 {
            read(&pulse, &mut now, if index % 200 == 0 { 80 * MS } else { 8 * MS });
        }
        let late = pulse.late_after(4096);
        assert!(late >= 24 * MS && late <= 30 * MS, "{late:?}");
        assert_eq!(pulse.late_after(1 << 20), HEDGE_UNKNOWN, "large reads are another matter");
        let (fast, mut now) = (Pulse::default(), Duration::ZERO);
        (0..100).for_each(|_| read(&fast, &mut now, MS / 20));
        assert_eq!(fast.late_after(4096), HEDGE_MIN);
    }

    #[test]
    fn ten_lost_hedges_make_a_member_slow_and_good_reads_make_it_trusted() {
        let (pulse, mut now) = (Pulse::default(), Duration::ZERO);
        (0..100).for_each(|_| read(&pulse, &mut now, MS));
        for _ in 0..MARKS_MOST {
            assert!(!pulse.is_slow(now));
            let beat = pulse.begin(now, what(4096));
            pulse.hedge();
            pulse.beaten(AREA, 0, now + 4 * MS);
            now += 6 * MS;
            pulse.ended(beat, now, now);
        }
        assert!(pulse.is_slow(now));
        assert!(!pulse.take_probe(now));
        now += PROBE_EVERY;
        assert!(pulse.take_probe(now) && !pulse.take_probe(now));
        read(&pulse, &mut now, 10 * MS);
        for _ in 0..TRUST_READS {
            assert!(pulse.is_slow(now));
            read(&pulse, &mut now, MS);
        }
        assert!(!pulse.is_slow(now));
    }

    #[test]
    fn one_read_that_hangs_makes_a_member_slow_within_half_a_second() {
        let (pulse, mut now) = (Pulse::default(), Duration::ZERO);
        (0..100).for_each(|_| read(&pulse, &mut now, MS));
        pulse.begin(now, what(4096));
        pulse.beaten(AREA, 0, now + 5 * MS);
        assert!(!pulse.is_slow(now + 490 * MS));
        assert!(pulse.is_slow(now + 510 * MS));
        assert_eq!(pulse.owes_since(now + 600 * MS), Some(600 * MS));
    }

    #[test]
    fn marks_fade() {
        let (pulse, mut now) = (Pulse::default(), Duration::ZERO);
        for _ in 0..5 * MARKS_MOST {
            let beat = pulse.begin(now, what(4096));
            pulse.beaten(AREA, 0, now);
            pulse.ended(beat, now, now);
            (0..FADE_READS).for_each(|_| read(&pulse, &mut now, MS));
        }
        assert!(!pulse.is_slow(now));
    }
}
