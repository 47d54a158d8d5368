//! Members that are slow, hang or die while the pool is read and written, in virtual time.

use std::time::Duration;

use super::*;
use crate::member::sim::Pace;
use crate::pool::status::MemberHealth;

const MS: Duration = Duration::from_millis(1);

/// A hard disk, more or less: seeks of 4 to 12 ms, 200 MB/s.
const DISK: Pace = Pace {
    request: Duration::from_millis(4),
    spread: Duration::from_millis(8),
    bytes_per_second: 200_000_000,
    delay: Duration::ZERO,
};

struct Load {
    sim: SimPool,
    pool: Arc<Pool>,
    chunks: Vec<Vec<u8>>,
    pieces: Vec<Piece>,
    random: u64,
}

impl Load {
    fn new(text: &str, members: usize) -> Self {
        let sim = SimPool::create(11, &vec![100; members], resiliency(text)).expect("creates");
        let pool = start(&sim, &[]);
        let chunks: Vec<Vec<u8>> = (0..6).map(|seed| random_bytes(seed, 700 * SECTOR_LEN)).collect();
        let pieces = write(&pool, &chunks).expect("writes");
        sim.disks.iter().for_each(|disk| disk.set_pace(DISK));
        Self { sim, pool, chunks, pieces, random: 5 }
    }

    fn clock(&self) -> Duration {
        self.sim.world.clock().elapsed()
    }

    /// Reads a sector anywhere, and says how long that took.
    fn read_one(&mut self) -> Duration {
        let random = crate::member::sim::next_random(&mut self.random) as usize;
        let piece = &self.pieces[random % self.pieces.len()];
        let sector = (random >> 32) % piece.sums.len();
        let at = sector as u64 * SECTOR;
        let mut buf = vec![0; SECTOR_LEN];
        let began = self.clock();
        self.pool.read(piece.set, piece.address + at, &piece.sums[sector..=sector], &mut buf).expect("reads");
        let from = (piece.at + at) as usize;
        assert!(buf == self.chunks[piece.chunk][from..from + SECTOR_LEN], "wrong bytes");
        self.clock() - began
    }

    /// The 99 % time of so many reads.
    fn usual(&mut self, reads: usize) -> Duration {
        let mut times: Vec<Duration> = (0..reads).map(|_| self.read_one()).collect();
        times.sort();
        times[reads * 99 / 100]
    }

    fn health(&self, member: usize) -> MemberHealth {
        self.pool.status().members[member].health
    }
}

/// "One member delayed by 500 ms for each request: reads of a mirror and of a parity pool within 5 times the healthy
/// 99 % time until it is flagged, which takes at most 1 s of load, and within twice after that."
#[test]
fn a_member_delayed_by_half_a_second_does_not_delay_reads() {
    for (text, members) in [
        ("mirror", 2),
        ("mirror", 3),
        ("mirror:3", 4),
        ("striped-mirror", 4),
        ("parity", 3),
        ("parity", 5),
        ("parity:2", 6),
    ] {
        let mut load = Load::new(text, members);
        let healthy = load.usual(2000);
        assert!(healthy > 9 * MS && healthy < 14 * MS, "{text}: {healthy:?}");
        for member in 0..members {
            assert_eq!(load.health(member), MemberHealth::Online, "{text}");
        }
        load.sim.disks[1].set_pace(Pace { delay: 500 * MS, ..DISK });
        let began = load.clock();
        while load.health(1) != MemberHealth::Slow {
            let took = load.read_one();
            assert!(
                took <= 5 * healthy,
                "{text} on {members}: {took:?} before it was flagged, usual {healthy:?}"
            );
            let loaded = load.clock() - began;
            assert!(loaded <= 1000 * MS, "{text} on {members}: not flagged after {loaded:?}");
        }
        for _ in 0..1000 {
            let took = load.read_one();
            assert!(
                took <= 2 * healthy,
                "{text} on {members}: {took:?} after it was flagged, usual {healthy:?}"
            );
        }
        assert_eq!(load.health(1), MemberHealth::Slow);
        // Well again, it is read again before long.
        load.sim.disks[1].set_pace(DISK);
        let began = load.clock();
        while load.health(1) != MemberHealth::Online {
            load.read_one();
            assert!(load.clock() - began < 5000 * MS, "{text}: not trusted again");
        }
        let before = load.sim.disks[1].counters().reads;
        (0..200).for_each(|_| assert!(load.read_one() <= 5 * healthy));
        assert!(load.sim.disks[1].counters().reads > before + 200 / members as u64 / 2, "{text}: read again");
        assert!(
            load.pool.status().members.iter().all(|member| member.read_errors == 0 && member.timeouts == 0)
        );
    }
}

/// When all are slower than usual, because of other load, none is.
#[test]
fn members_that_are_all_slow_are_not() {
    let mut load = Load::new("parity", 4);
    load.usual(1000);
    let loaded = Pace { request: 40 * MS, spread: 60 * MS, ..DISK };
    load.sim.disks.iter().for_each(|disk| disk.set_pace(loaded));
    load.usual(2000);
    let slow = (0..4).filter(|&member| load.health(member) == MemberHealth::Slow).count();
    assert!(slow <= 1, "{slow} are called slow");
    let before: Vec<u64> = load.sim.disks.iter().map(|disk| disk.counters().reads).collect();
    load.usual(500);
    for (disk, before) in load.sim.disks.iter().zip(before) {
        assert!(disk.counters().reads > before, "everybody is read");
    }
}

