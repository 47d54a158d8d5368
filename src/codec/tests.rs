//! The codec against a plain reference: byte by byte, with multiplication as on paper.

use super::*;

/// `a b` in GF(2^8): carry-less product, then division by 0x11d.
fn reference_multiply(a: u8, b: u8) -> u8 {
    let mut product =
        (0..8).filter(|bit| b >> bit & 1 != 0).fold(0_u16, |sum, bit| sum ^ (u16::from(a) << bit));
    for bit in (8..15).rev() {
        if product >> bit & 1 != 0 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

/// All columns of a stripe: the data, then `m` parity columns.
fn reference_stripe(data: &[Vec<u8>], m: usize) -> Vec<Vec<u8>> {
    let mut columns = data.to_vec();
    for row in 0..m {
        let mut parity = vec![0; data[0].len()];
        let mut constant = 1;
        for column in data {
            parity.iter_mut().zip(column).for_each(|(sum, &byte)| *sum ^= reference_multiply(constant, byte));
            constant = reference_multiply(constant, 1 << row);
        }
        columns.push(parity);
    }
    columns
}

fn random_data(k: usize, len: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut byte = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..k).map(|_| (0..len).map(|_| byte()).collect()).collect()
}

/// Rebuilds each column of `lost` from all others that are not lost.
fn check_loss(columns: &[Vec<u8>], k: usize, lost: &[usize]) {
    let present: Vec<(usize, &[u8])> = columns
        .iter()
        .enumerate()
        .filter(|(i, _)| !lost.contains(i))
        .map(|(i, c)| (i, c.as_slice()))
        .collect();
    for &wanted in lost {
        let mut out = vec![0xee; columns[0].len()];
        reconstruct(k, columns.len() - k, &present, wanted, &mut out).unwrap();
        assert!(out == columns[wanted], "k {k} of {}, lost {lost:?}, wanted {wanted}", columns.len());
    }
}

/// Calls `check` with every choice of at most `most` of `0..n`.
fn for_each_choice(n: usize, most: usize, check: &mut impl FnMut(&[usize])) {
    fn extend(chosen: &mut Vec<usize>, from: usize, n: usize, most: usize, check: &mut impl FnMut(&[usize])) {
        check(chosen);
        if chosen.len() < most {
            for next in from..n {
                chosen.push(next);
                extend(chosen, next + 1, n, most, check);
                chosen.pop();
            }
        }
    }
    extend(&mut Vec::new(), 0, n, most, check);
}

#[test]
fn encoding_is_what_the_reference_says_at_every_length() {
    for len in [0, 1, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 1023, 1024, 1025, 4096, 5000] {
        for k in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 31, 32] {
            let data = random_data(k, len, (len * 100 + k) as u64);
            let columns: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            for m in 1..=3 {
                let mut parity = vec![vec![0xee; len]; m];
                let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                encode(&columns, &mut outputs);
                assert!(parity == reference_stripe(&data, m)[k..], "{k}+{m}, {len} bytes");
            }
        }
    }
}

#[test]
fn every_loss_of_every_shape_is_rebuilt() {
    for k in 1..=32 {
        for m in 1..=3 {
            let columns = reference_stripe(&random_data(k, 9, k as u64), m);
            for_each_choice(k + m, m, &mut |lost| check_loss(&columns, k, lost));
        }
    }
}

#[test]
fn rebuilding_works_at_every_length() {
    for len in [0, 1, 17, 63, 64, 100, 1023, 1024, 1025, 4096, 5001] {
        for (k, m) in [(1, 1), (2, 1), (4, 2), (5, 3), (9, 3)] {
            let columns = reference_stripe(&random_data(k, len, len as u64), m);
            for_each_choice(k + m, m, &mut |lost| check_loss(&columns, k, lost));
        }
    }
}

#[test]
fn exactly_k_columns_are_enough_whichever_they_are() {
    // Losing all but k, and wanting one, whatever else is lost: parity from parity as well.
    let (k, m) = (3, 3);
    let columns = reference_stripe(&random_data(k, 40, 5), m);
    for_each_choice(k + m, m, &mut |lost| {
        let mut lost = lost.to_vec();
        lost.extend((0..k + m).filter(|i| !lost.contains(i)).take(m - lost.len()).collect::<Vec<_>>());
        check_loss(&columns, k, &lost);
    });
}

#[test]
fn a_present_column_is_copied() {
    let columns = reference_stripe(&random_data(2, 40, 5), 1);
    let mut out = vec![0; 40];
    assert_eq!(reconstruct(2, 1, &[(1, &columns[1])], 1, &mut out), Ok(()));
    assert_eq!(out, columns[1]);
}

#[test]
fn what_can_not_be_rebuilt_is_an_error_and_leaves_the_output() {
    let (a, b): (&[u8], &[u8]) = (&[1; 8], &[2; 8]);
    let try_it = |k, m, present: &[(usize, &[u8])], wanted| {
        let mut out = [7; 8];
        let result = reconstruct(k, m, present, wanted, &mut out);
        assert!(result.is_ok() || out == [7; 8]);
        result
    };
    assert_eq!(try_it(2, 1, &[(0, a)], 1), Err(CodecError::TooFew { present: 1, needed: 2 }));
    assert_eq!(try_it(2, 2, &[(0, a)], 3), Err(CodecError::TooFew { present: 1, needed: 2 }));
    assert_eq!(try_it(2, 1, &[], 0), Err(CodecError::TooFew { present: 0, needed: 2 }));
    assert_eq!(try_it(2, 1, &[(0, a), (0, b)], 1), Err(CodecError::Twice { column: 0 }));
    assert_eq!(try_it(2, 1, &[(0, a), (3, b)], 1), Err(CodecError::NoSuchColumn { column: 3, columns: 3 }));
    assert_eq!(try_it(2, 1, &[(0, a), (2, b)], 3), Err(CodecError::NoSuchColumn { column: 3, columns: 3 }));
    let short = CodecError::Length { column: 2, expected: 8, got: 7 };
    assert_eq!(try_it(2, 1, &[(0, a), (2, &b[1..])], 1), Err(short));
    for (k, m) in [(0, 1), (33, 1), (2, 0), (2, 4)] {
        assert_eq!(try_it(k, m, &[(0, a)], 1), Err(CodecError::Shape { data: k, parity: m }));
    }
}

#[test]
#[should_panic(expected = "different lengths")]
fn encoding_columns_of_different_lengths_is_a_mistake_of_the_caller() {
    encode(&[&[0; 4], &[0; 5]], &mut [&mut [0; 4]]);
}
