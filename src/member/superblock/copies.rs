//! The two copies: which one counts, and which one may be overwritten.

use super::super::error::{MemberError, Result};
use super::super::{AlignedBuf, Area, Disk};
use super::Superblock;
use super::envelope::{Envelope, Opened};
use crate::units::SECTOR_LEN;

const COPIES: [u8; 2] = [0, 1];

/// What one copy turned out to be.
enum Copy {
    Nothing,
    Damaged(String),
    Unreadable(MemberError),
    Valid(Box<Superblock>),
}

impl Copy {
    fn sequence(&self) -> Option<u64> {
        match self {
            Self::Valid(superblock) => Some(superblock.sequence),
            _ => None,
        }
    }
}

/// Reads the newer valid copy.
///
/// # Errors
/// [`MemberError::NoSuperblock`] when neither copy was ever written; [`MemberError::DamagedSuperblock`]
/// when none is valid but there was one; [`MemberError::Io`] when they can't be read;
/// [`MemberError::NewerFormat`] and [`MemberError::UnknownFeatures`] when either copy has them, since
/// the other one is then out of date.
pub fn read_superblock(disk: &dyn Disk) -> Result<Superblock> {
    let [a, b] = read_copies(disk)?;
    match (a, b) {
        (Copy::Valid(a), Copy::Valid(b)) => Ok(if b.sequence > a.sequence { *b } else { *a }),
        (Copy::Valid(only), _) | (_, Copy::Valid(only)) => Ok(*only),
        (Copy::Unreadable(error), _) | (_, Copy::Unreadable(error)) => Err(error),
        (Copy::Nothing, Copy::Nothing) => Err(MemberError::NoSuperblock { path: disk.path() }),
        (Copy::Damaged(a), Copy::Damaged(b)) => Err(damaged(disk, format!("A: {a}; B: {b}"))),
        (Copy::Damaged(a), Copy::Nothing) => Err(damaged(disk, format!("A: {a}; B was never written"))),
        (Copy::Nothing, Copy::Damaged(b)) => Err(damaged(disk, format!("A was never written; B: {b}"))),
    }
}

/// Writes `superblock` over the copy that is out of date or invalid, and syncs it.
///
/// The newest valid copy is never touched: a write that is torn or fails leaves the member as it was.
/// Repeating the same write is no error.
///
/// # Errors
/// [`MemberError::SequenceNotRising`] when the member already holds a newer superblock, or another one
/// of the same sequence; [`MemberError::Io`]; and those of [`Superblock::encode`] and [`read_superblock`]
/// (but not those that say that there is no valid copy).
pub fn write_superblock(disk: &dyn Disk, superblock: &Superblock) -> Result<()> {
    let bytes = superblock.encode()?;
    let copies = read_copies(disk)?;
    for copy in &copies {
        if let Copy::Valid(old) = copy {
            let repeated = old.sequence == superblock.sequence && **old == *superblock;
            if old.sequence >= superblock.sequence && !repeated {
                let (found, given) = (old.sequence, superblock.sequence);
                return Err(MemberError::SequenceNotRising { path: disk.path(), found, given });
            }
        }
    }
    // None sorts before Some: an invalid copy goes first, then the older one.
    let victim = if copies[1].sequence() < copies[0].sequence() { 1 } else { 0 };
    disk.write(Area::Superblock(victim), 0, &bytes)?;
    disk.sync(Area::Superblock(victim))
}

fn damaged(disk: &dyn Disk, why: String) -> MemberError {
    MemberError::DamagedSuperblock { path: disk.path(), why }
}

fn read_copies(disk: &dyn Disk) -> Result<[Copy; 2]> {
    let [a, b] = COPIES.map(|copy| read_copy(disk, copy));
    Ok([a?, b?])
}

/// Reads one copy; fails only where the member as a whole must be refused.
fn read_copy(disk: &dyn Disk, copy: u8) -> Result<Copy> {
    let area = Area::Superblock(copy);
    let mut first = AlignedBuf::zeroed(SECTOR_LEN);
    if let Err(error) = disk.read(area, 0, &mut first) {
        return Ok(unreadable(error));
    }
    let envelope = match Envelope::open(&first) {
        Opened::Nothing => return Ok(Copy::Nothing),
        Opened::Damaged(why) => return Ok(Copy::Damaged(why.to_owned())),
        Opened::Valid(envelope) => envelope,
    };
    envelope.check_known(&disk.path())?;
    let mut whole = AlignedBuf::zeroed(envelope.copy_len());
    if let Err(error) = disk.read(area, 0, &mut whole) {
        return Ok(unreadable(error));
    }
    Ok(match envelope.unpack(&whole) {
        Ok(superblock) => Copy::Valid(Box::new(superblock)),
        Err(why) => Copy::Damaged(why),
    })
}

