//! Scrub finds every flipped bit, heals what can be healed, counts it exactly, and names what can't.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::codec;
use crate::layout::Redundancy;
use crate::member::superblock::{SetId, SetRecord};
use crate::member::{Area, Disk, SLAB_HEADER_BYTES};
use crate::store::tables::{Extent, SET_KEY_MAX, Table};
use crate::units::SECTOR;

/// Where everything alive lies.
struct Layout {
    sets: Vec<SetRecord>,
    extents: Vec<Extent>,
}

impl Layout {
    fn of(rig: &Rig) -> Self {
        let store = rig.fs().store();
        let all = |table, to: &[u8]| store.scan(table, &[], to, usize::MAX).expect("scans");
        let pool = rig.fs().pool();
        let ids: Vec<SetId> = all(Table::Sets, &SET_KEY_MAX)
            .iter()
            .filter_map(|(key, _)| crate::store::tables::single(key))
            .collect();
        let sets = ids.into_iter().filter_map(|id| pool.set_record(id)).collect();
        let extents = all(Table::Extents, &[0xff; 9])
            .iter()
            .map(|(_, value)| crate::member::wire::unpack(value).expect("an extent"))
            .collect();
        Self { sets, extents }
    }

    /// Live sectors of a set: by offset in the slots, the columns and their addresses.
    fn live_rows(&self, set: &SetRecord) -> BTreeMap<u64, BTreeSet<usize>> {
        let mut rows: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for extent in self.extents.iter().filter(|extent| extent.set == set.id) {
            for at in (0..u64::from(extent.len)).step_by(SECTOR as usize) {
                let place = set.geometry.locate(extent.address + at);
                rows.entry(place.offset).or_default().insert(place.column);
            }
        }
        rows
    }
}

/// Flips a bit in one sector of a slot.
fn flip(rig: &Rig, set: &SetRecord, slot: usize, offset: u64, random: &mut u64) {
    let place = set.slots[slot];
    let at = SLAB_HEADER_BYTES + offset + next_random(random) % SECTOR;
    rig.sim.disks[usize::from(place.member)].flip(
        Area::Slab(place.slab),
        at,
        (next_random(random) % 8) as u32,
    );
}

/// Flips sectors of up to one slot of each row; gives how many were live and how many parity of live rows.
fn flip_one_slot_a_row(rig: &Rig, layout: &Layout, random: &mut u64) -> (u64, u64) {
    let (mut live, mut parity) = (0, 0);
    for set in &layout.sets {
        for (offset, columns) in layout.live_rows(set) {
            if !next_random(random).is_multiple_of(3) {
                continue;
            }
            let column = next_random(random) as usize % set.geometry.slots();
            let slot = set.geometry.slot_of(offset, column);
            match set.geometry.redundancy {
                Redundancy::Copies(copies) => {
                    live += u64::from(columns.contains(&(column / usize::from(copies))));
                }
                Redundancy::Parity(m) if column >= usize::from(set.geometry.columns) => {
                    assert!(column < usize::from(set.geometry.columns) + usize::from(m));
                    parity += 1;
                }
                // Dead bytes have no checksum: parity comes to fit them, all of it.
                Redundancy::Parity(m) if !columns.contains(&column) => parity += u64::from(m),
                Redundancy::Parity(_) => live += 1,
            }
            flip(rig, set, slot, offset, random);
        }
    }
    (live, parity)
}

