//! One level of one tree: nodes that changes fall into are replaced by new ones.
//!
//! Work goes in runs. A run takes one node with all its changes, and goes on with the right neighbour if that is
//! changed too, or (or with the left one, at the tree's end) while what is left is too small for a node. What comes
//! out is cut into nodes: as full as they get at the tree's end, where keys are usually appended; else with some room
//! for more. So where changes are everywhere a tree becomes dense, whatever its nodes were before.

use std::iter::Peekable;

use super::super::error::Result;
use super::super::node::Draft;
use super::super::node_cache::Heat;
use super::super::tree::{Place, Tree};
use super::Key;
use super::writer::{NodeWriter, Ticket};
use crate::member::superblock::MetaPointer;

/// An inner node has so many children where there are so many, however long their keys: trees end.
const CHILDREN_MIN: usize = 4;

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// It has this value.
    Put(&'a [u8]),
    /// It is gone.
    Delete,
    /// Nothing, but its node is to be written anew.
    Touch,
}

impl<'a> Change<'a> {
    /// The change to a value, or to none.
    pub fn to(value: Option<&'a [u8]>) -> Self {
        value.map_or(Change::Delete, Change::Put)
    }
}

/// What a level's merge did.
#[derive(Debug, Default)]
pub(in crate::store) struct Outcome {
    /// Nodes that are not needed any more.
    pub replaced: Vec<MetaPointer>,
    /// What changes in the level above, in order: a first key has a new node, or none any more.
    pub children: Vec<(Key, Option<Ticket>)>,
}

/// `changes` and `touched`, both in order, as one; a change comes before a touch of the same key.
pub(super) fn with_touched<'a>(
    changes: impl Iterator<Item = (&'a [u8], Change<'a>)>,
    touched: &'a [Key],
) -> impl Iterator<Item = (&'a [u8], Change<'a>)> {
    let mut changes = changes.peekable();
    let mut touched = touched.iter().map(|key| (&**key, Change::Touch)).peekable();
    std::iter::from_fn(move || match (changes.peek(), touched.peek()) {
        (Some((key, _)), Some((touch, _))) if touch < key => touched.next(),
        (Some((key, _)), Some((touch, _))) if touch == key => {
            touched.next();
            changes.next()
        }
        (Some(_), _) => changes.next(),
        (None, _) => touched.next(),
    })
}

/// Merges changes, in the order of their keys, into one level of a tree.
///
/// # Errors
/// Those of reading and writing nodes.
pub(super) fn merge_level<'a>(
    tree: &Tree,
    level: u8,
    changes: impl Iterator<Item = (&'a [u8], Change<'a>)>,
    writer: &mut NodeWriter,
) -> Result<Outcome> {
    let mut changes = changes.peekable();
    let mut merge = LevelMerge { tree, level, writer, outcome: Outcome::default(), last_replaced: None };
    while let Some(&(key, _)) = changes.peek() {
        merge.run(key, &mut changes)?;
    }
    Ok(merge.outcome)
}

struct LevelMerge<'t, 'w, 'p> {
    tree: &'t Tree<'t>,
    level: u8,
    writer: &'w mut NodeWriter<'p>,
    outcome: Outcome,
    /// First key of the last node that was replaced.
    last_replaced: Option<Key>,
}

/// Neighbouring nodes that are replaced together.
#[derive(Default)]
struct Run {
    /// Entries that are in no new node yet.
    draft: Draft,
    /// First keys of the nodes that are replaced.
    old: Vec<Key>,
    /// Bytes of those nodes.
    old_bytes: usize,
    /// New nodes.
    new: Vec<(Key, Ticket)>,
    /// Some entry is not what it was.
    changed: bool,
    /// Nothing follows.
    at_end: bool,
    /// A node that is replaced was in memory.
    warm: bool,
}

