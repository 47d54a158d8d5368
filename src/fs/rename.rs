//! Rename, in all its forms.
//!
//! Directories that move between directories take the one rename lock first, so that the tree above
//! them stands still while it is searched for a loop. A rename over an existing file takes the source's
//! data with it: in the same transaction when it is little, else flushed before.

use super::Fs;
use super::change::Change;
use super::error::{FsError, Result};
use super::fsync::Journaled;
use super::locks::Locked;
use super::namespace::{check_length, check_new, exists, no_such, put_entry};
use crate::store::Tx;
use crate::store::tables::{Entry, Ino, Inode, ROOT_INO, Table, ino_key};

/// How often the source's data is flushed before the rename goes ahead without what came since.
const FLUSH_TRIES: u32 = 4;

/// What a rename may do with a name that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace what it leads to.
    Replace,
    /// Fail.
    NoReplace,
    /// Swap both.
    Exchange,
}

/// A rename as asked for, and what its names lead to.
struct Move<'a> {
    from: (Ino, &'a [u8]),
    to: (Ino, &'a [u8]),
    source: Entry,
    target: Option<Entry>,
    mode: RenameMode,
}

enum Step {
    Done,
    /// What was looked up before locking is not so any more.
    Again,
    /// The source's data has to be flushed first.
    Flush(Ino),
}

impl Fs {
    /// Moves a name.
    ///
    /// # Errors
    /// [`FsError::NoSuchName`], [`FsError::Exists`] (no replace), [`FsError::IntoItself`],
    /// [`FsError::NotEmpty`], [`FsError::IsADirectory`], [`FsError::NotADirectory`].
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.may_change()?;
        check_length(name)?;
        if name == b"." || name == b".." || new_name == b"." || new_name == b".." {
            return Err(FsError::Invalid { what: "`.` and `..` can't be renamed" });
        }
        check_new(new_parent, new_name)?;
        let mut flushes = 0;
        loop {
            let source = self.entry_in(parent, name)?.ok_or_else(|| no_such(parent, name))?;
            let target = self.entry_in(new_parent, new_name)?;
            let moving = Move { from: (parent, name), to: (new_parent, new_name), source, target, mode };
            match self.try_rename(&moving, flushes < FLUSH_TRIES)? {
                Step::Done => return Ok(()),
                Step::Again => {}
                Step::Flush(ino) => {
                    flushes += 1;
                    self.flush_files(&[ino])?;
                }
            }
        }
    }

    fn try_rename(&self, moving: &Move<'_>, may_flush: bool) -> Result<Step> {
        let ((parent, name), (new_parent, new_name)) = (moving.from, moving.to);
        let directory = |entry: &Entry| entry.kind == libc::S_IFDIR;
        let source_dir = directory(&moving.source);
        let target_dir = moving.target.as_ref().is_some_and(directory);
        let across = parent != new_parent;
        let _tree = (across && (source_dir || target_dir)).then(|| self.rename_lock.lock());
        if across && source_dir {
            self.check_loop(moving.source.ino, new_parent)?;
        }
        if across && target_dir && moving.mode == RenameMode::Exchange {
            let target = moving.target.as_ref().map_or(0, |target| target.ino);
            self.check_loop(target, parent)?;
        }
        let mut named = vec![(parent, name, moving.source.ino)];
        named.extend(moving.target.as_ref().map(|target| (new_parent, new_name, target.ino)));
        let Some(nodes) = self.nodes_if_there(&[parent, new_parent], &named)? else { return Ok(Step::Again) };
        let mut locked = Locked::new(&nodes);
        self.need_live_dir(&locked, new_parent)?;
        let same = self.entry(parent, name)?.as_ref() == Some(&moving.source)
            && self.entry(new_parent, new_name)? == moving.target;
        if !same {
            return Ok(Step::Again);
        }
        match (&moving.target, moving.mode) {
            (None, RenameMode::Exchange) => Err(no_such(new_parent, new_name)),
            (Some(_), RenameMode::NoReplace) => Err(exists(new_parent, new_name)),
            (Some(target), RenameMode::Exchange) => self.exchange(&mut locked, moving, target),
            (Some(target), RenameMode::Replace) => {
                // Two names of one file: nothing happens, as POSIX has it.
                if target.ino == moving.source.ino {
                    return Ok(Step::Done);
                }
                let step = self.replace(&mut locked, moving, target, may_flush)?;
                drop(locked);
                drop(nodes);
                if matches!(step, Step::Done) {
                    self.retire_if_unlinked(target.ino);
                }
                Ok(step)
            }
            (None, _) => self.move_entry(&mut locked, moving),
        }
    }

    fn retire_if_unlinked(&self, ino: Ino) {
        let unlinked = |node: std::sync::Arc<super::node::Node>| {
            node.unlinked.load(crate::sync::atomic::Ordering::Acquire)
        };
        if self.nodes.peek(ino).is_some_and(unlinked) {
            self.retire(ino);
        }
    }

    /// Errors when directory `moved` is `into` or above it. The caller has the rename lock, so that no
    /// directory changes its parent meanwhile.
    fn check_loop(&self, moved: Ino, into: Ino) -> Result<()> {
        let mut at = into;
        loop {
            if at == moved {
                return Err(FsError::IntoItself { ino: moved });
            }
            if at == ROOT_INO {
                return Ok(());
            }
            let inode: Option<Inode> = self.store.read(Table::Inodes, &ino_key(at))?;
            match inode {
                Some(inode) if inode.parent != at => at = inode.parent,
                // A directory without a way up has been removed; nothing can be moved there.
                _ => return Ok(()),
            }
        }
    }

    fn move_entry(&self, locked: &mut Locked<'_>, moving: &Move<'_>) -> Result<Step> {
        let mut tx = Tx::new();
        let source = &moving.source;
        self.drop_entry(locked, moving.from.0, moving.from.1, source, &mut tx)?;
        self.add_entry(locked, moving.to.0, moving.to.1, (source.ino, source.kind), &mut tx)?;
        self.moved(locked, source, moving.to.0)?;
        locked.commit(self, tx)?;
        Ok(Step::Done)
    }

    /// Updates an inode that came to another name.
    fn moved(&self, locked: &mut Locked<'_>, entry: &Entry, parent: Ino) -> Result<()> {
        let inode = locked.draft(entry.ino)?;
        inode.ctime = self.clock.now();
        if entry.kind == libc::S_IFDIR {
            inode.parent = parent;
        }
        Ok(())
    }

    fn replace(
        &self,
        locked: &mut Locked<'_>,
        moving: &Move<'_>,
        target: &Entry,
        may_flush: bool,
    ) -> Result<Step> {
        let source = &moving.source;
        let (source_dir, target_dir) = (source.kind == libc::S_IFDIR, target.kind == libc::S_IFDIR);
        if source_dir && !target_dir {
            return Err(FsError::NotADirectory { ino: target.ino });
        }
        if !source_dir && target_dir {
            return Err(FsError::IsADirectory { ino: target.ino });
        }
        if target_dir && locked.state(target.ino)?.inode.entries > 0 {
            return Err(FsError::NotEmpty { ino: target.ino });
        }
        let mut change = Change::new();
        let node = locked.node(source.ino)?;
        let state = locked.state(source.ino)?;
        let mut carried = None;
        if may_flush && state.fits_inline() && self.cache.has_dirty(source.ino) {
            return Ok(Step::Flush(source.ino));
        }
        if state.is_file() {
            match self.add_dirty(node, state, &mut change.tx)? {
                Journaled::TooMuch if may_flush => return Ok(Step::Flush(source.ino)),
                Journaled::TooMuch => change = Change::new(),
                Journaled::All(pages) => {
                    carried = Some((pages > 0, self.add_replacement(node, state, &mut change)?));
                }
            }
        }
        let ((parent, name), (new_parent, new_name)) = (moving.from, moving.to);
        let tx = &mut change.tx;
        self.drop_entry(locked, parent, name, source, tx)?;
        // The name keeps its cookie, and the directory its number of entries.
        put_entry(new_parent, new_name, &Entry { cookie: target.cookie, ..source.clone() }, tx);
        let now = self.clock.now();
        let dir = locked.draft(new_parent)?;
        (dir.mtime, dir.ctime) = (now, now);
        self.moved(locked, source, new_parent)?;
        let dead = self.drop_link(locked, target.ino, tx)?;
        if let Some((_, stored)) = carried {
            let inode = locked.draft(source.ino)?;
            (inode.sectors, inode.inline) = (stored.sectors, stored.inline);
            // The data goes with it, so the stored size is the whole size.
            let state = locked.state_mut(source.ino)?;
            state.persisted_size = state.inode.size;
        }
        locked.commit(self, change)?;
        if let Some((any_new, stored)) = carried {
            let (node, state) = locked.node_mut(source.ino)?;
            self.journaled(node, state, any_new, stored);
        }
        self.mark_unlinked(locked, target.ino, dead)?;
        Ok(Step::Done)
    }

    fn exchange(&self, locked: &mut Locked<'_>, moving: &Move<'_>, target: &Entry) -> Result<Step> {
        let ((parent, name), (new_parent, new_name)) = (moving.from, moving.to);
        let source = &moving.source;
        if source.ino == target.ino {
            return Ok(Step::Done);
        }
        let mut tx = Tx::new();
        put_entry(parent, name, &Entry { cookie: source.cookie, ..target.clone() }, &mut tx);
        put_entry(new_parent, new_name, &Entry { cookie: target.cookie, ..source.clone() }, &mut tx);
        let now = self.clock.now();
        for (dir, lost, won) in [(parent, source, target), (new_parent, target, source)] {
            let dir = locked.draft(dir)?;
            dir.nlink += u32::from(won.kind == libc::S_IFDIR);
            dir.nlink -= u32::from(lost.kind == libc::S_IFDIR && dir.nlink > 2);
            (dir.mtime, dir.ctime) = (now, now);
        }
        self.moved(locked, source, new_parent)?;
        self.moved(locked, target, parent)?;
        locked.commit(self, tx)?;
        Ok(Step::Done)
    }
}
