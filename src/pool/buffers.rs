//! Buffers for stripes and reads, used again instead of being given back to the system and faulted in anew.

use super::sets::Set;
use crate::member::AlignedBuf;
use crate::sync::{Arc, Mutex};

/// Most bytes kept for later.
const KEPT_MAX_BYTES: usize = 48 << 20;

/// Smallest buffer that is kept.
const LEAST_BYTES: usize = 1 << 16;

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
            .filter(|(_, buf)| buf.len() >= len && buf.len() <= len.max(LEAST_BYTES) * 4)
            .min_by_key(|(_, buf)| buf.len())
            .map(|(index, _)| index);
        match fitting {
            Some(index) => {
                let buf = stock.buffers.swap_remove(index);
                stock.bytes -= buf.len();
                buf
            }
            None => AlignedBuf::zeroed(len.next_multiple_of(LEAST_BYTES)),
        }
    }

    /// Gives a buffer back for later use.
    pub fn give(&self, buf: AlignedBuf) {
        if buf.len() < LEAST_BYTES {
            return;
        }
        let mut stock = self.stock.lock();
        if stock.bytes + buf.len() <= KEPT_MAX_BYTES {
            stock.bytes += buf.len();
            stock.buffers.push(buf);
        }
    }
}

/// A buffer that is being written somewhere. When the last write of it has ended, however late, it goes back to the
/// stock; until then it pins its set, whose slabs must not be handed out again.
#[derive(Debug)]
pub struct Pinned {
    buf: Option<AlignedBuf>,
    home: Arc<Buffers>,
    _set: Arc<Set>,
}

impl Pinned {
    /// Pins `set` for as long as `buf` is being written.
    pub fn new(buf: AlignedBuf, home: &Arc<Buffers>, set: &Arc<Set>) -> Arc<Self> {
        Arc::new(Self { buf: Some(buf), home: Arc::clone(home), _set: Arc::clone(set) })
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            self.home.give(buf);
        }
    }
}
