//! The end of a flush: what was written becomes part of the files' maps.
//!
//! Several files share a transaction, up to [`TX_BYTES`]. Their exclusive locks are held until it is
//! committed, because it was computed from the store as it was under them. They are taken in the order
//! of inode numbers; where one is not free at once, what is there so far is committed first, so that
//! nobody waits for a slow holder of a lock longer than for that one file.

use super::Fs;
use super::change::Change;
use super::error::Result;
use super::extents::segments;
use super::flush::Taken;
use super::inline::emit_row;
use super::map::{MapEdit, Segment};
use super::node::{Node, NodeState};
use crate::cache::Captured;
use crate::member::superblock::{Seq, SetId};
use crate::store::Tx;
use crate::store::tables::{Extent, ExtentId, Inode, Owner, Table, ino_key};
use crate::sync::RwLockWriteGuard;
use crate::sync::atomic::Ordering;
use crate::units::SECTOR;

/// A transaction is committed when it has grown to about this: half of a journal record.
pub(super) const TX_BYTES: u64 = crate::limits::RECORD_MAX_BYTES / 2;
/// What a segment takes at most that is cut or replaced: two rests of it, a reference, an extent that goes
/// with its place, and the record of its set.
const UNREF_BYTES: u64 = 730;
/// What a new segment takes at most, without its checksums.
const SEGMENT_BYTES: u64 = 330;

/// A replaced file of more pieces than this does not fit one record with its new content.
const WHOLE_MAX_PIECES: usize = 2048;

/// A range of a file that is on disk now.
pub(super) struct Mapped {
    /// Offset in the file.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The set.
    pub set: SetId,
    /// Address in the set.
    pub address: u64,
    /// CRC-32C of each sector.
    pub sums: Vec<u32>,
}

/// One file being committed.
struct Part<'a> {
    node: &'a Node,
    state: RwLockWriteGuard<'a, NodeState>,
    captured: Option<Captured>,
    row: Option<Vec<u8>>,
    /// It can't be committed as it was captured: it stays dirty.
    outgrown: bool,
    seq: Seq,
    pending: Pending,
}

/// What the next transaction changes of a file.
#[derive(Default)]
struct Pending {
    edit: MapEdit,
    created: Vec<(ExtentId, Extent)>,
    /// The content of a small file.
    row: Option<Vec<u8>>,
    /// Ranges whose journaled data is overtaken.
    overtaken: Vec<(u64, u64)>,
    end: u64,
    cut_all: bool,
    bytes: u64,
}

/// Files whose changes are in one transaction.
struct Batch<'a> {
    fs: &'a Fs,
    change: Change,
    parts: Vec<Part<'a>>,
}

impl Fs {
    /// Commits written files: maps what was not cut meanwhile.
    pub(super) fn commit_flush(&self, files: Vec<(Taken, Vec<Mapped>)>) -> Result<()> {
        let mut nodes = Vec::with_capacity(files.len());
        let mut work = Vec::with_capacity(files.len());
        for (taken, mapped) in files {
            nodes.push(taken.node);
            work.push((taken.captured, taken.row, taken.seq, mapped));
        }
        let mut batch = Batch { fs: self, change: Change::new(), parts: Vec::new() };
        let mut outcome = Ok(());
        for (node, (captured, row, seq, mapped)) in nodes.iter().zip(work) {
            let state = match node.state.try_write() {
                Some(state) => state,
                None => {
                    outcome = outcome.and(batch.commit());
                    node.state.write()
                }
            };
            let (captured, pending) = (Some(captured), Pending::default());
            let part = Part { node, state, captured, row, outgrown: false, seq, pending };
            // After a failure the others are only abandoned.
            outcome = match outcome {
                Ok(()) => batch.add(part, mapped),
                Err(error) => {
                    batch.close(part, false);
                    Err(error)
                }
            };
        }
        outcome.and(batch.commit())
    }

    /// Nothing of a file is dirty or in flight: a truncation that was held back is committed, and
    /// journaled data is overtaken, since the map has it all. `seq`: of before the look at the cache.
    pub(super) fn nothing_dirty(&self, node: &Node, state: &mut NodeState, seq: Seq) -> Result<()> {
        if state.replaced_at.is_some() {
            return self.commit_replacement(node, state);
        }
        state.journaled.clear();
        if seq > 0 {
            let mut tx = Tx::new();
            tx.drop_data(node.ino, 0, u64::MAX, seq);
            self.put_inode(node.ino, state, &mut tx);
            self.store.commit(tx)?;
            state.attr_dirty = false;
        }
        Ok(())
    }

    /// Puts the inode's record as far as its data is stored.
    pub(super) fn put_inode(&self, ino: u64, state: &mut NodeState, tx: &mut Tx) {
        if state.replaced_at.is_none() && !self.cache.has_dirty(ino) {
            state.persisted_size = state.inode.size;
        }
        tx.put(Table::Inodes, ino_key(ino), &state.record(&state.inode));
    }
}

