//! What is wrong with one simulated disk.

use std::ops::Range;

use rustix::io::Errno;

use super::disk::SimDisk;
use crate::member::Area;

/// Whether a disk answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Health {
    #[default]
    Alive,
    Dead,
    Gone,
}

/// What is wrong with a disk.
#[derive(Debug, Default)]
pub(super) struct Faults {
    health: Health,
    full: bool,
    read_only: bool,
    no_sync: bool,
    unreadable: Vec<(Area, Range<u64>)>,
    unwritable: Vec<(Area, Range<u64>)>,
}

type Verdict = Result<(), Errno>;

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn check_ranges(bad: &[(Area, Range<u64>)], area: Area, range: &Range<u64>) -> Verdict {
    let hit = bad.iter().any(|(at, bad)| *at == area && overlaps(bad, range));
    if hit { Err(Errno::IO) } else { Ok(()) }
}

impl Faults {
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn check_alive(&self) -> Verdict {
        match self.health {
            Health::Alive => Ok(()),
            Health::Dead => Err(Errno::IO),
            Health::Gone => Err(Errno::NODEV),
        }
    }

    /// Anything that changes the disk.
    pub(super) fn check_change(&self) -> Verdict {
        self.check_alive()?;
        if self.read_only { Err(Errno::ROFS) } else { Ok(()) }
    }

    pub(super) fn check_read(&self, area: Area, range: Range<u64>) -> Verdict {
        self.check_alive()?;
        check_ranges(&self.unreadable, area, &range)
    }

    pub(super) fn check_write(&self, area: Area, range: Range<u64>) -> Verdict {
        self.check_change()?;
        check_ranges(&self.unwritable, area, &range)
    }

    pub(super) fn check_sync(&self) -> Verdict {
        self.check_change()?;
        if self.no_sync { Err(Errno::IO) } else { Ok(()) }
    }

    /// What has been written can be read again.
    pub(super) fn rewritten(&mut self, area: Area, range: Range<u64>) {
        if check_ranges(&self.unreadable, area, &range).is_ok() {
            return;
        }
        let old = std::mem::take(&mut self.unreadable);
        for (at, bad) in old {
            if at != area || !overlaps(&bad, &range) {
                self.unreadable.push((at, bad));
                continue;
            }
            let left = [bad.start..range.start, range.end..bad.end];
            self.unreadable
                .extend(left.into_iter().filter(|part| part.start < part.end).map(|part| (at, part)));
        }
    }
}

/// Faults by hand.
impl SimDisk {
    /// The disk dies: everything gives an I/O error.
    pub fn fail_all(&self) {
        self.with_faults(|faults| faults.health = Health::Dead);
    }

    /// The disk is pulled out: everything says that there is no such device.
    pub fn vanish(&self) {
        self.with_faults(|faults| faults.health = Health::Gone);
    }

    /// The disk answers again, with all it held, and without any other fault.
    pub fn revive(&self) {
        self.with_faults(|faults| *faults = Faults::default());
    }

    /// Reading any of the bytes of `range` gives an I/O error, until they are written.
    pub fn fail_reads(&self, area: Area, range: Range<u64>) {
        self.with_faults(|faults| faults.unreadable.push((area, range)));
    }

    /// Writing any of the bytes of `range` gives an I/O error.
    pub fn fail_writes(&self, area: Area, range: Range<u64>) {
        self.with_faults(|faults| faults.unwritable.push((area, range)));
    }

    /// Whether syncs fail from now on.
    pub fn fail_syncs(&self, fail: bool) {
        self.with_faults(|faults| faults.no_sync = fail);
    }

    /// Whether there is no space for new slabs, whatever the capacity.
    pub fn set_full(&self, full: bool) {
        self.with_faults(|faults| faults.full = full);
    }

    /// Whether writes, syncs and changes to slabs are refused.
    pub fn set_read_only(&self, read_only: bool) {
        self.with_faults(|faults| faults.read_only = read_only);
    }
}
