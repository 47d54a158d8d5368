//! Reading a table from one end to the other, a bounded number of rows at a time.

use crate::fs::error::Result;
use crate::store::Store;
use crate::store::tables::Table;

/// Rows that are read in one go.
const ROWS: usize = 1024;

/// A row: key and value.
pub(super) type Row = (Vec<u8>, Vec<u8>);

/// The rows of a table in the order of their keys.
pub(super) struct Rows<'a> {
    store: &'a Store,
    table: Table,
    /// Where the next read begins; none when the last one came to the end.
    from: Option<Vec<u8>>,
    rows: std::iter::Peekable<std::vec::IntoIter<Row>>,
}

impl<'a> Rows<'a> {
    /// All rows.
    pub fn of(store: &'a Store, table: Table) -> Self {
        Self::from(store, table, Vec::new())
    }

    /// Rows from a key on.
    pub fn from(store: &'a Store, table: Table, key: Vec<u8>) -> Self {
        Self { store, table, from: Some(key), rows: Vec::new().into_iter().peekable() }
    }

    fn fill(&mut self) -> Result<()> {
        if self.rows.peek().is_none()
            && let Some(from) = self.from.take()
        {
            let rows = self.store.scan(self.table, &from, &[0xff; 300], ROWS)?;
            if rows.len() == ROWS {
                self.from = rows.last().map(|(last, _)| [last.as_slice(), &[0]].concat());
            }
            self.rows = rows.into_iter().peekable();
        }
        Ok(())
    }

    /// The next row.
    pub fn next(&mut self) -> Result<Option<Row>> {
        self.fill()?;
        Ok(self.rows.next())
    }

    /// The next row, if its key is below `end`.
    pub fn next_below(&mut self, end: &[u8]) -> Result<Option<Row>> {
        self.fill()?;
        Ok(self.rows.next_if(|(key, _)| key.as_slice() < end))
    }
}
