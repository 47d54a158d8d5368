//! The arrays of published measurements, by name: each must be expressible, so that it can be compared with.

use super::{Geometry, Kind, Resiliency, width_for};
use crate::units::{KIB, MIB};

struct Array {
    name: &'static str,
    kind: Kind,
    parity: Option<u8>,
    columns: Option<u8>,
    interleave_kib: u64,
    disks: usize,
    tolerance: usize,
    /// Share of the raw space that holds data: this over `disks`.
    data_disks: u64,
}

#[rustfmt::skip]
const ARRAYS: [Array; 21] = {
    use Kind::{Mirror, Parity, Simple, StripedMirror};
    const fn array(
        name: &'static str, kind: Kind, parity: Option<u8>, columns: Option<u8>, interleave_kib: u64,
        disks: usize, tolerance: usize, data_disks: u64,
    ) -> Array {
        Array { name, kind, parity, columns, interleave_kib, disks, tolerance, data_disks }
    }
    [
        array("single disk", Simple, None, Some(1), 256, 1, 0, 1),
        array("RAID 0 on 2, 64 KiB", Simple, None, Some(2), 64, 2, 0, 2),
        array("RAID 0 on 3, 64 KiB", Simple, None, Some(3), 64, 3, 0, 3),
        array("RAID 0 on 4, 64 KiB", Simple, None, Some(4), 64, 4, 0, 4),
        array("RAID 0 on 2, 128 KiB", Simple, None, Some(2), 128, 2, 0, 2),
        array("RAID 0 on 3, 128 KiB", Simple, None, Some(3), 128, 3, 0, 3),
        array("RAID 0 on 4, 128 KiB", Simple, None, Some(4), 128, 4, 0, 4),
        array("RAID 1 on 2", Mirror, None, None, 64, 2, 1, 1),
        array("RAID 5 on 3, 64 KiB", Parity, Some(1), Some(2), 64, 3, 1, 2),
        array("RAID 5 on 4, 64 KiB", Parity, Some(1), Some(3), 64, 4, 1, 3),
        array("RAID 5 on 3, 128 KiB", Parity, Some(1), Some(2), 128, 3, 1, 2),
        array("RAID 5 on 4, 128 KiB", Parity, Some(1), Some(3), 128, 4, 1, 3),
        array("RAID 10 on 4, 64 KiB", StripedMirror, None, Some(2), 64, 4, 1, 2),
        array("RAID 10 on 4, 128 KiB", StripedMirror, None, Some(2), 128, 4, 1, 2),
        array("RAID 6 on 5, 64 KiB", Parity, Some(2), Some(3), 64, 5, 2, 3),
        array("RAID 6 on 5, 128 KiB", Parity, Some(2), Some(3), 128, 5, 2, 3),
        array("Storage Spaces parity on 3", Parity, Some(1), Some(2), 256, 3, 1, 2),
        array("Storage Spaces parity on 4", Parity, Some(1), Some(3), 256, 4, 1, 3),
        array("Storage Spaces parity on 5, automatic", Parity, Some(1), None, 256, 5, 1, 4),
        array("Storage Spaces mirror, 2 columns on 4", StripedMirror, None, Some(2), 256, 4, 1, 2),
        array("Storage Spaces mirror, automatic on 6", StripedMirror, None, None, 256, 6, 1, 3),
    ]
};

#[test]
fn published_arrays_are_expressible() {
    for array in &ARRAYS {
        let name = array.name;
        let interleave = array.interleave_kib * KIB;
        let r = Resiliency::new(array.kind, None, array.parity, array.columns, Some(interleave)).unwrap();
        assert!(r.wanted_members() <= array.disks, "{name}");
        let width = width_for(&r, array.disks).unwrap();
        assert!(!width.short, "{name}");
        assert_eq!(width.slots(), array.disks, "{name}");
        let g = Geometry::new(width.redundancy, width.columns, r.interleave, 16 * MIB, 7).unwrap();
        assert_eq!((g.slots(), g.tolerance()), (array.disks, array.tolerance), "{name}");
        assert_eq!(r.tolerance(), array.tolerance, "{name}");
        assert_eq!(g.payload_bytes(), 16 * MIB * array.data_disks, "{name}");
        if g.columns > 1 {
            assert_eq!(g.row_bytes(), interleave, "{name}");
        }
    }
}
