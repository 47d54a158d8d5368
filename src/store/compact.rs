//! Compaction of metadata sets: where too much of them is dead, the nodes in the emptiest ones are written anew
//! by the next checkpoint, and the sets become free.

use std::collections::HashSet;

use super::error::Result;
use super::merge::Touched;
use super::node::Expected;
use super::node_cache::{Heat, NodeCache};
use super::root_block::LiveBytes;
use super::tables::Table;
use super::tree::{Roots, TreeRoot};
use crate::member::superblock::{MetaPointer, SetId};
use crate::pool::MetaUsage;

/// Less is not worth it: so many slabs' payload may be dead, whatever the share.
const WASTE_MIN_SLABS: u64 = 4;
/// This share (one over) of the used space may be dead.
const WASTE_SHARE: u64 = 4;

/// The sets to empty: those with the least alive, until no more than the allowed share would be dead or `budget`
/// bytes would have to be moved. Sets that still take nodes are left alone.
pub(super) fn sets_to_empty(
    usage: &[MetaUsage],
    live: &LiveBytes,
    slab_bytes: u64,
    budget: u64,
) -> HashSet<SetId> {
    let used: u64 = usage.iter().map(|set| set.used).sum();
    let allowed = (used / WASTE_SHARE).max(WASTE_MIN_SLABS * slab_bytes);
    let mut waste = used.saturating_sub(live.total());
    let mut candidates: Vec<(u64, &MetaUsage)> = usage
        .iter()
        .filter(|set| !set.open)
        .map(|set| (live.get(set.set), set))
        .filter(|(live, set)| *live > 0 && *live < set.used / WASTE_SHARE * (WASTE_SHARE - 1))
        .collect();
    candidates.sort_by_key(|(live, set)| (*live, set.set));
    let mut moved = 0;
    let mut chosen = HashSet::new();
    for (live, set) in candidates {
        if waste <= allowed || moved + live > budget {
            break;
        }
        moved += live;
        waste -= set.used - live;
        chosen.insert(set.set);
    }
    chosen
}

/// The nodes that lie in these sets.
///
/// # Errors
/// Those of reading inner nodes.
pub(super) fn nodes_in(nodes: &NodeCache, roots: &Roots, sets: &HashSet<SetId>) -> Result<Touched> {
    let mut touched = Touched::default();
    if sets.is_empty() {
        return Ok(touched);
    }
    let is_in = |pointer: &[MetaPointer]| pointer.iter().any(|piece| sets.contains(&piece.set));
    for table in Table::ALL {
        if let Some(root) = roots.get(table) {
            let mut walk = Walk { nodes, table, touched: &mut touched, is_in: &is_in };
            walk.visit(root, None)?;
        }
    }
    Ok(touched)
}

struct Walk<'a> {
    nodes: &'a NodeCache,
    table: Table,
    touched: &'a mut Touched,
    is_in: &'a dyn Fn(&[MetaPointer]) -> bool,
}

impl Walk<'_> {
    /// A node and all below it. `first` is what its parent says; only inner nodes, and a root, are read.
    fn visit(&mut self, node: &TreeRoot, first: Option<&[u8]>) -> Result<()> {
        let marked = (self.is_in)(&node.node);
        if let (0, Some(first)) = (node.level, first) {
            if marked {
                self.touched.add(self.table, 0, first);
            }
            return Ok(());
        }
        let expected = Expected { table: self.table, level: node.level, first };
        let own = self.nodes.read(&node.node, &expected, Heat::Cold)?.node;
        if marked {
            self.touched.add(self.table, node.level, own.key(0));
        }
        if node.level == 0 {
            return Ok(());
        }
        for index in 0..own.len() {
            let child = TreeRoot { level: node.level - 1, node: own.child(index)? };
            self.visit(&child, Some(own.key(index)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(bytes: &[(SetId, u64)]) -> LiveBytes {
        let mut live = LiveBytes::default();
        for &(set, sectors) in bytes {
            live.add(&[MetaPointer { set, address: 0, len: 1, sums: vec![0; sectors as usize] }]);
        }
        live
    }

    fn usage(sets: u64, open: SetId) -> Vec<MetaUsage> {
        (1..=sets).map(|set| MetaUsage { set, used: 100 * 4096, open: set == open }).collect()
    }

    #[test]
    fn the_emptiest_sets_are_emptied_when_much_is_dead() {
        let slab = 100 * 4096;
        // Of 1000 sectors 440 are alive: 560 dead, 400 may be.
        let alive = live(&[(1, 90), (2, 1), (3, 30), (4, 80), (5, 80), (6, 80), (7, 79)]);
        let chosen = |budget, open| {
            let mut sets: Vec<SetId> =
                sets_to_empty(&usage(10, open), &alive, slab, budget).into_iter().collect();
            sets.sort_unstable();
            sets
        };
        assert_eq!(chosen(1 << 30, 9), [2, 3]);
        assert_eq!(chosen(1 << 30, 2), [3], "one that is being filled stays");
        assert_eq!(chosen(4096, 9), [2], "no more than may be moved");
        assert!(sets_to_empty(&usage(6, 9), &alive, slab, 1 << 30).is_empty(), "little is dead");
    }
}
