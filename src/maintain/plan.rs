//! What a job would do, in numbers, and why it can't.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::fs::Fs;
use crate::layout::Resiliency;
use crate::member::superblock::{MemberId, Purpose};
use crate::pool::Pool;
use crate::pool::moving::SlotInfo;
use crate::units::format_size;

/// What a job would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes of slots to copy or rebuild.
    pub move_bytes: u64,
    /// Bytes of data to write anew, in sets of another width.
    pub rewrite_bytes: u64,
    /// Bytes that the pool can hold now, in its own resiliency.
    pub capacity_before: u64,
    /// And when it is done.
    pub capacity_after: u64,
}

impl Plan {
    /// All bytes to write, redundancy of what is written anew not counted.
    pub fn total_bytes(&self) -> u64 {
        self.move_bytes + self.rewrite_bytes
    }
}

/// Why a job can't be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A layout in use would be impossible.
    #[error(
        "{resiliency} data needs at least {needed} members, and {left} would be left. Add a member first"
    )]
    TooFewMembers {
        /// The layout.
        resiliency: Resiliency,
        /// Members it needs.
        needed: usize,
        /// Members that would be left.
        left: usize,
    },
    /// What it holds does not fit elsewhere.
    #[error(
        "there is no room for {} of {resiliency} data on the other members, only for {}. Add a member, or delete something",
        format_size(*.needed), format_size(*.available)
    )]
    NoRoom {
        /// The layout for which there is none.
        resiliency: Resiliency,
        /// Bytes of payload to be placed.
        needed: u64,
        /// Bytes of payload that could be.
        available: u64,
    },
    /// The new member has fewer slabs than the old one holds.
    #[error(
        "the new member offers {offered} slabs, and the old one holds {used}: it is too small to replace it"
    )]
    ReplacementTooSmall {
        /// Free slabs of the new one.
        offered: u64,
        /// Slabs in use of the old one.
        used: u64,
    },
    /// A member does not take sets, so nothing can be moved to it.
    #[error("member {member} is not online, so nothing can be moved to it")]
    NotOnline {
        /// The member.
        member: MemberId,
    },
}

/// What emptying `member` comes to.
///
/// # Errors
/// [`Refusal::TooFewMembers`], [`Refusal::NoRoom`].
pub(super) fn emptying(fs: &Fs, member: MemberId) -> Result<Plan, Refusal> {
    let pool = fs.pool();
    let slots = pool.slots(|place| place.member == member);
    let layouts = pool.layouts();
    let left = pool.members().iter().filter(|other| other.takes_sets() && other.id != member).count();
    for resiliency in &layouts {
        let needed = resiliency.min_members();
        if left < needed {
            return Err(Refusal::TooFewMembers { resiliency: *resiliency, needed, left });
        }
    }
    let mut free: HashMap<MemberId, u64> = pool.room_by_member();
    free.remove(&member);
    let (mut plan, mut freed) = (Plan::default(), free.clone());
    let mut rewritten: HashMap<Resiliency, u64> = HashMap::new();
    for slot in slots.iter().filter(|slot| slot.fill > 0 && slot.live > 0) {
        let Some(record) = pool.set_record(slot.set) else { continue };
        let outside = free
            .iter_mut()
            .filter(|(id, free)| **free > 0 && record.slots.iter().all(|place| place.member != **id));
        if let Some((id, room)) = outside.max_by_key(|(id, free)| (**free, std::cmp::Reverse(**id))) {
            *room -= 1;
            freed.entry(*id).and_modify(|room| *room = room.saturating_sub(1));
            plan.move_bytes += slot.fill;
            continue;
        }
        plan.rewrite_bytes += slot.live;
        if slot.purpose == Purpose::Data {
            *rewritten.entry(record.resiliency).or_default() += slot.live;
        }
        for place in record.slots.iter().filter(|place| place.member != member) {
            *freed.entry(place.member).or_default() += 1;
        }
    }
    check_room(pool, &freed, &rewritten)?;
    let own = pool.default_resiliency();
    plan.capacity_before = pool.capacity_without(&[], &own);
    plan.capacity_after = pool.capacity_without(&[member], &own);
    Ok(plan)
}

/// Whether what is to be written anew fits once the sets it came from are free.
fn check_room(
    pool: &Pool,
    free: &HashMap<MemberId, u64>,
    rewritten: &HashMap<Resiliency, u64>,
) -> Result<(), Refusal> {
    let free: Vec<u64> = free.values().copied().collect();
    let mut share_left = 1.0_f64;
    for (resiliency, bytes) in rewritten {
        let all = crate::layout::usable_bytes(&free, resiliency, pool.dimensions().slab_bytes);
        // Several layouts share the room, each its part; and batches are padded.
        let available = (all as f64 * share_left) as u64;
        let needed = bytes + bytes / 64;
        if needed > available {
            return Err(Refusal::NoRoom { resiliency: *resiliency, needed, available });
        }
        share_left -= needed as f64 / (all as f64).max(1.0);
    }
    Ok(())
}

/// Bytes of these slots that are to be copied.
pub(super) fn filled(slots: &[SlotInfo]) -> u64 {
    slots.iter().map(|slot| slot.fill).sum()
}
