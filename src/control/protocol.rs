//! Requests and answers: one line of JSON each, in UTF-8.
//!
//! A client sends one request and gets one answer: `{"version":1,"verb":"status"}`, then
//! `{"version":1,"status":{...}}` or `{"version":1,"error":"..."}`. Verbs may be added; what exists keeps its meaning
//! within a version.

use std::io::{self, BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::maintain::damage::Damage;
use crate::maintain::events::Event;
use crate::maintain::operations::{Operation, Outcome};
use crate::maintain::places::{Located, WhatIf};
use crate::maintain::scheduler::{JobStatus, Steer, Which};
use crate::maintain::settings::{JobRate, JobWindow, Settings};
use crate::pool::status::PoolStatus;

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Longest request, in bytes.
pub const REQUEST_MAX_BYTES: u64 = 64 * 1024;
/// Longest answer, in bytes: a status of the largest pool is well below it.
pub const ANSWER_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// A line: the version, and what it carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line<T> {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// The request or answer.
    #[serde(flatten)]
    pub body: T,
}

/// What can be asked of a mounted pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// How is it? Answered with [`Answer::Status`].
    Status,
    /// Which process serves it? Answered with [`Answer::Pid`].
    Pid,
    /// Make everything durable. Answered with [`Answer::Done`] when it is.
    Sync,
    /// Which jobs are there? Answered with [`Answer::Jobs`].
    Jobs,
    /// Pause, resume or cancel a job. Answered with [`Answer::Job`].
    Steer {
        /// The job.
        job: Which,
        /// What to do with it.
        steer: Steer,
    },
    /// Do something with the pool. Answered with [`Answer::Outcome`] when it is done, or its job has started.
    Perform {
        /// What.
        operation: Operation,
        /// Only say what it would come to.
        dry_run: bool,
    },
    /// Change settings; those that are not given stay. Answered with [`Answer::Done`].
    Set {
        /// How fast jobs go.
        job_rate: Option<JobRate>,
        /// When jobs may run.
        job_window: Option<JobWindow>,
        /// Refuse writes that could not have full redundancy.
        refuse_short_writes: Option<bool>,
    },
    /// What happened? Answered with [`Answer::Events`].
    Events {
        /// Only events with a number above this one.
        after: u64,
    },
    /// What would be lost without some members? Answered with [`Answer::WhatIf`].
    WhatIf {
        /// Path, UUID or number of each.
        lose: Vec<String>,
    },
    /// Where does a file lie? Answered with [`Answer::Located`].
    Locate {
        /// Its inode number, as `stat` has it.
        ino: u64,
    },
}

/// What a mounted pool answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Box<MountStatus>),
    /// To [`Request::Pid`].
    Pid(u32),
    /// It is done.
    Done,
    /// To [`Request::Jobs`].
    Jobs(Vec<JobStatus>),
    /// To [`Request::Steer`].
    Job(Box<JobStatus>),
    /// To [`Request::Perform`].
    Outcome(Box<Outcome>),
    /// To [`Request::Events`], oldest first.
    Events(Vec<Event>),
    /// To [`Request::WhatIf`].
    WhatIf(Box<WhatIf>),
    /// To [`Request::Locate`].
    Located(Box<Located>),
    /// It can't, and why.
    Error(String),
}

/// The state of a mounted pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The pool.
    pub pool: PoolStatus,
    /// Where it is mounted.
    pub mountpoint: String,
    /// The process that serves it.
    pub pid: u32,
    /// Where that process writes what happens, when it does not write to a terminal.
    pub log: Option<String>,
    /// Jobs that run, wait or rest, and then the last that ended.
    pub jobs: Vec<JobStatus>,
    /// The last scrub that came to its end.
    pub last_scrub: Option<JobStatus>,
    /// Files of which something is lost.
    pub damage: Damage,
    /// Settings of the jobs.
    pub settings: Settings,
    /// It refuses writes that could not have full redundancy.
    pub refuses_short_writes: bool,
}

/// Sends a line.
///
/// # Errors
/// When the other end is gone.
pub fn send<T: Serialize>(to: &mut impl Write, body: T) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Line { version: VERSION, body })?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads a line of at most `max` bytes.
///
/// # Errors
/// When the other end is gone or slow, or sends something else.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead, max: u64) -> io::Result<T> {
    let mut text = Vec::new();
    let read = io::Read::take(&mut *from, max).read_until(b'\n', &mut text)?;
    if text.last() != Some(&b'\n') {
        let why = if read as u64 == max { "the line is too long" } else { "the line ends in the middle" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    // Another version may have another body: only its number is looked at before.
    let version = serde_json::from_slice::<Version>(&text)?.version;
    if version != VERSION {
        let why = format!("it speaks version {version} of the protocol, this program version {VERSION}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(serde_json::from_slice::<Line<T>>(&text)?.body)
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_look_as_documented() {
        let mut sent = Vec::new();
        send(&mut sent, Request::Status).expect("sent");
        assert_eq!(sent, b"{\"version\":1,\"verb\":\"status\"}\n");
        assert_eq!(receive::<Request>(&mut &sent[..], 100).expect("read"), Request::Status);
        let scrub = Request::Perform { operation: Operation::Scrub, dry_run: false };
        let mut sent = Vec::new();
        send(&mut sent, &scrub).expect("sent");
        let line = r#"{"version":1,"verb":"perform","operation":{"do":"scrub"},"dry_run":false}"#;
        assert_eq!(String::from_utf8_lossy(&sent).trim_end(), line);
        assert_eq!(receive::<Request>(&mut &sent[..], 100).expect("read"), scrub);
        let mut sent = Vec::new();
        send(&mut sent, Answer::Pid(7)).expect("sent");
        assert_eq!(sent, b"{\"version\":1,\"pid\":7}\n");
        assert_eq!(receive::<Answer>(&mut &sent[..], 100).expect("read"), Answer::Pid(7));
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        for line in
            ["", "{}", "{}\n", "{\"version\":2,\"verb\":\"status\"}\n", "{\"version\":1,\"verb\":\"x\"}\n"]
        {
            assert!(receive::<Request>(&mut line.as_bytes(), 100).is_err(), "{line:?} was taken");
        }
        let long = [b' '; 200];
        assert!(receive::<Request>(&mut &long[..], 100).is_err());
    }
}
