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
/// Of them, keys and values, without what memory adds, may be this share (one over): that is what is written.
const STORED_SHARE: u64 = 2;
/// Where each changed key is in a leaf of its own, a checkpoint writes at most so many bytes of leaves: with the
/// trees small enough that it would write no more than all of them, any number of keys may change.
const LEAVES_MAX_BYTES: u64 = 4 << 30;
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

    /// So much has changed, with trees of so many bytes, that a checkpoint is due.
    pub fn is_used(&self, layer: LayerSize, tree_bytes: u64) -> bool {
        layer.bytes > self.layer_bytes
            || layer.stored > self.stored_bytes()
            || self.leaf_bytes(layer).min(tree_bytes) > LEAVES_MAX_BYTES
    }

    /// So much has changed that more must wait for a checkpoint.
    pub fn is_exceeded(&self, layer: LayerSize, tree_bytes: u64) -> bool {
        let half = |number| number / 2;
        let LayerSize { changes, bytes, stored } = layer;
        self.is_used(
            LayerSize { changes: half(changes), bytes: half(bytes), stored: half(stored) },
            tree_bytes,
        )
    }

    fn stored_bytes(&self) -> u64 {
        self.layer_bytes / STORED_SHARE
    }

    /// Most bytes of the nodes that changes fall into: a leaf for each, and the ways to the root.
    fn leaf_bytes(&self, layer: LayerSize) -> u64 {
        2 * layer.changes * self.node_bytes
    }

    /// Most bytes of nodes that compaction moves in one checkpoint, of trees of so many bytes.
    pub fn move_bytes(&self, tree_bytes: u64) -> u64 {
        (tree_bytes / MOVE_SHARE).max(MOVE_BYTES)
    }

    /// Most that a checkpoint of such a layer writes: a leaf for each change with its way to the root, and what is
    /// moved, but no more than all of the trees; and the changes themselves, which may leave their nodes half full.
    pub fn checkpoint_bytes(&self, layer: LayerSize, tree_bytes: u64) -> u64 {
        let rewritten = self.leaf_bytes(layer) + self.move_bytes(tree_bytes);
        tree_bytes.min(rewritten) + 2 * layer.stored
    }

    /// What the pool must keep for metadata beside trees of so many bytes: two checkpoints of the largest layer.
    pub fn reserve_bytes(&self, tree_bytes: u64) -> u64 {
        let changes = LEAVES_MAX_BYTES / (2 * self.node_bytes);
        let largest = LayerSize { changes, bytes: self.layer_bytes, stored: self.stored_bytes() };
        2 * self.checkpoint_bytes(largest, tree_bytes) + SLACK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pools_keep_little_and_large_ones_not_too_much() {
        let small = Room::new(48 * MIB, 16 * 1024);
        let size = |changes, bytes, stored| LayerSize { changes, bytes, stored };
        assert_eq!(small.reserve_bytes(MIB), 5 * MIB - 512 * KIB);
        assert!(small.is_used(size(1, MIB, 0), 0));
        assert!(small.is_used(size(1, 500_000, 400_000), 0));
        assert!(!small.is_exceeded(size(1, MIB, 0), 0));
        let large = Room::new(1 << 44, 16 * 1024);
        assert!(large.reserve_bytes(1 << 40) < 270 << 30);
        assert_eq!(large.reserve_bytes(1 << 30), (2 << 30) + 65 * MIB);
        assert!(!large.is_used(size(1 << 17, 32 * MIB, 16 * MIB), 1 << 40));
        assert!(large.is_used(size((1 << 17) + 1, 1, 1), 1 << 40));
        assert!(!large.is_used(size(1 << 19, 1, 1), 4 << 30));
        assert!(large.is_exceeded(size((1 << 18) + 2, 1, 1), 1 << 40));
    }
}
