//! One simulated disk.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::faults::Faults;
use super::image::{Pages, PowerCut};
use super::pace::{Late, Pacer};
use super::world::{Power, Step};
use crate::limits::SLABS_MAX;
use crate::member::{Area, Dimensions, Disk, DiskKind, MemberError, Result, Room, SlabNo};
use crate::units::SECTOR_LEN;

/// What a slab holds that was never written.
const GARBAGE: u8 = 0xdb;

/// What a disk was asked to do; failed attempts count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimCounters {
    /// Requests to read.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Requests to write.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Requests to sync.
    pub syncs: u64,
    /// Transfers whose buffer did not start on a sector's boundary: a real disk would have to copy.
    pub unaligned: u64,
}

/// A write that reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Where.
    pub area: Area,
    /// Byte offset within the area.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What a disk held durably at some moment.
#[derive(Debug, Clone)]
pub struct SimSnapshot(Content);

/// The bytes of a disk.
#[derive(Debug, Clone)]
struct Content {
    superblocks: [Pages; 2],
    journal: Pages,
    slabs: BTreeMap<SlabNo, Pages>,
    /// Deleted slabs: what is made there again begins with what they held.
    deleted: BTreeMap<SlabNo, Pages>,
}

#[derive(Debug)]
struct State {
    content: Content,
    faults: Faults,
    capacity: u64,
    counters: SimCounters,
    written: Vec<Written>,
    pacer: Pacer,
}

/// A disk of memory. See the [module](super) for what can happen to it.
#[derive(Debug)]
pub struct SimDisk {
    name: String,
    id: u64,
    dimensions: Dimensions,
    power: Arc<Power>,
    state: Mutex<State>,
}

impl State {
    /// Lets the writes reach the medium that are due.
    fn settle(&mut self, now: Duration) {
        for Late { area, offset, bytes, .. } in self.pacer.take_due(now) {
            if let Some(pages) = self.content.pages(area) {
                pages.write(offset, &bytes);
            }
        }
    }
}

impl Content {
    fn empty() -> Self {
        let zeros = || Pages::new(0);
        let slabs = BTreeMap::new();
        Self { superblocks: [zeros(), zeros()], journal: zeros(), deleted: slabs.clone(), slabs }
    }

    fn pages(&mut self, area: Area) -> Option<&mut Pages> {
        match area {
            Area::Superblock(copy) => self.superblocks.get_mut(usize::from(copy)),
            Area::Journal => Some(&mut self.journal),
            Area::Slab(slab) => self.slabs.get_mut(&slab),
        }
    }

    fn all_pages(&mut self) -> impl Iterator<Item = &mut Pages> {
        let fixed = self.superblocks.iter_mut().chain([&mut self.journal]);
        fixed.chain(self.slabs.values_mut()).chain(self.deleted.values_mut())
    }

    fn durable(&self) -> Self {
        let slabs = |slabs: &BTreeMap<SlabNo, Pages>| {
            slabs.iter().map(|(&slab, pages)| (slab, pages.durable())).collect()
        };
        Self {
            superblocks: [self.superblocks[0].durable(), self.superblocks[1].durable()],
            journal: self.journal.durable(),
            slabs: slabs(&self.slabs),
            deleted: slabs(&self.deleted),
        }
    }

    fn make(&mut self, slab: SlabNo) {
        let old = self.deleted.remove(&slab);
        self.slabs.entry(slab).or_insert_with(|| old.unwrap_or_else(|| Pages::new(GARBAGE)));
    }

    fn delete(&mut self, slab: SlabNo) {
        if let Some(pages) = self.slabs.remove(&slab) {
            self.deleted.insert(slab, pages);
        }
    }
}

impl SimDisk {
    pub(super) fn new(name: &str, id: u64, capacity: u64, dimensions: Dimensions, power: Arc<Power>) -> Self {
        let state = State {
            content: Content::empty(),
            faults: Faults::default(),
            capacity,
            counters: SimCounters::default(),
            written: vec![],
            pacer: Pacer::new(id),
        };
        Self { name: name.to_owned(), id, dimensions, power, state: Mutex::new(state) }
    }

