//! Members that come: new ones, and those that were away.

use std::path::PathBuf;

use uuid::Uuid;

use super::super::epochs::JournalEnd;
use super::super::error::{PoolError, Result};
use super::super::meta::compare_slabs;
use super::super::roster::Member;
use super::super::status::MemberHealth;
use super::super::{Found, Pool};
use crate::limits::MEMBERS_MAX;
use crate::member::Disk;
use crate::member::open::Bounds;
use crate::member::superblock::{MemberId, MemberRecord, MemberState, Superblock};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

impl Pool {
    /// Takes a new disk into the pool: one that is prepared and has no superblock. It takes part when this returns.
    ///
    /// Its own superblock is written before those of the others. So a crash leaves a disk that the others do not know,
    /// or a member that is whole.
    ///
    /// # Errors
    /// [`PoolError::TooManyMembers`], [`PoolError::ReadOnly`], [`PoolError::CameToNothing`] when the disk failed.
    pub fn admit(&self, end: &JournalEnd, disk: Arc<dyn Disk>, bounds: Bounds) -> Result<MemberId> {
        let given = self.members().len() + 1;
        let too_many = PoolError::TooManyMembers { given, most: MEMBERS_MAX };
        let id = MemberId::try_from(self.members().len()).ok().filter(|_| given <= MEMBERS_MAX);
        let id = id.ok_or(too_many)?;
        let path = disk.path();
        let record = MemberRecord {
            uuid: Uuid::new_v4(),
            kind: disk.kind(),
            path: path.clone(),
            limit_bytes: bounds.limit_bytes,
            reserve_bytes: bounds.reserve_bytes,
            slabs: disk.room().map(|room| room.slabs.min(room.below.unwrap_or(u64::MAX)))?,
            state: MemberState::Active,
            ring_from: None,
        };
        self.publish(end, |superblock| {
            if self.members.push(Member::new(id, &record, Some(disk), None, &self.io)) {
                superblock.members.push(record);
                self.membership.fetch_add(1, Ordering::AcqRel);
            }
        })?;
        if self.members().get(usize::from(id)).is_some_and(|member| member.is_writable()) {
            self.drop_narrow();
            return Ok(id);
        }
        self.publish(end, |superblock| self.strike_out(superblock, id))?;
        Err(PoolError::CameToNothing { path })
    }

    /// Takes a member back that was away, failed, or was offline. It takes part when this returns.
    ///
    /// # Errors
    /// As [`Pool::check_return`]; [`PoolError::StillWriting`] while stripes that it failed to take are being written
    /// elsewhere, [`PoolError::OldWrites`] while old writes to it have not ended: try again soon. [`PoolError::CameToNothing`] when it failed once more.
    pub fn readmit(&self, end: &JournalEnd, found: Found) -> Result<MemberId> {
        self.check_return(&found)?;
        let Found { disk, superblock: own } = found;
        let (id, path) = (own.member, disk.path());
        let member = self.member(id);
        // A write that was given up long ago may still hit any slab that it had then.
        if member.owes_answers(self.now()) {
            return Err(PoolError::OldWrites { path, member: id });
        }
        // What it failed to take must not be taken for complete because it is well again.
        for set in self.sets.all() {
            if set.slots.iter().any(|slot| slot.member == id) {
                set.seal();
                if !set.is_still() {
                    return Err(PoolError::StillWriting { path, member: id });
                }
            }
        }
        // An epoch without it comes first, so that nobody takes its ring for complete.
        self.current_epoch(end)?;
        compare_slabs(member, &*disk);
        self.publish(end, |superblock| {
            superblock.sequence = superblock.sequence.max(own.sequence);
            let record = &mut superblock.members[usize::from(id)];
            record.state = MemberState::Active;
            record.path = path.clone();
            member.attach(disk);
            self.membership.fetch_add(1, Ordering::AcqRel);
        })?;
        if !member.is_writable() {
            return Err(PoolError::CameToNothing { path });
        }
        self.drop_narrow();
        Ok(id)
    }

    /// Where members that are missing were last seen.
    pub fn missing_paths(&self) -> Vec<PathBuf> {
        if self.read_only() {
            return Vec::new();
        }
        let records = self.superblock.lock().superblock.members.clone();
        let missing = self.members().iter().filter(|member| member.health().0 == MemberHealth::Missing);
        missing.filter_map(|member| Some(records.get(usize::from(member.id))?.path.clone().into())).collect()
    }

    /// Closes the disk of a member that failed, so that it can be opened again.
    pub fn let_failed_go(&self, id: MemberId) {
        if let Some(member) = self.members().get(usize::from(id))
            && member.health().0 == MemberHealth::Failing
        {
            member.close();
        }
    }

    /// The member does not belong to the pool any more.
    pub(super) fn strike_out(&self, superblock: &mut Superblock, id: MemberId) {
        if let Some(record) = superblock.members.get_mut(usize::from(id)) {
            record.state = MemberState::Removed;
        }
        let member = self.member(id);
        if member.leave(MemberHealth::Removed) {
            self.membership.fetch_add(1, Ordering::AcqRel);
        }
        member.set_draining(false);
    }
}
