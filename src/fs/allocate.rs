//! fallocate, and where data and holes are.
//!
//! What is promised: space that fallocate allocated is set aside in the pool until the pool is
//! unmounted, so that writing there does not run out of room meanwhile. After the next mount the ranges
//! still read as zeros and count as allocated, but a write there finds only the room that there is.

use super::change::Change;
use super::data::need_file;
use super::error::{FsError, Result};
use super::extents::segments;
use super::map::MapEdit;
use super::node::{Node, NodeState};
use super::truncate::CUT_SEGMENTS;
use super::{Fs, Handle};
use crate::limits::FILE_MAX_BYTES;
use crate::member::superblock::Seq;
use crate::store::Tx;
use crate::store::tables::{Ino, Table, ino_key};
use crate::sync::atomic::Ordering;
use crate::units::{SECTOR, round_down, round_up};

const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE;
const ZERO_RANGE_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP_SIZE;

/// Segments that one look at the map takes in.
const SEEK_SEGMENTS: usize = 256;

/// What [`Fs::lseek`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next byte that holds data.
    Data,
    /// The next byte in a hole; the end of the file counts as one.
    Hole,
}

impl Fs {
    /// Allocates, zeroes or frees a range, as `mode` (the bits of `fallocate(2)`) says.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for modes other than allocating, punching and zeroing;
    /// [`FsError::NoSpace`]; [`FsError::FileTooLarge`].
    pub fn fallocate(&self, ino: Ino, handle: Handle, offset: u64, len: u64, mode: i32) -> Result<()> {
        self.may_change()?;
        let (node, flags) = self.node_of(ino, handle)?;
        if !flags.write {
            return Err(FsError::BadHandle { handle });
        }
        let end = offset.checked_add(len).ok_or(FsError::FileTooLarge { end: u64::MAX })?;
        if len == 0 {
            return Err(FsError::Invalid { what: "a range of no bytes can't be allocated" });
        }
        if end > FILE_MAX_BYTES {
            return Err(FsError::FileTooLarge { end });
        }
        if mode & libc::FALLOC_FL_PUNCH_HOLE == 0 && node.state.read().inode.inline {
            self.make_a_sector_fit()?;
        }
        self.with_room(|| {
            let mut state = node.state.write();
            need_file(ino, &state)?;
            match mode {
                0 => self.allocate(&node, &mut state, offset, end, true),
                KEEP_SIZE => self.allocate(&node, &mut state, offset, end, false),
                PUNCH_HOLE => self.zero_range(&node, &mut state, offset, end, false, false),
                ZERO_RANGE => self.zero_range(&node, &mut state, offset, end, true, true),
                ZERO_RANGE_KEEP => self.zero_range(&node, &mut state, offset, end, true, false),
                _ => Err(FsError::Unsupported { what: "this mode of fallocate" }),
            }
        })
    }

    fn allocate(&self, node: &Node, state: &mut NodeState, from: u64, to: u64, grow: bool) -> Result<()> {
        self.commit_replacement(node, state)?;
        self.drop_privileges(node.ino, state)?;
        let (mut at, last) = (round_down(from, SECTOR), round_up(to, SECTOR));
        if at == 0 && state.inode.inline {
            self.move_row_to_journal(node, state)?;
        }
        loop {
            let mut found = segments(&self.store, node.ino, at, last, CUT_SEGMENTS + 1)?;
            let end = match found.get(CUT_SEGMENTS) {
                Some(next) => next.start,
                None => last,
            };
            found.truncate(CUT_SEGMENTS);
            let mut edit = MapEdit::new();
            edit.learn(found);
            let filled = edit.fill_holes(at, end);
            self.hold(state, filled)?;
            let mut change = Change::new();
            change.map(node.ino, &edit);
            let outcome = self.allocated(node.ino, state, change, filled, if grow { to } else { 0 });
            if outcome.is_err() {
                self.release_held(state, filled);
                return outcome;
            }
            if end == last {
                return Ok(());
            }
            at = end;
        }
    }

    /// Sets room aside for space that is promised and not written yet.
    pub(super) fn hold(&self, state: &mut NodeState, bytes: u64) -> Result<()> {
        if bytes > 0 {
            self.pool.reserve(&state.inode.resiliency, bytes)?;
            state.held += bytes;
        }
        Ok(())
    }

    fn allocated(
        &self,
        ino: Ino,
        state: &mut NodeState,
        mut change: Change,
        filled: u64,
        size: u64,
    ) -> Result<()> {
        let mut inode = state.inode.clone();
        let now = self.clock.now();
        inode.sectors += filled / SECTOR;
        inode.ctime = now;
        let mut persisted = state.persisted_size;
        if size > inode.size {
            inode.size = size;
            inode.mtime = now;
            persisted = size;
        }
        let record = crate::store::tables::Inode { size: persisted, ..inode.clone() };
        change.tx.put(Table::Inodes, ino_key(ino), &record);
        self.commit(change)?;
        state.inode = inode;
        state.persisted_size = persisted;
        Ok(())
    }

