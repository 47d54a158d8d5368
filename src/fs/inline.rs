//! Small files: their content lies in a table, not in an extent.
//!
//! # What must hold
//!
//! * A row of [`Table::Inline`] is the stored content of a file's first sector; where it ends, zeros follow.
//! * Where there is a row, the map has nothing in the first sector. The inode's record says that there is one, and
//!   counts a sector for it.
//! * A row comes by a flush of a file that is small and has no map ([`NodeState::fits_inline`]), in the transaction
//!   that would otherwise map an extent: nothing is written but the journal.
//! * It goes in the transaction that puts something else in its place: a flush that maps the first sector, a cut
//!   of it, the deletion of the file. A file that grows keeps its row until its first sector is written again.
//! * Where fallocate reserves the first sector, the content goes through the journal, and is dirty again.

use super::Fs;
use super::error::{FsError, Result};
use super::flush::Taken;
use super::node::{Node, NodeState};
use crate::cache::Captured;
use crate::limits::INLINE_MAX_BYTES;
use crate::store::Tx;
use crate::store::tables::{Ino, Inode, Table, ino_key};
use crate::units::{SECTOR, SECTOR_LEN};

/// Rows that are committed before the log is looked at again: at most about 1.2 MiB of it.
const ROWS_AT_ONCE: usize = 512;

impl NodeState {
    /// Whether a flush stores the content in a row: a small file that has no map, or none that outlives the flush.
    pub fn fits_inline(&self) -> bool {
        let no_map = self.replaced_at.is_some() || self.inode.sectors == u64::from(self.inode.inline);
        no_map && self.is_file() && self.inode.size <= INLINE_MAX_BYTES
    }

    /// What was captured, as a row; none where it has to become an extent.
    pub fn row_of(&self, captured: &Captured) -> Option<Vec<u8>> {
        match &captured.runs[..] {
            [run] if run.offset == 0 && run.pages.len() == 1 && self.fits_inline() => {
                Some(run.pages[0][..self.inode.size as usize].to_vec())
            }
            _ => None,
        }
    }
}

/// Puts what becomes of a file's row into a transaction: `new` if there is some; otherwise it goes if something
/// else `covers` the first sector. `had`: there is one now. Says whether there is one then.
pub(super) fn emit_row(ino: Ino, had: bool, new: Option<Vec<u8>>, covers: bool, tx: &mut Tx) -> bool {
    match new {
        Some(content) => {
            tx.put_raw(Table::Inline, ino_key(ino), content);
            true
        }
        None if had && covers => {
            tx.delete(Table::Inline, ino_key(ino));
            false
        }
        None => had,
    }
}

impl Fs {
    /// Fills the first sector of a file that has nothing there in its map; `sector` is zeros.
    pub(super) fn load_row(&self, ino: Ino, sector: &mut [u8]) -> Result<()> {
        let Some(row) = self.store.get(Table::Inline, &ino_key(ino))? else { return Ok(()) };
        let target =
            sector.get_mut(..row.len()).ok_or(FsError::Damaged { ino, what: "its inline content" })?;
        target.copy_from_slice(&row);
        Ok(())
    }

    /// Commits captured small files, many with each transaction.
    pub(super) fn commit_rows(&self, mut small: Vec<Taken>) -> Result<()> {
        while !small.is_empty() {
            self.ease_log();
            let rest = small.split_off(small.len().min(ROWS_AT_ONCE));
            let files = small.into_iter().map(|taken| (taken, Vec::new())).collect();
            if let Err(error) = self.commit_flush(files) {
                self.abandon_all(rest);
                return Err(error);
            }
            small = rest;
        }
        Ok(())
    }

    /// Takes the content out of the table, so that the first sector can be reserved: it is in the journal, and dirty.
    pub(super) fn move_row_to_journal(&self, node: &Node, state: &mut NodeState) -> Result<()> {
        let ino = node.ino;
        let bytes = self.cache.dirty_new_pages(ino, 0, SECTOR) * SECTOR;
        self.reserve(ino, state, bytes, (0, SECTOR))?;
        let mut sector = vec![0; SECTOR_LEN];
        let read = self.cache.read(ino, 0, &mut sector, SECTOR);
        let written = read.and_then(|()| self.cache.write(ino, 0, &sector, SECTOR));
        self.settle(ino, state);
        written?;
        // What is behind the stored size comes with the record that has a larger one.
        sector[state.persisted_size.min(SECTOR) as usize..].fill(0);
        let mut tx = Tx::new();
        tx.data(ino, 0, sector);
        tx.delete(Table::Inline, ino_key(ino));
        let sectors = state.inode.sectors.saturating_sub(1);
        let inode = Inode { inline: false, sectors, ..state.inode.clone() };
        tx.put(Table::Inodes, ino_key(ino), &state.record(&inode));
        self.store.commit(tx)?;
        state.inode = inode;
        state.journaled.remove(&0);
        Ok(())
    }
}
