//! Inodes, and what belongs to one: its map, its small content, its attributes, its orphan record.

use super::rows::Rows;
use super::{Area, Check};
use crate::fs::error::Result;
use crate::limits::INLINE_MAX_BYTES;
use crate::member::wire;
use crate::store::tables::{Ino, Inode, MapEntry, Table, ino_key, single, split_pair};
use crate::units::SECTOR;

/// Tables that begin with an inode's number, read side by side.
struct Beside<'a> {
    map: Rows<'a>,
    inline: Rows<'a>,
    xattrs: Rows<'a>,
    orphans: Rows<'a>,
    intents: Rows<'a>,
}

impl Check<'_> {
    /// Every inode with what belongs to it; and nothing belongs to an inode that is not there.
    pub(super) fn files(&mut self) -> Result<()> {
        let store = &self.fs.store;
        let mut beside = Beside {
            map: Rows::of(store, Table::Map),
            inline: Rows::of(store, Table::Inline),
            xattrs: Rows::of(store, Table::Xattrs),
            orphans: Rows::of(store, Table::Orphans),
            intents: Rows::of(store, Table::Intents),
        };
        let mut inodes = Rows::of(store, Table::Inodes);
        while let Some((key, value)) = inodes.next()? {
            self.report.inodes += 1;
            let (Some(ino), Ok(inode)) = (single(&key), wire::unpack::<Inode>(&value)) else {
                self.report.add(Area::Files, format!("the record of inode {key:02x?} is damaged"));
                continue;
            };
            self.strangers(&mut beside, &key)?;
            self.file(ino, &inode, &mut beside)?;
        }
        self.strangers(&mut beside, &[0xff; 16])
    }

    /// Rows before `upto` belong to nobody.
    fn strangers(&mut self, beside: &mut Beside<'_>, upto: &[u8]) -> Result<()> {
        let tables = [
            (&mut beside.map, "a map"),
            (&mut beside.inline, "small content"),
            (&mut beside.xattrs, "an attribute"),
            (&mut beside.orphans, "an orphan record"),
            (&mut beside.intents, "an intent"),
        ];
        for (rows, what) in tables {
            while let Some((key, _)) = rows.next_below(upto)? {
                let ino = key.get(..8).and_then(single).unwrap_or_default();
                self.report.add(Area::Files, format!("{what} of inode {ino}, which does not exist"));
            }
        }
        Ok(())
    }

    fn file(&mut self, ino: Ino, inode: &Inode, beside: &mut Beside<'_>) -> Result<()> {
        // Numbers end below the last one, so this is the end of what belongs to it.
        let end = ino_key(ino.saturating_add(1));
        let (mut sectors, first) = self.map_of(ino, &mut beside.map, &end)?;
        if inode.inline && first == Some(0) {
            self.report.add(Area::Files, format!("inode {ino} has its first sector twice"));
        }
        let row = beside.inline.next_below(&end)?;
        if inode.inline != row.is_some() {
            self.report.add(Area::Files, format!("inode {ino} and its small content disagree"));
        }
        if let Some((_, content)) = row {
            sectors += 1;
            if content.is_empty() || content.len() as u64 > INLINE_MAX_BYTES {
                self.report.add(Area::Files, format!("inode {ino} has {} bytes inline", content.len()));
            }
        }
        if sectors != inode.sectors {
            let what = format!("inode {ino} counts {} sectors, and has {sectors}", inode.sectors);
            self.report.add(Area::Files, what);
        }
        while beside.xattrs.next_below(&end)?.is_some() {}
        while beside.intents.next_below(&end)?.is_some() {}
        let orphan = beside.orphans.next_below(&end)?.is_some();
        if orphan != (inode.nlink == 0) {
            let what = format!("inode {ino} has {} links, and its orphan record says otherwise", inode.nlink);
            self.report.add(Area::Files, what);
        }
        Ok(())
    }

    /// The sectors of a file's map, whose ranges must not overlap, and where the first range begins.
    fn map_of(&mut self, ino: Ino, map: &mut Rows<'_>, end: &[u8]) -> Result<(u64, Option<u64>)> {
        let (mut sectors, mut last, mut first) = (0, 0, None);
        while let Some((key, value)) = map.next_below(end)? {
            let (Some((_, start)), Ok(entry)) = (split_pair(&key), wire::unpack::<MapEntry>(&value)) else {
                self.report.add(Area::Files, format!("a row of the map of inode {ino} is damaged"));
                continue;
            };
            let whole = start.is_multiple_of(SECTOR) && entry.len.is_multiple_of(SECTOR) && entry.len > 0;
            if !whole || start < last {
                let what = format!("the map of inode {ino} is wrong at {start}: {} bytes", entry.len);
                self.report.add(Area::Files, what);
            }
            first = first.or(Some(start));
            last = start.saturating_add(entry.len);
            sectors += entry.len / SECTOR;
        }
        Ok((sectors, first))
    }
}
