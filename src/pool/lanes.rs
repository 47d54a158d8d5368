//! Threads that do things with several members in parallel that take more than one request each: a lane for each
//! member. Single requests need no lane (see [`crate::member::request`]).

use std::time::Duration;

use crate::member::guard::GuardOptions;
use crate::member::superblock::MemberId;
use crate::sync::{Clock, mpsc, spawn};

type Task = Box<dyn FnOnce() + Send>;

/// The lanes of all members. Without threads everything runs on the caller's thread, in order: that is
/// what makes simulated runs repeatable.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<mpsc::Sender<Task>>,
    clock: Clock,
}

impl Lanes {
    /// Lanes for members `0..members`, or none at all.
    pub fn new(members: usize, io: &GuardOptions) -> Self {
        let lanes = if io.threads { (0..members).map(lane).collect() } else { Vec::new() };
        Self { lanes, clock: io.clock.clone() }
    }

    /// Runs every job on its member's lane and returns the results in the jobs' order. The last job runs
    /// on the caller's thread. A job that panicked gives none.
    pub fn run<T: Send + 'static>(&self, mut jobs: Vec<Job<T>>) -> Vec<Option<T>> {
        let last = jobs.pop();
        let started = self.start(jobs);
        let own = last.map(|(_, job)| job());
        let mut done = started.wait();
        done.push(own);
        done
    }

    /// Hands every job to its member's lane and returns at once.
    fn start<T: Send + 'static>(&self, jobs: Vec<Job<T>>) -> Started<T> {
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
                Some(lane) => {
                    if let Err(mpsc::SendError(task)) = lane.send(task) {
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
struct Started<T> {
    count: usize,
    arrived: mpsc::Receiver<(usize, Duration, T)>,
    clock: Clock,
}

impl<T> Started<T> {
    /// Waits for all of them. Results are in the jobs' order; a job that panicked gives none.
    fn wait(self) -> Vec<Option<T>> {
        let mut done: Vec<Option<T>> = (0..self.count).map(|_| None).collect();
        for (index, ended, result) in self.arrived {
            self.clock.advance_to(ended);
            done[index] = Some(result);
        }
        done
    }
}

fn lane(member: usize) -> mpsc::Sender<Task> {
    let (tasks, inbox) = mpsc::channel::<Task>();
    spawn(&format!("member-{member}"), move || {
        for task in inbox {
            // A panicking job drops its result's sender; the lane itself goes on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task));
        }
    });
    tasks
}
