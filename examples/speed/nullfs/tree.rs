//! Names and attributes in memory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};

/// As the pool has it.
const BEST_TRANSFER_BYTES: u32 = 128 * 1024;

/// A file or a directory.
#[derive(Debug)]
struct Node {
    attr: FileAttr,
    names: BTreeMap<OsString, INodeNo>,
}

/// All files and directories. Links and special files there are none.
#[derive(Debug)]
pub struct Tree {
    nodes: HashMap<INodeNo, Node>,
    last: u64,
}

/// Who makes something, and what its mode is.
#[derive(Debug, Clone, Copy)]
pub struct Maker {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permissions, the type bits are ignored.
    pub mode: u32,
}

impl Tree {
    /// A root that anybody may write to.
    pub fn new() -> Self {
        let root = attr(INodeNo::ROOT, FileType::Directory, Maker { uid: 0, gid: 0, mode: 0o777 });
        let nodes = HashMap::from([(INodeNo::ROOT, Node { attr: root, names: BTreeMap::new() })]);
        Self { nodes, last: INodeNo::ROOT.0 }
    }

    /// What is known of an inode.
    pub fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        self.nodes.get(&ino).map(|node| node.attr).ok_or(Errno::ENOENT)
    }

    /// To change what is known of an inode.
    pub fn attr_mut(&mut self, ino: INodeNo) -> Result<&mut FileAttr, Errno> {
        self.nodes.get_mut(&ino).map(|node| &mut node.attr).ok_or(Errno::ENOENT)
    }

    /// What a name stands for.
    pub fn lookup(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let node = self.nodes.get(&parent).ok_or(Errno::ENOENT)?;
        self.attr(*node.names.get(name).ok_or(Errno::ENOENT)?)
    }

    /// Makes a file or a directory.
    pub fn make(
        &mut self,
        parent: INodeNo,
        name: &OsStr,
        kind: FileType,
        maker: Maker,
    ) -> Result<FileAttr, Errno> {
        let ino = INodeNo(self.last + 1);
        let directory = self.nodes.get_mut(&parent).ok_or(Errno::ENOENT)?;
        if directory.names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        directory.names.insert(name.to_owned(), ino);
        directory.attr.mtime = SystemTime::now();
        directory.attr.nlink += u32::from(kind == FileType::Directory);
        let attr = attr(ino, kind, maker);
        self.nodes.insert(ino, Node { attr, names: BTreeMap::new() });
        self.last = ino.0;
        Ok(attr)
    }

    /// Removes a name and what it stands for. A directory must be empty.
    pub fn remove(&mut self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let attr = self.lookup(parent, name)?;
        if self.nodes.get(&attr.ino).is_some_and(|node| !node.names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.nodes.remove(&attr.ino);
        let directory = self.nodes.get_mut(&parent).ok_or(Errno::ENOENT)?;
        directory.names.remove(name);
        directory.attr.mtime = SystemTime::now();
        directory.attr.nlink -= u32::from(attr.kind == FileType::Directory);
        Ok(())
    }

    /// Gives something another name, in place of what had it.
    pub fn rename(
        &mut self,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
    ) -> Result<(), Errno> {
        let moved = self.lookup(parent, name)?;
        match self.lookup(new_parent, new_name) {
            Ok(there) if there.ino == moved.ino => return Ok(()),
            Ok(_) => self.remove(new_parent, new_name)?,
            Err(_) => {}
        }
        let is_directory = u32::from(moved.kind == FileType::Directory);
        let to = self.nodes.get_mut(&new_parent).ok_or(Errno::ENOENT)?;
        to.names.insert(new_name.to_owned(), moved.ino);
        to.attr.nlink += is_directory;
        let from = self.nodes.get_mut(&parent).ok_or(Errno::ENOENT)?;
        from.names.remove(name);
        from.attr.nlink -= is_directory;
        Ok(())
    }

    /// What a directory holds, from the `skip`-th on.
    pub fn list(&self, ino: INodeNo, skip: u64) -> impl Iterator<Item = (u64, &OsStr, &FileAttr)> {
        let names = self.nodes.get(&ino).into_iter().flat_map(|node| &node.names);
        let numbered = (1..).zip(names).skip(usize::try_from(skip).unwrap_or(usize::MAX));
        numbered.filter_map(|(n, (name, ino))| Some((n, name.as_os_str(), &self.nodes.get(ino)?.attr)))
    }

    /// How many files and directories there are.
    pub fn len(&self) -> u64 {
        self.nodes.len() as u64
    }
}

fn attr(ino: INodeNo, kind: FileType, maker: Maker) -> FileAttr {
    let now = SystemTime::now();
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm: (maker.mode & 0o7777) as u16,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid: maker.uid,
        gid: maker.gid,
        rdev: 0,
        blksize: BEST_TRANSFER_BYTES,
        flags: 0,
    }
}
