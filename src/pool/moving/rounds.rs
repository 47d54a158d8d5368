//! Copying, in rounds over several moves.

use super::chunk::Chunk;
use super::{Move, Outcome, Stage, Unsaved};
use crate::member::header::SlabHeader;
use crate::member::superblock::{MemberId, SetId, SlabRef};
use crate::member::{AlignedBuf, Area, MemberError, SLAB_HEADER_BYTES};
use crate::pool::Pool;
use crate::pool::lanes::{Lane, Started};
use crate::sync::Arc;

type Read = (AlignedBuf, Outcome);

/// Copies for several moves side by side. What is being written goes on from one call to the next.
#[derive(Debug, Default)]
pub struct Copier {
    flight: Option<Flight>,
}

/// Writes and syncs that are under way.
#[derive(Debug)]
struct Flight {
    parts: Vec<Part>,
    jobs: Started<Outcome>,
}

/// A write or sync of one move, told apart by its set.
#[derive(Debug, Clone, Copy)]
struct Part {
    set: SetId,
    member: MemberId,
    is_sync: bool,
}

type Job = (Part, Box<dyn FnOnce() -> Outcome + Send>);

impl Copier {
    /// Copies about `budget` bytes, taking all moves on side by side, and syncs those that are complete. Returns the
    /// bytes copied. A move whose new member failed says so. The same moves must be given each time, and those that
    /// came since; one may be dropped once it is copied, or has failed, or after [`Copier::land`].
    pub fn copy_some(&mut self, pool: &Pool, moves: &mut [Move], budget: u64) -> u64 {
        let mut copied = 0;
        loop {
            let turn: Vec<usize> = (0..moves.len()).filter(|&index| moves[index].is_copying()).collect();
            let chunks = pool.read_round(moves, &turn);
            self.land(pool, moves);
            let mut jobs: Vec<Job> = Vec::new();
            for moved in moves.iter().filter(|moved| moved.is_written()) {
                jobs.push(pool.sync_of(moved));
            }
            for (index, buf, unsaved, len) in chunks {
                copied += len;
                if !moves[index].has_failed() {
                    jobs.push(pool.write_of(&moves[index], buf, len));
                }
                moves[index].unsaved.extend(unsaved);
                moves[index].done += len;
            }
            if jobs.is_empty() {
                return copied;
            }
            let parts = jobs.iter().map(|(part, _)| *part).collect();
            let jobs = jobs.into_iter().map(|(part, job)| (part.member, job)).collect();
            self.flight = Some(Flight { parts, jobs: pool.lanes.start(Lane::Write, jobs) });
            if copied >= budget.max(1) {
                return copied;
            }
        }
    }

    /// Waits for what is under way.
    pub fn land(&mut self, pool: &Pool, moves: &mut [Move]) {
        let Some(Flight { parts, jobs }) = self.flight.take() else { return };
        for (result, part) in jobs.wait().into_iter().zip(parts) {
            if let Some(moved) = moves.iter_mut().find(|moved| moved.set() == part.set) {
                pool.note_move(result, part, moved);
            }
        }
    }
}

impl Pool {
    /// Reads the next chunk of each of these moves, and puts right what can be. Gives for each its index, the bytes,
    /// what could not be saved, and its length.
    fn read_round(&self, moves: &[Move], turn: &[usize]) -> Vec<(usize, AlignedBuf, Vec<Unsaved>, u64)> {
        let chunks: Vec<Chunk<'_>> = turn.iter().map(|&index| moves[index].chunk()).collect();
        let wanted: Vec<Vec<usize>> = chunks.iter().map(|chunk| chunk.first_sources(self)).collect();
        let mut reads = self.read_chunks(&chunks, &wanted);
        // Where that is not enough, everything else that can help is read as well.
        let mut built = Vec::with_capacity(chunks.len());
        let mut missing = Vec::with_capacity(chunks.len());
        for (chunk, reads) in chunks.iter().zip(&reads) {
            let (buf, bad) = chunk.build(self, reads);
            missing.push(if bad.is_empty() { Vec::new() } else { chunk.other_sources(self, reads) });
            built.push((buf, bad));
        }
        let more = self.read_chunks(&chunks, &missing);
        for (reads, more) in reads.iter_mut().zip(more) {
            reads.extend(more);
        }
        let mut done = Vec::with_capacity(chunks.len());
        for (((chunk, reads), (mut buf, bad)), &index) in chunks.iter().zip(reads).zip(built).zip(turn) {
            let unsaved = chunk.mend(self, &reads, &bad, &mut buf);
            for (_, data) in reads {
                self.buffers.give(data);
            }
            done.push((index, buf, unsaved, chunk.len));
        }
        done
    }

