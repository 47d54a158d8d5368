//! copy_file_range: whole sectors are shared, the rest goes through the cache.
//!
//! Where source and target lie alike within their sectors and both files are kept the same way, the
//! target's map comes to refer to the source's extents: nothing is read or written but metadata. A long
//! range takes several transactions; after a crash between two the copy is done in part, as it may be.

use super::change::Change;
use super::data::need_file;
use super::error::{FsError, Result};
use super::extents::segments;
use super::inline::emit_row;
use super::locks::Locked;
use super::map::{MapEdit, Segment};
use super::node::Node;
use super::{Fs, Handle};
use crate::limits::FILE_MAX_BYTES;
use crate::member::superblock::Seq;
use crate::store::tables::{Ino, Inode, Table, ino_key};
use crate::sync::Arc;
use crate::units::{SECTOR, round_down};

/// Most that one call copies through the cache, and in one piece of that.
const COPY_MAX_BYTES: u64 = 16 << 20;
const COPY_STEP_BYTES: u64 = 1 << 20;
/// Most that one call shares.
const SHARE_MAX_BYTES: u64 = 4 << 30;
/// Segments of the source, and of what they replace, in one transaction: it stays below half of a record,
/// also if each of them changes the record of another set.
const SHARE_SEGMENTS: usize = 512;
const REPLACE_SEGMENTS: usize = 128;
/// How often the source is flushed before its range is copied through the cache instead, because somebody
/// goes on writing there.
const FLUSH_TRIES: u32 = 4;

/// One side of a copy.
type Side = (Ino, Handle, u64);

/// What came of an attempt to share.
enum Shared {
    /// So many bytes are shared now.
    Done(u64),
    /// The source has data in this range that no extent holds yet.
    Dirty,
    /// The files are kept differently, or less than a sector is left.
    Never,
}

impl Fs {
    /// Copies within the pool; returns how many bytes, which may be less than asked: 0 at the end of the
    /// source. Shares what it can.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when the ranges are of one file and overlap.
    pub fn copy_file_range(&self, source: Side, target: Side, len: u64) -> Result<u64> {
        let ((from_ino, _, from), (to_ino, _, to)) = (source, target);
        let overlap = from < to.saturating_add(len) && to < from.saturating_add(len);
        if from_ino == to_ino && overlap && len > 0 {
            return Err(FsError::Invalid { what: "a range can't be copied onto itself" });
        }
        self.may_change()?;
        // A copy within one file may move its end: what is there now counts.
        let size = {
            let (node, _) = self.node_of(from_ino, source.1)?;
            let state = node.state.read();
            need_file(from_ino, &state)?;
            state.inode.size
        };
        let len = len.min(size.saturating_sub(from));
        let mut progress = Progress { alike: from % SECTOR == to % SECTOR, ..Progress::default() };
        while progress.done < len && progress.copied < COPY_MAX_BYTES && progress.shared < SHARE_MAX_BYTES {
            match self.copy_step(source, target, len, &mut progress) {
                Ok(0) => break,
                Ok(n) => progress.done += n,
                Err(error) if progress.done == 0 => return Err(error),
                Err(error) => {
                    log::debug!("copying from inode {from_ino}: {error}");
                    break;
                }
            }
        }
        if progress.shared > 0 {
            let (node, flags) = self.node_of(to_ino, target.1)?;
            self.after_write(&node, flags)?;
        }
        Ok(progress.done)
    }

    fn copy_step(&self, source: Side, target: Side, len: u64, progress: &mut Progress) -> Result<u64> {
        let (from, to) = (source.2 + progress.done, target.2 + progress.done);
        let left = len - progress.done;
        // What lies in a row of the table of small files is in no extent.
        let in_row = from < SECTOR && self.node_of(source.0, source.1)?.0.state.read().inode.inline;
        let aligned = progress.alike && from.is_multiple_of(SECTOR) && !in_row;
        if aligned && left >= SECTOR {
            match self.share((source.0, source.1, from), (target.0, target.1, to), left)? {
                Some(n) => {
                    progress.shared += n;
                    return Ok(n);
                }
                None => progress.alike = false,
            }
        }
        let want = if progress.alike && !aligned { SECTOR - from % SECTOR } else { COPY_STEP_BYTES };
        let mut buf = vec![0; want.min(left) as usize];
        let got = self.read(source.0, source.1, from, &mut buf)?;
        if got == 0 {
            return Ok(0);
        }
        let n = self.write(target.0, target.1, to, &buf[..got], true)? as u64;
        progress.copied += n;
        Ok(n)
    }

    /// Shares as much of a range as one transaction takes. None: this range has to be copied.
    fn share(&self, source: Side, target: Side, len: u64) -> Result<Option<u64>> {
        let (from_node, _) = self.node_of(source.0, source.1)?;
        let (to_node, _) = self.node_of(target.0, target.1)?;
        for _ in 0..FLUSH_TRIES {
            self.await_log_room();
            let once = || self.share_once((&from_node, source.2), (&to_node, target.2), len);
            match self.with_room(once)? {
                Shared::Done(n) => return Ok(Some(n)),
                Shared::Never => return Ok(None),
                Shared::Dirty => self.flush_files(&[source.0])?,
            }
        }
        Ok(None)
    }

