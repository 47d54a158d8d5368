//! A walk over all nodes of all trees, a bounded number at a time, for whoever reads them from every copy.

use serde::{Deserialize, Serialize};

use super::Store;
use super::error::Result;
use super::node_cache::Heat;
use super::tables::Table;
use super::tree::Roots;
use crate::member::superblock::MetaPointer;

/// Where a walk stands. It stays good while checkpoints go on: nodes that were there when the walk began and are there
/// when it ends are visited, those that came meanwhile perhaps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCursor {
    /// Index in [`Table::ALL`]; tables before it are done.
    table: u32,
    /// Children of nodes of this level are next; none: the root is.
    level: Option<u8>,
    /// Nodes whose range ends at this key, or before it, are done.
    key: Vec<u8>,
}

/// Some nodes of a walk.
#[derive(Debug, Default)]
pub struct SomeNodes {
    /// Where they are.
    pub pointers: Vec<MetaPointer>,
    /// Where to go on; none at the end.
    pub next: Option<NodeCursor>,
}

impl Store {
    /// Where the nodes are that come next, about `limit` of them. Inner nodes are read on the way, from one copy each.
    /// What a pointer leads to may be given up by a checkpoint meanwhile; its set is then gone, or still has it.
    ///
    /// # Errors
    /// Those of reading inner nodes.
    pub fn nodes_from(&self, cursor: NodeCursor, limit: usize) -> Result<SomeNodes> {
        let roots = self.overlay.read().roots();
        let mut pointers = Vec::new();
        let mut cursor = cursor;
        if cursor == NodeCursor::default() {
            pointers.extend(self.pool.root().map(|root| root.block).unwrap_or_default());
        }
        while pointers.len() < limit {
            let Some(table) = Table::ALL.get(cursor.table as usize).copied() else {
                return Ok(SomeNodes { pointers, next: None });
            };
            cursor = self.visit(&roots, table, cursor, &mut pointers)?;
        }
        Ok(SomeNodes { pointers, next: Some(cursor) })
    }

    /// The root of a table, or the children of one node.
    fn visit(
        &self,
        roots: &Roots,
        table: Table,
        cursor: NodeCursor,
        pointers: &mut Vec<MetaPointer>,
    ) -> Result<NodeCursor> {
        let next_table = NodeCursor { table: cursor.table + 1, ..NodeCursor::default() };
        let Some(root) = roots.get(table) else { return Ok(next_table) };
        let Some(level) = cursor.level else {
            pointers.extend_from_slice(&root.node);
            return Ok(NodeCursor { level: Some(root.level), ..cursor });
        };
        // The tree may have become lower since.
        let level = level.min(root.level);
        if level == 0 {
            return Ok(next_table);
        }
        let below = NodeCursor { level: Some(level - 1), key: Vec::new(), ..cursor };
        let Some(place) = self.tree(roots, table).node_at(level, &cursor.key, Heat::Cold)? else {
            return Ok(below);
        };
        for index in 0..place.node.len() {
            pointers.extend(place.node.child(index)?);
        }
        match place.upper() {
            Some(upper) => Ok(NodeCursor { level: Some(level), key: upper.to_vec(), ..cursor }),
            None => Ok(below),
        }
    }
}
