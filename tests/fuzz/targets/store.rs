//! Nodes of the trees, root blocks and journalled operations of any bytes are refused, or can be used.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolfs::store::hostile;

fuzz_target!(|bytes: &[u8]| {
    hostile::node(bytes);
    hostile::root_block(bytes);
    hostile::operations(bytes);
});
