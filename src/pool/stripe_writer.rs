//! The stripe writer: lays data out as full stripes, computes checksums and parity while the data is in
//! the processor's cache, and writes every slot with one large write, all members in parallel.
//!
//! Nothing is read before it is written, and nothing written before is touched. A member that fails is set
//! aside, its sets are sealed, and what it should have taken is written again elsewhere: a stripe counts
//! only when all its slots are synced.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use super::Pool;
use super::buffers::Pinned;
use super::error::{PoolError, Result};
use super::sets::Set;
use super::space::{Taken, Urgency};
use crate::codec;
use crate::layout::{Redundancy, Resiliency, Stripe};
use crate::limits::{EXTENT_MAX_BYTES, STRIPE_MAX_BYTES};
use crate::member::header::SlabHeader;
use crate::member::superblock::{MemberId, Purpose, SetId, SlabRef};
use crate::member::{AlignedBuf, Area, Bytes, Inbox, Outcome, Request, SLAB_HEADER_BYTES};
use crate::sync::Arc;
use crate::units::{SECTOR, SECTOR_LEN};

/// Bytes of each column that are copied, summed and encoded together, so that they stay in the cache.
const BLOCK_BYTES: usize = 32 * 1024;
/// Batches that are written while others are built.
const FLIGHTS_MAX: usize = 2;
/// Rounds of writing again elsewhere before giving up: more members than this do not fail in one write.
const ROUNDS_MAX: usize = 16;

/// Data to be written: slices in order, each a multiple of the sector long.
#[derive(Debug)]
pub struct Chunk<'a>(pub Vec<&'a [u8]>);

impl Chunk<'_> {
    fn len(&self) -> u64 {
        self.0.iter().map(|slice| slice.len() as u64).sum()
    }
}

/// Where a part of a chunk was written: one future extent.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Index of the chunk.
    pub chunk: usize,
    /// Offset in it.
    pub at: u64,
    /// Bytes, at most [`EXTENT_MAX_BYTES`], a multiple of the sector.
    pub len: u64,
    /// The set.
    pub set: SetId,
    /// Address in the set.
    pub address: u64,
    /// CRC-32C of each sector.
    pub sums: Vec<u32>,
}

/// Stripes that are written and synced. Their sets can't be freed until this is dropped: commit what refers
/// to them before.
#[derive(Debug)]
pub struct Written {
    /// All pieces of all chunks, ordered by chunk and offset.
    pub pieces: Vec<Piece>,
    holds: Vec<Hold>,
}

impl Written {
    /// The sets written to.
    pub fn sets(&self) -> impl Iterator<Item = SetId> + '_ {
        self.holds.iter().map(|hold| hold.0.id)
    }
}

/// Counts as one writer of a set until dropped.
#[derive(Debug)]
struct Hold(Arc<Set>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.written();
    }
}

/// The stream that a write lays out: every sector of every chunk, in order.
struct Stream<'a> {
    sectors: Vec<&'a [u8]>,
    /// First stream sector of each chunk, and the end.
    starts: Vec<u64>,
}

impl<'a> Stream<'a> {
    fn new(chunks: &'a [Chunk<'a>]) -> Self {
        let mut sectors = Vec::new();
        let mut starts = vec![0];
        for chunk in chunks {
            debug_assert!(chunk.len() % SECTOR == 0, "chunks are whole sectors");
            for slice in &chunk.0 {
                sectors.extend(slice.chunks_exact(SECTOR_LEN));
            }
            starts.push(sectors.len() as u64 * SECTOR);
        }
        Self { sectors, starts }
    }

    fn len(&self) -> u64 {
        self.sectors.len() as u64 * SECTOR
    }

    /// The chunk that holds stream offset `at`.
    fn chunk_at(&self, at: u64) -> usize {
        self.starts.partition_point(|&start| start <= at) - 1
    }
}

/// A batch whose slots are being written.
struct Flight {
    batch: Batch,
    pieces: Vec<Piece>,
    writes: Option<Writes>,
}

/// Writes under way: the slot that each belongs to, in the order in which they were asked.
struct Writes {
    inbox: Inbox,
    slots: Vec<SlabRef>,
}

/// Neighbouring stripes of one set: contiguous in every slot, so written with one request each.
struct Batch {
    set: Arc<Set>,
    /// The stripes with the offset of each in the stream.
    stripes: Vec<(Stripe, u64)>,
    /// End of the stream: a stripe's data beyond it is padding.
    end: u64,
}

impl Batch {
    fn offset(&self) -> u64 {
        self.stripes.first().map_or(0, |(stripe, _)| stripe.offset)
    }

