//! The cached part of one file: its blocks in order, which of them are dirty, and how long they have been.
//!
//! Everything here happens under the file's lock and takes as long as copying the bytes, no longer.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use super::Ino;
use super::ahead::Streams;
use super::block::{BLOCK_COST, BLOCK_PAGES, Block, Dropped, Mask, Put, count, each_slot, slots_in};
use super::lru::Lru;
use super::page::{PAGE_BYTES, PAGE_COST, PAGE_LEN, Page, page_after, page_of};
use super::stock::Spares;
use crate::sync::{Condvar, Mutex};

/// What a file takes from the budget besides its blocks.
pub(super) const FILE_COST: u64 = size_of::<FileCache>() as u64 + 64;

/// One file and its lock.
pub(super) struct FileCache {
    pub ino: Ino,
    pub state: Mutex<FileState>,
    /// Told when a load, a capture or a discard ends.
    pub changed: Condvar,
}

/// Changes of the cache's sums that are not yet added to them.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Delta {
    /// Bytes of the budget.
    pub cost: i64,
    /// Dirty pages.
    pub dirty: i64,
    /// Pages in flight.
    pub flying: i64,
}

/// The cached part of one file.
pub(super) struct FileState {
    ino: Ino,
    /// By number (offset / 64 KiB). A block without pages and loads is taken out.
    pub blocks: BTreeMap<u64, Block>,
    /// Numbers of the blocks with dirty pages.
    dirty_blocks: BTreeSet<u64>,
    pub dirty_pages: u64,
    /// Dirty pages that a capture has.
    pub flying_pages: u64,
    /// Those of `flying_pages` that were overwritten since.
    replaced_pages: u64,
    /// Since when the oldest dirty page waits that no capture has as it is now.
    pub fresh_since: Option<Duration>,
    /// The same of the pages that captures have.
    flight_since: Option<Duration>,
    /// What the queue of dirty files has this file under.
    pub queued: Option<Duration>,
    /// Tokens of the captures that have not ended.
    pub open_captures: Vec<u64>,
    /// Captures so far.
    pub captures: u64,
    pub streams: Streams,
    pub pending: Delta,
    /// Set when the table has dropped this file: whoever still holds it must look it up again.
    pub gone: bool,
}

impl FileCache {
    pub fn new(ino: Ino) -> Self {
        let state = FileState {
            ino,
            blocks: BTreeMap::new(),
            dirty_blocks: BTreeSet::new(),
            dirty_pages: 0,
            flying_pages: 0,
            replaced_pages: 0,
            fresh_since: None,
            flight_since: None,
            queued: None,
            open_captures: Vec::new(),
            captures: 0,
            streams: Streams::default(),
            pending: Delta::default(),
            gone: false,
        };
        Self { ino, state: Mutex::new(state), changed: Condvar::new() }
    }
}

/// Number of the block that holds a page, and the page's slot there.
fn place(page: u64) -> (u64, usize) {
    (page / BLOCK_PAGES, (page % BLOCK_PAGES) as usize)
}

/// Numbers of the blocks that a range of pages touches. The range must not be empty.
fn blocks_of(pages: &Range<u64>) -> Range<u64> {
    pages.start / BLOCK_PAGES..pages.end.div_ceil(BLOCK_PAGES)
}

impl FileState {
    /// The file's number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Whether nothing is cached or going on.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The page with this number, if it is here.
    pub fn page(&self, page: u64) -> Option<&Page> {
        let (index, slot) = place(page);
        self.blocks.get(&index)?.pages[slot].as_ref()
    }

    /// Whether somebody is loading this page.
    pub fn is_loading(&self, page: u64) -> bool {
        let (index, slot) = place(page);
        self.blocks.get(&index).is_some_and(|block| block.loads.all() & (1 << slot) != 0)
    }

