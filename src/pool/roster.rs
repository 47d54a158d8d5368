//! The members of a mounted pool: which are here, which take writes, which slabs of theirs are free.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::status::MemberHealth;
use super::trouble::Trouble;
use crate::limits::{MEMBERS_MAX, SLABS_MAX};
use crate::member::guard::{GuardOptions, Guarded};
use crate::member::metered::{Meter, Metered};
use crate::member::pulse::Pulse;
use crate::member::superblock::{MemberId, MemberRecord, MemberState};
use crate::member::{Disk, DiskKind, SlabNo};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, OnceLock, RwLock};

/// Every member that the pool ever had, by number. Members are added and never taken out, since their numbers are
/// not used again: so a member is found without any lock.
#[derive(Debug)]
pub struct Roster {
    members: Box<[OnceLock<Arc<Member>>]>,
    /// How many there are. Changed with the superblock locked only.
    count: AtomicUsize,
}

impl Roster {
    /// A roster of these members, which have the numbers from 0 on.
    pub fn new(members: Vec<Member>) -> Self {
        let count = AtomicUsize::new(members.len());
        let mut members = members.into_iter().map(|member| OnceLock::from(Arc::new(member)));
        let members = (0..MEMBERS_MAX).map(|_| members.next().unwrap_or_default()).collect();
        Self { members, count }
    }

    /// The member with this number.
    pub fn get(&self, id: usize) -> Option<&Arc<Member>> {
        self.members.get(id)?.get()
    }

    /// How many there are, or were.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Member>> + Clone {
        self.members.iter().map_while(OnceLock::get)
    }

    /// Adds a member with the next number. False when that is not its number, or there are too many.
    pub(super) fn push(&self, member: Member) -> bool {
        let index = usize::from(member.id);
        let next = self.members.get(index).filter(|_| index == self.len());
        let added = next.is_some_and(|place| place.set(Arc::new(member)).is_ok());
        if added {
            self.count.store(index + 1, Ordering::Release);
        }
        added
    }
}

impl std::ops::Index<usize> for Roster {
    type Output = Arc<Member>;

    fn index(&self, id: usize) -> &Arc<Member> {
        // As with a slice: whoever counts beyond the end has a bug.
        self.get(id).expect("a member of this number")
    }
}

/// Of the slabs that a member may have, one in so many is kept when it is free.
const KEPT_SHARE: u64 = 16;

/// One member of a mounted pool.
#[derive(Debug)]
pub struct Member {
    /// Its number.
    pub id: MemberId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Where it was when the pool was put together, or last seen; for messages.
    pub path: String,
    /// Guarded and metered; none when it is not here.
    disk: RwLock<Option<Arc<dyn Disk>>>,
    guard: GuardOptions,
    /// Trouble so far.
    pub trouble: Trouble,
    /// How fast it answers, and what it owes.
    pub pulse: Arc<Pulse>,
    /// What went to the disk and came from it.
    pub meter: Arc<Meter>,
    writable: AtomicBool,
    /// How often it dropped out.
    departures: AtomicU64,
    /// It is being emptied: no new sets, and what is open is closed.
    draining: AtomicBool,
    fate: Mutex<Fate>,
    slabs: Mutex<Slabs>,
}

#[derive(Debug)]
struct Fate {
    health: MemberHealth,
    note: Option<String>,
}

#[derive(Debug, Default)]
struct Slabs {
    /// How many slabs may exist.
    room: u64,
    /// Set when the file system below was full: no more than this many until some are freed.
    full_at: Option<u64>,
    used: BTreeSet<SlabNo>,
    /// Those in use that the disk does not have any more.
    lost: BTreeSet<SlabNo>,
    /// Free ones that the disk has nevertheless, to be used next: making and deleting them costs more than it is
    /// worth where they come and go.
    kept: BTreeSet<SlabNo>,
    /// Every slab below this one is in use.
    search_from: SlabNo,
}

