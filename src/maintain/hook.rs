//! The event hook: a program of the user's that is told of every event.
//!
//! It gets the event as one line of JSON on its standard input, with the pool's name and UUID. Events come one after the
//! other, in order; a program that takes too long is ended, and the next event comes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use uuid::Uuid;

use super::events::Event;
use crate::sync::{JoinHandle, Mutex, mpsc, spawn};

/// The program may take so long for one event.
const LIMIT: Duration = Duration::from_secs(10);
/// Events that wait for the program; more are left out, and that is logged.
const WAITING_MAX: usize = 256;

/// What the program gets.
#[derive(Debug, Serialize)]
struct Line<'a> {
    version: u32,
    pool: &'a str,
    uuid: Uuid,
    #[serde(flatten)]
    event: &'a Event,
}

/// The thread that runs the program.
#[derive(Debug)]
pub struct Hook {
    events: Mutex<Option<mpsc::SyncSender<Event>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Hook {
    /// Runs `program` for each event of this pool from now on.
    pub fn start(program: PathBuf, pool: String, uuid: Uuid) -> Self {
        let (events, inbox) = mpsc::sync_channel::<Event>(WAITING_MAX);
        let thread = spawn("event-hook", move || {
            for event in inbox {
                if let Err(error) =
                    tell(&program, &Line { version: 1, pool: &pool, uuid, event: &event }, LIMIT)
                {
                    log::warn!("the event hook {}: {error}", program.display());
                }
            }
        });
        Self { events: Mutex::new(Some(events)), thread: Mutex::new(Some(thread)) }
    }

    /// Hands it an event; does not wait.
    pub fn hand(&self, event: &Event) {
        let events = self.events.lock();
        if let Some(events) = &*events
            && events.try_send(event.clone()).is_err()
        {
            log::warn!("the event hook is too slow: event {} is left out", event.number);
        }
    }

    /// Waits until it was told of all events so far, and ends it.
    pub fn stop(&self) {
        drop(self.events.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn tell(program: &Path, line: &Line, limit: Duration) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // It may end without reading. A line is shorter than what a pipe holds, so this does not wait.
        let _ = input.write_all(&text);
    }
    wait(&mut child, limit)
}

fn wait(child: &mut Child, limit: Duration) -> std::io::Result<()> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return match status.success() {
                true => Ok(()),
                false => Err(std::io::Error::other(format!("it ended with {status}"))),
            };
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Err(std::io::Error::other(format!("it took longer than {limit:?} and was ended")));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::events::What;
    use super::*;
    use crate::sync::Timestamp;

    fn script(dir: &Path, body: &str) -> PathBuf {
        let path = dir.join("hook");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("may be run");
        path
    }

    fn event(number: u64) -> Event {
        Event {
            number,
            at: Timestamp::default(),
            what: What::Member,
            text: "disk0 is missing".into(),
            member: Some(0),
            path: Some("disk0".into()),
            numbers: Default::default(),
        }
    }

    #[test]
    fn every_event_is_told_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let out = dir.path().join("told");
        let hook = Hook::start(
            script(dir.path(), &format!("cat >> {}", out.display())),
            "tank".into(),
            Uuid::from_u128(5),
        );
        (1..=3).for_each(|number| hook.hand(&event(number)));
        hook.stop();
        let told = std::fs::read_to_string(&out).expect("it was told");
        let lines: Vec<serde_json::Value> =
            told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let numbers: Vec<u64> = lines.iter().filter_map(|line| line["number"].as_u64()).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!((&lines[0]["pool"], &lines[0]["what"]), (&"tank".into(), &"member".into()));
        assert_eq!((&lines[0]["version"], &lines[0]["path"]), (&1.into(), &"disk0".into()));
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = script(dir.path(), "exec sleep 1000");
        let line = Line { version: 1, pool: "tank", uuid: Uuid::nil(), event: &event(1) };
        let started = Instant::now();
        let error = tell(&program, &line, Duration::from_millis(50)).expect_err("it took too long");
        assert!(error.to_string().contains("longer"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(tell(Path::new("/nonexistent/hook"), &line, LIMIT).is_err());
        let fails = script(dir.path(), "exit 3");
        assert!(tell(&fails, &line, LIMIT).is_err());
    }
}
