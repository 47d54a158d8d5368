//! The pool over simulated disks: layouts, losses, rot, failures in the middle, space.

use super::simulated::SimPool;
use super::status::MemberStatus;
use super::{Chunk, Degraded, JournalEnd, Piece, Pool, PoolError};
use crate::layout::Resiliency;
use crate::member::{Area, SLAB_HEADER_BYTES};
use crate::sync::Arc;
use crate::units::{MIB, SECTOR, SECTOR_LEN};

fn resiliency(text: &str) -> Resiliency {
    Resiliency::parse(text).expect("known")
}

/// Every layout, with the number of members to try it on.
const LAYOUTS: [(&str, usize); 11] = [
    ("simple", 1),
    ("simple", 3),
    ("mirror", 2),
    ("mirror", 3),
    ("mirror:3", 4),
    ("striped-mirror", 4),
    ("parity", 3),
    ("parity", 5),
    ("parity:2", 5),
    ("parity:3", 6),
    ("parity columns=2", 4),
];

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&crate::member::sim::next_random(&mut state).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Opens the pool and begins to write, as a mount without a store would.
fn start(sim: &SimPool, lost: &[usize]) -> Arc<Pool> {
    let pool = sim.open(lost).expect("assembles");
    let end = JournalEnd { next_seq: 1, tail_seq: 1, live: 0..0 };
    pool.publish(&end, |superblock| superblock.clean = false).expect("publishes");
    pool.start_writing();
    pool
}

/// Opens it once more with the sets it had, as the store would hand them over.
fn reopen(sim: &SimPool, pool: &Pool, lost: &[usize]) -> super::Result<Arc<Pool>> {
    let records: Vec<_> = pool.sets.all().iter().map(|set| set.record()).collect();
    let again = sim.open(lost)?;
    again.load_sets(&records)?;
    Ok(again)
}

fn write(pool: &Pool, chunks: &[Vec<u8>]) -> super::Result<Vec<Piece>> {
    let chunks: Vec<Chunk> = chunks.iter().map(|chunk| Chunk(vec![&chunk[..]])).collect();
    pool.write(&pool.default_resiliency(), &chunks).map(|written| written.pieces.clone())
}

/// Compares every piece with what was written.
fn verify(pool: &Pool, chunks: &[Vec<u8>], pieces: &[Piece], what: &str) {
    for piece in pieces {
        let mut buf = vec![0; piece.len as usize];
        pool.read(piece.set, piece.address, &piece.sums, &mut buf)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let expected = &chunks[piece.chunk][piece.at as usize..(piece.at + piece.len) as usize];
        assert!(buf == expected, "{what}: set {} address {} reads wrong", piece.set, piece.address);
    }
}

/// Sizes from one sector to several rows.
fn chunks() -> Vec<Vec<u8>> {
    let sectors = [1, 3, 700, 2, 64, 65, 1, 300, 1, 1024, 5];
    sectors
        .iter()
        .enumerate()
        .map(|(seed, sectors)| random_bytes(seed as u64, sectors * SECTOR_LEN))
        .collect()
}

fn losses(members: usize, count: usize) -> Vec<Vec<usize>> {
    (0..1usize << members)
        .map(|mask| (0..members).filter(|member| mask & (1 << member) != 0).collect::<Vec<_>>())
        .filter(|lost| lost.len() == count)
        .collect()
}

#[test]
fn pieces_cover_what_was_written() {
    for (text, members) in LAYOUTS {
        let sim = SimPool::create(1, &vec![40; members], resiliency(text)).expect("creates");
        let pool = start(&sim, &[]);
        let chunks = chunks();
        let pieces = write(&pool, &chunks).expect("writes");
        for (index, chunk) in chunks.iter().enumerate() {
            let mut at = 0;
            for piece in pieces.iter().filter(|piece| piece.chunk == index) {
                assert_eq!(piece.at, at, "{text}");
                assert!(piece.len <= MIB && piece.sums.len() as u64 == piece.len / SECTOR);
                at += piece.len;
            }
            assert_eq!(at, chunk.len() as u64, "{text}");
        }
    }
}