impl<'a> Batch<'a> {
    /// Adds one file: in this transaction, and in more when it takes so many.
    fn add(&mut self, mut part: Part<'a>, mapped: Vec<Mapped>) -> Result<()> {
        let mut whole = part.state.replaced_at.is_some();
        let room = if whole { self.commit() } else { Ok(()) };
        let ready = room.and_then(|()| {
            if whole && mapped.len() > WHOLE_MAX_PIECES {
                whole = false;
                self.fs.commit_replacement(part.node, &mut part.state)?;
            }
            Ok(())
        });
        match ready.and_then(|()| self.collect(&mut part, mapped, whole)) {
            Ok(()) => {
                self.parts.push(part);
                if self.tx_bytes() > TX_BYTES { self.commit() } else { Ok(()) }
            }
            Err(error) => {
                self.close(part, false);
                Err(error)
            }
        }
    }

    fn collect(&mut self, part: &mut Part<'a>, mapped: Vec<Mapped>, whole: bool) -> Result<()> {
        if part.state.gone {
            return Ok(());
        }
        let Some(captured) = &part.captured else { return Ok(()) };
        let there = self.fs.cache.still_there(captured);
        if there.is_empty() {
            // All of it was cut meanwhile. If the file is being replaced, what replaces it is still to come.
            return Ok(());
        }
        let row = part.row.take();
        part.outgrown = row.is_some() && !part.state.fits_inline();
        if part.outgrown {
            return Ok(());
        }
        if whole {
            self.cut_all(part)?;
        }
        if let Some(row) = row {
            part.pending.store_inline(row, part.state.inode.size);
        }
        for one in mapped {
            let ranges: Vec<(u64, u64)> = overlaps(&there, one.start, one.start + one.len);
            if ranges.is_empty() {
                continue;
            }
            self.map(part, one, &ranges)?;
            if !whole && part.pending.bytes > TX_BYTES {
                self.commit()?;
                self.commit_part(part)?;
            }
        }
        Ok(())
    }

    /// The old content of a replaced file goes in the same transaction as the new one comes.
    fn cut_all(&mut self, part: &mut Part<'a>) -> Result<()> {
        let old = segments(&self.fs.store, part.node.ino, 0, u64::MAX, usize::MAX)?;
        let pending = &mut part.pending;
        pending.edit.learn(old);
        pending.edit.cut(0, u64::MAX);
        pending.cut_all = true;
        Ok(())
    }

    fn map(&mut self, part: &mut Part<'a>, one: Mapped, ranges: &[(u64, u64)]) -> Result<()> {
        let store = &self.fs.store;
        let id = self.fs.extent_numbers.next(store)?;
        let pending = &mut part.pending;
        for (from, to) in ranges.iter().copied() {
            let before = pending.edit.ref_count();
            if !pending.cut_all {
                pending.edit.learn(segments(store, part.node.ino, from, to, usize::MAX)?);
            }
            let at = (from - one.start) as u32;
            pending.edit.insert(Segment { start: from, len: to - from, extent: Some((id, at)) });
            pending.overtaken.push((from, to));
            pending.end = pending.end.max(to);
            let unrefs = (pending.edit.ref_count() - before) as u64;
            pending.bytes += SEGMENT_BYTES + unrefs * UNREF_BYTES;
        }
        pending.bytes += 4 * one.sums.len() as u64;
        // A piece is at most as long as an extent may be.
        let extent = Extent {
            set: one.set,
            address: one.address,
            len: one.len as u32,
            owner: Owner::default(),
            sums: one.sums,
        };
        pending.created.push((id, extent));
        Ok(())
    }

    /// About how large the transaction gets with everything pending.
    fn tx_bytes(&self) -> u64 {
        let pending: u64 = self.parts.iter().map(|part| part.pending.bytes + SEGMENT_BYTES).sum();
        self.change.bytes() + pending
    }

    /// Commits what a file has pending, and keeps the file.
    fn commit_part(&mut self, part: &mut Part<'a>) -> Result<()> {
        let mut change = std::mem::take(&mut self.change);
        let done = part.emit(&mut change);
        self.fs.commit(change)?;
        part.apply(self.fs, done);
        Ok(())
    }

    /// Commits everything, and closes all files in it.
    fn commit(&mut self) -> Result<()> {
        let mut parts = std::mem::take(&mut self.parts);
        let mut change = std::mem::take(&mut self.change);
        let all: Vec<Done> = parts.iter_mut().map(|part| part.emit(&mut change)).collect();
        let outcome = if change.is_empty() { Ok(()) } else { self.fs.commit(change).map(drop) };
        match outcome {
            Ok(()) => {
                for (mut part, done) in parts.into_iter().zip(all) {
                    part.apply(self.fs, done);
                    self.close(part, true);
                }
                Ok(())
            }
            Err(error) => {
                for part in parts {
                    self.close(part, false);
                }
                Err(error)
            }
        }
    }

    fn close(&self, mut part: Part<'a>, written: bool) {
        part.state.in_flight = part.state.in_flight.saturating_sub(1);
        if let Some(captured) = part.captured.take() {
            if written && !part.outgrown {
                self.fs.cache.finish(captured);
                self.last_of(&mut part);
            } else {
                self.fs.cache.abandon(captured);
            }
        }
        self.fs.settle(part.node.ino, &mut part.state);
    }
}

