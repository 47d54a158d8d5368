//! The verified reader: one plan of slot reads for a request, in parallel, every sector checked. What does
//! not match is rebuilt from the other slots, returned, and written back where it belongs.

use super::Pool;
use super::error::{PoolError, Result};
use super::lanes::Lane;
use super::sets::Set;
use crate::codec;
use crate::layout::{Redundancy, Run};
use crate::member::superblock::SetId;
use crate::member::{AlignedBuf, Area, MemberError, SLAB_HEADER_BYTES};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::units::{SECTOR, SECTOR_LEN};

/// Requests up to this size are read on the caller's thread: handing them over would cost more.
const INLINE_MAX_BYTES: usize = 128 * 1024;
/// Copies of a mirror take turns every so many bytes of a set's payload.
const TURN_BYTES: u64 = 1 << 20;

/// One read of one slot, for one or more runs that lie there side by side.
struct SlotRead {
    slot: usize,
    offset: u64,
    len: u64,
    runs: Vec<Run>,
}

/// Sectors of a run that did not come back as they were written.
struct Damage<'a> {
    run: &'a Run,
    /// The slot they were read from.
    slot: usize,
    /// The read itself succeeded, and the checksums did not match.
    was_read: bool,
    /// Indices of the sectors in the run, ascending, at least one.
    bad: Vec<usize>,
    /// Checksums of all sectors of the run.
    sums: &'a [u32],
    /// Address of the run in the set.
    address: u64,
}

type SlotResult = (AlignedBuf, std::result::Result<(), MemberError>);