#[test]
fn every_loss_that_a_layout_promises_to_survive() {
    for (text, members) in LAYOUTS {
        let tolerance = resiliency(text).tolerance();
        let sim = SimPool::create(2, &vec![40; members], resiliency(text)).expect("creates");
        let pool = start(&sim, &[]);
        let chunks = chunks();
        let pieces: Vec<Piece> = write(&pool, &chunks).expect("writes");
        for count in 0..=tolerance {
            for lost in losses(members, count) {
                let what = format!("{text} on {members}, lost {lost:?}");
                let degraded = reopen(&sim, &pool, &lost).unwrap_or_else(|error| panic!("{what}: {error}"));
                verify(&degraded, &chunks, &pieces, &what);
            }
        }
        if tolerance + 1 < members {
            let refused = losses(members, tolerance + 1)
                .iter()
                .filter(|lost| matches!(reopen(&sim, &pool, lost), Err(PoolError::TooFewLeft { .. })))
                .count();
            assert!(refused > 0, "{text}: losing more than the tolerance must be noticed");
        }
    }
}

#[test]
fn rot_in_any_slot_is_healed_where_there_is_redundancy() {
    for (text, members) in LAYOUTS {
        for victims in losses(members, resiliency(text).tolerance()) {
            let what = format!("{text}, rot on {victims:?}");
            let sim = SimPool::create(3, &vec![40; members], resiliency(text)).expect("creates");
            let pool = start(&sim, &[]);
            let chunks = chunks();
            let pieces = write(&pool, &chunks).expect("writes");
            for set in pool.sets.all() {
                for slot in set.slots.iter().filter(|slot| victims.contains(&usize::from(slot.member))) {
                    for offset in (0..set.filled()).step_by(3 * SECTOR_LEN) {
                        let disk = &sim.disks[usize::from(slot.member)];
                        disk.flip(Area::Slab(slot.slab), SLAB_HEADER_BYTES + offset + 17, 3);
                    }
                }
            }
            verify(&pool, &chunks, &pieces, &what);
            let count = |pool: &Pool| -> (u64, u64) {
                let members = pool.status().members;
                let sum = |of: fn(&MemberStatus) -> u64| members.iter().map(of).sum();
                (sum(|member| member.checksum_errors), sum(|member| member.healed))
            };
            let (found, healed) = count(&pool);
            assert!(victims.is_empty() || found > 0, "{what}");
            assert_eq!(found, healed, "{what}: what was found was healed");
            verify(&pool, &chunks, &pieces, &what);
            assert_eq!(count(&pool), (found, healed), "{what}: and stays healed");
        }
    }
}

