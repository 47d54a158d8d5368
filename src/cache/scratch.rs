//! Buffers for loads that don't go straight into the reader's memory, kept for the next load: new ones
//! would cost a page fault for every page.

use crate::sync::Mutex;
use crate::units::SECTOR_LEN;

/// Buffers kept at most.
const KEPT: usize = 4;
/// The longest buffer that is kept, in bytes.
const KEPT_LEN: usize = 2 << 20;

/// The buffers that are free.
#[derive(Default)]
pub(super) struct Scratch(Mutex<Vec<Vec<u8>>>);

/// A buffer in use; it goes back when dropped.
pub(super) struct Buffer<'a> {
    home: &'a Scratch,
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Scratch {
    /// A buffer of `len` bytes of any content, aligned to a sector: disks and kernels copy that fastest.
    pub fn take(&self, len: usize) -> Buffer<'_> {
        let mut memory = self.0.lock().pop().unwrap_or_default();
        let whole = len + SECTOR_LEN;
        if memory.len() < whole {
            memory = vec![0; whole];
        }
        let start = memory.as_ptr().align_offset(SECTOR_LEN).min(SECTOR_LEN);
        Buffer { home: self, memory, start, len }
    }
}

impl Buffer<'_> {
    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut kept = self.home.0.lock();
        if kept.len() < KEPT && self.memory.len() <= KEPT_LEN {
            kept.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let scratch = Scratch::default();
        for len in [4096, 4 << 20, 8192, 1 << 20] {
            let mut buffer = scratch.take(len);
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.bytes().as_ptr().addr() % SECTOR_LEN, 0);
        }
        assert_eq!(scratch.0.lock().len(), 1);
    }
}