    fn height(&self) -> u64 {
        self.stripes.iter().map(|(stripe, _)| stripe.height).sum()
    }

    /// The part of the stream it carries.
    fn range(&self) -> Range<u64> {
        let start = self.stripes.first().map_or(0, |(_, at)| *at);
        let end = self.stripes.last().map_or(0, |(stripe, at)| at + stripe.data_bytes(&self.set.geometry));
        start..end.min(self.end)
    }
}

impl Pool {
    /// Writes chunks as full stripes and syncs them.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] when they do not fit, [`PoolError::NoWritableMember`] when every member failed.
    /// Then nothing of it counts as written.
    pub fn write(&self, resiliency: &Resiliency, chunks: &[Chunk]) -> Result<Written> {
        self.write_for(resiliency, Purpose::Data, Urgency::Flush, chunks)
    }

    /// Like [`Pool::write`], for data that is moved to give back more space than it takes: it goes to sets of
    /// its own, and may use the part of the reserve that is kept for this.
    ///
    /// # Errors
    /// As [`Pool::write`].
    pub fn rewrite(&self, resiliency: &Resiliency, chunks: &[Chunk]) -> Result<Written> {
        self.write_for(resiliency, Purpose::Data, Urgency::Compact, chunks)
    }

    pub(super) fn write_for(
        &self,
        resiliency: &Resiliency,
        purpose: Purpose,
        urgency: Urgency,
        chunks: &[Chunk],
    ) -> Result<Written> {
        if self.read_only() {
            return Err(PoolError::ReadOnly);
        }
        let stream = Stream::new(chunks);
        let mut written = Written { pieces: Vec::new(), holds: Vec::new() };
        let mut todo: Vec<Range<u64>> = Vec::new();
        todo.extend((stream.len() > 0).then(|| 0..stream.len()));
        for _ in 0..ROUNDS_MAX {
            let Some(range) = todo.pop() else { break };
            let taken = self.take_stripes(resiliency, purpose, urgency, range.end - range.start)?;
            let batches = into_batches(taken, &range, &mut written.holds);
            todo.extend(self.write_batches(&stream, batches, &mut written.pieces));
        }
        if !todo.is_empty() {
            return Err(PoolError::NoWritableMember);
        }
        written.pieces.sort_by_key(|piece| (piece.chunk, piece.at));
        Ok(written)
    }

    /// Writes and syncs batches, and returns the parts of the stream that must be written again. While one
    /// batch is being written the next is built.
    fn write_batches(
        &self,
        stream: &Stream,
        batches: Vec<Batch>,
        pieces: &mut Vec<Piece>,
    ) -> Vec<Range<u64>> {
        let mut flights: Vec<Flight> = Vec::new();
        let mut failed: HashSet<SlabRef> = HashSet::new();
        for (index, batch) in batches.into_iter().enumerate() {
            if index >= FLIGHTS_MAX {
                self.land(&mut flights[index - FLIGHTS_MAX], &mut failed);
            }
            let mut own = Vec::new();
            let images = self.build(stream, &batch, &mut own);
            let writes = Some(self.start_writes(&batch, images, &mut failed));
            flights.push(Flight { batch, pieces: own, writes });
        }
        for flight in &mut flights {
            self.land(flight, &mut failed);
        }
        self.sync_slabs(&flights, &mut failed);
        let mut again = Vec::new();
        for mut flight in flights {
            let set = &flight.batch.set;
            if self.set_is_writable(set) && !set.slots.iter().any(|slot| failed.contains(slot)) {
                pieces.append(&mut flight.pieces);
            } else {
                set.seal();
                again.push(flight.batch.range());
            }
        }
        again
    }

    /// Waits for the writes of a batch. Members that failed are set aside.
    fn land(&self, flight: &mut Flight, failed: &mut HashSet<SlabRef>) {
        let Some(writes) = flight.writes.take() else { return };
        for (outcome, slot) in writes.inbox.wait_all(self.io.deadline).into_iter().zip(&writes.slots) {
            self.note_outcome(outcome, slot, failed);
        }
    }

    /// Syncs every slab that was written to, all members in parallel.
    fn sync_slabs(&self, flights: &[Flight], failed: &mut HashSet<SlabRef>) {
        let slabs: BTreeSet<SlabRef> =
            flights.iter().flat_map(|flight| flight.batch.set.slots.iter().copied()).collect();
        let slabs: Vec<SlabRef> = slabs.into_iter().filter(|slab| !failed.contains(slab)).collect();
        let mut inbox = Inbox::new(&self.io.clock);
        let mut asked = Vec::new();
        for slab in &slabs {
            if let Some(disk) = self.member(slab.member).disk() {
                inbox.ask(&disk, Request::Sync(Area::Slab(slab.slab)));
                asked.push(slab);
            }
        }
        for (outcome, slab) in inbox.wait_all(self.io.deadline).into_iter().zip(asked) {
            self.note_outcome(outcome, slab, failed);
        }
    }

