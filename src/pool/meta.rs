//! Metadata of checkpoints: written through the same stripe writer, to mirrored sets.

use super::Pool;
use super::error::Result;
use super::roster::Member;
use super::space::Urgency;
use super::stripe_writer::Chunk;
use crate::layout::{Kind, Resiliency};
use crate::member::superblock::{MetaPointer, Purpose, SetId, SetRecord};
use crate::member::{AlignedBuf, Disk, SlabNo};
use crate::units::SECTOR_LEN;

/// How much of a metadata set is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaUsage {
    /// The set.
    pub set: SetId,
    /// Bytes that nothing more can be written to, whether they are alive or not.
    pub used: u64,
    /// It takes more.
    pub open: bool,
}

impl Pool {
    /// How metadata is kept: as many copies as the pool's tolerance asks for, on one column.
    pub fn metadata_resiliency(&self) -> Resiliency {
        self.metadata_layout(self.metadata_copies() as u8)
    }

    /// So many copies on one column. Exactly as it comes back from a set's record: a mirror names no columns.
    pub(super) fn metadata_layout(&self, copies: u8) -> Resiliency {
        let interleave = self.default_resiliency().interleave;
        let (kind, columns) = if copies > 1 { (Kind::Mirror, None) } else { (Kind::Simple, Some(1)) };
        Resiliency { kind, copies, parity: 0, columns, interleave }
    }

    /// Writes and syncs blocks of metadata, none of them empty. Gives for each the pointers that read it back, in
    /// order: one, or a few where it crosses the end of a set. What was written counts as alive in its sets.
    ///
    /// # Errors
    /// As [`Pool::write`]; metadata may use all of the reserve. Then nothing counts as written.
    pub fn write_metadata(&self, blocks: &[Vec<u8>]) -> Result<Vec<Vec<MetaPointer>>> {
        let padded: Vec<AlignedBuf> = blocks.iter().map(|block| AlignedBuf::copy_of(block)).collect();
        let chunks: Vec<Chunk> = padded.iter().map(|block| Chunk(vec![&block[..]])).collect();
        let resiliency = self.metadata_resiliency();
        let written = self.write_for(&resiliency, Purpose::Meta, Urgency::Metadata, &chunks)?;
        let mut pointers: Vec<Vec<MetaPointer>> = blocks.iter().map(|_| Vec::new()).collect();
        for piece in &written.pieces {
            // The last sector of a block is padded.
            let left = blocks[piece.chunk].len() as u64 - piece.at;
            pointers[piece.chunk].push(MetaPointer {
                set: piece.set,
                address: piece.address,
                len: piece.len.min(left) as u32,
                sums: piece.sums.clone(),
            });
            self.count_live(piece.set, piece.len as i64);
        }
        Ok(pointers)
    }

    /// Reads metadata back.
    ///
    /// # Errors
    /// As [`Pool::read`].
    pub fn read_metadata(&self, pointers: &[MetaPointer]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for pointer in pointers {
            let mut buf = AlignedBuf::zeroed(pointer.sums.len() * SECTOR_LEN);
            self.read(pointer.set, pointer.address, &pointer.sums, &mut buf)?;
            bytes.extend_from_slice(buf.get(..pointer.len as usize).unwrap_or(&buf));
        }
        Ok(bytes)
    }

    /// Metadata that no root and no reader refers to any more.
    pub fn release_metadata(&self, pointers: &[MetaPointer]) {
        for pointer in pointers {
            self.count_live(pointer.set, -(pointer.padded_bytes() as i64));
            self.free_if_dead(pointer.set, true);
        }
    }

    /// Takes back metadata that no root ever referred to: a checkpoint failed. Sets without anything alive that no
    /// root referred to (all that are not `known`), which a failed write may have left behind too, are free at once.
    /// Call while nobody else writes metadata.
    pub fn take_back_metadata(&self, pointers: &[MetaPointer], known: impl Fn(SetId) -> bool) {
        for pointer in pointers {
            self.count_live(pointer.set, -(pointer.padded_bytes() as i64));
        }
        let sets = self.sets.all();
        for set in sets.iter().filter(|set| set.purpose == Purpose::Meta && set.is_dead(true)) {
            self.close_set(set);
            if known(set.id) {
                self.sets.free(set.id);
            } else {
                self.sets.forget(set.id);
                self.return_slabs(&set.slots);
            }
        }
    }

