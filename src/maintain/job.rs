//! A long job: what it is, how far it is, and one bounded step of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::plan::Refusal;
use crate::fs::{Fs, FsError};
use crate::member::superblock::{MemberId, SetId};
use crate::pool::{PoolError, moving};
use crate::store::StoreError;

/// What a job does. Two jobs of the same kind never run at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Reads and compares everything, and heals what is wrong.
    Scrub,
    /// Rebuilds what lost redundancy.
    Repair,
    /// Empties a member, and takes it out.
    Evacuate {
        /// The member.
        member: MemberId,
    },
    /// Moves what a member holds to another one, and takes it out.
    Replace {
        /// The member that goes.
        old: MemberId,
        /// The one that takes its place.
        new: MemberId,
    },
    /// Evens out the use of the members.
    Rebalance,
}

impl JobKind {
    /// The word that commands use for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Scrub => "scrub",
            Self::Repair => "repair",
            Self::Evacuate { .. } => "evacuate",
            Self::Replace { .. } => "replace",
            Self::Rebalance => "rebalance",
        }
    }

    /// Who goes first where several could: lower goes before higher.
    pub fn rank(&self) -> u8 {
        match self {
            Self::Repair => 1,
            Self::Replace { .. } => 2,
            Self::Evacuate { .. } => 3,
            Self::Rebalance => 6,
            Self::Scrub => 9,
        }
    }

    /// The member that it is about, if it is about one.
    pub fn member(&self) -> Option<MemberId> {
        match self {
            Self::Evacuate { member } | Self::Replace { old: member, .. } => Some(*member),
            Self::Scrub | Self::Repair | Self::Rebalance => None,
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// So many bytes were read or moved; there may be more to do.
    Moved(u64),
    /// Nothing can be done now, and why. It is tried again later.
    Pending(String),
    /// There is nothing more to do.
    Done,
}

/// A range of a set that a job could not save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unsaved {
    /// The set.
    pub set: SetId,
    /// Address in its payload, in bytes.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl From<&moving::Unsaved> for Unsaved {
    fn from(unsaved: &moving::Unsaved) -> Self {
        Self { set: unsaved.set, address: unsaved.address, len: unsaved.bytes }
    }
}

/// How far a job is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes that were to be done, as far as that is known.
    pub total_bytes: u64,
    /// What could not be saved since the last step.
    pub unsaved: Vec<Unsaved>,
}

impl Progress {
    /// So many bytes more are done, which may be more than was expected.
    pub fn moved(&mut self, bytes: u64) -> Step {
        self.done_bytes += bytes;
        self.total_bytes = self.total_bytes.max(self.done_bytes);
        Step::Moved(bytes)
    }
}

/// Something that a job counts, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// What is counted.
    pub what: String,
    /// How many.
    pub number: u64,
}

/// Why a job can't go on.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The file system.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The tables.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It can't be done; nothing was begun.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What it had noted of itself makes no sense.
    #[error("what the {kind} had noted of itself is damaged: {why}. Start it again")]
    BadCursor {
        /// The job.
        kind: JobKind,
        /// What is wrong.
        why: String,
    },
}

/// A long job, in steps. A step may be the last one at any time: the process may end, or the job be cancelled, so each
/// leaves everything whole.
pub trait Job: Send {
    /// What it does.
    fn kind(&self) -> JobKind;

    /// How far it is.
    fn progress(&self) -> Progress;

    /// Does about `budget_bytes` more.
    ///
    /// # Errors
    /// What it can't go on after; the job ends with it.
    fn step(&mut self, fs: &Fs, budget_bytes: u64) -> Result<Step, JobError>;

    /// What it needs to go on from here after a crash. Nothing for a job that sees from the tables what is left to do.
    fn cursor(&self) -> Vec<u8> {
        Vec::new()
    }

    /// What it has counted so far.
    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }
}
