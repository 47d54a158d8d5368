//! (to come)

/// A member as people name it: `PATH[,size=SIZE][,reserve=SIZE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSpec {
    /// The directory, device or image.
    pub path: std::path::PathBuf,
    /// Most bytes it may use; 0 for no limit.
    pub limit_bytes: u64,
    /// Free bytes of the file system below to leave alone; 0 for none.
    pub reserve_bytes: u64,
}
