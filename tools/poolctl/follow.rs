//! Shows how far a job is until it has ended: a bar on a terminal, lines otherwise.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use poolfs::control::protocol::{Answer, Request};
use poolfs::maintain::scheduler::{JobId, JobState, JobStatus};
use poolfs::units::format_size;

use super::error::{Result, ToolError};
use super::session::Session;

/// It is asked so often.
const LOOK: Duration = Duration::from_millis(250);
/// A line is written so often, or when the state is another.
const LINE: Duration = Duration::from_secs(10);

/// All jobs of a pool.
///
/// # Errors
/// When its process does not answer.
pub fn jobs(session: &Session) -> Result<Vec<JobStatus>> {
    match session.ask(&Request::Jobs)? {
        Answer::Jobs(jobs) => Ok(jobs),
        other => Err(session.unexpected(&other)),
    }
}

/// Follows a job to its end. Exit code 0 when it did all it was to do. Whoever ends this command does not end the job.
///
/// # Errors
/// [`ToolError::JobEnded`], [`ToolError::NoSuchJob`]; when the process does not answer any more.
pub fn follow(session: &Session, id: JobId) -> Result<ExitCode> {
    let mut view = View::new();
    loop {
        let all = jobs(session)?;
        let job = all.into_iter().find(|job| job.id == id).ok_or(ToolError::NoSuchJob { job: id })?;
        view.show(&job);
        if job.state.has_ended() {
            view.end(&job);
            return ended(&job);
        }
        std::thread::sleep(LOOK);
    }
}

fn ended(job: &JobStatus) -> Result<ExitCode> {
    let how = match job.state {
        JobState::Done => return Ok(ExitCode::SUCCESS),
        JobState::Cancelled => "was cancelled".to_owned(),
        _ => format!("failed: {}", job.because.as_deref().unwrap_or("it did not say why")),
    };
    Err(ToolError::JobEnded { what: job.text.clone(), how })
}

/// How it is shown.
struct View {
    bar: Option<ProgressBar>,
    last: Option<(Instant, JobState)>,
}

impl View {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}%  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        Self { bar, last: None }
    }

    fn show(&mut self, job: &JobStatus) {
        let text = details(job);
        if let Some(bar) = &self.bar {
            bar.set_length(job.total_bytes);
            bar.set_position(job.done_bytes);
            bar.set_prefix(job.text.clone());
            bar.set_message(text);
            return;
        }
        let due = self.last.is_none_or(|(at, state)| state != job.state || at.elapsed() >= LINE);
        if due && !job.state.has_ended() {
            self.last = Some((Instant::now(), job.state));
            say!("{}: {} % {text}", job.text, percent(job));
        }
    }

    fn end(&self, job: &JobStatus) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if job.state == JobState::Done {
            say!("{} is done{}", job.text, counted(job));
        }
    }
}

/// How far it is, in whole percent.
pub fn percent(job: &JobStatus) -> u64 {
    match job.total_bytes {
        0 => 0,
        total => (u128::from(job.done_bytes) * 100 / u128::from(total)).min(100) as u64,
    }
}

/// Rate, time left, or why it does not go on.
pub fn details(job: &JobStatus) -> String {
    let of = format!("{} of {}", format_size(job.done_bytes), format_size(job.total_bytes));
    match job.state {
        _ if job.stalled => format!("{of}, NOTHING HAS MOVED for a minute"),
        JobState::Pending => format!("{of}, pending: {}", job.because.as_deref().unwrap_or("?")),
        JobState::Paused => format!("{of}, paused"),
        JobState::Running => {
            let rate = job.rate.map(|rate| format!(", {}/s", format_size(rate))).unwrap_or_default();
            let left = job.eta.map(|eta| format!(", {} left", duration(eta))).unwrap_or_default();
            format!("{of}{rate}{left}")
        }
        JobState::Done | JobState::Failed | JobState::Cancelled => of,
    }
}

/// What it has counted, as far as it is not 0: `: 5 healed, 2 lost`.
pub fn counted(job: &JobStatus) -> String {
    let counts: Vec<String> = job
        .counts
        .iter()
        .filter(|count| count.number > 0)
        .map(|count| format!("{} {}", count.number, count.what))
        .collect();
    if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) }
}

/// Seconds for people: `3 h 20 min`, `45 s`.
pub fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
