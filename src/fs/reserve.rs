//! Room in the pool for data that is in memory only.
//!
//! Each inode's reservation is kept equal to its dirty pages ([`Fs::settle`], called under the inode's
//! exclusive lock after every step that may change them), so that nothing can leak. Space that
//! fallocate promised is held apart, for as long as the pool is mounted.

use std::time::Duration;

use super::Fs;
use super::error::{FsError, Result};
use super::node::{Node, NodeState};
use crate::pool::PoolError;
use crate::store::tables::Ino;
use crate::units::SECTOR;

/// A write that finds no room waits at most so long, and so often, while some is being made.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);
const ROOM_TRIES: u32 = 32;

impl Fs {
    /// Reserves room for `bytes` that are about to become dirty at `[offset, offset + len)`; what
    /// fallocate promised there is used when nothing else is left.
    pub(super) fn reserve(
        &self,
        ino: Ino,
        state: &mut NodeState,
        bytes: u64,
        (offset, len): (u64, u64),
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        match self.pool.reserve(&state.inode.resiliency, bytes) {
            Ok(()) => state.reserved += bytes,
            Err(error @ PoolError::NoSpace { .. }) => {
                let promised = if state.held >= bytes { self.promised(ino, offset, len)? } else { 0 };
                if promised < bytes {
                    log::debug!("inode {ino}: {error}");
                    return Err(FsError::NoSpace);
                }
                state.held -= bytes;
                state.reserved += bytes;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Bytes of reserved space in the stored map of whole sectors around a range.
    fn promised(&self, ino: Ino, offset: u64, len: u64) -> Result<u64> {
        let from = crate::units::round_down(offset, SECTOR);
        let to = offset.saturating_add(len).checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX);
        let found = super::extents::segments(&self.store, ino, from, to, usize::MAX)?;
        let reserved = found.iter().filter(|segment| segment.extent.is_none());
        Ok(reserved.filter_map(|segment| segment.part(from, to)).map(|part| part.len).sum())
    }

    /// Makes the inode's reservation equal to its dirty pages. Where room is missing for pages that are
    /// dirty already (after a recovery, or a page zeroed on a full pool), they go without.
    pub(super) fn settle(&self, ino: Ino, state: &mut NodeState) {
        let wanted = self.cache.dirty_bytes_of(ino);
        if state.reserved > wanted {
            self.pool.release(&state.inode.resiliency, state.reserved - wanted);
            state.reserved = wanted;
        } else if state.reserved < wanted
            && self.pool.reserve(&state.inode.resiliency, wanted - state.reserved).is_ok()
        {
            state.reserved = wanted;
        }
    }

    /// Gives back up to `bytes` of what fallocate held: it was written to, or cut away.
    pub(super) fn release_held(&self, state: &mut NodeState, bytes: u64) {
        let back = bytes.min(state.held);
        if back > 0 {
            self.pool.release(&state.inode.resiliency, back);
            state.held -= back;
        }
    }

    /// Gives back everything of a node that leaves memory.
    pub(super) fn give_back_all(&self, node: &Node) {
        let mut state = node.state.write();
        let all = std::mem::take(&mut state.reserved) + std::mem::take(&mut state.held);
        if all > 0 {
            self.pool.release(&state.inode.resiliency, all);
        }
    }

    /// Tries to gain room: writes out everything, so that reservations become what is really used, lets the
    /// compactor rewrite sets that are partly dead until there is enough to gain, and takes checkpoints, so that
    /// freed sets can be used again. Says whether trying again makes sense.
    pub(super) fn make_room(&self) -> bool {
        let mut last = self.room_made_at.lock();
        let dirty = self.anything_dirty();
        if *last == Some(self.store.last_seq()) && !dirty {
            return false;
        }
        if let Err(error) = self.flush_everything() {
            log::debug!("while making room: {error}");
        }
        let before = self.pool.free_slabs();
        self.compact_for_room();
        log::debug!("making room: {:?}, {}‰ free", self.pool.waiting_room(), self.pool.free_permille());
        self.free_what_is_dead();
        let gained = self.pool.free_slabs() > before;
        // What was gained may be gone again before the caller comes to it: then there may be more.
        *last = if gained { None } else { Some(self.store.last_seq()) };
        gained || dirty
    }

    /// Makes the space of freed sets usable: what one checkpoint frees can be used again after the next.
    pub(super) fn free_what_is_dead(&self) {
        if let Err(error) = self.store.checkpoint().and_then(|()| self.store.publish_again()) {
            log::warn!("while making room: {error}");
        }
    }

    /// [`Fs::may_change`], for a change that adds entries to the tables: refused where that would take the room
    /// that deleting needs. Call without locks.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    pub(super) fn may_grow(&self) -> Result<()> {
        self.may_change()?;
        self.with_room(|| self.need_metadata_room())
    }

    /// Errors where more entries in the tables would take the room that deleting needs.
    pub(super) fn need_metadata_room(&self) -> Result<()> {
        if self.store.may_grow() { Ok(()) } else { Err(FsError::NoSpace) }
    }

    /// Does `attempt`; while it finds no room and some can be made, makes it and tries again, up to a limit.
    pub(super) fn with_room<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let start = self.clock.elapsed();
        for _ in 0..ROOM_TRIES {
            match attempt() {
                Err(error) if error.is_no_space() => {
                    let late = self.clock.elapsed().saturating_sub(start) > ROOM_PATIENCE;
                    if late || !self.make_room() {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
        attempt()
    }
}
