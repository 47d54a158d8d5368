//! Reading and writing file data.

use std::time::Duration;

use super::attr::without_privileges;
use super::error::{FsError, Result};
use super::handles::OpenFlags;
use super::node::{Node, NodeState};
use super::{Fs, Handle, WriteCache};
use crate::cache::Admission;
use crate::limits::{FILE_MAX_BYTES, FLUSH_BATCH_BYTES};
use crate::store::Tx;
use crate::store::tables::{Ino, Inode};
use crate::sync::{Arc, Timestamp};
use crate::units::{SECTOR, round_up};

/// A writer waits at most so long for room in the cache.
const CACHE_PATIENCE: Duration = Duration::from_secs(30);
/// Relatime: a read is noted at least once a day.
const ATIME_STALE_SECONDS: i64 = 24 * 60 * 60;

/// What became of a write that must not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// So many bytes were taken.
    Done(usize),
    /// Nothing was done: it needs room or a disk. Call [`Fs::write`] where waiting does no harm.
    MustWait,
}

impl Fs {
    /// The node of an open file, or of an inode.
    pub(super) fn node_of(&self, ino: Ino, handle: Handle) -> Result<(Arc<Node>, OpenFlags)> {
        match self.handles.get(handle) {
            Some(open) if open.node.ino == ino => Ok((open.node.clone(), open.flags)),
            _ => Ok((self.nodes.get(&self.store, ino)?, OpenFlags::READ_WRITE)),
        }
    }

    /// Reads at `offset` up to the end of the file; returns the number of bytes.
    ///
    /// # Errors
    /// [`FsError::Cache`] where sectors can't be read or rebuilt.
    pub fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (node, _) = self.node_of(ino, handle)?;
        let stale = {
            let state = node.state.read();
            need_file(ino, &state)?;
            let size = state.inode.size;
            let Some(left) = size.checked_sub(offset).filter(|left| *left > 0) else { return Ok(0) };
            let n = left.min(buf.len() as u64) as usize;
            self.cache.read(ino, offset, &mut buf[..n], size)?;
            if !self.notes_reads() || !stale_atime(&state.inode, self.clock.now()) {
                return Ok(n);
            }
            n
        };
        let mut state = node.state.write();
        state.inode.atime = self.clock.now();
        state.attr_dirty = true;
        Ok(stale)
    }

    /// Whether reads change the time of last access.
    pub(super) fn notes_reads(&self) -> bool {
        !self.options.noatime && !self.pool.read_only()
    }

    /// Writes at `offset`. Waits for room in the cache and in the pool; may take less than all of `data`
    /// when the pool is nearly full. `kill_priv`: drop set-user-id and the like, the writer may not keep
    /// them. A handle opened with O_SYNC or O_DSYNC gets its reply when the data is durable.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when not even a page fits; [`FsError::FileTooLarge`].
    pub fn write(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        kill_priv: bool,
    ) -> Result<usize> {
        self.writable()?;
        let (node, flags) = self.node_of(ino, handle)?;
        self.wait_for_cache(data.len() as u64)?;
        let data = fitting(offset, data)?;
        let mut len = data.len();
        let taken = loop {
            let part = &data[..len];
            match self.with_room(|| self.write_once(&node, offset, part, kill_priv)) {
                Err(error) if error.is_no_space() && len as u64 > SECTOR => len /= 2,
                done => break done?,
            }
        };
        self.after_write(&node, flags)?;
        Ok(taken)
    }

    /// Like [`Fs::write`], but never waits for room or a durable answer.
    ///
    /// # Errors
    /// As [`Fs::write`], but for a lack of room.
    pub fn try_write(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        kill_priv: bool,
    ) -> Result<WriteOutcome> {
        self.writable()?;
        let (node, flags) = self.node_of(ino, handle)?;
        let durable = flags.sync || flags.dsync || self.options.write_cache != WriteCache::Writeback;
        if durable || self.cache.admit(data.len() as u64) != Admission::Go || self.pool.is_stalled() {
            return Ok(WriteOutcome::MustWait);
        }
        match self.write_once(&node, offset, fitting(offset, data)?, kill_priv) {
            Ok(taken) => Ok(WriteOutcome::Done(taken)),
            Err(error) if error.is_no_space() => Ok(WriteOutcome::MustWait),
            Err(error) => Err(error),
        }
    }

    fn wait_for_cache(&self, bytes: u64) -> Result<()> {
        match self.cache.admit(bytes) {
            Admission::Go => {}
            Admission::Slow(pause) if self.options.background => std::thread::sleep(pause),
            Admission::Slow(_) => {}
            Admission::Wait if self.options.background => {
                if !self.cache.wait_for_room(bytes, CACHE_PATIENCE) {
                    // Nothing could be written out for so long; a flush of our own says why.
                    self.flush_everything()?;
                }
            }
            Admission::Wait => self.flush_everything()?,
        }
        Ok(())
    }

    fn write_once(&self, node: &Node, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize> {
        let ino = node.ino;
        let mut state = node.state.write();
        need_file(ino, &state)?;
        if data.is_empty() {
            return Ok(0);
        }
        self.need_metadata_room()?;
        let (len, end) = (data.len() as u64, offset + data.len() as u64);
        if state.replaced_at.is_some() && end > FLUSH_BATCH_BYTES {
            self.commit_replacement(node, &mut state)?;
        }
        let bytes = self.cache.dirty_new_pages(ino, offset, len) * SECTOR;
        self.reserve(ino, &mut state, bytes, (offset, len))?;
        // Partial pages below the old end are completed from disk; the map says where there is nothing.
        let on_disk_end = round_up(state.inode.size.min(FILE_MAX_BYTES), SECTOR);
        let written = self.cache.write(ino, offset, data, on_disk_end);
        self.settle(ino, &mut state);
        written?;
        let now = self.clock.now();
        state.inode.size = state.inode.size.max(end);
        (state.inode.mtime, state.inode.ctime) = (now, now);
        state.attr_dirty = true;
        if kill_priv {
            self.drop_privileges(ino, &mut state)?;
        }
        Ok(data.len())
    }

    /// Takes set-user-id and the like off a file, and the capabilities that it would run with.
    pub(super) fn drop_privileges(&self, ino: Ino, state: &mut NodeState) -> Result<()> {
        let mode = without_privileges(state.inode.mode);
        state.attr_dirty |= mode != state.inode.mode;
        state.inode.mode = mode;
        let mut tx = Tx::new();
        self.drop_capability(ino, &mut tx)?;
        if !tx.is_empty() {
            self.store.commit(tx)?;
        }
        Ok(())
    }

    pub(super) fn after_write(&self, node: &Node, flags: OpenFlags) -> Result<()> {
        let through = self.options.write_cache != WriteCache::Writeback;
        if through || flags.sync || flags.dsync {
            self.sync_node(node, flags.dsync && !flags.sync)?;
        }
        if self.options.write_cache == WriteCache::Off {
            self.cache.drop_clean_of(node.ino);
        }
        Ok(())
    }
}

