//! The flusher: threads that have dirty data written out when it is old, or when there is much of it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::Ino;
use super::cache::{Cache, Inner};
use super::dirty::Due;
use super::error::FlushError;
use crate::limits::FLUSH_BATCH_BYTES;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, JoinHandle, Mutex, spawn};

/// Threads of a flusher: one computes while the other waits for disks.
const THREADS: usize = 2;
/// Pause after a flush that failed.
const BACK_OFF: Duration = Duration::from_secs(1);
/// Pause when everything that is due was passed over by the file system.
const NO_PROGRESS: Duration = Duration::from_millis(100);
/// Pause when more waits than should, and others are at it already.
const CROWDED: Duration = Duration::from_millis(10);
/// The shortest and longest sleep between looks at the files' age.
const TICK_MIN: Duration = Duration::from_millis(5);
const TICK_MAX: Duration = Duration::from_millis(500);

/// Threads that call [`Backing::flush`](super::Backing::flush) for files that are due. Errors leave the
/// data dirty; it is tried again a second later, and the log says once that flushing fails, and once
/// that it works again.
pub struct Flusher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    inner: Arc<Inner>,
    /// How many threads are flushing each file.
    claims: Mutex<HashMap<Ino, usize>>,
    failing: AtomicBool,
}

impl Flusher {
    /// Starts the threads. One flusher at a time for a cache.
    pub fn start(cache: &Cache) -> Self {
        let inner = cache.0.clone();
        inner.bell.stop(false);
        inner.flushers.fetch_add(THREADS, Ordering::AcqRel);
        let shared = Arc::new(Shared { inner, claims: Mutex::default(), failing: AtomicBool::new(false) });
        let threads = (0..THREADS)
            .map(|_| {
                let shared = shared.clone();
                spawn("poolfs-flush", move || shared.work())
            })
            .collect();
        Self { shared, threads }
    }

    /// Ends the threads, after the flush that each may be in. What is dirty stays so.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.shared.inner.bell.stop(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a flusher thread ended in a panic");
            }
        }
        self.shared.inner.flushers.fetch_sub(THREADS, Ordering::AcqRel);
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn work(&self) {
        let bell = &self.inner.bell;
        let tick = (self.inner.commit_age / 4).clamp(TICK_MIN, TICK_MAX);
        while !bell.is_stopped() {
            // Listening starts before the look, so that no ring between the two is missed.
            bell.listen();
            let batch = self.claim();
            if !batch.is_empty() {
                bell.stay_awake();
                self.flush(batch);
            } else if self.inner.is_pressed() {
                bell.stay_awake();
                bell.rest(CROWDED);
            } else {
                bell.sleep(tick);
            }
        }
    }

    /// Takes what is due and not being flushed. Of a file with plenty of data two threads may each
    /// take a part.
    fn claim(&self) -> Vec<Due> {
        let mut claims = self.claims.lock();
        let batch = self.inner.due(self.inner.clock.elapsed(), |due| {
            claims.get(&due.ino).is_none_or(|n| *n < THREADS && due.bytes >= FLUSH_BATCH_BYTES)
        });
        for due in &batch {
            *claims.entry(due.ino).or_default() += 1;
        }
        batch
    }

    fn flush(&self, batch: Vec<Due>) {
        let inos: Vec<Ino> = batch.iter().map(|due| due.ino).collect();
        let result = self.call(&inos);
        self.note(&result);
        let pause = match result {
            Err(_) => Some(BACK_OFF),
            Ok(()) => self.pass_over(&batch).then_some(NO_PROGRESS),
        };
        if let Some(pause) = pause {
            self.inner.bell.rest(pause);
        }
        let mut claims = self.claims.lock();
        for ino in inos {
            if let Some(n) = claims.get_mut(&ino) {
                *n -= 1;
                if *n == 0 {
                    claims.remove(&ino);
                }
            }
        }
    }

    fn call(&self, inos: &[Ino]) -> Result<(), FlushError> {
        let Some(backing) = self.inner.backing() else {
            return Err(FlushError { message: "the file system behind the cache is not mounted".into() });
        };
        // A panic must not silently end all flushing; the data is still dirty and is tried again.
        catch_unwind(AssertUnwindSafe(|| backing.flush(inos)))
            .unwrap_or_else(|_| Err(FlushError { message: "the flush ended in a panic".into() }))
    }

    /// Logs when flushing begins to fail and when it works again.
    fn note(&self, result: &Result<(), FlushError>) {
        match result {
            Err(error) if !self.failing.swap(true, Ordering::AcqRel) => log::error!(
                "dirty data can't be written out: {error}. It is kept in memory and tried again every second"
            ),
            Ok(()) if self.failing.swap(false, Ordering::AcqRel) => {
                log::info!("dirty data is written out again");
            }
            _ => {}
        }
    }

    /// Lets files of which the file system took nothing (it may hold them back for a while) age anew.
    /// Returns whether it took nothing at all.
    fn pass_over(&self, batch: &[Due]) -> bool {
        let mut nothing = true;
        for due in batch {
            match self.inner.look(due.ino) {
                Some(now) if now.captures == due.captures && now.bytes >= due.bytes => {
                    self.inner.set_age(due.ino, self.inner.clock.elapsed());
                }
                _ => nothing = false,
            }
        }
        nothing
    }
}
