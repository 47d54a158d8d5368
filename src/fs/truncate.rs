//! Cutting files: truncation, the truncation that waits for the new content, and deletion.
//!
//! What is cut must never come back, whatever crashes and whatever is in flight:
//! - whole pages go from the cache first, so that a flush in flight finds them gone and maps nothing;
//! - one transaction sets the size, cuts the map and voids journaled data;
//! - the rest of the page that the new end lies in goes through the journal with that transaction, so
//!   that neither the old page on disk nor one in flight shows behind a later end of the file;
//! - a map too long for one transaction is cut in several under the inode's lock, with an intent (or,
//!   for a deleted file, its orphan record) that makes recovery finish it.

use super::Fs;
use super::attr::without_privileges;
use super::change::Change;
use super::data::need_file;
use super::error::{FsError, Result};
use super::extents::segments;
use super::inline::emit_row;
use super::map::MapEdit;
use super::node::{Node, NodeState};
use super::xattr::CAPABILITY;
use crate::limits::{FILE_MAX_BYTES, FLUSH_BATCH_BYTES};
use crate::member::superblock::Seq;
use crate::store::Tx;
use crate::store::tables::{Ino, Intent, Table, ino_key, xattr_key};
use crate::sync::atomic::Ordering;
use crate::units::{SECTOR, SECTOR_LEN, round_down, round_up};

/// Segments that one transaction cuts at most: also if each of them leaves a part of a full extent
/// behind, the record stays below its limit.
pub(super) const CUT_SEGMENTS: usize = 512;
/// Attributes that one transaction deletes at most.
const CUT_XATTRS: usize = 2000;
/// Tries to make room in the journal for a page before it goes in beyond the budget.
const TAIL_TRIES: u32 = 3;

/// Part of a map that is about to be cut.
pub(super) struct CutBatch {
    pub edit: MapEdit,
    /// There is more to cut after this.
    pub more: bool,
}

impl Fs {
    /// Sets the size of a file. `caller_uid`: who does it, where privileges are to be dropped for that.
    pub(super) fn truncate_node(&self, node: &Node, size: u64, caller_uid: Option<u32>) -> Result<()> {
        if size > FILE_MAX_BYTES {
            return Err(FsError::FileTooLarge { end: size });
        }
        if !size.is_multiple_of(SECTOR) {
            self.make_a_sector_fit()?;
        }
        let mut state = node.state.write();
        need_file(node.ino, &state)?;
        if caller_uid.is_some_and(|uid| uid != 0) {
            self.drop_privileges(node.ino, &mut state)?;
        }
        let content = state.inode.size > 0 || state.replaced_at.is_some();
        if size == 0 && content && self.can_wait(node, &state)? {
            self.hold_back(node, &mut state);
            return Ok(());
        }
        self.commit_replacement(node, &mut state)?;
        self.truncate_now(node, &mut state, size)
    }

    /// Flushes what only the journal has until it takes a sector of data more; it gets that one in any case. Call
    /// without locks.
    pub(super) fn make_a_sector_fit(&self) -> Result<()> {
        for _ in 0..TAIL_TRIES {
            if self.store.data_fits(SECTOR) {
                break;
            }
            self.flush_for_the_journal()?;
        }
        Ok(())
    }

    /// Whether the end of the old content can wait for the new one: when it fits one transaction.
    fn can_wait(&self, node: &Node, state: &NodeState) -> Result<bool> {
        if state.replaced_at.is_some() {
            return Ok(true);
        }
        if node.unlinked.load(Ordering::Acquire) || state.inode.size > FLUSH_BATCH_BYTES * 64 {
            return Ok(false);
        }
        Ok(segments(&self.store, node.ino, 0, u64::MAX, CUT_SEGMENTS + 1)?.len() <= CUT_SEGMENTS)
    }

    /// Truncates to nothing in memory only: until the new content is flushed, or the file closed, a crash
    /// brings back the old one.
    fn hold_back(&self, node: &Node, state: &mut NodeState) {
        self.cache.discard(node.ino, 0, u64::MAX);
        self.settle(node.ino, state);
        state.journaled.clear();
        node.visible_to.store(0, Ordering::Release);
        if state.replaced_at.is_none() {
            state.replaced_at = Some(self.clock.elapsed());
            self.replacing.lock().insert(node.ino);
        }
        let now = self.clock.now();
        state.inode.size = 0;
        (state.inode.mtime, state.inode.ctime) = (now, now);
        state.attr_dirty = true;
    }

