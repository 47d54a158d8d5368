//! What happened: a bounded list in the tables and in memory, and who is told of each.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::fs::Fs;
use crate::member::superblock::{MemberId, Seq};
use crate::member::wire;
use crate::store::Tx;
use crate::store::tables::{Table, number_key, single};
use crate::sync::{Arc, Mutex, Timestamp};

/// Events that are kept; the oldest go first.
pub const EVENTS_KEPT: usize = 1000;
/// Above every key of the table.
const KEY_MAX: [u8; 9] = [0xff; 9];

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The pool was mounted.
    Mounted,
    /// The pool is being unmounted.
    Unmounted,
    /// The pool's health is another.
    Health,
    /// A member's state is another.
    Member,
    /// Sectors were rebuilt and written back.
    Healed,
    /// Reads, writes or syncs of a member failed.
    Errors,
    /// Something is lost, or was found again.
    Damage,
    /// Space ran short, or is there again.
    Space,
    /// A job began.
    JobStarted,
    /// A job was told to rest, or to go on.
    JobPaused,
    /// A job can't go on for now.
    JobPending,
    /// Nothing has moved in a job for a while.
    JobStalled,
    /// A job did all it was to do.
    JobDone,
    /// A job ended early: it failed, or was cancelled.
    JobEnded,
    /// A setting was changed.
    Setting,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number; rises by one.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// What kind of thing.
    pub what: What,
    /// In words.
    pub text: String,
    /// The member that it is about.
    pub member: Option<MemberId>,
    /// Where that member is.
    pub path: Option<String>,
    /// Numbers that belong to it.
    pub numbers: BTreeMap<String, u64>,
}

/// An event that has no number and time yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// What kind of thing.
    pub what: What,
    /// In words.
    pub text: String,
    /// The member that it is about, and where that is.
    pub member: Option<(MemberId, String)>,
    /// Numbers that belong to it.
    pub numbers: BTreeMap<String, u64>,
}

impl News {
    /// News in words alone.
    pub fn new(what: What, text: impl Into<String>) -> Self {
        Self { what, text: text.into(), member: None, numbers: BTreeMap::new() }
    }

    /// About a member.
    pub fn of(mut self, member: MemberId, path: &str) -> Self {
        self.member = Some((member, path.to_owned()));
        self
    }

    /// With a number.
    pub fn with(mut self, name: &str, number: u64) -> Self {
        self.numbers.insert(name.to_owned(), number);
        self
    }
}

/// Who is told of each event, besides those who ask.
pub type Listener = Box<dyn Fn(&Event) + Send + Sync>;

/// The list.
pub struct Events {
    fs: Arc<Fs>,
    /// Held while an event is taken in, so that they are in the tables in their order.
    waiting: Mutex<Waiting>,
    kept: Mutex<Kept>,
    listener: Option<Listener>,
}

/// Events that are in memory only. A record makes its epoch one that the members which are not here lack: a pool that
/// was only looked at with some of its members, and then with the others, would have diverged. So events are stored
/// once something else was changed.
#[derive(Debug)]
struct Waiting {
    /// The last record when the pool was mounted; none once another followed.
    quiet_since: Option<Seq>,
    records: Vec<Tx>,
}

#[derive(Debug, Default)]
struct Kept {
    next: u64,
    events: VecDeque<Event>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl Events {
    /// The list as the tables have it. One that can't be read is begun anew: it is no reason not to mount.
    pub fn load(fs: Arc<Fs>, listener: Option<Listener>) -> Self {
        let rows = fs.store().scan(Table::Events, &[], &KEY_MAX, usize::MAX).unwrap_or_else(|error| {
            log::warn!("the list of events can't be read: {error}");
            Vec::new()
        });
        let mut kept = Kept { next: 1, events: VecDeque::new() };
        for (key, value) in rows {
            kept.next = single(&key).unwrap_or(kept.next).max(kept.next).saturating_add(1);
            kept.events.extend(wire::unpack::<Event>(&value).ok());
        }
        let waiting = Waiting { quiet_since: Some(fs.store().last_seq()), records: Vec::new() };
        Self { fs, waiting: Mutex::new(waiting), kept: Mutex::new(kept), listener }
    }

    /// Notes that something happened. It is in the tables with the next journal write, if the pool takes changes and
    /// has taken any since it was mounted.
    pub fn note(&self, news: News) {
        let mut waiting = self.waiting.lock();
        let (event, tx) = self.keep(news);
        log::info!("{}", event.text);
        if let Some(listener) = &self.listener {
            listener(&event);
        }
        waiting.records.push(tx);
        self.store(&mut waiting);
    }

    /// Stores the events that waited for something else to change, if it did.
    pub fn store_waiting(&self) {
        self.store(&mut self.waiting.lock());
    }

    fn store(&self, waiting: &mut Waiting) {
        if waiting.quiet_since == Some(self.fs.store().last_seq()) || self.fs.pool().read_only() {
            let surplus = waiting.records.len().saturating_sub(EVENTS_KEPT);
            waiting.records.drain(..surplus);
            return;
        }
        waiting.quiet_since = None;
        for tx in waiting.records.drain(..) {
            if let Err(error) = self.fs.commit_records(tx) {
                log::debug!("an event is in memory only: {error}");
            }
        }
    }

    /// Puts it into the list, and says what is to be committed.
    fn keep(&self, news: News) -> (Event, Tx) {
        let News { what, text, member, numbers } = news;
        let (member, path) = member.map_or((None, None), |(member, path)| (Some(member), Some(path)));
        let mut kept = self.kept.lock();
        let (number, at) = (kept.next, self.fs.clock().now());
        let event = Event { number, at, what, text, member, path, numbers };
        kept.next += 1;
        kept.events.push_back(event.clone());
        let mut tx = Tx::new();
        tx.put(Table::Events, number_key(number), &event);
        while kept.events.len() > EVENTS_KEPT {
            if let Some(old) = kept.events.pop_front() {
                tx.delete(Table::Events, number_key(old.number));
            }
        }
        (event, tx)
    }

    /// Events with a number above `after`, oldest first.
    pub fn after(&self, after: u64) -> Vec<Event> {
        let kept = self.kept.lock();
        kept.events.iter().filter(|event| event.number > after).cloned().collect()
    }
}
