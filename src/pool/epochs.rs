//! Epochs, and the publication of superblocks: the one place where membership becomes durable.
//!
//! Nothing is acknowledged in an epoch before the superblock of every member of it says so. See
//! "The journal and the truth" in `docs/format.md` for the states and why each step is safe.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Pool;
use super::error::{PoolError, Result};
use super::lanes::Lane;
use super::roster::Member;
use crate::member::superblock::{Epoch, MemberId, Root, Seq, Superblock, write_superblock};
use crate::member::{AlignedBuf, Area, Bytes, Inbox, MemberError, Request, ring};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, random_u64};
use crate::units::MIB;

/// Epochs that the history keeps: a member that was away for longer counts as diverged.
const EPOCHS_KEPT: usize = 2048;

/// The superblock as it was last published.
#[derive(Debug)]
pub struct SuperState {
    /// The same for all members but for [`Superblock::member`].
    pub superblock: Superblock,
    /// The roster's version that its last epoch describes; none before this mount began one.
    version: Option<u64>,
}

impl SuperState {
    /// The state found at assembly.
    pub fn new(superblock: Superblock) -> Self {
        Self { superblock, version: None }
    }
}

/// Where the journal stands, for those who must start an epoch.
#[derive(Debug, Clone)]
pub struct JournalEnd {
    /// Number of the first record that is not acknowledged yet.
    pub next_seq: Seq,
    /// First record of the live log.
    pub tail_seq: Seq,
    /// Log positions of the live log, acknowledged records only.
    pub live: Range<u64>,
}

/// The epoch that records are appended in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentEpoch {
    /// Its counter.
    pub counter: u64,
    /// Its random id.
    pub id: u64,
    /// Who holds a ring.
    pub ring_holders: Vec<MemberId>,
}

impl Pool {
    /// The epoch to append in. When members dropped out since the last one, a new epoch is begun and
    /// published first.
    ///
    /// # Errors
    /// [`PoolError::NoWritableMember`] when all of them did.
    pub fn current_epoch(&self, end: &JournalEnd) -> Result<CurrentEpoch> {
        let mut state = self.superblock.lock();
        if state.version != Some(self.membership.load(Ordering::Acquire)) {
            self.publish_locked(&mut state, end)?;
        }
        Ok(state.current_epoch())
    }

    /// Changes the superblock and publishes it on every member of the epoch, beginning a new epoch where one
    /// is due. Durable everywhere when it returns.
    ///
    /// # Errors
    /// [`PoolError::NoWritableMember`] when no member is left.
    pub fn publish(&self, end: &JournalEnd, change: impl FnOnce(&mut Superblock)) -> Result<CurrentEpoch> {
        if self.read_only() {
            return Err(PoolError::ReadOnly);
        }
        let mut state = self.superblock.lock();
        change(&mut state.superblock);
        self.publish_locked(&mut state, end)?;
        Ok(state.current_epoch())
    }

    fn publish_locked(&self, state: &mut SuperState, end: &JournalEnd) -> Result<()> {
        loop {
            let version = self.membership.load(Ordering::Acquire);
            let known: BTreeSet<MemberId> =
                state.superblock.epochs.iter().flat_map(|epoch| epoch.members.iter().copied()).collect();
            if state.version != Some(version) {
                self.begin_epoch(&mut state.superblock, end)?;
                state.version = Some(version);
            }
            let writable = self.writable_members();
            let superblock = &mut state.superblock;
            superblock.sequence += 1;
            superblock.healthy =
                self.members().iter().all(|member| !member.is_active() || member.is_writable());
            for member in self.members().iter() {
                superblock.members[usize::from(member.id)].slabs = member.slab_counts().0;
            }
            // A new member is told first: the others must not know of one that does not know itself.
            let (known, new) = writable.into_iter().partition(|id| known.contains(id));
            for members in [new, known] {
                self.write_superblocks(members, superblock);
                if state.version != Some(self.membership.load(Ordering::Acquire)) {
                    break;
                }
            }
            if state.version == Some(self.membership.load(Ordering::Acquire)) {
                return Ok(());
            }
        }
    }