    /// How much of each metadata set is used up.
    pub fn metadata_usage(&self) -> Vec<MetaUsage> {
        let sets = self.sets.all();
        let usage = sets.iter().filter(|set| set.purpose == Purpose::Meta).map(|set| {
            let payload = set.geometry.payload_bytes();
            let room = if self.set_may_grow(set) { set.room() } else { 0 };
            MetaUsage { set: set.id, used: payload - room, open: room > 0 }
        });
        usage.collect()
    }

    /// Bytes that the members which take writes offer in all.
    pub fn offered_bytes(&self) -> u64 {
        let writable = self.members().iter().filter(|member| member.is_writable());
        writable.map(|member| member.slab_counts().0).sum::<u64>() * self.dimensions().slab_bytes
    }

    /// Records of the sets that hold metadata, what only readers still hold included.
    pub fn metadata_sets(&self) -> Vec<SetRecord> {
        let mut records: Vec<SetRecord> = self
            .sets
            .all()
            .iter()
            .filter(|set| set.purpose == Purpose::Meta && set.live() > 0)
            .map(|set| set.record())
            .collect();
        records.sort_by_key(|record| record.id);
        records
    }

    /// Begins to hand out space at a read-write mount: goes on filling the sets that were being filled, frees
    /// metadata sets that no root refers to, and deletes slabs that no set names.
    pub fn start_writing(&self) {
        self.refresh_rooms();
        for member in self.members().iter().filter(|member| member.is_writable()) {
            if let Some(disk) = member.disk() {
                note_lost_slabs(member, &*disk);
            }
        }
        for set in self.sets.all() {
            if set.purpose == Purpose::Meta && set.live() <= 0 {
                self.free_if_dead(set.id, true);
            } else {
                self.reopen_set(&set);
            }
        }
    }

    /// Deletes slabs that no set names: left over from a crash, or from sets freed while their member was away.
    pub fn delete_stray_slabs(&self) {
        for member in self.members().iter().filter(|member| member.is_writable()) {
            if let Some(disk) = member.disk() {
                compare_slabs(member, &*disk);
            }
        }
    }

    /// Notes that the tables of checkpoint `number` are fixed.
    pub fn checkpoint_begun(&self, number: u64) {
        self.sets.checkpoint_begun(number);
    }

    /// Notes that the last checkpoint's root is about to be published again, as checkpoint `number`.
    pub fn checkpoint_repeated(&self, number: u64) {
        self.sets.checkpoint_repeated(number);
    }

    /// Notes that checkpoint `number` is published on every member, and hands out again what it freed.
    pub fn checkpoint_published(&self, number: u64) {
        self.return_slabs(&self.sets.checkpoint_published(number));
    }

    /// Gives back the sets made ahead, and slabs kept for others: at unmount.
    pub fn stop_writing(&self) {
        self.drop_prepared();
        self.delete_kept_slabs();
    }

    /// Whether a set of that number is in use.
    pub fn has_set(&self, id: SetId) -> bool {
        self.sets.get(id).is_some()
    }
}

/// Notes which of a member's slabs in use its disk does not have. Gives those that it has.
fn note_lost_slabs(member: &Member, disk: &dyn Disk) -> Vec<SlabNo> {
    let there = disk.list_slabs().ok().filter(|_| disk.kind().lists_slabs());
    let Some(there) = there else { return Vec::new() };
    let lost = member.note_lost(&there);
    if lost > 0 {
        let path = disk.path();
        log::error!("{path}: {lost} slabs that hold data are not there any more; a repair rebuilds them");
    }
    there
}

/// Deletes slabs of a disk that are not among those in use, and notes which of those it does not have.
pub(super) fn compare_slabs(member: &Member, disk: &dyn Disk) {
    let there = note_lost_slabs(member, disk);
    let used = member.used_slabs();
    for slab in there.into_iter().filter(|slab| !used.contains(slab)) {
        member.is_kept_no_more(slab);
        if let Err(error) = disk.delete_slab(slab) {
            log::warn!("a slab that no set names stays: {error}");
        }
    }
}
