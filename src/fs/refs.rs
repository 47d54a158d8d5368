//! Who refers to an extent, and what follows from it.
//!
//! A reference is the number of bytes of an extent that one file refers to at one origin. The live bytes of
//! an extent are what its references come to, but at most its length: files that share a part count it
//! each, so this may be more than what is really in use, never less. An extent without references is gone.
//!
//! Most extents have one reference, to all of them, by the file they were written for: their own record names
//! it ([`Owner`]), and only what differs from that has a row of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{FsError, Result};
use crate::member::superblock::SetId;
use crate::member::wire;
use crate::store::tables::{
    BATCH_MAX, Batch, Extent, ExtentHead, ExtentId, Ino, Owner, Place, Table, extent_key, place_key, ref_key,
    split_ref,
};
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
    /// Rows to be put, or (none) deleted.
    refs: Vec<(Vec<u8>, Option<u32>)>,
    gone: Vec<ExtentId>,
    /// Those of the created that are to be stored: not those that nobody refers to, or that are there already.
    owners: BTreeMap<ExtentId, Owner>,
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
            }
            match created {
                Some(place) => self.begin(*id, place, deltas, &mut outcome)?,
                None if !self.go_on(*id, deltas, &mut outcome)? => return Ok(None),
                None => {}
            }
        }
        Ok(Some(outcome))
    }

    /// The first references of a new extent. The first of them says whose it is.
    fn begin(&self, id: ExtentId, place: Place, deltas: &RefDeltas, outcome: &mut Outcome) -> Result<()> {
        let mut sum = 0;
        for ((ino, origin), delta) in deltas {
            let bytes = changed(*ino, 0, *delta)?;
            if bytes == 0 {
                continue;
            }
            let first = sum == 0;
            if first {
                outcome.owners.insert(id, Owner { ino: *ino, origin: *origin });
            }
            if !first || bytes != place.len {
                outcome.refs.push((ref_key(id, *ino, *origin), Some(bytes)));
            }
            sum += u64::from(bytes);
        }
        // Also a sum of 0: the set's record, which the store writes then, says how far it is filled.
        *outcome.live.entry(place.set).or_default() += sum.min(u64::from(place.len)) as i64;
        Ok(())
    }

    /// Changed references of an extent that is there. False: it depends on references that others may change.
    fn go_on(&self, id: ExtentId, deltas: &RefDeltas, outcome: &mut Outcome) -> Result<bool> {
        let head = head_of(self.store, id, deltas)?;
        let most = u64::from(head.place.len);
        let Some(known) = self.known(id, &head, deltas)? else { return Ok(false) };
        let own = self.own(id, &head, deltas, &known, outcome)?;
        let before = most.min(own.before + known.others);
        let after = most.min(own.after + known.others);
        if after == 0 {
            outcome.gone.push(id);
        }
        if before != after {
            *outcome.live.entry(head.place.set).or_default() += after as i64 - before as i64;
        }
        Ok(true)
    }

    /// The changed references themselves.
    fn own(
        &self,
        id: ExtentId,
        head: &ExtentHead,
        deltas: &RefDeltas,
        known: &Known,
        outcome: &mut Outcome,
    ) -> Result<Sums> {
        let mut sums = Sums { before: 0, after: 0 };
        let mut rows = BTreeMap::new();
        for ((ino, origin), delta) in deltas {
            let before = match known.own.get(&(*ino, *origin)) {
                Some(bytes) => *bytes,
                None if known.complete => 0,
                None => stored(self.store, id, head, *ino, *origin)?,
            };
            let after = changed(*ino, before, *delta)?;
            sums.before += u64::from(before);
            sums.after += u64::from(after);
            if before != after {
                rows.insert((*ino, *origin), after);
            }
        }
        let (owner, gone) = ((head.owner.ino, head.owner.origin), sums.after + known.others == 0);
        for ((ino, origin), bytes) in rows {
            let row = match bytes {
                // What goes without saying has no row; and where the extent goes, nothing has.
                bytes if (ino, origin) == owner && !gone => (bytes != head.place.len).then_some(bytes),
                0 => None,
                bytes => Some(bytes),
            };
            let has_row = (ino, origin) != owner || known.owner_row;
            if row.is_some() || has_row {
                outcome.refs.push((ref_key(id, ino, origin), row));
            }
        }
        if gone && known.owner_row && !deltas.contains_key(&owner) {
            outcome.refs.push((ref_key(id, owner.0, owner.1), None));
        }
        Ok(sums)
    }

    /// The references as they are stored, as far as it matters: once those that do not change come to all of the
    /// extent no more are looked at. None when it depends on files whose references may change meanwhile.
    fn known(&self, id: ExtentId, head: &ExtentHead, deltas: &RefDeltas) -> Result<Option<Known>> {
        let most = u64::from(head.place.len);
        let mut known = Known::default();
        let mut refs = Refs::of(self.store, id, head);
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
        known.owner_row = refs.owner_row;
        known.others = known.others.min(most);
        Ok(Some(known))
    }
}

