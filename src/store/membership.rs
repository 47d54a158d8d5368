//! Members come and go: with the log standing still, and nothing acknowledged before all members know of it.

use std::path::Path;
use std::time::Duration;

use super::Store;
use super::error::{Result, StoreError};
use crate::member::open::{self, Bounds, MemberSpec};
use crate::member::superblock::{MemberId, Superblock};
use crate::member::{Disk, MemberError};
use crate::pool::{Found, JournalEnd, PoolError};
use crate::sync::{Arc, Clock};

/// A member that was let go may stay locked for so long.
const LET_GO_PATIENCE: Duration = Duration::from_secs(2);
/// It is tried again after so long.
const LET_GO_LOOK: Duration = Duration::from_millis(20);

impl Store {
    /// Takes a path into the pool as a new member.
    ///
    /// # Errors
    /// Those of [`crate::pool::Pool::plan_addition`], before anything is written, and of
    /// [`crate::pool::Pool::admit`].
    pub fn add_member(&self, spec: &MemberSpec, force: bool) -> Result<MemberId> {
        if self.pool.read_only() {
            return Err(PoolError::ReadOnly.into());
        }
        self.pool.plan_addition(spec, force)?;
        let disk = open::create(spec, self.pool.dimensions(), force).map_err(PoolError::from)?;
        self.add_disk(disk, spec.bounds)
    }

    /// Takes a disk into the pool that is prepared and has no superblock.
    ///
    /// # Errors
    /// As [`crate::pool::Pool::admit`].
    pub fn add_disk(&self, disk: Arc<dyn Disk>, bounds: Bounds) -> Result<MemberId> {
        self.change_members(|end| self.pool.admit(end, disk, bounds))
    }

    /// Takes a member back that was found again.
    ///
    /// # Errors
    /// As [`crate::pool::Pool::readmit`].
    pub fn bring_online(&self, found: Found) -> Result<MemberId> {
        self.change_members(|end| self.pool.readmit(end, found))
    }

    /// Takes back the member that is at `path`.
    ///
    /// # Errors
    /// Those of opening it, and as [`Store::bring_online`].
    pub fn bring_path_online(&self, path: &Path) -> Result<MemberId> {
        let own = open::peek(path).map_err(PoolError::from)?;
        if own.pool == self.pool.uuid() {
            // One that failed is still locked by this process.
            self.pool.let_failed_go(own.member);
        }
        let (disk, superblock) = open_when_let_go(path).map_err(PoolError::from)?;
        self.bring_online(Found { disk, superblock })
    }

    /// Looks for missing members where they were last seen, and takes back those that are there again. It may take as
    /// long as a disk takes to answer: call it where nobody waits. Gives those that came back.
    pub fn bring_back_missing(&self) -> Vec<MemberId> {
        let mut back = Vec::new();
        for path in self.pool.missing_paths() {
            if !path.exists() {
                continue;
            }
            match self.bring_path_online(&path) {
                Ok(member) => {
                    log::info!("{} (member {member}) is back", path.display());
                    back.push(member);
                }
                Err(error) => log::debug!("{} does not come back: {error}", path.display()),
            }
        }
        back
    }

    /// Takes a member offline until it is brought back.
    ///
    /// # Errors
    /// As [`crate::pool::Pool::take_offline`].
    pub fn take_offline(&self, member: MemberId, force: bool) -> Result<()> {
        self.change_members(|end| self.pool.take_offline(end, member, force))
    }

    /// Takes an empty member out of the pool.
    ///
    /// # Errors
    /// As [`crate::pool::Pool::remove`].
    pub fn remove_member(&self, member: MemberId) -> Result<()> {
        self.change_members(|end| self.pool.remove(end, member))
    }

    /// Gives up a member that is not here.
    ///
    /// # Errors
    /// As [`crate::pool::Pool::give_up_lost`].
    pub fn give_up_lost(&self, member: MemberId, force: bool) -> Result<()> {
        self.change_members(|end| self.pool.give_up_lost(end, member, force))
    }

    /// Whether the pool refuses from now on to write with less redundancy than asked for.
    ///
    /// # Errors
    /// As [`crate::pool::Pool::refuse_short_writes`].
    pub fn refuse_short_writes(&self, refuse: bool) -> Result<()> {
        self.change_members(|end| self.pool.refuse_short_writes(end, refuse))
    }

    /// Runs a change of the membership while nobody writes to the log. A pool without any member that takes writes
    /// takes no more changes; a refusal changes nothing.
    fn change_members<T>(&self, change: impl FnOnce(&JournalEnd) -> crate::pool::Result<T>) -> Result<T> {
        if self.pool.read_only() {
            return Err(StoreError::ReadOnly);
        }
        let turn = self.journal.turn()?;
        let end = self.journal.lock().end();
        let outcome = change(&end);
        drop(turn);
        if let Err(error @ PoolError::NoWritableMember) = &outcome {
            self.journal.poison(&error.to_string());
        }
        Ok(outcome?)
    }
}

/// Opens a member. One that this process has just let go is still locked until the threads of its last requests have
/// ended, so it is tried again for a while.
fn open_when_let_go(path: &Path) -> std::result::Result<(Arc<dyn Disk>, Superblock), MemberError> {
    let clock = Clock::system();
    let start = clock.elapsed();
    loop {
        match open::open(path, None, false) {
            Err(MemberError::InUse { .. }) if clock.elapsed().saturating_sub(start) < LET_GO_PATIENCE => {
                clock.sleep(LET_GO_LOOK);
            }
            outcome => return outcome,
        }
    }
}
