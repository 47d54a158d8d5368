//! The pool's own account of how it is.

use std::collections::HashSet;

use super::Pool;
use super::roster::Member;
use super::sets::Set;
use super::status::{Health, MemberHealth, MemberStatus, PoolStatus};
use crate::member::superblock::{MemberId, Purpose, SetId};
use crate::sync::atomic::Ordering;

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
        let members: Vec<MemberStatus> = self.members().iter().map(|member| status_of(member)).collect();
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
            epoch: self.epochs().last().map_or(0, |epoch| epoch.counter),
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
        let here = |id: MemberId| !lost.contains(&id) && self.member(id).is_here();
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

    fn lacks_redundancy(&self, set: &Set) -> bool {
        set.short || set.slots.iter().any(|slot| !self.is_well(slot))
    }
}

fn status_of(member: &Member) -> MemberStatus {
    let (health, note) = member.health();
    let (slabs, slabs_used) = member.slab_counts();
    let count = |counter: &crate::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    MemberStatus {
        id: member.id,
        uuid: member.uuid,
        path: member.place(),
        health: if health == MemberHealth::Online && !member.is_writable() {
            MemberHealth::Failed
        } else {
            health
        },
        slabs,
        slabs_used,
        read_errors: count(&member.counters.read_errors),
        write_errors: count(&member.counters.write_errors),
        checksum_errors: count(&member.counters.checksum_errors),
        healed: count(&member.counters.healed),
        traffic: member.meter.traffic(),
        note,
    }
}
