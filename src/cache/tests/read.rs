//! Loading: read-ahead, damage, and loads that are overtaken.

use super::fake::{Fake, Random};
use crate::cache::{CacheError, PAGE_BYTES};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, spawn};
use crate::units::MIB;

const P: u64 = PAGE_BYTES;

#[test]
fn read_ahead_is_bounded_by_the_file_and_grows_to_its_limit() {
    let fake = Fake::new(64 * MIB);
    let size = 5 * MIB + 100;
    let content = Random(5).bytes(size as usize);
    fake.put(1, content.clone());
    let mut offset = 0;
    while offset < size {
        let len = (size - offset).min(65_536) as usize;
        assert!(fake.read(1, offset, len, size) == content[offset as usize..][..len]);
        offset += len as u64;
    }
    let loads = fake.take_loads();
    assert!(loads.iter().all(|(at, len)| *len as u64 <= MIB && at + *len as u64 <= size.next_multiple_of(P)));
    assert!(loads.len() <= 12 && loads.iter().any(|(_, len)| *len as u64 == MIB), "{loads:?}");
    assert_eq!(loads.iter().map(|(_, len)| *len as u64).sum::<u64>(), size.next_multiple_of(P));
}

#[test]
fn a_reader_that_jumps_loads_only_what_it_asks_for() {
    let fake = Fake::new(64 * MIB);
    fake.put(1, vec![1; 8 << 20]);
    for page in [900, 3, 500, 77, 1200] {
        fake.read(1, page * P + 5, 10, 8 * MIB);
    }
    assert!(fake.take_loads().iter().all(|(_, len)| *len == 4096));
    let stats = fake.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.read_ahead), (0, 5, 0));
    fake.read(1, 3 * P, 4096, 8 * MIB);
    assert_eq!(fake.cache.stats().hits, 1);
}

#[test]
fn beyond_the_size_everything_is_zero() {
    let fake = Fake::new(MIB);
    fake.put(1, vec![9; 10_000]);
    let buf = fake.read(1, 4000, 10_000, 5000);
    assert!(buf[..1000].iter().all(|byte| *byte == 9) && buf[1000..].iter().all(|byte| *byte == 0));
    assert_eq!(fake.read(1, 5000, 10, 5000), [0; 10]);
}

#[test]
fn damage_ahead_of_the_reader_does_not_fail_it() {
    let fake = Fake::new(MIB);
    fake.put(1, vec![3; 20 * 4096]);
    fake.bad.lock().insert(7 * P);
    assert_eq!(fake.read(1, 0, 4096, 20 * P), [3; 4096]);
    assert_eq!(fake.cache.stats().load_errors, 0);
}

#[test]
fn only_the_bad_sector_fails_and_what_lies_before_it_is_served() {
    let fake = Fake::new(MIB);
    fake.put(1, vec![3; 20 * 4096]);
    fake.bad.lock().extend([2 * P, 5 * P]);
    for offset in [0, 100] {
        let mut buf = vec![0xee; 10 * 4096];
        let error = fake.cache.read(1, offset, &mut buf, 20 * P).expect_err("a sector is bad");
        assert_eq!(error, CacheError::Unreadable { ino: 1, offset: 2 * P, len: P, message: "rotten".into() });
        assert!(buf[..(2 * P - offset) as usize].iter().all(|byte| *byte == 3));
    }
    assert_eq!(fake.read(1, 3 * P, 2 * 4096, 20 * P), [3; 8192]);
    assert_eq!(fake.read(1, 6 * P, 4096, 20 * P), [3; 4096]);
    // A partial write can't keep what it can't read; a whole one need not.
    assert!(fake.cache.write(1, 2 * P, &[1; 10], 20 * P).is_err());
    assert_eq!(fake.cache.dirty_bytes_of(1), 0);
    assert_eq!(fake.cache.write(1, 2 * P, &[1; 4096], 20 * P), Ok(1));
    assert_eq!(fake.read(1, 2 * P, 2, 20 * P), [1; 2]);
}

#[test]
fn without_a_backing_only_what_is_cached_works() {
    let fake = Fake::new(MIB);
    let cache = fake.cache.clone();
    drop(fake);
    assert_eq!(cache.write(1, 0, &[1; 100], 0), Ok(1));
    let mut buf = [0; 100];
    assert_eq!(cache.read(1, 0, &mut buf, 100), Ok(()));
    assert_eq!(cache.read(2, 0, &mut buf, 100), Err(CacheError::NoBacking { ino: 2 }));
    assert_eq!(cache.stats().files, 1);
}

#[test]
fn a_load_overtaken_by_a_write_or_a_truncation_is_not_kept() {
    let fake = Fake::new(MIB);
    fake.put(1, vec![3; 4 * 4096]);
    let weak = Arc::downgrade(&fake);
    let once = AtomicBool::new(true);
    *fake.on_load.lock() = Some(Box::new(move |_, _| {
        if let Some(fake) = weak.upgrade()
            && once.swap(false, Ordering::SeqCst)
        {
            assert_eq!(fake.cache.write(1, 0, &[8; 4096], 0), Ok(1));
            fake.cache.discard(1, 2 * P, u64::MAX);
            fake.put(1, vec![3; 2 * 4096]);
        }
    }));
    let buf = fake.read(1, 0, 4 * 4096, 4 * P);
    assert!(buf[..4096] == [8; 4096] && buf[4096..8192] == [3; 4096] && buf[8192..] == [0; 8192]);
    // Within a page, by way of a scratch buffer.
    assert_eq!(fake.read(1, 4090, 10, 4 * P), [8, 8, 8, 8, 8, 8, 3, 3, 3, 3]);
}

#[test]
fn readers_of_one_missing_page_load_it_once() {
    let fake = Fake::new(MIB);
    fake.put(1, vec![3; 4096]);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let fake = fake.clone();
            spawn("reader", move || assert!(fake.read(1, 0, 4096, P) == [3; 4096]))
        })
        .collect();
    for reader in readers {
        reader.join().expect("the page is right");
    }
    assert_eq!(fake.take_loads().len(), 1);
}

#[test]
fn a_panic_in_a_load_leaves_nobody_waiting() {
    let fake = Fake::new(MIB);
    fake.put(1, vec![3; 4096]);
    *fake.on_load.lock() = Some(Box::new(|_, _| panic!("ordered")));
    let other = fake.clone();
    let reader = spawn("reader", move || assert_eq!(other.read(1, 0, 1, P), [3]));
    assert!(reader.join().is_err());
    *fake.on_load.lock() = None;
    assert_eq!(fake.read(1, 0, 3, P), [3; 3]);
    fake.cache.drop_clean();
    assert_eq!(fake.cache.stats().bytes, 0);
}

#[test]
fn a_load_overtaken_by_a_write_that_was_flushed_and_evicted_is_not_kept() {
    let fake = Fake::new(MIB);
    fake.put(1, vec![3; 2 * 4096]);
    let weak = Arc::downgrade(&fake);
    let once = AtomicBool::new(true);
    *fake.on_load.lock() = Some(Box::new(move |_, _| {
        if let Some(fake) = weak.upgrade()
            && once.swap(false, Ordering::SeqCst)
        {
            assert_eq!(fake.cache.write(1, 0, &[8; 4096], 0), Ok(1));
            fake.commit(fake.cache.capture(1, 0, u64::MAX, u64::MAX));
            fake.cache.drop_clean();
        }
    }));
    // The slot is as empty as when the load began, but the load's bytes are old.
    let buf = fake.read(1, 0, 2 * 4096, 2 * P);
    assert!(buf[..4096] == [8; 4096] && buf[4096..] == [3; 4096]);
}