impl Member {
    /// A member as the superblock knows it, with its disk where that was found.
    pub fn new(
        id: MemberId,
        record: &MemberRecord,
        disk: Option<Arc<dyn Disk>>,
        note: Option<String>,
        guard: &GuardOptions,
    ) -> Self {
        let health = match (&record.state, &disk) {
            (MemberState::Removed, _) => MemberHealth::Removed,
            (MemberState::Offline, None) => MemberHealth::Offline,
            (MemberState::Offline, Some(_)) => MemberHealth::Online,
            (MemberState::Active, Some(_)) => MemberHealth::Online,
            (MemberState::Active, None) if note.is_some() => MemberHealth::Diverged,
            (MemberState::Active, None) => MemberHealth::Missing,
        };
        let online = health == MemberHealth::Online;
        let meter = Arc::new(Meter::default());
        let pulse = Arc::new(Pulse::default());
        let disk = disk.map(|disk| guarded(disk, &meter, &pulse, guard));
        Self {
            id,
            uuid: record.uuid,
            path: disk.as_ref().map_or_else(|| record.path.clone(), |disk| disk.path()),
            disk: RwLock::new(disk),
            guard: guard.clone(),
            trouble: Trouble::default(),
            pulse,
            meter,
            writable: AtomicBool::new(online),
            departures: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            fate: Mutex::new(Fate { health, note }),
            slabs: Mutex::new(Slabs { room: record.slabs, ..Slabs::default() }),
        }
    }

    /// The disk itself; none when it is missing. What holds it may go on using it after the member has left.
    pub fn disk(&self) -> Option<Arc<dyn Disk>> {
        self.disk.read().clone()
    }

    /// It can be read.
    pub fn is_here(&self) -> bool {
        self.disk.read().is_some()
    }

    /// Where it is now, or was last seen.
    pub fn place(&self) -> String {
        self.disk.read().as_ref().map_or_else(|| self.path.clone(), |disk| disk.path())
    }

    /// Takes new sets: it takes writes, and is not being emptied.
    pub fn takes_sets(&self) -> bool {
        self.is_writable() && !self.is_draining()
    }