    fn share_once(
        &self,
        (source, from): (&Arc<Node>, u64),
        (target, to): (&Arc<Node>, u64),
        len: u64,
    ) -> Result<Shared> {
        let nodes = [source.clone(), target.clone()];
        let mut locked = Locked::new(&nodes);
        for ino in [source.ino, target.ino] {
            need_file(ino, locked.state(ino)?)?;
            let (node, state) = locked.node_mut(ino)?;
            self.commit_replacement(node, state)?;
        }
        let size = locked.state(source.ino)?.inode.size;
        let end = round_down(from.saturating_add(len).min(size), SECTOR);
        if from < SECTOR && locked.state(source.ino)?.inode.inline {
            return Ok(Shared::Never);
        }
        let same = locked.state(source.ino)?.inode.resiliency == locked.state(target.ino)?.inode.resiliency;
        if !same || end <= from {
            return Ok(Shared::Never);
        }
        if end - from > FILE_MAX_BYTES.saturating_sub(to) {
            return Err(FsError::FileTooLarge { end: to.saturating_add(end - from) });
        }
        // Looking at a little is enough to begin; the transaction goes no further than what was looked at.
        let (found, end) = self.segments_to_share(source.ino, from, end)?;
        if !self.cache.dirty_ranges(source.ino, from, end).is_empty() {
            return Ok(Shared::Dirty);
        }
        let n = self.take_over(&mut locked, (source.ino, from), (target.ino, to), found, end - from)?;
        Ok(Shared::Done(n))
    }

    /// Segments of the source from `from` on, and how far they reach.
    fn segments_to_share(&self, ino: Ino, from: u64, end: u64) -> Result<(Vec<Segment>, u64)> {
        Ok(limited(segments(&self.store, ino, from, end, SHARE_SEGMENTS + 1)?, SHARE_SEGMENTS, end))
    }

    /// Makes the target's map refer to what the source's segments do, from `to` on, at most `len` bytes.
    /// Both inodes are locked. Returns the bytes.
    fn take_over(
        &self,
        locked: &mut Locked<'_>,
        (source, from): (Ino, u64),
        (target, to): (Ino, u64),
        found: Vec<Segment>,
        len: u64,
    ) -> Result<u64> {
        let old = segments(&self.store, target, to, to + len, REPLACE_SEGMENTS + 1)?;
        let (old, end) = limited(old, REPLACE_SEGMENTS, to + len);
        let len = end - to;
        let mut edit = MapEdit::new();
        edit.learn(old);
        edit.cut(to, end);
        let mut reserved = 0;
        for part in found.into_iter().filter_map(|segment| segment.part(from, from + len)) {
            reserved += if part.extent.is_none() { part.len } else { 0 };
            edit.insert(Segment { start: part.start - from + to, ..part });
        }
        self.drop_privileges(target, locked.state_mut(target)?)?;
        self.hold(locked.state_mut(target)?, reserved)?;
        let outcome = self.commit_take_over(locked, source, target, (to, end), &edit);
        let state = locked.state_mut(target)?;
        self.release_held(state, if outcome.is_ok() { edit.reserved_removed() } else { reserved });
        outcome.map(|()| len)
    }

    fn commit_take_over(
        &self,
        locked: &mut Locked<'_>,
        source: Ino,
        target: Ino,
        (to, end): (u64, u64),
        edit: &MapEdit,
    ) -> Result<()> {
        let state = locked.state_mut(target)?;
        let now = self.clock.now();
        let mut change = Change::new();
        let had = state.inode.inline;
        let inline = emit_row(target, had, None, to < SECTOR, &mut change.tx);
        let gone = edit.removed() / SECTOR + u64::from(had && !inline);
        let sectors = (state.inode.sectors + edit.added() / SECTOR).saturating_sub(gone);
        let size = state.inode.size.max(end);
        let inode = Inode { size, sectors, inline, mtime: now, ctime: now, ..state.inode.clone() };
        let persisted_size = state.persisted_size.max(end);
        change.map(target, edit);
        change.own(source);
        change.tx.drop_data(target, to, end, Seq::MAX);
        change.tx.put(Table::Inodes, ino_key(target), &Inode { size: persisted_size, ..inode.clone() });
        self.commit(change)?;
        // Both under the inode's lock, so nobody sees the old pages over the new map; and had the commit
        // failed, they would still be there.
        self.cache.discard(target, to, end);
        state.journaled.retain(|at, _| *at < to || *at >= end);
        state.inode = inode;
        state.persisted_size = persisted_size;
        state.attr_dirty = state.persisted_size != state.inode.size;
        self.settle(target, state);
        Ok(())
    }
}

/// How far a copy has come.
#[derive(Debug, Default)]
struct Progress {
    /// Source and target lie alike within their sectors, and nothing is in the way of sharing.
    alike: bool,
    /// Bytes in all.
    done: u64,
    shared: u64,
    copied: u64,
}

/// At most `most` segments, and where what they tell of a range up to `end` ends.
fn limited(mut found: Vec<Segment>, most: usize, end: u64) -> (Vec<Segment>, u64) {
    let end = found.get(most).map_or(end, |next| next.start.min(end));
    found.truncate(most);
    (found, end)
}
