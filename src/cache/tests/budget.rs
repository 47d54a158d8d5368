//! The memory budget and the order of eviction.

use super::fake::Fake;
use crate::cache::{Backing, PAGE_BYTES};
use crate::units::MIB;

const P: u64 = PAGE_BYTES;

#[test]
fn clean_data_never_exceeds_the_budget() {
    let fake = Fake::new(MIB);
    fake.put(1, vec![1; 8 << 20]);
    for i in 0..256_u64 {
        fake.read(1, (i * 37 % 256) * 32_768, 32_768, 8 * MIB);
        assert!(fake.cache.stats().bytes <= MIB + 4096);
    }
    assert!(fake.cache.stats().evictions > 0);
    assert!(fake.cache.stats().bytes > MIB / 2);
}

#[test]
fn dirty_data_is_never_evicted_and_gives_way_once_written() {
    let fake = Fake::new(MIB);
    for i in 0..512 {
        assert_eq!(fake.cache.write(1, i * P, &[i as u8; 4096], 0), Ok(1));
    }
    let stats = fake.cache.stats();
    assert_eq!((stats.dirty_bytes, stats.evictions), (512 * P, 0));
    fake.put(2, vec![1; 4096]);
    fake.read(2, 0, 4096, P);
    fake.flush(&[1]).expect("no failure ordered");
    assert!(fake.cache.stats().bytes <= MIB);
    for i in 0..512 {
        assert_eq!(fake.read(1, i * P, 1, 512 * P), [i as u8]);
    }
}

#[test]
fn what_is_used_again_and_again_stays() {
    let fake = Fake::new(4 * MIB);
    fake.put(1, vec![1; 65_536]);
    fake.put(2, vec![2; 64 << 20]);
    for i in 0..1024 {
        fake.read(1, (i % 16) * P, 100, 65_536);
        fake.read(2, i * 65_536, 65_536, 64 * MIB);
    }
    let loads_of_hot = fake.take_loads().iter().filter(|(_, len)| *len < 65_536).count();
    assert!(loads_of_hot <= 1, "the hot block was loaded {loads_of_hot} times");
}

#[test]
fn an_overwrite_in_flight_is_counted_until_the_flight_ends() {
    let fake = Fake::new(MIB);
    assert_eq!(fake.cache.write(1, 0, &[1; 65_536], 0), Ok(16));
    let before = fake.cache.stats().bytes;
    let captured = fake.cache.capture(1, 0, u64::MAX, u64::MAX);
    assert_eq!(fake.cache.write(1, 0, &[2; 65_536], 0), Ok(0));
    assert_eq!(fake.cache.write(1, 0, &[3; 65_536], 0), Ok(0));
    assert!(fake.cache.stats().bytes >= before + 16 * P);
    assert_eq!(captured.finish(), 0);
    assert_eq!(fake.cache.stats().bytes, before);
}

#[test]
fn removed_files_leave_nothing_behind() {
    let fake = Fake::new(64 * MIB);
    for ino in 1..2000 {
        assert_eq!(fake.cache.write(ino, 0, &[1; 5000], 0), Ok(2));
        fake.flush(&[ino]).expect("no failure ordered");
        fake.cache.forget(ino);
    }
    let stats = fake.cache.stats();
    assert_eq!((stats.bytes, stats.files, fake.cache.0.lru.len()), (0, 0, 0));
}
