//! What happens by itself: a missing member that is there again is taken back, what a member held that stays away is
//! rebuilt elsewhere after a while, and what readers find unreadable is noted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::Maintenance;
use super::damage;
use super::events::{News, What};
use super::job::{JobKind, Unsaved};
use super::repair::Repair;
use super::scheduler::ScheduleError;
use crate::member::open;
use crate::member::superblock::MemberId;
use crate::pool::Found;
use crate::pool::status::MemberHealth;
use crate::sync::{Arc, spawn};
use crate::units::SECTOR;

/// Missing members are looked for so often.
const LOOK_FOR_MISSING: Duration = Duration::from_secs(5);

/// What is known of members that are not well.
#[derive(Debug, Default)]
pub(super) struct Care {
    /// Since when each is away.
    away_since: BTreeMap<MemberId, Duration>,
    /// Those for which a repair was started.
    repaired: BTreeSet<MemberId>,
    looked_at: Duration,
    /// Somebody looks for members now. It may hang with a dead disk, so nobody waits for it.
    looking: bool,
    /// Damage is known of already.
    damaged: bool,
}

impl Maintenance {
    /// Members that are not well are taken care of.
    pub(super) fn care(&self) {
        let pool = self.fs().pool();
        if pool.read_only() || *self.stop.lock() {
            return;
        }
        let now = self.fs().clock().elapsed();
        let mut overdue = Vec::new();
        {
            let mut care = self.care.lock();
            for member in pool.members().iter() {
                // One that was taken offline by hand stays away as long as it is.
                let (health, _) = member.health();
                if !matches!(health, MemberHealth::Missing | MemberHealth::Failing) {
                    care.away_since.remove(&member.id);
                    care.repaired.remove(&member.id);
                    continue;
                }
                let since = *care.away_since.entry(member.id).or_insert(now);
                let is_overdue = self.grace.is_some_and(|grace| now.saturating_sub(since) >= grace);
                if is_overdue && !care.repaired.contains(&member.id) {
                    overdue.push(member.id);
                }
            }
        }
        if !overdue.is_empty() && self.repair_for(&overdue) {
            self.care.lock().repaired.extend(overdue);
        }
    }

    /// Starts a repair, if there is something to rebuild. False when it is to be tried again.
    fn repair_for(&self, members: &[MemberId]) -> bool {
        if Repair::plan(self.fs()).move_bytes == 0 {
            return true;
        }
        let places: Vec<String> =
            members.iter().map(|id| self.fs().pool().members()[usize::from(*id)].place()).collect();
        match self.scheduler().start_kind(&JobKind::Repair) {
            Ok(_) => {
                let text =
                    format!("{} did not come back: what lay there is rebuilt elsewhere", places.join(", "));
                self.events().note(News::new(What::Member, text));
                true
            }
            Err(ScheduleError::Running { .. }) => true,
            Err(error) => {
                log::warn!("no repair for {}: {error}", places.join(", "));
                false
            }
        }
    }

    /// Looks for missing members where they were last seen, now and then, in a thread of its own.
    pub(super) fn look_for_missing(self: &Arc<Self>) {
        let now = self.fs().clock().elapsed();
        let missing: Vec<String> = {
            let mut care = self.care.lock();
            if care.looking || now.saturating_sub(care.looked_at) < LOOK_FOR_MISSING {
                return;
            }
            care.looked_at = now;
            let members = self.fs().pool().members().iter();
            let missing = members.filter(|member| member.health().0 == MemberHealth::Missing);
            let missing: Vec<String> = missing.map(|member| member.place()).collect();
            care.looking = !missing.is_empty() && !self.fs().pool().read_only();
            if !care.looking {
                return;
            }
            missing
        };
        let own = Arc::clone(self);
        spawn("missing", move || {
            missing.iter().for_each(|place| own.take_back(Path::new(place)));
            own.care.lock().looking = false;
        });
    }

    /// Takes a member back, if it is there and may come back.
    fn take_back(&self, place: &Path) {
        if open::peek(place).is_err() {
            return;
        }
        let (disk, superblock) = match open::open(place, None, false) {
            Ok(opened) => opened,
            Err(error) => {
                log::debug!("{error}");
                return;
            }
        };
        let found = Found { disk, superblock };
        let closed = self.closed.lock();
        if *closed || self.fs().pool().check_return(&found).is_err() {
            return;
        }
        let shown = place.display().to_string();
        match self.fs().store().bring_online(found) {
            Ok(id) => {
                let text = format!("{shown} is there again and was taken back");
                self.events().note(News::new(What::Member, text).of(id, &shown));
            }
            Err(error) => log::info!("{shown} is there again, and not taken back yet: {error}"),
        }
    }

    /// Notes what readers found unreadable, and tells of damage once.
    pub(super) fn note_damage(&self) {
        let found = self.fs().take_unreadable();
        let unsaved: Vec<Unsaved> =
            found.into_iter().map(|(set, address)| Unsaved { set, address, len: SECTOR }).collect();
        if !unsaved.is_empty()
            && !self.fs().pool().read_only()
            && let Err(error) = damage::note_unsaved(self.fs(), &unsaved)
        {
            log::warn!("what can't be read was not noted: {error}");
        }
        let damaged = damage::is_any(self.fs()).unwrap_or(false);
        let was = std::mem::replace(&mut self.care.lock().damaged, damaged);
        if damaged != was {
            let text = if damaged {
                "parts of files are lost: `poolctl status` names them"
            } else {
                "nothing is lost any more"
            };
            self.events().note(News::new(What::Damage, format!("pool {}: {text}", self.fs().pool().name())));
        }
    }
}
