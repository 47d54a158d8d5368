//! One pool's state, for people and programs.

mod advice;

use poolfs::control::find::KnownPool;
use poolfs::maintain::damage::Damage;
use poolfs::maintain::scheduler::JobStatus;
use poolfs::maintain::settings::Settings;
use poolfs::member::metered::Traffic;
use poolfs::pool::status::{Health, MemberHealth, MemberStatus, Space};
use poolfs::units::format_size;
use serde::Serialize;
use uuid::Uuid;

use super::super::error::{Result, ToolError};
use super::super::follow::{counted, details, percent};
use super::super::output::{count, print_table, table, when};
use super::super::survey::{Survey, survey};
use super::state_word;

/// One pool's state.
#[derive(Debug, Serialize)]
pub struct Report {
    name: String,
    uuid: Uuid,
    /// How it is; when it is not mounted, as far as superblocks tell.
    pub health: Health,
    mounted: bool,
    read_only: bool,
    mountpoint: Option<String>,
    pid: Option<u32>,
    log: Option<String>,
    /// What the state means.
    meaning: String,
    /// What to do.
    action: Option<String>,
    resiliency: String,
    tolerance: u64,
    epoch: u64,
    slab_bytes: u64,
    /// Unknown when not mounted.
    sets: Option<u64>,
    sets_degraded: Option<u64>,
    sets_unreadable: Option<u64>,
    space: Option<Space>,
    members: Vec<MemberStatus>,
    /// Jobs that run, wait or rest, and then the last that ended.
    jobs: Vec<JobStatus>,
    last_scrub: Option<JobStatus>,
    /// Files of which something is lost.
    damage: Damage,
    settings: Option<Settings>,
}

impl Report {
    /// Asks the mounted process, or the members when there is none.
    ///
    /// # Errors
    /// [`ToolError::NoMemberHere`].
    pub fn of(pool: &KnownPool) -> Result<Self> {
        if let Some(mounted) = &pool.mounted {
            return Ok(Self::mounted(mounted));
        }
        match survey(pool) {
            (Some(survey), _) => Ok(Self::surveyed(pool, &survey)),
            (None, trouble) => {
                Err(ToolError::NoMemberHere { name: pool.name.clone(), members: trouble.join("; ") })
            }
        }
    }

    fn mounted(mount: &poolfs::control::protocol::MountStatus) -> Self {
        let pool = &mount.pool;
        let mut report = Self {
            name: pool.name.clone(),
            uuid: pool.uuid,
            health: pool.health,
            mounted: true,
            read_only: pool.read_only,
            mountpoint: Some(mount.mountpoint.clone()),
            pid: Some(mount.pid),
            log: mount.log.clone(),
            meaning: String::new(),
            action: None,
            resiliency: pool.resiliency.clone(),
            tolerance: pool.tolerance,
            epoch: pool.epoch,
            slab_bytes: pool.slab_bytes,
            sets: Some(pool.sets),
            sets_degraded: Some(pool.sets_degraded),
            sets_unreadable: Some(pool.sets_unreadable),
            space: Some(pool.space),
            members: pool.members.clone(),
            jobs: mount.jobs.clone(),
            last_scrub: mount.last_scrub.clone(),
            damage: mount.damage.clone(),
            settings: Some(mount.settings),
        };
        report.explain();
        report
    }

    fn surveyed(pool: &KnownPool, survey: &Survey) -> Self {
        let freshest = &survey.freshest;
        let mut report = Self {
            name: freshest.name.clone(),
            uuid: freshest.pool,
            health: survey.health(),
            mounted: false,
            read_only: false,
            mountpoint: pool.mountpoint.as_ref().map(|path| path.display().to_string()),
            pid: None,
            log: None,
            meaning: String::new(),
            action: None,
            resiliency: freshest.resiliency.to_string(),
            tolerance: freshest.resiliency.tolerance() as u64,
            epoch: freshest.epochs.last().map_or(0, |epoch| epoch.counter),
            slab_bytes: freshest.dimensions.slab_bytes,
            sets: None,
            sets_degraded: None,
            sets_unreadable: None,
            space: None,
            members: survey.members(),
            jobs: Vec::new(),
            last_scrub: None,
            damage: Damage::default(),
            settings: None,
        };
        report.explain();
        report
    }

    /// A pool of which nothing can be reached.
    pub fn missing(pool: &KnownPool, why: &str) -> Self {
        Self {
            name: pool.name.clone(),
            uuid: pool.uuid,
            health: Health::Unavailable,
            mounted: false,
            read_only: false,
            mountpoint: pool.mountpoint.as_ref().map(|path| path.display().to_string()),
            pid: None,
            log: None,
            meaning: why.to_owned(),
            action: Some("attach its members".to_owned()),
            resiliency: String::new(),
            tolerance: 0,
            epoch: 0,
            slab_bytes: 0,
            sets: None,
            sets_degraded: None,
            sets_unreadable: None,
            space: None,
            members: Vec::new(),
            jobs: Vec::new(),
            last_scrub: None,
            damage: Damage::default(),
            settings: None,
        }
    }

