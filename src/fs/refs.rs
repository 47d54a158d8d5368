//! Who refers to an extent, and what follows from it.
//!
//! A reference is the number of bytes of an extent that one file refers to at one origin. The live bytes of
//! an extent are what its references come to, but at most its length: files that share a part count it
//! each, so this may be more than what is really in use, never less. An extent without references is gone.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{FsError, Result};
use crate::member::superblock::SetId;
use crate::member::wire;
use crate::store::tables::{Extent, ExtentId, Ino, Place, Table, extent_key, place_key, ref_key, split_ref};
use crate::store::{Store, Tx};

/// References that are read in one go.
const SCAN_REFS: usize = 64;

/// Changed references of one extent: by inode and origin, bytes more or fewer.
pub(super) type RefDeltas = BTreeMap<(Ino, u64), i64>;

/// Whether anybody else may change references, or move extents, meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alone {
    /// Nobody.
    Yes,
    /// Others may change references of files other than the owners; nothing moves.
    No,
}

/// What it takes to work out what changed references come to.
pub(super) struct Counts<'a> {
    pub store: &'a Store,
    /// New extents, which nobody refers to yet.
    pub created: &'a BTreeMap<ExtentId, Extent>,
    /// Those of them that may be stored already: then they are not created.
    pub maybe_there: &'a BTreeSet<ExtentId>,
    /// Inodes whose references nobody else changes meanwhile.
    pub owners: &'a BTreeSet<Ino>,
    pub alone: Alone,
}

/// What changed references come to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    refs: Vec<(Vec<u8>, u32)>,
    gone: Vec<(ExtentId, Place)>,
    /// Created ones that are not to be stored: nobody refers to them, or they are there already.
    unused: Vec<ExtentId>,
    live: BTreeMap<SetId, i64>,
}

/// References of one extent, before and after.
struct Sums {
    before: u64,
    after: u64,
}

impl Counts<'_> {
    /// Works it out. None: it depends on references of others, who may change them; ask again alone.
    pub fn work_out(&self, refs: &BTreeMap<ExtentId, RefDeltas>) -> Result<Option<Outcome>> {
        let mut outcome = Outcome::default();
        for (id, deltas) in refs {
            let mut created = self.created.get(id).map(Extent::place);
            if self.maybe_there.contains(id) && self.store.get(Table::Extents, &extent_key(*id))?.is_some() {
                created = None;
                outcome.unused.push(*id);
            }
            let place = match created {
                Some(place) => place,
                None => place_of(self.store, *id, deltas)?,
            };
            let most = u64::from(place.len);
            let known = match created {
                Some(_) => Known::complete(),
                None => match self.known(*id, deltas, most)? {
                    Some(known) => known,
                    None => return Ok(None),
                },
            };
            let own = self.own(*id, deltas, &known, &mut outcome)?;
            let before = most.min(own.before + known.others);
            let after = most.min(own.after + known.others);
            if after == 0 {
                match created {
                    Some(_) => outcome.unused.push(*id),
                    None => outcome.gone.push((*id, place)),
                }
            }
            // For new extents also a sum of 0: the set's record, which the store writes then, says how far it
            // is filled.
            if created.is_some() || before != after {
                *outcome.live.entry(place.set).or_default() += after as i64 - before as i64;
            }
        }
        Ok(Some(outcome))
    }

    /// The changed references themselves.
    fn own(&self, id: ExtentId, deltas: &RefDeltas, known: &Known, outcome: &mut Outcome) -> Result<Sums> {
        let mut sums = Sums { before: 0, after: 0 };
        for ((ino, origin), delta) in deltas {
            let key = ref_key(id, *ino, *origin);
            let before = match known.own.get(&(*ino, *origin)) {
                Some(bytes) => *bytes,
                None if known.complete => 0,
                None => self.store.read(Table::Refs, &key)?.unwrap_or(0),
            };
            let after = i64::from(before)
                .checked_add(*delta)
                .and_then(|after| u32::try_from(after).ok())
                .ok_or(FsError::Damaged { ino: *ino, what: "it drops what it never referred to" })?;
            sums.before += u64::from(before);
            sums.after += u64::from(after);
            if before != after {
                outcome.refs.push((key, after));
            }
        }
        Ok(sums)
    }

    /// The references as they are stored, as far as it matters: once those that do not change come to `most`
    /// no more are looked at. None when it depends on files whose references may change meanwhile.
    fn known(&self, id: ExtentId, deltas: &RefDeltas, most: u64) -> Result<Option<Known>> {
        let mut known = Known::default();
        let mut refs = Refs::of(self.store, id);
        while known.others < most {
            let Some((ino, origin, bytes)) = refs.next()? else {
                known.complete = true;
                break;
            };
            if deltas.contains_key(&(ino, origin)) {
                known.own.insert((ino, origin), bytes);
            } else if self.alone == Alone::No && !self.owners.contains(&ino) {
                return Ok(None);
            } else {
                known.others += u64::from(bytes);
            }
        }
        known.others = known.others.min(most);
        Ok(Some(known))
    }
}

