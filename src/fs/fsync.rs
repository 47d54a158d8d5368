//! Making things durable.

use super::Fs;
use super::change::Change;
use super::error::{FsError, Result};
use super::flush_commit::TX_BYTES;
use super::inline::emit_row;
use super::node::{Node, NodeState};
use crate::cache::{Page, Run};
use crate::limits::SMALL_FSYNC_BYTES;
use crate::member::superblock::Seq;
use crate::store::tables::{Ino, Inode, ROOT_INO, Table, ino_key};
use crate::store::{StoreError, Tx};
use crate::sync::atomic::Ordering;
use crate::units::{SECTOR, SECTOR_LEN};

/// What putting a file's dirty data into a transaction came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Journaled {
    /// All of it is in; so many pages are new in the journal.
    All(usize),
    /// It is too much for the journal: flush instead.
    TooMuch,
}

/// What a file's stored content takes (see [`Inode`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub sectors: u64,
    pub inline: bool,
}

impl Fs {
    /// Returns when the file's data and attributes (with `datasync`: what it takes to read the data) are
    /// durable, and with them its creation and everything else that was done before.
    ///
    /// # Errors
    /// Those of writing: the data is still in memory, and the next fsync tries again.
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        if self.pool.read_only() {
            return Ok(());
        }
        let node = self.nodes.get(&self.store, ino)?;
        self.sync_node(&node, datasync)
    }

    /// Returns when everything that was done in the directory is durable. Of the root directory (`sync MOUNT`):
    /// everything in the pool, since the kernel tells a FUSE server of no other wish to sync it all.
    ///
    /// # Errors
    /// Those of writing.
    pub fn fsyncdir(&self, ino: Ino) -> Result<()> {
        if ino == ROOT_INO {
            return self.sync_all();
        }
        self.fsync(ino, false)
    }

    /// Writes out everything and returns when it is durable.
    ///
    /// # Errors
    /// Those of writing.
    pub fn sync_all(&self) -> Result<()> {
        if self.pool.read_only() {
            return Ok(());
        }
        self.flush_everything()?;
        self.write_attributes(&self.nodes.all());
        self.store.sync(self.store.last_seq())?;
        Ok(())
    }

    pub(super) fn sync_node(&self, node: &Node, datasync: bool) -> Result<()> {
        self.await_log_room();
        if self.cache.has_dirty(node.ino) && node.state.read().fits_inline() {
            // Its content is a smaller record than its page, and done with.
            self.flush_files(&[node.ino])?;
        }
        if !self.journal_node(node, datasync)? {
            self.flush_files(&[node.ino])?;
            // The flush leaves times that changed without data.
            self.journal_node(node, datasync)?;
        }
        // Not only this file's own records: its name may be in an earlier one.
        self.store.sync(self.store.last_seq())?;
        Ok(())
    }

    /// Commits what is dirty of an inode through the journal. False: it is too much for that.
    fn journal_node(&self, node: &Node, datasync: bool) -> Result<bool> {
        let mut state = node.state.write();
        if state.gone {
            return Ok(true);
        }
        let mut change = Change::new();
        let inode = state.inode.clone();
        match self.add_dirty(node, &state, &mut change.tx)? {
            Journaled::TooMuch => Ok(false),
            Journaled::All(pages) => {
                let attributes = state.attr_dirty && !datasync;
                let size = state.persisted_size != state.inode.size;
                if pages > 0 || attributes || size || state.replaced_at.is_some() {
                    let stored = self.add_replacement(node, &state, &mut change)?;
                    let record = Inode { sectors: stored.sectors, inline: stored.inline, ..inode };
                    change.tx.put(Table::Inodes, ino_key(node.ino), &record);
                    match self.commit(change) {
                        // The log has no room for data now; a stripe has.
                        Err(FsError::Store(StoreError::JournalFull)) if pages > 0 => return Ok(false),
                        outcome => outcome?,
                    };
                    self.journaled(node, &mut state, pages > 0, stored);
                }
                Ok(true)
            }
        }
    }

    /// Puts those dirty pages of a file into `tx` that the journal does not have yet. Of a file that is
    /// being replaced all of them, as the old journaled data is voided. Does not change the state.
    pub(super) fn add_dirty(&self, node: &Node, state: &NodeState, tx: &mut Tx) -> Result<Journaled> {
        let ino = node.ino;
        let Some(runs) = self.cache.peek_dirty(ino, SMALL_FSYNC_BYTES) else { return Ok(Journaled::TooMuch) };
        let fresh = |at: u64, page: &Page| {
            let known = state.journaled.get(&at).is_some_and(|old| std::sync::Arc::ptr_eq(old, page));
            state.replaced_at.is_some() || !known
        };
        let pages: Vec<(u64, Page)> =
            runs.into_iter().flat_map(pages_of).filter(|(at, page)| fresh(*at, page)).collect();
        let bytes = pages.len() as u64 * SECTOR;
        if bytes > 0 && !self.store.data_fits(bytes) || tx.bytes() + bytes > TX_BYTES {
            return Ok(Journaled::TooMuch);
        }
        if state.replaced_at.is_some() {
            tx.drop_data(ino, 0, u64::MAX, Seq::MAX);
        }
        for (start, len) in runs_of(&pages) {
            let mut bytes = Vec::with_capacity(len * SECTOR_LEN);
            for (_, page) in &pages[start..start + len] {
                bytes.extend_from_slice(page.as_slice());
            }
            tx.data(ino, pages[start].0, bytes);
        }
        Ok(Journaled::All(pages.len()))
    }

    /// Puts the end of a replaced file's old content into `change`. Returns what remains.
    pub(super) fn add_replacement(
        &self,
        node: &Node,
        state: &NodeState,
        change: &mut Change,
    ) -> Result<Stored> {
        let Inode { sectors, inline, .. } = state.inode;
        if state.replaced_at.is_none() {
            return Ok(Stored { sectors, inline });
        }
        // `can_wait` saw to it that this is one batch.
        let batch = self.cut_batch(node.ino, 0, u64::MAX)?;
        let removed = batch.edit.removed();
        change.map(node.ino, &batch.edit);
        emit_row(node.ino, inline, None, true, &mut change.tx);
        let sectors = sectors.saturating_sub(removed / SECTOR + u64::from(inline));
        Ok(Stored { sectors, inline: false })
    }

    /// Notes that a transaction with all dirty data of a file was committed.
    pub(super) fn journaled(&self, node: &Node, state: &mut NodeState, any_new: bool, stored: Stored) {
        state.persisted_size = state.inode.size;
        state.attr_dirty = false;
        (state.inode.sectors, state.inode.inline) = (stored.sectors, stored.inline);
        if state.replaced_at.take().is_some() {
            node.visible_to.store(u64::MAX, Ordering::Release);
            // All that fallocate held was cut with the old content.
            self.release_held(state, u64::MAX);
        }
        if any_new {
            let runs = self.cache.peek_dirty(node.ino, SMALL_FSYNC_BYTES).unwrap_or_default();
            state.journaled = runs.into_iter().flat_map(pages_of).collect();
        }
    }
}

/// The pages of a run, each with its offset.
fn pages_of(run: Run) -> impl Iterator<Item = (u64, Page)> {
    run.pages.into_iter().enumerate().map(move |(i, page)| (run.offset + i as u64 * SECTOR, page))
}

/// Runs of neighbouring pages, as index and number.
fn runs_of(pages: &[(u64, Page)]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (index, (at, _)) in pages.iter().enumerate() {
        match runs.last_mut() {
            Some((start, len)) if pages[*start].0 + *len as u64 * SECTOR == *at => *len += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn neighbouring_pages_make_a_run() {
        let page: Page = Arc::new([0; SECTOR_LEN]);
        let pages: Vec<(u64, Page)> = [0, 1, 4, 5, 6, 9].map(|n| (n * SECTOR, page.clone())).to_vec();
        assert_eq!(runs_of(&pages), [(0, 2), (2, 3), (5, 1)]);
    }
}
