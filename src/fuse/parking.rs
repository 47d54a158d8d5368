//! Requests that must wait for space or for a disk, and the threads that wait with them, so that the threads that
//! serve the kernel stay free for reads, deletes and statfs.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, spawn};

/// A thread with nothing to do ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// What a parked request still has to do: the rest of its work and its reply.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// A bounded number of waiting requests, and the threads they wait on.
#[derive(Debug)]
pub(super) struct Parking {
    shared: Arc<Shared>,
    name: &'static str,
    threads_max: usize,
    jobs_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signalled when a job is queued.
    work: Condvar,
    /// Signalled when a job ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Job, usize)>,
    /// Places that are taken: reserved, queued or running.
    taken: usize,
    bytes: usize,
    threads: usize,
    idle: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State {{ taken: {}, bytes: {}, threads: {} }}", self.taken, self.bytes, self.threads)
    }
}

impl Parking {
    /// A parking for at most `jobs_max` requests that hold at most `bytes_max` bytes of data, on at most
    /// `threads_max` threads called `name`.
    pub(super) fn new(name: &'static str, threads_max: usize, jobs_max: usize, bytes_max: usize) -> Self {
        Self { shared: Arc::default(), name, threads_max, jobs_max, bytes_max }
    }

    /// Takes a place for a request with `bytes` of data; `None` when there is none left.
    pub(super) fn place(&self, bytes: usize) -> Option<Place<'_>> {
        let mut state = self.shared.state.lock();
        if state.taken >= self.jobs_max || state.bytes + bytes > self.bytes_max {
            return None;
        }
        state.taken += 1;
        state.bytes += bytes;
        Some(Place { parking: self, bytes, used: false })
    }

    /// Returns when no request is parked any more.
    pub(super) fn drain(&self) {
        let mut state = self.shared.state.lock();
        while state.taken > 0 {
            self.shared.ended.wait(&mut state);
        }
    }

    fn queue(&self, job: Job, bytes: usize) {
        let mut state = self.shared.state.lock();
        state.queue.push_back((job, bytes));
        if state.idle >= state.queue.len() || state.threads >= self.threads_max {
            self.shared.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        spawn(self.name, move || shared.serve());
    }
}

/// A place in a [`Parking`], given back when the job that takes it has ended, or when it is dropped unused.
pub(super) struct Place<'a> {
    parking: &'a Parking,
    bytes: usize,
    used: bool,
}

impl Place<'_> {
    /// Runs `job` on one of the parking's threads. It must not panic.
    pub(super) fn park(mut self, job: Job) {
        self.used = true;
        self.parking.queue(job, self.bytes);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.parking.shared.end(self.bytes);
        }
    }
}

/// Threads that may wait although they have other work: handing a request to another thread costs more than
/// waiting with it, as long as enough threads remain.
#[derive(Debug)]
pub(super) struct Loans(AtomicUsize);

impl Loans {
    /// So many at a time.
    pub(super) fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// Lends the thread that asks, until what is returned is dropped.
    pub(super) fn take(&self) -> Option<Loan<'_>> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok().then_some(Loan(self))
    }
}

/// A thread on loan.
pub(super) struct Loan<'a>(&'a Loans);

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((job, bytes)) = state.queue.pop_front() {
                drop(state);
                job();
                self.end(bytes);
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn end(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.taken -= 1;
        state.bytes -= bytes;
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::mpsc;

    #[test]
    fn loans_run_out_and_come_back() {
        let loans = Loans::new(1);
        let loan = loans.take();
        assert!(loan.is_some() && loans.take().is_none());
        drop(loan);
        assert!(loans.take().is_some());
    }

    #[test]
    fn places_run_out_and_come_back() {
        let parking = Parking::new("test", 2, 3, 100);
        let (release, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..3 {
            let wait = Arc::clone(&wait);
            parking.place(10).expect("a place").park(Box::new(move || wait.lock().recv().unwrap_or(())));
        }
        assert!(parking.place(0).is_none(), "a fourth place was given");
        drop(release);
        parking.drain();
        assert!(parking.place(101).is_none(), "too many bytes were taken");
        drop(parking.place(100).expect("all bytes are free again"));
        assert!(parking.place(100).is_some(), "a dropped place was not given back");
    }
}