/// References of an extent, as stored.
#[derive(Debug, Default)]
struct Known {
    /// Those among them that are about to change.
    own: BTreeMap<(Ino, u64), u32>,
    /// The sum of the others.
    others: u64,
    /// All were looked at.
    complete: bool,
}

impl Known {
    /// There are none.
    fn complete() -> Self {
        Self { complete: true, ..Self::default() }
    }
}

/// The references of an extent, in order.
struct Refs<'a> {
    store: &'a Store,
    rows: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    /// Where to go on reading; none when all were read.
    from: Option<Vec<u8>>,
    end: Vec<u8>,
}

impl<'a> Refs<'a> {
    fn of(store: &'a Store, id: ExtentId) -> Self {
        let (from, end) = (Some(ref_key(id, 0, 0)), extent_key(id + 1));
        Self { store, rows: Vec::new().into_iter(), from, end }
    }

    /// Inode, origin and bytes of the next one.
    fn next(&mut self) -> Result<Option<(Ino, u64, u32)>> {
        if self.rows.len() == 0
            && let Some(from) = self.from.take()
        {
            let rows = self.store.scan(Table::Refs, &from, &self.end, SCAN_REFS)?;
            if rows.len() == SCAN_REFS {
                self.from = rows.last().map(|(last, _)| [last.as_slice(), &[0]].concat());
            }
            self.rows = rows.into_iter();
        }
        let Some((key, value)) = self.rows.next() else { return Ok(None) };
        let (_, ino, origin) = split_ref(&key).ok_or(FsError::Damaged { ino: 0, what: "a reference" })?;
        let bytes = wire::decode(&value).map_err(|_| FsError::Damaged { ino, what: "a reference" })?;
        Ok(Some((ino, origin, bytes)))
    }
}

/// Live bytes of an extent of this length. The caller has the lock of the extents alone.
pub(super) fn live_bytes(store: &Store, id: ExtentId, len: u64) -> Result<u64> {
    let (mut sum, mut refs) = (0, Refs::of(store, id));
    while sum < len {
        let Some((_, _, bytes)) = refs.next()? else { break };
        sum += u64::from(bytes);
    }
    Ok(sum.min(len))
}

impl Outcome {
    /// Puts it, and the new extents, into a transaction.
    pub fn emit(self, mut created: BTreeMap<ExtentId, Extent>, tx: &mut Tx) {
        for id in self.unused {
            created.remove(&id);
        }
        for (id, extent) in created {
            tx.put(Table::Places, place_key(extent.set, extent.address), &id);
            tx.put(Table::Extents, extent_key(id), &extent);
        }
        for (key, bytes) in self.refs {
            match bytes {
                0 => tx.delete(Table::Refs, key),
                _ => tx.put(Table::Refs, key, &bytes),
            }
        }
        for (id, place) in self.gone {
            tx.delete(Table::Places, place_key(place.set, place.address));
            tx.delete(Table::Extents, extent_key(id));
        }
        for (set, delta) in self.live {
            tx.live(set, delta);
        }
    }
}

/// Where an extent lies, without its checksums.
fn place_of(store: &Store, id: ExtentId, deltas: &RefDeltas) -> Result<Place> {
    let ino = deltas.keys().next().map_or(0, |(ino, _)| *ino);
    let gone = FsError::Damaged { ino, what: "an extent it refers to is gone" };
    let record = store.get(Table::Extents, &extent_key(id))?.ok_or(gone)?;
    let (place, _) = wire::decode_prefix(&record)
        .map_err(|_| FsError::Damaged { ino, what: "the record of an extent" })?;
    Ok(place)
}
