//! Checking the trees: every node is where its parent says, and the sets' live bytes are what the roots reach.

use super::Store;
use super::error::{Result, StoreError};
use super::node::Expected;
use super::node_cache::Heat;
use super::root_block::LiveBytes;
use super::tables::Table;
use super::tree::{Roots, TreeRoot};

/// What the trees are made of.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TreeCounts {
    /// Nodes, inner ones included.
    pub nodes: u64,
    /// Entries of leaves.
    pub entries: u64,
    /// Levels of the highest tree.
    pub levels: u8,
    /// Bytes of all nodes as they are encoded.
    pub encoded_bytes: u64,
}

impl Store {
    /// Reads every node that the last checkpoint refers to, and compares what they take with what the records of
    /// the metadata sets say. No checkpoint is taken meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] says what is wrong; those of reading.
    pub fn check_trees(&self) -> Result<TreeCounts> {
        let last = self.last_checkpoint.lock();
        let roots = self.overlay.read().roots();
        let mut walk = Walk { store: self, counts: TreeCounts::default(), live: LiveBytes::default() };
        walk.live.add(&last.block);
        walk.all(&roots)?;
        if walk.live != last.live {
            return Err(damaged(format!("the roots reach {:?}, the records say {:?}", walk.live, last.live)));
        }
        let counted = LiveBytes::of(&self.pool.metadata_sets());
        if last.retired.is_empty() && !self.pool.read_only() && walk.live != counted {
            return Err(damaged(format!("the roots reach {:?}, counted are {counted:?}", walk.live)));
        }
        Ok(walk.counts)
    }
}

fn damaged(what: String) -> StoreError {
    StoreError::Damaged { what }
}

struct Walk<'a> {
    store: &'a Store,
    counts: TreeCounts,
    live: LiveBytes,
}

impl Walk<'_> {
    fn all(&mut self, roots: &Roots) -> Result<()> {
        for table in Table::ALL {
            if let Some(root) = roots.get(table) {
                self.visit(table, root, None, None)?;
            }
        }
        Ok(())
    }

    /// A node, and all below it. Its keys are from `first` on and below `upper`.
    fn visit(
        &mut self,
        table: Table,
        at: &TreeRoot,
        first: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let expected = Expected { table, level: at.level, first };
        let node = self.store.nodes.read(&at.node, &expected, Heat::Cold)?.node;
        if upper.is_some_and(|upper| node.last_key() >= upper) {
            return Err(damaged(format!("a node of {table:?} at level {} overlaps the next", at.level)));
        }
        self.live.add(&at.node);
        self.counts.nodes += 1;
        self.counts.encoded_bytes += node.encoded_bytes() as u64;
        self.counts.levels = self.counts.levels.max(at.level + 1);
        if at.level == 0 {
            self.counts.entries += node.len() as u64;
            return Ok(());
        }
        for index in 0..node.len() {
            let child = TreeRoot { level: at.level - 1, node: node.child(index)? };
            let next = (index + 1 < node.len()).then(|| node.key(index + 1));
            self.visit(table, &child, Some(node.key(index)), next.or(upper))?;
        }
        Ok(())
    }
}
