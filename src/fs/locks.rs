//! Locking several inodes at once, and changing their records together.

use std::collections::BTreeMap;

use super::Fs;
use super::change::Change;
use super::error::{FsError, Result};
use super::node::{Node, NodeState};
use crate::member::superblock::Seq;
use crate::store::tables::{Ino, Inode, Table, ino_key};
use crate::sync::{Arc, RwLockWriteGuard};

/// Exclusive locks of several inodes, always taken in the order of their numbers, with drafts of the
/// records that the operation is going to write. Memory changes only once the store has taken them.
pub(super) struct Locked<'a> {
    guards: BTreeMap<Ino, (&'a Node, RwLockWriteGuard<'a, NodeState>)>,
    drafts: BTreeMap<Ino, Inode>,
}

impl<'a> Locked<'a> {
    /// Locks these, each once. The caller holds no inode's lock.
    pub fn new(nodes: &'a [Arc<Node>]) -> Self {
        let mut sorted: Vec<&Arc<Node>> = nodes.iter().collect();
        sorted.sort_by_key(|node| node.ino);
        sorted.dedup_by_key(|node| node.ino);
        let guards = sorted.into_iter().map(|node| (node.ino, (&**node, node.state.write()))).collect();
        Self { guards, drafts: BTreeMap::new() }
    }

    /// The state of one of them.
    pub fn state(&self, ino: Ino) -> Result<&NodeState> {
        self.guards.get(&ino).map(|(_, state)| &**state).ok_or(FsError::NoSuchInode { ino })
    }

    /// The same, to change.
    pub fn state_mut(&mut self, ino: Ino) -> Result<&mut NodeState> {
        self.guards.get_mut(&ino).map(|(_, state)| &mut **state).ok_or(FsError::NoSuchInode { ino })
    }

    /// The node and its state, to change.
    pub fn node_mut(&mut self, ino: Ino) -> Result<(&'a Node, &mut NodeState)> {
        let (node, state) = self.guards.get_mut(&ino).ok_or(FsError::NoSuchInode { ino })?;
        Ok((*node, &mut **state))
    }

    /// The node of one of them.
    pub fn node(&self, ino: Ino) -> Result<&'a Node> {
        self.guards.get(&ino).map(|(node, _)| *node).ok_or(FsError::NoSuchInode { ino })
    }

    /// The record of one of them as the operation will leave it.
    pub fn draft(&mut self, ino: Ino) -> Result<&mut Inode> {
        let (_, state) = self.guards.get(&ino).ok_or(FsError::NoSuchInode { ino })?;
        Ok(self.drafts.entry(ino).or_insert_with(|| state.inode.clone()))
    }

    /// Writes all drafts with `change`, and makes them the truth.
    pub fn commit(&mut self, fs: &Fs, change: impl Into<Change>) -> Result<Seq> {
        let mut change = change.into();
        for (ino, draft) in &self.drafts {
            let (_, state) = self.guards.get(ino).ok_or(FsError::NoSuchInode { ino: *ino })?;
            change.tx.put(Table::Inodes, ino_key(*ino), &state.record(draft));
        }
        let seq = fs.commit(change)?;
        for (ino, draft) in std::mem::take(&mut self.drafts) {
            if let Some((_, state)) = self.guards.get_mut(&ino) {
                state.inode = draft;
                state.attr_dirty = state.persisted_size != state.inode.size;
            }
        }
        Ok(seq)
    }
}