#[test]
fn rot_without_redundancy_is_an_error_and_never_wrong_bytes() {
    let sim = SimPool::create(4, &[40, 40], resiliency("simple")).expect("creates");
    let pool = start(&sim, &[]);
    let chunks = chunks();
    let pieces = write(&pool, &chunks).expect("writes");
    let set = &pool.sets.all()[0];
    let slot = set.slots[0];
    sim.disks[usize::from(slot.member)].flip(Area::Slab(slot.slab), SLAB_HEADER_BYTES + 100, 0);
    let mut bad = 0;
    for piece in &pieces {
        let mut buf = vec![0; piece.len as usize];
        match pool.read(piece.set, piece.address, &piece.sums, &mut buf) {
            Ok(()) => assert!(buf == chunks[piece.chunk][piece.at as usize..(piece.at + piece.len) as usize]),
            Err(PoolError::Unreadable { sectors, .. }) => bad += sectors,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(bad, 1, "exactly the sector that rotted");
}

#[test]
fn a_member_that_dies_during_a_write_is_written_around() {
    for (text, members) in LAYOUTS.iter().filter(|(text, _)| !text.starts_with("simple")) {
        let sim = SimPool::create(5, &vec![40; *members], resiliency(text)).expect("creates");
        let pool = start(&sim, &[]);
        let chunks = chunks();
        let before = write(&pool, &chunks).expect("writes");
        sim.disks[1].fail_all();
        let after = write(&pool, &chunks).expect("goes on");
        verify(&pool, &chunks, &before, text);
        verify(&pool, &chunks, &after, text);
        assert!(pool.epoch_is_due(), "{text}: the loss is to be made durable");
        for piece in &after {
            let record = pool.set_record(piece.set).expect("there");
            assert!(
                record.slots.iter().all(|slot| slot.member != 1),
                "{text}: nothing went to the dead member"
            );
        }
    }
}

#[test]
fn a_mirror_of_two_stays_writable_alone_and_says_so() {
    let sim = SimPool::create(6, &[40, 40], resiliency("mirror")).expect("creates");
    let pool = start(&sim, &[]);
    sim.disks[0].fail_all();
    let chunks = chunks();
    let pieces = write(&pool, &chunks).expect("writes short");
    verify(&pool, &chunks, &pieces, "short");
    assert!(pieces.iter().all(|piece| pool.set_record(piece.set).expect("there").short));
    assert!(pool.status().sets_degraded > 0);
}

#[test]
fn short_writes_can_be_refused() {
    let sim = SimPool::create(6, &[40, 40], resiliency("mirror")).expect("creates");
    let options = super::AssembleOptions {
        threads: false,
        degraded: Degraded::Yes,
        refuse_short_writes: Some(true),
        ..Default::default()
    };
    let pool = sim.assemble(&[1], &options).expect("assembles");
    assert!(matches!(pool.reserve(&pool.default_resiliency(), SECTOR), Err(PoolError::ShortRefused { .. })));
}

#[test]
fn reservations_keep_their_word() {
    for (text, members) in LAYOUTS {
        let sim = SimPool::create(7, &vec![12; members], resiliency(text)).expect("creates");
        let pool = start(&sim, &[]);
        let kind = pool.default_resiliency();
        let mut reserved = 0;
        while pool.reserve(&kind, 64 * 1024).is_ok() {
            reserved += 64 * 1024;
        }
        assert!(reserved > 0, "{text}");
        // All of it can be written, in pieces of any size, and every write gives its reservation back.
        let mut left = reserved;
        for round in 0.. {
            let len = (SECTOR_LEN * (1 + round * 7 % 90)).min(left as usize);
            if len == 0 {
                break;
            }
            write(&pool, &[random_bytes(round as u64, len)])
                .unwrap_or_else(|error| panic!("{text}: {left} of {reserved} left: {error}"));
            pool.release(&kind, len as u64);
            left -= len as u64;
        }
    }
}

#[test]
fn what_is_promised_as_available_can_be_written() {
    for slabs in [&[30u64, 30, 30, 30][..], &[20, 30, 60, 90], &[100, 40, 40, 20]] {
        for text in ["simple", "mirror", "mirror:3", "striped-mirror", "parity", "parity:2"] {
            let sim = SimPool::create(8, slabs, resiliency(text)).expect("creates");
            let pool = start(&sim, &[]);
            let kind = pool.default_resiliency();
            let promised = pool.space(&kind).available;
            let mut stored = 0;
            let chunk = random_bytes(1, MIB as usize);
            while pool.reserve(&kind, MIB).is_ok() {
                write(&pool, std::slice::from_ref(&chunk)).expect("was reserved");
                pool.release(&kind, MIB);
                stored += MIB;
            }
            let gap = promised.abs_diff(stored);
            assert!(
                gap <= promised / 50 + 2 * MIB,
                "{text} on {slabs:?}: promised {promised}, stored {stored}"
            );
        }
    }
}

#[test]
fn two_sets_never_share_a_slab() {
    let sim = SimPool::create(9, &[30, 50, 70], resiliency("parity")).expect("creates");
    let pool = start(&sim, &[]);
    let chunk = random_bytes(1, 3 * MIB as usize);
    let mut seen = std::collections::HashSet::new();
    while write(&pool, std::slice::from_ref(&chunk)).is_ok() {}
    for set in pool.sets.all() {
        for slot in &set.slots {
            assert!(seen.insert(*slot), "{slot:?} is used twice");
        }
    }
}

mod slow;

#[test]
fn no_slab_is_given_to_two_takers() {
    // One that is kept may be taken the moment it is given back.
    let sim = SimPool::create(1, &[64], resiliency("simple")).expect("creates");
    let pool = start(&sim, &[]);
    let (member, held) = (&pool.members()[0], crate::sync::Mutex::new(std::collections::BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    let (slab, _) = member.take_slab(0).expect("there are many more than takers");
                    assert!(held.lock().insert(slab), "slab {slab} is taken twice");
                    held.lock().remove(&slab);
                    member.return_slab(slab, || ());
                }
            });
        }
    });
    assert_eq!(member.slab_counts().1, 0);
}
