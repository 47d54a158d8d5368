//! The scheduler: runs jobs in steps, one step at a time, the most urgent job first.
//!
//! One thread is enough: each step is parallel over the members, and two jobs at once would send a disk's head to and fro
//! between them. A job that is pending lets the next one run. Between two steps it rests ([`super::pace`]).
//!
//! What must go on after a crash is in [`Table::Jobs`]: the kind of each job, whether it is paused, and its cursor. It is
//! written when a job begins, before that is answered; now and then while it runs; and when it ends.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::damage;
use super::events::{Events, News, What};
use super::job::{Count, Job, JobError, JobKind, Progress, Step};
use super::pace::{self, Pace, Speed};
use super::settings::Settings;
use crate::fs::Fs;
use crate::member::wire;
use crate::store::Tx;
use crate::store::tables::{Table, number_key, single};
use crate::sync::{Arc, Condvar, JoinHandle, Mutex, Timestamp};

/// Bytes of one step, about.
const STEP_BYTES: u64 = 4 << 20;
/// A job that is pending is tried again after this time.
const PENDING_REST: Duration = Duration::from_secs(1);
/// The cursor of a running job is kept so often.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// A job in which nothing has moved for so long is told of.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// Ended jobs that are remembered, so that who waits for one learns how it ended.
const ENDED_KEPT: usize = 16;
/// Above every key of the table.
const KEY_MAX: [u8; 9] = [0xff; 9];

/// Number of a job; never used again.
pub type JobId = u64;

/// How a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It works, or will in a moment.
    Running,
    /// It was told to rest.
    Paused,
    /// It can't go on for now.
    Pending,
    /// It did all it was to do.
    Done,
    /// It could not go on.
    Failed,
    /// It was told to end.
    Cancelled,
}

impl JobState {
    /// It will do nothing more.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// A job as people and programs see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its number.
    pub id: JobId,
    /// What it does.
    pub kind: JobKind,
    /// The same in words.
    pub text: String,
    /// How it is.
    pub state: JobState,
    /// Why it is pending, or why it failed.
    pub because: Option<String>,
    /// Bytes done, and to be done in all as far as that is known.
    pub done_bytes: u64,
    /// See `done_bytes`.
    pub total_bytes: u64,
    /// Bytes a second, over the last half minute.
    pub rate: Option<u64>,
    /// Seconds until it is done at that rate.
    pub eta: Option<u64>,
    /// It should work, and nothing has moved for a minute.
    pub stalled: bool,
    /// When it was started.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// What it has counted.
    pub counts: Vec<Count>,
}

/// What can be done with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steer {
    /// Rest until told to go on.
    Pause,
    /// Go on.
    Resume,
    /// End now; what was done stays done.
    Cancel,
}

/// Why a job was not started or steered.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// One of that kind is there already.
    #[error(
        "{kind} runs already (job {id}): `poolctl jobs` shows how far it is, and it can be paused or cancelled"
    )]
    Running {
        /// What was asked for.
        kind: JobKind,
        /// The one that runs.
        id: JobId,
    },
    /// No such job.
    #[error("no {what} runs: `poolctl jobs` shows those that do")]
    NoSuchJob {
        /// What was asked for.
        what: String,
    },
    /// The mount takes no changes.
    #[error("the pool is mounted read-only, and a job writes: mount it read-write to run one")]
    ReadOnly,
    /// It can't be done.
    #[error(transparent)]
    Job(#[from] JobError),
    /// It could not be noted, so that a crash would lose it.
    #[error("the job could not be noted: {0}")]
    NotNoted(#[from] crate::fs::FsError),
}

/// Result of an operation of the scheduler.
pub type Result<T> = std::result::Result<T, ScheduleError>;

/// The value in the table.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    kind: JobKind,
    paused: bool,
    started: Timestamp,
    cursor: serde_bytes::ByteBuf,
}

/// A job that has not ended.
struct Entry {
    id: JobId,
    kind: JobKind,
    /// None while a step of it is under way.
    job: Option<Box<dyn Job>>,
    paused: bool,
    cancelled: bool,
    pending: Option<String>,
    pending_told: bool,
    /// Not before this time.
    due: Duration,
    progress: Progress,
    counts: Vec<Count>,
    speed: Speed,
    started: Timestamp,
    saved_at: Duration,
    /// When something moved last.
    moved_at: Duration,
    stall_told: bool,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    ended: VecDeque<JobStatus>,
    next_id: JobId,
    settings: Settings,
    pace: Pace,
    stop: bool,
}

