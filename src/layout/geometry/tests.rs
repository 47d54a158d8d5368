use super::*;
use crate::units::KIB;

/// Geometries of every kind, with slabs of a few rotations and of less than one.
pub(in crate::layout) fn many() -> Vec<Geometry> {
    let mut all = Vec::new();
    for interleave in [64 * KIB, 256 * KIB, MIB] {
        for (slab_bytes, first) in [(MIB, 0), (2 * MIB, u32::MAX), (4 * MIB, 3), (16 * MIB, 5)] {
            for columns in [1, 2, 3, 4, 7, 8, 32] {
                let copies = (1..=4).map(Redundancy::Copies);
                for redundancy in copies.chain((1..=3).map(Redundancy::Parity)) {
                    all.push(Geometry::new(redundancy, columns, interleave, slab_bytes, first).unwrap());
                }
            }
        }
    }
    all
}

#[test]
fn shapes_are_those_of_the_layout() {
    for g in many() {
        let k = usize::from(g.columns);
        let (slots, tolerance) = match g.redundancy {
            Redundancy::Copies(c) => (k * usize::from(c), usize::from(c) - 1),
            Redundancy::Parity(m) => (k + usize::from(m), usize::from(m)),
        };
        assert_eq!((g.slots(), g.tolerance(), g.needed()), (slots, tolerance, slots - tolerance));
        assert_eq!(g.payload_bytes(), g.slab_bytes * k as u64);
        let rotation = g.rotation_bytes();
        assert!(rotation.is_power_of_two() && rotation <= g.slab_bytes && rotation <= 4 * MIB);
        assert!(
            rotation % g.interleave == 0 && g.slab_bytes % rotation == 0 && rotation % g.row_bytes() == 0
        );
    }
}

#[test]
fn every_address_has_its_own_place() {
    for g in many() {
        let step = 16 * KIB;
        let mut seen = vec![false; (g.payload_bytes() / step) as usize];
        for column in 0..usize::from(g.columns) {
            for offset in (0..g.slab_bytes).step_by(step as usize) {
                let address = g.address_of(column, offset);
                assert!(!std::mem::replace(&mut seen[(address / step) as usize], true));
                assert_eq!(g.locate(address), Place { column, offset });
                assert_eq!(g.locate(address + 4097), Place { column, offset: offset + 4097 });
                assert_eq!(g.address_of(column, offset + 4097), address + 4097);
            }
        }
        assert!(seen.iter().all(|&seen| seen));
    }
}

#[test]
fn one_data_column_makes_address_and_offset_the_same() {
    for g in many().into_iter().filter(|g| g.columns == 1) {
        for address in [0, 5, 70 * KIB, g.slab_bytes - 1] {
            assert_eq!(g.locate(address), Place { column: 0, offset: address });
        }
    }
}

#[test]
fn at_each_offset_every_column_has_a_slot_of_its_own() {
    for g in many() {
        for offset in [0, 1, g.rotation_bytes() - 1, g.slab_bytes / 2, g.slab_bytes - 1] {
            let mut taken = vec![false; g.slots()];
            for column in 0..g.slots() {
                let slot = g.slot_of(offset, column);
                assert!(!std::mem::replace(&mut taken[slot], true));
                assert_eq!(g.column_of(offset, slot), column);
            }
        }
    }
}

#[test]
fn every_column_visits_every_slot() {
    for g in many() {
        let mut set = g;
        let mut visits = vec![0; g.slots()];
        for first in 0..g.slots() as u32 {
            set.first = first;
            visits[set.slot_of(0, g.slots() - 1)] += 1;
        }
        assert!(visits.iter().all(|&n| n == 1), "{g:?}: {visits:?}");
    }
}

#[test]
fn slots_turn_at_rotation_boundaries_and_nowhere_else() {
    let g = Geometry::new(Redundancy::Parity(1), 2, 64 * KIB, 16 * MIB, 0).unwrap();
    let slots: Vec<_> = (0..4).map(|r| g.slot_of(r * 4 * MIB, 2)).collect();
    assert_eq!(slots, [2, 0, 1, 2]);
    assert_eq!(g.slot_of(4 * MIB - 1, 2), 2);
    assert_eq!(g.slot_of(8 * MIB - 1, 2), 0);
}

#[test]
fn copies_of_a_column_stay_in_their_group_of_slots() {
    for g in many() {
        let copies = g.copies();
        for offset in (0..g.slab_bytes).step_by(MIB as usize) {
            for column in 0..usize::from(g.columns) {
                let slots: Vec<_> = g.copies_of(column, offset).collect();
                assert_eq!(slots.len(), copies);
                assert!(slots.iter().all(|slot| slot / copies == slots[0] / copies));
                for (copy, &slot) in slots.iter().enumerate() {
                    assert_eq!(g.column_of(offset, slot), column * copies + copy);
                }
            }
        }
    }
}

#[test]
fn runs_cover_a_range_exactly_and_stay_in_one_slot() {
    for g in many() {
        let end = g.payload_bytes();
        for (address, len) in [(0, end), (4096, end - 8192), (g.row_bytes() - 1, 2), (end - 1, 1), (77, 0)] {
            let mut next = 0;
            for run in g.runs(address, len) {
                assert_eq!(run.at, next);
                let place = Place { column: run.column, offset: run.offset };
                assert_eq!(g.locate(address + run.at), place);
                let last = g.locate(address + run.at + run.len - 1);
                assert_eq!((last.column, last.offset), (run.column, run.offset + run.len - 1));
                assert_eq!(g.slot_of(last.offset, 0), g.slot_of(run.offset, 0));
                next += run.len;
            }
            assert_eq!(next, len);
        }
    }
}

#[test]
fn impossible_geometries_are_refused_also_when_decoded() {
    use Redundancy::{Copies, Parity};
    let new = |r, k, i, s| Geometry::new(r, k, i, s, 0);
    assert_eq!(new(Parity(1), 0, MIB, MIB), Err(BadGeometry::Columns { columns: 0 }));
    assert_eq!(new(Parity(1), 33, MIB, MIB), Err(BadGeometry::Columns { columns: 33 }));
    for redundancy in [Parity(0), Parity(4), Copies(0), Copies(5)] {
        assert_eq!(new(redundancy, 2, MIB, MIB), Err(BadGeometry::Redundancy { redundancy }));
    }
    assert_eq!(new(Copies(2), 1, 0, MIB), Err(BadGeometry::Interleave { interleave: 0 }));
    for slab_bytes in [0, 64 * KIB, MIB + 4096, 6 * MIB, 512 * MIB, u64::MAX] {
        assert_eq!(new(Copies(2), 1, MIB, slab_bytes), Err(BadGeometry::Slab { slab_bytes }));
    }
    assert!(new(Copies(2), 1, MIB, 12 * MIB).is_ok());
    let good = new(Parity(2), 3, 64 * KIB, 8 * MIB).unwrap();
    let text = serde_json::to_string(&good).unwrap();
    assert_eq!(serde_json::from_str::<Geometry>(&text).unwrap(), good);
    assert!(serde_json::from_str::<Geometry>(&text.replace("65536", "0")).is_err());
}
