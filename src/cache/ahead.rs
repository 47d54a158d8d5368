//! Read-ahead: which readers go through a file in order, and how far ahead of them to load.

use crate::units::{KIB, MIB};

/// The most that one load brings in for a sequential reader.
pub(super) const WINDOW_MAX_BYTES: u64 = MIB;
const WINDOW_FIRST_BYTES: u64 = 128 * KIB;
/// How far requests of an established stream may be out of order: several threads serve them.
const DISORDER_BYTES: u64 = 256 * KIB;
const STREAMS: usize = 3;

#[derive(Debug, Default, Clone, Copy)]
struct Stream {
    next: u64,
    /// Requests in order so far, the first one not counted.
    steps: u32,
}

/// The readers of one file that may be sequential, latest first.
#[derive(Debug, Default)]
pub(super) struct Streams {
    known: [Stream; STREAMS],
    len: usize,
}

impl Streams {
    /// Notes a request, and returns how many bytes a load on its behalf may cover, counted from the
    /// load's start; 0 for a reader that jumps about.
    pub fn note(&mut self, offset: u64, len: u64) -> u64 {
        let end = offset.saturating_add(len);
        let at = self.known[..self.len].iter().position(|stream| stream.is_continued_by(offset));
        let stream = match at {
            Some(at) => {
                let old = self.known[at];
                self.known.copy_within(0..at, 1);
                Stream { next: old.next.max(end), steps: old.steps.saturating_add(1) }
            }
            None => {
                self.known.copy_within(0..STREAMS - 1, 1);
                self.len = (self.len + 1).min(STREAMS);
                // Whoever starts at the front most likely wants the whole file.
                Stream { next: end, steps: u32::from(offset == 0) }
            }
        };
        self.known[0] = stream;
        stream.window()
    }
}

impl Stream {
    fn is_continued_by(&self, offset: u64) -> bool {
        offset == self.next || (self.steps > 1 && offset.abs_diff(self.next) <= DISORDER_BYTES)
    }

    fn window(&self) -> u64 {
        match self.steps {
            0 => 0,
            steps => (WINDOW_FIRST_BYTES << (steps - 1).min(8)).min(WINDOW_MAX_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_with_a_sequential_reader() {
        let mut streams = Streams::default();
        let windows: Vec<u64> = (0..6).map(|i| streams.note(i * 4096, 4096) / KIB).collect();
        assert_eq!(windows, [128, 256, 512, 1024, 1024, 1024]);
    }

    #[test]
    fn random_readers_get_none() {
        let mut streams = Streams::default();
        for i in 1..100_u64 {
            assert_eq!(streams.note((i * 7919 % 1000) * MIB, 4096), 0);
        }
    }

    #[test]
    fn two_readers_of_one_file_are_told_apart_and_may_be_out_of_order() {
        let mut streams = Streams::default();
        for i in 0..4 {
            streams.note(MIB + i * 4096, 4096);
            streams.note(500 * MIB + i * 4096, 4096);
        }
        assert_eq!(streams.note(MIB + 5 * 4096, 4096), WINDOW_MAX_BYTES);
        assert_eq!(streams.note(MIB + 4 * 4096, 4096), WINDOW_MAX_BYTES);
        assert_eq!(streams.note(500 * MIB + 4 * 4096, 4096), WINDOW_MAX_BYTES);
    }
}