/// Makes a job of a kind, to go on from a cursor if there is one.
pub type Factory = fn(&Fs, &JobKind, Option<&[u8]>) -> std::result::Result<Box<dyn Job>, JobError>;

/// Runs jobs.
pub struct Scheduler {
    fs: Arc<Fs>,
    events: Arc<Events>,
    factory: Factory,
    /// Held by who changes the table of jobs, from looking at the state to having committed. The state's own lock is held
    /// for memory work only, so that how the jobs are can be told whatever the disks do.
    turn: Mutex<()>,
    state: Mutex<State>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

impl Scheduler {
    /// With the jobs that were there at the last unmount or crash. They go on once [`Scheduler::start_thread`] or
    /// [`Scheduler::run_step`] is called.
    pub fn load(fs: Arc<Fs>, events: Arc<Events>, factory: Factory) -> Arc<Self> {
        let mut state = State { settings: Settings::load(&fs), ..State::default() };
        let now = fs.clock().elapsed();
        let next = fs.store().read::<u64>(Table::Counters, NEXT_JOB).ok().flatten();
        state.next_id = next.unwrap_or(1);
        let rows = fs.store().scan(Table::Jobs, &[], &KEY_MAX, usize::MAX).unwrap_or_else(|error| {
            log::warn!("the list of jobs can't be read: {error}");
            Vec::new()
        });
        for (key, value) in rows {
            let (Some(id), Ok(record)) = (single(&key), wire::unpack::<Record>(&value)) else {
                log::warn!("the record of a job is damaged");
                continue;
            };
            match factory(&fs, &record.kind, Some(&record.cursor)) {
                Ok(job) => {
                    let mut entry = Entry::new(id, job, record.started, now);
                    entry.paused = record.paused;
                    state.next_id = state.next_id.max(id + 1);
                    state.entries.push(entry);
                }
                Err(error) => {
                    let text = format!("{} does not go on: {error}", record.kind);
                    log::warn!("{text}");
                    events.note(News::new(What::JobEnded, text).with("job", id));
                    let mut tx = Tx::new();
                    tx.delete(Table::Jobs, key);
                    if let Err(error) = fs.commit_records(tx) {
                        log::debug!("that it does not go on was not noted: {error}");
                    }
                }
            }
        }
        let (state, wake) = (Mutex::new(state), Condvar::new());
        Arc::new(Self { fs, events, factory, turn: Mutex::new(()), state, wake, thread: Mutex::new(None) })
    }

    /// Runs jobs in a thread from now on.
    pub fn start_thread(self: &Arc<Self>) {
        let own = Arc::clone(self);
        *self.thread.lock() = Some(crate::sync::spawn("jobs", move || own.run()));
    }

