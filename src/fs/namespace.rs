//! Names: lookup, links and removal. Each change is one transaction.

use super::Fs;
use super::attr::Attr;
use super::error::{FsError, Result};
use super::locks::Locked;
use super::node::Node;
use crate::limits::{LINKS_MAX, NAME_MAX_BYTES};
use crate::store::Tx;
use crate::store::tables::{CookieEntry, Entry, Ino, Table, cookie_key, entry_key, ino_key};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// The first cookie that an entry gets: 1 and 2 are `.` and `..`.
pub(super) const FIRST_COOKIE: u64 = 3;

impl Fs {
    /// What `name` in the directory leads to. Counts one lookup, also for `.` and `..`.
    ///
    /// # Errors
    /// [`FsError::NoSuchName`]; [`FsError::NotADirectory`].
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let dir = self.nodes.get(&self.store, parent)?;
        let node = {
            // Under the directory's lock nothing named here can be unlinked.
            let state = dir.state.read();
            if !state.is_dir() {
                return Err(FsError::NotADirectory { ino: parent });
            }
            let ino = match name {
                b"." => parent,
                b".." => state.inode.parent,
                _ => {
                    check_length(name)?;
                    self.entry(parent, name)?.ok_or_else(|| no_such(parent, name))?.ino
                }
            };
            self.nodes.get_counted(&self.store, ino, 1, 0)?
        };
        Ok(self.attr_of(&node))
    }

    /// The entry of a name.
    pub(super) fn entry(&self, parent: Ino, name: &[u8]) -> Result<Option<Entry>> {
        Ok(self.store.read(Table::Entries, &entry_key(parent, name))?)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// [`FsError::NotASymlink`].
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let node = self.nodes.get(&self.store, ino)?;
        let state = node.state.read();
        state.inode.target.clone().ok_or(FsError::NotASymlink { ino })
    }

    /// Gives a file one name more. Counts one lookup.
    ///
    /// # Errors
    /// [`FsError::Exists`]; [`FsError::NotPermitted`] for a directory; [`FsError::TooManyLinks`].
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.may_change()?;
        check_new(parent, name)?;
        let nodes = [self.nodes.get(&self.store, ino)?, self.nodes.get(&self.store, parent)?];
        let mut locked = Locked::new(&nodes);
        self.need_live_dir(&locked, parent)?;
        let inode = &locked.state(ino)?.inode;
        if locked.state(ino)?.is_dir() {
            return Err(FsError::NotPermitted { ino, what: "a second name" });
        }
        if inode.nlink == 0 {
            return Err(FsError::NoSuchInode { ino });
        }
        if inode.nlink >= LINKS_MAX {
            return Err(FsError::TooManyLinks { ino });
        }
        if self.entry(parent, name)?.is_some() {
            return Err(exists(parent, name));
        }
        let mode = inode.mode;
        let mut tx = Tx::new();
        self.add_entry(&mut locked, parent, name, (ino, mode), &mut tx)?;
        let draft = locked.draft(ino)?;
        draft.nlink += 1;
        draft.ctime = self.clock.now();
        locked.commit(self, tx)?;
        drop(locked);
        self.nodes.get_counted(&self.store, ino, 1, 0)?;
        Ok(self.attr_of(&nodes[0]))
    }

    /// Takes a name from a file. The file goes when its last name, handle and lookup are gone.
    ///
    /// # Errors
    /// [`FsError::NoSuchName`]; [`FsError::IsADirectory`].
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NoSuchName`]; [`FsError::NotADirectory`]; [`FsError::NotEmpty`].
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => Err(FsError::Invalid { what: "a directory can't be removed from within" }),
            b".." => Err(FsError::NotEmpty { ino: parent }),
            _ => self.remove(parent, name, true),
        }
    }

    fn remove(&self, parent: Ino, name: &[u8], directory: bool) -> Result<()> {
        self.may_change()?;
        check_length(name)?;
        loop {
            let entry = self.entry_in(parent, name)?.ok_or_else(|| no_such(parent, name))?;
            let Some(nodes) = self.nodes_if_there(&[parent], &[(parent, name, entry.ino)])? else { continue };
            let mut locked = Locked::new(&nodes);
            // Between the look and the locks the name may have come to mean something else.
            if self.entry(parent, name)?.as_ref() != Some(&entry) {
                continue;
            }
            let is_dir = locked.state(entry.ino)?.is_dir();
            if is_dir && !directory {
                return Err(FsError::IsADirectory { ino: entry.ino });
            }
            if !is_dir && directory {
                return Err(FsError::NotADirectory { ino: entry.ino });
            }
            if is_dir && locked.state(entry.ino)?.inode.entries > 0 {
                return Err(FsError::NotEmpty { ino: entry.ino });
            }
            let mut tx = Tx::new();
            self.drop_entry(&mut locked, parent, name, &entry, &mut tx)?;
            let dead = self.drop_link(&mut locked, entry.ino, &mut tx)?;
            locked.commit(self, tx)?;
            self.mark_unlinked(&locked, entry.ino, dead)?;
            drop(locked);
            drop(nodes);
            if dead {
                self.retire(entry.ino);
            }
            return Ok(());
        }
    }

    /// The entry of a name in what must be a directory.
    pub(super) fn entry_in(&self, parent: Ino, name: &[u8]) -> Result<Option<Entry>> {
        if !self.nodes.get(&self.store, parent)?.state.read().is_dir() {
            return Err(FsError::NotADirectory { ino: parent });
        }
        self.entry(parent, name)
    }

    /// The nodes of directories, and of what names lead to. None when one of these was just deleted, and
    /// the names have to be looked up again.
    pub(super) fn nodes_if_there(
        &self,
        directories: &[Ino],
        named: &[(Ino, &[u8], Ino)],
    ) -> Result<Option<Vec<Arc<Node>>>> {
        let mut nodes = Vec::with_capacity(directories.len() + named.len());
        for ino in directories {
            nodes.push(self.nodes.get(&self.store, *ino)?);
        }
        for (parent, name, ino) in named {
            match self.nodes.get(&self.store, *ino) {
                Ok(node) => nodes.push(node),
                Err(FsError::NoSuchInode { .. }) => {
                    if self.entry(*parent, name)?.is_some_and(|entry| entry.ino == *ino) {
                        return Err(FsError::Damaged {
                            ino: *ino,
                            what: "a name leads to it, but it is gone",
                        });
                    }
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(nodes))
    }

    /// Errors unless `parent`, which is locked, is a directory that still has a name.
    pub(super) fn need_live_dir(&self, locked: &Locked<'_>, parent: Ino) -> Result<()> {
        let state = locked.state(parent)?;
        if !state.is_dir() {
            return Err(FsError::NotADirectory { ino: parent });
        }
        if state.gone || state.inode.nlink == 0 {
            return Err(FsError::NoSuchInode { ino: parent });
        }
        Ok(())
    }

    /// Puts a new entry into a locked directory, and updates the directory.
    pub(super) fn add_entry(
        &self,
        locked: &mut Locked<'_>,
        parent: Ino,
        name: &[u8],
        (ino, mode): (Ino, u32),
        tx: &mut Tx,
    ) -> Result<()> {
        let now = self.clock.now();
        let kind = mode & libc::S_IFMT;
        let dir = locked.draft(parent)?;
        let cookie = dir.next_cookie;
        dir.next_cookie += 1;
        dir.entries += 1;
        dir.nlink += u32::from(kind == libc::S_IFDIR);
        (dir.mtime, dir.ctime) = (now, now);
        put_entry(parent, name, &Entry { ino, kind, cookie }, tx);
        Ok(())
    }

    /// Takes an entry out of a locked directory, and updates the directory.
    pub(super) fn drop_entry(
        &self,
        locked: &mut Locked<'_>,
        parent: Ino,
        name: &[u8],
        entry: &Entry,
        tx: &mut Tx,
    ) -> Result<()> {
        let now = self.clock.now();
        let dir = locked.draft(parent)?;
        dir.entries = dir.entries.saturating_sub(1);
        dir.nlink -= u32::from(entry.kind == libc::S_IFDIR && dir.nlink > 2);
        (dir.mtime, dir.ctime) = (now, now);
        tx.delete(Table::Entries, entry_key(parent, name));
        tx.delete(Table::Cookies, cookie_key(parent, entry.cookie));
        Ok(())
    }

    /// Takes one link from a locked inode. Says whether it was the last: then the inode is an orphan.
    pub(super) fn drop_link(&self, locked: &mut Locked<'_>, ino: Ino, tx: &mut Tx) -> Result<bool> {
        let now = self.clock.now();
        let inode = locked.draft(ino)?;
        let directory = inode.mode & libc::S_IFMT == libc::S_IFDIR;
        inode.nlink = if directory { 0 } else { inode.nlink.saturating_sub(1) };
        inode.ctime = now;
        let dead = inode.nlink == 0;
        if dead {
            tx.put(Table::Orphans, ino_key(ino), &());
        }
        Ok(dead)
    }

    /// Makes it known that an inode lost its last name, once that is committed.
    pub(super) fn mark_unlinked(&self, locked: &Locked<'_>, ino: Ino, dead: bool) -> Result<()> {
        if dead {
            locked.node(ino)?.unlinked.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// Puts both records of an entry.
pub(super) fn put_entry(parent: Ino, name: &[u8], entry: &Entry, tx: &mut Tx) {
    let by_cookie = CookieEntry { name: name.to_vec(), ino: entry.ino, kind: entry.kind };
    tx.put(Table::Entries, entry_key(parent, name), entry);
    tx.put(Table::Cookies, cookie_key(parent, entry.cookie), &by_cookie);
}

pub(super) fn no_such(parent: Ino, name: &[u8]) -> FsError {
    FsError::NoSuchName { parent, name: name.to_vec() }
}

pub(super) fn exists(parent: Ino, name: &[u8]) -> FsError {
    FsError::Exists { parent, name: name.to_vec() }
}

pub(super) fn check_length(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX_BYTES {
        return Err(FsError::NameTooLong { bytes: name.len() });
    }
    Ok(())
}

/// Errors unless this can be the name of something new.
pub(super) fn check_new(parent: Ino, name: &[u8]) -> Result<()> {
    check_length(name)?;
    if name == b"." || name == b".." {
        return Err(exists(parent, name));
    }
    if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(FsError::BadName { name: name.to_vec() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_any_bytes_but_slash_and_nul() {
        assert!(check_new(1, &[0xff; 255]).is_ok());
        assert!(check_new(1, b"...").is_ok());
        assert!(matches!(check_new(1, &[b'a'; 256]), Err(FsError::NameTooLong { bytes: 256 })));
        assert!(matches!(check_new(1, b".."), Err(FsError::Exists { .. })));
        for bad in [&b""[..], b"a/b", b"a\0b"] {
            assert!(matches!(check_new(1, bad), Err(FsError::BadName { .. })));
        }
    }
}
