//! Which files have dirty data waiting, since when, and which of them to flush now.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Ino;
use super::cache::{Cache, Inner};
use super::page::PAGE_BYTES;
use crate::limits::FLUSH_BATCH_BYTES;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};

/// Files looked at for one batch: enough for a full batch of files of one page each.
const CANDIDATES: usize = (FLUSH_BATCH_BYTES / PAGE_BYTES) as usize;

/// Files with dirty data that no capture has, oldest first. Taken last of all locks.
#[derive(Default)]
pub(super) struct Queue(Mutex<BTreeSet<(Duration, Ino)>>);

impl Queue {
    /// Notes that a file waits since another moment now (none: does not wait).
    pub fn moved(&self, ino: Ino, old: Option<Duration>, new: Option<Duration>) {
        let mut waiting = self.0.lock();
        if let Some(old) = old {
            waiting.remove(&(old, ino));
        }
        if let Some(new) = new {
            waiting.insert((new, ino));
        }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn first(&self, n: usize) -> Vec<(Duration, Ino)> {
        self.0.lock().iter().take(n).copied().collect()
    }
}

/// What the flusher sleeps by.
#[derive(Default)]
pub(super) struct Bell {
    sleepers: AtomicUsize,
    state: Mutex<BellState>,
    rings: Condvar,
}

#[derive(Default)]
struct BellState {
    rung: bool,
    stopped: bool,
}

impl Bell {
    /// Wakes a sleeper, if there is one.
    pub fn ring(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.state.lock().rung = true;
            self.rings.notify_one();
        }
    }

    /// From now on a ring counts, until [`Bell::sleep`] returns or [`Bell::stay_awake`] is called.
    pub fn listen(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends listening without a sleep.
    pub fn stay_awake(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sleeps until a ring that came after [`Bell::listen`], or for so long.
    pub fn sleep(&self, longest: Duration) {
        let mut state = self.state.lock();
        if !state.rung && !state.stopped {
            self.rings.wait_for(&mut state, longest);
        }
        state.rung = false;
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Rests for so long, whoever rings; only a stop ends it early.
    pub fn rest(&self, long: Duration) {
        let mut state = self.state.lock();
        self.rings.wait_while_for(&mut state, |state| !state.stopped, long);
    }

    /// Tells everybody to stop, or lets them work again.
    pub fn stop(&self, stop: bool) {
        self.state.lock().stopped = stop;
        self.rings.notify_all();
    }

    /// Whether everybody is to stop.
    pub fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}

/// A file to flush now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub ino: Ino,
    /// Dirty bytes that no capture has.
    pub bytes: u64,
    /// Captures of this file so far.
    pub captures: u64,
}

impl Cache {
    /// Files to flush now, oldest first: those dirty for longer than the commit age, and while more than
    /// half of the dirty limit waits, the oldest. Together they have about
    /// [`FLUSH_BATCH_BYTES`] (a single file may have more), so that small files share stripes.
    /// `now` is [`Clock::elapsed`](crate::sync::Clock::elapsed) of the cache's clock.
    pub fn due(&self, now: Duration) -> Vec<Ino> {
        self.0.due(now, |_| true).into_iter().map(|due| due.ino).collect()
    }

    /// The file whose dirty data waits longest, and since when; none if nothing waits.
    pub fn oldest_dirty(&self) -> Option<(Ino, Duration)> {
        self.0.queue.first(1).first().map(|(since, ino)| (*ino, *since))
    }

    /// All files with dirty data that is not in flight, oldest first: what a sync flushes.
    pub fn dirty_files(&self) -> Vec<Ino> {
        self.0.queue.first(usize::MAX).into_iter().map(|(_, ino)| ino).collect()
    }

    /// Makes the file due at once.
    pub fn hurry(&self, ino: Ino) {
        self.0.set_age(ino, Duration::ZERO);
        self.0.bell.ring();
    }

    /// Makes the file's dirty data count as new: it will be due when it has aged again, or under
    /// pressure.
    pub fn postpone(&self, ino: Ino) {
        self.0.set_age(ino, self.0.clock.elapsed());
    }
}

impl Inner {
    /// Sets since when the file's dirty data waits.
    pub(super) fn set_age(&self, ino: Ino, since: Duration) {
        self.with_known(ino, |state| {
            if state.fresh_since.is_some() {
                state.fresh_since = Some(since);
            }
        });
    }

    /// See [`Cache::due`]; only files that `wanted` wants.
    pub(super) fn due(&self, now: Duration, mut wanted: impl FnMut(&Due) -> bool) -> Vec<Due> {
        let excess = self.budget.excess();
        let mut batch = Vec::new();
        let mut gathered = 0;
        for (since, ino) in self.queue.first(CANDIDATES) {
            let aged = now.saturating_sub(since) >= self.commit_age;
            if gathered >= FLUSH_BATCH_BYTES || !(aged || gathered < excess) {
                break;
            }
            let Some(due) = self.look(ino) else { continue };
            if due.bytes > 0 && wanted(&due) {
                gathered += due.bytes;
                batch.push(due);
            }
        }
        batch
    }

    /// How much of a file waits.
    pub(super) fn look(&self, ino: Ino) -> Option<Due> {
        let file = self.files.get(ino)?;
        let state = file.state.lock();
        let bytes = state.dirty_pages.saturating_sub(state.flying_pages) * PAGE_BYTES;
        Some(Due { ino, bytes, captures: state.captures })
    }
}
