//! A superblock copy of any bytes is refused or sound: what was taken encodes again to something that decodes alike.
//! The second half of the input goes in behind a right envelope, or hardly any input would get past its checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolfs::member::superblock::Superblock;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(superblock) = Superblock::decode("fuzzed", bytes) {
        again(&superblock);
    }
    if let Ok(superblock) = poolfs::member::wire::decode::<Superblock>(bytes)
        && superblock.validate().is_ok()
    {
        again(&superblock);
    }
});

fn again(superblock: &Superblock) {
    if let Ok(copy) = superblock.encode() {
        assert_eq!(Superblock::decode("again", &copy).ok().as_ref(), Some(superblock));
    }
}