/// Errors unless the inode is a regular file that is still there.
pub(super) fn need_file(ino: Ino, state: &NodeState) -> Result<()> {
    if state.gone {
        return Err(FsError::NoSuchInode { ino });
    }
    if state.is_dir() {
        return Err(FsError::IsADirectory { ino });
    }
    if state.is_file() { Ok(()) } else { Err(FsError::NotAFile { ino }) }
}

/// The part of `data` at `offset` that a file can hold.
fn fitting(offset: u64, data: &[u8]) -> Result<&[u8]> {
    let room = FILE_MAX_BYTES.saturating_sub(offset);
    if room == 0 && !data.is_empty() {
        return Err(FsError::FileTooLarge { end: offset.saturating_add(data.len() as u64) });
    }
    Ok(&data[..(data.len() as u64).min(room) as usize])
}

/// Relatime: the time of last access is renewed once for each change, and once a day.
fn stale_atime(inode: &Inode, now: Timestamp) -> bool {
    inode.atime <= inode.mtime
        || inode.atime <= inode.ctime
        || now.seconds.saturating_sub(inode.atime.seconds) >= ATIME_STALE_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_cut_at_the_largest_file() {
        assert_eq!(fitting(0, &[1, 2, 3]).expect("fits"), &[1, 2, 3]);
        assert_eq!(fitting(FILE_MAX_BYTES - 2, &[1, 2, 3]).expect("fits"), &[1, 2]);
        assert!(fitting(FILE_MAX_BYTES, &[1]).is_err());
        assert!(fitting(u64::MAX, &[1]).is_err());
    }
}
