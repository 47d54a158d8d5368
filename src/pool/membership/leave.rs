//! Members that go: offline, removed, given up for lost.

use super::super::Pool;
use super::super::epochs::JournalEnd;
use super::super::error::{PoolError, Result};
use super::super::status::MemberHealth;
use crate::member::superblock::{MemberId, MemberState, read_superblock, write_superblock};
use crate::member::{Disk, Result as MemberResult};
use crate::sync::atomic::Ordering;

impl Pool {
    /// Takes a member offline: it is not used any more, and its disk is let go, until somebody brings it online again.
    ///
    /// # Errors
    /// [`PoolError::NoSuchMember`], [`PoolError::LastMember`], [`PoolError::WouldBeUnreadable`].
    pub fn take_offline(&self, end: &JournalEnd, id: MemberId, force: bool) -> Result<()> {
        let member = self.active_member(id)?;
        if member.is_writable() {
            self.check_departure(id, force)?;
        }
        self.publish(end, |superblock| {
            superblock.members[usize::from(id)].state = MemberState::Offline;
            if member.leave(MemberHealth::Offline) {
                self.membership.fetch_add(1, Ordering::AcqRel);
            }
        })?;
        self.let_go(id, MemberState::Offline);
        Ok(())
    }

    /// Takes a member out that holds nothing any more.
    ///
    /// # Errors
    /// [`PoolError::NoSuchMember`], [`PoolError::LastMember`]; [`PoolError::NotEmpty`] as long as sets lie there, or
    /// what they gave up there waits for a checkpoint.
    pub fn remove(&self, end: &JournalEnd, id: MemberId) -> Result<()> {
        let member = self.active_member(id)?;
        let (_, slabs) = member.slab_counts();
        if slabs > 0 {
            return Err(PoolError::NotEmpty { path: member.place(), member: id, slabs });
        }
        if member.is_writable() {
            self.check_departure(id, false)?;
        }
        self.publish(end, |superblock| self.strike_out(superblock, id))?;
        self.let_go(id, MemberState::Removed);
        Ok(())
    }

    /// Gives a member up that is not here. What it held is to be rebuilt elsewhere; should it return, it is known as
    /// removed.
    ///
    /// # Errors
    /// [`PoolError::NoSuchMember`]; [`PoolError::StillHere`] for one that takes writes;
    /// [`PoolError::WouldBeUnreadable`] without `force`, when only it could give something back.
    pub fn give_up_lost(&self, end: &JournalEnd, id: MemberId, force: bool) -> Result<()> {
        let member = self.active_member(id)?;
        if member.is_writable() {
            return Err(PoolError::StillHere { path: member.place(), member: id });
        }
        self.check_departure(id, force)?;
        self.publish(end, |superblock| self.strike_out(superblock, id))?;
        member.close();
        Ok(())
    }

    /// Tells a member that it has left, and closes its disk. By then the others know it, so it does no harm when it
    /// can't be told: it then learns it when it returns.
    fn let_go(&self, id: MemberId, state: MemberState) {
        let epoch = self.epochs().last().map_or(0, |epoch| epoch.counter);
        if let Some(disk) = self.member(id).close()
            && let Err(error) = tell(&*disk, id, state, epoch)
        {
            log::warn!("it left, and could not be told so: {error}");
        }
    }
}

/// The last epoch that its superblock names stays the last one in which it took part.
fn tell(disk: &dyn Disk, id: MemberId, state: MemberState, epoch: u64) -> MemberResult<()> {
    let mut own = read_superblock(disk)?;
    own.sequence += 1;
    own.out_since = Some(epoch);
    if let Some(record) = own.members.get_mut(usize::from(id)) {
        record.state = state;
    }
    write_superblock(disk, &own)
}
