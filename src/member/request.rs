//! Requests to a disk that somebody waits for with a limit, or for several at once.
//!
//! A request owns what it needs, so whoever waits for it can give up at any time: its answer then goes nowhere.
//! It is not taken back. A write that nobody waits for any more may still reach the medium.

use std::ops::Range;
use std::time::Duration;

use super::{AlignedBuf, Area, Disk, MemberError, Result, Room, SlabNo};
use crate::sync::{Arc, Clock, Condvar, Mutex};

/// Bytes to be written, shared with whoever else writes the same. They are let go when the write has ended.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// What became of a request.
pub type Outcome = Result<Answer>;

/// Something to be done by a disk; see the methods of [`Disk`] of the same names.
pub enum Request {
    /// [`Disk::read`].
    Read {
        /// From where.
        area: Area,
        /// Offset in the area.
        offset: u64,
        /// Takes the bytes; at least `len` long.
        buf: AlignedBuf,
        /// How many bytes.
        len: usize,
    },
    /// [`Disk::write`].
    Write {
        /// Where to.
        area: Area,
        /// Offset in the area.
        offset: u64,
        /// The bytes are among these,
        bytes: Bytes,
        /// here.
        range: Range<usize>,
    },
    /// [`Disk::sync`].
    Sync(Area),
    /// [`Disk::create_slab`].
    CreateSlab(SlabNo),
    /// [`Disk::delete_slab`].
    DeleteSlab(SlabNo),
    /// [`Disk::list_slabs`].
    ListSlabs,
    /// [`Disk::room`].
    Room,
}

/// What a disk gives back for a request.
#[derive(Debug)]
pub enum Answer {
    /// The bytes read; what follows them in the buffer is undefined.
    Bytes(AlignedBuf),
    /// It is done, with nothing to give back.
    Done,
    /// The slabs that exist.
    Slabs(Vec<SlabNo>),
    /// Room for slabs.
    Room(Room),
}

/// What a request is, for messages and for measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// `reading`, `writing`, `syncing` ...
    pub doing: &'static str,
    /// Where.
    pub area: Area,
    /// Byte offset within the area.
    pub offset: u64,
    /// Bytes to be moved.
    pub len: usize,
    /// It changes nothing on the medium.
    pub reads: bool,
}

impl Request {
    /// Does it, on the caller's thread.
    pub fn carry_out<D: Disk + ?Sized>(self, disk: &D) -> Outcome {
        let done = |()| Answer::Done;
        match self {
            Self::Read { area, offset, mut buf, len } => {
                disk.read(area, offset, &mut buf[..len])?;
                Ok(Answer::Bytes(buf))
            }
            Self::Write { area, offset, bytes, range } => {
                disk.write(area, offset, &(*bytes).as_ref()[range]).map(done)
            }
            Self::Sync(area) => disk.sync(area).map(done),
            Self::CreateSlab(slab) => disk.create_slab(slab).map(done),
            Self::DeleteSlab(slab) => disk.delete_slab(slab).map(done),
            Self::ListSlabs => disk.list_slabs().map(Answer::Slabs),
            Self::Room => disk.room().map(Answer::Room),
        }
    }

    /// What it is.
    pub fn describe(&self) -> Description {
        let all = |doing, area, reads| Description { doing, area, offset: 0, len: 0, reads };
        match self {
            Self::Read { area, offset, len, .. } => {
                Description { offset: *offset, len: *len, ..all("reading", *area, true) }
            }
            Self::Write { area, offset, range, .. } => {
                Description { offset: *offset, len: range.len(), ..all("writing", *area, false) }
            }
            Self::Sync(area) => all("syncing", *area, false),
            Self::CreateSlab(slab) => all("making", Area::Slab(*slab), false),
            Self::DeleteSlab(slab) => all("deleting", Area::Slab(*slab), false),
            // They concern the member as a whole.
            Self::ListSlabs => all("listing the slabs beside", Area::Superblock(0), true),
            Self::Room => all("asking for room beside", Area::Superblock(0), true),
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.describe().fmt(f)
    }
}

/// Where outcomes arrive, shared with the requests under way.
#[derive(Debug)]
struct Desk {
    clock: Clock,
    arrived: Mutex<Vec<Arrival>>,
    bell: Condvar,
}

#[derive(Debug)]
struct Arrival {
    /// When it arrives: with a manual clock this may lie ahead.
    at: Duration,
    tag: usize,
    /// None when the request was dropped.
    outcome: Option<Outcome>,
}

/// The way back for one request's outcome.
#[derive(Debug)]
pub struct Reply {
    desk: Arc<Desk>,
    tag: usize,
    sent: bool,
}

impl Reply {
    /// The clock of the one who waits.
    pub fn clock(&self) -> &Clock {
        &self.desk.clock
    }

    /// Sends the outcome of what ended at `at` (see [`Clock::aside`]).
    pub fn send(mut self, at: Duration, outcome: Outcome) {
        self.sent = true;
        self.put(at, Some(outcome));
    }

    fn put(&self, at: Duration, outcome: Option<Outcome>) {
        self.desk.arrived.lock().push(Arrival { at, tag: self.tag, outcome });
        self.desk.bell.notify_one();
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.sent {
            self.put(self.desk.clock.elapsed(), None);
        }
    }
}

/// Requests that one caller has under way, at one disk or several. Dropping it abandons those that have not
/// ended.
#[derive(Debug)]
pub struct Inbox {
    desk: Arc<Desk>,
    asked: Vec<Asked>,
    waiting: usize,
}

#[derive(Debug)]
struct Asked {
    disk: Arc<dyn Disk>,
    what: Description,
    at: Duration,
    answered: bool,
}

impl Inbox {
    /// Nothing under way.
    pub fn new(clock: &Clock) -> Self {
        let desk = Desk { clock: clock.clone(), arrived: Mutex::default(), bell: Condvar::new() };
        Self { desk: Arc::new(desk), asked: Vec::new(), waiting: 0 }
    }

