//! Reading directories, by cookies that stay valid while entries come and go.
//!
//! An entry's cookie never changes while it has its name, and cookies rise in the order in which entries
//! were made. So a reader that goes on after a cookie misses nothing that was there all the time and
//! sees nothing twice, whatever is made or removed meanwhile.

use super::Fs;
use super::attr::{Attr, FileKind};
use super::error::{FsError, Result};
use super::namespace::FIRST_COOKIE;
use crate::store::tables::{CookieEntry, Ino, Table, cookie_key, split_pair};

/// Entries that are looked at in one go: however large a directory is, no more are in memory.
const BATCH: usize = 128;
/// The same with attributes, for which each inode is looked up. A kernel may take as few as one page holds.
const PLUS_BATCH: usize = 32;
/// Cookies of `.` and `..`.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// One entry, as readdir tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Go on after this to get what comes behind the entry.
    pub cookie: u64,
}

impl Fs {
    /// Tells the entries behind `after` (0: all), `.` and `..` first, until `sink` says false; the entry
    /// it said that to counts as not taken.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`].
    pub fn readdir(&self, ino: Ino, after: u64, sink: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let mut after = after;
        loop {
            let (entries, more) = self.entries_after(ino, after, BATCH, false)?;
            for entry in entries {
                after = entry.cookie;
                if !sink(entry) {
                    return Ok(());
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Like [`Fs::readdir`], with attributes. Counts one lookup for each entry taken, but none for `.`
    /// and `..`.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`].
    pub fn readdirplus(
        &self,
        ino: Ino,
        after: u64,
        sink: &mut dyn FnMut(DirEntry, Attr) -> bool,
    ) -> Result<()> {
        let mut after = after;
        loop {
            let (entries, more) = self.entries_after(ino, after, PLUS_BATCH, true)?;
            let mut entries = entries.into_iter();
            while let Some(entry) = entries.next() {
                after = entry.cookie;
                let (child, counted) = (entry.ino, entry.cookie >= FIRST_COOKIE);
                let taken = self.getattr(child).map(|attr| sink(entry, attr));
                if !matches!(taken, Ok(true)) {
                    // Also this one was not taken.
                    if counted {
                        self.forget(child, 1);
                    }
                    entries
                        .filter(|rest| rest.cookie >= FIRST_COOKIE)
                        .for_each(|rest| self.forget(rest.ino, 1));
                    return taken.map(|_| ());
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// The next entries, about `batch` of them, and whether there may be more; with `count`, counts a lookup for
    /// each.
    fn entries_after(
        &self,
        ino: Ino,
        after: u64,
        batch: usize,
        count: bool,
    ) -> Result<(Vec<DirEntry>, bool)> {
        let node = self.nodes.get(&self.store, ino)?;
        // Under the directory's lock what is named here can't be unlinked before it is counted.
        let state = node.state.read();
        if !state.is_dir() {
            return Err(FsError::NotADirectory { ino });
        }
        if state.inode.nlink == 0 {
            return Ok((Vec::new(), false));
        }
        let mut entries = Vec::new();
        let dots = [(DOT, &b"."[..], ino), (DOT_DOT, b"..", state.inode.parent)];
        for (cookie, name, ino) in dots.into_iter().filter(|(cookie, ..)| *cookie > after) {
            entries.push(DirEntry { name: name.to_vec(), ino, kind: FileKind::Directory, cookie });
        }
        let Some(next) = after.max(DOT_DOT).checked_add(1) else { return Ok((entries, false)) };
        let (from, to) = (cookie_key(ino, next), cookie_key(ino + 1, 0));
        let found = self.store.scan(Table::Cookies, &from, &to, batch)?;
        let more = found.len() == batch;
        for (key, value) in found {
            let damaged = FsError::Damaged { ino, what: "an entry by cookie" };
            let Some((_, cookie)) = split_pair(&key) else { return Err(damaged) };
            let Ok(entry) = crate::member::wire::unpack::<CookieEntry>(&value) else { return Err(damaged) };
            let Some(kind) = FileKind::from_mode(entry.kind) else { return Err(damaged) };
            entries.push(DirEntry { name: entry.name, ino: entry.ino, kind, cookie });
        }
        if count {
            let counted: Vec<Ino> =
                entries.iter().filter(|entry| entry.cookie >= FIRST_COOKIE).map(|entry| entry.ino).collect();
            for (done, child) in counted.iter().enumerate() {
                if let Err(error) = self.nodes.get_counted(&self.store, *child, 1, 0) {
                    drop(state);
                    counted[..done].iter().for_each(|child| self.forget(*child, 1));
                    return Err(error);
                }
            }
        }
        Ok((entries, more))
    }
}
