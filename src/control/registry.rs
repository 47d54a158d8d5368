//! The pools known to this user: a file that `poolctl create` writes and `poolfs mount` reads. It is a convenience:
//! what it says is in the members' superblocks too, but for the mount point.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ControlError, Result};

/// Names another file to use.
pub const OVERRIDE: &str = "POOLFS_REGISTRY";

/// One known pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Uuid,
    /// Where it is mounted when nothing else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mountpoint: Option<PathBuf>,
    /// Where its members were when it was made.
    pub members: Vec<PathBuf>,
}

/// All known pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registry {
    /// In the order in which they were made.
    #[serde(default, rename = "pool")]
    pub pools: Vec<Entry>,
}

/// The file: what [`OVERRIDE`] says, `/etc/poolfs/pools.toml` for root, else that of the user's own settings.
pub fn path() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set(OVERRIDE) {
        return path;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/etc/poolfs/pools.toml");
    }
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    base.unwrap_or_else(|| PathBuf::from(".")).join("poolfs/pools.toml")
}

/// The pools that the registry at `path` knows. One that is not there knows none.
///
/// # Errors
/// [`ControlError::File`], [`ControlError::BadRegistry`].
pub fn load(path: &Path) -> Result<Registry> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Registry::default()),
        Err(source) => return Err(file_error(path, "reading it", source)),
    };
    toml::from_str(&text)
        .map_err(|error| ControlError::BadRegistry { path: path.to_owned(), why: error.to_string() })
}

/// Changes the registry at `path`, which is replaced as a whole: whoever reads it meanwhile sees the old or the
/// new one. Two commands at once wait for each other.
///
/// # Errors
/// As [`load`].
pub fn update(path: &Path, change: impl FnOnce(&mut Registry)) -> Result<()> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(|e| file_error(directory, "making the directory", e))?;
    let lock_path = path.with_extension("lock");
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|e| file_error(&lock_path, "locking it", e))?;
    let mut registry = load(path)?;
    change(&mut registry);
    let text = toml::to_string(&registry)
        .map_err(|error| ControlError::BadRegistry { path: path.to_owned(), why: error.to_string() })?;
    replace(path, directory, text.as_bytes()).map_err(|e| file_error(path, "replacing it", e))?;
    drop(lock);
    Ok(())
}

/// Notes where the members of a pool are now, if the registry at `path` knows the pool.
///
/// # Errors
/// As [`update`].
pub fn note_members(path: &Path, uuid: Uuid, members: &[PathBuf]) -> Result<()> {
    let stale = |entry: &Entry| entry.uuid == uuid && entry.members != members;
    if members.is_empty() || !load(path)?.pools.iter().any(stale) {
        return Ok(());
    }
    update(path, |registry| {
        for entry in registry.pools.iter_mut().filter(|entry| stale(entry)) {
            entry.members = members.to_vec();
        }
    })
}

fn replace(path: &Path, directory: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}

fn file_error(path: &Path, doing: &'static str, source: io::Error) -> ControlError {
    ControlError::File { path: path.to_owned(), doing, source }
}

impl Registry {
    /// Adds a pool, in place of one with the same UUID or the same name or the same mount point.
    pub fn put(&mut self, entry: Entry) {
        self.pools.retain(|old| {
            let same_place = old.mountpoint.is_some() && old.mountpoint == entry.mountpoint;
            old.uuid != entry.uuid && old.name != entry.name && !same_place
        });
        self.pools.push(entry);
    }

    /// Forgets a pool.
    pub fn remove(&mut self, uuid: Uuid) {
        self.pools.retain(|old| old.uuid != uuid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, uuid: u128) -> Entry {
        Entry {
            name: name.into(),
            uuid: Uuid::from_u128(uuid),
            mountpoint: Some(PathBuf::from("/mnt").join(name)),
            members: vec!["/disks/a".into(), "/disks/b c".into()],
        }
    }

    #[test]
    fn what_is_put_is_found_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("deep/er/pools.toml");
        assert_eq!(load(&path).expect("nothing yet"), Registry::default());
        update(&path, |r| r.put(entry("tank", 1))).expect("first");
        update(&path, |r| r.put(entry("other", 2))).expect("second");
        assert_eq!(load(&path).expect("both").pools, vec![entry("tank", 1), entry("other", 2)]);
        update(&path, |r| r.put(entry("tank", 3))).expect("made anew");
        update(&path, |r| r.remove(Uuid::from_u128(2))).expect("removed");
        assert_eq!(load(&path).expect("one").pools, vec![entry("tank", 3)]);
    }

    #[test]
    fn nonsense_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pools.toml");
        fs::write(&path, "[[pool]]\nname = 3\n").expect("written");
        assert!(matches!(load(&path), Err(ControlError::BadRegistry { .. })));
        assert!(update(&path, |_| ()).is_err(), "a registry that can't be read was replaced");
    }
}
