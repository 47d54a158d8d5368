//! The members of a mounted pool: which are here, which take writes, which slabs of theirs are free.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::status::MemberHealth;
use super::trouble::Trouble;
use crate::limits::SLABS_MAX;
use crate::member::guard::{GuardOptions, Guarded};
use crate::member::metered::{Meter, Metered};
use crate::member::pulse::Pulse;
use crate::member::superblock::{MemberId, MemberRecord, MemberState};
use crate::member::{Disk, DiskKind, SlabNo};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};

/// One member of a mounted pool.
#[derive(Debug)]
pub struct Member {
    /// Its number.
    pub id: MemberId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Where it is, or was last seen.
    pub path: String,
    /// The disk itself, [guarded](Guarded); none when it is missing.
    pub disk: Option<Arc<dyn Disk>>,
    /// Trouble so far.
    pub trouble: Trouble,
    /// How fast it answers, and what it owes.
    pub pulse: Arc<Pulse>,
    /// What went to the disk and came from it.
    pub meter: Arc<Meter>,
    writable: AtomicBool,
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
            (MemberState::Active, Some(_)) => MemberHealth::Online,
            (MemberState::Active, None) if note.is_some() => MemberHealth::Diverged,
            (MemberState::Active, None) => MemberHealth::Missing,
        };
        let online = health == MemberHealth::Online;
        let meter = Arc::new(Meter::default());
        let pulse = Arc::new(Pulse::default());
        let guarded = |disk| {
            let metered = Arc::new(Metered::new(disk, Arc::clone(&meter)));
            Arc::new(Guarded::new(metered, Arc::clone(&pulse), guard)) as Arc<dyn Disk>
        };
        let disk = disk.map(guarded);
        Self {
            id,
            uuid: record.uuid,
            path: disk.as_ref().map_or_else(|| record.path.clone(), |disk| disk.path()),
            disk,
            trouble: Trouble::default(),
            pulse,
            meter,
            writable: AtomicBool::new(online),
            fate: Mutex::new(Fate { health, note }),
            slabs: Mutex::new(Slabs { room: record.slabs, ..Slabs::default() }),
        }
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
        (fate.health, fate.note.clone())
    }

    /// Sets it aside after a failed write. True when it was taking writes until now.
    pub fn set_aside(&self, why: String) -> bool {
        let was = self.writable.swap(false, Ordering::AcqRel);
        if was {
            *self.fate.lock() = Fate { health: MemberHealth::Failing, note: Some(why) };
        }
        was
    }

    /// Directories and images have slabs that must be made and deleted.
    pub fn makes_slabs(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.kind() != DiskKind::Device)
    }

    /// Marks a slab as taken by a set of the set table.
    pub fn claim(&self, slab: SlabNo) -> bool {
        self.slabs.lock().used.insert(slab)
    }

    /// Takes the lowest free slab, leaving `held_back` free ones alone.
    pub fn take_slab(&self, held_back: u64) -> Option<SlabNo> {
        let mut slabs = self.slabs.lock();
        if slabs.free() <= held_back {
            return None;
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
        Some(slab)
    }

    /// Gives a slab back.
    pub fn return_slab(&self, slab: SlabNo) {
        let mut slabs = self.slabs.lock();
        slabs.used.remove(&slab);
        slabs.search_from = slabs.search_from.min(slab);
        slabs.full_at = None;
    }

    /// The file system below is full: no more slabs than there are now, until some are given back.
    pub fn mark_full(&self) {
        let mut slabs = self.slabs.lock();
        slabs.full_at = Some(slabs.used.len() as u64);
    }

    /// Notes how many slabs may exist in all.
    pub fn set_room(&self, room: u64) {
        self.slabs.lock().room = room;
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

    /// Slabs that are in use.
    pub fn used_slabs(&self) -> BTreeSet<SlabNo> {
        self.slabs.lock().used.clone()
    }
}

impl Slabs {
    fn free(&self) -> u64 {
        let room = self.full_at.map_or(self.room, |full| self.room.min(full));
        room.saturating_sub(self.used.len() as u64)
    }
}
