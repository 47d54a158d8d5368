//! Sums of columns, each times a constant, made of nothing but XOR and doubling.
//!
//! A product with a constant is a sum of doublings, one for each bit of it. So a whole sum of products
//! is computed bit by bit, the highest first: double what there is, then add all columns whose
//! constant has that bit. That is seven doublings altogether, however many columns there are.

use super::field::double;

/// Bytes worked on at a time, so that a block of every column stays in the first-level cache.
pub(super) const BLOCK: usize = 1024;

/// Columns added in one pass: the sum is then loaded and stored once for so many.
const GROUP: usize = 4;

/// Writes the XOR of `columns` to `out`. All have the same length; with no columns that is zeros.
pub(super) fn xor(columns: &[&[u8]], out: &mut [u8]) {
    for (index, out) in out.chunks_mut(BLOCK).enumerate() {
        let from = index * BLOCK;
        // The first pass overwrites, so that `out` need not be cleared.
        let (first, rest) = columns.split_at(columns.len().min(GROUP));
        match *first {
            [] => out.fill(0),
            [a] => out.copy_from_slice(&a[from..from + out.len()]),
            [a, b] => set([a, b], from, out),
            [a, b, c] => set([a, b, c], from, out),
            [a, b, c, d, ..] => set([a, b, c, d], from, out),
        }
        add::<false>(rest.iter().copied(), from, out);
    }
}

/// Writes the sum of `constant x column` to `out`. All have the same length.
pub(super) fn combine(terms: &[(u8, &[u8])], out: &mut [u8]) {
    let highest = terms.iter().fold(0, |all, &(constant, _)| all | constant);
    let bits = u8::BITS - highest.leading_zeros();
    for (index, out) in out.chunks_mut(BLOCK).enumerate() {
        out.fill(0);
        for bit in (0..bits).rev() {
            let columns =
                terms.iter().filter(|(constant, _)| constant >> bit & 1 != 0).map(|&(_, column)| column);
            add::<true>(columns, index * BLOCK, out);
        }
    }
}

/// Adds `columns`, from offset `from` on, to `sum`, which is doubled before if `DOUBLE`.
fn add<'a, const DOUBLE: bool>(columns: impl Iterator<Item = &'a [u8]>, from: usize, sum: &mut [u8]) {
    let mut columns = columns;
    let mut pending: [&[u8]; GROUP] = [&[]; GROUP];
    let mut doubled = !DOUBLE;
    loop {
        let mut count = 0;
        for (slot, column) in pending.iter_mut().zip(columns.by_ref()) {
            *slot = column;
            count += 1;
        }
        let [a, b, c, d] = pending;
        match (count, doubled) {
            (0, true) => return,
            (0, false) => pass::<0, true>([], from, sum),
            (1, true) => pass::<1, false>([a], from, sum),
            (1, false) => pass::<1, true>([a], from, sum),
            (2, true) => pass::<2, false>([a, b], from, sum),
            (2, false) => pass::<2, true>([a, b], from, sum),
            (3, true) => pass::<3, false>([a, b, c], from, sum),
            (3, false) => pass::<3, true>([a, b, c], from, sum),
            (_, true) => pass::<4, false>([a, b, c, d], from, sum),
            (_, false) => pass::<4, true>([a, b, c, d], from, sum),
        }
        if count < GROUP {
            return;
        }
        doubled = true;
    }
}

/// Cuts each column to the block at `from`, all of `len` bytes.
#[inline(always)]
pub(super) fn block<const N: usize>(columns: [&[u8]; N], from: usize, len: usize) -> [&[u8]; N] {
    columns.map(|column| &column[from..from + len])
}

/// `sum = columns`, added up.
#[inline(never)]
fn set<const N: usize>(columns: [&[u8]; N], from: usize, sum: &mut [u8]) {
    let columns = block(columns, from, sum.len());
    for (i, sum) in sum.iter_mut().enumerate() {
        *sum = columns.iter().fold(0, |all, column| all ^ column[i]);
    }
}

/// `sum = (2) sum + columns`.
#[inline(never)]
fn pass<const N: usize, const DOUBLE: bool>(columns: [&[u8]; N], from: usize, sum: &mut [u8]) {
    let columns = block(columns, from, sum.len());
    for (i, sum) in sum.iter_mut().enumerate() {
        let before = if DOUBLE { double(*sum) } else { *sum };
        *sum = columns.iter().fold(before, |all, column| all ^ column[i]);
    }
}
