//! Pages that nobody uses any more, kept for the next that are needed: the allocator would take and join
//! them one by one, and memory that comes fresh from the system costs a page fault each.

use super::page::{self, PAGE_COST, PAGE_LEN, Page};
use crate::sync::{Arc, Mutex};
use crate::units::MIB;

/// The stock is this part (one over) of the cache's bytes ...
const SHARE: u64 = 32;
/// ... in a cache of at least so many; a smaller one has none.
const CACHE_MIN_BYTES: u64 = 64 * MIB;

/// Free pages, up to a fixed number.
pub(super) struct Stock {
    pages: Mutex<Vec<Page>>,
    most: usize,
}

/// Pages taken out of the stock for one operation. What is left over goes back when it ends.
pub(super) struct Spares<'a> {
    stock: Option<&'a Stock>,
    pages: Vec<Page>,
}

impl Stock {
    /// The stock of a cache of so many bytes.
    pub fn for_cache(bytes: u64) -> Self {
        let share = if bytes < CACHE_MIN_BYTES { 0 } else { bytes / SHARE };
        Self { pages: Mutex::default(), most: (share / PAGE_COST) as usize }
    }

    /// Bytes that it may take.
    pub fn bytes_max(&self) -> u64 {
        self.most as u64 * PAGE_COST
    }

    /// Up to `count` pages for an operation that will need so many.
    pub fn take(&self, count: u64) -> Spares<'_> {
        let mut kept = self.pages.lock();
        let left = kept.len().saturating_sub(count as usize);
        Spares { stock: Some(self), pages: kept.split_off(left) }
    }

    /// Keeps those of `pages` that nobody else holds, as far as there is room. Call without locks.
    pub fn give(&self, pages: impl IntoIterator<Item = Page>) {
        // Pages that are not kept are freed after the lock.
        let mut pages =
            pages.into_iter().filter_map(|mut page| Arc::get_mut(&mut page).is_some().then_some(page));
        let mut kept = self.pages.lock();
        let room = self.most.saturating_sub(kept.len());
        kept.extend(pages.by_ref().take(room));
        drop(kept);
        pages.for_each(drop);
    }
}

impl Spares<'_> {
    /// None: every page is a new one.
    pub fn none() -> Self {
        Self { stock: None, pages: Vec::new() }
    }

    /// A page like `base` (zeros if there is none) with `data` put in at byte `at`. What would not fit is left
    /// out.
    pub fn patched(&mut self, base: Option<&Page>, at: usize, data: &[u8]) -> Page {
        if data.len() == PAGE_LEN
            && let Some(mut page) = self.pages.pop()
            && let Some(bytes) = Arc::get_mut(&mut page)
        {
            bytes.copy_from_slice(data);
            return page;
        }
        page::patched(base, at, data)
    }
}

impl Drop for Spares<'_> {
    fn drop(&mut self) {
        if let Some(stock) = self.stock
            && !self.pages.is_empty()
        {
            stock.give(std::mem::take(&mut self.pages));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Page {
        Arc::new([byte; PAGE_LEN])
    }

    #[test]
    fn pages_come_back_with_new_content_only() {
        let stock = Stock::for_cache(CACHE_MIN_BYTES);
        stock.give([page(1), page(2)]);
        let mut spares = stock.take(1);
        assert_eq!(*spares.patched(None, 0, &[7; PAGE_LEN]), [7; PAGE_LEN]);
        // The second is not from the stock, and a part of a page never is.
        assert_eq!(*spares.patched(None, 0, &[8; PAGE_LEN]), [8; PAGE_LEN]);
        assert_eq!(spares.patched(None, 4, &[9; 1])[3..6], [0, 9, 0]);
        drop(spares);
        assert_eq!(stock.pages.lock().len(), 1);
    }

    #[test]
    fn what_somebody_holds_is_not_used_again() {
        let stock = Stock::for_cache(CACHE_MIN_BYTES);
        let held = page(1);
        stock.give([held.clone()]);
        assert_eq!(stock.pages.lock().len(), 0);
        assert_eq!(held[0], 1);
    }

    #[test]
    fn the_stock_has_an_end() {
        assert_eq!(Stock::for_cache(CACHE_MIN_BYTES - 1).bytes_max(), 0);
        let stock = Stock::for_cache(CACHE_MIN_BYTES);
        stock.give((0..=stock.most).map(|_| page(0)));
        assert_eq!(stock.pages.lock().len(), stock.most);
        assert!(stock.bytes_max() <= CACHE_MIN_BYTES / SHARE);
    }
}
