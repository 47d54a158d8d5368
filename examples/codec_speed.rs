//! How fast parity is: `cargo run --release --example codec_speed`. Bytes of data per second on one
//! core, over 64 KiB columns that stay in the cache.

use std::hint::black_box;
use std::time::{Duration, Instant};

use poolfs::codec::{checksums, encode, reconstruct};

const COLUMN_LEN: usize = 64 * 1024;

/// GB/s of the best of some rounds of `work`, which handles `bytes` bytes.
fn gigabytes_per_second(bytes: usize, mut work: impl FnMut()) -> f64 {
    const CALLS: u32 = 50;
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        (0..CALLS).for_each(|_| work());
        best = best.min(start.elapsed() / CALLS);
    }
    bytes as f64 / best.as_secs_f64() / 1e9
}

/// A line for one shape: encoding, and rebuilding one, and as many columns as can be lost.
fn measure(k: usize, m: usize) {
    let columns: Vec<Vec<u8>> =
        (0..k).map(|k| (0..COLUMN_LEN).map(|i| (i * 31 + k * 7) as u8).collect()).collect();
    let data: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
    let mut parity = vec![vec![0; COLUMN_LEN]; m];
    let encoding = gigabytes_per_second(k * COLUMN_LEN, || {
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        encode(black_box(&data), black_box(&mut outputs));
    });
    let all: Vec<(usize, &[u8])> =
        data.iter().copied().chain(parity.iter().map(Vec::as_slice)).enumerate().collect();
    let mut out = vec![0; COLUMN_LEN];
    let mut rebuilding = |lost: usize| {
        gigabytes_per_second(k * COLUMN_LEN, || {
            let result = reconstruct(k, m, black_box(&all[lost..]), 0, black_box(&mut out));
            assert!(result.is_ok());
        })
    };
    println!(
        "{k}+{m}: encode {encoding:5.1}, rebuild 1 lost {:5.1}, {m} lost {:5.1}",
        rebuilding(1),
        rebuilding(m)
    );
}

fn main() {
    let (from, mut to) = (vec![1_u8; 4 * COLUMN_LEN], vec![0_u8; 4 * COLUMN_LEN]);
    let copying = gigabytes_per_second(from.len(), || black_box(&mut to).copy_from_slice(black_box(&from)));
    let summing = gigabytes_per_second(from.len(), || drop(black_box(checksums(black_box(&from)))));
    println!("GB/s of data, one core, {} KiB columns", COLUMN_LEN / 1024);
    println!("copy {copying:.1}, checksums {summing:.1}");
    for (k, m) in [(2, 1), (4, 1), (2, 2), (4, 2), (8, 2), (4, 3), (8, 3)] {
        measure(k, m);
    }
}
