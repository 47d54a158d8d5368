//! A block: sixteen neighbouring pages of a file, the unit that is evicted and that maps are keyed by.

use std::ops::Range;

use super::page::{self, PAGE_BYTES, Page};
use super::stock::Spares;
use crate::sync::Arc;

/// Pages of a block.
pub(super) const BLOCK_PAGES: u64 = 16;
/// Bytes of file data in a full block.
pub(super) const BLOCK_BYTES: u64 = BLOCK_PAGES * PAGE_BYTES;
/// What a block takes from the budget besides its pages: itself, its place in the file's map and its
/// entry in the LRU list.
pub(super) const BLOCK_COST: u64 = size_of::<Block>() as u64 + 128;

/// A set of slots of one block, a bit for each.
pub(super) type Mask = u16;

/// The slots of block `index` that lie in this range of the file's pages.
pub(super) fn slots_in(index: u64, pages: &Range<u64>) -> Mask {
    let base = index * BLOCK_PAGES;
    let from = pages.start.saturating_sub(base).min(BLOCK_PAGES);
    let to = pages.end.saturating_sub(base).min(BLOCK_PAGES);
    if from >= to {
        return 0;
    }
    let below = |n: u64| ((1_u32 << n) - 1) as Mask;
    below(to) & !below(from)
}

/// The slots of a mask, lowest first.
pub(super) fn each_slot(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (mask != 0).then_some(mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(slot)
    })
}

/// Number of slots in a mask.
pub(super) fn count(mask: Mask) -> u64 {
    u64::from(mask.count_ones())
}

/// Which slots belong to which running operation (a load, or a capture), each named by its token.
/// Whatever touches a slot strikes it out here, and so the operation learns that its slot is gone.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<(u64, Mask)>);

impl Marks {
    /// Marks slots for an operation that has none in this block yet.
    pub fn add(&mut self, token: u64, mask: Mask) {
        self.0.push((token, mask));
    }

    /// Every marked slot.
    pub fn all(&self) -> Mask {
        self.0.iter().fold(0, |all, (_, mask)| all | mask)
    }

    /// The slots that an operation still has.
    pub fn of(&self, token: u64) -> Mask {
        self.0.iter().find(|(t, _)| *t == token).map_or(0, |(_, mask)| *mask)
    }

    /// Ends an operation, and gives the slots that it still had.
    pub fn take(&mut self, token: u64) -> Mask {
        match self.0.iter().position(|(t, _)| *t == token) {
            Some(at) => self.0.swap_remove(at).1,
            None => 0,
        }
    }

    /// Takes slots away from whatever operation has them.
    pub fn strike(&mut self, slots: Mask) {
        if self.0.is_empty() {
            return;
        }
        for (_, mask) in &mut self.0 {
            *mask &= !slots;
        }
        self.0.retain(|(_, mask)| *mask != 0);
    }
}

/// Sixteen neighbouring pages and what is going on with them.
///
/// Invariants: a slot in flight is dirty; a replaced slot is in flight; a dirty slot has a page; a
/// slot that is being loaded has none.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The pages that are here.
    pub pages: [Option<Page>; BLOCK_PAGES as usize],
    /// Slots whose page is newer than what is on disk.
    pub dirty: Mask,
    /// Slots overwritten since they were captured. The captured page stays with its capture.
    pub replaced: Mask,
    /// Captures under way.
    pub flights: Marks,
    /// Loads under way.
    pub loads: Marks,
    /// Whether the LRU list names this block. Must hold when the block has a clean page.
    pub listed: bool,
    /// When it was last moved to the front of that list, on the list's own clock.
    pub stamp: u64,
}

/// What a write to a slot changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Put {
    /// One page more is in memory.
    pub grew: bool,
    /// The slot was clean or empty before.
    pub newly_dirty: bool,
    /// The slot was overwritten for the first time since its capture.
    pub replaced: bool,
}

/// What dropping slots changed, in pages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Pages whose memory is free now. Those that a capture holds are not among them.
    pub freed: u64,
    /// Dirty pages that will not be written any more.
    pub dirty: u64,
    /// Those of `dirty` that were in flight.
    pub flying: u64,
    /// Those of `flying` that had been overwritten since.
    pub replaced: u64,
}

impl Block {
    /// Slots that have a page.
    pub fn present(&self) -> Mask {
        self.pages.iter().enumerate().fold(0, |mask, (i, page)| mask | (Mask::from(page.is_some()) << i))
    }