    /// Makes `[from, to)` read as zeros: a hole, or with `reserve` reserved space.
    fn zero_range(
        &self,
        node: &Node,
        state: &mut NodeState,
        from: u64,
        to: u64,
        reserve: bool,
        grow: bool,
    ) -> Result<()> {
        let ino = node.ino;
        self.commit_replacement(node, state)?;
        self.drop_privileges(ino, state)?;
        let size = state.inode.size;
        let (first, last) = (round_up(from, SECTOR), round_down(to, SECTOR));
        // The edges first: only they can fail for want of reading or room.
        if first > last {
            self.zero_edge(ino, state, from, to)?;
        } else {
            self.zero_edge(ino, state, from, first)?;
            self.zero_edge(ino, state, last, to)?;
        }
        let now = self.clock.now();
        (state.inode.mtime, state.inode.ctime) = (now, now);
        state.attr_dirty = true;
        if first < last {
            self.cache.discard(ino, first, last);
            state.journaled.retain(|at, _| *at < first || *at >= last);
            self.settle(ino, state);
            if !self.cache.has_dirty(ino) {
                state.persisted_size = size;
            }
            let mut tx = Tx::new();
            tx.drop_data(ino, first, last, Seq::MAX);
            self.cut_map(ino, state, first, last, tx)?;
        }
        if reserve {
            self.allocate(node, state, from, to, grow)?;
        }
        Ok(())
    }

    /// Zeros a range within one page, below the end of the file.
    fn zero_edge(&self, ino: Ino, state: &mut NodeState, from: u64, to: u64) -> Result<()> {
        let end = round_up(state.inode.size, SECTOR);
        let to = to.min(end);
        if from >= to {
            return Ok(());
        }
        let bytes = self.cache.dirty_new_pages(ino, from, to - from) * SECTOR;
        self.reserve(ino, state, bytes, (from, to - from))?;
        let zeroed = self.cache.zero(ino, from, to, end);
        self.settle(ino, state);
        zeroed?;
        Ok(())
    }

    /// The next data or hole at or after `offset`. Data that is in memory only is data.
    ///
    /// # Errors
    /// [`FsError::PastTheEnd`] when there is none, or `offset` is not below the end of the file.
    pub fn lseek(&self, ino: Ino, handle: Handle, offset: u64, whence: Whence) -> Result<u64> {
        let (node, _) = self.node_of(ino, handle)?;
        let state = node.state.read();
        need_file(ino, &state)?;
        let size = state.inode.size;
        if offset >= size {
            return Err(FsError::PastTheEnd { ino, offset });
        }
        let dirty = self.cache.dirty_ranges(ino, offset, size);
        let visible = size.min(node.visible_to.load(Ordering::Acquire));
        let mut at = offset;
        loop {
            let stored = match state.inode.inline && at < visible.min(SECTOR) {
                true => Some((0, visible.min(SECTOR))),
                false => self.next_written(ino, at, visible)?,
            };
            let first = dirty.partition_point(|range| range_end(*range).1 <= at);
            let waiting = dirty.get(first).map(|range| range_end(*range));
            let next = [stored, waiting].into_iter().flatten().min();
            match (whence, next) {
                (Whence::Data, Some((start, _))) if start.max(at) < size => return Ok(start.max(at)),
                (Whence::Data, _) => return Err(FsError::PastTheEnd { ino, offset }),
                (Whence::Hole, Some((start, end))) if start <= at && end < size => at = end,
                (Whence::Hole, Some((start, _))) if start <= at => return Ok(size),
                (Whence::Hole, _) => return Ok(at),
            }
        }
    }

    /// The first written range that ends behind `at`, as start and end, as far as one look reaches.
    fn next_written(&self, ino: Ino, at: u64, limit: u64) -> Result<Option<(u64, u64)>> {
        let mut from = at;
        while from < limit {
            let found = segments(&self.store, ino, from, limit, SEEK_SEGMENTS)?;
            let mut written = found.iter().skip_while(|segment| segment.extent.is_none());
            if let Some(first) = written.next() {
                let end = written.fold((first.end(), true), |(end, joined), next| {
                    let joined = joined && next.start == end && next.extent.is_some();
                    (if joined { next.end() } else { end }, joined)
                });
                return Ok(Some((first.start, end.0.min(limit))));
            }
            let Some(last) = found.last() else { break };
            from = last.end();
        }
        Ok(None)
    }
}

fn range_end((offset, len): (u64, u64)) -> (u64, u64) {
    (offset, offset.saturating_add(len))
}
