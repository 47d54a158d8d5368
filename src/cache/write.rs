//! Writing and dropping: what makes pages dirty, and what takes them away.

use super::Ino;
use super::block::{BLOCK_COST, BLOCK_PAGES};
use super::cache::{Cache, Inner};
use super::error::CacheError;
use super::file::FileState;
use super::page::{PAGE_BYTES, PAGE_COST, PAGE_LEN, Page, page_after, page_of};
use super::stock::Spares;
use crate::sync::Arc;

impl Cache {
    /// Writes `data` at `offset` and returns the number of pages newly dirty. Never waits for room:
    /// ask [`Cache::admit`] before.
    ///
    /// `on_disk_end` is where what is on disk ends, in bytes: a page only partly written, and not
    /// cached, is loaded first if it starts before that, and starts as zeros if not.
    ///
    /// # Errors
    /// [`CacheError`] when such a page can't be loaded; nothing was written then.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], on_disk_end: u64) -> Result<u64, CacheError> {
        let len = data.len() as u64;
        let end = checked_end(ino, offset, len)?;
        if data.is_empty() {
            return Ok(0);
        }
        let inner = &self.0;
        let pages = page_of(offset)..page_after(end);
        let count = pages.end - pages.start;
        let mut room = inner.make_room(count * PAGE_COST + (count / BLOCK_PAGES + 2) * BLOCK_COST);
        let edges = Edges::of(offset, end, on_disk_end);
        let mut bases = Bases::default();
        let mut spares = inner.stock.take(count);
        let newly = inner.with_bases(ino, &edges, &mut bases, |state, bases| {
            let now = || inner.clock.elapsed();
            let newly = state.put(offset, data, |page| bases.of(page), now, &mut spares);
            inner.settle(state, Some(&mut room));
            newly
        })?;
        drop((room, spares));
        inner.evict();
        inner.nudge_if_pressed();
        Ok(newly)
    }

    /// Puts data that only the journal has back in the cache, dirty, at mount. Where the data does not
    /// fill a page the rest reads as zeros. Returns the number of pages newly dirty.
    ///
    /// # Errors
    /// [`CacheError::BadRange`] when the range is none.
    pub fn insert_dirty(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<u64, CacheError> {
        self.write(ino, offset, data, 0)
    }

    /// How many pages a write of this range would newly dirty.
    pub fn dirty_new_pages(&self, ino: Ino, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let pages = page_of(offset)..page_after(offset.saturating_add(len));
        match self.0.files.get(ino) {
            Some(file) => file.state.lock().not_dirty(&pages),
            None => pages.end - pages.start,
        }
    }

    /// Zeros `from..to`, a range inside one page: the tail behind a truncation, or the edge of a hole.
    /// A page that has nothing but zeros there stays as it is. Returns the number of pages newly dirty
    /// (0 or 1).
    ///
    /// # Errors
    /// [`CacheError::BadRange`] when the range is not inside one page; others when the page must be
    /// loaded (as in [`Cache::write`]) and can't be.
    pub fn zero(&self, ino: Ino, from: u64, to: u64, on_disk_end: u64) -> Result<u64, CacheError> {
        if from >= to {
            return Ok(0);
        }
        let page = page_of(from);
        let bad = CacheError::BadRange { ino, offset: from, len: to - from };
        if page_of(to - 1) != page {
            return Err(bad);
        }
        let at = (from % PAGE_BYTES) as usize;
        let len = (to - from) as usize;
        let zeros = [0; PAGE_LEN];
        let edges = Edges::whole(page, on_disk_end);
        let inner = &self.0;
        let mut bases = Bases::default();
        let newly = inner.with_bases(ino, &edges, &mut bases, |state, bases| {
            let base = bases.of(page);
            let has_content = |page: &Page| page[at..at + len] != zeros[..len];
            if !state.page(page).or(base.as_ref()).is_some_and(has_content) {
                return 0;
            }
            let now = || inner.clock.elapsed();
            state.put(from, &zeros[..len], |_| base.clone(), now, &mut Spares::none())
        })?;
        inner.evict();
        inner.nudge_if_pressed();
        Ok(newly)
    }

    /// Drops the pages that lie wholly in `from..to` (`u64::MAX`: to the end), dirty or not. Captured
    /// pages among them will not be committed, and loads under way will not be put in the cache.
    /// Returns the number of dirty pages dropped, those in flight included.
    pub fn discard(&self, ino: Ino, from: u64, to: u64) -> u64 {
        let pages = page_after(from)..if to == u64::MAX { u64::MAX / PAGE_BYTES } else { page_of(to) };
        let mut garbage = Vec::new();
        let inner = &self.0;
        inner.with_known(ino, |state| state.discard(&pages, &inner.lru, &mut garbage)).unwrap_or(0)
    }

    /// Drops everything of a file that is gone. Returns the number of dirty pages dropped.
    pub fn forget(&self, ino: Ino) -> u64 {
        self.discard(ino, 0, u64::MAX)
    }

    /// Drops all clean pages of a file.
    pub fn drop_clean_of(&self, ino: Ino) {
        let lru = &self.0.lru;
        let mut garbage = Vec::new();
        self.0.with_known(ino, |state| {
            let blocks: Vec<u64> = state.blocks.keys().copied().collect();
            blocks.into_iter().for_each(|index| {
                state.drop_clean(index, lru, &mut garbage);
            });
        });
    }

    /// Drops all clean pages.
    pub fn drop_clean(&self) {
        self.0.files.all().into_iter().for_each(|ino| self.drop_clean_of(ino));
    }
}

