//! What must hold in a superblock before any of it is used: nothing from a disk is trusted.

use std::collections::HashSet;

use super::{Epoch, MetaPointer, Purpose, Root, SetRecord, Superblock};
use crate::limits::{MEMBERS_MAX, POOL_NAME_MAX_BYTES, RING_MAX_BYTES, SLAB_MAX_BYTES, SLABS_MAX};
use crate::member::Dimensions;
use crate::units::SECTOR;

type Verdict = Result<(), String>;

impl Superblock {
    /// Checks everything that the rest of the program relies on.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn validate(&self) -> Result<(), String> {
        ensure(self.name.len() <= POOL_NAME_MAX_BYTES, || "the pool's name is too long".to_owned())?;
        ensure(self.members.len() <= MEMBERS_MAX, || format!("{} members", self.members.len()))?;
        self.check_member(self.member)?;
        self.dimensions.validate()?;
        self.check_epochs()?;
        self.check_meta_sets()?;
        self.root.as_ref().map_or(Ok(()), |root| self.check_root(root))
    }

    fn check_member(&self, member: u16) -> Verdict {
        ensure(usize::from(member) < self.members.len(), || format!("member {member} is not in the table"))
    }

    fn check_epochs(&self) -> Verdict {
        ensure(!self.epochs.is_empty(), || "it has no epoch".to_owned())?;
        for epoch in &self.epochs {
            self.check_epoch(epoch)?;
        }
        for pair in self.epochs.windows(2) {
            let rises = pair[0].counter < pair[1].counter && pair[0].first_seq <= pair[1].first_seq;
            ensure(rises, || format!("epoch {} follows epoch {}", pair[1].counter, pair[0].counter))?;
        }
        Ok(())
    }

    fn check_epoch(&self, epoch: &Epoch) -> Verdict {
        let name = epoch.counter;
        ensure(!epoch.members.is_empty(), || format!("epoch {name} has no members"))?;
        let members: HashSet<_> = epoch.members.iter().copied().collect();
        ensure(members.len() == epoch.members.len(), || format!("epoch {name} names a member twice"))?;
        let holders: HashSet<_> = epoch.ring_holders.iter().copied().collect();
        ensure(holders.len() == epoch.ring_holders.len() && holders.is_subset(&members), || {
            format!("the ring holders of epoch {name} are not members of it")
        })?;
        epoch.members.iter().try_for_each(|&member| self.check_member(member))
    }

    fn check_meta_sets(&self) -> Verdict {
        let mut ids = HashSet::new();
        let mut slabs = HashSet::new();
        for set in &self.meta_sets {
            set.validate(self.dimensions.slab_bytes)?;
            ensure(set.purpose == Purpose::Meta, || format!("set {} holds no metadata", set.id))?;
            ensure(ids.insert(set.id), || format!("set {} is there twice", set.id))?;
            for slot in &set.slots {
                self.check_member(slot.member)?;
                let free = slabs.insert(*slot);
                ensure(free, || format!("slab {} of member {} is in two sets", slot.slab, slot.member))?;
            }
        }
        Ok(())
    }

    fn check_root(&self, root: &Root) -> Verdict {
        ensure(!root.block.is_empty(), || "the root points nowhere".to_owned())?;
        ensure(root.tail_seq <= root.included.saturating_add(1), || {
            format!("replay would begin at {}, behind the root's {}", root.tail_seq, root.included)
        })?;
        for pointer in &root.block {
            pointer.validate()?;
            let known = self.meta_sets.iter().any(|set| set.id == pointer.set);
            ensure(known, || format!("the root lies in set {}, which is not in the table", pointer.set))?;
        }
        Ok(())
    }
}

impl Dimensions {
    /// Checks that the sizes are ones that poolfs can work with.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn validate(&self) -> Result<(), String> {
        let slab = self.slab_bytes;
        ensure(slab.is_power_of_two() && (SECTOR..=SLAB_MAX_BYTES).contains(&slab), || {
            format!("slabs of {slab} bytes are not possible")
        })?;
        let ring = self.ring_bytes;
        ensure(ring.is_multiple_of(SECTOR) && (16 * SECTOR..=RING_MAX_BYTES).contains(&ring), || {
            format!("a journal ring of {ring} bytes is not possible")
        })
    }
}

