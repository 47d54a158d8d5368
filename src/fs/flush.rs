//! From dirty pages to extents: capture, write stripes, commit.
//!
//! A round captures up to [`FLUSH_BATCH_BYTES`] of several files, each under its exclusive lock; writes
//! them together, so that small files share stripes, with no inode's lock held; and commits what is
//! still there (see [`super::flush_commit`]). The data is durable before the record that refers to it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::Fs;
use super::error::Result;
use super::flush_commit::Mapped;
use super::node::Node;
use crate::cache::{Backing, Captured, FlushError, LoadError, Page};
use crate::layout::Resiliency;
use crate::limits::FLUSH_BATCH_BYTES;
use crate::member::superblock::Seq;
use crate::pool::Chunk;
use crate::store::tables::Ino;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::units::SECTOR;

/// How long a truncated file that is being written anew may wait for its close.
const REPLACE_MAX_AGE: Duration = Duration::from_secs(30);

/// Why a file is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Its data is old, or memory is short: a file that is being replaced can wait for its close.
    Age,
    /// Somebody waits for it.
    Demand,
}

/// A file's pages on their way to disk.
pub(super) struct Taken {
    /// The file.
    pub node: Arc<Node>,
    /// Its pages.
    pub captured: Captured,
    /// They as a row of the table of small files, if that is where they go.
    pub row: Option<Vec<u8>>,
    /// The last record with journaled data of the file that these pages are newer than.
    pub seq: Seq,
}

impl Backing for Fs {
    fn load(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> std::result::Result<(), LoadError> {
        self.load_range(ino, offset, buf)
    }

    fn flush(&self, inos: &[Ino]) -> std::result::Result<(), FlushError> {
        // Under pressure a file that is being replaced must not wait for its close: others wait for its memory.
        let why = if self.cache.is_slowing() { Why::Demand } else { Why::Age };
        match self.flush_round(inos, why) {
            Ok(_) => Ok(()),
            Err(error) => Err(FlushError { message: error.to_string() }),
        }
    }
}

impl Fs {
    /// Flushes everything of these files that is dirty now.
    pub(super) fn flush_files(&self, inos: &[Ino]) -> Result<()> {
        self.flush_files_for(inos, Why::Demand)
    }

    /// Flushes files with journaled data, so that a checkpoint can move the journal's tail. One that is being
    /// replaced keeps its old content until it is closed, as long as the journal can afford that.
    pub(super) fn flush_for_the_journal(&self) -> Result<()> {
        let why = if self.store.log_is_short() { Why::Demand } else { Why::Age };
        self.flush_files_for(&self.store.files_with_data(), why)
    }

    pub(super) fn flush_files_for(&self, inos: &[Ino], why: Why) -> Result<()> {
        // Every round takes what it can in order, so each page that was dirty at the start is captured
        // within this many rounds, also while somebody goes on writing.
        let dirty: u64 = inos.iter().map(|ino| self.cache.dirty_bytes_of(*ino)).sum();
        let rounds = 2 * (dirty / FLUSH_BATCH_BYTES) + 4;
        let mut left: Vec<Ino> = inos.to_vec();
        left.sort_unstable();
        left.dedup();
        for _ in 0..rounds {
            // What another flush has in flight may fail and come back as dirty.
            for ino in &left {
                self.cache.wait_in_flight(*ino);
            }
            self.flush_round(&left, why)?;
            left.retain(|ino| self.needs_flush(*ino));
            if left.is_empty() {
                break;
            }
        }
        for ino in &left {
            self.cache.wait_in_flight(*ino);
        }
        Ok(())
    }

    /// Flushes all files.
    pub(super) fn flush_everything(&self) -> Result<()> {
        let dirty: Vec<Ino> = self.nodes.all().into_iter().filter(|ino| self.needs_flush(*ino)).collect();
        self.flush_files(&dirty)
    }

    fn needs_flush(&self, ino: Ino) -> bool {
        self.cache.has_dirty(ino)
            || self.nodes.peek(ino).is_some_and(|node| node.visible_to.load(Ordering::Acquire) == 0)
    }

    /// Whether any file has data in memory only.
    pub(super) fn anything_dirty(&self) -> bool {
        self.cache.stats().dirty_bytes > 0
    }

    /// One round over these files. Returns the bytes captured.
    pub(super) fn flush_round(&self, inos: &[Ino], why: Why) -> Result<u64> {
        let (taken, bytes) = self.capture_all(inos, why)?;
        self.write_taken(taken).map(|()| bytes)
    }