impl Pool {
    /// Reads, verifies, and where needed rebuilds and heals. `address` and `buf` are whole sectors; `sums`
    /// has one checksum for each.
    ///
    /// # Errors
    /// [`PoolError::Unreadable`] names the first sectors that nothing gives back; `buf` is undefined then.
    /// [`PoolError::NoSet`] for a set that does not exist.
    pub fn read(&self, set: SetId, address: u64, sums: &[u32], buf: &mut [u8]) -> Result<()> {
        let set = self.sets.get(set).ok_or(PoolError::NoSet { set })?;
        let end = address.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > set.geometry.payload_bytes()) || sums.len() * SECTOR_LEN != buf.len() {
            return Err(PoolError::Damaged {
                what: format!("a reference to {} bytes at {address} of set {}", buf.len(), set.id),
            });
        }
        let plan = self.plan(&set, address, buf.len() as u64);
        let results = self.read_slots(&set, &plan, buf.len());
        for (read, (data, result)) in plan.into_iter().zip(results) {
            if let Err(error) = &result {
                self.count_read_error(&set, read.slot, error);
            }
            for run in read.runs {
                let from = (run.offset - read.offset) as usize;
                let range = run.at as usize..(run.at + run.len) as usize;
                let sums = &sums[range.start / SECTOR_LEN..range.end / SECTOR_LEN];
                let out = &mut buf[range];
                if result.is_ok() {
                    out.copy_from_slice(&data[from..from + run.len as usize]);
                }
                let bad = if result.is_ok() { mismatches(out, sums) } else { (0..sums.len()).collect() };
                if !bad.is_empty() {
                    let address = address + run.at;
                    let was_read = result.is_ok();
                    let damage = Damage { run: &run, slot: read.slot, was_read, bad, sums, address };
                    self.rebuild(&set, &damage, out)?;
                }
            }
            self.buffers.give(data);
        }
        Ok(())
    }

    /// Chooses a slot for each run, and joins runs that lie side by side in one slot.
    fn plan(&self, set: &Set, address: u64, len: u64) -> Vec<SlotRead> {
        let mut plan: Vec<SlotRead> = Vec::new();
        for run in set.geometry.runs(address, len) {
            let slot = self.pick_copy(set, &run, address);
            let neighbour =
                plan.iter_mut().find(|read| read.slot == slot && read.offset + read.len == run.offset);
            match neighbour {
                Some(read) => {
                    read.len += run.len;
                    read.runs.push(run);
                }
                None => plan.push(SlotRead { slot, offset: run.offset, len: run.len, runs: vec![run] }),
            }
        }
        plan
    }

    /// The copy to read first: they take turns, and members that are not well come last.
    fn pick_copy(&self, set: &Set, run: &Run, address: u64) -> usize {
        let copies: Vec<usize> = set.geometry.copies_of(run.column, run.offset).collect();
        let turn = ((address + run.at) / TURN_BYTES) as usize;
        let well = |slot: &usize| self.member(set.slots[*slot].member).is_writable();
        let here = |slot: &usize| self.member(set.slots[*slot].member).is_here();
        let rotated = (0..copies.len()).map(|index| copies[(index + turn) % copies.len()]);
        let mut best = None;
        for slot in rotated {
            if well(&slot) {
                return slot;
            }
            if best.is_none() && here(&slot) {
                best = Some(slot);
            }
        }
        best.unwrap_or(copies[0])
    }

    fn read_slots(&self, set: &Arc<Set>, plan: &[SlotRead], total: usize) -> Vec<SlotResult> {
        if plan.len() < 2 || total <= INLINE_MAX_BYTES {
            return plan.iter().map(|read| self.read_slot(set, read.slot, read.offset, read.len)).collect();
        }
        let places: Vec<_> = plan.iter().map(|read| (read.slot, read.offset, read.len)).collect();
        self.read_in_parallel(set, &places)
    }

    fn read_slot(&self, set: &Set, slot: usize, offset: u64, len: u64) -> SlotResult {
        let place = set.slots[slot];
        let member = self.member(place.member);
        let mut buf = self.buffers.take(len as usize);
        let result = match member.disk() {
            Some(disk) => {
                disk.read(Area::Slab(place.slab), SLAB_HEADER_BYTES + offset, &mut buf[..len as usize])
            }
            None => Err(MemberError::NoSlab { path: member.path.clone(), slab: place.slab }),
        };
        (buf, result)
    }

    fn read_in_parallel(&self, set: &Arc<Set>, places: &[(usize, u64, u64)]) -> Vec<SlotResult> {
        let jobs = places
            .iter()
            .map(|&(slot, offset, len)| {
                let place = set.slots[slot];
                let member = self.member(place.member);
                let (disk, path) = (member.disk(), member.path.clone());
                let mut buf = self.buffers.take(len as usize);
                let job: Box<dyn FnOnce() -> SlotResult + Send> = Box::new(move || {
                    let result = match disk {
                        Some(disk) => disk.read(
                            Area::Slab(place.slab),
                            SLAB_HEADER_BYTES + offset,
                            &mut buf[..len as usize],
                        ),
                        None => Err(MemberError::NoSlab { path, slab: place.slab }),
                    };
                    (buf, result)
                });
                (place.member, job)
            })
            .collect();
        let results = self.lanes.run(Lane::Read, jobs);
        results
            .into_iter()
            .zip(places)
            .map(|(result, &(slot, _, len))| {
                result.unwrap_or_else(|| {
                    let place = set.slots[slot];
                    let path = self.member(place.member).path.clone();
                    (self.buffers.take(len as usize), Err(MemberError::NoSlab { path, slab: place.slab }))
                })
            })
            .collect()
    }

    /// Puts the bad sectors of a run right from the other slots, in `out`.
    fn rebuild(&self, set: &Arc<Set>, damage: &Damage, out: &mut [u8]) -> Result<()> {
        let Damage { run, bad, .. } = damage;
        if damage.was_read {
            let member = self.member(set.slots[damage.slot].member);
            member.counters.checksum_errors.fetch_add(bad.len() as u64, Ordering::Relaxed);
            log::warn!(
                "{}: {} sector(s) of set {} did not match their checksums",
                member.path,
                bad.len(),
                set.id
            );
        }
        let first = bad[0];
        let sources = self.read_sources(set, damage);
        for &index in bad {
            let from = (index - first) * SECTOR_LEN;
            let sector = &mut out[index * SECTOR_LEN..][..SECTOR_LEN];
            if !rebuild_sector(set, run, &sources, from, damage.sums[index], sector) {
                let sectors = bad.iter().filter(|&&other| other >= index).count() as u64;
                let address = damage.address + index as u64 * SECTOR;
                return Err(PoolError::Unreadable { set: set.id, address, sectors });
            }
        }
        self.heal(set, damage, out);
        Ok(())
    }

    /// Reads everything from the first bad sector to the last from every other slot that can help.
    fn read_sources(&self, set: &Arc<Set>, damage: &Damage) -> Vec<(usize, AlignedBuf)> {
        let Damage { run, bad, .. } = damage;
        let (first, last) = (bad[0], bad[bad.len() - 1]);
        let offset = run.offset + first as u64 * SECTOR;
        let len = (last - first + 1) as u64 * SECTOR;
        let related: Vec<usize> = match set.geometry.redundancy {
            Redundancy::Copies(_) => set.geometry.copies_of(run.column, run.offset).collect(),
            Redundancy::Parity(_) => (0..set.geometry.slots()).collect(),
        };
        let places: Vec<_> = related
            .into_iter()
            .filter(|&other| other != damage.slot && self.member(set.slots[other].member).is_here())
            .map(|other| (other, offset, len))
            .collect();
        let results = self.read_in_parallel(set, &places);
        let good =
            results.into_iter().zip(&places).filter_map(|((data, result), &(other, _, _))| match result {
                Ok(()) => Some((other, data)),
                Err(error) => {
                    self.count_read_error(set, other, &error);
                    None
                }
            });
        good.collect()
    }

    /// Writes rebuilt sectors back. The set can't be reused meanwhile, since its `Arc` is held.
    fn heal(&self, set: &Set, damage: &Damage, out: &[u8]) {
        let Damage { run, bad, .. } = damage;
        let place = set.slots[damage.slot];
        let member = self.member(place.member);
        let Some(disk) = member.disk().filter(|_| member.is_writable() && !self.read_only()) else {
            return;
        };
        for &index in bad {
            let sector = AlignedBuf::copy_of(&out[index * SECTOR_LEN..][..SECTOR_LEN]);
            let offset = SLAB_HEADER_BYTES + run.offset + index as u64 * SECTOR;
            match disk.write(Area::Slab(place.slab), offset, &sector) {
                Ok(()) => {
                    member.counters.healed.fetch_add(1, Ordering::Relaxed);
                }
                // Somebody deleted it: that is for a repair.
                Err(MemberError::NoSlab { .. }) => return,
                Err(error) => {
                    self.member_failed(place.member, &error);
                    return;
                }
            }
        }
        log::info!("{}: {} sector(s) of set {} rebuilt and written back", member.path, bad.len(), set.id);
    }

    pub(super) fn count_read_error(&self, set: &Set, slot: usize, error: &MemberError) {
        let member = self.member(set.slots[slot].member);
        if member.is_here() {
            let before = member.counters.read_errors.fetch_add(1, Ordering::Relaxed);
            if before < 10 || before.is_power_of_two() {
                log::warn!("{error} (failed read {} of this member)", before + 1);
            }
        }
    }
}

