//! Parity of data, by Horner's rule: from the last column to the first, `Q = 2 Q + d`, `R = 4 R + d`.

use super::PARITY_MAX;
use super::combine::{BLOCK, block, xor};
use super::field::double;
use crate::limits::COLUMNS_MAX;

/// Computes all parity columns of `data`.
///
/// `data` holds 1 to [`COLUMNS_MAX`] columns and `parity` 1 to [`PARITY_MAX`], all of the same length in bytes;
/// what `parity` held before does not matter.
///
/// # Panics
/// When the numbers or lengths are others: they are the caller's own, never read from a disk.
pub fn encode(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    assert!((1..=usize::from(COLUMNS_MAX)).contains(&data.len()), "{} data columns", data.len());
    let len = data[0].len();
    let equal =
        data.iter().all(|column| column.len() == len) && parity.iter().all(|column| column.len() == len);
    assert!(equal, "columns of different lengths");
    match parity {
        [p] => xor(data, p),
        [p, q] => horner(data, [p, q]),
        [p, q, r] => horner(data, [p, q, r]),
        _ => panic!("{} parity columns, not 1 to {PARITY_MAX}", parity.len()),
    }
}

/// Encodes block by block, so that the sums stay in the first-level cache, four columns at a time.
fn horner<const M: usize>(data: &[&[u8]], mut parity: [&mut [u8]; M]) {
    let len = parity[0].len();
    for from in (0..len).step_by(BLOCK) {
        let to = (from + BLOCK).min(len);
        let mut sums = parity.each_mut().map(|column| &mut column[from..to]);
        // The columns before the last multiple of four come first: the sums start with them.
        let (whole, odd) = data.as_chunks::<4>();
        match *odd {
            [] => sums.iter_mut().for_each(|sum| sum.fill(0)),
            [a] => pass::<1, M, true>([a], from, &mut sums),
            [a, b] => pass::<2, M, true>([a, b], from, &mut sums),
            [a, b, c, ..] => pass::<3, M, true>([a, b, c], from, &mut sums),
        }
        for &columns in whole.iter().rev() {
            pass::<4, M, false>(columns, from, &mut sums);
        }
    }
}

/// Takes `N` more columns into the sums, the last one first; `FIRST` starts the sums afresh.
#[inline(never)]
fn pass<const N: usize, const M: usize, const FIRST: bool>(
    columns: [&[u8]; N],
    from: usize,
    sums: &mut [&mut [u8]; M],
) {
    let len = sums[0].len();
    let columns = block(columns, from, len);
    let sums = sums.each_mut().map(|sum| &mut sum[..len]);
    for i in 0..len {
        let mut sum = [0; M];
        if !FIRST {
            for m in 0..M {
                sum[m] = sums[m][i];
            }
        }
        for n in (0..N).rev() {
            let byte = columns[n][i];
            for (m, sum) in sum.iter_mut().enumerate() {
                for _ in 0..m {
                    *sum = double(*sum);
                }
                *sum ^= byte;
            }
        }
        for m in 0..M {
            sums[m][i] = sum[m];
        }
    }
}