#[test]
fn what_only_a_slow_member_has_is_read_from_it() {
    for (text, members) in [("simple", 2), ("mirror", 2), ("parity", 3)] {
        let mut load = Load::new(text, members);
        load.usual(500);
        load.sim.disks[1].set_pace(Pace { delay: 500 * MS, ..DISK });
        if text != "simple" {
            (0..40).for_each(|_| assert!(load.read_one() < 100 * MS));
            assert_eq!(load.health(1), MemberHealth::Slow);
            load.sim.disks[0].fail_all();
        }
        (0..40).for_each(|_| assert!(load.read_one() < 1100 * MS, "{text}"));
    }
}

#[test]
fn reads_go_on_when_a_member_hangs() {
    for (text, members) in [("mirror", 2), ("parity", 3), ("parity:2", 5)] {
        let mut load = Load::new(text, members);
        let healthy = load.usual(2000);
        load.sim.disks[1].hang_for(Duration::from_secs(3600));
        for _ in 0..20_000 {
            assert!(load.read_one() <= 5 * healthy, "{text}");
        }
        assert_eq!(load.health(1), MemberHealth::Slow, "{text}");
        assert!(load.pool.epoch_is_due(), "it owes an answer for minutes");
        assert_eq!(load.health(1), MemberHealth::Failing, "{text}");
    }
}

/// A disk that dies or hangs in the middle of a large write.
#[test]
fn a_large_write_goes_on_without_a_member_that_hangs() {
    for (text, members) in [("mirror", 2), ("mirror", 3), ("parity", 4), ("parity:2", 5)] {
        let mut load = Load::new(text, members);
        load.usual(200);
        load.sim.disks[1].hang_for(Duration::from_secs(100));
        let began = load.clock();
        let pieces = write(&load.pool, &load.chunks).expect("goes on");
        let took = load.clock() - began;
        assert!(took < Duration::from_secs(32), "{text}: one deadline, not more: {took:?}");
        assert_eq!(load.health(1), MemberHealth::Failing);
        assert!(load.pool.status().members[1].timeouts > 0);
        verify(&load.pool, &load.chunks, &pieces, text);
        verify(&load.pool, &load.chunks, &load.pieces, text);
        let again = write(&load.pool, &load.chunks).expect("writes");
        // What it was asked to write before reaches it now, and harms nobody.
        load.sim.world.clock().sleep(Duration::from_secs(200));
        load.sim.disks[1].revive();
        for pieces in [&pieces, &again, &load.pieces] {
            verify(&load.pool, &load.chunks, pieces, text);
        }
    }
}

#[test]
fn a_slab_is_not_used_again_while_a_late_write_may_hit_it() {
    let sim = SimPool::create(12, &[40, 40, 40], resiliency("mirror")).expect("creates");
    let pool = start(&sim, &[]);
    let chunks = chunks();
    sim.disks[1].hang_for(Duration::from_secs(100));
    let pieces = write(&pool, &chunks).expect("goes on");
    assert!(!pool.members()[1].is_writable());
    assert!(pool.members()[1].owes_answers(sim.world.clock().elapsed()), "its writes are under way");
    let slabs_before: Vec<_> = pool.members()[1].used_slabs().into_iter().collect();
    // Two checkpoints later the sets that it spoiled would be handed out again.
    for number in 1..4 {
        for set in pool.sets.all().iter().filter(|set| set.live() == 0) {
            pool.free_if_dead(set.id, true);
        }
        pool.checkpoint_begun(number);
        pool.checkpoint_published(number);
    }
    let more = write(&pool, &chunks).expect("writes");
    for piece in pieces.iter().chain(&more) {
        if let Some(record) = pool.set_record(piece.set) {
            assert!(record.slots.iter().all(|slot| slot.member != 1 || !slabs_before.contains(&slot.slab)));
        }
    }
    sim.world.clock().sleep(Duration::from_secs(200));
    assert!(!pool.members()[1].owes_answers(sim.world.clock().elapsed()));
    verify(&pool, &chunks, &more, "after the late writes");
}

/// Past the limit of read errors a member is set aside, and not before.
#[test]
fn a_member_with_many_read_errors_is_set_aside() {
    let sim = SimPool::create(13, &[40, 40, 40], resiliency("parity")).expect("creates");
    let pool = start(&sim, &[]);
    let chunks = chunks();
    let pieces = write(&pool, &chunks).expect("writes");
    let mut aside_after = None;
    for round in 0..200 {
        // Sectors that were written back can be read: break them again.
        for set in pool.sets.all() {
            let slot = set.slots.iter().find(|slot| slot.member == 2).expect("has a slot");
            sim.disks[2].fail_reads(Area::Slab(slot.slab), 0..MIB);
        }
        verify(&pool, &chunks, &pieces, "unreadable sectors are rebuilt");
        if !pool.members()[2].is_writable() {
            aside_after = Some((round, pool.status().members[2].read_errors));
            break;
        }
    }
    let (_, errors) = aside_after.expect("set aside");
    assert!(errors > 50, "after {errors} errors already");
    assert_eq!(pool.status().members[2].health, MemberHealth::Failing);
}

#[test]
fn a_member_that_vanished_is_set_aside_by_a_read() {
    let sim = SimPool::create(14, &[40, 40], resiliency("mirror")).expect("creates");
    let pool = start(&sim, &[]);
    let chunks = chunks();
    let pieces = write(&pool, &chunks).expect("writes");
    sim.disks[0].vanish();
    verify(&pool, &chunks, &pieces, "the other copy");
    assert_eq!(pool.status().members[0].health, MemberHealth::Failing);
    sim.disks[1].vanish();
    let mut buf = vec![0; SECTOR_LEN];
    assert!(pool.read(pieces[0].set, pieces[0].address, &pieces[0].sums[..1], &mut buf).is_err());
    assert!(pool.members()[1].is_writable(), "the last one is not set aside for reads");
}