/// A reference of `before` bytes after a change.
fn changed(ino: Ino, before: u32, delta: i64) -> Result<u32> {
    i64::from(before)
        .checked_add(delta)
        .and_then(|after| u32::try_from(after).ok())
        .ok_or(FsError::Damaged { ino, what: "it drops what it never referred to" })
}

/// One reference of an extent, as stored.
fn stored(store: &Store, id: ExtentId, head: &ExtentHead, ino: Ino, origin: u64) -> Result<u32> {
    let unsaid = if head.owner == (Owner { ino, origin }) { head.place.len } else { 0 };
    Ok(store.read(Table::Refs, &ref_key(id, ino, origin))?.unwrap_or(unsaid))
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
    /// The owner has a row.
    owner_row: bool,
}

/// The references of an extent, each more than nothing: the owner's first if it goes without saying, the others in
/// order.
pub(super) struct Refs<'a> {
    store: &'a Store,
    id: ExtentId,
    head: ExtentHead,
    rows: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    /// Where to go on reading; none when all were read.
    from: Option<Vec<u8>>,
    begun: bool,
    /// The owner has a row; known once something was read.
    owner_row: bool,
}

impl<'a> Refs<'a> {
    /// Those of an extent.
    pub fn of(store: &'a Store, id: ExtentId, head: &ExtentHead) -> Self {
        let (head, from, rows) = (*head, Some(ref_key(id, 0, 0)), Vec::new().into_iter());
        Self { store, id, head, rows, from, begun: false, owner_row: false }
    }

    /// Inode, origin and bytes of the next one.
    pub fn next(&mut self) -> Result<Option<(Ino, u64, u32)>> {
        if !self.begun {
            self.begun = true;
            self.read()?;
            if !self.owner_has_row()? {
                let Owner { ino, origin } = self.head.owner;
                return Ok(Some((ino, origin, self.head.place.len)));
            }
        }
        loop {
            if self.rows.len() == 0 {
                self.read()?;
            }
            let Some((key, value)) = self.rows.next() else { return Ok(None) };
            let (_, ino, origin) = split_ref(&key).ok_or(FsError::Damaged { ino: 0, what: "a reference" })?;
            let bytes = wire::unpack(&value).map_err(|_| FsError::Damaged { ino, what: "a reference" })?;
            if bytes > 0 {
                return Ok(Some((ino, origin, bytes)));
            }
        }
    }

    /// At most so many of them.
    pub fn collect(mut self, limit: usize) -> Result<Vec<(Ino, u64, u32)>> {
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(one) = self.next()?
        {
            found.push(one);
        }
        Ok(found)
    }

