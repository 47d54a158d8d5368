//! How much may change between two checkpoints, and the room in the pool that is kept for writing it.
//!
//! A checkpoint writes the nodes that changes fall into. The pool keeps room for **two** checkpoints that each
//! write as much as they may (what one gives up is free only after the next), and a checkpoint is due before
//! more than that has changed; past twice as much, whoever changes something waits for one. So a checkpoint,
//! and with it deleting on a full pool, never lacks room.

use super::overlay::LayerSize;
use crate::units::{KIB, MIB};

/// Changes in memory are at most so many bytes, however large the pool.
const LAYER_MAX_BYTES: u64 = 32 * MIB;
/// And at least so many, however small.
const LAYER_MIN_BYTES: u64 = 256 * KIB;
/// Share (one over) of what small members offer that changes in memory may have ...
const LAYER_SHARE: u64 = 64;
/// ... up to so many bytes, and the share beyond: what is kept for checkpoints is several times as much, and would waste
/// the room of middling pools.
const LAYER_SMALL_BYTES: u64 = 4 * MIB;
/// See [`LAYER_SMALL_BYTES`].
const LAYER_SHARE_BEYOND: u64 = 256;
/// Changed keys between two checkpoints: each may be in a leaf of its own.
const CHANGES_MAX: u64 = 128 * 1024;
/// Root blocks, and what is lost where nodes end within a sector.
const SLACK_BYTES: u64 = MIB;
/// Nodes that compaction moves in one checkpoint: so many bytes, or this share of the trees.
const MOVE_BYTES: u64 = 8 * MIB;
/// See [`MOVE_BYTES`].
const MOVE_SHARE: u64 = 8;

/// What may change between two checkpoints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    layer_bytes: u64,
    node_bytes: u64,
}

impl Room {
    /// For a pool whose members offer so many bytes, and nodes of this size.
    pub fn new(offered_bytes: u64, node_bytes: usize) -> Self {
        let small = (offered_bytes / LAYER_SHARE).min(LAYER_SMALL_BYTES);
        let layer_bytes =
            small.max(offered_bytes / LAYER_SHARE_BEYOND).clamp(LAYER_MIN_BYTES, LAYER_MAX_BYTES);
        Self { layer_bytes, node_bytes: node_bytes as u64 }
    }

    /// So much has changed that a checkpoint is due.
    pub fn is_used(&self, layer: LayerSize) -> bool {
        layer.bytes > self.layer_bytes || layer.changes > CHANGES_MAX
    }

    /// So much has changed that more must wait for a checkpoint.
    pub fn is_exceeded(&self, layer: LayerSize) -> bool {
        layer.bytes > 2 * self.layer_bytes || layer.changes > 2 * CHANGES_MAX
    }

    /// Most bytes of nodes that compaction moves in one checkpoint, of trees of so many bytes.
    pub fn move_bytes(&self, tree_bytes: u64) -> u64 {
        (tree_bytes / MOVE_SHARE).max(MOVE_BYTES)
    }

    /// Most that a checkpoint of such a layer writes: a leaf for each change with its way to the root, and what is
    /// moved, but no more than all of the trees; and the changes themselves, which may leave their nodes half full.
    pub fn checkpoint_bytes(&self, layer: LayerSize, tree_bytes: u64) -> u64 {
        let rewritten = 2 * layer.changes * self.node_bytes + self.move_bytes(tree_bytes);
        tree_bytes.min(rewritten) + 2 * layer.bytes
    }

    /// What the pool must keep for metadata beside trees of so many bytes: two checkpoints of the largest layer.
    pub fn reserve_bytes(&self, tree_bytes: u64) -> u64 {
        let largest = LayerSize { changes: CHANGES_MAX, bytes: self.layer_bytes };
        2 * self.checkpoint_bytes(largest, tree_bytes) + SLACK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pools_keep_little_and_large_ones_not_too_much() {
        let small = Room::new(48 * MIB, 16 * 1024);
        assert_eq!(small.reserve_bytes(MIB), 6 * MIB);
        assert!(small.is_used(LayerSize { changes: 1, bytes: MIB }));
        assert!(!small.is_exceeded(LayerSize { changes: 1, bytes: MIB }));
        let large = Room::new(1 << 44, 16 * 1024);
        assert!(large.reserve_bytes(1 << 40) < 270 << 30);
        assert_eq!(large.reserve_bytes(1 << 30), (2 << 30) + 129 * MIB);
        assert!(!large.is_used(LayerSize { changes: CHANGES_MAX, bytes: 32 * MIB }));
        assert!(large.is_used(LayerSize { changes: CHANGES_MAX + 1, bytes: 1 }));
        assert!(large.is_exceeded(LayerSize { changes: 2 * CHANGES_MAX + 1, bytes: 1 }));
    }
}
