//! Moving extents: read, write, commit.
//!
//! Bytes move with the checksums they have had since they were first written. What moves whole and in one
//! piece keeps its number: no file's map changes. What is trimmed, or did not find one contiguous place,
//! becomes other extents, and the maps of the files that refer to it change under their inodes' locks, one
//! file after the other. Whatever was cut meanwhile is not mapped; whatever came to share the extent
//! meanwhile goes on referring to it where it was.

use super::cargo::{Cargo, Reference};
use crate::fs::Fs;
use crate::fs::change::Change;
use crate::fs::error::{FsError, Result};
use crate::fs::extents::segments;
use crate::fs::map::{MapEdit, Segment};
use crate::fs::refs::{Refs, live_bytes, put_places};
use crate::pool::{Chunk, Piece, SetUsage};
use crate::store::Tx;
use crate::store::tables::{Extent, ExtentHead, ExtentId, Owner, Table, extent_key};
use crate::sync::atomic::Ordering;
use crate::units::SECTOR;

/// Largest read.
const READ_BYTES: u64 = 4 << 20;

/// An extent that becomes others.
struct Remap {
    id: ExtentId,
    head: ExtentHead,
    /// What of it was moved, and where each range begins in what was written.
    live: Vec<(u64, u64, u64)>,
    pieces: Vec<NewExtent>,
}

struct NewExtent {
    id: ExtentId,
    /// Where it begins in what was written.
    at: u64,
    extent: Extent,
}

impl Fs {
    /// Moves all this away from its set.
    pub(super) fn carry(&self, from: &SetUsage, cargo: Vec<Cargo>) -> Result<()> {
        let bytes = self.read_cargo(&cargo)?;
        self.compactor.moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut chunks = Vec::with_capacity(cargo.len());
        let mut at = 0;
        for one in &cargo {
            let end = at + one.bytes() as usize;
            chunks.push(Chunk(vec![&bytes[at..end]]));
            at = end;
        }
        // `written` keeps the new sets from being freed until everything is committed.
        let mut written = self.pool.rewrite(&from.resiliency, &chunks)?;
        let mut pieces = std::mem::take(&mut written.pieces).into_iter().peekable();
        let (mut whole, mut remaps) = (Vec::new(), Vec::new());
        for (index, one) in cargo.into_iter().enumerate() {
            let mut own = Vec::new();
            while let Some(piece) = pieces.next_if(|piece| piece.chunk == index) {
                own.push(piece);
            }
            check_sums(from, &one, &own)?;
            if one.is_whole() && own.len() == 1 {
                whole.extend(own.pop().map(|piece| (one, piece)));
            } else {
                remaps.push(self.remap(one, own)?);
            }
        }
        self.commit_moves(&whole)?;
        for remap in &remaps {
            self.commit_remap(remap)?;
        }
        drop(written);
        Ok(())
    }

    /// Reads what is to move, verified; neighbours with one request.
    fn read_cargo(&self, cargo: &[Cargo]) -> Result<Vec<u8>> {
        let total: u64 = cargo.iter().map(Cargo::bytes).sum();
        let mut bytes = vec![0; total as usize];
        let mut done = 0;
        let mut run: Option<Run> = None;
        for one in cargo {
            for (from, to) in one.live.iter().copied() {
                let (address, sums) = (one.extent.address + from, one.sums_of(from, to));
                match &mut run {
                    Some(run) if run.end() == address && run.len() + (to - from) <= READ_BYTES => {
                        run.sums.extend_from_slice(sums);
                    }
                    _ => {
                        self.read_run(run.take(), &mut bytes, &mut done)?;
                        run = Some(Run { set: one.extent.set, address, sums: sums.to_vec() });
                    }
                }
            }
        }
        self.read_run(run, &mut bytes, &mut done)?;
        Ok(bytes)
    }

    fn read_run(&self, run: Option<Run>, bytes: &mut [u8], done: &mut usize) -> Result<()> {
        let Some(run) = run else { return Ok(()) };
        let end = *done + run.len() as usize;
        self.pool.read(run.set, run.address, &run.sums, &mut bytes[*done..end])?;
        *done = end;
        Ok(())
    }