    fn read(&mut self) -> Result<()> {
        let Some(from) = self.from.take() else { return Ok(()) };
        let rows = self.store.scan(Table::Refs, &from, &extent_key(self.id + 1), SCAN_REFS)?;
        if rows.len() == SCAN_REFS {
            self.from = rows.last().map(|(last, _)| [last.as_slice(), &[0]].concat());
        }
        self.rows = rows.into_iter();
        Ok(())
    }

    /// Looks among the first rows, and in the table if there are more.
    fn owner_has_row(&mut self) -> Result<bool> {
        let key = ref_key(self.id, self.head.owner.ino, self.head.owner.origin);
        let among_first = self.rows.as_slice().iter().any(|(row, _)| *row == key);
        self.owner_row = among_first || (self.from.is_some() && self.store.get(Table::Refs, &key)?.is_some());
        Ok(self.owner_row)
    }
}

/// Live bytes of an extent. The caller has the lock of the extents alone.
pub(super) fn live_bytes(store: &Store, id: ExtentId, head: &ExtentHead) -> Result<u64> {
    let len = u64::from(head.place.len);
    let (mut sum, mut refs) = (0, Refs::of(store, id, head));
    while sum < len {
        let Some((_, _, bytes)) = refs.next()? else { break };
        sum += u64::from(bytes);
    }
    Ok(sum.min(len))
}

impl Outcome {
    /// Puts it, and the new extents, into a transaction.
    pub fn emit(
        self,
        mut created: BTreeMap<ExtentId, Extent>,
        maybe_there: &BTreeSet<ExtentId>,
        tx: &mut Tx,
    ) {
        created.retain(|id, _| self.owners.contains_key(id));
        // One that an earlier change may have created has a row by itself: it would be another batch this time.
        let (alone, together): (Vec<_>, Vec<_>) = created
            .iter()
            .map(|(id, extent)| (*id, extent.place()))
            .partition(|(id, _)| maybe_there.contains(id));
        alone.into_iter().for_each(|one| put_places(vec![one], tx));
        put_places(together, tx);
        for (id, mut extent) in created {
            extent.owner = self.owners.get(&id).copied().unwrap_or_default();
            tx.put(Table::Extents, extent_key(id), &extent);
        }
        for (key, row) in self.refs {
            match row {
                None => tx.delete(Table::Refs, key),
                Some(bytes) => tx.put(Table::Refs, key, &bytes),
            }
        }
        for id in self.gone {
            tx.delete(Table::Extents, extent_key(id));
        }
        for (set, delta) in self.live {
            tx.live(set, delta);
        }
    }
}

/// Puts the rows of extents that were just written: those side by side into one.
pub(super) fn put_places(mut extents: Vec<(ExtentId, Place)>, tx: &mut Tx) {
    extents.sort_unstable_by_key(|(_, place)| (place.set, place.address));
    let mut put = |first: Option<Place>, batch: Batch| {
        if let Some(Place { set, address, .. }) = first {
            tx.put(Table::Places, place_key(set, address), &batch);
        }
    };
    let (mut first, mut batch, mut next): (Option<Place>, Batch, _) = (None, Batch::new(), (0, 0));
    for (id, place) in extents {
        if (place.set, place.address) != next || batch.len() == BATCH_MAX {
            put(first.replace(place), std::mem::take(&mut batch));
        }
        batch.push((id, place.len));
        next = (place.set, place.address.saturating_add(u64::from(place.len)));
    }
    put(first, batch);
}

/// Everything of an extent but its checksums.
fn head_of(store: &Store, id: ExtentId, deltas: &RefDeltas) -> Result<ExtentHead> {
    let ino = deltas.keys().next().map_or(0, |(ino, _)| *ino);
    let gone = FsError::Damaged { ino, what: "an extent it refers to is gone" };
    let record = store.get(Table::Extents, &extent_key(id))?.ok_or(gone)?;
    let (head, _) = wire::unpack_prefix(&record)
        .map_err(|_| FsError::Damaged { ino, what: "the record of an extent" })?;
    Ok(head)
}
