//! A checkpoint's work on the trees: the frozen layer of changes merged into them, level by level.
//!
//! The leaves that changes fall into are read and written anew, and of the level above the changes are then
//! "this child is replaced by these": the same again, until one node is left. Nothing is changed in place, and
//! the cost is that of the changed leaves and the paths to them. All tables go up together, so that the members
//! are synced once for each level.

mod level;
mod writer;

use super::error::Result;
use super::node::encode_pointer;
use super::node_cache::NodeCache;
use super::overlay::Layer;
use super::tables::Table;
use super::tree::{Roots, Tree, TreeRoot};
use crate::member::superblock::MetaPointer;
use level::{Change, merge_level, with_touched};
pub(super) use writer::NodeWriter;

type Key = Box<[u8]>;

/// Nodes to be written anew although nothing in them changed, each by its first key.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// By table and level, in order.
    keys: std::collections::BTreeMap<(Table, u8), Vec<Key>>,
}

impl Touched {
    /// Adds a node. Those of one table and level come in order.
    pub fn add(&mut self, table: Table, level: u8, first: &[u8]) {
        self.keys.entry((table, level)).or_default().push(first.into());
    }

    fn of(&self, table: Table, level: u8) -> &[Key] {
        self.keys.get(&(table, level)).map_or(&[], Vec::as_slice)
    }

    fn concerns(&self, table: Table) -> bool {
        self.keys.range((table, 0)..=(table, u8::MAX)).next().is_some()
    }
}

/// The trees as they are with the changes.
#[derive(Debug)]
pub(super) struct Merged {
    pub roots: Roots,
    /// Nodes that the new roots do not refer to any more.
    pub replaced: Vec<MetaPointer>,
}

/// A table whose tree is being merged.
struct Growing<'a> {
    tree: Tree<'a>,
    /// Changes of the next level to be merged: none in the leaves, whose changes are in the layer.
    changes: Vec<(Key, Option<Vec<u8>>)>,
    done: Option<Option<TreeRoot>>,
}

/// Merges `layer` into the trees. What is written is in `writer` also after an error, for its release.
///
/// # Errors
/// Those of reading nodes and of writing new ones.
pub(super) fn merge(
    nodes: &NodeCache,
    roots: &Roots,
    layer: &Layer,
    touched: &Touched,
    writer: &mut NodeWriter,
) -> Result<Merged> {
    let is_concerned = |table: &Table| !layer[*table as usize].is_empty() || touched.concerns(*table);
    let mut growing: Vec<Growing> = Table::ALL
        .into_iter()
        .filter(is_concerned)
        .map(|table| Growing { tree: Tree::new(nodes, roots, table), changes: Vec::new(), done: None })
        .collect();
    let mut merged = Merged { roots: roots.clone(), replaced: Vec::new() };
    let mut level = 0;
    while growing.iter().any(|table| table.done.is_none()) {
        let mut outcomes = Vec::new();
        for table in growing.iter().filter(|table| table.done.is_none()) {
            outcomes.push(table.merge_level(level, layer, touched, writer)?);
        }
        let pointers = writer.flush()?;
        let unfinished = growing.iter_mut().filter(|table| table.done.is_none());
        for (table, outcome) in unfinished.zip(outcomes) {
            merged.replaced.extend(outcome.replaced);
            let changes = outcome
                .children
                .into_iter()
                .map(|(key, ticket)| (key, ticket.map(|ticket| pointers[ticket].clone())));
            table.take_up(level, changes.collect());
        }
        level += 1;
    }
    for table in growing {
        let root = lower(&table.tree, table.done.flatten(), &mut merged.replaced)?;
        merged.roots.set(table.tree.table, root);
    }
    Ok(merged)
}

impl Growing<'_> {
    fn merge_level(
        &self,
        level: u8,
        layer: &Layer,
        touched: &Touched,
        writer: &mut NodeWriter,
    ) -> Result<level::Outcome> {
        let table = self.tree.table;
        let touched = touched.of(table, level);
        if level == 0 {
            let changes = layer[table as usize].iter();
            let changes = changes.map(|(key, value)| (&**key, Change::to(value.as_deref())));
            merge_level(&self.tree, level, with_touched(changes, touched), writer)
        } else {
            let changes = self.changes.iter();
            let changes = changes.map(|(key, value)| (&**key, Change::to(value.as_deref())));
            merge_level(&self.tree, level, with_touched(changes, touched), writer)
        }
    }

    /// Takes up what a level gave: changes for the next, or the root.
    fn take_up(&mut self, level: u8, children: Vec<(Key, Option<super::node::Pointer>)>) {
        let old = self.tree.root;
        if old.is_some_and(|root| level < root.level) {
            self.changes = children
                .into_iter()
                .map(|(key, pointer)| (key, pointer.as_ref().map(encode_pointer)))
                .collect();
            return;
        }
        // Nothing was above this level: what is here is all there is.
        if children.is_empty() && old.is_some_and(|root| level == root.level) {
            self.done = Some(old.cloned());
            return;
        }
        let mut all: Vec<_> =
            children.into_iter().filter_map(|(key, pointer)| Some((key, pointer?))).collect();
        if all.len() > 1 {
            let changes = all.into_iter().map(|(key, pointer)| (key, Some(encode_pointer(&pointer))));
            self.changes = changes.collect();
        } else {
            self.done = Some(all.pop().map(|(_, node)| TreeRoot { level, node }));
        }
    }
}

/// A root with one child is not needed: the child becomes the root.
fn lower(
    tree: &Tree,
    mut root: Option<TreeRoot>,
    replaced: &mut Vec<MetaPointer>,
) -> Result<Option<TreeRoot>> {
    while let Some(TreeRoot { level: 1.., .. }) = &root {
        let own = Tree { root: root.as_ref(), ..*tree };
        let Some(child) = own.only_child()? else { break };
        replaced.extend(root.into_iter().flat_map(|root| root.node));
        root = Some(child);
    }
    Ok(root)
}
