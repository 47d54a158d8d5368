//! Checksums of what is alive in a set, as far as somebody knows them.

use crate::units::SECTOR;

/// Checksums of sectors, by address in a set's payload.
#[derive(Debug, Default, Clone)]
pub struct KnownSums {
    /// Address of the first sector and checksums of each run, in order and apart.
    runs: Vec<(u64, Vec<u32>)>,
}

impl KnownSums {
    /// Of these runs: the address of the first sector, and the checksum of each. Where runs overlap, either counts.
    pub fn new(mut runs: Vec<(u64, Vec<u32>)>) -> Self {
        runs.sort_unstable_by_key(|(address, _)| *address);
        Self { runs }
    }

    /// The checksum of the sector at `address`; none when nothing alive is known there.
    pub fn get(&self, address: u64) -> Option<u32> {
        let index = self.runs.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, sums) = &self.runs[index];
        sums.get(((address - start) / SECTOR) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_found_where_there_are_some() {
        let sums = KnownSums::new(vec![(40960, vec![5, 6]), (4096, vec![1, 2, 3])]);
        let at = |sector: u64| sums.get(sector * SECTOR);
        assert_eq!(
            [0, 1, 3, 4, 9, 10, 11, 12].map(at),
            [None, Some(1), Some(3), None, None, Some(5), Some(6), None]
        );
    }
}