    fn note_outcome(&self, outcome: Outcome, slab: &SlabRef, failed: &mut HashSet<SlabRef>) {
        if let Err(error) = outcome {
            self.slab_failed(slab.member, &error);
            failed.insert(*slab);
        }
    }

    /// Fills the images of a batch (see [`image_of`]), and notes the pieces.
    fn build(&self, stream: &Stream, batch: &Batch, pieces: &mut Vec<Piece>) -> Vec<AlignedBuf> {
        let geometry = &batch.set.geometry;
        let height = batch.height() as usize;
        let images = image_of(geometry.redundancy, geometry.slots());
        let mut images: Vec<AlignedBuf> = (0..images).map(|_| self.buffers.take(height)).collect();
        let mut base = 0;
        for (stripe, at) in &batch.stripes {
            note_pieces(stream, batch, stripe, *at, pieces);
            fill_stripe(stream, batch, stripe, *at, base, &mut images, pieces);
            base += stripe.height as usize;
        }
        images
    }

    /// Hands every slot's image to its member. What can't be handed over counts as failed.
    fn start_writes(&self, batch: &Batch, images: Vec<AlignedBuf>, failed: &mut HashSet<SlabRef>) -> Writes {
        let set = &batch.set;
        let fresh = set.take_header_duty();
        let images: Vec<Bytes> =
            images.into_iter().map(|image| Pinned::new(image, &self.buffers, set) as Bytes).collect();
        let mut writes = Writes { inbox: Inbox::new(&self.io.clock), slots: Vec::new() };
        for (slot, place) in set.slots.iter().enumerate() {
            let member = self.member(place.member);
            let Some(disk) = member.disk().filter(|_| member.is_writable()) else {
                failed.insert(*place);
                continue;
            };
            let mut write = |offset, bytes: Bytes, len| {
                let area = Area::Slab(place.slab);
                writes.inbox.ask(&disk, Request::Write { area, offset, bytes, range: 0..len });
                writes.slots.push(*place);
            };
            if fresh {
                let header = AlignedBuf::copy_of(&self.slab_header(set, slot).encode());
                write(0, Pinned::new(header, &self.buffers, set), SLAB_HEADER_BYTES as usize);
            }
            let image = Arc::clone(&images[image_of(set.geometry.redundancy, slot)]);
            write(SLAB_HEADER_BYTES + batch.offset(), image, batch.height() as usize);
        }
        writes
    }

    fn slab_header(&self, set: &Set, slot: usize) -> SlabHeader {
        let place = set.slots[slot];
        SlabHeader {
            pool: self.uuid(),
            set: set.id,
            slot: slot as u16,
            member: place.member as MemberId,
            slab: place.slab,
        }
    }
}

/// Groups stripes into batches, and holds their sets.
fn into_batches(taken: Vec<Taken>, range: &Range<u64>, holds: &mut Vec<Hold>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for Taken { set, stripe, at } in taken {
        holds.push(Hold(Arc::clone(&set)));
        let at = range.start + at;
        match batches.last_mut() {
            Some(batch)
                if batch.set.id == set.id
                    && batch.offset() + batch.height() == stripe.offset
                    && batch.height() + stripe.height <= STRIPE_MAX_BYTES =>
            {
                batch.stripes.push((stripe, at));
            }
            _ => batches.push(Batch { set, stripes: vec![(stripe, at)], end: range.end }),
        }
    }
    batches
}

/// Cuts a stripe's data into pieces: contiguous in addresses, within one chunk, at most an extent long.
fn note_pieces(stream: &Stream, batch: &Batch, stripe: &Stripe, at: u64, pieces: &mut Vec<Piece>) {
    let first = pieces.len();
    for segment in stripe.segments(&batch.set.geometry) {
        let mut start = at + segment.at;
        let end = (start + segment.len).min(batch.end);
        let mut address = segment.address;
        while start < end {
            let chunk = stream.chunk_at(start);
            let in_chunk = start - stream.starts[chunk];
            let mut len = (end - start).min(stream.starts[chunk + 1] - start);
            match pieces[first..].last_mut() {
                Some(piece)
                    if piece.chunk == chunk
                        && piece.address + piece.len == address
                        && piece.len < EXTENT_MAX_BYTES =>
                {
                    len = len.min(EXTENT_MAX_BYTES - piece.len);
                    piece.len += len;
                }
                _ => {
                    len = len.min(EXTENT_MAX_BYTES);
                    let sums = Vec::new();
                    pieces.push(Piece { chunk, at: in_chunk, len, set: batch.set.id, address, sums });
                }
            }
            start += len;
            address += len;
        }
    }
    for piece in &mut pieces[first..] {
        piece.sums = vec![0; (piece.len / SECTOR) as usize];
    }
}