    /// Ends the wait of [`Fs::hold_back`]: the old content is cut now, whatever there is of the new one.
    pub(super) fn commit_replacement(&self, node: &Node, state: &mut NodeState) -> Result<()> {
        if state.replaced_at.is_none() {
            return Ok(());
        }
        let mut tx = Tx::new();
        tx.drop_data(node.ino, 0, u64::MAX, Seq::MAX);
        let size = state.inode.size;
        let before = (state.persisted_size, state.replaced_at.take());
        state.persisted_size = 0;
        let outcome = self.cut_map(node.ino, state, 0, u64::MAX, tx);
        if outcome.is_err() {
            (state.persisted_size, state.replaced_at) = before;
            return outcome;
        }
        node.visible_to.store(u64::MAX, Ordering::Release);
        state.attr_dirty = size != 0;
        Ok(())
    }

    fn truncate_now(&self, node: &Node, state: &mut NodeState, size: u64) -> Result<()> {
        let ino = node.ino;
        let old_size = state.inode.size;
        let mut tx = Tx::new();
        // Growing leaves alone what fallocate put behind the end.
        let from = if size <= old_size { round_up(size, SECTOR) } else { u64::MAX };
        if size < old_size {
            tx.drop_data(ino, from, u64::MAX, Seq::MAX);
            self.zero_tail(ino, state, size, &mut tx)?;
            self.cache.discard(ino, from, u64::MAX);
            state.journaled.retain(|at, _| *at < from);
        }
        let now = self.clock.now();
        (state.inode.mtime, state.inode.ctime) = (now, now);
        let persisted_before = state.persisted_size;
        state.inode.size = size;
        state.persisted_size = size;
        let outcome = self.cut_map(ino, state, from, u64::MAX, tx);
        if outcome.is_err() {
            state.persisted_size = persisted_before;
        }
        self.settle(ino, state);
        outcome
    }

    /// Zeros the page that `size` lies in from there on, in the cache and (by `tx`) in the journal.
    fn zero_tail(&self, ino: Ino, state: &mut NodeState, size: u64, tx: &mut Tx) -> Result<()> {
        let (start, end) = (round_down(size, SECTOR), round_up(size, SECTOR));
        if start == end {
            return Ok(());
        }
        let on_disk_end = round_up(state.inode.size, SECTOR);
        self.cache.zero(ino, size, end, on_disk_end)?;
        if !self.cache.dirty_ranges(ino, start, end).is_empty() {
            let mut page = vec![0; SECTOR_LEN];
            self.cache.read(ino, start, &mut page, end)?;
            state.journaled.remove(&start);
            tx.data(ino, start, page);
        }
        self.settle(ino, state);
        Ok(())
    }

    /// Cuts `[from, to)` out of the stored map. The first transaction is `tx`; each carries the inode's
    /// record as the state has it. A cut to the end that takes several is finished by recovery.
    pub(super) fn cut_map(
        &self,
        ino: Ino,
        state: &mut NodeState,
        from: u64,
        to: u64,
        first_tx: Tx,
    ) -> Result<()> {
        let mut change = Change::from(first_tx);
        let intent = to == u64::MAX;
        let mut first = true;
        loop {
            let batch = self.cut_batch(ino, from, to)?;
            let (more, removed) = (batch.more, batch.edit.removed());
            let held = batch.edit.reserved_removed();
            change.map(ino, &batch.edit);
            let tx = &mut change.tx;
            let had = state.inode.inline;
            let inline = emit_row(ino, had, None, first && from == 0, tx);
            let cut = removed / SECTOR + u64::from(had && !inline);
            let sectors = state.inode.sectors.saturating_sub(cut);
            let record = crate::store::tables::Inode { sectors, inline, ..state.record(&state.inode) };
            tx.put(Table::Inodes, ino_key(ino), &record);
            if intent && first && more {
                tx.put(Table::Intents, ino_key(ino), &Intent::CutMap { from });
            } else if intent && !first && !more {
                tx.delete(Table::Intents, ino_key(ino));
            }
            self.commit(std::mem::take(&mut change))?;
            (state.inode.sectors, state.inode.inline) = (sectors, inline);
            self.release_held(state, held);
            if !more {
                state.attr_dirty = state.persisted_size != state.inode.size;
                return Ok(());
            }
            first = false;
        }
    }