/// Files of all sizes, some overwritten in part, one deleted: so that there are dead sectors among live ones.
fn fill(rig: &Rig) -> BTreeMap<Ino, Vec<u8>> {
    let mut content = BTreeMap::new();
    for (number, len) in [5_000_000, 300_000, 70_000, 1_200_000, 4096, 9000].into_iter().enumerate() {
        let seed = number as u64 + 10;
        content.insert(rig.file(&format!("file{number}"), seed, len), noise(seed, len));
    }
    let fs = rig.fs();
    let mut random = 99;
    for (ino, data) in content.iter_mut().take(4) {
        for round in 0..6_u64 {
            let at = (next_random(&mut random) % data.len() as u64) as usize / 4096 * 4096;
            let fresh = noise(round + 100, 9000.min(data.len() - at));
            fs.write(*ino, 0, at as u64, &fresh, false).expect("writes");
            data[at..at + fresh.len()].copy_from_slice(&fresh);
        }
    }
    fs.sync_all().expect("durable");
    content
}

fn assert_content(rig: &Rig, content: &BTreeMap<Ino, Vec<u8>>) {
    rig.fs().cache().drop_clean();
    for (ino, data) in content {
        let mut buf = vec![0; data.len()];
        assert_eq!(rig.fs().read(*ino, 0, 0, &mut buf).expect("reads"), data.len());
        assert!(buf == *data, "inode {ino} reads as something else");
    }
}

/// Every live sector in every copy is right, and every parity of live rows fits.
fn assert_all_right(rig: &Rig, layout: &Layout) {
    for set in &layout.sets {
        let k = usize::from(set.geometry.columns);
        for (offset, _) in layout.live_rows(set) {
            let sector = |slot: usize| {
                let mut buf = vec![0; SECTOR as usize];
                let place = set.slots[slot];
                let disk = &rig.sim.disks[usize::from(place.member)];
                disk.read(Area::Slab(place.slab), SLAB_HEADER_BYTES + offset, &mut buf).expect("reads");
                buf
            };
            match set.geometry.redundancy {
                Redundancy::Copies(_) => {
                    for column in 0..k {
                        let copies: BTreeSet<Vec<u8>> =
                            set.geometry.copies_of(column, offset).map(sector).collect();
                        assert_eq!(copies.len(), 1, "copies differ in set {} at {offset}", set.id);
                    }
                }
                Redundancy::Parity(m) => {
                    let all: Vec<Vec<u8>> = (0..k + usize::from(m))
                        .map(|column| sector(set.geometry.slot_of(offset, column)))
                        .collect();
                    let data: Vec<&[u8]> = all[..k].iter().map(Vec::as_slice).collect();
                    let mut parity = vec![vec![0; SECTOR as usize]; usize::from(m)];
                    let mut out: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                    codec::encode(&data, &mut out);
                    assert!(parity == all[k..], "parity does not fit in set {} at {offset}", set.id);
                }
            }
        }
    }
}

const LAYOUTS: [(&str, usize); 6] =
    [("mirror", 2), ("mirror:3", 4), ("striped-mirror", 4), ("parity", 3), ("parity:2", 5), ("parity:3", 6)];

/// "It must show" 5: bits flipped in up to one slot of each stripe are healed by one scrub, and counted exactly.
#[test]
fn flips_in_one_slot_of_each_row_are_healed_and_counted() {
    for (resiliency, disks) in LAYOUTS {
        for seed in 1..=3_u64 {
            let rig = Rig::new(resiliency, disks, 64);
            let content = fill(&rig);
            let layout = Layout::of(&rig);
            let mut random = seed;
            let (live, parity) = flip_one_slot_a_row(&rig, &layout, &mut random);
            assert!(live > 20, "{resiliency}: only {live} flips hit something alive");
            let counts = rig.scrub();
            let what = format!("{resiliency}, seed {seed}: {counts:?}");
            let copied = matches!(layout.sets[0].geometry.redundancy, Redundancy::Copies(_));
            assert_eq!(counts["healed"], live, "{what}");
            assert_eq!(counts["parity-rewritten"], if copied { 0 } else { parity }, "{what}");
            assert_eq!(
                (counts["lost"], counts["lost-metadata"], counts["not-writable"]),
                (0, 0, 0),
                "{what}"
            );
            assert_content(&rig, &content);
            if !copied {
                assert_all_right(&rig, &layout);
            }
            let again = rig.scrub();
            assert_eq!((again["healed"], again["parity-rewritten"]), (0, 0), "{resiliency}: {again:?}");
            assert_eq!(again["checked"], counts["checked"]);
            let report = rig.fs().check(crate::fs::CheckOptions { data: true }).expect("checks");
            assert!(report.findings.is_empty(), "{resiliency}: {:?}", report.findings);
        }
    }
}

