//! (stand-in until the layout branch lands)
/// Kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Kind { /// a
 Simple, /// a
 Mirror, /// a
 StripedMirror, /// a
 Parity }
/// R.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Resiliency { /// a
 pub kind: Kind, /// a
 pub copies: u8, /// a
 pub parity: u8, /// a
 pub columns: Option<u8>, /// a
 pub interleave: u64 }
impl std::fmt::Display for Resiliency { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{:?}", self.kind) } }
/// B.
#[derive(Debug)]
pub struct BadResiliency;
