use super::*;
use crate::layout::Redundancy;
use crate::layout::geometry::tests::many;
use crate::units::{KIB, MIB};

/// Lengths of streams from one sector to many rows, in a fixed order that looks random.
fn lengths() -> impl Iterator<Item = u64> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let most_sectors = [1, 3, 17, 64, 300, 5000][(state >> 33) as usize % 6];
        ((state >> 40) % most_sectors + 1) * SECTOR
    })
}

#[test]
fn stripes_fill_a_set_without_gaps_and_never_cross_a_rotation() {
    for g in many() {
        let (mut fill, mut lengths) = (0, lengths());
        let mut remaining = lengths.next().unwrap();
        while let Some(stripe) = g.next_stripe(fill, remaining) {
            assert_eq!(stripe.offset, fill);
            assert!(stripe.height > 0 && stripe.height % SECTOR == 0);
            let last = stripe.offset + stripe.height - 1;
            assert_eq!(stripe.offset / g.rotation_bytes(), last / g.rotation_bytes());
            let rows = |offset| offset / g.row_bytes();
            let whole = stripe.offset % g.row_bytes() == 0 && stripe.height % g.row_bytes() == 0;
            assert!(whole || rows(stripe.offset) == rows(last));
            let data = stripe.data_bytes(&g);
            // At most a sector of padding in each column.
            assert!(data < remaining + u64::from(g.columns) * SECTOR);
            fill += stripe.height;
            remaining = remaining.saturating_sub(data);
            if remaining == 0 {
                remaining = lengths.next().unwrap();
            }
        }
        assert_eq!(fill, g.slab_bytes);
    }
}

#[test]
fn segments_cover_a_stripe_once_in_the_order_of_the_stream() {
    for g in many() {
        let (row, rotation) = (g.row_bytes(), g.rotation_bytes());
        let fills = [0, SECTOR, row - SECTOR, rotation - row, rotation - SECTOR];
        for (fill, remaining) in fills.into_iter().zip(lengths()).chain([(0, u64::MAX / 64)]) {
            let stripe = g.next_stripe(fill, remaining).unwrap();
            let sector_count = (stripe.data_bytes(&g) / SECTOR) as usize;
            let mut seen = vec![false; sector_count];
            let mut next = 0;
            for segment in stripe.segments(&g) {
                assert_eq!(segment.at, next);
                next += segment.len;
                let mut runs = g.runs(segment.address, segment.len);
                let run = runs.next().unwrap();
                assert_eq!((run.column, run.offset, run.len), (segment.column, segment.offset, segment.len));
                assert!(runs.next().is_none());
                assert!(segment.offset >= stripe.offset);
                assert!(segment.offset + segment.len <= stripe.offset + stripe.height);
                for offset in (segment.offset..segment.offset + segment.len).step_by(SECTOR as usize) {
                    let sector = (offset - stripe.offset) / SECTOR;
                    let index = segment.column as u64 * (stripe.height / SECTOR) + sector;
                    assert!(!std::mem::replace(&mut seen[index as usize], true));
                }
            }
            assert_eq!(next, stripe.data_bytes(&g));
            assert!(seen.iter().all(|&seen| seen));
        }
    }
}

#[test]
fn small_flushes_make_low_stripes_and_large_ones_whole_rows() {
    let g = Geometry::new(Redundancy::Parity(1), 2, 256 * KIB, 16 * MIB, 0).unwrap();
    let at = |fill, remaining| g.next_stripe(fill, remaining).map(|s| (s.offset, s.height));
    assert_eq!(at(0, SECTOR), Some((0, SECTOR)));
    assert_eq!(at(SECTOR, 3 * SECTOR), Some((SECTOR, 2 * SECTOR)));
    assert_eq!(at(0, 512 * KIB), Some((0, 256 * KIB)));
    assert_eq!(at(0, 508 * KIB), Some((0, 256 * KIB)));
    assert_eq!(at(0, 1300 * KIB), Some((0, 512 * KIB)));
    assert_eq!(at(SECTOR, 64 * MIB), Some((SECTOR, 252 * KIB)));
    assert_eq!(at(0, 64 * MIB), Some((0, 4 * MIB)));
    assert_eq!(at(16 * MIB - SECTOR, 64 * MIB), Some((16 * MIB - SECTOR, SECTOR)));
    assert_eq!(at(16 * MIB, SECTOR), None);
}

#[test]
fn a_low_stripe_cuts_the_stream_by_columns() {
    let g = Geometry::new(Redundancy::Parity(1), 2, 64 * KIB, MIB, 0).unwrap();
    let stripe = Stripe { offset: SECTOR, height: 2 * SECTOR };
    let segments: Vec<_> = stripe.segments(&g).map(|s| (s.at, s.len, s.address)).collect();
    assert_eq!(segments, [(0, 8192, 4096), (8192, 8192, 64 * KIB + 4096)]);
}

#[test]
fn whole_rows_and_mirrors_are_contiguous_in_addresses() {
    let g = Geometry::new(Redundancy::Parity(2), 3, 64 * KIB, 4 * MIB, 1).unwrap();
    let stripe = g.next_stripe(64 * KIB, 10 * 64 * KIB).unwrap();
    assert_eq!(stripe.height, 3 * 64 * KIB);
    assert!(stripe.segments(&g).all(|s| s.address == 3 * 64 * KIB + s.at));
    let mirror = Geometry::new(Redundancy::Copies(2), 1, 64 * KIB, 16 * MIB, 1).unwrap();
    let stripe = mirror.next_stripe(SECTOR, 900 * KIB).unwrap();
    assert_eq!(stripe, Stripe { offset: SECTOR, height: 900 * KIB });
    let segments: Vec<_> = stripe.segments(&mirror).map(|s| (s.at, s.len, s.address)).collect();
    assert_eq!(segments, [(0, 900 * KIB, SECTOR)]);
}
