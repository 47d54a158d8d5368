//! A disk that nobody waits for longer than a deadline.
//!
//! A request is carried out by threads of the disk's own, and whoever asked waits for the answer, at most as long
//! as the deadline. When none came, the request stays what it is: under way. It holds its buffers and its thread
//! until the disk answers after all. As long as one is overdue, everything new fails at once
//! ([`MemberError::Hanging`]), so that a dead disk costs one deadline and not one for each request.
//!
//! Reads and everything else have separate threads: a read does not wait behind large writes. Threads start when
//! they are needed and end when they have had nothing to do for a while.

mod queue;

use std::path::Path;
use std::time::Duration;

use self::queue::Queue;
use super::pulse::{Beat, Pulse};
use super::request::{Answer, Inbox, Reply, Request};
use super::{AlignedBuf, Area, Disk, DiskKind, MemberError, Result, Room, SlabNo};
use crate::sync::{Arc, Clock, Mutex, mpsc, spawn};

/// Deadline of every request, unless another is asked for.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// How long a question for room may take: an older answer does as well.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);
/// Most reads that go on at a time; others wait their turn.
const READERS_MOST: usize = 32;
/// Most other requests that go on at a time.
const WRITERS_MOST: usize = 8;

/// How a disk is guarded.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// Longest wait for an answer.
    pub deadline: Duration,
    /// What times are taken from.
    pub clock: Clock,
    /// Carry requests out on threads of the disk's own. Without, all happens on the caller's thread: nothing can be
    /// abandoned then, but with a manual clock a wait ends at the deadline.
    pub threads: bool,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self { deadline: DEADLINE, clock: Clock::system(), threads: true }
    }
}

/// Another disk, with a deadline on everything. See the [module](self).
#[derive(Debug)]
pub struct Guarded {
    disk: Arc<dyn Disk>,
    pulse: Arc<Pulse>,
    options: GuardOptions,
    /// For reads, and for the rest.
    queues: Option<[Queue; 2]>,
    room: Mutex<Option<Room>>,
}

impl Guarded {
    /// Guards `disk`, whose pulse is kept in `pulse`.
    pub fn new(disk: Arc<dyn Disk>, pulse: Arc<Pulse>, options: &GuardOptions) -> Self {
        // A manual clock can't be waited for.
        let threads = options.threads && !options.clock.is_manual();
        let path = disk.path();
        let name = path.rsplit('/').next().unwrap_or_default();
        let queue = |kind: &str, most| Queue::new(&format!("{kind}-{name}"), most);
        let queues = threads.then(|| [queue("read", READERS_MOST), queue("write", WRITERS_MOST)]);
        Self { disk, pulse, options: options.clone(), queues, room: Mutex::new(None) }
    }

    /// Asks, and waits at most `patience`.
    fn ask(&self, request: Request, patience: Duration) -> Result<Answer> {
        let mut inbox = Inbox::new(&self.options.clock);
        let until = self.options.clock.elapsed() + patience;
        let tag = inbox.ask_through(&self.disk, request, |request, reply| self.start(request, reply));
        match inbox.next(until) {
            Some((_, outcome)) => outcome,
            None => Err(inbox.timeout(tag)),
        }
    }

    fn ask_plainly(&self, request: Request) -> Result<()> {
        self.ask(request, self.options.deadline).map(|_| ())
    }
}

/// Does something with the member at `path` that may hang, on a thread of its own, and waits at most `deadline`.
///
/// # Errors
/// Those of `work`; [`MemberError::OpenTimeout`] when it took too long. It goes on then, and what it gives is dropped.
pub fn within<T: Send + 'static>(
    path: &Path,
    deadline: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, result) = mpsc::channel();
    spawn("open-member", move || {
        // Nobody may be waiting any more.
        let _ = sender.send(work());
    });
    let path = || path.display().to_string();
    match result.recv_timeout(deadline) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(MemberError::OpenTimeout { path: path(), waited: deadline })
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(MemberError::Dropped { path: path() }),
    }
}

