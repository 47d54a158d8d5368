//! What can be set of the jobs of a pool, kept as text in a table.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fs::{Fs, Result};
use crate::store::Tx;
use crate::store::tables::Table;
use crate::units::parse_size;

/// Slowest rate that can be set, in bytes a second: a job that moves less never ends.
const RATE_MIN: u64 = 64 * 1024;

/// How fast jobs go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum JobRate {
    /// As fast as it goes while nobody else uses the disks, a small part of their time otherwise.
    #[default]
    Auto,
    /// At most so many bytes a second, and never more than [`JobRate::Auto`] would.
    Bytes(u64),
}

/// When jobs may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum JobWindow {
    /// At any time.
    #[default]
    Always,
    /// From one minute of the day to another, by the clock of the machine; over midnight when the first is later.
    Between(u16, u16),
}

/// Why a setting can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSetting {
    /// No rate.
    #[error(
        "job-rate={text} is not possible: take auto, or a size of at least 64K such as 20M, which is for a second"
    )]
    Rate {
        /// What was typed.
        text: String,
    },
    /// No window.
    #[error("job-window={text} is not possible: take HH:MM-HH:MM such as 22:00-06:30, or always")]
    Window {
        /// What was typed.
        text: String,
    },
}

impl FromStr for JobRate {
    type Err = BadSetting;

    fn from_str(text: &str) -> std::result::Result<Self, BadSetting> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match parse_size(text) {
            Ok(bytes) if bytes >= RATE_MIN => Ok(Self::Bytes(bytes)),
            _ => Err(BadSetting::Rate { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for JobRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for JobWindow {
    type Err = BadSetting;

    fn from_str(text: &str) -> std::result::Result<Self, BadSetting> {
        if text == "always" {
            return Ok(Self::Always);
        }
        let between = text.split_once('-').and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
        match between {
            Some((from, to)) if from != to => Ok(Self::Between(from, to)),
            _ => Err(BadSetting::Window { text: text.to_owned() }),
        }
    }
}

/// `HH:MM` as a minute of the day.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str, below: u16| {
        let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|number| plain && *number < below)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

impl fmt::Display for JobWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.pad("always"),
            Self::Between(from, to) => {
                write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
            }
        }
    }
}

impl JobWindow {
    /// Whether jobs may run at this minute of the day.
    pub fn is_open(&self, minute: u16) -> bool {
        match *self {
            Self::Always => true,
            Self::Between(from, to) if from < to => (from..to).contains(&minute),
            Self::Between(from, to) => minute >= from || minute < to,
        }
    }
}

impl From<JobRate> for String {
    fn from(rate: JobRate) -> Self {
        rate.to_string()
    }
}

impl TryFrom<String> for JobRate {
    type Error = BadSetting;

    fn try_from(text: String) -> std::result::Result<Self, BadSetting> {
        text.parse()
    }
}

impl From<JobWindow> for String {
    fn from(window: JobWindow) -> Self {
        window.to_string()
    }
}

impl TryFrom<String> for JobWindow {
    type Error = BadSetting;

    fn try_from(text: String) -> std::result::Result<Self, BadSetting> {
        text.parse()
    }
}

/// All settings of the jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Settings {
    /// How fast they go.
    pub job_rate: JobRate,
    /// When they may run.
    pub job_window: JobWindow,
}

impl Settings {
    /// As the tables have them; the default where they say nothing, or nonsense.
    pub fn load(fs: &Fs) -> Self {
        Self {
            job_rate: load_one(fs, "job-rate").unwrap_or_default(),
            job_window: load_one(fs, "job-window").unwrap_or_default(),
        }
    }

    /// Puts them into the tables.
    ///
    /// # Errors
    /// Those of committing.
    pub fn store(&self, fs: &Fs) -> Result<()> {
        let mut tx = Tx::new();
        for (name, text) in
            [("job-rate", self.job_rate.to_string()), ("job-window", self.job_window.to_string())]
        {
            tx.put_raw(Table::Settings, name.into(), text.into_bytes());
        }
        let seq = fs.commit_records(tx)?;
        Ok(fs.store().sync(seq)?)
    }
}

fn load_one<T: FromStr>(fs: &Fs, name: &str) -> Option<T> {
    let found = fs.store().get(Table::Settings, name.as_bytes()).unwrap_or_else(|error| {
        log::warn!("the setting {name} can't be read: {error}");
        None
    });
    String::from_utf8(found?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_people_type_them() {
        assert_eq!("auto".parse(), Ok(JobRate::Auto));
        assert_eq!("20M".parse(), Ok(JobRate::Bytes(20 << 20)));
        assert_eq!("always".parse(), Ok(JobWindow::Always));
        assert_eq!("22:00-06:30".parse(), Ok(JobWindow::Between(22 * 60, 6 * 60 + 30)));
        assert_eq!(JobWindow::Between(65, 1439).to_string(), "01:05-23:59");
        for text in ["", "fast", "-1", "1K", "20M/s"] {
            assert!(text.parse::<JobRate>().is_err(), "{text:?} was taken");
        }
        for text in
            ["", "22-06", "22:00", "24:00-01:00", "1:00-2:00", "01:60-02:00", "01:00-01:00", "+1:00-02:00"]
        {
            assert!(text.parse::<JobWindow>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn a_window_may_go_over_midnight() {
        let night: JobWindow = "22:00-06:00".parse().expect("a window");
        assert!(night.is_open(23 * 60) && night.is_open(0) && night.is_open(359));
        assert!(!night.is_open(360) && !night.is_open(12 * 60));
        let day: JobWindow = "08:00-09:00".parse().expect("a window");
        assert!(day.is_open(480) && !day.is_open(540) && !day.is_open(0));
    }
}
