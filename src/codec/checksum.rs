//! The checksum of a sector.

use crate::units::SECTOR_LEN;

/// CRC-32C of `sector`, as extents carry it for each sector.
pub fn checksum(sector: &[u8]) -> u32 {
    crc32c::crc32c(sector)
}

/// The checksum of each sector of `data`, in order. A last piece that is no whole sector has one of its own.
pub fn checksums(data: &[u8]) -> Vec<u32> {
    data.chunks(SECTOR_LEN).map(checksum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn each_sector_has_its_own() {
        let mut data = vec![0_u8; 2 * SECTOR_LEN + 5];
        data[SECTOR_LEN] = 1;
        let sums = checksums(&data);
        assert_eq!(sums.len(), 3);
        assert_eq!(sums[0], checksum(&[0; SECTOR_LEN]));
        assert_ne!(sums[0], sums[1]);
        assert_eq!(sums[2], checksum(&[0; 5]));
        assert!(checksums(&[]).is_empty());
    }
}
