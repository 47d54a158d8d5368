//! Attributes: reading and changing them, and the space of the pool.

use super::Fs;
use super::attr::{Attr, Caller, PERMISSION_MASK, SetAttr, TYPE_MASK, TimeSet};
use super::error::Result;
use super::locks::Locked;
use super::node::Node;
use super::truncate::mode_after_chown;
use crate::limits::NAME_MAX_BYTES;
use crate::store::Tx;
use crate::store::tables::{Ino, Inode};
use crate::sync::Timestamp;
use crate::units::SECTOR;

/// The space of the pool, as `statfs` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in a block: all counts of blocks are in these.
    pub block_size: u32,
    /// All blocks, for the resiliency of the directory asked.
    pub blocks: u64,
    /// Blocks not in use.
    pub free: u64,
    /// Blocks that ordinary writes can still take.
    pub available: u64,
    /// Inodes that could be. They take room like data, so this is only a bound.
    pub files: u64,
    /// Inodes that could still be made.
    pub files_free: u64,
    /// Bytes in the longest name.
    pub name_max: u32,
}

impl Fs {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// [`super::FsError::NoSuchInode`].
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.attr_of(&*self.nodes.get(&self.store, ino)?))
    }

    pub(super) fn attr_of(&self, node: &Node) -> Attr {
        let state = node.state.read();
        // Data in memory counts as if it were written, but a page that replaces another not twice.
        let stored = if state.replaced_at.is_some() { 0 } else { state.inode.sectors };
        let dirty = self.cache.dirty_bytes_of(node.ino) / SECTOR;
        let content = state.inode.size.div_ceil(SECTOR);
        let sectors = if dirty == 0 { stored } else { stored.max((stored + dirty).min(content)) };
        Attr::new(node.ino, &state.inode, sectors)
    }

    /// Changes attributes, and returns them as they are then.
    ///
    /// # Errors
    /// Those of a truncation; [`super::FsError::ReadOnly`].
    pub fn setattr(&self, ino: Ino, change: &SetAttr, caller: &Caller) -> Result<Attr> {
        self.may_change()?;
        let node = self.nodes.get(&self.store, ino)?;
        if let Some(size) = change.size {
            self.with_room(|| self.truncate_node(&node, size, Some(caller.uid)))?;
        }
        let only_size = SetAttr { size: None, handle: None, ..change.clone() };
        if only_size.mode.is_some()
            || only_size.uid.is_some()
            || only_size.gid.is_some()
            || only_size.atime.is_some()
            || only_size.mtime.is_some()
        {
            let nodes = [node.clone()];
            let mut locked = Locked::new(&nodes);
            let chown = change.uid.is_some() || change.gid.is_some();
            apply(locked.draft(ino)?, change, self.clock.now());
            let mut tx = Tx::new();
            if chown && locked.state(ino)?.is_file() {
                self.drop_capability(ino, &mut tx)?;
            }
            locked.commit(self, tx)?;
        }
        Ok(self.attr_of(&node))
    }

    /// The space of the pool, for the resiliency of this inode.
    ///
    /// # Errors
    /// [`super::FsError::NoSuchInode`].
    pub fn statfs(&self, ino: Ino) -> Result<StatFs> {
        let resiliency = self.nodes.get(&self.store, ino)?.state.read().inode.resiliency;
        let space = self.pool.space(&resiliency);
        Ok(StatFs {
            block_size: SECTOR as u32,
            blocks: space.total / SECTOR,
            free: space.free / SECTOR,
            available: space.available / SECTOR,
            files: space.total / SECTOR,
            files_free: space.free / SECTOR,
            name_max: NAME_MAX_BYTES as u32,
        })
    }

    /// Stores what changed only in memory of these inodes, such as times of last access.
    pub(super) fn write_attributes(&self, inos: &[Ino]) {
        for ino in inos {
            let Some(node) = self.nodes.peek(*ino) else { continue };
            let mut state = node.state.write();
            if !state.attr_dirty || state.gone {
                continue;
            }
            let mut tx = Tx::new();
            self.put_inode(*ino, &mut state, &mut tx);
            match self.store.commit(tx) {
                Ok(_) => state.attr_dirty = state.persisted_size != state.inode.size,
                Err(error) => log::warn!("storing the attributes of inode {ino}: {error}"),
            }
        }
    }
}

/// Changes everything but the size. A given mode wins over what a change of owner takes away.
fn apply(inode: &mut Inode, change: &SetAttr, now: Timestamp) {
    let time = |set: TimeSet| match set {
        TimeSet::Now => now,
        TimeSet::At(at) => at,
    };
    if change.uid.is_some() || change.gid.is_some() {
        inode.mode = mode_after_chown(inode.mode);
    }
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    if let Some(mode) = change.mode {
        inode.mode = inode.mode & TYPE_MASK | mode & PERMISSION_MASK;
    }
    inode.atime = change.atime.map_or(inode.atime, time);
    inode.mtime = change.mtime.map_or(inode.mtime, time);
    inode.ctime = now;
}
