//! (stand-in)
/// W
#[derive(Debug)] pub struct Width; 
/// w
pub fn width_for() {}
