//! What a mounted pool answers to each request. Translation only: what is done is in [`crate::maintain`].

use super::protocol::{Answer, MountStatus, Request};
use crate::maintain::operations::{OperationError, member_named};
use crate::maintain::scheduler::ScheduleError;
use crate::maintain::settings::Settings;
use crate::maintain::{Maintenance, damage, places};
use crate::sync::{Arc, Mutex};
use std::fmt::Display;
use std::time::Duration;

/// What is damaged is looked up at most so often: that takes a walk through all directories.
const DAMAGE_AGE: Duration = Duration::from_secs(10);

/// Answers for one mounted pool.
#[derive(Debug)]
pub struct Answers {
    maintenance: Arc<Maintenance>,
    mountpoint: String,
    log: Option<String>,
    damage: Mutex<Option<(Duration, damage::Damage)>>,
}

impl Answers {
    /// For the pool that is mounted at `mountpoint`, by a process that logs to `log`.
    pub fn new(maintenance: Arc<Maintenance>, mountpoint: String, log: Option<String>) -> Self {
        Self { maintenance, mountpoint, log, damage: Mutex::new(None) }
    }

    /// The answer.
    pub fn answer(&self, request: Request) -> Answer {
        match self.try_answer(request) {
            Ok(answer) => answer,
            Err(why) => Answer::Error(why),
        }
    }

    fn try_answer(&self, request: Request) -> Result<Answer, String> {
        let scheduler = self.maintenance.scheduler();
        let fs = self.maintenance.fs();
        Ok(match request {
            Request::Pid => Answer::Pid(std::process::id()),
            Request::Sync => fs.sync_all().map(|()| Answer::Done).map_err(text)?,
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Jobs => Answer::Jobs(self.maintenance.jobs()),
            Request::Steer { job, steer } => {
                Answer::Job(Box::new(scheduler.steer(&job, steer).map_err(text)?))
            }
            Request::Perform { operation, dry_run } => {
                Answer::Outcome(Box::new(self.maintenance.perform(&operation, dry_run).map_err(text)?))
            }
            Request::Set { job_rate, job_window, refuse_short_writes } => {
                self.set(job_rate, job_window, refuse_short_writes)?;
                Answer::Done
            }
            Request::Events { after } => Answer::Events(self.maintenance.events().after(after)),
            Request::WhatIf { lose } => {
                let members: Result<Vec<_>, OperationError> =
                    lose.iter().map(|text| member_named(fs, text).map(|member| member.id)).collect();
                let found = places::what_if(fs, &members.map_err(text)?).map_err(text)?;
                Answer::WhatIf(Box::new(found))
            }
            Request::Locate { ino } => Answer::Located(Box::new(places::locate(fs, ino).map_err(text)?)),
        })
    }

    fn status(&self) -> MountStatus {
        let scheduler = self.maintenance.scheduler();
        MountStatus {
            pool: self.maintenance.fs().pool().status(),
            mountpoint: self.mountpoint.clone(),
            pid: std::process::id(),
            log: self.log.clone(),
            jobs: self.maintenance.jobs(),
            last_scrub: scheduler.last_scrub(),
            damage: self.damage(),
            settings: scheduler.settings(),
            refuses_short_writes: self.maintenance.fs().pool().refuses_short_writes(),
        }
    }

    fn damage(&self) -> damage::Damage {
        let fs = self.maintenance.fs();
        let mut known = self.damage.lock();
        let now = fs.clock().elapsed();
        if !damage::is_any(fs).unwrap_or(false) {
            *known = None;
            return damage::Damage::default();
        }
        if let Some((at, damage)) = &*known
            && now.saturating_sub(*at) < DAMAGE_AGE
        {
            return damage.clone();
        }
        let found = damage::list(fs).unwrap_or_else(|error| {
            log::warn!("what is damaged can't be listed: {error}");
            damage::Damage::default()
        });
        *known = Some((fs.clock().elapsed(), found.clone()));
        found
    }

    fn set(
        &self,
        job_rate: Option<crate::maintain::settings::JobRate>,
        job_window: Option<crate::maintain::settings::JobWindow>,
        refuse_short_writes: Option<bool>,
    ) -> Result<(), String> {
        let scheduler = self.maintenance.scheduler();
        if self.maintenance.fs().pool().read_only() {
            return Err(text(ScheduleError::ReadOnly));
        }
        if let Some(refuse) = refuse_short_writes {
            self.maintenance.fs().store().refuse_short_writes(refuse).map_err(text)?;
        }
        if job_rate.is_some() || job_window.is_some() {
            let old = scheduler.settings();
            let settings = Settings {
                job_rate: job_rate.unwrap_or(old.job_rate),
                job_window: job_window.unwrap_or(old.job_window),
            };
            scheduler.set(settings).map_err(text)?;
        }
        Ok(())
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}
