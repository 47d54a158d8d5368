//! How values become bytes on members: the only module that names bincode.
//!
//! The format is plain and ours: integers little-endian with their full width, lengths as `u64`,
//! enum variants as `u32`, options as one byte. Another encoder of the same bytes can take
//! bincode's place without changing what is stored.
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
    if used < bytes.len() {
        return Err(WireError::Trailing(bytes.len() - used));
    }
    Ok(value)
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
    }
}
