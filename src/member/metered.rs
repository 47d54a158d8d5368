//! A disk that counts what goes through it.

use serde::{Deserialize, Serialize};

use super::{Area, Disk, DiskKind, Result, Room, SlabNo};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// What went to a disk and came from it since it was opened: calls that succeeded, and their bytes. Superblocks and
/// the journal are among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
}

/// The counters, which are read while the disk is in use.
#[derive(Debug, Default)]
pub struct Meter {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Meter {
    /// The counts as of now.
    pub fn traffic(&self) -> Traffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            reads: read(&self.reads),
            read_bytes: read(&self.read_bytes),
            writes: read(&self.writes),
            written_bytes: read(&self.written_bytes),
            syncs: read(&self.syncs),
        }
    }
}

/// Another disk, with a meter on it.
#[derive(Debug)]
pub struct Metered {
    disk: Arc<dyn Disk>,
    meter: Arc<Meter>,
}

impl Metered {
    /// Puts a meter on `disk`.
    pub fn new(disk: Arc<dyn Disk>, meter: Arc<Meter>) -> Self {
        Self { disk, meter }
    }
}

fn count(result: Result<()>, calls: &AtomicU64, bytes: Option<(&AtomicU64, usize)>) -> Result<()> {
    if result.is_ok() {
        calls.fetch_add(1, Ordering::Relaxed);
        if let Some((sum, len)) = bytes {
            sum.fetch_add(len as u64, Ordering::Relaxed);
        }
    }
    result
}

impl Disk for Metered {
    fn kind(&self) -> DiskKind {
        self.disk.kind()
    }

    fn path(&self) -> String {
        self.disk.path()
    }

    fn read(&self, area: Area, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len();
        let result = self.disk.read(area, offset, buf);
        count(result, &self.meter.reads, Some((&self.meter.read_bytes, len)))
    }

    fn write(&self, area: Area, offset: u64, buf: &[u8]) -> Result<()> {
        let result = self.disk.write(area, offset, buf);
        count(result, &self.meter.writes, Some((&self.meter.written_bytes, buf.len())))
    }

    fn sync(&self, area: Area) -> Result<()> {
        count(self.disk.sync(area), &self.meter.syncs, None)
    }

    fn create_slab(&self, slab: SlabNo) -> Result<()> {
        self.disk.create_slab(slab)
    }

    fn delete_slab(&self, slab: SlabNo) -> Result<()> {
        self.disk.delete_slab(slab)
    }

    fn list_slabs(&self) -> Result<Vec<SlabNo>> {
        self.disk.list_slabs()
    }

    fn room(&self) -> Result<Room> {
        self.disk.room()
    }

    fn device_id(&self) -> u64 {
        self.disk.device_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::AlignedBuf;
    use crate::member::sim::SimWorld;

    #[test]
    fn what_succeeds_is_counted() {
        let world = SimWorld::new(1);
        let disk: Arc<dyn Disk> = world.disk("a", 4);
        let meter = Arc::new(Meter::default());
        let metered = Metered::new(disk, Arc::clone(&meter));
        let mut buf = AlignedBuf::zeroed(8192);
        metered.write(Area::Journal, 0, &buf).expect("written");
        metered.sync(Area::Journal).expect("synced");
        metered.read(Area::Journal, 0, &mut buf[..4096]).expect("read");
        assert!(metered.read(Area::Slab(3), 0, &mut buf).is_err(), "a slab that was never made");
        let expected = Traffic { reads: 1, read_bytes: 4096, writes: 1, written_bytes: 8192, syncs: 1 };
        assert_eq!(meter.traffic(), expected);
    }
}
