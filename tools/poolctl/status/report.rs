//! One pool's state, for people and programs.

use poolfs::control::find::KnownPool;
use poolfs::member::metered::Traffic;
use poolfs::pool::status::{Health, MemberHealth, MemberStatus, Space};
use poolfs::units::format_size;
use serde::Serialize;
use uuid::Uuid;

use super::super::error::{Result, ToolError};
use super::super::output::{count, print_table, table};
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
        }
    }

    fn explain(&mut self) {
        let absent = self.members.iter().filter(|member| member.health == MemberHealth::Missing).count();
        let failed = self.members.iter().filter(|member| member.health == MemberHealth::Failing).count();
        let diverged = self.members.iter().filter(|member| member.health == MemberHealth::Diverged).count();
        let away: Vec<String> = [(absent, "missing"), (failed, "failed"), (diverged, "diverged")]
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, word)| format!("{} {word}", count(number, "member")))
            .collect();
        let away = if away.is_empty() { "redundancy is missing".to_owned() } else { away.join(", ") };
        self.meaning = match (self.health, self.mounted) {
            (Health::Online, true) => "all members are there, with full redundancy".to_owned(),
            (Health::Online, false) => "all members are there; the pool is not mounted".to_owned(),
            (Health::Degraded, true) => format!(
                "{away}: everything can be read, and {}",
                if self.read_only {
                    "nothing is written"
                } else {
                    "new data is written to the members that are left"
                }
            ),
            (Health::Degraded, false) => {
                format!("{away}: everything can still be read when the pool is mounted")
            }
            (Health::Unavailable, true) => format!("{away}: some data can't be read"),
            (Health::Unavailable, false) => {
                format!("{away}, more than {} survives: some data may be out of reach", self.resiliency)
            }
        };
        self.action = self.next_step(absent > 0, failed > 0, diverged > 0);
    }

    fn next_step(&self, absent: bool, failed: bool, diverged: bool) -> Option<String> {
        let place = self.mountpoint.as_deref().unwrap_or("MOUNTPOINT");
        let again = match self.mounted {
            true => format!("`poolfs umount {place}` and `poolfs mount {place}`"),
            false => format!("`poolfs mount {place}`"),
        };
        match self.health {
            Health::Online if self.mounted => None,
            Health::Online => Some(format!("`poolfs mount {place}` mounts it")),
            _ if failed => Some(format!("replace or repair the failed disk (see its note), then {again}")),
            _ if absent => Some(format!("attach the missing members where they were, then {again}")),
            _ if diverged => Some(
                "look at the diverged member with `poolctl examine`; `poolfs mount -o ro,diverged` reads it by itself"
                    .to_owned(),
            ),
            _ => Some(format!("`poolctl status -v {}` names the sets", self.name)),
        }
    }

    /// Prints it.
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
        say!(
            "layout: {}, survives the loss of {}",
            self.resiliency,
            count(self.tolerance as usize, "member")
        );
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
        if verbose {
            say!(" epoch: {}, slabs of {}", self.epoch, format_size(self.slab_bytes));
            if let Some(log) = &self.log {
                say!("   log: {log}");
            }
        }
        say!();
        self.print_members(verbose);
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
