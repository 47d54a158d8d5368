//! (stand-in)
/// U
pub fn usable_bytes() {}
