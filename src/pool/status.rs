//! The state of a pool as plain data, for `poolctl status` and for programs.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::member::metered::Traffic;

/// Space for one resiliency, in bytes of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All that could ever be stored.
    pub total: u64,
    /// Not in use; includes what is held in reserve.
    pub free: u64,
    /// What ordinary writes can still store.
    pub available: u64,
}

/// How a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// All members there, full redundancy.
    Online,
    /// Everything can be read; redundancy is missing.
    Degraded,
    /// Some data can't be read.
    Unavailable,
}

/// How a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberHealth {
    /// Read and written.
    Online,
    /// Not found.
    Missing,
    /// Failed while in use and set aside: it takes no writes any more.
    Failing,
    /// Much slower than usual: what others can give is not read from it.
    Slow,
    /// Began a history of its own; refused.
    Diverged,
    /// Taken offline by hand, until it is brought online again.
    Offline,
    /// Read and written, and being emptied.
    Evacuating,
    /// Taken out of the pool.
    Removed,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its number.
    pub id: u16,
    /// Its UUID.
    pub uuid: Uuid,
    /// Where it is, or was last seen.
    pub path: String,
    /// How it is.
    pub health: MemberHealth,
    /// Slabs it offers.
    pub slabs: u64,
    /// Slabs in use.
    pub slabs_used: u64,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Failed syncs.
    #[serde(default)]
    pub sync_errors: u64,
    /// Requests that were not answered within the deadline.
    #[serde(default)]
    pub timeouts: u64,
    /// Sectors whose checksum did not match.
    pub checksum_errors: u64,
    /// Errors of all these kinds in the last ten minutes.
    #[serde(default)]
    pub recent_errors: u64,
    /// Reads that took long and were also asked elsewhere.
    #[serde(default)]
    pub hedged_reads: u64,
    /// Sectors rebuilt and written back.
    pub healed: u64,
    /// What went to it and came from it since the pool was mounted.
    pub traffic: Traffic,
    /// What happened last, when something did.
    pub note: Option<String>,
}

/// The whole pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Uuid,
    /// How it is.
    pub health: Health,
    /// Mounted read-only.
    pub read_only: bool,
    /// Resiliency of new files at the root.
    pub resiliency: String,
    /// Failures that everything survives at full redundancy.
    pub tolerance: u64,
    /// Number of the current epoch.
    pub epoch: u64,
    /// Payload bytes of a slab.
    pub slab_bytes: u64,
    /// Members, by number.
    pub members: Vec<MemberStatus>,
    /// Sets in use.
    pub sets: u64,
    /// Sets that lack redundancy (short, or with a member missing).
    pub sets_degraded: u64,
    /// Sets that can't be read.
    pub sets_unreadable: u64,
    /// Space at the root's resiliency.
    pub space: Space,
}

impl PoolStatus {
    /// Where the members are that belong to the pool, or were last seen.
    pub fn present_paths(&self) -> Vec<std::path::PathBuf> {
        let belongs = |member: &&MemberStatus| member.health != MemberHealth::Removed;
        self.members.iter().filter(belongs).map(|member| (&member.path).into()).collect()
    }
}