/// The image that `slot` gets: slots that hold copies of the same columns (neighbours, at every rotation) share one.
fn image_of(redundancy: Redundancy, slot: usize) -> usize {
    match redundancy {
        Redundancy::Copies(copies) => slot / usize::from(copies),
        Redundancy::Parity(_) => slot,
    }
}

/// Copies a stripe's data into the images from byte `base` of each, block by block, with its checksums and
/// parity.
fn fill_stripe(
    stream: &Stream,
    batch: &Batch,
    stripe: &Stripe,
    at: u64,
    base: usize,
    images: &mut [AlignedBuf],
    pieces: &mut [Piece],
) {
    let geometry = &batch.set.geometry;
    let mut sums = vec![0u32; (stripe.data_bytes(geometry) / SECTOR) as usize];
    let segments: Vec<_> = stripe.segments(geometry).collect();
    let columns = usize::from(geometry.columns);
    for row in segments.chunks(columns) {
        let (offset, len) = (row[0].offset, row[0].len as usize);
        let in_slot = base + (offset - stripe.offset) as usize;
        for block in (0..len).step_by(BLOCK_BYTES) {
            let block_len = BLOCK_BYTES.min(len - block);
            let range = in_slot + block..in_slot + block + block_len;
            for segment in row {
                let slot = geometry.slot_of(offset, first_column(geometry.redundancy, segment.column));
                let image = &mut images[image_of(geometry.redundancy, slot)];
                let from = at + segment.at + block as u64;
                copy_block(stream, batch.end, from, &mut image[range.clone()], &mut sums, at);
            }
            if let Redundancy::Parity(parity) = geometry.redundancy {
                add_parity(batch, usize::from(parity), offset, range, images);
            }
        }
    }
    hand_out_sums(stream, at, &sums, batch.set.id, pieces);
}

/// The physical column that holds the first copy of data column `column`.
fn first_column(redundancy: Redundancy, column: usize) -> usize {
    match redundancy {
        Redundancy::Copies(copies) => column * usize::from(copies),
        Redundancy::Parity(_) => column,
    }
}

/// Copies sectors of the stream from `from` on; beyond `end` they are zeros.
fn copy_block(stream: &Stream, end: u64, from: u64, out: &mut [u8], sums: &mut [u32], stripe_at: u64) {
    for (index, sector) in out.chunks_exact_mut(SECTOR_LEN).enumerate() {
        let at = from + index as u64 * SECTOR;
        if at < end {
            sector.copy_from_slice(stream.sectors[(at / SECTOR) as usize]);
            sums[((at - stripe_at) / SECTOR) as usize] = codec::checksum(sector);
        } else {
            sector.fill(0);
        }
    }
}

/// Computes the parity of one block of every column.
fn add_parity(batch: &Batch, parity: usize, offset: u64, range: Range<usize>, images: &mut [AlignedBuf]) {
    let geometry = &batch.set.geometry;
    let columns = usize::from(geometry.columns);
    let parity_slots: Vec<usize> =
        (0..parity).map(|index| geometry.slot_of(offset, columns + index)).collect();
    let mut taken: Vec<AlignedBuf> = parity_slots
        .iter()
        .map(|&slot| std::mem::replace(&mut images[slot], AlignedBuf::zeroed(0)))
        .collect();
    {
        let data: Vec<&[u8]> =
            (0..columns).map(|column| &images[geometry.slot_of(offset, column)][range.clone()]).collect();
        let mut out: Vec<&mut [u8]> = taken.iter_mut().map(|buf| &mut buf[range.clone()]).collect();
        codec::encode(&data, &mut out);
    }
    for (slot, buf) in parity_slots.into_iter().zip(taken) {
        images[slot] = buf;
    }
}

/// Moves the checksums of one stripe to its pieces.
fn hand_out_sums(stream: &Stream, at: u64, sums: &[u32], set: SetId, pieces: &mut [Piece]) {
    let end = at + sums.len() as u64 * SECTOR;
    for piece in pieces.iter_mut().rev() {
        let start = stream.starts[piece.chunk] + piece.at;
        if start < at || start >= end || piece.set != set {
            break;
        }
        let first = ((start - at) / SECTOR) as usize;
        let count = piece.sums.len();
        piece.sums.copy_from_slice(&sums[first..first + count]);
    }
}