    /// Copies into `buf`, which stands for the file from `offset`, as far as pages are here, and
    /// returns the number of bytes.
    pub fn copy_out(&mut self, offset: u64, buf: &mut [u8], lru: &Lru) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let index = page_of(offset + done as u64) / BLOCK_PAGES;
            let Some(block) = self.blocks.get_mut(&index) else { return done };
            if block.listed {
                lru.touch((self.ino, index), &mut block.stamp);
            }
            let first = (page_of(offset + done as u64) % BLOCK_PAGES) as usize;
            for page in &block.pages[first..] {
                let Some(page) = page else { return done };
                let at = ((offset + done as u64) % PAGE_BYTES) as usize;
                let len = (PAGE_LEN - at).min(buf.len() - done);
                buf[done..done + len].copy_from_slice(&page[at..at + len]);
                done += len;
                if done == buf.len() {
                    break;
                }
            }
        }
        done
    }

    /// Writes `data` at `offset`. A page that is not here starts as `base` has it, or as zeros.
    /// Returns the number of pages newly dirty. `now` is asked for the time if it matters.
    pub fn put(
        &mut self,
        offset: u64,
        data: &[u8],
        base: impl Fn(u64) -> Option<Page>,
        now: impl FnOnce() -> Duration,
        spares: &mut Spares<'_>,
    ) -> u64 {
        let pages = page_of(offset)..page_after(offset + data.len() as u64);
        let (mut done, mut newly) = (0, 0);
        for index in blocks_of(&pages) {
            let block = self.blocks.entry(index).or_insert_with(|| {
                self.pending.cost += BLOCK_COST as i64;
                Block::default()
            });
            if block.dirty == 0 {
                self.dirty_blocks.insert(index);
            }
            for slot in each_slot(slots_in(index, &pages)) {
                let at = ((offset + done as u64) % PAGE_BYTES) as usize;
                let len = (PAGE_LEN - at).min(data.len() - done);
                let base = if len < PAGE_LEN { base(index * BLOCK_PAGES + slot as u64) } else { None };
                let Put { grew, newly_dirty, replaced } =
                    block.put(slot, at, &data[done..done + len], base.as_ref(), spares);
                self.pending.cost += if grew { PAGE_COST as i64 } else { 0 };
                self.replaced_pages += u64::from(replaced);
                newly += u64::from(newly_dirty);
                done += len;
            }
        }
        self.dirty_pages += newly;
        self.pending.dirty += newly as i64;
        if self.fresh_since.is_none() {
            self.fresh_since = Some(now());
        }
        newly
    }

    /// Drops these pages, dirty or not. Blocks go to `garbage`, to be freed without the lock.
    /// Returns the number of dirty pages dropped.
    pub fn discard(&mut self, pages: &Range<u64>, lru: &Lru, garbage: &mut Vec<Block>) -> u64 {
        let mut sum = Dropped::default();
        let found: Vec<u64> = match pages.is_empty() {
            true => Vec::new(),
            false => self.blocks.range(blocks_of(pages)).map(|(index, _)| *index).collect(),
        };
        for index in found {
            let Some(block) = self.blocks.get_mut(&index) else { continue };
            let whole = block.flights.all() == 0 && slots_in(index, pages) == Mask::MAX;
            let dropped = if whole {
                // The pages themselves are freed later, without the lock.
                let dirty = count(block.dirty);
                let freed = count(block.present());
                let listed = block.listed;
                garbage.push(std::mem::take(block));
                block.listed = listed;
                Dropped { freed, dirty, ..Dropped::default() }
            } else {
                block.discard(slots_in(index, pages))
            };
            sum.freed += dropped.freed;
            sum.dirty += dropped.dirty;
            sum.flying += dropped.flying;
            sum.replaced += dropped.replaced;
            self.tidy(index, lru);
        }
        self.pending.cost -= (sum.freed * PAGE_COST) as i64;
        self.replaced_pages -= sum.replaced;
        self.cleaned(sum.dirty, sum.flying);
        sum.dirty
    }

    /// Drops the clean pages of one block, to `garbage`. Returns their number.
    pub fn drop_clean(&mut self, index: u64, lru: &Lru, garbage: &mut Vec<Page>) -> u64 {
        let Some(block) = self.blocks.get_mut(&index) else { return 0 };
        let before = garbage.len();
        garbage.extend(block.take_clean());
        let freed = (garbage.len() - before) as u64;
        if std::mem::take(&mut block.listed) {
            lru.remove(&(self.ino, index));
        }
        self.pending.cost -= (freed * PAGE_COST) as i64;
        self.tidy(index, lru);
        freed
    }

    /// Takes a block out when nothing is left of it, and keeps the index of dirty blocks right.
    pub fn tidy(&mut self, index: u64, lru: &Lru) {
        let Entry::Occupied(entry) = self.blocks.entry(index) else { return };
        if entry.get().dirty == 0 {
            self.dirty_blocks.remove(&index);
        }
        if entry.get().is_idle() {
            if entry.remove().listed {
                lru.remove(&(self.ino, index));
            }
            self.pending.cost -= BLOCK_COST as i64;
        }
    }

    /// Puts a block that has clean pages on the LRU list.
    pub fn list(&mut self, index: u64, lru: &Lru) {
        if let Some(block) = self.blocks.get_mut(&index)
            && !block.listed
        {
            block.listed = true;
            block.stamp = lru.add((self.ino, index));
        }
    }

    /// Pages in this range that a write of it would newly dirty.
    pub fn not_dirty(&self, pages: &Range<u64>) -> u64 {
        if pages.is_empty() {
            return 0;
        }
        let dirty: u64 = self
            .dirty_blocks
            .range(blocks_of(pages))
            .filter_map(|index| Some(count(self.blocks.get(index)?.dirty & slots_in(*index, pages))))
            .sum();
        (pages.end - pages.start).saturating_sub(dirty)
    }

    /// Goes through the dirty pages of a range in order, until `each` says false.
    pub fn each_dirty(&self, pages: &Range<u64>, mut each: impl FnMut(u64, &Page) -> bool) {
        if pages.is_empty() {
            return;
        }
        for index in self.dirty_blocks.range(blocks_of(pages)) {
            let Some(block) = self.blocks.get(index) else { continue };
            for slot in each_slot(block.dirty & slots_in(*index, pages)) {
                if let Some(page) = &block.pages[slot]
                    && !each(index * BLOCK_PAGES + slot as u64, page)
                {
                    return;
                }
            }
        }
    }

    /// Marks at most `max_pages` dirty pages that no capture has as in flight, and gives each of them
    /// to `take`. Returns the marked slots.
    pub fn mark_flight(
        &mut self,
        token: u64,
        pages: &Range<u64>,
        max_pages: u64,
        mut take: impl FnMut(u64, Page),
    ) -> Vec<(u64, Mask)> {
        let mut marked = Vec::new();
        let mut left = max_pages;
        let range = if pages.is_empty() { 0..0 } else { blocks_of(pages) };
        for index in self.dirty_blocks.range(range) {
            if left == 0 {
                break;
            }
            let Some(block) = self.blocks.get_mut(index) else { continue };
            let mut mask = 0;
            for slot in each_slot(block.waiting() & slots_in(*index, pages)) {
                if left == 0 {
                    break;
                }
                let Some(page) = &block.pages[slot] else { continue };
                take(index * BLOCK_PAGES + slot as u64, page.clone());
                mask |= 1 << slot;
                left -= 1;
            }
            if mask != 0 {
                block.flights.add(token, mask);
                marked.push((*index, mask));
            }
        }
        let taken = max_pages - left;
        if taken > 0 {
            self.flying_pages += taken;
            self.pending.flying += taken as i64;
            self.captures += 1;
            self.open_captures.push(token);
            self.flight_since = earlier(self.flight_since, self.fresh_since);
            if self.dirty_pages == self.flying_pages && self.replaced_pages == 0 {
                self.fresh_since = None;
            }
        }
        marked
    }

    /// Ends a capture. With `written`, pages that are as they were captured become clean; without `keep`, whole
    /// blocks of them are let go (the capture still holds their pages). Returns their number.
    pub fn end_flight(
        &mut self,
        token: u64,
        marked: &[(u64, Mask)],
        written: bool,
        keep: bool,
        lru: &Lru,
    ) -> u64 {
        let (mut clean, mut landed, mut freed) = (0, 0, 0);
        let mut let_go = Vec::new();
        for (index, captured) in marked {
            let Some(block) = self.blocks.get_mut(index) else {
                freed += count(*captured);
                continue;
            };
            let there = block.flights.take(token);
            let replaced = there & block.replaced;
            block.replaced &= !replaced;
            self.replaced_pages -= count(replaced);
            landed += count(there);
            // The capture held these alone: a newer page has the slot, or none has.
            freed += count(captured & !there) + count(replaced);
            let same = there & !replaced;
            if written && same != 0 {
                block.dirty &= !same;
                clean += count(same);
                if keep || same != Mask::MAX {
                    self.list(*index, lru);
                    self.tidy(*index, lru);
                } else {
                    self.drop_clean(*index, lru, &mut let_go);
                    let_go.clear();
                }
            }
        }
        if !written {
            self.fresh_since = earlier(self.fresh_since, self.flight_since);
        }
        self.open_captures.retain(|open| *open != token);
        self.pending.cost -= (freed * PAGE_COST) as i64;
        self.cleaned(clean, landed);
        clean
    }

    /// Slots that a capture still has.
    pub fn surviving(&self, token: u64, marked: &[(u64, Mask)]) -> Vec<(u64, Mask)> {
        let there = |(index, _): &(u64, Mask)| {
            let mask = self.blocks.get(index)?.flights.of(token);
            (mask != 0).then_some((*index, mask))
        };
        marked.iter().filter_map(there).collect()
    }

    /// Since when something waits that a capture could take.
    pub fn waiting_since(&self) -> Option<Duration> {
        self.fresh_since.filter(|_| self.dirty_pages > self.flying_pages)
    }

    /// Counts pages that are not dirty any more, and pages that are not in flight any more.
    fn cleaned(&mut self, dirty: u64, flying: u64) {
        self.dirty_pages -= dirty;
        self.flying_pages -= flying;
        self.pending.dirty -= dirty as i64;
        self.pending.flying -= flying as i64;
        if self.flying_pages == 0 {
            self.flight_since = None;
        }
        if self.dirty_pages == 0 {
            self.fresh_since = None;
        }
    }
}

/// The earlier of two moments, of which either may be missing.
fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}
