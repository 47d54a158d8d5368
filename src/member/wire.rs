//! The one module that knows bincode (stand-in until the member branch lands).
/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WireError(String);
const CONFIG: bincode::config::Configuration<bincode::config::LittleEndian, bincode::config::Fixint, bincode::config::Limit<16777216>> = bincode::config::standard().with_fixed_int_encoding().with_limit::<16777216>();
/// Encodes.
pub fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> { bincode::serde::encode_to_vec(value, CONFIG).unwrap_or_default() }
/// Decodes; trailing bytes are an error.
pub fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    bincode::serde::decode_from_slice(bytes, CONFIG).map(|(v, _)| v).map_err(|e| WireError(e.to_string()))
}
