//! Extents: who refers to them, where they lie, how much of each set is alive.

use super::rows::Rows;
use super::{Area, Check};
use crate::fs::error::Result;
use crate::fs::refs::live_bytes;
use crate::member::superblock::SetId;
use crate::member::wire;
use crate::store::tables::{
    Extent, ExtentId, Ino, MapEntry, Place, Table, extent_key, split_pair, split_ref,
};
use crate::units::SECTOR;

/// References that are held at a time.
const REFS_AT_ONCE: usize = 1 << 20;

/// Extent, inode and origin.
type Key = (ExtentId, Ino, u64);

/// A reference as its row has it, and what of it no segment accounts for yet.
struct Reference {
    key: Key,
    left: i64,
    /// Length of the extent; 0 where there is none.
    len: u32,
}

/// An extent that lies in a set.
struct Lying {
    set: SetId,
    end: u64,
    live: u64,
}

impl Check<'_> {
    /// References are what the maps say, and every extent has some.
    pub(super) fn references(&mut self) -> Result<()> {
        let store = &self.fs.store;
        let mut refs = Rows::of(store, Table::Refs);
        let mut extents = Rows::of(store, Table::Extents);
        let mut current: Option<(ExtentId, u32)> = None;
        let mut after = None;
        loop {
            let mut part: Vec<Reference> = Vec::new();
            while part.len() < REFS_AT_ONCE {
                let Some((key, value)) = refs.next()? else { break };
                let (Some(key), Ok(bytes)) = (split_ref(&key), wire::decode::<u32>(&value)) else {
                    self.report.add(Area::Extents, "a reference is damaged");
                    continue;
                };
                if current.is_none_or(|(id, _)| id < key.0) {
                    current = Some((key.0, self.extent_of(&mut extents, key.0)?));
                }
                let len = current.map_or(0, |(_, len)| len);
                part.push(Reference { key, left: i64::from(bytes), len });
            }
            let end = part.last().map(|one| one.key).filter(|_| part.len() == REFS_AT_ONCE);
            self.compare(&mut part, after, end)?;
            if end.is_none() {
                break;
            }
            after = end;
        }
        self.unreferenced(&mut extents, &[0xff; 16])
    }

    /// The length of an extent that is referred to; those before it are not.
    fn extent_of(&mut self, extents: &mut Rows<'_>, id: ExtentId) -> Result<u32> {
        self.unreferenced(extents, &extent_key(id))?;
        let Some((_, value)) = extents.next_below(&extent_key(id.saturating_add(1)))? else {
            self.report.add(Area::Extents, format!("extent {id} is referred to, and does not exist"));
            return Ok(0);
        };
        self.report.extents += 1;
        match wire::decode::<Extent>(&value) {
            Ok(extent) if extent.sums.len() as u64 * SECTOR == u64::from(extent.len) => Ok(extent.len),
            _ => {
                self.report.add(Area::Extents, format!("the record of extent {id} is damaged"));
                Ok(0)
            }
        }
    }

    fn unreferenced(&mut self, extents: &mut Rows<'_>, upto: &[u8]) -> Result<()> {
        while let Some((key, _)) = extents.next_below(upto)? {
            self.report.extents += 1;
            let id = crate::store::tables::single(&key).unwrap_or_default();
            self.report.add(Area::Extents, format!("nobody refers to extent {id}"));
        }
        Ok(())
    }

    /// Compares the references with keys behind `after`, up to and with `end`, with all maps.
    fn compare(&mut self, part: &mut [Reference], after: Option<Key>, end: Option<Key>) -> Result<()> {
        let mut map = Rows::of(&self.fs.store, Table::Map);
        while let Some((key, value)) = map.next()? {
            // What is damaged was found with its file.
            let (Some((ino, start)), Ok(entry)) = (split_pair(&key), wire::decode::<MapEntry>(&value)) else {
                continue;
            };
            let Some((id, at)) = entry.extent else { continue };
            let wanted = (id, ino, start.wrapping_sub(u64::from(at)));
            match part.binary_search_by(|one| one.key.cmp(&wanted)) {
                Ok(index) => {
                    let one = &mut part[index];
                    one.left = one.left.saturating_sub_unsigned(entry.len);
                    if u64::from(at) + entry.len > u64::from(one.len) {
                        let what = format!("inode {ino} refers beyond the end of extent {id}");
                        self.report.add(Area::Extents, what);
                    }
                }
                Err(_) if after.is_none_or(|after| wanted > after) && end.is_none_or(|end| wanted <= end) => {
                    let what = format!(
                        "inode {ino} refers to extent {id} at {start}, and is not among its references"
                    );
                    self.report.add(Area::Extents, what);
                }
                Err(_) => {}
            }
        }
        for one in part.iter().filter(|one| one.left != 0) {
            let (id, ino, origin) = one.key;
            let what = format!(
                "the reference of inode {ino} to extent {id} at {origin} is {} bytes too large",
                one.left
            );
            self.report.add(Area::Extents, what);
        }
        Ok(())
    }

    /// Every extent has its place below the fill mark of a set, none overlaps another, and each set counts what
    /// is alive in it.
    pub(super) fn places(&mut self) -> Result<()> {
        let store = &self.fs.store;
        let mut rows = Rows::of(store, Table::Places);
        let mut places = 0;
        let mut lying: Option<Lying> = None;
        let mut counted = Vec::new();
        while let Some((key, value)) = rows.next()? {
            places += 1;
            let (Some((set, address)), Ok(id)) = (split_pair(&key), wire::decode::<ExtentId>(&value)) else {
                self.report.add(Area::Extents, "a place is damaged");
                continue;
            };
            let record = store.get(Table::Extents, &extent_key(id))?;
            let extent = record.and_then(|record| wire::decode::<Extent>(&record).ok());
            let Some(extent) = extent.filter(|extent| (extent.set, extent.address) == (set, address)) else {
                let what =
                    format!("extent {id} is not at address {address} of set {set}, where it has a place");
                self.report.add(Area::Extents, what);
                continue;
            };
            if lying.as_ref().is_none_or(|lying| lying.set != set)
                && let Some(done) = lying.replace(Lying { set, end: 0, live: 0 })
            {
                counted.push(done.set);
                self.live_of_set(done.set, done.live);
            }
            if let Some(lying) = &mut lying {
                self.lies_well(id, extent.place(), lying);
                lying.live += live_bytes(store, id, u64::from(extent.len))?;
                lying.end = address + u64::from(extent.len);
            }
            if self.options.data {
                self.read(id, &extent);
            }
        }
        if let Some(done) = lying {
            counted.push(done.set);
            self.live_of_set(done.set, done.live);
        }
        self.empty_sets(&counted);
        if places != self.report.extents {
            let what = format!("there are {} extents, and places for {places}", self.report.extents);
            self.report.add(Area::Extents, what);
        }
        Ok(())
    }

    fn lies_well(&mut self, id: ExtentId, place: Place, before: &Lying) {
        let Place { set, address, len } = place;
        if address < before.end {
            self.report.add(Area::Extents, format!("extent {id} overlaps another in set {set}"));
        }
        if !self.fs.pool.is_written(set, address, u64::from(len)) {
            let what =
                format!("extent {id} at address {address} of set {set} lies where nothing was written");
            self.report.add(Area::Extents, what);
        }
    }

    /// Sets without any extent; `counted` are the others, in order.
    fn empty_sets(&mut self, counted: &[SetId]) {
        for usage in self.fs.pool.data_sets() {
            if counted.binary_search(&usage.id).is_err() {
                self.live_of_set(usage.id, 0);
            }
        }
    }

    fn read(&mut self, id: ExtentId, extent: &Extent) {
        let mut buf = vec![0; extent.len as usize];
        self.report.data_bytes += u64::from(extent.len);
        if let Err(error) = self.fs.pool.read(extent.set, extent.address, &extent.sums, &mut buf) {
            self.report.add(Area::Data, format!("extent {id}: {error}"));
        }
    }
}
