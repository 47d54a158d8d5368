//! Which files are cached: a map in pieces that share no lock.

use std::collections::HashMap;

use super::Ino;
use super::budget::Budget;
use super::cache::Inner;
use super::file::{FILE_COST, FileCache, FileState};
use crate::sync::{Arc, Mutex, MutexGuard};

const PIECES: usize = 64;

/// The cached files by number.
///
/// A file's lock is taken while a piece's lock is held only in [`Files::reap`]; nobody takes a piece's
/// lock while holding a file's.
pub(super) struct Files(Vec<Mutex<HashMap<Ino, Arc<FileCache>>>>);

impl Files {
    pub fn new() -> Self {
        Self((0..PIECES).map(|_| Mutex::default()).collect())
    }

    fn piece(&self, ino: Ino) -> &Mutex<HashMap<Ino, Arc<FileCache>>> {
        &self.0[ino as usize % PIECES]
    }

    /// The file, if something of it is cached.
    pub fn get(&self, ino: Ino) -> Option<Arc<FileCache>> {
        self.piece(ino).lock().get(&ino).cloned()
    }

    /// The file, made if need be.
    pub fn open(&self, ino: Ino, budget: &Budget) -> Arc<FileCache> {
        let mut files = self.piece(ino).lock();
        let made = || {
            budget.charge(FILE_COST as i64);
            Arc::new(FileCache::new(ino))
        };
        files.entry(ino).or_insert_with(made).clone()
    }

    /// Drops the file if nothing of it is cached.
    pub fn reap(&self, ino: Ino, budget: &Budget) {
        let mut files = self.piece(ino).lock();
        if let Some(file) = files.get(&ino) {
            let mut state = file.state.lock();
            if !state.is_empty() {
                return;
            }
            state.gone = true;
            drop(state);
            files.remove(&ino);
            budget.charge(-(FILE_COST as i64));
        }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.lock().len()).sum()
    }

    /// The files' numbers, in no order.
    pub fn all(&self) -> Vec<Ino> {
        self.0.iter().flat_map(|piece| piece.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

impl Inner {
    /// Does something with a file under its lock, if anything of it is cached.
    pub(super) fn with_known<R>(&self, ino: Ino, act: impl FnOnce(&mut FileState) -> R) -> Option<R> {
        let file = self.files.get(ino)?;
        let mut state = file.state.lock();
        if state.gone {
            // It went empty between the look-up and now.
            return None;
        }
        let result = act(&mut state);
        self.settle(&mut state, None);
        self.release(&file, state);
        Some(result)
    }

    /// Unlocks a file that was changed: wakes those who wait for it, and lets the table drop it if it
    /// is empty.
    pub(super) fn release(&self, file: &FileCache, state: MutexGuard<'_, FileState>) {
        let empty = state.is_empty() && !state.gone;
        drop(state);
        file.changed.notify_all();
        if empty {
            self.files.reap(file.ino, &self.budget);
        }
    }
}
