//! Work for one disk, and the threads that do it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sync::{Arc, Condvar, Mutex, spawn};

/// A thread that has had nothing to do for so long ends.
const IDLE_MOST: Duration = Duration::from_secs(20);

/// Something to be done.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// Work that waits, and threads that take it in turn: as many as are needed, up to a limit.
#[derive(Debug)]
pub(super) struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    most: usize,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    work: VecDeque<Work>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Queue {
    /// An empty queue without threads; `name` is what they will be called.
    pub(super) fn new(name: &str, most: usize) -> Self {
        let shared = Shared { name: name.to_owned(), most, state: Mutex::default(), bell: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Hands over work.
    pub(super) fn push(&self, work: Work) {
        let mut state = self.shared.state.lock();
        state.work.push_back(work);
        if state.work.len() > state.idle && state.threads < self.shared.most {
            state.threads += 1;
            let shared = Arc::clone(&self.shared);
            spawn(&self.shared.name, move || shared.serve());
        } else {
            self.shared.bell.notify_one();
        }
    }
}

impl Drop for Queue {
    /// What waits is still done; then the threads end. Nobody waits for that: one may hang in its disk.
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.bell.notify_all();
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.work.pop_front() {
                drop(state);
                // A panic drops the reply, which tells the one who waits; the thread goes on.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let rested = !state.closed && self.bell.wait_for(&mut state, IDLE_MOST).timed_out();
            state.idle -= 1;
            if state.work.is_empty() && (rested || state.closed) {
                state.threads -= 1;
                return;
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State({} waiting, {} of {} threads idle)", self.work.len(), self.idle, self.threads)
    }
}
