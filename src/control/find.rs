//! A pool by what people call it: its name, its UUID, its mount point, or the path of any of its members.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::protocol::MountStatus;
use super::{ControlError, Result, client, registry};
use crate::fuse::mount_table;
use crate::member::superblock::{MemberState, Superblock};
use crate::member::{open, runtime_dir};

/// A pool, and what is known of it without opening it.
#[derive(Debug, Clone)]
pub struct KnownPool {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Where the registry says that it is mounted.
    pub mountpoint: Option<PathBuf>,
    /// Where its members are or were.
    pub members: Vec<PathBuf>,
    /// The registry knows it.
    pub registered: bool,
    /// What the process says that serves it, when it is mounted by this user.
    pub mounted: Option<MountStatus>,
}

impl KnownPool {
    fn of_superblock(superblock: &Superblock, found_at: &Path) -> Self {
        let active = |r: &&crate::member::superblock::MemberRecord| r.state == MemberState::Active;
        let mut members: Vec<PathBuf> =
            superblock.members.iter().filter(active).map(|r| PathBuf::from(&r.path)).collect();
        // Members move; the one that was found is where it is.
        match members.get_mut(usize::from(superblock.member)) {
            Some(own) => found_at.clone_into(own),
            None => members.push(found_at.to_owned()),
        }
        Self {
            uuid: superblock.pool,
            name: superblock.name.clone(),
            mountpoint: None,
            members,
            registered: false,
            mounted: None,
        }
    }

    fn is_at(&self, path: &Path) -> bool {
        let here = |known: &Path| known == path;
        self.mounted.as_ref().is_some_and(|m| here(Path::new(&m.mountpoint)))
            || self.mountpoint.as_deref().is_some_and(here)
            || self.members.iter().any(|member| here(member))
    }
}

/// All pools known here: the registered ones and the mounted ones.
///
/// # Errors
/// [`ControlError`] when the registry or the runtime directory can't be read.
pub fn known_pools() -> Result<Vec<KnownPool>> {
    let dir = runtime_dir()?;
    let registered = registry::load(&registry::path())?.pools;
    let mut pools: Vec<KnownPool> = registered
        .into_iter()
        .map(|entry| KnownPool {
            uuid: entry.uuid,
            name: entry.name,
            mountpoint: entry.mountpoint,
            members: entry.members,
            registered: true,
            mounted: None,
        })
        .collect();
    for uuid in client::served(&dir)? {
        // A socket without an answer was left by a process that died.
        let Ok(status) = client::status(&dir, uuid) else { continue };
        let members = status.pool.members.iter().map(|m| PathBuf::from(&m.path)).collect();
        match pools.iter_mut().find(|pool| pool.uuid == uuid) {
            Some(pool) => {
                pool.members = members;
                pool.mounted = Some(status);
            }
            None => pools.push(KnownPool {
                uuid,
                name: status.pool.name.clone(),
                mountpoint: None,
                members,
                registered: false,
                mounted: Some(status),
            }),
        }
    }
    Ok(pools)
}

/// The one pool that `what` names.
///
/// # Errors
/// [`ControlError::NoSuchPool`], [`ControlError::NotAPool`], [`ControlError::Ambiguous`], and those of
/// [`known_pools`].
pub fn find(what: &str) -> Result<KnownPool> {
    let pools = known_pools()?;
    if let Ok(uuid) = Uuid::parse_str(what)
        && let Some(pool) = pools.iter().find(|pool| pool.uuid == uuid)
    {
        return Ok(pool.clone());
    }
    let mut named: Vec<&KnownPool> = pools.iter().filter(|pool| pool.name == what).collect();
    // What the user has registered goes before what merely happens to be mounted.
    if named.iter().any(|pool| pool.registered) {
        named.retain(|pool| pool.registered);
    }
    if named.len() > 1 {
        let candidates: Vec<String> = named.iter().map(|pool| pool.uuid.to_string()).collect();
        return Err(ControlError::Ambiguous { what: what.to_owned(), candidates: candidates.join(", ") });
    }
    match named.pop() {
        Some(pool) => Ok(pool.clone()),
        None => find_by_path(what, &pools),
    }
}

fn find_by_path(what: &str, pools: &[KnownPool]) -> Result<KnownPool> {
    // The last part is not touched: it may be the mount point of a process that hangs.
    let Ok(path) = mount_table::resolve_without_touching(Path::new(what)) else {
        return Err(ControlError::NoSuchPool { what: what.to_owned() });
    };
    if let Some(pool) = pools.iter().find(|pool| pool.is_at(&path)) {
        return Ok(pool.clone());
    }
    let Ok(path) = path.canonicalize() else {
        return Err(ControlError::NoSuchPool { what: what.to_owned() });
    };
    if let Some(pool) = pools.iter().find(|pool| pool.is_at(&path)) {
        return Ok(pool.clone());
    }
    let superblock =
        open::peek(&path).map_err(|why| ControlError::NotAPool { what: what.to_owned(), why })?;
    let known = pools.iter().find(|pool| pool.uuid == superblock.pool);
    let mut found = KnownPool::of_superblock(&superblock, &path);
    if let Some(known) = known {
        found.mountpoint.clone_from(&known.mountpoint);
        found.registered = known.registered;
        found.mounted.clone_from(&known.mounted);
    }
    Ok(found)
}