    /// Writes the superblock on these members, each with its own number in it. Those that fail are set aside.
    fn write_superblocks(&self, members: Vec<MemberId>, superblock: &Superblock) {
        let jobs = members
            .into_iter()
            .map(|id| {
                let disk = self.member(id).disk();
                let own = Superblock { member: id, ..superblock.clone() };
                let job: Box<dyn FnOnce() -> (MemberId, std::result::Result<(), MemberError>) + Send> =
                    Box::new(move || (id, disk.map_or(Ok(()), |disk| write_superblock(&*disk, &own))));
                (id, job)
            })
            .collect();
        for (id, result) in self.lanes.run(Lane::Write, jobs).into_iter().flatten() {
            if let Err(error) = result {
                self.member_failed(id, &error);
            }
        }
    }

    /// Adds an epoch of the members that take writes now.
    fn begin_epoch(&self, superblock: &mut Superblock, end: &JournalEnd) -> Result<()> {
        let members = self.writable_members();
        if members.is_empty() {
            return Err(PoolError::NoWritableMember);
        }
        let last = superblock.epochs.last();
        let counter = last.map_or(0, |epoch| epoch.counter) + 1;
        let ring_holders = self.choose_ring_holders(superblock, &members, end);
        for (index, record) in superblock.members.iter_mut().enumerate() {
            let holds = ring_holders.contains(&(index as MemberId));
            record.ring_from = holds.then_some(end.tail_seq);
        }
        log::info!("epoch {counter} begins with members {members:?}, journal on {ring_holders:?}");
        superblock.epochs.push(Epoch {
            counter,
            id: random_u64(),
            first_seq: end.next_seq,
            members,
            ring_holders,
        });
        let surplus = superblock.epochs.len().saturating_sub(EPOCHS_KEPT);
        superblock.epochs.drain(..surplus);
        self.epoch_counter.store(counter, Ordering::Release);
        Ok(())
    }

    /// Keeps the holders that are left, and gives others the live log until there are enough.
    fn choose_ring_holders(
        &self,
        superblock: &Superblock,
        members: &[MemberId],
        end: &JournalEnd,
    ) -> Vec<MemberId> {
        let wanted = self.metadata_copies().min(members.len());
        let complete = |id: &MemberId| {
            let last = superblock.epochs.last();
            let from = superblock.members[usize::from(*id)].ring_from;
            last.is_some_and(|epoch| epoch.ring_holders.contains(id))
                && from.is_some_and(|from| from <= end.tail_seq)
        };
        let mut holders: Vec<MemberId> = members.iter().copied().filter(complete).take(wanted).collect();
        let sources = holders.clone();
        for &id in members {
            if holders.len() >= wanted {
                break;
            }
            if holders.contains(&id) {
                continue;
            }
            match self.copy_live_log(&sources, id, end) {
                Ok(()) => holders.push(id),
                Err(error) => {
                    self.member_failed(id, &error);
                }
            }
        }
        holders.sort_unstable();
        holders
    }

    /// Copies the live log from any of `sources` to the ring of `target`.
    fn copy_live_log(
        &self,
        sources: &[MemberId],
        target: MemberId,
        end: &JournalEnd,
    ) -> std::result::Result<(), MemberError> {
        let Some(disk) = self.member(target).disk() else { return Ok(()) };
        let ring_bytes = self.dimensions().ring_bytes;
        let mut position = end.live.start;
        while position < end.live.end {
            let mut buf = AlignedBuf::zeroed((end.live.end - position).min(MIB) as usize);
            let found = sources
                .iter()
                .filter_map(|source| self.member(*source).disk())
                .any(|source| ring::read(&*source, ring_bytes, position, &mut buf).is_ok());
            if !found {
                log::error!("no ring gives back the log at {position}; it is copied incomplete");
            }
            ring::write(&*disk, ring_bytes, position, &buf)?;
            position += buf.len() as u64;
        }
        disk.sync(Area::Journal)
    }