    /// Writes what was captured, and commits it: small files as rows, the others as stripes, together with those
    /// of the same resiliency.
    pub(super) fn write_taken(&self, taken: Vec<Taken>) -> Result<()> {
        let (small, large): (Vec<Taken>, Vec<Taken>) = taken.into_iter().partition(|one| one.row.is_some());
        let mut outcome = self.commit_rows(small);
        let mut groups: HashMap<Resiliency, Vec<Taken>> = HashMap::new();
        for one in large {
            let resiliency = one.node.state.read().inode.resiliency;
            groups.entry(resiliency).or_default().push(one);
        }
        for (resiliency, group) in groups {
            if let Err(error) = self.write_group(&resiliency, group) {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Files whose truncation was held back and need not wait any longer: closed, or too old.
    pub(super) fn replaced(&self) -> Vec<Ino> {
        let mut ready = Vec::new();
        self.replacing.lock().retain(|ino| {
            let Some(node) = self.nodes.peek(*ino) else { return false };
            let Some(since) = node.state.read().replaced_at else { return false };
            if !self.may_wait(&node, since) {
                ready.push(*ino);
            }
            true
        });
        ready
    }

    fn may_wait(&self, node: &Node, since: Duration) -> bool {
        let age = self.clock.elapsed().saturating_sub(since);
        node.writers.load(Ordering::Acquire) > 0 && age < REPLACE_MAX_AGE
    }

    fn capture_all(&self, inos: &[Ino], why: Why) -> Result<(Vec<Taken>, u64)> {
        let mut sorted = inos.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for ino in sorted {
            if bytes >= FLUSH_BATCH_BYTES {
                break;
            }
            let Some(node) = self.nodes.peek(ino) else { continue };
            match self.capture(&node, why, FLUSH_BATCH_BYTES - bytes) {
                Ok(Some(one)) => {
                    bytes += captured_bytes(&one.captured);
                    taken.push(one);
                }
                Ok(None) => {}
                Err(error) => {
                    self.abandon_all(taken);
                    return Err(error);
                }
            }
        }
        Ok((taken, bytes))
    }

    pub(super) fn capture(&self, node: &Arc<Node>, why: Why, room: u64) -> Result<Option<Taken>> {
        let mut state = node.state.write();
        if state.gone {
            return Ok(None);
        }
        let mut room = room;
        if let Some(since) = state.replaced_at {
            if why == Why::Age && self.may_wait(node, since) {
                return Ok(None);
            }
            // The new content goes in one piece, together with the end of the old one.
            if state.in_flight > 0 {
                return Ok(None);
            }
            room = FLUSH_BATCH_BYTES;
        }
        let seq = self.store.data_seq(node.ino);
        let captured = self.cache.capture(node.ino, 0, u64::MAX, room);
        if captured.runs.is_empty() {
            self.cache.abandon(captured);
            if !self.cache.has_dirty(node.ino) {
                self.nothing_dirty(node, &mut state, seq)?;
            }
            return Ok(None);
        }
        state.in_flight += 1;
        let row = state.row_of(&captured);
        Ok(Some(Taken { node: node.clone(), captured, row, seq }))
    }

    /// Writes one group of files of one resiliency, and commits them.
    fn write_group(&self, resiliency: &Resiliency, group: Vec<Taken>) -> Result<()> {
        let runs: Vec<(usize, u64, &Vec<Page>)> = group
            .iter()
            .enumerate()
            .flat_map(|(file, one)| one.captured.runs.iter().map(move |run| (file, run.offset, &run.pages)))
            .collect();
        let chunks: Vec<Chunk<'_>> = runs
            .iter()
            .map(|(_, _, pages)| Chunk(pages.iter().map(|page| page.as_slice()).collect()))
            .collect();
        // `written` keeps the new sets from being freed until the commit is done.
        let mut written = match self.pool.write(resiliency, &chunks) {
            Ok(written) => written,
            Err(error) => {
                drop(chunks);
                self.abandon_all(group);
                return Err(error.into());
            }
        };
        let mut mapped: BTreeMap<usize, Vec<Mapped>> = BTreeMap::new();
        for piece in std::mem::take(&mut written.pieces) {
            let Some((file, offset, _)) = runs.get(piece.chunk) else { continue };
            let (set, address, sums, len) = (piece.set, piece.address, piece.sums, piece.len);
            let start = offset + piece.at;
            mapped.entry(*file).or_default().push(Mapped { start, len, set, address, sums });
        }
        drop(chunks);
        drop(runs);
        let files = group
            .into_iter()
            .enumerate()
            .map(|(index, one)| (one, mapped.remove(&index).unwrap_or_default()))
            .collect();
        let outcome = self.commit_flush(files);
        drop(written);
        outcome
    }

    /// Writing failed: everything captured stays dirty.
    pub(super) fn abandon_all(&self, taken: Vec<Taken>) {
        for one in taken {
            let mut state = one.node.state.write();
            state.in_flight = state.in_flight.saturating_sub(1);
            self.cache.abandon(one.captured);
            self.settle(one.node.ino, &mut state);
        }
    }
}

fn captured_bytes(captured: &Captured) -> u64 {
    captured.runs.iter().map(|run| run.pages.len() as u64 * SECTOR).sum()
}
