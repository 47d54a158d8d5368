//! What lies where in a set: extents by their addresses.

use std::ops::Range;

use super::Store;
use super::error::{Result, StoreError};
use super::tables::{Batch, Extent, ExtentId, Table, extent_key, place_key, split_pair};
use crate::member::superblock::SetId;
use crate::member::wire;
use crate::units::SECTOR;

impl Store {
    /// The extents of which something lies in these addresses of a set, in order. One that moves or goes meanwhile may be
    /// left out; so may what is written there meanwhile.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn extents_in(&self, set: SetId, addresses: Range<u64>) -> Result<Vec<(ExtentId, Extent)>> {
        let from = place_key(set, addresses.start);
        // A batch that begins before may reach into them, and batches do not overlap.
        let mut rows: Vec<_> =
            self.last_at_or_before(Table::Places, &place_key(set, 0), &from)?.into_iter().collect();
        let rest = self.scan(Table::Places, &from, &place_key(set, addresses.end), usize::MAX)?;
        rows.extend(rest.into_iter().filter(|(key, _)| *key != from || rows.is_empty()).collect::<Vec<_>>());
        let damaged = || StoreError::Damaged { what: format!("a place in set {set}") };
        let mut found = Vec::new();
        for (key, value) in rows {
            let (_, mut address) = split_pair(&key).ok_or_else(damaged)?;
            for (id, len) in wire::unpack::<Batch>(&value).map_err(|_| damaged())? {
                let end = address.saturating_add(u64::from(len));
                if address < addresses.end && end > addresses.start {
                    let extent: Option<Extent> = self.read(Table::Extents, &extent_key(id))?;
                    if let Some(extent) = extent.filter(|one| (one.set, one.address) == (set, address)) {
                        if extent.sums.len() as u64 * SECTOR != u64::from(extent.len) {
                            return Err(StoreError::Damaged { what: format!("the record of extent {id}") });
                        }
                        found.push((id, extent));
                    }
                }
                address = end;
            }
        }
        Ok(found)
    }
}
