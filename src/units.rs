//! Units of size: constants, and the one parser and printer of sizes that people type and read.

/// Bytes in a KiB.
pub const KIB: u64 = 1024;
/// Bytes in a MiB.
pub const MIB: u64 = 1024 * KIB;
/// Bytes in a GiB.
pub const GIB: u64 = 1024 * MIB;
/// Bytes in a TiB.
pub const TIB: u64 = 1024 * GIB;

/// Bytes in a sector: the unit of checksums, of alignment and of every transfer to a member.
pub const SECTOR: u64 = 4096;
/// [`SECTOR`] as a length in memory.
pub const SECTOR_LEN: usize = SECTOR as usize;

/// Rounds `n` up to a multiple of `unit`. `unit` must not be 0.
pub const fn round_up(n: u64, unit: u64) -> u64 {
    n.div_ceil(unit) * unit
}

/// Rounds `n` down to a multiple of `unit`. `unit` must not be 0.
pub const fn round_down(n: u64, unit: u64) -> u64 {
    n / unit * unit
}

/// Why a size could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a size: write a whole number, with K, M, G or T behind it for powers of 1024 (such as 64M)"
)]
pub struct BadSize {
    /// What was typed.
    pub text: String,
}

/// Reads a size as people type it: a whole number of bytes, or one followed by `K`, `M`, `G` or `T`
/// (powers of 1024; lower case, `KiB` and `KB` forms are taken too).
///
/// # Errors
/// [`BadSize`] when the text is anything else, or the number does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, BadSize> {
    let bad = || BadSize { text: text.to_owned() };
    let trimmed = text.trim();
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let number: u64 = trimmed[..digits_end].parse().map_err(|_| bad())?;
    let unit = match trimmed[digits_end..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => KIB,
        "M" | "MB" | "MIB" => MIB,
        "G" | "GB" | "GIB" => GIB,
        "T" | "TB" | "TIB" => TIB,
        _ => return Err(bad()),
    };
    number.checked_mul(unit).ok_or_else(bad)
}

/// Prints a size for people: `12.3 GiB`, `512 B`.
pub fn format_size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        b if b >= TIB => (TIB, "TiB"),
        b if b >= GIB => (GIB, "GiB"),
        b if b >= MIB => (MIB, "MiB"),
        b if b >= KIB => (KIB, "KiB"),
        _ => return format!("{bytes} B"),
    };
    let value = bytes as f64 / unit as f64;
    if value >= 100.0 { format!("{value:.0} {name}") } else { format!("{value:.1} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_type_them() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64K"), Ok(64 * KIB));
        assert_eq!(parse_size("3g"), Ok(3 * GIB));
        assert_eq!(parse_size("2TiB"), Ok(2 * TIB));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "K", "-1", "1.5G", "1X", "99999999999999999999", "18446744073709551615K"] {
            assert!(parse_size(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn sizes_are_printed_in_the_largest_fitting_unit() {
        assert_eq!(format_size(512), "512 B");
        assert_eq!(format_size(3 * GIB / 2), "1.5 GiB");
        assert_eq!(format_size(200 * MIB), "200 MiB");
    }
}