    /// Asks `disk`, and gives the number of the request: they count from 0.
    pub fn ask(&mut self, disk: &Arc<dyn Disk>, request: Request) -> usize {
        self.ask_through(disk, request, |request, reply| disk.start(request, reply))
    }

    /// The same, where somebody else passes the request on to `disk`.
    pub(super) fn ask_through(
        &mut self,
        disk: &Arc<dyn Disk>,
        request: Request,
        start: impl FnOnce(Request, Reply),
    ) -> usize {
        let tag = self.asked.len();
        self.asked.push(Asked {
            disk: Arc::clone(disk),
            what: request.describe(),
            at: self.desk.clock.elapsed(),
            answered: false,
        });
        self.waiting += 1;
        start(request, Reply { desk: Arc::clone(&self.desk), tag, sent: false });
        tag
    }

    /// Requests that have no answer yet.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The next outcome, with the number of its request: waits for it until `until` (by the clock). None when
    /// nothing came, or nothing is under way.
    pub fn next(&mut self, until: Duration) -> Option<(usize, Outcome)> {
        if self.waiting == 0 {
            return None;
        }
        let arrival = if self.desk.clock.is_manual() { self.earliest(until) } else { self.arriving(until) }?;
        let asked = &mut self.asked[arrival.tag];
        asked.answered = true;
        self.waiting -= 1;
        let dropped = || Err(MemberError::Dropped { path: asked.disk.path() });
        Some((arrival.tag, arrival.outcome.unwrap_or_else(dropped)))
    }

    /// With the system's clock: what has arrived, or arrives.
    fn arriving(&self, until: Duration) -> Option<Arrival> {
        let mut arrived = self.desk.arrived.lock();
        loop {
            if let Some(arrival) = arrived.pop() {
                return Some(arrival);
            }
            let left = until.checked_sub(self.desk.clock.elapsed()).filter(|left| !left.is_zero())?;
            self.desk.bell.wait_for(&mut arrived, left);
        }
    }

    /// With a manual clock everything has happened already, each at its time.
    fn earliest(&self, until: Duration) -> Option<Arrival> {
        let mut arrived = self.desk.arrived.lock();
        let first = (0..arrived.len()).min_by_key(|&index| (arrived[index].at, arrived[index].tag));
        match first.filter(|&index| arrived[index].at <= until) {
            Some(index) => {
                let arrival = arrived.remove(index);
                self.desk.clock.advance_to(arrival.at);
                Some(arrival)
            }
            None => {
                self.desk.clock.advance_to(until);
                None
            }
        }
    }

    /// Waits for all of them, none longer than `deadline` after it was asked. Outcomes are in the order of the
    /// requests, for all whose outcome did not come before; those of which none came are [`MemberError::Timeout`].
    pub fn wait_all(mut self, deadline: Duration) -> Vec<Outcome> {
        let until = self.asked.iter().map(|asked| asked.at).max().unwrap_or_default() + deadline;
        let mut outcomes: Vec<Option<Outcome>> = self.asked.iter().map(|_| None).collect();
        while let Some((tag, outcome)) = self.next(until) {
            outcomes[tag] = Some(outcome);
        }
        let late = |tag: usize| self.timeout(tag);
        outcomes
            .into_iter()
            .enumerate()
            .filter(|(tag, outcome)| outcome.is_some() || !self.asked[*tag].answered)
            .map(|(tag, outcome)| outcome.unwrap_or_else(|| Err(late(tag))))
            .collect()
    }

    /// The error of a request that was waited for in vain.
    pub fn timeout(&self, tag: usize) -> MemberError {
        let Asked { disk, what, at, .. } = &self.asked[tag];
        let waited = self.desk.clock.elapsed().saturating_sub(*at);
        MemberError::Timeout {
            path: disk.path(),
            doing: what.doing,
            area: what.area,
            offset: what.offset,
            waited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::sim::{Pace, SimWorld};

    #[test]
    fn answers_come_in_the_order_of_their_times() {
        let world = SimWorld::new(1);
        let clock = world.clock();
        let millis = Duration::from_millis;
        let disks: Vec<Arc<dyn Disk>> = [30, 10, 20]
            .into_iter()
            .map(|delay| {
                let disk = world.disk("d", 4);
                disk.set_pace(Pace { delay: millis(delay), ..Pace::default() });
                disk as Arc<dyn Disk>
            })
            .collect();
        let mut inbox = Inbox::new(&clock);
        let read =
            || Request::Read { area: Area::Journal, offset: 0, buf: AlignedBuf::zeroed(4096), len: 4096 };
        for disk in &disks {
            inbox.ask(disk, read());
        }
        let tag = |next: Option<(usize, Outcome)>| next.map(|(tag, _)| tag);
        assert_eq!(tag(inbox.next(millis(15))), Some(1));
        assert_eq!(clock.elapsed(), millis(10));
        assert_eq!(tag(inbox.next(millis(15))), None);
        assert_eq!(clock.elapsed(), millis(15));
        assert_eq!(tag(inbox.next(millis(1000))), Some(2));
        let left = inbox.wait_all(millis(25));
        assert!(matches!(left[..], [Err(MemberError::Timeout { .. })]), "{left:?}");
        assert_eq!(clock.elapsed(), millis(25));
    }
}
