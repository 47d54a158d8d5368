//! Which members matter to what: where a file lies, and what would be lost with some members.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use crate::fs::{Fs, Result};
use crate::layout::Resiliency;
use crate::member::superblock::{MemberId, Purpose, SetId};
use crate::pool::status::Health;
use crate::store::tables::Ino;

/// Parts of a file that are told at most.
const PARTS_MAX: usize = 4096;
/// Files that are named at most; the others are counted.
const FILES_NAMED: usize = 200;
/// Files that are counted at most.
const FILES_COUNTED: usize = 1 << 20;

/// Where a file lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// Its inode.
    pub ino: Ino,
    /// Its size in bytes.
    pub size: u64,
    /// What it is kept as from now on.
    pub resiliency: String,
    /// Its content, or the beginning of it, is in the metadata.
    pub inline: bool,
    /// Its parts, in order, at most a few thousand.
    pub parts: Vec<Part>,
    /// There are more parts.
    pub more: bool,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The set; none for space that was only reserved.
    pub set: Option<SetId>,
    /// How that set keeps it.
    pub resiliency: Option<Resiliency>,
    /// The slabs of the set: number and place of the member, and the slab there.
    pub slabs: Vec<(MemberId, String, u32)>,
}

/// What would be without some members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// How the pool would be.
    pub health: Health,
    /// Their places.
    pub lost: Vec<String>,
    /// Sets in use, those that would lack redundancy, and those that could not be read.
    pub sets: u64,
    /// See `sets`.
    pub sets_degraded: u64,
    /// See `sets`.
    pub sets_unreadable: u64,
    /// The pool itself could not be mounted: metadata would be among the unreadable.
    pub metadata_lost: bool,
    /// Bytes of file data that could not be read.
    pub bytes_unreadable: u64,
    /// Files of which something could not be read.
    pub files_unreadable: u64,
    /// Names of some of them.
    pub examples: Vec<String>,
}

/// Says where a file lies.
///
/// # Errors
/// Those of reading the tables; an inode that is no file.
pub fn locate(fs: &Fs, ino: Ino) -> Result<Located> {
    // What is in memory only lies nowhere yet.
    if !fs.pool().read_only() {
        fs.sync_all()?;
    }
    let inode = fs.stored_inode(ino)?;
    let places = fs.places_of(ino, PARTS_MAX + 1)?;
    let more = places.len() > PARTS_MAX;
    let parts = places.into_iter().take(PARTS_MAX).map(|one| {
        let record = one.place.and_then(|(set, _)| fs.pool().set_record(set));
        let slabs = record.iter().flat_map(|record| &record.slots).map(|place| {
            let member = fs.pool().members().get(usize::from(place.member));
            (place.member, member.map(|member| member.place()).unwrap_or_default(), place.slab)
        });
        let slabs = slabs.collect();
        let set = one.place.map(|(set, _)| set);
        Part {
            offset: one.offset,
            len: one.len,
            set,
            resiliency: record.map(|record| record.resiliency),
            slabs,
        }
    });
    Ok(Located {
        ino,
        size: inode.size,
        resiliency: inode.resiliency.to_string(),
        inline: inode.inline,
        parts: parts.collect(),
        more,
    })
}

/// Says what would be without these members.
///
/// # Errors
/// Those of reading the tables.
pub fn what_if(fs: &Fs, lost: &[MemberId]) -> Result<WhatIf> {
    let pool = fs.pool();
    let without: HashSet<MemberId> = lost.iter().copied().collect();
    let sets = pool.sets_without(&without);
    let unreadable: Vec<_> = sets.iter().filter(|set| !set.readable).collect();
    let data: Vec<SetId> =
        unreadable.iter().filter(|set| set.purpose == Purpose::Data).map(|set| set.id).collect();
    let metadata_lost = unreadable.iter().any(|set| set.purpose == Purpose::Meta);
    let degraded = sets.iter().filter(|set| set.degraded).count() as u64;
    let names = lost.iter().filter_map(|id| pool.members().get(usize::from(*id)));
    let files = files_in(fs, &data)?;
    let named: BTreeSet<Ino> = files.iter().copied().take(FILES_NAMED).collect();
    let paths: BTreeMap<Ino, Vec<Vec<u8>>> =
        if named.is_empty() { BTreeMap::new() } else { fs.paths_of(&named)? };
    Ok(WhatIf {
        health: match (unreadable.is_empty(), degraded) {
            (false, _) => Health::Unavailable,
            (true, 0) => Health::Online,
            (true, _) => Health::Degraded,
        },
        lost: names.map(|member| member.place()).collect(),
        sets: sets.len() as u64,
        sets_degraded: degraded,
        sets_unreadable: unreadable.len() as u64,
        metadata_lost,
        bytes_unreadable: unreadable
            .iter()
            .filter(|set| set.purpose == Purpose::Data)
            .map(|set| set.live)
            .sum(),
        files_unreadable: files.len() as u64,
        examples: paths
            .into_values()
            .filter_map(|mut names| names.drain(..).next())
            .map(|path| format!("/{}", String::from_utf8_lossy(&path)))
            .collect(),
    })
}

/// The files that have something in these sets.
fn files_in(fs: &Fs, sets: &[SetId]) -> Result<BTreeSet<Ino>> {
    let mut files = BTreeSet::new();
    for &set in sets {
        for (id, _) in fs.store().extents_in(set, 0..u64::MAX)? {
            if files.len() >= FILES_COUNTED {
                return Ok(files);
            }
            files.extend(fs.files_of_extent(id, 0, u64::MAX, FILES_COUNTED)?.into_iter().map(|one| one.ino));
        }
    }
    Ok(files)
}
