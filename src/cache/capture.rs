//! Captures: dirty pages on their way to disk, and what becomes of them.

use std::ops::Range;

use super::Ino;
use super::block::{BLOCK_PAGES, Mask, each_slot};
use super::cache::{Cache, Inner};
use super::file::FileCache;
use super::page::{PAGE_BYTES, Page, page_after, page_of};
use crate::sync::Arc;
use crate::units::MIB;

/// What is captured of one file at once and is as long as this is a stream.
const STREAM_BYTES: u64 = 4 * MIB;

/// Neighbouring pages of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Where the first page starts in the file, in bytes; a whole page.
    pub offset: u64,
    /// The pages, in order.
    pub pages: Vec<Page>,
}

impl Run {
    /// Bytes of data.
    pub fn len(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }

    /// Whether there is no page.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Offset behind the last page.
    pub fn end(&self) -> u64 {
        self.offset + self.len()
    }
}

/// Adds a page to the run that it continues, or begins one.
fn append(runs: &mut Vec<Run>, page: u64, data: Page) {
    let offset = page * PAGE_BYTES;
    match runs.last_mut() {
        Some(run) if run.end() == offset => run.pages.push(data),
        _ => runs.push(Run { offset, pages: vec![data] }),
    }
}

/// Dirty pages as they were at one moment, on their way to disk. While this lives they count as in
/// flight, and no other capture takes them. Dropping it without [`Captured::finish`] abandons it: its
/// pages stay dirty.
pub struct Captured {
    /// The file.
    pub ino: Ino,
    /// The data, in order of offset.
    pub runs: Vec<Run>,
    token: u64,
    marked: Vec<(u64, Mask)>,
    /// The file's cached part, until the capture has ended.
    file: Option<Arc<FileCache>>,
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Captured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs: Vec<(u64, u64)> = self.runs.iter().map(|run| (run.offset, run.len())).collect();
        f.debug_struct("Captured").field("ino", &self.ino).field("runs", &runs).finish_non_exhaustive()
    }
}

impl Captured {
    /// Whether nothing was captured.
    pub fn is_empty(&self) -> bool {
        self.marked.is_empty()
    }

    /// Bytes captured.
    pub fn len(&self) -> u64 {
        self.marked.iter().map(|(_, mask)| u64::from(mask.count_ones()) * PAGE_BYTES).sum()
    }

    /// Offset behind the last captured page: where the next capture of the file goes on. 0 if nothing
    /// was captured.
    pub fn end(&self) -> u64 {
        self.marked.last().map_or(0, |(index, mask)| {
            (index * BLOCK_PAGES + u64::from(Mask::BITS - mask.leading_zeros())) * PAGE_BYTES
        })
    }

    /// Ranges (offset, length in bytes) of which the captured data may be mapped: those that were not
    /// dropped since (truncated, punched). Overwritten ones are among them. Holds as long as the caller
    /// has the inode's lock.
    pub fn still_there(&self) -> Vec<(u64, u64)> {
        let Some(file) = &self.file else { return Vec::new() };
        let surviving = file.state.lock().surviving(self.token, &self.marked);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (index, mask) in surviving {
            for slot in each_slot(mask) {
                join(&mut ranges, (index * BLOCK_PAGES + slot as u64) * PAGE_BYTES, PAGE_BYTES);
            }
        }
        ranges
    }

    /// Ends the capture after its data was committed. Pages that are as they were captured become
    /// clean; those overwritten meanwhile stay dirty. Returns the number of pages that became clean.
    pub fn finish(mut self) -> u64 {
        self.end_flight(true)
    }

    /// Ends the capture after a failure: what is still there stays dirty.
    pub fn abandon(self) {}

    /// A long piece of one file: the kernel's page cache has it too, and memory that was just written is cheaper
    /// to use again than to fault in anew. So it is let go once an eighth of the budget is in use.
    fn is_stream(&self) -> bool {
        self.marked.len() as u64 * BLOCK_PAGES * PAGE_BYTES >= STREAM_BYTES
    }

