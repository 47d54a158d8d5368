//! One chunk of a slot: where its bytes can come from, and whether they are right.

use super::{KnownSums, Unsaved};
use crate::codec;
use crate::layout::Redundancy;
use crate::member::superblock::SetId;
use crate::member::{AlignedBuf, Area, SLAB_HEADER_BYTES};
use crate::pool::Pool;
use crate::pool::reader::solve::combinations;
use crate::pool::sets::Set;
use crate::pool::trouble::Kind;
use crate::units::{SECTOR, SECTOR_LEN};

/// A range of a slot within one rotation, so that each slot holds one column throughout.
pub(super) struct Chunk<'a> {
    pub set: &'a Set,
    pub slot: usize,
    /// Offset in the slot, in bytes.
    pub offset: u64,
    pub len: u64,
    pub sums: &'a KnownSums,
}

/// What was read of other slots, or of the slot itself.
type Reads = [(usize, AlignedBuf)];

impl Chunk<'_> {
    /// The slots to read first: its own, or as many as are enough to rebuild it. One on a member that failed is left
    /// alone if the others can do without it: it may take its time.
    pub fn first_sources(&self, pool: &Pool) -> Vec<usize> {
        let own = self.is_here(pool, self.slot);
        if own && !pool.has_lost_slot(&self.set.slots[self.slot]) {
            return vec![self.slot];
        }
        let mut peers: Vec<usize> = self.peers().filter(|&slot| self.is_here(pool, slot)).collect();
        let needed = match self.set.geometry.redundancy {
            Redundancy::Copies(_) => 1,
            Redundancy::Parity(_) => usize::from(self.set.geometry.columns),
        };
        if own && peers.len() < needed {
            return vec![self.slot];
        }
        // They take turns, so that all members take part; those that are not well come last.
        let turn = (self.offset / self.len.max(1)) as usize + self.set.id as usize;
        let count = peers.len().max(1);
        peers.rotate_left(turn % count);
        peers.sort_by_key(|&slot| !pool.member(self.set.slots[slot].member).is_writable());
        peers.truncate(needed);
        peers
    }

    /// Every slot that can help and was not read yet.
    pub fn other_sources(&self, pool: &Pool, reads: &Reads) -> Vec<usize> {
        let read = |slot: usize| reads.iter().any(|(other, _)| *other == slot);
        self.peers().filter(|&slot| !read(slot) && self.is_here(pool, slot)).collect()
    }

    /// Makes the chunk of what was read. Gives the sectors that are not known to be right.
    pub fn build(&self, pool: &Pool, reads: &Reads) -> (AlignedBuf, Vec<usize>) {
        let len = self.len as usize;
        let mut buf = pool.buffers.take(len);
        let sectors = len / SECTOR_LEN;
        if let Some((_, own)) = reads.iter().find(|(slot, _)| *slot == self.slot) {
            buf[..len].copy_from_slice(&own[..len]);
            let bad: Vec<usize> = (0..sectors).filter(|&index| !self.fits(self.slot, index, &buf)).collect();
            self.count_mismatches(pool, bad.len() as u64);
            return (buf, bad);
        }
        if !self.combine(reads, 0..len, &mut buf[..len]) {
            buf[..len].fill(0);
            return (buf, (0..sectors).collect());
        }
        let right = |index: usize| {
            self.fits(self.slot, index, &buf)
                && reads.iter().all(|(slot, data)| self.fits(*slot, index, data))
        };
        let bad = (0..sectors).filter(|&index| !right(index)).collect();
        (buf, bad)
    }

    /// Puts the `bad` sectors right from everything that was read. Gives those that are alive and can't be.
    pub fn mend(&self, pool: &Pool, reads: &Reads, bad: &[usize], buf: &mut AlignedBuf) -> Vec<Unsaved> {
        let mut unsaved: Vec<Unsaved> = Vec::new();
        for &index in bad {
            let range = index * SECTOR_LEN..(index + 1) * SECTOR_LEN;
            let before: Vec<u8> = buf[range.clone()].to_vec();
            let sector = &mut buf[range];
            if self.rebuild(reads, index, sector) || self.read_alone(pool, index, sector) {
                continue;
            }
            sector.copy_from_slice(&before);
            for (set, address) in self.lost(reads, index) {
                match unsaved.last_mut() {
                    Some(last) if last.set == set && last.address + last.bytes == address => {
                        last.bytes += SECTOR
                    }
                    _ => unsaved.push(Unsaved { set, address, bytes: SECTOR }),
                }
            }
        }
        unsaved
    }

    /// The slots that have to do with this one: all others with parity, the other copies without.
    fn peers(&self) -> impl Iterator<Item = usize> {
        let geometry = self.set.geometry;
        let peers: Vec<usize> = match geometry.redundancy {
            Redundancy::Parity(_) => (0..geometry.slots()).collect(),
            Redundancy::Copies(copies) => {
                let column = geometry.column_of(self.offset, self.slot) / usize::from(copies);
                geometry.copies_of(column, self.offset).collect()
            }
        };
        let own = self.slot;
        peers.into_iter().filter(move |&slot| slot != own)
    }

    fn is_here(&self, pool: &Pool, slot: usize) -> bool {
        pool.member(self.set.slots[slot].member).is_here()
    }

    /// The address of a sector of a slot; none where that is parity.
    fn address(&self, slot: usize, index: usize) -> Option<u64> {
        let geometry = &self.set.geometry;
        let column = geometry.column_of(self.offset, slot);
        let data = match geometry.redundancy {
            Redundancy::Copies(copies) => column / usize::from(copies),
            Redundancy::Parity(_) if column < usize::from(geometry.columns) => column,
            Redundancy::Parity(_) => return None,
        };
        Some(geometry.address_of(data, self.offset + index as u64 * SECTOR))
    }

    /// What a sector of a slot must have as its checksum, if it is alive.
    fn sum(&self, slot: usize, index: usize) -> Option<u32> {
        self.sums.get(self.address(slot, index)?)
    }

    /// Whether a sector of a slot is what it should be, as far as that is known.
    fn fits(&self, slot: usize, index: usize, data: &[u8]) -> bool {
        let sector = &data[index * SECTOR_LEN..(index + 1) * SECTOR_LEN];
        self.sum(slot, index).is_none_or(|sum| codec::checksum(sector) == sum)
    }

    /// Works out a range of the chunk from other slots, unchecked. False when they are too few.
    fn combine(&self, reads: &Reads, range: std::ops::Range<usize>, out: &mut [u8]) -> bool {
        let others = reads.iter().filter(|(slot, _)| *slot != self.slot);
        let geometry = &self.set.geometry;
        match geometry.redundancy {
            Redundancy::Copies(_) => {
                let mut others = others;
                others.next().is_some_and(|(_, data)| {
                    out.copy_from_slice(&data[range]);
                    true
                })
            }
            Redundancy::Parity(parity) => {
                let columns: Vec<(usize, &[u8])> = others
                    .map(|(slot, data)| (geometry.column_of(self.offset, *slot), &data[range.clone()]))
                    .collect();
                let k = usize::from(geometry.columns);
                let own = geometry.column_of(self.offset, self.slot);
                codec::reconstruct(k, usize::from(parity), &columns, own, out).is_ok()
            }
        }
    }

    /// Rebuilds one sector from those of the others that are right, trying all combinations where its checksum is
    /// known.
    fn rebuild(&self, reads: &Reads, index: usize, out: &mut [u8]) -> bool {
        let geometry = &self.set.geometry;
        let range = index * SECTOR_LEN..(index + 1) * SECTOR_LEN;
        let good: Vec<(usize, &[u8])> = reads
            .iter()
            .filter(|(slot, data)| *slot != self.slot && self.fits(*slot, index, data))
            .map(|(slot, data)| (geometry.column_of(self.offset, *slot), &data[range.clone()]))
            .collect();
        let sum = self.sum(self.slot, index);
        let right = |out: &[u8]| sum.is_none_or(|sum| codec::checksum(out) == sum);
        match geometry.redundancy {
            Redundancy::Copies(_) => good.iter().any(|(_, data)| {
                out.copy_from_slice(data);
                right(out)
            }),
            Redundancy::Parity(parity) => {
                let k = usize::from(geometry.columns);
                let own = geometry.column_of(self.offset, self.slot);
                combinations(good.len(), k).any(|chosen| {
                    let chosen: Vec<_> = chosen.iter().map(|&index| good[index]).collect();
                    codec::reconstruct(k, usize::from(parity), &chosen, own, out).is_ok() && right(out)
                })
            }
        }
    }

    /// Reads one sector by itself: a request that fails as a whole may have but one bad sector.
    fn read_alone(&self, pool: &Pool, index: usize, out: &mut [u8]) -> bool {
        let place = self.set.slots[self.slot];
        let Some(disk) = pool.member(place.member).disk() else { return false };
        let mut sector = AlignedBuf::zeroed(SECTOR_LEN);
        let offset = SLAB_HEADER_BYTES + self.offset + index as u64 * SECTOR;
        if disk.read(Area::Slab(place.slab), offset, &mut sector).is_err() {
            return false;
        }
        out.copy_from_slice(&sector);
        self.sum(self.slot, index).is_none_or(|sum| codec::checksum(out) == sum)
    }

    /// What is lost when a sector can't be rebuilt: it, if it is alive, and those that were to help and are not right.
    fn lost(&self, reads: &Reads, index: usize) -> Vec<(SetId, u64)> {
        let own = self.sum(self.slot, index).map(|_| self.slot);
        let others = reads.iter().filter(|(slot, data)| *slot != self.slot && !self.fits(*slot, index, data));
        let slots = own.into_iter().chain(others.map(|(slot, _)| *slot));
        let mut lost: Vec<(SetId, u64)> =
            slots.filter_map(|slot| Some((self.set.id, self.address(slot, index)?))).collect();
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    fn count_mismatches(&self, pool: &Pool, sectors: u64) {
        if sectors > 0 {
            let member = pool.member(self.set.slots[self.slot].member);
            member.trouble.count(Kind::Checksum, sectors, pool.now());
        }
    }
}
