//! Finding a sector again from the other slots.

use crate::codec;
use crate::layout::{Geometry, Redundancy};
use crate::member::AlignedBuf;
use crate::units::SECTOR_LEN;

/// Finds the sector that matches `sum`: a copy, or what some combination of the columns gives.
///
/// `place` is the sector's column and its offset in the slots; it lies at `from` in what each source gave.
pub(super) fn rebuild_sector(
    geometry: &Geometry,
    place: (usize, u64),
    sources: &[(usize, AlignedBuf)],
    from: usize,
    sum: u32,
    out: &mut [u8],
) -> bool {
    let part = |data: &AlignedBuf| from..from.saturating_add(SECTOR_LEN).min(data.len());
    let (column, offset) = place;
    match geometry.redundancy {
        Redundancy::Copies(_) => sources.iter().any(|(_, data)| {
            out.copy_from_slice(&data[part(data)]);
            codec::checksum(out) == sum
        }),
        Redundancy::Parity(parity) => {
            let k = usize::from(geometry.columns);
            let present: Vec<(usize, &[u8])> = sources
                .iter()
                .map(|(slot, data)| (geometry.column_of(offset, *slot), &data[part(data)]))
                .collect();
            combinations(present.len(), k).any(|chosen| {
                let chosen: Vec<_> = chosen.iter().map(|&index| present[index]).collect();
                codec::reconstruct(k, usize::from(parity), &chosen, column, out).is_ok()
                    && codec::checksum(out) == sum
            })
        }
    }
}

/// All choices of `k` of `n` things, as ascending indices.
pub(in crate::pool) fn combinations(n: usize, k: usize) -> impl Iterator<Item = Vec<usize>> {
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