    /// It is being emptied.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Begins, or ends, to empty it.
    pub fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Release);
    }

    /// Its disk is here again, and takes writes from now on. The caller begins a new epoch.
    pub(super) fn attach(&self, disk: Arc<dyn Disk>) {
        self.kept_slabs();
        *self.disk.write() = Some(guarded(disk, &self.meter, &self.pulse, &self.guard));
        *self.fate.lock() = Fate { health: MemberHealth::Online, note: None };
        self.writable.store(true, Ordering::Release);
    }

    /// It takes no writes any more; it can still be read until [`Member::close`]. True when it took some until now:
    /// the caller begins a new epoch.
    pub(super) fn leave(&self, health: MemberHealth) -> bool {
        let was = self.stop_writes();
        *self.fate.lock() = Fate { health, note: None };
        was
    }

    fn stop_writes(&self) -> bool {
        let was = self.writable.swap(false, Ordering::AcqRel);
        self.departures.fetch_add(u64::from(was), Ordering::AcqRel);
        was
    }

    /// How often it dropped out since the pool was put together. What it took before it did so may be lost.
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// Lets go of the disk, which is closed when nobody uses it any more.
    pub(super) fn close(&self) -> Option<Arc<dyn Disk>> {
        self.disk.write().take()
    }

    /// Takes writes: it belongs to the current epoch, or to the one about to begin.
    pub fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Acquire)
    }

    /// Belongs to the pool, whether it is here or not.
    pub fn is_active(&self) -> bool {
        self.fate.lock().health != MemberHealth::Removed
    }

    /// Whether requests to it are under way, perhaps given up by those who waited. Until they have ended, a write
    /// may still hit any slab that it had: it must not be taken back into the pool.
    pub fn owes_answers(&self, now: Duration) -> bool {
        self.pulse.owes_since(now).is_some()
    }

    /// How it is, and what happened last.
    pub fn health(&self) -> (MemberHealth, Option<String>) {
        let fate = self.fate.lock();
        match fate.health {
            MemberHealth::Online if self.is_draining() => (MemberHealth::Evacuating, fate.note.clone()),
            health => (health, fate.note.clone()),
        }
    }

    /// Sets it aside after a failed write. True when it was taking writes until now.
    pub fn set_aside(&self, why: String) -> bool {
        let was = self.stop_writes();
        if was {
            *self.fate.lock() = Fate { health: MemberHealth::Failing, note: Some(why) };
        }
        was
    }

    /// Directories and images have slabs that must be made and deleted.
    pub fn makes_slabs(&self) -> bool {
        self.disk.read().as_ref().is_some_and(|disk| disk.kind() != DiskKind::Device)
    }

    /// Marks a slab as taken by a set of the set table.
    pub fn claim(&self, slab: SlabNo) -> bool {
        self.slabs.lock().used.insert(slab)
    }

    /// Takes a free slab, leaving `held_back` free ones alone: one that was kept, or the lowest. Says whether the disk
    /// has it already.
    pub fn take_slab(&self, held_back: u64) -> Option<(SlabNo, bool)> {
        let mut slabs = self.slabs.lock();
        if slabs.free() <= held_back {
            return None;
        }
        if let Some(slab) = slabs.kept.pop_first() {
            slabs.used.insert(slab);
            return Some((slab, true));
        }
        let mut slab = slabs.search_from;
        while slabs.used.contains(&slab) {
            slab += 1;
        }
        if u64::from(slab) >= SLABS_MAX {
            return None;
        }
        slabs.used.insert(slab);
        slabs.search_from = slab + 1;
        Some((slab, false))
    }

    /// A slab that was taken could not be made: it is free as before, and the disk does not have it.
    pub fn untake_slab(&self, slab: SlabNo) {
        let mut slabs = self.slabs.lock();
        slabs.used.remove(&slab);
        slabs.search_from = slabs.search_from.min(slab);
    }

    /// Gives a slab back. It is kept for the next set, or deleted before anybody else can take it.
    pub fn return_slab(&self, slab: SlabNo, delete: impl FnOnce()) {
        if self.keep(slab) {
            return;
        }
        delete();
        let mut slabs = self.slabs.lock();
        slabs.used.remove(&slab);
        slabs.lost.remove(&slab);
        slabs.search_from = slabs.search_from.min(slab);
        slabs.full_at = None;
    }

    /// Makes a slab that was in use one of those that are kept, if there is to be another. From then on it may be
    /// somebody else's at any moment.
    fn keep(&self, slab: SlabNo) -> bool {
        if !self.takes_sets() || !self.makes_slabs() {
            return false;
        }
        let mut slabs = self.slabs.lock();
        let wanted = !slabs.lost.contains(&slab) && (slabs.kept.len() as u64) < slabs.room / KEPT_SHARE;
        let keeps = wanted && slabs.used.remove(&slab);
        if keeps {
            slabs.kept.insert(slab);
            slabs.full_at = None;
        }
        keeps
    }

    /// The slab is free, and nobody is to rely on its being there any more: it is about to be deleted.
    pub fn is_kept_no_more(&self, slab: SlabNo) {
        self.slabs.lock().kept.remove(&slab);
    }

    /// Free slabs that the disk has. They are kept no more: the caller deletes them.
    pub fn kept_slabs(&self) -> BTreeSet<SlabNo> {
        std::mem::take(&mut self.slabs.lock().kept)
    }

    /// The file system below is full: no more slabs than there are now, until some are given back.
    pub fn mark_full(&self) {
        let mut slabs = self.slabs.lock();
        slabs.full_at = Some((slabs.used.len() + slabs.kept.len()) as u64);
    }

    /// Notes how many slabs may exist beyond those that do, and in all.
    pub fn set_spare(&self, spare: u64, most: u64) {
        let mut slabs = self.slabs.lock();
        slabs.room = most.min((slabs.used.len() + slabs.kept.len()) as u64 + spare);
    }

    /// Slabs that may exist, and slabs in use.
    pub fn slab_counts(&self) -> (u64, u64) {
        let slabs = self.slabs.lock();
        (slabs.room.max(slabs.used.len() as u64), slabs.used.len() as u64)
    }

    /// Slabs that can still be taken.
    pub fn free_slabs(&self) -> u64 {
        self.slabs.lock().free()
    }

    /// Notes which of the slabs in use the disk does not have: somebody deleted them. Returns how many.
    pub(super) fn note_lost(&self, there: &[SlabNo]) -> usize {
        let mut slabs = self.slabs.lock();
        let there: BTreeSet<SlabNo> = there.iter().copied().collect();
        slabs.lost = slabs.used.difference(&there).copied().collect();
        slabs.lost.len()
    }

    /// The slab is in use, and the disk does not have it.
    pub fn has_lost(&self, slab: SlabNo) -> bool {
        self.slabs.lock().lost.contains(&slab)
    }

    /// Slabs that are in use.
    pub fn used_slabs(&self) -> BTreeSet<SlabNo> {
        self.slabs.lock().used.clone()
    }
}

/// A disk as the pool uses it: what goes through it is counted, and nobody waits for it longer than a deadline.
fn guarded(
    disk: Arc<dyn Disk>,
    meter: &Arc<Meter>,
    pulse: &Arc<Pulse>,
    guard: &GuardOptions,
) -> Arc<dyn Disk> {
    let metered = Arc::new(Metered::new(disk, Arc::clone(meter)));
    Arc::new(Guarded::new(metered, Arc::clone(pulse), guard))
}

impl Slabs {
    fn free(&self) -> u64 {
        let room = self.full_at.map_or(self.room, |full| self.room.min(full));
        room.saturating_sub(self.used.len() as u64)
    }
}