    /// Reads each chunk from these slots, all members in parallel. What could not be read is not there.
    fn read_chunks(&self, chunks: &[Chunk<'_>], slots: &[Vec<usize>]) -> Vec<Vec<(usize, AlignedBuf)>> {
        let mut places = Vec::new();
        let mut jobs = Vec::new();
        for (index, (chunk, slots)) in chunks.iter().zip(slots).enumerate() {
            for &slot in slots {
                let SlabRef { member, slab } = chunk.set.slots[slot];
                let Some(disk) = self.member(member).disk() else { continue };
                let (offset, len) = (SLAB_HEADER_BYTES + chunk.offset, chunk.len as usize);
                let mut buf = self.buffers.take(len);
                let job: Box<dyn FnOnce() -> Read + Send> = Box::new(move || {
                    let result = disk.read(Area::Slab(slab), offset, &mut buf[..len]);
                    (buf, result)
                });
                places.push((index, slot));
                jobs.push((member, job));
            }
        }
        let mut found: Vec<Vec<(usize, AlignedBuf)>> = chunks.iter().map(|_| Vec::new()).collect();
        for (result, (index, slot)) in self.lanes.run(Lane::Read, jobs).into_iter().zip(places) {
            match result {
                Some((buf, Ok(()))) => found[index].push((slot, buf)),
                Some((_, Err(error))) => self.read_failed(chunks[index].set.slots[slot].member, &error),
                None => {}
            }
        }
        found
    }

    /// The write of one chunk; the first one of a slab brings its header.
    fn write_of(&self, moved: &Move, buf: AlignedBuf, len: u64) -> Job {
        let SlabRef { member, slab } = moved.to;
        let disk = self.member(member).disk();
        let path = self.member(member).path.clone();
        let header = (moved.done == 0).then(|| SlabHeader {
            pool: self.uuid(),
            set: moved.set.id,
            slot: moved.slot as u16,
            member,
            slab,
        });
        let offset = SLAB_HEADER_BYTES + moved.done;
        let buffers = Arc::clone(&self.buffers);
        let job = move || {
            let disk = disk.ok_or(MemberError::NoSlab { path, slab })?;
            if let Some(header) = header {
                disk.write(Area::Slab(slab), 0, &header.encode())?;
            }
            let result = disk.write(Area::Slab(slab), offset, &buf[..len as usize]);
            buffers.give(buf);
            result
        };
        (Part { set: moved.set(), member, is_sync: false }, Box::new(job))
    }

    /// The sync of a slab to which everything was written.
    fn sync_of(&self, moved: &Move) -> Job {
        let SlabRef { member, slab } = moved.to;
        let (disk, path) = (self.member(member).disk(), self.member(member).path.clone());
        let job = move || disk.ok_or(MemberError::NoSlab { path, slab })?.sync(Area::Slab(slab));
        (Part { set: moved.set(), member, is_sync: true }, Box::new(job))
    }

    fn note_move(&self, result: Option<Outcome>, part: Part, moved: &mut Move) {
        match result {
            Some(Ok(())) if !part.is_sync => return,
            // As with stripes: what a member took counts only if nothing of it failed meanwhile.
            Some(Ok(())) if self.member(part.member).departures() == moved.departures => {
                moved.stage = Stage::Synced;
                return;
            }
            Some(Ok(())) | None => {}
            Some(Err(error)) => self.slab_failed(part.member, &error),
        }
        moved.stage = Stage::Failed;
    }
}
