//! A slab's header of any bytes is refused, or is what its own encoding says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolfs::member::header::SlabHeader;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = SlabHeader::decode(bytes) {
        assert_eq!(SlabHeader::decode(&header.encode()).ok(), Some(header));
    }
});
