//! What the commands and a mounted pool tell each other, and how a pool is found by what people call it.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`registry`] | the pools known to this user, in a file |
//! | [`protocol`] | requests and answers, as lines of JSON |
//! | [`answers`] | what a mounted pool answers |
//! | [`server`], [`client`] | the two ends of a mounted pool's socket |
//! | [`mountpoint`] | where a pool may be mounted |
//! | [`find`] | name, UUID, mount point or member to pool |

pub mod answers;
pub mod client;
pub mod find;
pub mod mountpoint;
pub mod protocol;
pub mod registry;
pub mod server;

use std::path::PathBuf;

use uuid::Uuid;

use crate::member::MemberError;

/// Result of an operation of this module.
pub type Result<T> = std::result::Result<T, ControlError>;

/// What can go wrong between the commands and a mounted pool.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A file of ours can't be used.
    #[error("{}: {doing}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The registry is not what it should be.
    #[error(
        "the registry {} can't be read: {why}. Correct it, or move it away: pools are found by their members too",
        .path.display()
    )]
    BadRegistry {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The mounted pool does not answer.
    #[error("the mounted pool {pool} does not answer: {why}")]
    NoAnswer {
        /// The pool.
        pool: Uuid,
        /// What went wrong.
        why: String,
    },
    /// The mounted pool answered that it can't.
    #[error("the mounted pool {pool} refused: {why}")]
    Refused {
        /// The pool.
        pool: Uuid,
        /// What it said.
        why: String,
    },
    /// Nothing of that name.
    #[error(
        "{what:?} is no pool known here: give its name, its UUID, its mount point or the path of a member. `poolctl list` shows the known ones"
    )]
    NoSuchPool {
        /// What was asked for.
        what: String,
    },
    /// A path that leads to no pool.
    #[error("{what} leads to no pool: {why}")]
    NotAPool {
        /// What was asked for.
        what: String,
        /// Why not.
        why: MemberError,
    },
    /// Several pools of that name.
    #[error("{what:?} could be any of {candidates}: give the UUID")]
    Ambiguous {
        /// What was asked for.
        what: String,
        /// Their UUIDs.
        candidates: String,
    },
    /// The runtime directory can't be used.
    #[error(transparent)]
    Runtime(#[from] MemberError),
}