/// Finds the sector that matches `sum`: a copy, or what some combination of the columns gives.
fn rebuild_sector(
    set: &Set,
    run: &Run,
    sources: &[(usize, AlignedBuf)],
    from: usize,
    sum: u32,
    out: &mut [u8],
) -> bool {
    let part = |data: &AlignedBuf| from..from.saturating_add(SECTOR_LEN).min(data.len());
    match set.geometry.redundancy {
        Redundancy::Copies(_) => sources.iter().any(|(_, data)| {
            out.copy_from_slice(&data[part(data)]);
            codec::checksum(out) == sum
        }),
        Redundancy::Parity(parity) => {
            let k = usize::from(set.geometry.columns);
            let present: Vec<(usize, &[u8])> = sources
                .iter()
                .map(|(slot, data)| (set.geometry.column_of(run.offset, *slot), &data[part(data)]))
                .collect();
            combinations(present.len(), k).any(|chosen| {
                let chosen: Vec<_> = chosen.iter().map(|&index| present[index]).collect();
                codec::reconstruct(k, usize::from(parity), &chosen, run.column, out).is_ok()
                    && codec::checksum(out) == sum
            })
        }
    }
}

/// Indices of the sectors of `data` that do not match.
fn mismatches(data: &[u8], sums: &[u32]) -> Vec<usize> {
    data.chunks_exact(SECTOR_LEN)
        .zip(sums)
        .enumerate()
        .filter(|(_, (sector, sum))| codec::checksum(sector) != **sum)
        .map(|(index, _)| index)
        .collect()
}

/// All choices of `k` of `n` things, as ascending indices.
pub(super) fn combinations(n: usize, k: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut next: Option<Vec<usize>> = (k <= n).then(|| (0..k).collect());
    std::iter::from_fn(move || {
        let current = next.take()?;
        let mut following = current.clone();
        next = (0..k).rev().find(|&i| following[i] < n - k + i).map(|i| {
            following[i] += 1;
            for j in i + 1..k {
                following[j] = following[j - 1] + 1;
            }
            following
        });
        Some(current)
    })
}

#[cfg(test)]
mod tests {
    use super::combinations;

    #[test]
    fn every_choice_comes_once() {
        assert_eq!(combinations(3, 2).collect::<Vec<_>>(), [vec![0, 1], vec![0, 2], vec![1, 2]]);
        assert_eq!(combinations(2, 2).count(), 1);
        assert_eq!(combinations(1, 2).count(), 0);
        assert_eq!(combinations(6, 3).count(), 20);
    }
}
