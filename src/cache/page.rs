//! One page of file data: the cache's smallest unit, as large as a sector.

use crate::sync::Arc;
use crate::units::{SECTOR, SECTOR_LEN};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = SECTOR;
/// [`PAGE_BYTES`] as a length in memory.
pub const PAGE_LEN: usize = SECTOR_LEN;

/// A page of file data. Whoever holds a clone sees bytes that never change again: an overwrite of a
/// shared page makes a new one.
pub type Page = Arc<[u8; PAGE_LEN]>;

/// What a page takes from the budget: its bytes, the counts of its [`Arc`] and the allocator's header.
pub(super) const PAGE_COST: u64 = PAGE_BYTES + 32;

/// Number of the page that holds the byte at `offset`.
pub(super) const fn page_of(offset: u64) -> u64 {
    offset / PAGE_BYTES
}

/// Number of the first page that starts at `offset` or later.
pub(super) const fn page_after(offset: u64) -> u64 {
    offset.div_ceil(PAGE_BYTES)
}

/// A page like `base` (zeros if there is none) with `data` put in at byte `at`. What would not fit is
/// left out.
pub(super) fn patched(base: Option<&Page>, at: usize, data: &[u8]) -> Page {
    if data.len() == PAGE_LEN {
        // Straight from the data into the allocation, with no array on the stack between.
        let whole: Arc<[u8]> = Arc::from(data);
        if let Ok(page) = Page::try_from(whole) {
            return page;
        }
    }
    let mut bytes = base.map_or([0; PAGE_LEN], |base| **base);
    patch(&mut bytes, at, data);
    Arc::new(bytes)
}

/// Puts `data` into `bytes` at byte `at`. What would not fit is left out.
pub(super) fn patch(bytes: &mut [u8; PAGE_LEN], at: usize, data: &[u8]) {
    let room = bytes.get_mut(at..).unwrap_or_default();
    let len = room.len().min(data.len());
    room[..len].copy_from_slice(&data[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_keeps_what_it_does_not_cover() {
        let base = patched(None, 0, &[7; PAGE_LEN]);
        let page = patched(Some(&base), 10, &[9; 5]);
        assert_eq!(page[9..16], [7, 9, 9, 9, 9, 9, 7]);
        assert_eq!(base[10], 7);
        assert_eq!(patched(None, 4095, &[1, 2])[4094..], [0, 1]);
    }

    #[test]
    fn pages_are_counted_from_both_sides() {
        assert_eq!((page_of(4095), page_of(4096)), (0, 1));
        assert_eq!((page_after(0), page_after(1), page_after(4096)), (0, 1, 1));
    }
}
