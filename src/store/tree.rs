//! Reading the trees: one for each table, copy-on-write, as the root block of a checkpoint has them.
//!
//! A set of roots never changes, and nothing that it refers to is given up while somebody holds it: whoever has
//! it reads without any lock.

use super::error::{Result, StoreError};
use super::node::{Expected, Node, Pointer};
use super::node_cache::{Fetched, Heat, NodeCache};
use super::tables::Table;
use crate::sync::Arc;

/// The root of one table's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeRoot {
    /// Its level: 0 when the whole table is one leaf.
    pub level: u8,
    /// Where it is.
    pub node: Pointer,
}

/// The roots of all tables; none for a table that is empty.
#[derive(Debug, Default, Clone)]
pub(super) struct Roots([Option<TreeRoot>; Table::ALL.len()]);

impl Roots {
    /// The root of a table.
    pub fn get(&self, table: Table) -> Option<&TreeRoot> {
        self.0[table as usize].as_ref()
    }

    /// Sets the root of a table.
    pub fn set(&mut self, table: Table, root: Option<TreeRoot>) {
        self.0[table as usize] = root;
    }
}

/// One table of one set of roots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree<'a> {
    pub nodes: &'a NodeCache,
    pub table: Table,
    pub root: Option<&'a TreeRoot>,
}

/// A node on the way down, and where its right neighbour begins.
#[derive(Debug)]
pub(super) struct Place {
    pub node: Arc<Node>,
    pub pointer: Pointer,
    /// It was in memory already.
    pub was_cached: bool,
    next: Option<Entry>,
}

impl Place {
    /// First key of the next node of the same level; none for the last.
    pub fn upper(&self) -> Option<&[u8]> {
        self.next.as_ref().map(Entry::key)
    }
}

/// An entry of a node.
#[derive(Debug)]
pub(super) struct Entry {
    node: Arc<Node>,
    index: usize,
}

impl Entry {
    pub fn key(&self) -> &[u8] {
        self.node.key(self.index)
    }

    pub fn value(&self) -> &[u8] {
        self.node.value(self.index)
    }
}

impl<'a> Tree<'a> {
    /// The tree of a table.
    pub fn new(nodes: &'a NodeCache, roots: &'a Roots, table: Table) -> Self {
        Self { nodes, table, root: roots.get(table) }
    }

    /// The entry with this key.
    pub fn find(&self, key: &[u8]) -> Result<Option<Entry>> {
        let place = self.node_at(0, key, Heat::Warm)?;
        Ok(place.and_then(|place| place.node.find(key).map(|index| Entry { node: place.node, index })))
    }

    /// The last entry below `key`, or (`inclusive`) at it or below.
    pub fn last_below(&self, key: &[u8], inclusive: bool) -> Result<Option<Entry>> {
        let place = self.descend(0, Heat::Warm, |node| node.count_below(key, inclusive).checked_sub(1))?;
        let Some(Place { node, .. }) = place else { return Ok(None) };
        let index = node.count_below(key, inclusive).checked_sub(1);
        Ok(index.map(|index| Entry { node, index }))
    }

    /// Hands entries in `[from, to)` to `visit`, in order, until it says false.
    pub fn visit(&self, from: &[u8], to: &[u8], mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut next = self.node_at(0, from, Heat::Warm)?;
        while let Some(place) = next {
            let node = &place.node;
            for index in node.count_below(from, false)..node.len() {
                if node.key(index) >= to || !visit(node.key(index), node.value(index)) {
                    return Ok(());
                }
            }
            next = match place.upper().filter(|upper| *upper < to) {
                Some(upper) => self.node_at(0, upper, Heat::Cold)?,
                None => None,
            };
        }
        Ok(())
    }

    /// The node of a level whose range holds `key`; the first one for keys before it. None when the tree is empty
    /// or lower than that.
    pub fn node_at(&self, level: u8, key: &[u8], heat: Heat) -> Result<Option<Place>> {
        self.descend(level, heat, |node| Some(node.count_below(key, true).saturating_sub(1)))
    }

    /// The last node of a level whose first key is below `key`.
    pub fn node_before(&self, level: u8, key: &[u8], heat: Heat) -> Result<Option<Place>> {
        let place = self.descend(level, heat, |node| node.count_below(key, false).checked_sub(1))?;
        // A root has nobody before it that could be picked.
        Ok(place.filter(|place| place.node.key(0) < key))
    }

    /// The only child of a root that has but one.
    pub fn only_child(&self) -> Result<Option<TreeRoot>> {
        let Some(root) = self.root.filter(|root| root.level > 0) else { return Ok(None) };
        let expected = Expected { table: self.table, level: root.level, first: None };
        let Fetched { node, .. } = self.nodes.read(&root.node, &expected, Heat::Warm)?;
        if node.len() > 1 {
            return Ok(None);
        }
        Ok(Some(TreeRoot { level: root.level - 1, node: node.child(0)? }))
    }

    /// Goes down to `level` by the children that `pick` names; none where it names none. `heat` is for the node
    /// that is looked for, if it is a leaf.
    fn descend(&self, level: u8, heat: Heat, pick: impl Fn(&Node) -> Option<usize>) -> Result<Option<Place>> {
        let Some(root) = self.root.filter(|root| root.level >= level) else { return Ok(None) };
        let heat_of = |level| if level == 0 { heat } else { Heat::Warm };
        let expected = Expected { table: self.table, level: root.level, first: None };
        let mut found = self.nodes.read(&root.node, &expected, heat_of(root.level))?;
        let mut pointer = root.node.clone();
        let mut next: Option<Entry> = None;
        for level in (level..root.level).rev() {
            let Some(index) = pick(&found.node) else { return Ok(None) };
            let parent = found.node;
            pointer = parent.child(index)?;
            if index + 1 < parent.len() {
                next = Some(Entry { node: Arc::clone(&parent), index: index + 1 });
            }
            let expected = Expected { table: self.table, level, first: Some(parent.key(index)) };
            found = self.nodes.read(&pointer, &expected, heat_of(level))?;
            if next.as_ref().is_some_and(|next| found.node.last_key() >= next.key()) {
                let what = format!("a node of {:?} at level {level} overlaps the next", self.table);
                return Err(StoreError::Damaged { what });
            }
        }
        Ok(Some(Place { node: found.node, pointer, was_cached: found.was_cached, next }))
    }
}
