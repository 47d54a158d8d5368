//! The list of what is lost, for those who ask often: looking it up takes a walk through all directories, so it is done at
//! most every few seconds, and nobody waits long for it.

use std::time::{Duration, Instant};

use super::damage::{self, Damage};
use crate::fs::Fs;
use crate::sync::{Arc, Condvar, Mutex, spawn};

/// A list is good for so long.
const AGE: Duration = Duration::from_secs(10);
/// Who asks waits at most so long for a new one, and then gets the old one.
const PATIENCE: Duration = Duration::from_secs(3);

/// The list as it was last made.
#[derive(Debug, Default)]
pub(super) struct DamageList {
    state: Mutex<State>,
    made: Condvar,
}

#[derive(Debug, Default)]
struct State {
    at: Option<Duration>,
    list: Damage,
    making: bool,
}

impl DamageList {
    /// What is lost, as of a few seconds ago; older where the pool is slow to tell.
    pub fn get(self: &Arc<Self>, fs: &Arc<Fs>) -> Damage {
        if !damage::is_any(fs).unwrap_or(false) {
            let mut state = self.state.lock();
            (state.at, state.list) = (None, Damage::default());
            return Damage::default();
        }
        let now = fs.clock().elapsed();
        let mut state = self.state.lock();
        if state.at.is_some_and(|at| now.saturating_sub(at) < AGE) {
            return state.list.clone();
        }
        if !std::mem::replace(&mut state.making, true) {
            let (own, fs) = (Arc::clone(self), Arc::clone(fs));
            spawn("damage", move || own.make(&fs));
        }
        let until = Instant::now() + PATIENCE;
        while state.making && Instant::now() < until {
            self.made.wait_for(&mut state, PATIENCE);
        }
        state.list.clone()
    }

    fn make(&self, fs: &Fs) {
        let found = damage::list(fs);
        let mut state = self.state.lock();
        state.making = false;
        match found {
            Ok(list) => (state.at, state.list) = (Some(fs.clock().elapsed()), list),
            Err(error) => log::warn!("what is damaged can't be listed: {error}"),
        }
        self.made.notify_all();
    }
}