    /// Ends the thread after the step under way, and keeps where the jobs are.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            log::error!("the thread of the jobs had panicked");
        }
        let _turn = self.turn.lock();
        let records: Vec<_> = self.state.lock().entries.iter().filter_map(Entry::saved).collect();
        records.into_iter().for_each(|tx| self.commit(tx));
    }

    /// Starts a job. It is durable, and goes on after a crash, when this returns.
    ///
    /// # Errors
    /// [`ScheduleError::Running`], [`ScheduleError::ReadOnly`], [`ScheduleError::NotNoted`].
    pub fn start(&self, job: Box<dyn Job>) -> Result<JobStatus> {
        if self.fs.pool().read_only() {
            return Err(ScheduleError::ReadOnly);
        }
        let kind = job.kind();
        let _turn = self.turn.lock();
        let now = self.fs.clock().elapsed();
        self.refuse_twice(&kind)?;
        let id = self.state.lock().next_id;
        let entry = Entry::new(id, job, self.fs.clock().now(), now);
        let mut tx = Tx::new();
        tx.put(Table::Counters, NEXT_JOB.to_vec(), &(id + 1));
        tx.put(Table::Jobs, number_key(id), &entry.record());
        let seq = self.fs.commit_records(tx)?;
        self.fs.store().sync(seq).map_err(crate::fs::FsError::from)?;
        let status = entry.status(now);
        // Told before it can end.
        self.events.note(News::new(What::JobStarted, format!("{kind} began")).with("job", id));
        let mut state = self.state.lock();
        state.next_id = id + 1;
        state.entries.push(entry);
        drop(state);
        self.wake.notify_all();
        Ok(status)
    }

    /// Says whether a job of this kind could be started.
    ///
    /// # Errors
    /// [`ScheduleError::Running`].
    pub fn refuse_twice(&self, kind: &JobKind) -> Result<()> {
        let state = self.state.lock();
        match state.entries.iter().find(|entry| entry.kind == *kind) {
            Some(other) => Err(ScheduleError::Running { kind: kind.clone(), id: other.id }),
            None => Ok(()),
        }
    }

    /// Starts a job of this kind from its beginning.
    ///
    /// # Errors
    /// As [`Scheduler::start`].
    pub fn start_kind(&self, kind: &JobKind) -> Result<JobStatus> {
        self.start((self.factory)(&self.fs, kind, None)?)
    }

    /// Pauses, resumes or cancels the job that `which` names.
    ///
    /// # Errors
    /// [`ScheduleError::NoSuchJob`].
    pub fn steer(&self, which: &Which, steer: Steer) -> Result<JobStatus> {
        let turn = self.turn.lock();
        let mut state = self.state.lock();
        let now = self.fs.clock().elapsed();
        let entry = state
            .entries
            .iter_mut()
            .find(|entry| which.is(entry.id, &entry.kind))
            .ok_or_else(|| ScheduleError::NoSuchJob { what: which.to_string() })?;
        let (id, kind) = (entry.id, entry.kind.clone());
        match steer {
            Steer::Pause => entry.paused = true,
            Steer::Resume => {
                entry.paused = false;
                (entry.due, entry.moved_at) = (now, now);
            }
            Steer::Cancel => entry.cancelled = true,
        }
        let mut status = entry.status(now);
        let mut tx = entry.saved();
        // Otherwise a step is under way, and it ends after that.
        if steer == Steer::Cancel && entry.job.is_some() {
            let ended = self.end(&mut state, id, JobState::Cancelled, None);
            (status, tx) = ended.map_or((status, tx), |(status, tx)| (status, Some(tx)));
        }
        drop(state);
        tx.into_iter().for_each(|tx| self.commit(tx));
        drop(turn);
        let word = match steer {
            Steer::Pause => "is paused",
            Steer::Resume => "goes on",
            Steer::Cancel => "was cancelled",
        };
        let what = if steer == Steer::Cancel { What::JobEnded } else { What::JobPaused };
        self.events.note(News::new(what, format!("{kind} {word}")).with("job", id));
        self.wake.notify_all();
        Ok(status)
    }

    /// All jobs: those that have not ended, and then the last that did.
    pub fn jobs(&self) -> Vec<JobStatus> {
        let state = self.state.lock();
        let now = self.fs.clock().elapsed();
        let mut all: Vec<JobStatus> = state.entries.iter().map(|entry| entry.status(now)).collect();
        all.extend(state.ended.iter().cloned());
        all
    }

    /// The settings.
    pub fn settings(&self) -> Settings {
        self.state.lock().settings
    }

    /// Changes the settings, durably.
    ///
    /// # Errors
    /// [`ScheduleError::ReadOnly`], [`ScheduleError::NotNoted`].
    pub fn set(&self, settings: Settings) -> Result<()> {
        if self.fs.pool().read_only() {
            return Err(ScheduleError::ReadOnly);
        }
        let turn = self.turn.lock();
        settings.store(&self.fs)?;
        self.state.lock().settings = settings;
        drop(turn);
        let text = format!("jobs: rate {}, window {}", settings.job_rate, settings.job_window);
        self.events.note(News::new(What::Setting, text));
        self.wake.notify_all();
        Ok(())
    }

    fn run(&self) {
        loop {
            let rest = self.run_step();
            let mut state = self.state.lock();
            if state.stop {
                return;
            }
            self.wake.wait_for(&mut state, rest);
            if state.stop {
                return;
            }
        }
    }

    /// One step of the most urgent job that can go on. Says when to come again. What the thread does; without one, tests
    /// call it.
    pub fn run_step(&self) -> Duration {
        let Some((id, mut job)) = self.pick() else { return self.next_due() };
        let begun = self.fs.clock().elapsed();
        let outcome = job.step(&self.fs, STEP_BYTES);
        let progress = job.progress();
        if !progress.unsaved.is_empty()
            && let Err(error) = damage::note_unsaved(&self.fs, &progress.unsaved)
        {
            log::warn!("what could not be saved is not noted: {error}");
        }
        self.put_back(id, job, begun, outcome, progress)
    }

    /// Takes out the job whose turn it is.
    fn pick(&self) -> Option<(JobId, Box<dyn Job>)> {
        let calls = self.calls();
        let mut state = self.state.lock();
        let now = self.fs.clock().elapsed();
        if state.stop {
            return None;
        }
        let window = state.settings.job_window;
        if !window.is_open(self.fs.clock().minute_of_day()) {
            let because = format!("it is outside of the time for jobs ({window})");
            let waiting = state.entries.iter_mut().filter(|entry| !entry.paused);
            let news: Vec<News> = waiting.filter_map(|entry| entry.wait(because.clone(), now)).collect();
            drop(state);
            news.into_iter().for_each(|news| self.events.note(news));
            return None;
        }
        let ready = |entry: &&mut Entry| !entry.paused && entry.due <= now && entry.job.is_some();
        let entry =
            state.entries.iter_mut().filter(ready).min_by_key(|entry| (entry.kind.rank(), entry.id))?;
        let id = entry.id;
        let job = entry.job.take()?;
        state.pace.begin(now, calls);
        Some((id, job))
    }

    /// When the next job is due, if none is now.
    fn next_due(&self) -> Duration {
        let state = self.state.lock();
        let now = self.fs.clock().elapsed();
        let next = state.entries.iter().filter(|entry| !entry.paused).map(|entry| entry.due).min();
        // New jobs and settings wake the thread; the window opens by the clock.
        next.map_or(PENDING_REST, |due| due.saturating_sub(now).clamp(Duration::from_millis(1), PENDING_REST))
    }

    /// Takes a job back after a step.
    fn put_back(
        &self,
        id: JobId,
        job: Box<dyn Job>,
        begun: Duration,
        outcome: std::result::Result<Step, JobError>,
        progress: Progress,
    ) -> Duration {
        let turn = self.turn.lock();
        let (calls, now) = (self.calls(), self.fs.clock().elapsed());
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(entry) = state.entries.iter_mut().find(|entry| entry.id == id) else { return PENDING_REST };
        entry.counts = job.counts();
        entry.progress = progress;
        entry.speed.note(now, entry.progress.done_bytes);
        entry.job = Some(job);
        let (mut rest, mut news, mut tx) = (Duration::ZERO, None, None);
        let end = match outcome {
            _ if entry.cancelled => Some((JobState::Cancelled, None)),
            Ok(Step::Moved(bytes)) => {
                (entry.pending, entry.pending_told) = (None, false);
                (entry.moved_at, entry.stall_told) = (now, false);
                rest = state.pace.end(begun, now, bytes, state.settings.job_rate, calls);
                None
            }
            Ok(Step::Pending(because)) => {
                news = entry.wait(because, now);
                None
            }
            Ok(Step::Done) => Some((JobState::Done, None)),
            Err(error) => Some((JobState::Failed, Some(error.to_string()))),
        };
        match end {
            Some((how, because)) => {
                if let Some((status, gone)) = self.end(state, id, how, because) {
                    // Who cancelled it has told of that.
                    news = (how != JobState::Cancelled).then(|| ended_news(&status));
                    tx = Some(gone);
                }
            }
            None if now.saturating_sub(entry.saved_at) >= SAVE_INTERVAL => {
                entry.saved_at = now;
                tx = entry.saved();
            }
            None => {}
        }
        drop(guard);
        tx.into_iter().for_each(|tx| self.commit(tx));
        drop(turn);
        news.into_iter().for_each(|news| self.events.note(news));
        rest
    }

    /// Takes a job from the list of those that have not ended. Says how it ended, and what is to be committed.
    fn end(
        &self,
        state: &mut State,
        id: JobId,
        how: JobState,
        because: Option<String>,
    ) -> Option<(JobStatus, Tx)> {
        let now = self.fs.clock().elapsed();
        let index = state.entries.iter().position(|entry| entry.id == id)?;
        let mut status = state.entries.remove(index).status(now);
        (status.state, status.because, status.stalled) = (how, because, false);
        (status.ended, status.eta) = (Some(self.fs.clock().now()), None);
        state.ended.push_front(status.clone());
        state.ended.truncate(ENDED_KEPT);
        let mut tx = Tx::new();
        tx.delete(Table::Jobs, number_key(id));
        if how == JobState::Done && status.kind == JobKind::Scrub {
            tx.put(Table::Settings, LAST_SCRUB.to_vec(), &status);
        }
        Some((status, tx))
    }

    /// The last scrub that came to its end.
    pub fn last_scrub(&self) -> Option<JobStatus> {
        self.fs.store().read(Table::Settings, LAST_SCRUB).ok().flatten()
    }

    /// What is kept of a job are absolute values, and it goes on from any earlier ones: what is not noted does no harm.
    fn commit(&self, tx: Tx) {
        if let Err(error) = self.fs.commit_records(tx) {
            log::warn!("how a job is was not noted: {error}");
        }
    }

    /// Tells of jobs in which nothing moves although it should. Called now and then from outside of the thread, which may
    /// be what hangs.
    pub fn look_for_stalls(&self) {
        let now = self.fs.clock().elapsed();
        let mut news = Vec::new();
        for entry in &mut self.state.lock().entries {
            if entry.is_stalled(now) && !std::mem::replace(&mut entry.stall_told, true) {
                let text = format!("nothing has moved in {} for {} s", entry.kind, STALLED_AFTER.as_secs());
                news.push(News::new(What::JobStalled, text).with("job", entry.id));
            }
        }
        for one in news {
            log::warn!("{}", one.text);
            self.events.note(one);
        }
    }

    fn calls(&self) -> u64 {
        pace::sum(self.fs.pool().members().iter().map(|member| member.meter.traffic()))
    }
}

