//! The arrays of published measurements, by name: each must be expressible, so that it can be compared with.

use super::{Geometry, Resiliency, width_for};
use crate::units::{KIB, MIB};

/// Name; resiliency; interleave in KiB; disks; failures survived; disks' worth of data.
type Array = (&'static str, &'static str, u64, usize, usize, u64);

#[rustfmt::skip]
const ARRAYS: [Array; 21] = [
    ("single disk", "simple columns=1", 256, 1, 0, 1),
    ("RAID 0 on 2, 64 KiB", "simple columns=2", 64, 2, 0, 2),
    ("RAID 0 on 3, 64 KiB", "simple columns=3", 64, 3, 0, 3),
    ("RAID 0 on 4, 64 KiB", "simple columns=4", 64, 4, 0, 4),
    ("RAID 0 on 2, 128 KiB", "simple columns=2", 128, 2, 0, 2),
    ("RAID 0 on 3, 128 KiB", "simple columns=3", 128, 3, 0, 3),
    ("RAID 0 on 4, 128 KiB", "simple columns=4", 128, 4, 0, 4),
    ("RAID 1 on 2", "mirror", 64, 2, 1, 1),
    ("RAID 5 on 3, 64 KiB", "parity columns=2", 64, 3, 1, 2),
    ("RAID 5 on 4, 64 KiB", "parity columns=3", 64, 4, 1, 3),
    ("RAID 5 on 3, 128 KiB", "parity columns=2", 128, 3, 1, 2),
    ("RAID 5 on 4, 128 KiB", "parity columns=3", 128, 4, 1, 3),
    ("RAID 10 on 4, 64 KiB", "striped-mirror columns=2", 64, 4, 1, 2),
    ("RAID 10 on 4, 128 KiB", "striped-mirror columns=2", 128, 4, 1, 2),
    ("RAID 6 on 5, 64 KiB", "parity:2 columns=3", 64, 5, 2, 3),
    ("RAID 6 on 5, 128 KiB", "parity:2 columns=3", 128, 5, 2, 3),
    ("Storage Spaces parity, 2 columns on 3", "parity columns=2", 256, 3, 1, 2),
    ("Storage Spaces parity, 3 columns on 4", "parity columns=3", 256, 4, 1, 3),
    ("Storage Spaces parity, automatic on 5", "parity", 256, 5, 1, 4),
    ("Storage Spaces striped mirror, 2 columns on 4", "striped-mirror columns=2", 256, 4, 1, 2),
    ("Storage Spaces striped mirror, automatic on 6", "striped-mirror", 256, 6, 1, 3),
];

#[test]
fn published_arrays_are_expressible() {
    for (name, text, interleave_kib, disks, tolerance, data_disks) in ARRAYS {
        let typed = Resiliency::parse(text).unwrap();
        let interleave = Some(interleave_kib * KIB);
        let parity = (typed.parity > 0).then_some(typed.parity);
        let r = Resiliency::new(typed.kind, None, parity, typed.columns, interleave).unwrap();
        assert!(r.wanted_members() <= disks, "{name}");
        assert_eq!(r.tolerance(), tolerance, "{name}");
        let width = width_for(&r, disks).unwrap();
        assert_eq!((width.slots(), width.short), (disks, false), "{name}");
        let g = Geometry::new(width.redundancy, width.columns, r.interleave, 16 * MIB, 7).unwrap();
        assert_eq!((g.slots(), g.tolerance()), (disks, tolerance), "{name}");
        assert_eq!(g.payload_bytes(), 16 * MIB * data_disks, "{name}");
        if g.columns > 1 {
            assert_eq!(g.row_bytes(), interleave_kib * KIB, "{name}");
        }
    }
}
