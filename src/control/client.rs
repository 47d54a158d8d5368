//! The end of the socket that a command holds.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use super::protocol::{ANSWER_MAX_BYTES, Answer, MountStatus, Request, receive, send};
use super::server::socket_path;
use super::{ControlError, Result};

/// How long an answer may take that comes from memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the process that serves `pool`; `dir` is the runtime directory.
///
/// # Errors
/// [`ControlError::NoAnswer`], also when it is not mounted; [`ControlError::Refused`].
pub fn ask(dir: &Path, pool: Uuid, request: &Request) -> Result<Answer> {
    // How long it takes to make everything durable, to make a member, or to look through all files, depends on the disks.
    let patience = match request {
        Request::Sync
        | Request::Perform { .. }
        | Request::Steer { .. }
        | Request::Set { .. }
        | Request::WhatIf { .. }
        | Request::Locate { .. } => None,
        Request::Status | Request::Pid | Request::Jobs | Request::Events { .. } => Some(PATIENCE),
    };
    match exchange(&socket_path(dir, pool), request, patience) {
        Ok(Answer::Error(why)) => Err(ControlError::Refused { pool, why }),
        Ok(answer) => Ok(answer),
        Err(error) => Err(ControlError::NoAnswer { pool, why: error.to_string() }),
    }
}

/// The state of `pool`, when it is mounted by this user.
///
/// # Errors
/// As [`ask`].
pub fn status(dir: &Path, pool: Uuid) -> Result<MountStatus> {
    match ask(dir, pool, &Request::Status)? {
        Answer::Status(status) => Ok(*status),
        other => {
            Err(ControlError::NoAnswer { pool, why: format!("it answered {other:?} to the wrong question") })
        }
    }
}

/// The pools that have a socket in the runtime directory `dir`. One may be left of a process that died.
///
/// # Errors
/// [`ControlError::File`].
pub fn served(dir: &Path) -> Result<Vec<Uuid>> {
    let failed = |source| ControlError::File { path: dir.to_owned(), doing: "listing mounted pools", source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let uuid = name.to_str().and_then(|name| name.strip_suffix(".sock")).map(Uuid::parse_str);
        found.extend(uuid.and_then(|parsed| parsed.ok()));
    }
    found.sort_unstable();
    Ok(found)
}

fn exchange(socket: &Path, request: &Request, patience: Option<Duration>) -> io::Result<Answer> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    send(&mut &stream, request)?;
    receive(&mut BufReader::new(&stream), ANSWER_MAX_BYTES)
}
