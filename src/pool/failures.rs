//! What becomes of a member that fails.
//!
//! A failed or unanswered write or sync sets a member aside at once: it may lack something that the others have.
//! Failed reads are made good from the others and counted; past the limits in [`super::trouble`], or when the
//! device has vanished, the member is set aside too. A member that is set aside takes no writes any more; it is
//! still read where nothing else helps.

use super::Pool;
use super::trouble::{Kind, READ_ERRORS_MOST, TIMEOUTS_MOST};
use crate::member::MemberError;
use crate::member::superblock::MemberId;
use crate::sync::atomic::Ordering;

impl Pool {
    /// Sets a member aside after a failed write or sync. Its sets take no more stripes, and a new epoch
    /// begins before anything more is acknowledged.
    pub(super) fn member_failed(&self, id: MemberId, error: &MemberError) {
        self.count_error(id, Kind::Write, error);
        self.set_aside(id, &error.to_string());
    }

    /// A slab could not be written or made. A member whose file system is full is full, not failed; and where
    /// this process ran short of something, no member is to blame.
    pub(super) fn slab_failed(&self, id: MemberId, error: &MemberError) {
        if matches!(error, MemberError::NoSpace { .. }) {
            self.member(id).mark_full();
        } else if error.is_own_shortage() {
            log::error!(
                "{error}: poolfs itself is short of this; raise its limit (ulimit -n for open files)"
            );
        } else {
            self.member_failed(id, error);
        }
    }

    /// A read failed, or was not answered in time.
    pub(super) fn read_failed(&self, id: MemberId, error: &MemberError) {
        let member = self.member(id);
        if !member.is_here() || error.is_own_shortage() {
            return;
        }
        let (kind, recent) = self.count_error(id, Kind::Read, error);
        let total = member.trouble.total(kind);
        if total <= 10 || total.is_power_of_two() {
            log::warn!("{error} (failure {total} of this kind on this member)");
        }
        // That somebody deleted a slab says nothing of the disk.
        let too_many = match kind {
            _ if matches!(error, MemberError::NoSlab { .. }) => false,
            Kind::Timeout => recent > TIMEOUTS_MOST,
            _ => recent > READ_ERRORS_MOST,
        };
        if too_many || error.is_vanished() {
            self.set_aside_for_reads(id, error, recent);
        }
    }

    /// Sets members aside that have owed an answer for twice the deadline, although nobody waits for it any more.
    pub(super) fn watch_members(&self) {
        for member in self.members().iter().filter(|member| member.is_writable()) {
            let owed = member.pulse.owes_since(self.now()).filter(|owed| *owed > 2 * self.io.deadline);
            if let Some(since) = owed {
                let error = MemberError::Hanging { path: member.path.clone(), since };
                self.set_aside_for_reads(member.id, &error, 1);
            }
        }
    }

    /// Counts an error as what it is; `otherwise` where it does not say itself.
    fn count_error(&self, id: MemberId, otherwise: Kind, error: &MemberError) -> (Kind, u64) {
        let kind = match error {
            MemberError::Timeout { .. } | MemberError::Hanging { .. } => Kind::Timeout,
            MemberError::Io { doing: "syncing", .. } => Kind::Sync,
            _ => otherwise,
        };
        // Nothing was asked then: that the member hangs was counted with the request that it owes.
        let count = u64::from(!matches!(error, MemberError::Hanging { .. }));
        (kind, self.member(id).trouble.count(kind, count, self.now()))
    }

    fn set_aside_for_reads(&self, id: MemberId, error: &MemberError, recent: u64) {
        let others = self.members().iter().any(|other| other.id != id && other.is_writable());
        if others {
            let why = if error.is_vanished() || error.is_timeout() {
                error.to_string()
            } else {
                format!("{recent} failed or unanswered reads within ten minutes, the last: {error}")
            };
            self.set_aside(id, &why);
        }
    }

    fn set_aside(&self, id: MemberId, why: &str) {
        let member = self.member(id);
        if member.set_aside(why.to_owned()) {
            self.membership.fetch_add(1, Ordering::AcqRel);
            log::error!("{} is set aside: {why}. The pool goes on without it", member.path);
        }
    }
}