/// A file that ends early holds no superblock there; that is not the medium's failure.
fn unreadable(error: MemberError) -> Copy {
    match error {
        MemberError::Io { source, .. } if source.kind() == std::io::ErrorKind::UnexpectedEof => Copy::Nothing,
        error => Copy::Unreadable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;
    use crate::member::sim::{PowerCut, SimWorld};

    /// A superblock of several sectors, each of which differs from that of another sequence.
    fn long(sequence: u64) -> Superblock {
        let mut sb = sample(sequence);
        sb.members[0].path = format!("{sequence:04}").repeat(5000);
        sb
    }

    #[test]
    fn the_newer_copy_counts_and_the_older_is_overwritten() {
        let world = SimWorld::new(1);
        let disk = world.disk("a", 4);
        assert!(matches!(read_superblock(&*disk), Err(MemberError::NoSuperblock { .. })));
        for sequence in 1..6 {
            write_superblock(&*disk, &sample(sequence)).unwrap();
            assert_eq!(read_superblock(&*disk).unwrap().sequence, sequence);
        }
        let ranges = disk.written_ranges();
        let areas: Vec<_> = ranges.iter().map(|w| w.area).collect();
        assert_eq!(areas, [0, 1, 0, 1, 0].map(Area::Superblock));
    }

    #[test]
    fn older_and_contradicting_superblocks_are_refused() {
        let world = SimWorld::new(1);
        let disk = world.disk("a", 4);
        write_superblock(&*disk, &sample(7)).unwrap();
        write_superblock(&*disk, &sample(7)).unwrap();
        let older = write_superblock(&*disk, &sample(6));
        assert!(matches!(older, Err(MemberError::SequenceNotRising { found: 7, given: 6, .. })));
        let mut other = sample(7);
        other.clean = !other.clean;
        assert!(write_superblock(&*disk, &other).is_err());
    }

    #[test]
    fn a_write_torn_at_any_sector_leaves_the_old_superblock() {
        let len = long(3).encode().unwrap().len();
        for torn in (0..len).step_by(512) {
            let world = SimWorld::new(torn as u64);
            let disk = world.disk("a", 4);
            write_superblock(&*disk, &long(1)).unwrap();
            write_superblock(&*disk, &long(2)).unwrap();
            // The third overwrites copy A, of which only the first `torn` bytes arrive.
            let mut old = AlignedBuf::zeroed(len);
            disk.read(Area::Superblock(0), 0, &mut old).unwrap();
            let mut mixed = long(3).encode().unwrap();
            mixed[torn..].copy_from_slice(&old[torn..]);
            disk.write(Area::Superblock(0), 0, &mixed).unwrap();
            // Where the rest is the same in both, nothing was torn.
            let expected = if mixed[..] == long(3).encode().unwrap()[..] { 3 } else { 2 };
            assert_eq!(read_superblock(&*disk).unwrap().sequence, expected, "torn at {torn}");
            write_superblock(&*disk, &long(4)).unwrap();
            assert_eq!(read_superblock(&*disk).unwrap(), long(4));
        }
    }

    #[test]
    fn power_lost_during_a_write_leaves_one_or_the_other() {
        for (seed, policy) in (0..60).flat_map(|seed| PowerCut::ALL.map(|policy| (seed, policy))) {
            let world = SimWorld::new(seed);
            let disk = world.disk("a", 4);
            write_superblock(&*disk, &long(1)).unwrap();
            write_superblock(&*disk, &long(2)).unwrap();
            world.stop_after(world.operations() + 1 + seed % 2);
            assert!(write_superblock(&*disk, &long(3)).is_err());
            world.power_cut(policy, seed);
            let found = read_superblock(&*disk).unwrap();
            assert!(found == long(2) || found == long(3), "seed {seed}, {policy:?}");
        }
    }

    #[test]
    fn damage_to_one_copy_is_survived_and_to_both_is_named() {
        let world = SimWorld::new(1);
        let disk = world.disk("a", 4);
        write_superblock(&*disk, &sample(1)).unwrap();
        write_superblock(&*disk, &sample(2)).unwrap();
        disk.flip(Area::Superblock(1), 100, 3);
        assert_eq!(read_superblock(&*disk).unwrap().sequence, 1);
        write_superblock(&*disk, &sample(3)).unwrap();
        assert_eq!(read_superblock(&*disk).unwrap().sequence, 3);
        disk.flip(Area::Superblock(0), 40, 3);
        disk.flip(Area::Superblock(1), 30, 3);
        assert!(matches!(read_superblock(&*disk), Err(MemberError::DamagedSuperblock { .. })));
        disk.fail_reads(Area::Superblock(0), 0..4096);
        assert!(matches!(read_superblock(&*disk), Err(MemberError::Io { .. })));
    }
}
