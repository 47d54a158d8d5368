//! (stand-in until the layout branch lands)
/// G.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Geometry { /// a
 pub columns: u8 }
/// R
#[derive(Debug)] pub struct Redundancy; /// P
#[derive(Debug)] pub struct Place; /// R
#[derive(Debug)] pub struct Run; /// S
#[derive(Debug)] pub struct Stripe;