    pub(super) fn power_cut(&self, policy: PowerCut, random: &mut u64) {
        let mut state = self.state.lock();
        state.pacer.late.clear();
        for pages in state.content.all_pages() {
            pages.power_cut(policy, random);
        }
    }

    pub(super) fn with_faults<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        change(&mut self.state.lock().faults)
    }

    pub(super) fn with_pacer<R>(&self, change: impl FnOnce(&mut Pacer, Duration) -> R) -> R {
        let now = self.power.clock().elapsed();
        change(&mut self.state.lock().pacer, now)
    }

    /// Takes the time that a request of so many bytes takes.
    fn take_time(&self, bytes: usize) {
        let clock = self.power.clock();
        let wait = {
            let now = clock.elapsed();
            let mut state = self.state.lock();
            state.settle(now);
            state.pacer.wait(now, bytes as u64)
        };
        clock.sleep(wait);
    }

    /// Flips a bit of the byte at `offset` on the medium: the disk will not notice. Slabs that don't exist
    /// have no bits.
    pub fn flip(&self, area: Area, offset: u64, bit: u32) {
        if let Some(pages) = self.state.lock().content.pages(area) {
            pages.flip(offset, bit);
        }
    }

    /// What is durable now.
    pub fn snapshot(&self) -> SimSnapshot {
        SimSnapshot(self.state.lock().content.durable())
    }

    /// Sets the disk back to what it held then: a stale member, or with another disk's snapshot, a clone.
    pub fn restore(&self, snapshot: &SimSnapshot) {
        self.state.lock().content = snapshot.0.clone();
    }

    /// Changes how many slabs there is room for.
    pub fn set_capacity(&self, slabs: u64) {
        self.state.lock().capacity = slabs;
    }

    /// What the disk was asked to do so far.
    pub fn counters(&self) -> SimCounters {
        self.state.lock().counters
    }

    /// The writes that reached the disk since it was made, or since [`SimDisk::forget_written`], in order.
    pub fn written_ranges(&self) -> Vec<Written> {
        self.state.lock().written.clone()
    }

    /// Empties the list that [`SimDisk::written_ranges`] gives.
    pub fn forget_written(&self) {
        self.state.lock().written.clear();
    }

    fn error(
        &self,
        doing: &'static str,
        area: Area,
        offset: u64,
        source: impl Into<io::Error>,
    ) -> MemberError {
        MemberError::transfer(Path::new(&self.name), doing, area, offset, source)
    }

    fn dark(&self, doing: &'static str, area: Area) -> MemberError {
        self.error(doing, area, 0, io::Error::other("power lost"))
    }

    fn no_slab(&self, area: Area) -> MemberError {
        match area {
            Area::Slab(slab) => MemberError::NoSlab { path: self.name.clone(), slab },
            _ => self.error("finding", area, 0, Errno::NOENT),
        }
    }

    /// Makes or deletes a slab, which happens whole or not at all.
    fn change_slabs(
        &self,
        doing: &'static str,
        slab: SlabNo,
        change: impl FnOnce(&mut State) -> Result<()>,
    ) -> Result<()> {
        let area = Area::Slab(slab);
        self.take_time(0);
        let mut state = self.state.lock();
        let step = self.power.step();
        if step == Step::Dark {
            return Err(self.dark(doing, area));
        }
        state.faults.check_change().map_err(|e| self.error(doing, area, 0, e))?;
        match step {
            Step::Interrupted(happens) => {
                if happens {
                    change(&mut state)?;
                }
                Err(self.dark(doing, area))
            }
            _ => change(&mut state),
        }
    }
}

impl Disk for SimDisk {
    fn kind(&self) -> DiskKind {
        DiskKind::Simulated
    }

    fn path(&self) -> String {
        self.name.clone()
    }

    fn read(&self, area: Area, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.dimensions.check_transfer(self, area, offset, buf.len())?;
        self.take_time(buf.len());
        let mut state = self.state.lock();
        state.counters.reads += 1;
        state.counters.read_bytes += buf.len() as u64;
        state.counters.unaligned += is_unaligned(buf);
        if self.power.is_dark() {
            return Err(self.dark("reading", area));
        }
        let end = offset + buf.len() as u64;
        state.faults.check_read(area, offset..end).map_err(|e| self.error("reading", area, offset, e))?;
        let pages = state.content.pages(area).ok_or_else(|| self.no_slab(area))?;
        pages.read(offset, buf);
        Ok(())
    }

