//! What capture, still_there, finish and abandon promise.

use std::time::Duration;

use super::fake::Fake;
use crate::cache::PAGE_BYTES;
use crate::sync::spawn;

const P: u64 = PAGE_BYTES;

#[test]
fn a_page_overwritten_in_flight_stays_dirty_and_may_be_mapped() {
    let fake = Fake::new(1 << 20);
    let cache = &fake.cache;
    assert_eq!(cache.write(1, 0, &[1; 8192], 0), Ok(2));
    let captured = cache.capture(1, 0, u64::MAX, u64::MAX);
    assert_eq!(cache.write(1, 0, &[2; 100], 0), Ok(0));
    assert_eq!(captured.still_there(), [(0, 2 * P)]);
    assert!(captured.runs[0].pages[0].iter().all(|byte| *byte == 1));
    assert_eq!(fake.commit(captured), 1);
    assert_eq!(cache.dirty_ranges(1, 0, u64::MAX), [(0, P)]);
    let again = cache.capture(1, 0, u64::MAX, u64::MAX);
    assert_eq!(again.runs[0].pages[0][99..101], [2, 1]);
    assert_eq!(fake.commit(again), 1);
    assert!(!cache.has_dirty(1));
}

#[test]
fn a_page_dropped_in_flight_is_not_there_any_more_even_if_written_again() {
    let fake = Fake::new(1 << 20);
    let cache = &fake.cache;
    assert_eq!(cache.write(1, 0, &[1; 3 * 4096], 0), Ok(3));
    let captured = cache.capture(1, 0, u64::MAX, u64::MAX);
    assert_eq!(cache.discard(1, P, 2 * P), 1);
    assert_eq!(cache.write(1, P, &[5; 4096], 0), Ok(1));
    assert_eq!(captured.still_there(), [(0, P), (2 * P, P)]);
    // The new page is not part of the first capture, so a second may take it.
    let second = cache.capture(1, 0, u64::MAX, u64::MAX);
    assert_eq!(second.still_there(), [(P, P)]);
    assert_eq!(captured.finish(), 2);
    assert_eq!(second.finish(), 1);
    assert_eq!(cache.stats().dirty_bytes, 0);
}

#[test]
fn a_file_forgotten_in_flight_leaves_nothing() {
    let fake = Fake::new(1 << 20);
    let cache = &fake.cache;
    assert_eq!(cache.write(1, 0, &[1; 100_000], 0), Ok(25));
    let captured = cache.capture(1, 0, u64::MAX, u64::MAX);
    assert_eq!(cache.forget(1), 25);
    assert_eq!(cache.write(1, 0, &[2; 10], 0), Ok(1));
    assert!(captured.still_there().is_empty());
    assert_eq!(captured.finish(), 0);
    assert_eq!(cache.forget(1), 1);
    let stats = cache.stats();
    assert_eq!((stats.bytes, stats.in_flight_bytes, stats.files), (0, 0, 0));
}

#[test]
fn a_capture_goes_on_where_the_last_ended_and_takes_no_page_twice() {
    let fake = Fake::new(1 << 20);
    let cache = &fake.cache;
    assert_eq!(cache.write(1, 10 * P, &[1; 30 * 4096], 0), Ok(30));
    let first = cache.capture(1, 0, u64::MAX, 12 * P);
    assert_eq!((first.runs[0].offset, first.len(), first.end()), (10 * P, 12 * P, 22 * P));
    let second = cache.capture(1, first.end(), u64::MAX, u64::MAX);
    assert_eq!((second.runs[0].offset, second.len()), (22 * P, 18 * P));
    assert!(cache.capture(1, 0, u64::MAX, u64::MAX).is_empty());
    assert_eq!(cache.stats().in_flight_bytes, 30 * P);
    drop(first);
    second.abandon();
    assert_eq!(cache.stats().in_flight_bytes, 0);
    assert_eq!(cache.capture(1, 0, u64::MAX, u64::MAX).len(), 30 * P);
}

#[test]
fn peeking_leaves_data_dirty_and_keeps_to_its_limit() {
    let fake = Fake::new(1 << 20);
    let cache = &fake.cache;
    assert_eq!(cache.write(1, 0, &[1; 4096], 0), Ok(1));
    assert_eq!(cache.write(1, 3 * P, &[2; 8192], 0), Ok(2));
    assert_eq!(cache.peek_dirty(1, 2 * P), None);
    let captured = cache.capture(1, 0, u64::MAX, P);
    let runs = cache.peek_dirty(1, 3 * P).expect("within the limit");
    assert_eq!(runs.iter().map(|run| (run.offset, run.len())).collect::<Vec<_>>(), [(0, P), (3 * P, 2 * P)]);
    // Who peeked keeps seeing what it saw.
    assert_eq!(cache.write(1, 3 * P, &[9; 1], 0), Ok(0));
    assert_eq!(runs[1].pages[0][0], 2);
    drop(captured);
    assert_eq!(cache.dirty_bytes_of(1), 3 * P);
    assert_eq!(cache.peek_dirty(77, 0), Some(Vec::new()));
}

#[test]
fn waiting_for_flights_ends_when_they_have_landed() {
    let fake = Fake::new(1 << 20);
    fake.cache.wait_in_flight(1);
    assert_eq!(fake.cache.write(1, 0, &[1; 4096], 0), Ok(1));
    fake.cache.wait_in_flight(1);
    let captured = fake.cache.capture(1, 0, u64::MAX, u64::MAX);
    let other = fake.clone();
    let waiter = spawn("waiter", move || {
        other.cache.wait_in_flight(1);
        assert!(!other.cache.has_dirty(1));
    });
    captured.finish();
    waiter.join().expect("the file is clean");
}

#[test]
fn age_counts_from_the_oldest_data_that_no_capture_has() {
    let fake = Fake::new(1 << 20);
    let cache = &fake.cache;
    let second = Duration::from_secs(1);
    fake.clock.advance(second);
    assert_eq!(cache.write(1, 0, &[1; 4096], 0), Ok(1));
    assert_eq!(cache.oldest_dirty(), Some((1, second)));
    let captured = cache.capture(1, 0, u64::MAX, u64::MAX);
    assert_eq!(cache.oldest_dirty(), None);
    fake.clock.advance(second);
    assert_eq!(cache.write(1, 0, &[2; 4096], 0), Ok(0));
    assert_eq!(captured.finish(), 0);
    assert_eq!(cache.oldest_dirty(), Some((1, 2 * second)));
    let captured = cache.capture(1, 0, u64::MAX, u64::MAX);
    fake.clock.advance(second);
    captured.abandon();
    assert_eq!(cache.oldest_dirty(), Some((1, 2 * second)));
    fake.cache.forget(1);
    assert_eq!(cache.oldest_dirty(), None);
}

#[test]
fn zeroing_dirties_only_pages_with_content() {
    let fake = Fake::new(1 << 20);
    let cache = &fake.cache;
    let mut content = vec![0; 8192];
    content[100] = 7;
    fake.put(1, content);
    assert_eq!(cache.zero(1, 101, 4096, 8192), Ok(0));
    assert_eq!(cache.zero(1, 4096, 5000, 8192), Ok(0));
    assert_eq!(cache.zero(1, 9000, 9001, 8192), Ok(0));
    assert_eq!(cache.zero(1, 50, 200, 8192), Ok(1));
    assert_eq!(fake.read(1, 100, 1, 8192), [0]);
    assert!(cache.zero(1, 50, 4097, 8192).is_err());
}
