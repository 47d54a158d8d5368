//! Reading: copy what is here, wait for what others are loading, load the rest.

use std::ops::Range;

use super::Ino;
use super::block::{BLOCK_COST, BLOCK_PAGES};
use super::cache::{Cache, Inner};
use super::error::CacheError;
use super::file::FileState;
use super::load::Load;
use super::page::{PAGE_BYTES, PAGE_COST, page_after, page_of};
use crate::sync::atomic::Ordering;

impl Cache {
    /// Fills `buf` with what the file holds from `offset` on; bytes at `file_size` and beyond are zeros.
    ///
    /// Pages that are missing are loaded by the caller's thread, together with what a sequential reader
    /// will want next (never beyond `file_size`).
    ///
    /// # Errors
    /// [`CacheError::Unreadable`] names the first part that can't be read; `buf` is right up to there.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8], file_size: u64) -> Result<(), CacheError> {
        let inside = file_size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (buf, beyond) = buf.split_at_mut(inside);
        beyond.fill(0);
        if buf.is_empty() {
            return Ok(());
        }
        Request { inner: &self.0, ino, offset, file_size, window: None, missed: 0 }.fill(buf)
    }
}

/// One read under way.
struct Request<'a> {
    inner: &'a Inner,
    ino: Ino,
    offset: u64,
    file_size: u64,
    /// How far a load may go, once known.
    window: Option<u64>,
    /// Pages of the request that were not here.
    missed: u64,
}

impl Request<'_> {
    fn fill(mut self, buf: &mut [u8]) -> Result<(), CacheError> {
        let result = self.fill_all(buf);
        let pages = page_after(self.offset + buf.len() as u64) - page_of(self.offset);
        self.inner.counters.hits.fetch_add(pages.saturating_sub(self.missed), Ordering::Relaxed);
        self.inner.counters.misses.fetch_add(self.missed, Ordering::Relaxed);
        result
    }

    fn fill_all(&mut self, buf: &mut [u8]) -> Result<(), CacheError> {
        let mut done = 0;
        loop {
            let file = self.inner.files.open(self.ino, &self.inner.budget);
            let mut state = file.state.lock();
            if state.gone {
                continue;
            }
            let streams = &mut state.streams;
            let window = *self.window.get_or_insert_with(|| streams.note(self.offset, buf.len() as u64));
            done += state.copy_out(self.offset + done as u64, &mut buf[done..], &self.inner.lru);
            if done == buf.len() {
                return Ok(());
            }
            let missing = page_of(self.offset + done as u64);
            if state.is_loading(missing) {
                file.changed.wait(&mut state);
                continue;
            }
            let (token, pages) = self.mark(&mut state, missing, buf.len(), window);
            drop(state);
            let load = Load::new(self.inner, file, token, pages.clone());
            let (copied, error) = self.load(load, pages.end - pages.start, buf, done);
            done += copied;
            // Where dirty data has the budget for itself, nothing that was loaded stays.
            self.inner.evict();
            match error {
                // What a truncation took before it could be copied is asked for again.
                Some(CacheError::Unreadable { offset, .. }) if offset > self.offset + done as u64 => {}
                Some(error) => return Err(error),
                None => {}
            }
        }
    }

    /// Marks what to load: the rest of the request, and what the reader will want after it.
    fn mark(&self, state: &mut FileState, missing: u64, len: usize, window: u64) -> (u64, Range<u64>) {
        let asked_end = page_after(self.offset + len as u64);
        let ahead_end = missing.saturating_add(window.min(self.inner.window_max) / PAGE_BYTES);
        let end = ahead_end.min(page_after(self.file_size)).max(asked_end);
        let token = self.inner.token();
        let pages = state.mark_load(token, missing..end);
        self.inner.settle(state, None);
        let ahead = pages.end.saturating_sub(asked_end);
        self.inner.counters.read_ahead.fetch_add(ahead, Ordering::Relaxed);
        (token, pages)
    }

    /// Loads the marked pages and copies what was asked for. Returns the bytes of `buf` filled after
    /// the first `done`.
    fn load(
        &mut self,
        load: Load<'_>,
        pages: u64,
        buf: &mut [u8],
        done: usize,
    ) -> (usize, Option<CacheError>) {
        let at = self.offset + done as u64;
        let len = (pages * PAGE_BYTES) as usize;
        let rest = buf.len() - done;
        let skip = (at - load.offset()) as usize;
        let asked_pages = pages.min(page_after((skip + rest) as u64));
        self.missed += asked_pages;
        let asked = (asked_pages * PAGE_BYTES) as usize;
        let lru = &self.inner.lru;
        if skip == 0 && len <= rest {
            // The caller's buffer has room for whole pages: no detour. Where a page was written
            // meanwhile, its bytes win over those loaded.
            let mut room = self.inner.make_room(load_cost(pages, 0));
            return load.run(&mut room, &mut buf[done..done + len], asked, |state, good, all_landed| {
                if all_landed { good.len() } else { state.copy_out(at, good, lru) }
            });
        }
        let mut room = self.inner.make_room(load_cost(pages, len as u64));
        let mut scratch = self.inner.scratch.take(len);
        load.run(&mut room, scratch.bytes(), asked, |state, good, _| {
            let wanted = rest.min(good.len().saturating_sub(skip));
            state.copy_out(at, &mut buf[done..done + wanted], lru)
        })
    }
}

/// What a load takes from the budget: its pages with their blocks, and the buffer it loads into.
fn load_cost(pages: u64, buffer: u64) -> u64 {
    pages * PAGE_COST + (pages / BLOCK_PAGES + 2) * BLOCK_COST + buffer
}