    fn write(&self, area: Area, offset: u64, buf: &[u8]) -> Result<()> {
        self.dimensions.check_transfer(self, area, offset, buf.len())?;
        let hanging = self.hang_end();
        self.take_time(buf.len());
        let mut state = self.state.lock();
        state.counters.writes += 1;
        state.counters.written_bytes += buf.len() as u64;
        state.counters.unaligned += is_unaligned(buf);
        let step = self.power.step();
        if step == Step::Dark {
            return Err(self.dark("writing", area));
        }
        let len = buf.len() as u64;
        let failed = |e: Errno| self.error("writing", area, offset, e);
        state.faults.check_write(area, offset..offset + len).map_err(failed)?;
        let pages = state.content.pages(area).ok_or_else(|| self.no_slab(area))?;
        match hanging {
            // In virtual time the caller is not held up, and what it wrote must not be there yet.
            Some(at) => state.pacer.late.push(Late { at, area, offset, bytes: buf.to_vec() }),
            None => pages.write(offset, buf),
        }
        state.faults.rewritten(area, offset..offset + len);
        state.written.push(Written { area, offset, len });
        // Interrupted: on its way like any other write that was not synced, so the power cut decides.
        if step == Step::Go { Ok(()) } else { Err(self.dark("writing", area)) }
    }

    fn sync(&self, area: Area) -> Result<()> {
        self.take_time(0);
        let mut state = self.state.lock();
        state.counters.syncs += 1;
        let step = self.power.step();
        if step != Step::Go {
            return Err(self.dark("syncing", area));
        }
        let checked = state.faults.check_sync();
        let pages = state.content.pages(area).ok_or_else(|| self.no_slab(area))?;
        match checked {
            Ok(()) => pages.sync(),
            Err(_) => pages.fail_sync(),
        }
        checked.map_err(|e| self.error("syncing", area, 0, e))
    }

    fn create_slab(&self, slab: SlabNo) -> Result<()> {
        self.change_slabs("making", slab, |state| {
            if state.content.slabs.contains_key(&slab) {
                return Ok(());
            }
            let exist = state.content.slabs.len() as u64;
            if state.faults.is_full() || exist >= state.capacity || u64::from(slab) >= SLABS_MAX {
                return Err(MemberError::NoSpace { path: self.name.clone(), slab });
            }
            state.content.make(slab);
            Ok(())
        })
    }

    fn delete_slab(&self, slab: SlabNo) -> Result<()> {
        self.change_slabs("deleting", slab, |state| {
            state.content.delete(slab);
            Ok(())
        })
    }

    fn list_slabs(&self) -> Result<Vec<SlabNo>> {
        self.take_time(0);
        let state = self.state.lock();
        self.check_alive(&state)?;
        Ok(state.content.slabs.keys().copied().collect())
    }

    fn room(&self) -> Result<Room> {
        self.take_time(0);
        let state = self.state.lock();
        self.check_alive(&state)?;
        let exist = state.content.slabs.len() as u64;
        let slabs = if state.faults.is_full() { exist } else { state.capacity.min(SLABS_MAX) };
        Ok(Room { slabs, below: None })
    }

    fn device_id(&self) -> u64 {
        self.id
    }
}

impl SimDisk {
    /// When the hang ends that a write begins in; none when it does not, or the hang is waited out for real.
    fn hang_end(&self) -> Option<Duration> {
        let clock = self.power.clock();
        let now = clock.elapsed();
        let until = self.state.lock().pacer.hang_until;
        (clock.is_manual() && until > now).then_some(until)
    }

    /// Whether the disk answers at all.
    fn check_alive(&self, state: &State) -> Result<()> {
        if self.power.is_dark() {
            return Err(self.dark("listing", Area::Superblock(0)));
        }
        let alive = state.faults.check_alive();
        alive.map_err(|e| self.error("listing", Area::Superblock(0), 0, e))
    }
}

fn is_unaligned(buf: &[u8]) -> u64 {
    u64::from(!buf.as_ptr().addr().is_multiple_of(SECTOR_LEN))
}
