//! `poolctl events`.

use std::process::ExitCode;
use std::time::Duration;

use poolfs::control::find::find;
use poolfs::control::protocol::{Answer, Request};
use poolfs::maintain::events::Event;
use serde::Serialize;

use super::error::Result;
use super::output::{json, json_line, when};
use super::perform::mounted_or_only;
use super::session::{Access, Session};

/// With -f it is asked so often.
const LOOK: Duration = Duration::from_millis(500);

/// Show what happened, with times.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool (default: the only one that is mounted).
    pool: Option<String>,
    /// Go on and show what happens, until Ctrl-C or until the pool is unmounted.
    #[arg(short, long)]
    follow: bool,
    /// As JSON; with -f one line for each event.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    events: Vec<Event>,
}

/// Shows them.
///
/// # Errors
/// When the pool is not mounted.
pub fn run(args: &Args) -> Result<ExitCode> {
    let pool = match &args.pool {
        Some(pool) => find(pool)?,
        None => mounted_or_only(None, "events of")?,
    };
    let session = Session::of(pool, Access::Read)?;
    let mut events = after(&session, 0)?;
    if args.json && !args.follow {
        json(Shown { events })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut last = 0;
    loop {
        for event in &events {
            last = event.number;
            if args.json {
                json_line(event)?;
            } else {
                say!("{}  {:<12} {}", when(event.at), word(event), event.text);
            }
        }
        if !args.follow || !session.is_mounted() {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
        events = match after(&session, last) {
            Ok(events) => events,
            // It was unmounted.
            Err(_) => return Ok(ExitCode::SUCCESS),
        };
    }
}

fn word(event: &Event) -> String {
    let word = serde_json::to_value(event.what).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

fn after(session: &Session, after: u64) -> Result<Vec<Event>> {
    match session.ask(&Request::Events { after })? {
        Answer::Events(events) => Ok(events),
        other => Err(session.unexpected(&other)),
    }
}
