//! Commands with a time limit.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Long enough for what takes no time.
pub const SHORT: Duration = Duration::from_secs(60);
/// Long enough for what moves gigabytes on a busy machine.
pub const LONG: Duration = Duration::from_secs(600);

/// What became of a command.
#[derive(Debug)]
pub struct Ran {
    /// The command, to be shown.
    pub what: String,
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Ran {
    /// It must have succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    /// It must have ended with this code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert!(self.code == Some(code), "expected exit code {code}: {self}");
        self
    }

    /// It must have been refused: exit code 1, and all of `words` in what it said.
    #[track_caller]
    pub fn refused(self, words: &[&str]) -> Self {
        let ran = self.exits(1);
        let said = ran.err.to_lowercase();
        for word in words {
            assert!(said.contains(&word.to_lowercase()), "{word:?} is not in what was said: {ran}");
        }
        ran
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} ended with {:?}", self.what, self.code)?;
        write!(f, "--- output\n{}\n--- errors\n{}", shortened(&self.out), shortened(&self.err))
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 4000;
    match text.char_indices().rev().nth(MOST) {
        Some((at, _)) => format!("[...]{}", &text[at..]),
        None => text.trim_end().to_owned(),
    }
}

/// Runs a command to its end, or fails when that takes longer than `limit`.
///
/// Output goes through files: a process that the command leaves behind may keep a pipe open.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Ran {
    let what = format!("{command:?}");
    let (mut out, mut err) = (temporary(), temporary());
    command.stdin(Stdio::null()).stdout(cloned(&out)).stderr(cloned(&err)).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{what} does not start: {error}"));
    let status = wait(&mut child, limit);
    let mut ran = |code| Ran { what: what.clone(), code, out: text(&mut out), err: text(&mut err) };
    match status {
        Some(status) => ran(status.code()),
        None => panic!("took longer than {limit:?}: {}", ran(None)),
    }
}

/// Runs a line of shell in `dir`.
#[track_caller]
pub fn shell(dir: &std::path::Path, line: &str, limit: Duration) -> Ran {
    run(Command::new("bash").args(["-o", "pipefail", "-ec", line]).current_dir(dir).env("LC_ALL", "C"), limit)
}

/// Runs a Python program in `dir`.
#[track_caller]
pub fn python(dir: &std::path::Path, program: &str, args: &[&str], limit: Duration) -> Ran {
    run(Command::new("python3").args(["-c", program]).args(args).current_dir(dir), limit)
}

/// Waits for the process; ends it, and all that it started, at the limit.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let ended = wait_quietly(child, limit);
    if ended.is_none() {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        wait_quietly(child, Duration::from_secs(5));
    }
    ended
}

fn wait_quietly(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    while started.elapsed() < limit {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    None
}

fn temporary() -> File {
    tempfile::tempfile().expect("a temporary file")
}

fn cloned(file: &File) -> File {
    file.try_clone().expect("a copy of a file handle")
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits until `done`, or fails.
#[track_caller]
pub fn until(what: &str, limit: Duration, done: impl FnMut() -> bool) {
    assert!(until_true(limit, done), "{what}: not within {limit:?}");
}

/// Waits until `done`, or for `limit`; says whether it was.
pub fn until_true(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < limit {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    done()
}
