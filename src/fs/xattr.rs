//! Extended attributes: stored as they are, names and values alike.

use super::Fs;
use super::attr::FileKind;
use super::error::{FsError, Result};
use super::locks::Locked;
use crate::limits::{NAME_MAX_BYTES, XATTR_VALUE_MAX_BYTES};
use crate::store::Tx;
use crate::store::tables::{Ino, Table, xattr_key};

/// Rights that a program gets when it runs; writing to it takes them away.
pub(super) const CAPABILITY: &[u8] = b"security.capability";
/// Names of one inode in all, with a NUL behind each: the most that Linux lists.
const LIST_MAX_BYTES: usize = 64 * 1024;
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Whether an attribute may, or must, be there before it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    Either,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

impl Fs {
    /// Sets an attribute.
    ///
    /// # Errors
    /// [`FsError::XattrExists`], [`FsError::NoXattr`] as `mode` has it; [`FsError::Unsupported`] for
    /// names outside of the known namespaces; [`FsError::XattrTooLarge`], [`FsError::XattrsFull`].
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.may_change()?;
        check_name(name)?;
        if value.len() > XATTR_VALUE_MAX_BYTES {
            return Err(FsError::XattrTooLarge { bytes: value.len() });
        }
        let nodes = [self.nodes.get(&self.store, ino)?];
        let mut locked = Locked::new(&nodes);
        let state = locked.state(ino)?;
        let kind = FileKind::from_mode(state.inode.mode);
        if name.starts_with(b"user.") && !matches!(kind, Some(FileKind::Regular | FileKind::Directory)) {
            return Err(FsError::NotPermitted { ino, what: "a user attribute" });
        }
        let key = xattr_key(ino, name);
        let there = self.store.get(Table::Xattrs, &key)?.is_some();
        match mode {
            XattrMode::Create if there => return Err(FsError::XattrExists { ino, name: name.to_vec() }),
            XattrMode::Replace if !there => return Err(FsError::NoXattr { ino, name: name.to_vec() }),
            _ => {}
        }
        if !there && self.names_of(ino)?.len() + name.len() + 1 > LIST_MAX_BYTES {
            return Err(FsError::XattrsFull { ino });
        }
        let mut tx = Tx::new();
        tx.put_raw(Table::Xattrs, key, value.to_vec());
        locked.draft(ino)?.ctime = self.clock.now();
        locked.commit(self, tx)?;
        Ok(())
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// [`FsError::NoXattr`]; [`FsError::Unsupported`].
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        self.nodes.get(&self.store, ino)?;
        self.store
            .get(Table::Xattrs, &xattr_key(ino, name))?
            .ok_or_else(|| FsError::NoXattr { ino, name: name.to_vec() })
    }

    /// The names of all attributes, each with a NUL behind it.
    ///
    /// # Errors
    /// [`FsError::NoSuchInode`].
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        self.nodes.get(&self.store, ino)?;
        self.names_of(ino)
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<u8>> {
        let (from, to) = (xattr_key(ino, b""), xattr_key(ino + 1, b""));
        let mut names = Vec::new();
        for (key, _) in self.store.scan(Table::Xattrs, &from, &to, LIST_MAX_BYTES)? {
            names.extend_from_slice(key.get(8..).unwrap_or_default());
            names.push(0);
        }
        Ok(names)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`FsError::NoXattr`]; [`FsError::Unsupported`].
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.may_change()?;
        check_name(name)?;
        let nodes = [self.nodes.get(&self.store, ino)?];
        let mut locked = Locked::new(&nodes);
        let key = xattr_key(ino, name);
        if self.store.get(Table::Xattrs, &key)?.is_none() {
            return Err(FsError::NoXattr { ino, name: name.to_vec() });
        }
        let mut tx = Tx::new();
        tx.delete(Table::Xattrs, key);
        locked.draft(ino)?.ctime = self.clock.now();
        locked.commit(self, tx)?;
        Ok(())
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX_BYTES {
        return Err(FsError::NameTooLong { bytes: name.len() });
    }
    let spaced = NAMESPACES.iter().any(|space| name.starts_with(space) && name.len() > space.len());
    if spaced {
        return Ok(());
    }
    // Access control lists among them: programs that may store one (cp -a) take it that the mode follows from it.
    Err(FsError::Unsupported { what: "an attribute outside of user, trusted and security" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_namespaces_are_taken() {
        for name in [&b"user.x"[..], b"trusted.overlay", CAPABILITY] {
            assert!(check_name(name).is_ok());
        }
        for name in [&b""[..], b"user.", b"users.x", b"system.nfs4_acl", b"system.posix_acl_access", b"x"] {
            assert!(check_name(name).is_err());
        }
        assert!(matches!(check_name(&[b'u'; 300]), Err(FsError::NameTooLong { bytes: 300 })));
    }
}
