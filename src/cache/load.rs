//! Loads of missing pages: marking their slots, asking the backing, and putting in what came back
//! where the slot was not touched meanwhile.

use std::ops::Range;

use super::Ino;
use super::block::{BLOCK_COST, BLOCK_PAGES, Block, count, each_slot, slots_in};
use super::budget::Room;
use super::cache::Inner;
use super::error::{CacheError, LoadError};
use super::file::{FileCache, FileState};
use super::lru::Lru;
use super::page::{PAGE_BYTES, PAGE_COST, PAGE_LEN, Page};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

impl FileState {
    /// Marks pages as being loaded, from `pages.start` on, until one that is here or being loaded.
    /// Returns the marked range; the first page must be missing.
    pub fn mark_load(&mut self, token: u64, pages: Range<u64>) -> Range<u64> {
        let mut end = pages.start;
        while end < pages.end {
            let index = end / BLOCK_PAGES;
            let block = self.blocks.entry(index).or_insert_with(|| {
                self.pending.cost += BLOCK_COST as i64;
                Block::default()
            });
            let wanted = slots_in(index, &(end..pages.end));
            let taken = wanted & (block.present() | block.loads.all());
            let free = wanted & ((taken & taken.wrapping_neg()).wrapping_sub(1));
            if free != 0 {
                block.loads.add(token, free);
            }
            end += count(free);
            if taken != 0 {
                break;
            }
        }
        pages.start..end
    }

    /// Takes back the marks of a load, and puts the pages that `loaded` has for its slots in them.
    /// Returns the number of pages put in.
    pub fn end_load(
        &mut self,
        token: u64,
        pages: &Range<u64>,
        mut loaded: impl FnMut(u64) -> Option<Page>,
        lru: &Lru,
    ) -> u64 {
        let mut landed = 0;
        for index in pages.start / BLOCK_PAGES..pages.end.div_ceil(BLOCK_PAGES) {
            let Some(block) = self.blocks.get_mut(&index) else { continue };
            let before = landed;
            for slot in each_slot(block.loads.take(token)) {
                if block.pages[slot].is_none()
                    && let Some(page) = loaded(index * BLOCK_PAGES + slot as u64)
                {
                    block.pages[slot] = Some(page);
                    self.pending.cost += PAGE_COST as i64;
                    landed += 1;
                }
            }
            if landed > before {
                self.list(index, lru);
            }
            self.tidy(index, lru);
        }
        landed
    }
}

/// A load under way. Its marks are taken back when it is dropped, so that nobody waits for a load
/// that ended in a panic.
pub(super) struct Load<'a> {
    inner: &'a Inner,
    file: Arc<FileCache>,
    token: u64,
    pages: Range<u64>,
    ended: bool,
}

impl<'a> Load<'a> {
    /// Of pages that were marked with this token.
    pub fn new(inner: &'a Inner, file: Arc<FileCache>, token: u64, pages: Range<u64>) -> Self {
        Self { inner, file, token, pages, ended: false }
    }

    /// Offset of the load in the file.
    pub fn offset(&self) -> u64 {
        self.pages.start * PAGE_BYTES
    }

    /// Loads into `buf`, which stands for the marked pages, of which somebody asked for the first
    /// `asked` bytes, and puts the pages in the cache, at the cost of `room`. `done` then looks at the
    /// file, before anybody else can, with what of `buf` is loaded and whether all of that is what the
    /// cache now has. Only a failure among the bytes asked for is one.
    pub fn run<R>(
        mut self,
        room: &mut Room<'_>,
        buf: &mut [u8],
        asked: usize,
        done: impl FnOnce(&mut FileState, &mut [u8], bool) -> R,
    ) -> (R, Option<CacheError>) {
        let (good, error) = self.inner.load(self.file.ino, self.offset(), buf, asked);
        let start = self.pages.start;
        let good_pages = (good / PAGE_LEN) as u64;
        let mut spares = self.inner.stock.take(good_pages);
        let from_buf = |number: u64| {
            let at = (number - start) as usize * PAGE_LEN;
            (number - start < good_pages).then(|| spares.patched(None, 0, &buf[at..at + PAGE_LEN]))
        };
        let mut state = self.file.state.lock();
        let landed = state.end_load(self.token, &self.pages, from_buf, &self.inner.lru);
        self.ended = true;
        let result = done(&mut state, &mut buf[..good], landed == good_pages);
        self.inner.settle(&mut state, Some(room));
        self.inner.release(&self.file, state);
        (result, error)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let mut state = self.file.state.lock();
            state.end_load(self.token, &self.pages, |_| None, &self.inner.lru);
            self.inner.settle(&mut state, None);
            self.inner.release(&self.file, state);
        }
    }
}

impl Inner {
    /// Fills `buf` from the backing. If that fails, tries the first `asked` bytes alone, then what lies
    /// before the damage. Returns the number of bytes (whole pages) that are good, and what is wrong
    /// with the next if that was asked for.
    pub(super) fn load(
        &self,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
        asked: usize,
    ) -> (usize, Option<CacheError>) {
        let Some(backing) = self.backing() else { return (0, Some(CacheError::NoBacking { ino })) };
        let mut want = buf.len();
        let mut failure: Option<LoadError> = None;
        while want > 0 {
            match backing.load(ino, offset, &mut buf[..want]) {
                Ok(()) => break,
                Err(_) if want > asked => want = asked,
                Err(error) => {
                    self.counters.load_errors.fetch_add(1, Ordering::Relaxed);
                    let before = error.offset.saturating_sub(offset) / PAGE_BYTES * PAGE_BYTES;
                    // What claims to lie outside of what was asked must not make this loop endless.
                    let before = if before >= want as u64 { 0 } else { before as usize };
                    failure = Some(LoadError { offset: offset + before as u64, ..error });
                    want = before;
                }
            }
        }
        let error = failure.map(|LoadError { offset: bad, len, message }| {
            let rest = offset + asked as u64 - bad;
            CacheError::Unreadable { ino, offset: bad, len: len.clamp(1, rest.max(1)), message }
        });
        (want, error)
    }
}