    fn explain(&mut self) {
        self.meaning = advice::meaning(self);
        self.action = advice::next_step(self);
    }

    /// Prints it: state, what it means, what to do, jobs, members, space, damaged files.
    pub fn print(&self, verbose: bool) {
        say!("  pool: {}  {}", self.name, self.uuid);
        let read_only = if self.read_only { ", read-only" } else { "" };
        say!(" state: {}{read_only}: {}", state_word(self.health).to_uppercase(), self.meaning);
        if let Some(action) = &self.action {
            say!("action: {action}");
        }
        match (&self.mountpoint, self.pid) {
            (Some(place), Some(pid)) => say!(" mount: {place}, served by process {pid}"),
            (Some(place), None) => say!(" mount: none ({place} when mounted)"),
            _ => say!(" mount: none"),
        }
        if self.members.is_empty() {
            return;
        }
        self.print_jobs();
        if verbose {
            self.print_details();
        }
        say!();
        self.print_members(verbose);
        say!();
        let survives = count(self.tolerance as usize, "member");
        say!("layout: {}, survives the loss of {survives}", self.resiliency);
        if let Some(space) = self.space {
            let used = space.total.saturating_sub(space.free);
            say!(
                " space: {} used of {}, {} available",
                format_size(used),
                format_size(space.total),
                format_size(space.available)
            );
        }
        self.print_sets();
        self.print_damage();
    }

    fn print_jobs(&self) {
        let running: Vec<&JobStatus> = self.jobs.iter().filter(|job| !job.state.has_ended()).collect();
        for job in &running {
            say!(
                "   job: {} ({}), {} % done, {}{}",
                job.text,
                job.id,
                percent(job),
                details(job),
                counted(job)
            );
        }
        match &self.last_scrub {
            Some(scrub) => {
                let when = when(scrub.ended.unwrap_or(scrub.started));
                say!(" scrub: last one ended {when}{}", counted(scrub));
            }
            None if self.mounted => say!(" scrub: none came to its end yet"),
            None => {}
        }
    }

    fn print_details(&self) {
        say!(" epoch: {}, slabs of {}", self.epoch, format_size(self.slab_bytes));
        if let Some(Settings { job_rate, job_window }) = &self.settings {
            say!("  jobs: job-rate={job_rate}, job-window={job_window}");
        }
        if let Some(log) = &self.log {
            say!("   log: {log}");
        }
    }

    fn print_damage(&self) {
        let Damage { files, more_ranges } = &self.damage;
        if files.is_empty() {
            return;
        }
        say!();
        say!("damaged: {} with parts that can't be read or rebuilt", count(files.len(), "file"));
        for file in files {
            let ranges: Vec<String> =
                file.ranges.iter().map(|(offset, len)| format!("{offset}+{len}")).collect();
            let ranges = ranges.join(", ");
            match &file.paths[..] {
                [] => say!("  inode {} (it has no name any more): {ranges}", file.ino),
                paths => paths.iter().for_each(|path| say!("  {path}: {ranges}")),
            }
        }
        if *more_ranges > 0 {
            say!("  and {more_ranges} more ranges");
        }
    }

    fn print_sets(&self) {
        if let (Some(sets), Some(degraded), Some(unreadable)) =
            (self.sets, self.sets_degraded, self.sets_unreadable)
            && degraded + unreadable > 0
        {
            say!("  sets: {sets}, {degraded} without full redundancy, {unreadable} that can't be read");
        }
    }

    fn print_members(&self, verbose: bool) {
        let mut header = vec!["MEMBER", "STATE", "SLABS", "USED", "READ", "WRITE", "CKSUM", "HEALED"];
        if verbose {
            header.extend(["WAS READ", "WAS WRITTEN", "UUID"]);
        }
        let mut shown = table(&header, 2);
        for member in &self.members {
            let numbers = [
                member.slabs,
                member.slabs_used,
                member.read_errors,
                member.write_errors,
                member.checksum_errors,
                member.healed,
            ];
            let mut row = vec![member.path.clone(), member_word(member.health).to_owned()];
            row.extend(numbers.map(|number| number.to_string()));
            if verbose {
                let Traffic { read_bytes, written_bytes, .. } = member.traffic;
                row.extend([format_size(read_bytes), format_size(written_bytes), member.uuid.to_string()]);
            }
            shown.add_row(row);
        }
        print_table(&shown);
        for member in &self.members {
            if let Some(note) = &member.note {
                say!("  {}: {note}", member.path);
            }
        }
    }
}

fn member_word(health: MemberHealth) -> &'static str {
    match health {
        MemberHealth::Online => "online",
        MemberHealth::Missing => "MISSING",
        MemberHealth::Slow => "SLOW",
        MemberHealth::Failing => "FAILING",
        MemberHealth::Diverged => "DIVERGED",
        MemberHealth::Offline => "OFFLINE",
        MemberHealth::Evacuating => "evacuating",
        MemberHealth::Removed => "removed",
    }
}