    /// Appends `bytes` (whole sectors) at log position `position` on every ring holder of `epoch`, and syncs.
    /// False when a holder failed or the membership changed: then nothing counts as appended, and the same
    /// must be tried again in the epoch that follows.
    pub fn append(&self, epoch: &CurrentEpoch, position: u64, bytes: &Arc<AlignedBuf>) -> bool {
        let pieces = ring::pieces(self.dimensions().ring_bytes, position, bytes.len());
        let write = |(offset, range): (u64, Range<usize>)| {
            let bytes = Arc::clone(bytes) as Bytes;
            Request::Write { area: Area::Journal, offset, bytes, range }
        };
        let written = self.ask_holders(epoch, || pieces.iter().cloned().map(write).collect());
        // Only a sync that begins after the writes ended makes them durable.
        let good = written && self.ask_holders(epoch, || vec![Request::Sync(Area::Journal)]);
        good && self.superblock.lock().version == Some(self.membership.load(Ordering::Acquire))
    }

    /// Asks every ring holder the same, and sets those aside that fail. True when all did it.
    fn ask_holders(&self, epoch: &CurrentEpoch, requests: impl Fn() -> Vec<Request>) -> bool {
        let mut inbox = Inbox::new(&self.io.clock);
        let mut asked = Vec::new();
        for &id in &epoch.ring_holders {
            let Some(disk) = self.member(id).disk() else { continue };
            for request in requests() {
                inbox.ask(&disk, request);
                asked.push(id);
            }
        }
        let mut good = true;
        for (outcome, id) in inbox.wait_all(self.io.deadline).into_iter().zip(asked) {
            if let Err(error) = outcome {
                self.member_failed(id, &error);
                good = false;
            }
        }
        good
    }

    /// Whether members dropped out since the last epoch began: then a new one is due.
    pub fn epoch_is_due(&self) -> bool {
        self.watch_members();
        !self.read_only() && self.superblock.lock().version != Some(self.membership.load(Ordering::Acquire))
    }

    /// The superblock's root, as last published or found.
    pub fn root(&self) -> Option<Root> {
        self.superblock.lock().superblock.root.clone()
    }

    /// The rings that may hold records of the last epoch, for replay: those of members that are here.
    pub fn rings(&self) -> Vec<MemberId> {
        let state = self.superblock.lock();
        let tail = state.superblock.root.as_ref().map_or(1, |root| root.tail_seq);
        let Some(last) = state.superblock.epochs.last() else { return Vec::new() };
        last.ring_holders
            .iter()
            .copied()
            .filter(|&id| self.member(id).is_here())
            .filter(|&id| {
                state.superblock.members[usize::from(id)].ring_from.is_some_and(|from| from <= tail)
            })
            .collect()
    }

    /// The epoch history, oldest first.
    pub fn epochs(&self) -> Vec<Epoch> {
        self.superblock.lock().superblock.epochs.clone()
    }

    /// Whether the pool was unmounted in order when this was published.
    pub fn was_clean(&self) -> bool {
        self.superblock.lock().superblock.clean
    }

    /// Numbers of the members that take writes.
    pub(super) fn writable_members(&self) -> Vec<MemberId> {
        self.members().iter().filter(|member| member.is_writable()).map(|member| member.id).collect()
    }

    /// Copies that metadata and the journal have: one more than the most failures any layout survives, at
    /// least two where there are two members.
    pub fn metadata_copies(&self) -> usize {
        let stays = |member: &&Arc<Member>| member.is_active() && !member.is_draining();
        let active = self.members().iter().filter(stays).count();
        (self.default_resiliency().tolerance().max(1) + 1).clamp(1, 4).min(active.max(1))
    }
}

impl SuperState {
    /// The last epoch's number; 0 before the first.
    pub(super) fn last_epoch(&self) -> u64 {
        self.superblock.epochs.last().map_or(0, |epoch| epoch.counter)
    }

    fn current_epoch(&self) -> CurrentEpoch {
        self.superblock.epochs.last().map_or(
            CurrentEpoch { counter: 0, id: 0, ring_holders: Vec::new() },
            |epoch| CurrentEpoch {
                counter: epoch.counter,
                id: epoch.id,
                ring_holders: epoch.ring_holders.clone(),
            },
        )
    }
}
