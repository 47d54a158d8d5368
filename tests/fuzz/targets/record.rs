//! A journal record of any bytes is refused, or is what its own encoding says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolfs::member::ring::{encode_record, parse_record};

fuzz_target!(|bytes: &[u8]| {
    if let Some((header, payload)) = parse_record(bytes) {
        let mut again = Vec::new();
        encode_record(&mut again, &header, payload);
        assert_eq!(parse_record(&again), Some((header, payload)));
    }
});