/// And reading them does not wait for a scrub.
#[test]
fn flips_read_right_before_any_scrub() {
    for (resiliency, disks) in LAYOUTS {
        let rig = Rig::new(resiliency, disks, 64);
        let content = fill(&rig);
        let layout = Layout::of(&rig);
        flip_one_slot_a_row(&rig, &layout, &mut 5);
        assert_content(&rig, &content);
    }
}

/// Flips beyond redundancy: EIO for exactly those sectors, the file is named with all its links, the rest reads on.
#[test]
fn what_is_beyond_redundancy_is_lost_exactly_and_named() {
    for (resiliency, disks) in LAYOUTS {
        let rig = Rig::new(resiliency, disks, 64);
        let data = noise(1, 2 << 20);
        let ino = rig.file("a", 1, 2 << 20);
        let dir = rig.fs().mkdir(ROOT_INO, b"dir", 0o755, &Caller::ROOT).expect("mkdir").ino;
        rig.fs().link(ino, dir, b"other name").expect("links");
        let layout = Layout::of(&rig);
        let lost: BTreeSet<u64> = [3, 4, 100, 300].into_iter().map(|sector| sector * SECTOR).collect();
        let mut random = 7;
        for &at in &lost {
            ruin(&rig, &layout, ino, at, &mut random);
        }
        let counts = rig.scrub();
        let read_as_lost: BTreeSet<u64> = (0..data.len() as u64)
            .step_by(SECTOR as usize)
            .filter(|&at| match rig.sector(ino, at) {
                Ok(bytes) => {
                    assert!(bytes == data[at as usize..][..4096], "{resiliency}: wrong bytes at {at}");
                    false
                }
                Err(error) => {
                    assert_eq!(error.errno(), libc::EIO);
                    true
                }
            })
            .collect();
        let damage = damage::list(rig.fs()).expect("lists");
        assert_eq!(damage.files.len(), 1, "{resiliency}: {damage:?}");
        assert_eq!(damage.files[0].paths, ["/a", "/dir/other name"]);
        let told: BTreeSet<u64> = damage.files[0]
            .ranges
            .iter()
            .flat_map(|(offset, len)| (*offset..offset + len).step_by(SECTOR as usize))
            .collect();
        assert_eq!(told, read_as_lost, "{resiliency}");
        assert!(lost.is_subset(&told), "{resiliency}: {told:?}");
        assert_eq!(counts["lost"], told.len() as u64, "{resiliency}");
        // Written anew, it is well again.
        rig.fs().write(ino, 0, 0, &data, false).expect("writes");
        rig.fs().sync_all().expect("durable");
        assert!(damage::list(rig.fs()).expect("lists").files.is_empty(), "{resiliency}");
        rig.scrub();
        assert!(!damage::is_any(rig.fs()).expect("reads"), "{resiliency}: forgotten");
    }
}

/// Flips a sector of a file in one slot more than the layout survives. With parity the others are those of parity, so that
/// no other sector of the row is lost.
fn ruin(rig: &Rig, layout: &Layout, ino: Ino, at: u64, random: &mut u64) {
    let places = rig.fs().places_of(ino, usize::MAX).expect("places");
    let part =
        places.iter().find(|part| (part.offset..part.offset + part.len).contains(&at)).expect("mapped");
    let (id, address) = part.place.expect("an extent");
    let set = layout.sets.iter().find(|set| set.id == id).expect("its set");
    let place = set.geometry.locate(address + (at - part.offset));
    let slots: Vec<usize> = match set.geometry.redundancy {
        Redundancy::Copies(_) => set.geometry.copies_of(place.column, place.offset).collect(),
        Redundancy::Parity(m) => {
            let k = usize::from(set.geometry.columns);
            let columns = std::iter::once(place.column).chain(k..k + usize::from(m));
            columns.map(|column| set.geometry.slot_of(place.offset, column)).collect()
        }
    };
    slots.into_iter().for_each(|slot| flip(rig, set, slot, place.offset, random));
}

