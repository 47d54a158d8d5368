//! Long jobs of a mounted pool, what happens to it, and who is told.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`job`] | what a job is: one bounded step after the other |
//! | [`scheduler`], [`pace`] | runs jobs, throttled, and keeps them over a crash |
//! | [`operations`] | what people ask for: add, remove, replace, offline, online, repair, rebalance, scrub |
//! | [`plan`] | what a job would do, in numbers, and why it can't |
//! | [`evacuate`] | empties a member and takes it out; also in favour of another one |
//! | [`repair`] | rebuilds slots on members that are not here, and sets that were written short |
//! | [`rebalance`] | evens out use, and writes narrow sets anew |
//! | `care` | what happens by itself: members that return are taken back, what others held is rebuilt |
//! | `carrier`, `load` | moves slots and rewrites sets, a bounded amount at a time; which come next |
//! | [`scrub`] | reads everything, compares it, heals it |
//! | [`damage`], `damage_list` | what is lost, by file and path; the list for those who ask often |
//! | [`events`], [`watch`], [`hook`] | the list of what happened; from states to events; the user's program |
//! | [`places`] | where a file lies; what would be lost with some members |
//! | [`settings`] | how fast jobs go, and when |

mod care;
mod carrier;
pub mod damage;
mod damage_list;
pub mod evacuate;
pub mod events;
pub mod hook;
pub mod job;
mod load;
pub mod operations;
mod pace;
pub mod places;
pub mod plan;
pub mod rebalance;
pub mod repair;
pub mod scheduler;
pub mod scrub;
pub mod settings;
#[cfg(test)]
mod tests;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use crate::fs::Fs;
use crate::sync::{Arc, Condvar, JoinHandle, Mutex, MutexGuard};
use care::Care;
use damage_list::DamageList;
use evacuate::Evacuate;
use events::{Events, Listener, News, What};
use hook::Hook;
use job::{Job, JobError, JobKind};
use rebalance::Rebalance;
use repair::Repair;
use scheduler::Scheduler;
use scrub::Scrub;
use watch::Watch;

/// So often a pool is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How to look after a pool.
#[derive(Debug, Clone, Default)]
pub struct MaintainOptions {
    /// A program that is told of every event.
    pub event_hook: Option<PathBuf>,
    /// Run threads; otherwise tests call [`Maintenance::look`] and [`Scheduler::run_step`].
    pub background: bool,
    /// A member may be away so long; then what it held is rebuilt elsewhere. None: only when somebody asks for it.
    pub grace: Option<Duration>,
    /// Mounting and unmounting are events.
    pub announce: bool,
}

/// How long a member may be away.
pub const GRACE: Duration = Duration::from_secs(600);

/// Looks after a mounted pool.
#[derive(Debug)]
pub struct Maintenance {
    fs: Arc<Fs>,
    events: Arc<Events>,
    scheduler: Arc<Scheduler>,
    hook: Option<Arc<Hook>>,
    watch: Mutex<Watch>,
    care: Mutex<Care>,
    damage: Arc<DamageList>,
    grace: Option<Duration>,
    announce: bool,
    /// Held while the membership changes; true once none may any more.
    closed: Mutex<bool>,
    stop: Mutex<bool>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Maintenance {
    /// Begins to look after a pool: jobs that were under way go on.
    pub fn start(fs: &Arc<Fs>, options: MaintainOptions) -> Arc<Self> {
        let pool = fs.pool();
        let hook = options.event_hook.map(|program| Arc::new(Hook::start(program, pool.name(), pool.uuid())));
        let listener = hook.clone().map(|hook| Box::new(move |event: &_| hook.hand(event)) as Listener);
        let events = Arc::new(Events::load(Arc::clone(fs), listener));
        let scheduler = Scheduler::load(Arc::clone(fs), Arc::clone(&events), make_job);
        let own = Arc::new(Self {
            fs: Arc::clone(fs),
            events,
            scheduler,
            hook,
            watch: Mutex::default(),
            care: Mutex::default(),
            damage: Arc::default(),
            grace: options.grace,
            announce: options.announce,
            closed: Mutex::new(false),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            thread: Mutex::new(None),
        });
        if own.announce {
            own.events.note(News::new(What::Mounted, format!("pool {} is mounted", own.fs.pool().name())));
        }
        own.look();
        if options.background {
            if !own.fs.pool().read_only() {
                own.scheduler.start_thread();
            }
            let looker = Arc::clone(&own);
            *own.thread.lock() = Some(crate::sync::spawn("watch", move || looker.keep_looking()));
        }
        own
    }

    fn keep_looking(self: &Arc<Self>) {
        let mut stop = self.stop.lock();
        while !*stop {
            self.wake.wait_for(&mut stop, LOOK_INTERVAL);
            if !*stop {
                MutexGuard::unlocked(&mut stop, || {
                    self.look();
                    self.look_for_missing();
                });
            }
        }
    }

    /// Looks at the pool once, and notes what is new.
    pub fn look(&self) {
        let news = self.watch.lock().look(self.fs.pool().status());
        news.into_iter().for_each(|news| self.events.note(news));
        self.events.store_waiting();
        self.scheduler.look_for_stalls();
        self.note_damage();
        self.care();
    }

    /// Ends all of it, before the file system is unmounted. Jobs go on at the next mount.
    pub fn stop(&self) {
        *self.closed.lock() = true;
        *self.stop.lock() = true;
        self.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.scheduler.stop();
        self.look();
        if self.announce {
            let text = format!("pool {} is unmounted", self.fs.pool().name());
            self.events.note(News::new(What::Unmounted, text));
        }
        if let Some(hook) = &self.hook {
            hook.stop();
        }
    }

    /// Files of which something is lost, as of a few seconds ago.
    pub fn damage(&self) -> damage::Damage {
        self.damage.get(&self.fs)
    }

    /// The file system.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// What happened.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// All jobs, as [`Scheduler::jobs`] has them, with the places of the members that they are about.
    pub fn jobs(&self) -> Vec<scheduler::JobStatus> {
        let mut jobs = self.scheduler.jobs();
        for job in &mut jobs {
            let member = job.kind.member().and_then(|id| self.fs.pool().members().get(usize::from(id)));
            if let Some(member) = member {
                job.text = format!("{} {}", job.kind, member.place());
            }
        }
        jobs
    }

    /// The jobs.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}

/// Makes a job of a kind: from its beginning, or to go on from where it was.
fn make_job(fs: &Fs, kind: &JobKind, cursor: Option<&[u8]>) -> Result<Box<dyn Job>, JobError> {
    Ok(match *kind {
        JobKind::Scrub => Box::new(cursor.map_or_else(|| Ok(Scrub::new()), Scrub::resume)?),
        JobKind::Repair => Box::new(Repair::new(fs, cursor.is_some_and(|cursor| cursor == [1]))),
        JobKind::Evacuate { member } => Box::new(Evacuate::new(fs, member)?),
        JobKind::Replace { old, new } => Box::new(Evacuate::replace(fs, old, new)?),
        JobKind::Rebalance => Box::new(Rebalance::new(fs)),
    })
}