impl LevelMerge<'_, '_, '_> {
    fn run<'a>(
        &mut self,
        key: &[u8],
        changes: &mut Peekable<impl Iterator<Item = (&'a [u8], Change<'a>)>>,
    ) -> Result<()> {
        let mut run = Run::default();
        let mut next = Some(self.tree.node_at(self.level, key, Heat::Cold)?);
        while let Some(place) = next.take() {
            run.at_end = place.as_ref().is_none_or(|place| place.upper().is_none());
            self.merge_node(place.as_ref(), changes, &mut run)?;
            if !run.changed && run.new.is_empty() {
                return Ok(());
            }
            let Some(place) = place else { break };
            self.replace(&place, &mut run, false);
            let is_too_small = self.is_too_small(&run);
            match place.upper() {
                Some(upper) if is_too_small => {
                    next = Some(self.tree.node_at(self.level, upper, Heat::Cold)?)
                }
                Some(upper) => next = self.changed_neighbour(upper, changes, &run)?.map(Some),
                None if is_too_small => self.take_left(&mut run)?,
                None => {}
            }
        }
        self.cut_rest(&mut run)?;
        self.last_replaced = run.old.last().cloned();
        self.outcome.children.extend(merge_children(run.old, run.new));
        Ok(())
    }

    /// The node that begins at `upper`, if the next change falls into it and it is worth joining.
    fn changed_neighbour<'a>(
        &self,
        upper: &[u8],
        changes: &mut Peekable<impl Iterator<Item = (&'a [u8], Change<'a>)>>,
        run: &Run,
    ) -> Result<Option<Place>> {
        let Some((key, _)) = changes.peek().filter(|_| run.draft.len() > 0) else { return Ok(None) };
        let place = self.tree.node_at(self.level, key, Heat::Cold)?;
        Ok(place.filter(|place| place.node.key(0) == upper))
    }

    /// Puts a node's entries (none: the level is empty), with the changes that fall into its range, into the draft.
    fn merge_node<'a>(
        &mut self,
        place: Option<&Place>,
        changes: &mut Peekable<impl Iterator<Item = (&'a [u8], Change<'a>)>>,
        run: &mut Run,
    ) -> Result<()> {
        let node = place.map(|place| &*place.node);
        let upper = place.and_then(Place::upper);
        let mut index = 0;
        loop {
            let entry =
                node.filter(|node| index < node.len()).map(|node| (node.key(index), node.value(index)));
            let change = changes.next_if(|(key, _)| {
                upper.is_none_or(|upper| *key < upper) && entry.is_none_or(|(own, _)| *key <= own)
            });
            let (key, value) = match (entry, change) {
                (None, None) => return Ok(()),
                (Some(entry), None) => {
                    index += 1;
                    entry
                }
                (entry, Some((key, change))) => {
                    let old = entry.filter(|(own, _)| *own == key).map(|(_, value)| value);
                    index += usize::from(old.is_some());
                    let value = match change {
                        Change::Put(value) => Some(value),
                        Change::Delete => None,
                        Change::Touch => old,
                    };
                    run.changed |= value != old || change == Change::Touch;
                    let Some(value) = value else { continue };
                    (key, value)
                }
            };
            self.make_room(run)?;
            run.draft.push(key, value);
        }
    }

    /// Notes that a node is replaced.
    fn replace(&mut self, place: &Place, run: &mut Run, at_left: bool) {
        self.outcome.replaced.extend(place.pointer.iter().cloned());
        run.old_bytes += place.node.encoded_bytes();
        run.warm |= place.was_cached;
        let at = if at_left { 0 } else { run.old.len() };
        run.old.insert(at, place.node.key(0).into());
    }

    /// Nodes that lost entries, and have less than a third of what they may have, join with a neighbour. Those that
    /// were small before are left as they are.
    fn is_too_small(&self, run: &Run) -> bool {
        let bytes = run.draft.encoded_bytes();
        run.draft.len() > 0
            && run.new.is_empty()
            && bytes < self.writer.node_bytes / 3
            && bytes < run.old_bytes
    }

    /// Takes in the left neighbour, unless it is a new node itself.
    fn take_left(&mut self, run: &mut Run) -> Result<()> {
        let Some(first) = run.old.first() else { return Ok(()) };
        let Some(left) = self.tree.node_before(self.level, first, Heat::Cold)? else { return Ok(()) };
        if self.last_replaced.as_deref() == Some(left.node.key(0)) {
            return Ok(());
        }
        let mut draft = Draft::default();
        draft.push_all(&left.node);
        let own = std::mem::replace(&mut run.draft, draft);
        run.draft.append(own);
        self.replace(&left, run, true);
        Ok(())
    }

    /// Before another entry: a draft of two nodes' size gives off a node.
    fn make_room(&mut self, run: &mut Run) -> Result<()> {
        let most = self.writer.node_bytes;
        if run.draft.encoded_bytes() < 2 * most || run.draft.len() < 2 {
            return Ok(());
        }
        self.cut(run, if run.at_end { most } else { most / 8 * 7 })
    }

    /// Makes nodes of what is left: as few as can be.
    fn cut_rest(&mut self, run: &mut Run) -> Result<()> {
        let most = self.writer.node_bytes;
        while run.draft.len() > 0 {
            let bytes = run.draft.encoded_bytes();
            let target = if run.at_end { most } else { bytes / bytes.div_ceil(most) };
            self.cut(run, target)?;
        }
        Ok(())
    }

    /// Cuts one node of about `target` bytes off the draft.
    fn cut(&mut self, run: &mut Run, target: usize) -> Result<()> {
        let least = if self.level > 0 { CHILDREN_MIN } else { 1 }.min(run.draft.len());
        let count = run.draft.count_for(target, self.writer.node_bytes).max(least);
        let node = run.draft.take_node(count, self.tree.table, self.level);
        let is_new = run.old.is_empty() && self.tree.root.is_none();
        let heat = if run.warm || is_new || self.level > 0 { Heat::Warm } else { Heat::Cold };
        let first = node.key(0).into();
        let ticket = self.writer.add(node, heat)?;
        run.new.push((first, ticket));
        Ok(())
    }
}

/// Replaced children and new ones, both in order, as one list.
fn merge_children(old: Vec<Key>, new: Vec<(Key, Ticket)>) -> Vec<(Key, Option<Ticket>)> {
    let mut all: Vec<(Key, Option<Ticket>)> = Vec::with_capacity(old.len() + new.len());
    let mut new = new.into_iter().peekable();
    for key in old {
        while let Some((first, ticket)) = new.next_if(|(first, _)| *first <= key) {
            all.push((first, Some(ticket)));
        }
        if all.last().is_none_or(|(last, _)| *last != key) {
            all.push((key, None));
        }
    }
    all.extend(new.map(|(first, ticket)| (first, Some(ticket))));
    all
}