const NEXT_JOB: &[u8] = b"next-job";
const LAST_SCRUB: &[u8] = b"last-scrub";

/// Names one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// By its number.
    Id(JobId),
    /// By what it does.
    Kind(JobKind),
}

impl Which {
    fn is(&self, id: JobId, kind: &JobKind) -> bool {
        match self {
            Self::Id(wanted) => *wanted == id,
            Self::Kind(wanted) => wanted == kind,
        }
    }
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "job {id}"),
            Self::Kind(kind) => write!(f, "{kind}"),
        }
    }
}

impl Entry {
    fn new(id: JobId, job: Box<dyn Job>, started: Timestamp, now: Duration) -> Self {
        Self {
            id,
            kind: job.kind(),
            progress: job.progress(),
            counts: job.counts(),
            job: Some(job),
            paused: false,
            cancelled: false,
            pending: None,
            pending_told: false,
            due: now,
            speed: Speed::default(),
            started,
            saved_at: now,
            moved_at: now,
            stall_told: false,
        }
    }

    fn record(&self) -> Record {
        let cursor = self.job.as_ref().map(|job| job.cursor()).unwrap_or_default();
        let cursor = serde_bytes::ByteBuf::from(cursor);
        Record { kind: self.kind.clone(), paused: self.paused, started: self.started, cursor }
    }

