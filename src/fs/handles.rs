//! Open files and directories.

use std::collections::HashMap;

use super::error::{FsError, Result};
use super::node::Node;
use super::node_table::Left;
use super::{Fs, Handle};
use crate::store::tables::Ino;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, RwLock};

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end. The kernel says where that is, so this changes nothing here.
    pub append: bool,
    /// Cut to nothing first.
    pub truncate: bool,
    /// Bypass the kernel's page cache; a matter of the border alone.
    pub direct: bool,
    /// O_SYNC: a write is durable, with its attributes, before it is answered.
    pub sync: bool,
    /// O_DSYNC: a write's data is durable before it is answered.
    pub dsync: bool,
}

impl OpenFlags {
    /// For reading only.
    pub const READ: Self = Self {
        read: true,
        write: false,
        append: false,
        truncate: false,
        direct: false,
        sync: false,
        dsync: false,
    };
    /// For reading and writing.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };
}

/// One open file or directory.
#[derive(Debug)]
pub(super) struct Open {
    /// What is open. Keeps the node in memory.
    pub node: Arc<Node>,
    /// How.
    pub flags: OpenFlags,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Handles {
    next: AtomicU64,
    open: RwLock<HashMap<Handle, Arc<Open>>>,
}

impl Handles {
    /// None open.
    pub fn new() -> Self {
        Self { next: AtomicU64::new(1), open: RwLock::new(HashMap::new()) }
    }

    /// Remembers an open file. The node's opens are counted by the caller.
    pub fn insert(&self, node: Arc<Node>, flags: OpenFlags) -> Handle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        if flags.write {
            node.writers.fetch_add(1, Ordering::AcqRel);
        }
        self.open.write().insert(handle, Arc::new(Open { node, flags }));
        handle
    }

    /// The open file.
    pub fn get(&self, handle: Handle) -> Option<Arc<Open>> {
        self.open.read().get(&handle).cloned()
    }

    /// Forgets it.
    pub fn remove(&self, handle: Handle) -> Result<Ino> {
        let open = self.open.write().remove(&handle).ok_or(FsError::BadHandle { handle })?;
        if open.flags.write {
            open.node.writers.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(open.node.ino)
    }
}

impl Fs {
    /// Opens a regular file. `truncate` cuts it to nothing.
    ///
    /// # Errors
    /// [`FsError::IsADirectory`], [`FsError::NotAFile`]; those of a truncation.
    pub fn open(&self, ino: Ino, flags: OpenFlags) -> Result<Handle> {
        if flags.write || flags.truncate {
            self.may_change()?;
        }
        let node = self.nodes.get_counted(&self.store, ino, 0, 1)?;
        match self.open_counted(node, flags) {
            Ok(handle) => Ok(handle),
            Err(error) => {
                self.step_back(ino, 0, 1);
                Err(error)
            }
        }
    }

    fn open_counted(&self, node: Arc<Node>, flags: OpenFlags) -> Result<Handle> {
        {
            let state = node.state.read();
            if state.is_dir() {
                return Err(FsError::IsADirectory { ino: node.ino });
            }
            if !state.is_file() {
                return Err(FsError::NotAFile { ino: node.ino });
            }
        }
        let handle = self.handles.insert(node.clone(), flags);
        if flags.truncate
            && let Err(error) = self.truncate_node(&node, 0, None)
        {
            // The caller takes back the count of opens.
            let _ = self.handles.remove(handle);
            return Err(error);
        }
        Ok(handle)
    }

    /// The close of one descriptor. There is nothing to do: errors of writing show at fsync.
    ///
    /// # Errors
    /// [`FsError::BadHandle`].
    pub fn flush(&self, _ino: Ino, handle: Handle) -> Result<()> {
        self.handles.get(handle).map(|_| ()).ok_or(FsError::BadHandle { handle })
    }

    /// The last close of an open file. One that was truncated and written anew is flushed with the next tick.
    ///
    /// # Errors
    /// [`FsError::BadHandle`].
    pub fn release(&self, _ino: Ino, handle: Handle) -> Result<()> {
        let ino = self.handles.remove(handle)?;
        self.step_back(ino, 0, 1);
        Ok(())
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`].
    pub fn opendir(&self, ino: Ino) -> Result<Handle> {
        let node = self.nodes.get_counted(&self.store, ino, 0, 1)?;
        if !node.state.read().is_dir() {
            drop(node);
            self.step_back(ino, 0, 1);
            return Err(FsError::NotADirectory { ino });
        }
        Ok(self.handles.insert(node, OpenFlags::READ))
    }

    /// Closes a directory.
    ///
    /// # Errors
    /// [`FsError::BadHandle`].
    pub fn releasedir(&self, _ino: Ino, handle: Handle) -> Result<()> {
        let ino = self.handles.remove(handle)?;
        self.step_back(ino, 0, 1);
        Ok(())
    }

    /// The kernel forgets `n` lookups of the inode.
    pub fn forget(&self, ino: Ino, n: u64) {
        self.step_back(ino, n, 0);
    }

    /// Counts down; drops or deletes an inode that nobody uses any more.
    pub(super) fn step_back(&self, ino: Ino, lookups: u64, opens: u32) {
        if self.nodes.step_back(ino, lookups, opens) == Left::Nobody {
            self.retire(ino);
        }
    }

    /// Drops a node that nobody counts: deletes it if no name leads to it.
    pub(super) fn retire(&self, ino: Ino) {
        if let Some(node) = self.nodes.claim_dead(ino) {
            self.reap(&node);
        } else {
            self.nodes.evict(ino);
        }
    }
}
