//! Buffers for stripes and reads, used again instead of being given back to the system and faulted in anew.

use crate::member::AlignedBuf;
use crate::sync::Mutex;

/// Most bytes kept for later.
const KEPT_MAX_BYTES: usize = 48 << 20;

/// A stock of aligned buffers.
#[derive(Debug, Default)]
pub struct Buffers {
    stock: Mutex<Stock>,
}

#[derive(Debug, Default)]
struct Stock {
    buffers: Vec<AlignedBuf>,
    bytes: usize,
}

impl Buffers {
    /// A buffer of at least `len` bytes. Its content is whatever it held last: write all of what you use.
    pub fn take(&self, len: usize) -> AlignedBuf {
        let mut stock = self.stock.lock();
        let fitting = stock
            .buffers
            .iter()
            .enumerate()
            .filter(|(_, buf)| buf.len() >= len && buf.len() <= len.max(1 << 16) * 4)
            .min_by_key(|(_, buf)| buf.len())
            .map(|(index, _)| index);
        match fitting {
            Some(index) => {
                let buf = stock.buffers.swap_remove(index);
                stock.bytes -= buf.len();
                buf
            }
            None => AlignedBuf::zeroed(len.next_multiple_of(1 << 16)),
        }
    }

    /// Gives a buffer back for later use.
    pub fn give(&self, buf: AlignedBuf) {
        let mut stock = self.stock.lock();
        if stock.bytes + buf.len() <= KEPT_MAX_BYTES {
            stock.bytes += buf.len();
            stock.buffers.push(buf);
        }
    }
}