    /// What is to be committed so that it goes on from here. None while a step of it is under way.
    fn saved(&self) -> Option<Tx> {
        self.job.as_ref()?;
        let mut tx = Tx::new();
        tx.put(Table::Jobs, number_key(self.id), &self.record());
        Some(tx)
    }

    /// It can't go on for now. News when it waits for the same reason for the second time: a moment's wait is none.
    fn wait(&mut self, because: String, now: Duration) -> Option<News> {
        (self.due, self.moved_at) = (now + PENDING_REST, now);
        let told = self.pending_told;
        let known = self.pending.as_ref() == Some(&because);
        self.pending_told = known;
        let news = (known && !told).then(|| {
            let text = format!("{} waits: {because}", self.kind);
            News::new(What::JobPending, text).with("job", self.id)
        });
        self.pending = Some(because);
        news
    }

    fn is_stalled(&self, now: Duration) -> bool {
        !self.paused && self.pending.is_none() && now.saturating_sub(self.moved_at) > STALLED_AFTER
    }

    fn status(&self, now: Duration) -> JobStatus {
        let Progress { done_bytes, total_bytes, .. } = self.progress;
        let state = match (self.paused, &self.pending) {
            (true, _) => JobState::Paused,
            (false, Some(_)) => JobState::Pending,
            (false, None) => JobState::Running,
        };
        let rate = self.speed.rate(now, done_bytes).filter(|_| state == JobState::Running);
        let left = total_bytes.saturating_sub(done_bytes);
        JobStatus {
            id: self.id,
            kind: self.kind.clone(),
            text: self.kind.to_string(),
            state,
            because: self.pending.clone().filter(|_| state == JobState::Pending),
            done_bytes,
            total_bytes,
            rate,
            eta: rate.filter(|rate| *rate > 0).map(|rate| left.div_ceil(rate)),
            stalled: self.is_stalled(now),
            started: self.started,
            ended: None,
            counts: self.counts.clone(),
        }
    }
}

fn ended_news(status: &JobStatus) -> News {
    let what = if status.state == JobState::Done { What::JobDone } else { What::JobEnded };
    let text = match &status.because {
        None => format!("{} is done", status.kind),
        Some(why) => format!("{} ended: {why}", status.kind),
    };
    let news = News::new(what, text).with("job", status.id).with("bytes", status.done_bytes);
    status.counts.iter().fold(news, |news, count| news.with(&count.what, count.number))
}
