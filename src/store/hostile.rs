//! Any bytes, decoded as what the store reads from members: for the fuzz targets in `tests/fuzz`. What decodes is used
//! as the store would use it; nothing but an error may come of the rest.

use super::node::{Expected, Node};
use super::root_block::RootBlock;
use super::tables::Table;
use super::tx::Op;
use crate::member::wire;

/// As a node of any table and level.
pub fn node(bytes: &[u8]) {
    for table in Table::ALL {
        for level in 0..2 {
            let Ok(node) = Node::decode(bytes, &Expected { table, level, first: None }) else { continue };
            for index in 0..node.len() {
                assert_eq!(node.find(node.key(index)), Some(index), "every key is found where it is");
                let _ = (node.value(index), node.child(index));
            }
            assert_eq!(node.encode(), bytes, "a node has one encoding");
        }
    }
}

/// As a root block.
pub fn root_block(bytes: &[u8]) {
    if let Ok(block) = RootBlock::decode(bytes) {
        let _ = block.roots();
        block.sets.iter().for_each(|set| drop(set.validate(1 << 20)));
    }
}

/// As the operations of a journal record.
pub fn operations(bytes: &[u8]) {
    if let Ok(operations) = wire::unpack::<Vec<Op>>(bytes) {
        let again: Vec<Op> = wire::unpack(&wire::pack(&operations)).expect("what was packed unpacks");
        assert_eq!(again, operations);
    }
}
