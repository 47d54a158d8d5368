//! Extents: who refers to them, where they lie, how much of each set is alive.

use std::collections::BTreeMap;

use super::rows::Rows;
use super::{Area, Check};
use crate::fs::error::Result;
use crate::fs::refs::live_bytes;
use crate::member::superblock::SetId;
use crate::member::wire;
use crate::store::tables::{
    Batch, Extent, ExtentId, Ino, MapEntry, Place, Table, extent_key, set_key, single, split_pair, split_ref,
};
use crate::units::SECTOR;

/// References that are held at a time, and those of one extent more.
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
        let mut after = None;
        loop {
            let (mut part, mut end) = (Vec::new(), None);
            while end.is_none()
                && let Some((key, value)) = extents.next()?
            {
                let id = single(&key).unwrap_or_default();
                self.of_extent(id, &value, &mut refs, &mut part)?;
                end = (part.len() >= REFS_AT_ONCE).then_some((id, Ino::MAX, u64::MAX));
            }
            if end.is_none() {
                self.unowned(&mut refs, &[0xff; 32])?;
            }
            self.compare(&mut part, after, end)?;
            if end.is_none() {
                return Ok(());
            }
            after = end;
        }
    }

    /// Appends the references of one extent, in order: those with rows, and the owner's if it has none.
    fn of_extent(
        &mut self,
        id: ExtentId,
        record: &[u8],
        refs: &mut Rows<'_>,
        part: &mut Vec<Reference>,
    ) -> Result<()> {
        self.report.extents += 1;
        self.unowned(refs, &extent_key(id))?;
        let extent = wire::unpack::<Extent>(record).ok();
        let extent = extent.filter(|extent| extent.sums.len() as u64 * SECTOR == u64::from(extent.len));
        if extent.is_none() {
            self.report.add(Area::Extents, format!("the record of extent {id} is damaged"));
        }
        let len = extent.as_ref().map_or(0, |extent| extent.len);
        let mut own: BTreeMap<Key, u32> = extent
            .map(|extent| ((id, extent.owner.ino, extent.owner.origin), extent.len))
            .into_iter()
            .collect();
        while let Some((key, value)) = refs.next_below(&extent_key(id.saturating_add(1)))? {
            match (split_ref(&key), wire::unpack(&value)) {
                (Some(key), Ok(bytes)) => drop(own.insert(key, bytes)),
                _ => self.report.add(Area::Extents, "a reference is damaged"),
            }
        }
        own.retain(|_, bytes| *bytes > 0);
        if own.is_empty() {
            self.report.add(Area::Extents, format!("nobody refers to extent {id}"));
        }
        part.extend(own.into_iter().map(|(key, bytes)| Reference { key, left: i64::from(bytes), len }));
        Ok(())
    }

    /// References with keys below `upto`, of extents that do not exist.
    fn unowned(&mut self, refs: &mut Rows<'_>, upto: &[u8]) -> Result<()> {
        while let Some((key, _)) = refs.next_below(upto)? {
            let id = split_ref(&key).map_or(0, |(id, _, _)| id);
            self.report.add(Area::Extents, format!("extent {id} is referred to, and does not exist"));
        }
        Ok(())
    }

    /// Compares the references with keys behind `after`, up to and with `end`, with all maps.
    fn compare(&mut self, part: &mut [Reference], after: Option<Key>, end: Option<Key>) -> Result<()> {
        let mut map = Rows::of(&self.fs.store, Table::Map);
        while let Some((key, value)) = map.next()? {
            // What is damaged was found with its file.
            let (Some((ino, start)), Ok(entry)) = (split_pair(&key), wire::unpack::<MapEntry>(&value)) else {
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
        let mut rows = Rows::of(&self.fs.store, Table::Places);
        let mut found = 0;
        let mut lying: Option<Lying> = None;
        let mut counted = Vec::new();
        while let Some((key, value)) = rows.next()? {
            let (Some((set, mut address)), Ok(batch)) = (split_pair(&key), wire::unpack::<Batch>(&value))
            else {
                self.report.add(Area::Extents, "a place is damaged");
                continue;
            };
            if lying.as_ref().is_none_or(|lying| lying.set != set) {
                if let Some(done) = lying.replace(Lying { set, end: 0, live: 0 }) {
                    self.end_of_set(&done, &mut counted);
                }
                self.left_behind(set)?;
            }
            for (id, len) in batch {
                if let Some(lying) = &mut lying {
                    found += u64::from(self.at_place(id, set, address, lying)?);
                }
                address = address.saturating_add(u64::from(len));
            }
        }
        if let Some(done) = lying {
            self.end_of_set(&done, &mut counted);
        }
        self.empty_sets(&counted);
        if found != self.report.extents {
            let what = format!("there are {} extents, and places for {found}", self.report.extents);
            self.report.add(Area::Extents, what);
        }
        Ok(())
    }

    /// An extent as a batch has it. False when it is gone, or has moved.
    fn at_place(&mut self, id: ExtentId, set: SetId, address: u64, lying: &mut Lying) -> Result<bool> {
        let store = &self.fs.store;
        let record = store.get(Table::Extents, &extent_key(id))?;
        let extent = record.and_then(|record| wire::unpack::<Extent>(&record).ok());
        let Some(extent) = extent.filter(|extent| (extent.set, extent.address) == (set, address)) else {
            return Ok(false);
        };
        self.lies_well(id, extent.place(), lying);
        lying.live += live_bytes(store, id, &extent.head())?;
        lying.end = address + u64::from(extent.len);
        if self.options.data {
            self.read(id, &extent);
        }
        Ok(true)
    }

    /// Batches of sets that are gone may be there for a while, but only as long as that is known.
    fn left_behind(&mut self, set: SetId) -> Result<()> {
        let is_known = self.fs.pool.set_usage(set).is_some()
            || self.fs.store.get(Table::Freed, &set_key(set))?.is_some();
        if !is_known {
            self.report.add(Area::Extents, format!("places in set {set}, which is gone, were left behind"));
        }
        Ok(())
    }

    fn end_of_set(&mut self, done: &Lying, counted: &mut Vec<SetId>) {
        if done.live > 0 || self.fs.pool.set_usage(done.set).is_some() {
            counted.push(done.set);
            self.live_of_set(done.set, done.live);
        }
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