    /// The next part of a cut of `[from, to)`.
    pub(super) fn cut_batch(&self, ino: Ino, from: u64, to: u64) -> Result<CutBatch> {
        let mut found = segments(&self.store, ino, from, to, CUT_SEGMENTS + 1)?;
        let more = found.len() > CUT_SEGMENTS;
        let end = match found.get(CUT_SEGMENTS) {
            Some(next) if more => next.start,
            _ => to,
        };
        found.truncate(CUT_SEGMENTS);
        let mut edit = MapEdit::new();
        edit.learn(found);
        edit.cut(from, end);
        Ok(CutBatch { edit, more })
    }

    /// Deletes an inode without a name that nobody uses any more, and everything it has. Its orphan
    /// record stays until all is gone. Large maps are left to [`Fs::tick`].
    pub(super) fn reap(&self, node: &Node) {
        if self.pool.read_only() || self.unmounted.load(Ordering::Acquire) {
            // The next mount finds it among the orphans.
            self.nodes.unclaim(node.ino);
            return;
        }
        let large = segments(&self.store, node.ino, 0, u64::MAX, CUT_SEGMENTS + 1)
            .is_ok_and(|found| found.len() > CUT_SEGMENTS);
        if large && self.options.background {
            self.cache.forget(node.ino);
            self.dead.lock().push(node.ino);
            return;
        }
        self.reap_now(node);
    }

    pub(super) fn reap_now(&self, node: &Node) {
        let mut state = node.state.write();
        match self.delete_all(node.ino, &mut state) {
            Ok(()) => {
                state.gone = true;
                drop(state);
                self.give_back_all(node);
                self.nodes.remove(node.ino);
            }
            Err(error) => {
                log::error!("deleting inode {}: {error}; the next mount tries again", node.ino);
                drop(state);
                self.nodes.unclaim(node.ino);
            }
        }
    }

    fn delete_all(&self, ino: Ino, state: &mut NodeState) -> Result<()> {
        self.cache.forget(ino);
        state.journaled.clear();
        self.settle(ino, state);
        let mut change = Change::new();
        change.tx.drop_data(ino, 0, u64::MAX, Seq::MAX);
        loop {
            let xattrs =
                self.store.scan(Table::Xattrs, &xattr_key(ino, b""), &xattr_key(ino + 1, b""), CUT_XATTRS)?;
            let batch = self.cut_batch(ino, 0, u64::MAX)?;
            let more = batch.more || xattrs.len() == CUT_XATTRS;
            change.map(ino, &batch.edit);
            let tx = &mut change.tx;
            for (key, _) in xattrs {
                tx.delete(Table::Xattrs, key);
            }
            if !more {
                emit_row(ino, state.inode.inline, None, true, tx);
                tx.delete(Table::Intents, ino_key(ino));
                tx.delete(Table::Orphans, ino_key(ino));
                tx.delete(Table::Inodes, ino_key(ino));
                self.commit(change)?;
                return Ok(());
            }
            self.commit(std::mem::take(&mut change))?;
        }
    }

    /// Drops the capabilities that a file would run with, if it has any.
    pub(super) fn drop_capability(&self, ino: Ino, tx: &mut Tx) -> Result<()> {
        let key = xattr_key(ino, CAPABILITY);
        if self.store.get(Table::Xattrs, &key)?.is_some() {
            tx.delete(Table::Xattrs, key);
        }
        Ok(())
    }
}

/// The mode of a file whose owner or group changes.
pub(super) fn mode_after_chown(mode: u32) -> u32 {
    if mode & libc::S_IFMT == libc::S_IFDIR { mode } else { without_privileges(mode) }
}