    /// One transaction for all extents that are as they were when they were read.
    fn commit_moves(&self, moves: &[(Cargo, Piece)]) -> Result<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let _alone = self.extent_lock.write();
        let (mut tx, mut places) = (Tx::new(), Vec::with_capacity(moves.len()));
        for (cargo, piece) in moves {
            let key = extent_key(cargo.id);
            let old = cargo.extent.place();
            let now: Option<Extent> = self.store.read(Table::Extents, &key)?;
            let Some(now) = now.filter(|now| now.place() == old) else { continue };
            let live = live_bytes(&self.store, cargo.id, &now.head())? as i64;
            let moved = Extent { set: piece.set, address: piece.address, ..now };
            places.push((cargo.id, moved.place()));
            tx.put(Table::Extents, key, &moved);
            tx.live(old.set, -live);
            tx.live(moved.set, live);
        }
        put_places(places, &mut tx);
        if !tx.is_empty() {
            self.store.commit(tx)?;
        }
        Ok(())
    }

    fn remap(&self, cargo: Cargo, pieces: Vec<Piece>) -> Result<Remap> {
        let mut at = 0;
        let mut live = Vec::with_capacity(cargo.live.len());
        for (from, to) in cargo.live {
            live.push((from, to, at));
            at += to - from;
        }
        let mut new = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let Piece { at, len, set, address, sums, .. } = piece;
            let extent = Extent { set, address, len: len as u32, owner: Owner::default(), sums };
            new.push(NewExtent { id: self.extent_numbers.next(&self.store)?, at, extent });
        }
        Ok(Remap { id: cargo.id, head: cargo.extent.head(), live, pieces: new })
    }

    /// Lets all files that refer to an extent refer to its new pieces.
    fn commit_remap(&self, remap: &Remap) -> Result<()> {
        let mut refs = Refs::of(&self.store, remap.id, &remap.head);
        while let Some((ino, origin, _)) = refs.next()? {
            self.remap_one(remap, Reference { ino, origin })?;
        }
        Ok(())
    }

    fn remap_one(&self, remap: &Remap, reference: Reference) -> Result<()> {
        let node = match self.nodes.get(&self.store, reference.ino) {
            Ok(node) => node,
            // It is being deleted.
            Err(FsError::NoSuchInode { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let state = node.state.write();
        if state.gone {
            return Ok(());
        }
        let (from, to) = reference.range(remap.head.place.len);
        let found = segments(&self.store, reference.ino, from, to, usize::MAX)?;
        let mut edit = MapEdit::new();
        edit.learn(found.iter().copied());
        for segment in found {
            if segment.origin() == Some((remap.id, reference.origin)) {
                remap.parts_of(&segment).into_iter().for_each(|part| edit.insert(part));
            }
        }
        let mut change = Change::new();
        change.map(reference.ino, &edit);
        if change.is_empty() {
            return Ok(());
        }
        let taken: Vec<ExtentId> = edit.refs().map(|(id, _, _)| id).collect();
        for piece in remap.pieces.iter().filter(|piece| taken.contains(&piece.id)) {
            change.create_unless_there(piece.id, piece.extent.clone());
        }
        self.commit(change)?;
        Ok(())
    }
}

impl Remap {
    /// What a segment that refers to the extent becomes. What was not moved is not among it.
    fn parts_of(&self, segment: &Segment) -> Vec<Segment> {
        let Some((_, at)) = segment.extent else { return Vec::new() };
        let (start, end) = (u64::from(at), u64::from(at) + segment.len);
        let mut parts = Vec::new();
        for (from, to, packed) in self.live.iter().copied() {
            let (from, packed) = (from.max(start), packed + start.saturating_sub(from));
            let to = to.min(end);
            for piece in &self.pieces {
                let (first, last) = (piece.at, piece.at + u64::from(piece.extent.len));
                let begin = packed.max(first);
                let stop = (packed + to.saturating_sub(from)).min(last);
                if begin < stop {
                    let in_extent = from + (begin - packed);
                    parts.push(Segment {
                        start: segment.start + (in_extent - start),
                        len: stop - begin,
                        extent: Some((piece.id, (begin - first) as u32)),
                    });
                }
            }
        }
        parts
    }
}

/// Neighbouring bytes that are read with one request.
struct Run {
    set: u64,
    address: u64,
    sums: Vec<u32>,
}

impl Run {
    fn len(&self) -> u64 {
        self.sums.len() as u64 * SECTOR
    }

    fn end(&self) -> u64 {
        self.address + self.len()
    }
}

/// Errors unless what was written has the checksums of what was read.
fn check_sums(from: &SetUsage, cargo: &Cargo, pieces: &[Piece]) -> Result<()> {
    let original = cargo.sums();
    let written = pieces.iter().flat_map(|piece| &piece.sums);
    if original.iter().eq(written) { Ok(()) } else { Err(FsError::Miscarried { set: from.id }) }
}
