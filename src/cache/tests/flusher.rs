//! What is flushed when, by explicit calls and by the threads.

use std::time::Duration;

use super::fake::Fake;
use crate::cache::{Admission, Backing, CacheOptions, Flusher, PAGE_BYTES};
use crate::limits::FLUSH_BATCH_BYTES;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::units::MIB;

const P: u64 = PAGE_BYTES;

/// Lets the threads work until something holds; the suite's own time limit ends it otherwise.
fn until(fake: &Arc<Fake>, holds: impl Fn(&Fake) -> bool) {
    while !holds(fake) {
        fake.clock.advance(Duration::from_millis(100));
        std::thread::yield_now();
    }
}

#[test]
fn old_files_are_due_in_order_of_age() {
    let fake = Fake::new(64 * MIB);
    for ino in [3, 1, 2] {
        assert_eq!(fake.cache.write(ino, 0, &[1; 10], 0), Ok(1));
        fake.clock.advance(Duration::from_secs(2));
    }
    assert!(fake.cache.due(Duration::from_secs(4)).is_empty());
    assert_eq!(fake.cache.due(Duration::from_secs(6)), [3]);
    assert_eq!(fake.cache.due(Duration::from_secs(7)), [3, 1]);
    fake.cache.postpone(3);
    assert_eq!(fake.cache.due(Duration::from_secs(9)), [1, 2]);
    fake.cache.hurry(2);
    assert_eq!(fake.cache.due(Duration::from_secs(5)), [2]);
    assert_eq!(fake.cache.dirty_files(), [2, 1, 3]);
    fake.flush(&[1, 2]).expect("no failure ordered");
    assert_eq!(fake.cache.due(Duration::from_secs(100)), [3]);
}

#[test]
fn under_pressure_the_oldest_go_first_and_only_as_many_as_needed() {
    let fake = Fake::new(4 * MIB);
    for ino in 1..=12 {
        assert_eq!(fake.cache.write(ino, 0, &[1; 131_072], 0), Ok(32));
        fake.clock.advance(Duration::from_millis(1));
    }
    // 1.5 MiB are dirty; a quarter of the limit is 512 KiB.
    assert_eq!(fake.cache.due(fake.clock.elapsed()), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_ne!(fake.cache.admit(P), Admission::Wait);
    assert_eq!(fake.cache.admit(MIB), Admission::Wait);
    assert!(!fake.cache.wait_for_room(MIB, Duration::MAX));
}

#[test]
fn under_pressure_nothing_young_goes_before_it_is_a_batch() {
    let fake = Fake::new(4 * MIB);
    for ino in 1..=7 {
        assert_eq!(fake.cache.write(ino, 0, &[1; 131_072], 0), Ok(32));
    }
    assert!(fake.cache.due(fake.clock.elapsed()).is_empty(), "384 KiB too much are no batch");
    assert_eq!(fake.cache.write(8, 0, &[1; 131_072], 0), Ok(32));
    assert_eq!(fake.cache.due(fake.clock.elapsed()).len(), 4);
}

#[test]
fn a_batch_is_bounded() {
    let fake = Fake::new(256 * MIB);
    for ino in 1..=40 {
        assert_eq!(fake.cache.write(ino, 0, &vec![1; 1 << 20], 0), Ok(256));
    }
    assert_eq!(fake.cache.due(Duration::from_secs(9)).len() as u64, FLUSH_BATCH_BYTES / MIB);
}

#[test]
fn the_threads_flush_by_age_and_make_room() {
    let options =
        CacheOptions { bytes: 4 * MIB, dirty_bytes: 2 * MIB, commit_age: Duration::from_millis(50) };
    let fake = Fake::with(options);
    let flusher = Flusher::start(&fake.cache);
    for i in 0..64 {
        assert!(fake.cache.wait_for_room(MIB, Duration::MAX));
        assert!(fake.cache.write(1 + i % 3, (i / 3) * MIB, &vec![i as u8; 1 << 20], 0).is_ok());
        assert!(fake.cache.stats().dirty_bytes <= 2 * MIB);
    }
    until(&fake, |fake| fake.cache.stats().dirty_bytes == 0);
    flusher.stop();
    for i in 0..64_u64 {
        let file = 1 + i % 3;
        assert_eq!(fake.files.lock()[&file][((i / 3) << 20) as usize + 77], i as u8);
    }
}

#[test]
fn a_failing_flush_keeps_the_data_and_is_tried_again() {
    let options = CacheOptions { bytes: 4 * MIB, dirty_bytes: 2 * MIB, commit_age: Duration::ZERO };
    let fake = Fake::with(options);
    fake.flush_fails.store(true, Ordering::SeqCst);
    assert_eq!(fake.cache.write(1, 0, &[7; 10], 0), Ok(1));
    let flusher = Flusher::start(&fake.cache);
    until(&fake, |fake| fake.flushes.load(Ordering::SeqCst) > 0);
    assert!(fake.cache.has_dirty(1));
    fake.flush_fails.store(false, Ordering::SeqCst);
    until(&fake, |fake| !fake.cache.has_dirty(1));
    flusher.stop();
    assert_eq!(fake.files.lock()[&1][..10], [7; 10]);
}

#[test]
fn a_file_held_back_does_not_keep_the_threads_busy_or_from_others() {
    let options = CacheOptions { bytes: 4 * MIB, dirty_bytes: 2 * MIB, commit_age: Duration::from_secs(5) };
    let fake = Fake::with(options);
    fake.held_back.lock().insert(1);
    assert_eq!(fake.cache.write(1, 0, &[7; 10], 0), Ok(1));
    fake.clock.advance(Duration::from_secs(60));
    let flusher = Flusher::start(&fake.cache);
    while fake.cache.oldest_dirty() != Some((1, Duration::from_secs(60))) {
        std::thread::yield_now();
    }
    // Passed over once, it ages anew; the clock stands, so it is not asked for again.
    assert_eq!(fake.flushes.load(Ordering::SeqCst), 1);
    assert_eq!(fake.cache.write(2, 0, &[7; 10], 0), Ok(1));
    fake.cache.hurry(2);
    while fake.cache.has_dirty(2) {
        std::thread::yield_now();
    }
    drop(flusher);
    assert!(fake.cache.has_dirty(1));
}
