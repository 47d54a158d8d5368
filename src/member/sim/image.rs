//! The bytes of one area, live and durable, and what a power cut makes of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::next_random;

/// Bytes that the images share, copy and leave out as one.
const CHUNK: usize = 16 * 1024;
/// A write is torn into pieces of this many bytes.
const TEAR: usize = 512;

/// What a power cut does to writes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// All are lost.
    Lost,
    /// All had arrived.
    Kept,
    /// Some had arrived, in any order.
    Subset,
    /// Some had arrived, in any order, and of some of those only the beginning, or any 512-byte pieces.
    Torn,
}

impl PowerCut {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Lost, Self::Kept, Self::Subset, Self::Torn];
}

/// Sparse bytes; what was never written is `fill`.
#[derive(Debug, Clone)]
struct Image {
    chunks: HashMap<usize, Arc<[u8; CHUNK]>>,
    fill: u8,
}

/// The pieces of `offset..offset + len` by chunk: the chunk, where in it, and where in the buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>, usize)> {
    let start = offset as usize;
    let mut done = 0;
    std::iter::from_fn(move || {
        let (chunk, from) = ((start + done) / CHUNK, (start + done) % CHUNK);
        let piece = (len - done).min(CHUNK - from);
        let item = (chunk, from..from + piece, done);
        done += piece;
        (piece > 0).then_some(item)
    })
}

impl Image {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        for (chunk, within, at) in pieces(offset, buf.len()) {
            let out = &mut buf[at..at + within.len()];
            match self.chunks.get(&chunk) {
                Some(bytes) => out.copy_from_slice(&bytes[within]),
                None => out.fill(self.fill),
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (chunk, within, at) in pieces(offset, data.len()) {
            let bytes = &data[at..at + within.len()];
            if let Ok(whole) = <[u8; CHUNK]>::try_from(bytes) {
                self.chunks.insert(chunk, Arc::new(whole));
                continue;
            }
            let fill = self.fill;
            let old = self.chunks.entry(chunk).or_insert_with(|| Arc::new([fill; CHUNK]));
            Arc::make_mut(old)[within].copy_from_slice(bytes);
        }
    }

    /// Takes over the chunks that `writes` touch from `other`.
    fn share(&mut self, other: &Self, writes: &[Pending]) {
        for (chunk, ..) in writes.iter().flat_map(|write| pieces(write.offset, write.data.len())) {
            match other.chunks.get(&chunk) {
                Some(bytes) => self.chunks.insert(chunk, Arc::clone(bytes)),
                None => self.chunks.remove(&chunk),
            };
        }
    }

    fn flip(&mut self, offset: u64, bit: u32) {
        let mut byte = [0];
        self.read(offset, &mut byte);
        self.write(offset, &[byte[0] ^ (1 << (bit % 8))]);
    }
}

/// A write that is not durable yet.
#[derive(Debug, Clone)]
struct Pending {
    offset: u64,
    data: Vec<u8>,
}

/// One area.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    live: Image,
    durable: Image,
    /// Since the last sync, in order.
    pending: Vec<Pending>,
    /// Those of syncs that failed: no sync makes them durable any more.
    doubtful: Vec<Pending>,
}

impl Pages {
    pub(super) fn new(fill: u8) -> Self {
        let image = Image { chunks: HashMap::new(), fill };
        Self { live: image.clone(), durable: image, pending: vec![], doubtful: vec![] }
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        self.live.read(offset, buf);
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        self.live.write(offset, data);
        self.pending.push(Pending { offset, data: data.to_vec() });
    }

    pub(super) fn sync(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if self.doubtful.is_empty() {
            self.durable.share(&self.live, &pending);
        } else {
            pending.iter().for_each(|write| self.durable.write(write.offset, &write.data));
        }
    }

    pub(super) fn fail_sync(&mut self) {
        self.doubtful.append(&mut self.pending);
    }

    /// What is durable, as it would be found after a power cut that loses everything else.
    pub(super) fn durable(&self) -> Self {
        let image = &self.durable;
        Self { live: image.clone(), durable: image.clone(), pending: vec![], doubtful: vec![] }
    }

    /// Rots a bit on the medium.
    pub(super) fn flip(&mut self, offset: u64, bit: u32) {
        self.live.flip(offset, bit);
        self.durable.flip(offset, bit);
    }

    pub(super) fn power_cut(&mut self, policy: PowerCut, random: &mut u64) {
        let mut writes = std::mem::take(&mut self.doubtful);
        writes.append(&mut self.pending);
        if matches!(policy, PowerCut::Subset | PowerCut::Torn) {
            for i in (1..writes.len()).rev() {
                writes.swap(i, next_random(random) as usize % (i + 1));
            }
        }
        for write in &writes {
            self.arrive(write, policy, random);
        }
        self.live.share(&self.durable, &writes);
    }

    /// Lets as much of a write reach the medium as the policy and chance will have it.
    fn arrive(&mut self, write: &Pending, policy: PowerCut, random: &mut u64) {
        let tears = write.data.len().div_ceil(TEAR);
        let prefix = |tears: usize| &write.data[..write.data.len().min(tears * TEAR)];
        let chance = next_random(random);
        match (policy, chance % 4) {
            (PowerCut::Lost, _) | (PowerCut::Subset, 0 | 1) | (PowerCut::Torn, 0) => {}
            (PowerCut::Kept, _) | (PowerCut::Subset, _) | (PowerCut::Torn, 1) => {
                self.durable.write(write.offset, &write.data);
            }
            (PowerCut::Torn, 2) => {
                self.durable.write(write.offset, prefix((chance >> 8) as usize % (tears + 1)));
            }
            (PowerCut::Torn, _) => {
                for (i, piece) in write.data.chunks(TEAR).enumerate() {
                    if next_random(random).is_multiple_of(2) {
                        self.durable.write(write.offset + (i * TEAR) as u64, piece);
                    }
                }
            }
        }
    }
}