    /// Whether nothing would be lost with this block.
    pub fn is_idle(&self) -> bool {
        self.loads.all() == 0 && self.pages.iter().all(Option::is_none)
    }

    /// Dirty slots that no capture has.
    pub fn waiting(&self) -> Mask {
        self.dirty & !self.flights.all()
    }

    /// Writes `data` into a slot at byte `at` of its page; where there is no page, onto `base` or zeros.
    pub fn put(
        &mut self,
        slot: usize,
        at: usize,
        data: &[u8],
        base: Option<&Page>,
        spares: &mut Spares<'_>,
    ) -> Put {
        let bit: Mask = 1 << slot;
        self.loads.strike(bit);
        let captured = self.flights.all() & !self.replaced & bit != 0;
        let newly_dirty = self.dirty & bit == 0;
        self.dirty |= bit;
        let grew = match &mut self.pages[slot] {
            Some(page) if !captured => {
                match Arc::get_mut(page) {
                    Some(bytes) => page::patch(bytes, at, data),
                    None => *page = spares.patched(Some(page), at, data),
                }
                false
            }
            Some(page) => {
                *page = spares.patched(Some(page), at, data);
                self.replaced |= bit;
                true
            }
            empty => {
                *empty = Some(spares.patched(base, at, data));
                true
            }
        };
        Put { grew, newly_dirty, replaced: captured }
    }

    /// Drops the pages of these slots, dirty or not, and strikes them out of every operation.
    pub fn discard(&mut self, slots: Mask) -> Dropped {
        let flying = self.flights.all() & slots;
        let replaced = self.replaced & slots;
        let dropped = Dropped {
            freed: count(self.present() & slots) - count(flying & !replaced),
            dirty: count(self.dirty & slots),
            flying: count(flying),
            replaced: count(replaced),
        };
        self.loads.strike(slots);
        self.flights.strike(slots);
        self.dirty &= !slots;
        self.replaced &= !slots;
        for slot in each_slot(slots) {
            self.pages[slot] = None;
        }
        dropped
    }

    /// Takes the clean pages out.
    pub fn take_clean(&mut self) -> impl Iterator<Item = Page> {
        let clean = self.present() & !self.dirty;
        each_slot(clean).filter_map(|slot| self.pages[slot].take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::page::PAGE_LEN;

    #[test]
    fn masks_cover_just_the_pages_in_the_range() {
        assert_eq!(slots_in(0, &(0..16)), 0xffff);
        assert_eq!(slots_in(1, &(0..16)), 0);
        assert_eq!(slots_in(1, &(17..19)), 0b110);
        assert_eq!(slots_in(0, &(15..40)), 0x8000);
        assert_eq!(slots_in(2, &(0..u64::MAX)), 0xffff);
        assert_eq!(each_slot(0b1000_0101).collect::<Vec<_>>(), [0, 2, 7]);
    }

    #[test]
    fn an_overwrite_leaves_a_captured_page_alone() {
        let mut block = Block::default();
        block.put(3, 0, &[1; PAGE_LEN], None, &mut Spares::none());
        block.flights.add(7, 1 << 3);
        let captured = block.pages[3].clone();
        let put = block.put(3, 1, &[2], None, &mut Spares::none());
        assert_eq!(put, Put { grew: true, newly_dirty: false, replaced: true });
        // The second overwrite goes into the new page.
        assert!(!block.put(3, 2, &[3], None, &mut Spares::none()).grew);
        assert_eq!(captured.map(|page| page[..4].to_vec()), Some(vec![1; 4]));
        assert_eq!(block.pages[3].as_ref().map(|page| page[..4].to_vec()), Some(vec![1, 2, 3, 1]));
    }

    #[test]
    fn discarding_strikes_slots_out_of_loads_and_flights() {
        let mut block = Block::default();
        block.put(0, 0, &[1; PAGE_LEN], None, &mut Spares::none());
        block.put(1, 0, &[1; PAGE_LEN], None, &mut Spares::none());
        block.flights.add(1, 0b11);
        block.loads.add(2, 0b100);
        let dropped = block.discard(0b101);
        assert_eq!(dropped, Dropped { freed: 0, dirty: 1, flying: 1, replaced: 0 });
        assert_eq!((block.flights.of(1), block.loads.of(2), block.dirty), (0b10, 0, 0b10));
        assert!(!block.is_idle());
    }
}
