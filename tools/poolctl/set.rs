//! `poolctl set`.

use std::process::ExitCode;

use poolfs::control::find::find;
use poolfs::control::protocol::{Answer, Request};
use poolfs::maintain::settings::{BadSetting, JobRate, JobWindow};

use super::error::{Result, ToolError};
use super::session::{Access, Session};

/// Change settings of a pool: job-rate=SIZE|auto (a second), job-window=HH:MM-HH:MM|always, short-writes=allow|refuse.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool.
    pool: String,
    /// What to set.
    #[arg(required = true, value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Only check them.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// What was typed.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    rate: Option<JobRate>,
    window: Option<JobWindow>,
    refuse: Option<bool>,
}

/// Sets them.
///
/// # Errors
/// When one makes no sense: then none is set.
pub fn run(args: &Args) -> Result<ExitCode> {
    let wanted = parse(&args.settings)?;
    if args.dry_run {
        find(&args.pool)?;
        say!("nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(&args.pool, Access::Write)?;
    let request =
        Request::Set { job_rate: wanted.rate, job_window: wanted.window, refuse_short_writes: wanted.refuse };
    match session.ask(&request)? {
        Answer::Done => Ok(ExitCode::SUCCESS),
        other => Err(session.unexpected(&other)),
    }
}

fn parse(settings: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    for text in settings {
        let bad = |why: String| ToolError::Setting { text: text.clone(), why };
        match text.split_once('=') {
            Some(("job-rate", value)) => {
                wanted.rate = Some(value.parse().map_err(|e: BadSetting| bad(e.to_string()))?);
            }
            Some(("job-window", value)) => {
                wanted.window = Some(value.parse().map_err(|e: BadSetting| bad(e.to_string()))?);
            }
            Some(("short-writes", "allow")) => wanted.refuse = Some(false),
            Some(("short-writes", "refuse")) => wanted.refuse = Some(true),
            Some(("short-writes", _)) => return Err(bad("take allow or refuse".to_owned())),
            _ => {
                return Err(bad(
                    "take job-rate=SIZE|auto, job-window=HH:MM-HH:MM|always or short-writes=allow|refuse"
                        .to_owned(),
                ));
            }
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_taken_together_or_not_at_all() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let wanted = parse(&words("job-rate=auto short-writes=refuse")).expect("both");
        assert_eq!(wanted, Wanted { rate: Some(JobRate::Auto), window: None, refuse: Some(true) });
        for text in ["job-rate", "job-rate=fast", "short-writes=maybe", "job-window=1-2", "colour=blue"] {
            assert!(parse(&words(text)).is_err_and(|error| error.exit_code() == 2), "{text:?} was taken");
        }
    }
}
