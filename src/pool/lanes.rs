//! Threads that do things with several members in parallel that take more than one request each: one lane for
//! writes and one for reads of each member. Single requests need no lane (see [`crate::member::request`]).

use std::time::Duration;

use crate::limits::MEMBERS_MAX;
use crate::member::guard::GuardOptions;
use crate::member::superblock::MemberId;
use crate::sync::{Clock, OnceLock, mpsc, spawn};

type Task = Box<dyn FnOnce() + Send>;

/// Which of a member's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Reads wait behind reads only.
    Read,
    /// Writes and syncs.
    Write,
}

/// The lanes of all members. Without threads everything runs on the caller's thread, in order: that is
/// what makes simulated runs repeatable.
#[derive(Debug)]
pub struct Lanes {
    /// By member, made with a member's first job; empty without threads.
    lanes: Vec<OnceLock<[mpsc::Sender<Task>; 2]>>,
    clock: Clock,
}

impl Lanes {
    /// Lanes for all members that there are and will be, or none at all.
    pub fn new(io: &GuardOptions) -> Self {
        let most = if io.threads { MEMBERS_MAX } else { 0 };
        Self { lanes: (0..most).map(|_| OnceLock::new()).collect(), clock: io.clock.clone() }
    }

    /// Runs every job on its member's lane and returns the results in the jobs' order. The last job runs
    /// on the caller's thread. A job that panicked gives none.
    pub fn run<T: Send + 'static>(&self, lane: Lane, mut jobs: Vec<Job<T>>) -> Vec<Option<T>> {
        let last = jobs.pop();
        let started = self.start(lane, jobs);
        let own = last.map(|(_, job)| job());
        let mut done = started.wait();
        done.push(own);
        done
    }

    /// Hands every job to its member's lane and returns at once.
    pub fn start<T: Send + 'static>(&self, lane: Lane, jobs: Vec<Job<T>>) -> Started<T> {
        let count = jobs.len();
        let (results, arrived) = mpsc::channel();
        for (index, (member, job)) in jobs.into_iter().enumerate() {
            let results = results.clone();
            let clock = self.clock.clone();
            let task: Task = Box::new(move || {
                let (result, ended) = clock.aside(job);
                let _ = results.send((index, ended, result));
            });
            match self.lanes.get(usize::from(member)) {
                Some(lanes) => {
                    let lanes = lanes.get_or_init(|| [start_lane(member, "r"), start_lane(member, "w")]);
                    if let Err(mpsc::SendError(task)) = lanes[lane as usize].send(task) {
                        task();
                    }
                }
                None => task(),
            }
        }
        Started { count, arrived, clock: self.clock.clone() }
    }
}

/// A job for one member's lane.
pub type Job<T> = (MemberId, Box<dyn FnOnce() -> T + Send>);

/// Jobs that are under way.
#[derive(Debug)]
pub struct Started<T> {
    count: usize,
    arrived: mpsc::Receiver<(usize, Duration, T)>,
    clock: Clock,
}

impl<T> Started<T> {
    /// Waits for all of them. Results are in the jobs' order; a job that panicked gives none.
    pub fn wait(self) -> Vec<Option<T>> {
        let mut done: Vec<Option<T>> = (0..self.count).map(|_| None).collect();
        for (index, ended, result) in self.arrived {
            self.clock.advance_to(ended);
            done[index] = Some(result);
        }
        done
    }
}

fn start_lane(member: MemberId, kind: &str) -> mpsc::Sender<Task> {
    let (tasks, inbox) = mpsc::channel::<Task>();
    spawn(&format!("member-{member}{kind}"), move || {
        for task in inbox {
            // A panicking job drops its result's sender; the lane itself goes on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task));
        }
    });
    tasks
}