impl Disk for Guarded {
    fn kind(&self) -> DiskKind {
        self.disk.kind()
    }

    fn path(&self) -> String {
        self.disk.path()
    }

    fn start(&self, request: Request, reply: Reply) {
        let clock = &self.options.clock;
        let now = clock.elapsed();
        let owed = self.pulse.owes_since(now).filter(|owed| *owed >= self.options.deadline);
        if let Some(since) = owed {
            reply.send(now, Err(MemberError::Hanging { path: self.path(), since }));
            return;
        }
        let what = request.describe();
        let beat = self.pulse.begin(now, what);
        let (disk, pulse, clock) = (Arc::clone(&self.disk), Arc::clone(&self.pulse), clock.clone());
        let work = move || {
            let ending = Ending { pulse, clock: clock.clone(), beat, at: None };
            let (outcome, at) = clock.aside(|| request.carry_out(&*disk));
            ending.at(at);
            reply.send(at, outcome);
        };
        match &self.queues {
            Some([reads, others]) => if what.reads { reads } else { others }.push(Box::new(work)),
            None => work(),
        }
    }

    fn read(&self, area: Area, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len();
        let own = AlignedBuf::zeroed(len);
        let answer = self.ask(Request::Read { area, offset, buf: own, len }, self.options.deadline)?;
        if let Answer::Bytes(bytes) = answer {
            buf.copy_from_slice(&bytes[..len]);
        }
        Ok(())
    }

    fn write(&self, area: Area, offset: u64, buf: &[u8]) -> Result<()> {
        let bytes = Arc::new(AlignedBuf::copy_of(buf));
        self.ask_plainly(Request::Write { area, offset, bytes, range: 0..buf.len() })
    }

    fn sync(&self, area: Area) -> Result<()> {
        self.ask_plainly(Request::Sync(area))
    }

    fn create_slab(&self, slab: SlabNo) -> Result<()> {
        self.ask_plainly(Request::CreateSlab(slab))
    }

    fn delete_slab(&self, slab: SlabNo) -> Result<()> {
        self.ask_plainly(Request::DeleteSlab(slab))
    }

    fn list_slabs(&self) -> Result<Vec<SlabNo>> {
        match self.ask(Request::ListSlabs, self.options.deadline)? {
            Answer::Slabs(slabs) => Ok(slabs),
            other => unexpected(&other, self),
        }
    }

    /// When the disk does not say so soon, what it said last.
    fn room(&self) -> Result<Room> {
        let known = *self.room.lock();
        let patience = self.options.deadline.min(ROOM_PATIENCE);
        let owed = self.pulse.owes_since(self.options.clock.elapsed());
        if let (Some(known), Some(owed)) = (known, owed)
            && owed >= patience
        {
            return Ok(known);
        }
        match (self.ask(Request::Room, patience), known) {
            (Ok(Answer::Room(room)), _) => {
                *self.room.lock() = Some(room);
                Ok(room)
            }
            (Ok(other), _) => unexpected(&other, self),
            (Err(error), Some(known)) if error.is_timeout() => Ok(known),
            (Err(error), _) => Err(error),
        }
    }

    fn device_id(&self) -> u64 {
        self.disk.device_id()
    }
}

fn unexpected<T>(answer: &Answer, disk: &Guarded) -> Result<T> {
    debug_assert!(false, "a disk answered {answer:?}");
    Err(MemberError::Dropped { path: disk.path() })
}

/// Notes the end of a request, also when its thread panicked in it.
struct Ending {
    pulse: Arc<Pulse>,
    clock: Clock,
    beat: Beat,
    at: Option<Duration>,
}

impl Ending {
    /// It ended at `at`, which with a manual clock may lie ahead.
    fn at(mut self, at: Duration) {
        self.at = Some(at);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let now = self.clock.elapsed();
        self.pulse.ended(self.beat, self.at.unwrap_or(now), now);
    }
}

#[cfg(test)]
mod tests;