impl Batch<'_> {
    /// When nothing is dirty any more, also journaled data of pages that were in flight when they were
    /// journaled is overtaken. Otherwise it would keep the journal's tail where it is.
    fn last_of(&self, part: &mut Part<'_>) {
        let ino = part.node.ino;
        let seq = self.fs.store.data_seq(ino);
        let waits = part.state.replaced_at.is_some();
        if part.state.gone || seq == 0 || waits || self.fs.cache.has_dirty(ino) {
            return;
        }
        if let Err(error) = self.fs.nothing_dirty(part.node, &mut part.state, seq) {
            log::debug!("inode {ino}: {error}");
        }
    }
}

/// What a file becomes when its transaction is committed.
#[derive(Default)]
struct Done {
    changed: bool,
    inode: Option<Inode>,
    persisted_size: u64,
    replaced: bool,
    held_used: u64,
    overtaken: Vec<(u64, u64)>,
}

impl Pending {
    /// The content is stored in the table, as far as it was not cut since it was captured.
    fn store_inline(&mut self, mut row: Vec<u8>, size: u64) {
        row.truncate(size as usize);
        self.overtaken.push((0, SECTOR));
        self.end = row.len() as u64;
        self.bytes += self.end;
        self.row = Some(row);
    }
}

impl Part<'_> {
    /// Puts everything pending into a transaction.
    fn emit(&mut self, change: &mut Change) -> Done {
        let pending = std::mem::take(&mut self.pending);
        if self.state.gone || (pending.overtaken.is_empty() && !pending.cut_all) {
            return Done::default();
        }
        let ino = self.node.ino;
        if pending.cut_all {
            change.tx.drop_data(ino, 0, u64::MAX, Seq::MAX);
        }
        change.map(ino, &pending.edit);
        for (id, extent) in pending.created {
            change.create(id, extent);
        }
        let tx = &mut change.tx;
        if self.seq > 0 {
            for (from, to) in merged(&pending.overtaken) {
                tx.drop_data(ino, from, to, self.seq);
            }
        }
        let covers = pending.cut_all || pending.overtaken.iter().any(|(from, _)| *from < SECTOR);
        let had = self.state.inode.inline;
        let inline = emit_row(ino, had, pending.row, covers, tx);
        let old_size = if pending.cut_all { 0 } else { self.state.persisted_size };
        let persisted_size = old_size.max(self.state.inode.size.min(pending.end));
        let sectors = self.state.inode.sectors + pending.edit.added() / SECTOR + u64::from(inline);
        let inode = Inode {
            sectors: sectors.saturating_sub(pending.edit.removed() / SECTOR + u64::from(had)),
            inline,
            ..self.state.inode.clone()
        };
        tx.put(Table::Inodes, ino_key(ino), &Inode { size: persisted_size, ..inode.clone() });
        Done {
            changed: true,
            inode: Some(inode),
            persisted_size,
            replaced: pending.cut_all,
            held_used: pending.edit.reserved_removed(),
            overtaken: pending.overtaken,
        }
    }

    /// Makes it the truth.
    fn apply(&mut self, fs: &Fs, done: Done) {
        if !done.changed {
            return;
        }
        if let Some(inode) = done.inode {
            self.state.inode = inode;
        }
        self.state.persisted_size = done.persisted_size;
        self.state.attr_dirty = self.state.persisted_size != self.state.inode.size;
        if done.replaced {
            self.state.replaced_at = None;
            self.node.visible_to.store(u64::MAX, Ordering::Release);
        }
        for (from, to) in done.overtaken {
            let flushed: Vec<u64> = self.state.journaled.range(from..to).map(|(at, _)| *at).collect();
            for at in flushed {
                self.state.journaled.remove(&at);
            }
        }
        fs.release_held(&mut self.state, done.held_used);
    }
}

/// The parts of sorted `(offset, len)` ranges in `[from, to)`, as `(from, to)`.
fn overlaps(ranges: &[(u64, u64)], from: u64, to: u64) -> Vec<(u64, u64)> {
    let first = ranges.partition_point(|(start, len)| start + len <= from);
    ranges[first..]
        .iter()
        .take_while(|(start, _)| *start < to)
        .map(|(start, len)| ((*start).max(from), (start + len).min(to)))
        .filter(|(start, end)| start < end)
        .collect()
}

/// Neighbouring `(from, to)` ranges made one.
fn merged(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges.iter().copied() {
        match out.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            _ => out.push((from, to)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_survives_is_clipped_to_the_piece() {
        let there = [(0, 4096), (8192, 8192), (40960, 4096)];
        assert_eq!(overlaps(&there, 0, 12288), [(0, 4096), (8192, 12288)]);
        assert_eq!(overlaps(&there, 4096, 8192), []);
        assert_eq!(overlaps(&there, 12288, 1 << 20), [(12288, 16384), (40960, 45056)]);
    }

    #[test]
    fn neighbours_are_merged() {
        assert_eq!(merged(&[(0, 1), (1, 2), (3, 4)]), [(0, 2), (3, 4)]);
    }
}