impl SetRecord {
    /// Checks a set by itself; `slab_bytes` is the payload of a slab.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn validate(&self, slab_bytes: u64) -> Result<(), String> {
        let id = self.id;
        let slots = self.slots.len();
        ensure(slots > 0 && self.geometry.slots() == slots, || {
            format!("set {id} has {slots} slots, and a layout for {}", self.geometry.slots())
        })?;
        let slab = self.geometry.slab_bytes;
        ensure(slab == slab_bytes, || format!("set {id} is laid out for slabs of {slab} bytes"))?;
        let members: HashSet<_> = self.slots.iter().map(|slot| slot.member).collect();
        ensure(members.len() == slots, || format!("set {id} uses a member twice"))?;
        let in_range = self.slots.iter().all(|slot| u64::from(slot.slab) < SLABS_MAX);
        ensure(in_range, || format!("set {id} names an impossible slab"))?;
        ensure(self.fill <= slab_bytes && self.fill.is_multiple_of(SECTOR), || {
            format!("set {id} is said to be filled to {} of {slab_bytes} bytes", self.fill)
        })?;
        ensure(self.live <= self.geometry.payload_bytes(), || {
            format!("set {id} is said to hold {} bytes, more than it has", self.live)
        })
    }
}

impl MetaPointer {
    /// Bytes that it takes in its set: whole sectors.
    pub fn padded_bytes(&self) -> u64 {
        self.sums.len() as u64 * SECTOR
    }

    /// Checks that the sums fit the length, and the address its alignment.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn validate(&self) -> Result<(), String> {
        let sectors = u64::from(self.len).div_ceil(SECTOR);
        ensure(
            self.len > 0 && sectors == self.sums.len() as u64 && self.address.is_multiple_of(SECTOR),
            || format!("a pointer into set {} is malformed", self.set),
        )
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise()) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn each_broken_promise_is_found() {
        type Spoil = fn(&mut Superblock);
        let breaks: [(&str, Spoil); 19] = [
            ("member", |sb| sb.member = 3),
            ("no members", |sb| sb.members.clear()),
            ("name", |sb| sb.name = "n".repeat(65)),
            ("slab", |sb| sb.dimensions.slab_bytes = 3 << 20),
            ("slab", |sb| sb.dimensions.slab_bytes = 0),
            ("ring", |sb| sb.dimensions.ring_bytes += 1),
            ("ring", |sb| sb.dimensions.ring_bytes = u64::MAX),
            ("no epoch", |sb| sb.epochs.clear()),
            ("order", |sb| sb.epochs.reverse()),
            ("epoch's member", |sb| sb.epochs[0].members.push(9)),
            ("ring holder", |sb| sb.epochs[1].ring_holders = vec![2, 2]),
            ("slots", |sb| sb.meta_sets[0].slots.truncate(1)),
            ("slot's member", |sb| sb.meta_sets[0].slots[0].member = 100),
            ("slab number", |sb| sb.meta_sets[0].slots[0].slab = 1 << 20),
            ("fill", |sb| sb.meta_sets[0].fill = u64::MAX),
            ("live", |sb| sb.meta_sets[0].live = 2 << 20),
            ("purpose", |sb| sb.meta_sets[0].purpose = Purpose::Data),
            ("sums", |sb| sb.root.as_mut().unwrap().block[0].sums.clear()),
            ("root's set", |sb| sb.root.as_mut().unwrap().block[0].set = 77),
        ];
        for (what, spoil) in breaks {
            let mut sb = sample(1);
            assert_eq!(sb.validate(), Ok(()));
            spoil(&mut sb);
            assert!(sb.validate().is_err(), "{what}");
            assert!(sb.encode().is_err(), "{what}");
        }
    }

    #[test]
    fn one_slab_in_two_sets_is_found() {
        let mut sb = sample(1);
        let mut again = sb.meta_sets[0].clone();
        again.id += 1;
        sb.meta_sets.push(again);
        assert!(sb.validate().unwrap_err().contains("two sets"));
    }
}
