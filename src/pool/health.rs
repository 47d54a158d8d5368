//! The pool's own account of how it is.

use std::collections::HashSet;
use std::time::Duration;

use super::Pool;
use super::roster::Member;
use super::sets::Set;
use super::status::{Health, MemberHealth, MemberStatus, PoolStatus};
use super::trouble::Kind;
use crate::member::superblock::{MemberId, Purpose, SetId};
use crate::sync::Arc;

/// An answer that is owed for longer holds others up.
const STALLED: Duration = Duration::from_secs(1);

/// How a set would be without some members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetWithout {
    /// Its number.
    pub id: SetId,
    /// What it holds.
    pub purpose: Purpose,
    /// Bytes in it that are alive.
    pub live: u64,
    /// All of it could be read.
    pub readable: bool,
    /// It would lack redundancy.
    pub degraded: bool,
}

impl Pool {
    /// The state of the pool for people and programs.
    pub fn status(&self) -> PoolStatus {
        let sets = self.sets.all();
        let nothing = HashSet::new();
        let unreadable = sets.iter().filter(|set| !self.is_readable(set, &nothing)).count() as u64;
        let degraded = sets.iter().filter(|set| self.lacks_redundancy(set)).count() as u64;
        let members: Vec<MemberStatus> =
            self.members().iter().map(|member| status_of(member, self.now())).collect();
        let all_well = self.members().iter().all(|member| !member.is_active() || member.is_writable());
        let health = match (unreadable, degraded, all_well) {
            (0, 0, true) => Health::Online,
            (0, _, _) => Health::Degraded,
            _ => Health::Unavailable,
        };
        PoolStatus {
            name: self.name(),
            uuid: self.uuid(),
            health,
            read_only: self.read_only(),
            resiliency: self.default_resiliency().to_string(),
            tolerance: self.default_resiliency().tolerance() as u64,
            epoch: self.last_epoch(),
            slab_bytes: self.dimensions().slab_bytes,
            members,
            sets: sets.len() as u64,
            sets_degraded: degraded,
            sets_unreadable: unreadable,
            space: self.space(&self.default_resiliency()),
        }
    }

    /// How every set that holds something would be without the members in `lost`.
    pub fn sets_without(&self, lost: &HashSet<MemberId>) -> Vec<SetWithout> {
        // Nobody should count on one that is failing.
        let is_well = |member: &Member| member.is_here() && member.health().0 != MemberHealth::Failing;
        let here = |id: MemberId| !lost.contains(&id) && is_well(self.member(id));
        let sets = self.sets.all();
        let in_use = sets.iter().filter(|set| set.live() > 0);
        let without = in_use.map(|set| SetWithout {
            id: set.id,
            purpose: set.purpose,
            live: set.live().max(0) as u64,
            readable: Self::is_readable_with(set, here),
            degraded: set.short || !set.slots.iter().all(|slot| here(slot.member)),
        });
        without.collect()
    }

    /// The last epoch's number. While one is being published, which a hanging member holds up, the one that begins.
    fn last_epoch(&self) -> u64 {
        match self.superblock.try_lock() {
            Some(state) => state.last_epoch(),
            None => self.epoch_counter(),
        }
    }

    /// Whether some member that takes writes has owed an answer for so long that whoever needs it may wait long.
    pub fn is_stalled(&self) -> bool {
        let now = self.now();
        let owes = |member: &Arc<Member>| member.pulse.owes_since(now).is_some_and(|owed| owed > STALLED);
        self.members().iter().any(|member| member.is_writable() && owes(member))
    }

    fn lacks_redundancy(&self, set: &Set) -> bool {
        set.short || set.slots.iter().any(|slot| !self.is_well(slot))
    }
}

fn status_of(member: &Member, now: Duration) -> MemberStatus {
    let (health, note) = member.health();
    let (health, note) = match health {
        MemberHealth::Online if !member.is_writable() => (MemberHealth::Failing, note),
        MemberHealth::Online if member.pulse.is_slow(now) => {
            (MemberHealth::Slow, Some(slowness(member, now)))
        }
        _ => (health, note),
    };
    let trouble = &member.trouble;
    let (slabs, slabs_used) = member.slab_counts();
    MemberStatus {
        id: member.id,
        uuid: member.uuid,
        path: member.place(),
        health,
        slabs,
        slabs_used,
        read_errors: trouble.total(Kind::Read),
        write_errors: trouble.total(Kind::Write),
        sync_errors: trouble.total(Kind::Sync),
        timeouts: trouble.total(Kind::Timeout),
        checksum_errors: trouble.total(Kind::Checksum),
        recent_errors: trouble.recent(now),
        hedged_reads: member.pulse.hedges().asked,
        healed: trouble.healed(),
        traffic: member.meter.traffic(),
        note,
    }
}

fn slowness(member: &Member, now: Duration) -> String {
    match member.pulse.owes_since(now) {
        Some(owed) => format!("reads go to the others; it has owed an answer for {} ms", owed.as_millis()),
        None => "reads go to the others until it is as fast as usual again".to_owned(),
    }
}