/// Unreadable sectors are as good as wrong ones.
#[test]
fn sectors_that_cannot_be_read_are_written_anew() {
    let rig = Rig::new("parity", 4, 64);
    let content = fill(&rig);
    let layout = Layout::of(&rig);
    let mut bad = 0;
    for set in &layout.sets {
        for offset in layout.live_rows(set).into_keys().step_by(17) {
            let slot = set.geometry.slot_of(offset, bad % set.geometry.slots());
            let place = set.slots[slot];
            let at = SLAB_HEADER_BYTES + offset;
            rig.sim.disks[usize::from(place.member)].fail_reads(Area::Slab(place.slab), at..at + SECTOR);
            bad += 1;
        }
    }
    let counts = rig.scrub();
    let written = counts["healed"] + counts["parity-rewritten"] + counts["dead-rewritten"];
    assert_eq!(written, bad as u64, "{counts:?}");
    assert_content(&rig, &content);
    assert_all_right(&rig, &layout);
}

/// Nodes of the trees are looked at in all their copies.
#[test]
fn nodes_are_healed_too() {
    let rig = Rig::new("mirror", 2, 64);
    for number in 0..300 {
        rig.file(&format!("a file with a rather long name so that there are nodes {number}"), number, 5000);
    }
    rig.fs().store().checkpoint().expect("checkpoint");
    let mut flipped = 0;
    let mut cursor = Some(crate::store::NodeCursor::default());
    let mut random = 3;
    while let Some(at) = cursor.take() {
        let some = rig.fs().store().nodes_from(at, 16).expect("nodes");
        for pointer in some.pointers {
            let sets = rig.fs().pool().metadata_sets();
            let set = sets.iter().find(|set| set.id == pointer.set).expect("its set");
            flip(&rig, set, flipped % 2, set.geometry.locate(pointer.address).offset, &mut random);
            flipped += 1;
        }
        cursor = some.next;
    }
    assert!(flipped > 8, "only {flipped} nodes");
    let counts = rig.scrub();
    assert_eq!((counts["healed"], counts["lost-metadata"]), (flipped as u64, 0), "{counts:?}");
    assert_eq!(rig.scrub()["healed"], 0);
}

/// A missing member: what it holds can't be looked at, what is here can, and nothing is spoiled for its return.
#[test]
fn a_degraded_pool_is_scrubbed_and_its_member_comes_back_to_right_bytes() {
    let mut rig = Rig::new("parity:2", 5, 64);
    let content = fill(&rig);
    rig.unmount();
    rig.mount(&[2]);
    let layout = Layout::of(&rig);
    let mut flipped = 0;
    let mut random = 11;
    for set in &layout.sets {
        for (offset, columns) in layout.live_rows(set).into_iter().step_by(5) {
            let Some(&column) = columns.first() else { continue };
            let slot = set.geometry.slot_of(offset, column);
            if set.slots[slot].member != 2 {
                flip(&rig, set, slot, offset, &mut random);
                flipped += 1;
            }
        }
    }
    let counts = rig.scrub();
    assert_eq!((counts["healed"], counts["lost"]), (flipped, 0), "{counts:?}");
    assert_content(&rig, &content);
    rig.unmount();
    rig.mount(&[]);
    assert_content(&rig, &content);
    assert_eq!(rig.scrub()["lost"], 0);
    assert_all_right(&rig, &layout);
}