fn checked_end(ino: Ino, offset: u64, len: u64) -> Result<u64, CacheError> {
    // Room for rounding up to a block must remain.
    let fits = |end: &u64| *end <= i64::MAX as u64;
    offset.checked_add(len).filter(fits).ok_or(CacheError::BadRange { ino, offset, len })
}

/// Pages of which a write keeps something that is on disk.
struct Edges([Option<u64>; 2]);

impl Edges {
    /// Of a write of `offset..end`.
    fn of(offset: u64, end: u64, on_disk_end: u64) -> Self {
        let (head, tail) = (page_of(offset), page_of(end - 1));
        let keeps_before = |page: u64| page * PAGE_BYTES < offset && page * PAGE_BYTES < on_disk_end;
        let keeps_after = |page: u64| end < ((page + 1) * PAGE_BYTES).min(on_disk_end);
        let head_kept = keeps_before(head) || (head == tail && keeps_after(head));
        Self([head_kept.then_some(head), (head != tail && keeps_after(tail)).then_some(tail)])
    }

    /// A page of which all is needed.
    fn whole(page: u64, on_disk_end: u64) -> Self {
        Self([(page * PAGE_BYTES < on_disk_end).then_some(page), None])
    }
}

/// Pages loaded for a write.
#[derive(Default)]
struct Bases([Option<(u64, Page)>; 2]);

impl Bases {
    fn of(&self, page: u64) -> Option<Page> {
        self.0.iter().flatten().find(|(number, _)| *number == page).map(|(_, base)| base.clone())
    }

    fn add(&mut self, page: u64, base: Page) {
        if let Some(free) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *free = Some((page, base));
        }
    }
}

impl Inner {
    /// Changes a file under its lock, once its edge pages are here: cached, or loaded for this.
    ///
    /// The caller keeps other writers and truncations of the file away (it holds the inode's lock), so
    /// what was loaded is still right when the file's lock is taken again.
    fn with_bases<R>(
        &self,
        ino: Ino,
        edges: &Edges,
        bases: &mut Bases,
        act: impl FnOnce(&mut FileState, &Bases) -> R,
    ) -> Result<R, CacheError> {
        loop {
            let file = self.files.open(ino, &self.budget);
            let mut state = file.state.lock();
            if state.gone {
                continue;
            }
            let lacks = |page: &&u64| state.page(**page).is_none() && bases.of(**page).is_none();
            let Some(&page) = edges.0.iter().flatten().find(lacks) else {
                let result = act(&mut state, bases);
                self.settle(&mut state, None);
                self.release(&file, state);
                return Ok(result);
            };
            if state.is_loading(page) {
                file.changed.wait(&mut state);
                continue;
            }
            self.release(&file, state);
            bases.add(page, self.load_page(ino, page)?);
        }
    }

    /// Loads one page, without putting it in the cache.
    fn load_page(&self, ino: Ino, page: u64) -> Result<Page, CacheError> {
        let mut bytes = [0; PAGE_LEN];
        match self.load(ino, page * PAGE_BYTES, &mut bytes, PAGE_LEN) {
            (_, Some(error)) => Err(error),
            (_, None) => Ok(Arc::new(bytes)),
        }
    }
}