    fn end_flight(&mut self, written: bool) -> u64 {
        let Some(file) = self.file.take() else { return 0 };
        let keep = !self.is_stream() || self.inner.budget.used() < self.inner.budget.limit / 8;
        let mut state = file.state.lock();
        let clean = state.end_flight(self.token, &self.marked, written, keep, &self.inner.lru);
        self.inner.settle(&mut state, None);
        self.inner.release(&file, state);
        // The memory that was beyond the budget while it was dirty can go now.
        let pages = self.runs.drain(..).flat_map(|run| run.pages);
        if written {
            self.inner.stock.give(pages)
        } else {
            pages.for_each(drop)
        }
        self.inner.evict();
        clean
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        self.end_flight(false);
    }
}

/// Adds a range to ranges in order, joined with the last if they touch.
fn join(ranges: &mut Vec<(u64, u64)>, offset: u64, len: u64) {
    match ranges.last_mut() {
        Some((start, so_far)) if *start + *so_far == offset => *so_far += len,
        _ => ranges.push((offset, len)),
    }
}

/// The pages that a range of bytes touches.
fn touched(from: u64, to: u64) -> Range<u64> {
    page_of(from)..page_after(to)
}

impl Cache {
    /// Takes dirty pages of `from..to` that are not in flight, at most `max_bytes` (at least a page), in
    /// order, and marks them as in flight. Call under the inode's exclusive lock.
    pub fn capture(&self, ino: Ino, from: u64, to: u64, max_bytes: u64) -> Captured {
        let inner = &self.0;
        let mut captured = Captured {
            ino,
            runs: Vec::new(),
            token: 0,
            marked: Vec::new(),
            file: None,
            inner: inner.clone(),
        };
        let Some(file) = inner.files.get(ino) else { return captured };
        let mut state = file.state.lock();
        captured.token = inner.token();
        let runs = &mut captured.runs;
        let max_pages = (max_bytes / PAGE_BYTES).max(1);
        captured.marked = state.mark_flight(captured.token, &touched(from, to), max_pages, |page, data| {
            append(runs, page, data);
        });
        inner.settle(&mut state, None);
        drop(state);
        if !captured.marked.is_empty() {
            captured.file = Some(file);
        }
        captured
    }

    /// See [`Captured::still_there`].
    pub fn still_there(&self, captured: &Captured) -> Vec<(u64, u64)> {
        captured.still_there()
    }

    /// See [`Captured::finish`].
    pub fn finish(&self, captured: Captured) -> u64 {
        captured.finish()
    }

    /// See [`Captured::abandon`].
    pub fn abandon(&self, captured: Captured) {
        captured.abandon();
    }

    /// Waits until every capture of the file that is under way now has ended. Call without the inode's
    /// lock: whoever flushes needs it to commit.
    pub fn wait_in_flight(&self, ino: Ino) {
        let Some(file) = self.0.files.get(ino) else { return };
        let mut state = file.state.lock();
        let next = self.0.next_token();
        while state.open_captures.iter().any(|token| *token < next) {
            file.changed.wait(&mut state);
        }
    }

    /// All dirty pages of the file, in flight or not, if they are at most `max_bytes`. They stay dirty.
    pub fn peek_dirty(&self, ino: Ino, max_bytes: u64) -> Option<Vec<Run>> {
        let mut runs = Vec::new();
        let Some(file) = self.0.files.get(ino) else { return Some(runs) };
        let state = file.state.lock();
        if state.dirty_pages * PAGE_BYTES > max_bytes {
            return None;
        }
        state.each_dirty(&(0..u64::MAX / PAGE_BYTES), |page, data| {
            append(&mut runs, page, data.clone());
            true
        });
        Some(runs)
    }

    /// Dirty bytes of the file, in whole pages, those in flight included.
    pub fn dirty_bytes_of(&self, ino: Ino) -> u64 {
        self.0.files.get(ino).map_or(0, |file| file.state.lock().dirty_pages * PAGE_BYTES)
    }

    /// Whether the file has dirty data.
    pub fn has_dirty(&self, ino: Ino) -> bool {
        self.dirty_bytes_of(ino) > 0
    }

    /// The ranges (offset, length in bytes) of `from..to` that are dirty, in order.
    pub fn dirty_ranges(&self, ino: Ino, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        if from >= to {
            return ranges;
        }
        let Some(file) = self.0.files.get(ino) else { return ranges };
        file.state.lock().each_dirty(&touched(from, to), |page, _| {
            let start = (page * PAGE_BYTES).max(from);
            join(&mut ranges, start, ((page + 1) * PAGE_BYTES).min(to) - start);
            true
        });
        ranges
    }
}
