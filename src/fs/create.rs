//! New inodes: files, directories, symbolic links, nodes. Each is made with its name in one transaction.

use super::attr::{Attr, Caller, FileKind, PERMISSION_MASK};
use super::error::{FsError, Result};
use super::handles::OpenFlags;
use super::locks::Locked;
use super::namespace::{FIRST_COOKIE, check_new, exists};
use super::node::Node;
use super::{Fs, Handle};
use crate::limits::SYMLINK_MAX_BYTES;
use crate::store::Tx;
use crate::store::tables::{Ino, Inode, Table, ino_key};
use crate::sync::Arc;

/// What a new inode is to be.
struct Template {
    kind: FileKind,
    mode: u32,
    rdev: u32,
    target: Option<Vec<u8>>,
}

impl Fs {
    /// Makes a file, device node, pipe or socket, as the type bits of `mode` say. Counts one lookup.
    ///
    /// # Errors
    /// [`FsError::Exists`]; [`FsError::Invalid`] for other types; [`FsError::NoSpace`].
    pub fn mknod(&self, parent: Ino, name: &[u8], mode: u32, rdev: u32, caller: &Caller) -> Result<Attr> {
        let typed = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        let kind = match FileKind::from_mode(typed) {
            Some(kind) if !matches!(kind, FileKind::Directory | FileKind::Symlink) => kind,
            _ => return Err(FsError::Invalid { what: "no node of this type can be made" }),
        };
        let node = self.make(parent, name, Template { kind, mode, rdev, target: None }, caller, 0)?;
        Ok(self.attr_of(&node))
    }

    /// Makes a directory. Counts one lookup.
    ///
    /// # Errors
    /// [`FsError::Exists`]; [`FsError::NoSpace`].
    pub fn mkdir(&self, parent: Ino, name: &[u8], mode: u32, caller: &Caller) -> Result<Attr> {
        let template = Template { kind: FileKind::Directory, mode, rdev: 0, target: None };
        let node = self.make(parent, name, template, caller, 0)?;
        Ok(self.attr_of(&node))
    }

    /// Makes a symbolic link. Counts one lookup.
    ///
    /// # Errors
    /// [`FsError::Exists`]; [`FsError::TargetTooLong`]; [`FsError::NoSpace`].
    pub fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], caller: &Caller) -> Result<Attr> {
        if target.len() > SYMLINK_MAX_BYTES {
            return Err(FsError::TargetTooLong { bytes: target.len() });
        }
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::BadName { name: target.to_vec() });
        }
        let target = Some(target.to_vec());
        let template = Template { kind: FileKind::Symlink, mode: 0o777, rdev: 0, target };
        let node = self.make(parent, name, template, caller, 0)?;
        Ok(self.attr_of(&node))
    }

    /// Makes a regular file and opens it. Counts one lookup.
    ///
    /// # Errors
    /// [`FsError::Exists`]; [`FsError::NoSpace`].
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
        caller: &Caller,
    ) -> Result<(Attr, Handle)> {
        let template = Template { kind: FileKind::Regular, mode, rdev: 0, target: None };
        let node = self.make(parent, name, template, caller, 1)?;
        Ok((self.attr_of(&node), self.handles.insert(node, flags)))
    }

    fn make(
        &self,
        parent: Ino,
        name: &[u8],
        template: Template,
        caller: &Caller,
        opens: u32,
    ) -> Result<Arc<Node>> {
        self.may_change()?;
        check_new(parent, name)?;
        let ino = self.ino_numbers.next(&self.store)?;
        let nodes = [self.nodes.get(&self.store, parent)?];
        let mut locked = Locked::new(&nodes);
        self.need_live_dir(&locked, parent)?;
        if self.entry(parent, name)?.is_some() {
            return Err(exists(parent, name));
        }
        let inode = self.new_inode(&locked.state(parent)?.inode, parent, template, caller);
        let mut tx = Tx::new();
        tx.put(Table::Inodes, ino_key(ino), &inode);
        self.add_entry(&mut locked, parent, name, (ino, inode.mode), &mut tx)?;
        locked.commit(self, tx)?;
        self.nodes.insert(Node::new(ino, inode), 1, opens)
    }

    fn new_inode(&self, dir: &Inode, parent: Ino, template: Template, caller: &Caller) -> Inode {
        let now = self.clock.now();
        let directory = template.kind == FileKind::Directory;
        let inherits = dir.mode & libc::S_ISGID != 0;
        let mut mode = template.kind.bits() | template.mode & PERMISSION_MASK;
        if inherits && directory {
            mode |= libc::S_ISGID;
        }
        Inode {
            mode,
            uid: caller.uid,
            gid: if inherits { dir.gid } else { caller.gid },
            nlink: if directory { 2 } else { 1 },
            rdev: template.rdev,
            generation: 1,
            size: template.target.as_ref().map_or(0, |target| target.len() as u64),
            sectors: 0,
            inline: false,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            parent: if directory { parent } else { 0 },
            next_cookie: FIRST_COOKIE,
            entries: 0,
            resiliency: dir.resiliency,
            target: template.target,
        }
    }
}
