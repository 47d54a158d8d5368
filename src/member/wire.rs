//! How values become bytes on members: the only module that names bincode.
//!
//! The formats are plain and ours. [`encode`]: integers little-endian with their full width, lengths as `u64`,
//! enum variants as `u32`, options as one byte. [`pack`], for what is stored by the million: the same, but every
//! integer of more than one byte, length and variant takes one byte up to 250, and otherwise a byte 251, 252 or
//! 253 and then its 2, 4 or 8 bytes; signed integers are folded first (0, -1, 1, -2, ...). Another encoder of the
//! same bytes can take bincode's place without changing what is stored.
//!
//! Decoding trusts nothing: it reads and allocates at most [`LIMIT_BYTES`], and hostile bytes give an
//! error. Checksums are compared before anything is decoded, so this is the second line of defence.
//! Types stored here must not nest without bound, nor hold lists of zero-sized elements.

use bincode::config::{self, Config};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of one encoded value.
pub const LIMIT_BYTES: usize = 16 << 20;

/// Why bytes are not the value they were taken for.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes are no encoding of the type.
    #[error("not decodable: {0}")]
    Malformed(String),
    /// A whole value, and then more.
    #[error("{0} bytes follow the value")]
    Trailing(usize),
}

fn config() -> impl Config {
    config::legacy().with_limit::<LIMIT_BYTES>()
}

fn packed() -> impl Config {
    config::standard().with_limit::<LIMIT_BYTES>()
}

/// The bytes of `value`, with short integers.
///
/// # Panics
/// As [`encode`].
pub fn pack<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, packed()).expect("stored types know the lengths of their lists")
}

/// The value that `bytes` are the whole packing of.
///
/// # Errors
/// [`WireError`] for what [`pack`] did not write, but for integers that would fit fewer bytes.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let (value, used) = unpack_prefix(bytes)?;
    whole(value, used, bytes)
}

/// The value that `bytes` begin with, packed, and how many bytes it took.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn unpack_prefix<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, usize), WireError> {
    bincode::serde::decode_from_slice(bytes, packed()).map_err(|e| WireError::Malformed(e.to_string()))
}

/// The bytes of `value`.
///
/// # Panics
/// When the type can't be encoded at all (a list that does not know its length): a fault of the
/// program, which no data can bring about.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, config()).expect("stored types know the lengths of their lists")
}

/// Appends the bytes of `value` to `out`.
///
/// # Panics
/// As [`encode`].
pub fn encode_into<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    bincode::serde::encode_into_std_write(value, out, config())
        .expect("stored types know the lengths of their lists");
}

/// The value that `bytes` are the whole encoding of.
///
/// # Errors
/// [`WireError`] for anything that [`encode`] did not write.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let (value, used) = decode_prefix(bytes)?;
    whole(value, used, bytes)
}

fn whole<T>(value: T, used: usize, bytes: &[u8]) -> Result<T, WireError> {
    if used < bytes.len() { Err(WireError::Trailing(bytes.len() - used)) } else { Ok(value) }
}

/// The value that `bytes` begin with, and how many bytes it took.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn decode_prefix<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, usize), WireError> {
    bincode::serde::decode_from_slice(bytes, config()).map_err(|e| WireError::Malformed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_their_full_width() {
        assert_eq!(encode(&(1u16, 2u32, Some(3u8))), [1, 0, 2, 0, 0, 0, 1, 3]);
        assert_eq!(encode("ab"), [2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
    }

    #[test]
    fn packed_integers_are_as_short_as_they_can_be() {
        assert_eq!(pack(&(250u64, 251u64, Some(7u8), -1i64)), [250, 251, 251, 0, 1, 7, 1]);
        assert_eq!(pack(&(70_000u32, 1u64 << 32)), [252, 0x70, 0x11, 1, 0, 253, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(unpack::<(u64, String)>(&pack(&(9u64, "ab"))).unwrap(), (9, "ab".to_owned()));
        assert!(matches!(unpack::<u32>(&[1, 2]), Err(WireError::Trailing(1))));
    }

    #[test]
    fn values_follow_each_other() {
        let mut bytes = vec![];
        encode_into(&mut bytes, &7u32);
        encode_into(&mut bytes, "x");
        let (seven, used) = decode_prefix::<u32>(&bytes).unwrap();
        assert_eq!((seven, used), (7, 4));
        assert_eq!(decode::<String>(&bytes[used..]).unwrap(), "x");
        assert!(matches!(decode::<u32>(&bytes), Err(WireError::Trailing(9))));
    }

    #[test]
    fn hostile_lengths_are_errors() {
        let mut bytes = u64::MAX.to_le_bytes().to_vec();
        bytes.extend([0; 64]);
        assert!(decode::<Vec<u64>>(&bytes).is_err());
        assert!(decode::<String>(&bytes).is_err());
        bytes[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        assert!(decode::<Vec<u8>>(&bytes).is_err());
        assert!(decode::<Vec<Vec<String>>>(&bytes).is_err());
        let packed = [[253].as_slice(), &bytes].concat();
        assert!(unpack::<Vec<u64>>(&packed).is_err());
        assert!(unpack::<Vec<Vec<String>>>(&packed).is_err());
    }
}
