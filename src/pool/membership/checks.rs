//! What is looked at before a member may come or go.

use std::path::Path;

use super::super::assemble::{Standing, standing};
use super::super::error::{PoolError, Result};
use super::super::roster::Member;
use super::super::sets::Set;
use super::super::{Found, Pool};
use crate::limits::MEMBERS_MAX;
use crate::member::open::{self, Clash, Identity, MemberSpec};
use crate::member::superblock::{MemberId, MemberState, Purpose};
use crate::member::{DiskKind, MemberError};
use crate::sync::Arc;

/// What adding a member would give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// Slabs that it offers.
    pub slabs: u64,
    /// Members on the same device: they fail together with it.
    pub shares_device_with: Vec<MemberId>,
}

impl Pool {
    /// Checks whether a path could become a member of this pool. Nothing is written.
    ///
    /// # Errors
    /// Those of [`open::check`]; [`PoolError::SameMember`], [`PoolError::Nested`]; [`MemberError::TooSmall`];
    /// [`PoolError::TooManyMembers`].
    pub fn plan_addition(&self, spec: &MemberSpec, force: bool) -> Result<Addition> {
        let given = self.members().len() + 1;
        if given > MEMBERS_MAX {
            return Err(PoolError::TooManyMembers { given, most: MEMBERS_MAX });
        }
        let own = open::identity(&spec.path)?;
        for member in self.members().iter().filter(|member| member.is_active()) {
            // One that is not here can't be in the way.
            if let Ok(other) = open::identity(Path::new(&member.place())) {
                refuse_clash(&own, &other)?;
            }
        }
        open::check(spec, force)?;
        let dimensions = self.dimensions();
        let have = open::capacity(spec)?;
        let need = open::required_bytes(&dimensions);
        if have < need {
            return Err(MemberError::TooSmall {
                name: spec.path.display().to_string(),
                have,
                need,
                ring: dimensions.ring_bytes,
                slabs: open::SLABS_MIN,
                slab: dimensions.slab_bytes,
            }
            .into());
        }
        let is_directory = open::probe(&spec.path)? == DiskKind::Directory;
        let shares = |member: &&Arc<Member>| {
            is_directory && member.disk().is_some_and(|disk| disk.device_id() == own.id.0)
        };
        let shares_device_with = self.members().iter().filter(shares).map(|member| member.id).collect();
        Ok(Addition { slabs: open::slabs_in(have, &dimensions), shares_device_with })
    }

    /// Checks whether a member that was found may come back.
    ///
    /// # Errors
    /// [`PoolError::OtherPool`], [`PoolError::NotAMember`], [`PoolError::WasRemoved`], [`PoolError::AlreadyHere`],
    /// [`PoolError::DivergedMember`].
    pub fn check_return(&self, found: &Found) -> Result<()> {
        let Found { disk, superblock: own } = found;
        let path = disk.path();
        if own.pool != self.uuid() {
            return Err(PoolError::OtherPool { path, other: own.pool, pool: self.uuid() });
        }
        let state = self.superblock.lock();
        let id = own.member;
        let uuid = own.members.get(usize::from(id)).map(|record| record.uuid);
        let record = state.superblock.members.get(usize::from(id));
        let Some(record) = record.filter(|record| Some(record.uuid) == uuid) else {
            return Err(PoolError::NotAMember { path });
        };
        if record.state == MemberState::Removed {
            return Err(PoolError::WasRemoved { path, member: id });
        }
        if self.member(id).is_writable() {
            return Err(PoolError::AlreadyHere { path, member: id });
        }
        match standing(own, &state.superblock, &**disk) {
            Standing::Known => Ok(()),
            Standing::Diverged => {
                let epoch = own.epochs.last().map_or(0, |epoch| epoch.counter);
                Err(PoolError::DivergedMember { path, member: id, epoch })
            }
        }
    }

    /// The member with this number, if it belongs to the pool.
    ///
    /// # Errors
    /// [`PoolError::NoSuchMember`].
    pub fn active_member(&self, id: MemberId) -> Result<&Arc<Member>> {
        let member = self.members().get(usize::from(id)).filter(|member| member.is_active());
        member.ok_or(PoolError::NoSuchMember { member: id })
    }

    /// Checks whether a member could be taken offline, as [`Pool::take_offline`] does. Nothing is changed.
    ///
    /// # Errors
    /// Those of [`Pool::take_offline`].
    pub fn plan_departure(&self, id: MemberId, force: bool) -> Result<()> {
        if self.active_member(id)?.is_writable() {
            self.check_departure(id, force)?;
        }
        Ok(())
    }

    /// Checks whether a member could be given up, as [`Pool::give_up_lost`] does. Nothing is changed.
    ///
    /// # Errors
    /// Those of [`Pool::give_up_lost`].
    pub fn plan_giving_up(&self, id: MemberId, force: bool) -> Result<()> {
        let member = self.active_member(id)?;
        if member.is_writable() {
            return Err(PoolError::StillHere { path: member.place(), member: id });
        }
        self.check_departure(id, force)
    }

    /// Refuses to let a member go without which something could not be read: with `force` only what would make the
    /// pool itself unusable.
    pub(super) fn check_departure(&self, id: MemberId, force: bool) -> Result<()> {
        let path = self.member(id).place();
        if !self.writable_members().iter().any(|&other| other != id) {
            return Err(PoolError::LastMember { path, member: id });
        }
        let sets = self.sets.all();
        let here = |member: MemberId| member != id && self.member(member).is_writable();
        let lost: Vec<&Arc<Set>> = sets.iter().filter(|set| !Self::is_readable_with(set, here)).collect();
        let metadata = lost.iter().filter(|set| set.purpose == Purpose::Meta && set.live() > 0).count();
        if metadata > 0 || (!lost.is_empty() && !force) {
            let (unreadable, sets) = (lost.len(), sets.len());
            return Err(PoolError::WouldBeUnreadable { path, member: id, unreadable, sets, metadata });
        }
        Ok(())
    }
}

fn refuse_clash(own: &Identity, other: &Identity) -> Result<()> {
    let name = |identity: &Identity| identity.canonical.display().to_string();
    match own.clash(other) {
        None => Ok(()),
        Some(Clash::Same) => Err(PoolError::SameMember { first: name(other), second: name(own) }),
        Some(Clash::Inside) => Err(PoolError::Nested { inner: name(own), outer: name(other) }),
        Some(Clash::Around) => Err(PoolError::Nested { inner: name(other), outer: name(own) }),
    }
}
