//! What the tables still say of sets that are gone.

use crate::fs::Fs;
use crate::fs::error::Result;
use crate::store::Tx;
use crate::store::tables::{Table, place_key, set_key, single};

/// Rows that go in one transaction.
const ROWS_AT_ONCE: usize = 4096;
/// Freed sets that are looked at in one go.
const SETS_AT_ONCE: usize = 64;

impl Fs {
    /// Deletes the places of sets that were freed: as many rows as fit one transaction. What is left waits for the
    /// next step. Extents of such sets are gone or elsewhere, so nobody misses the rows.
    pub(super) fn drop_places_of_freed(&self) -> Result<()> {
        let mut tx = Tx::new();
        let mut left = ROWS_AT_ONCE;
        for (key, _) in self.store.scan(Table::Freed, &[], &[0xff; 9], SETS_AT_ONCE)? {
            let Some(set) = single(&key) else { continue };
            let rows = self.store.scan(Table::Places, &place_key(set, 0), &place_key(set + 1, 0), left)?;
            left -= rows.len();
            for (place, _) in rows {
                tx.delete(Table::Places, place);
            }
            if left == 0 {
                break;
            }
            tx.delete(Table::Freed, set_key(set));
        }
        if !tx.is_empty() {
            self.store.commit(tx)?;
        }
        Ok(())
    }
}
