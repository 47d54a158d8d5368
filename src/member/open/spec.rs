//! How people name a member: a path, and how much of it may be used.

use std::path::PathBuf;
use std::str::FromStr;

use super::super::error::{MemberError, Result};
use crate::units::parse_size;

/// How much of a member may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Most bytes that it may take, all included; 0 for no limit.
    pub limit_bytes: u64,
    /// Bytes of the file system's free space (or of the device's end) that are left alone.
    pub reserve_bytes: u64,
}

/// A path that is to be a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSpec {
    /// The directory, block device or image file.
    pub path: PathBuf,
    /// How much of it may be used.
    pub bounds: Bounds,
}

impl MemberSpec {
    /// A path without limit or reserve.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), bounds: Bounds::default() }
    }

    /// Reads `PATH[,size=SIZE][,reserve=SIZE]`. The path may contain commas, as long as what follows one
    /// does not look like an option.
    ///
    /// # Errors
    /// [`MemberError::BadSpec`].
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why: String| MemberError::BadSpec { text: text.to_owned(), why };
        let (mut size, mut reserve) = (None, None);
        let mut path = text;
        while let Some((rest, name, value)) = last_option(path) {
            let place = match name {
                "size" => &mut size,
                "reserve" => &mut reserve,
                _ => return Err(bad(format!("there is no option {name:?}"))),
            };
            let bytes = parse_size(value).map_err(|e| bad(e.to_string()))?;
            if place.replace(bytes).is_some() {
                return Err(bad(format!("{name} is given twice")));
            }
            path = rest;
        }
        if path.is_empty() {
            return Err(bad("the path is missing".to_owned()));
        }
        if size == Some(0) {
            return Err(bad("a size of 0 leaves nothing to use".to_owned()));
        }
        let bounds = Bounds { limit_bytes: size.unwrap_or(0), reserve_bytes: reserve.unwrap_or(0) };
        Ok(Self { path: path.into(), bounds })
    }
}

/// Splits `REST,NAME=VALUE`, where the name is a plain word.
fn last_option(text: &str) -> Option<(&str, &str, &str)> {
    let (rest, option) = text.rsplit_once(',')?;
    let (name, value) = option.split_once('=')?;
    let word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-');
    word.then_some((rest, name, value))
}

impl FromStr for MemberSpec {
    type Err = MemberError;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GIB;

    #[test]
    fn paths_and_options_are_read() {
        let bounds = |limit_bytes, reserve_bytes| Bounds { limit_bytes, reserve_bytes };
        for (text, path, expected) in [
            ("/mnt/a", "/mnt/a", bounds(0, 0)),
            ("/mnt/a,size=3G", "/mnt/a", bounds(3 * GIB, 0)),
            ("a,reserve=1G,size=2g", "a", bounds(2 * GIB, GIB)),
            ("a,b,size=1G", "a,b", bounds(GIB, 0)),
            ("a,reserve=0", "a", bounds(0, 0)),
            ("x=y", "x=y", bounds(0, 0)),
        ] {
            let spec = MemberSpec::parse(text).unwrap();
            assert_eq!((spec.path.to_str().unwrap(), spec.bounds), (path, expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, why) in [
            ("", "path"),
            (",size=1G", "path"),
            ("a,size=", "not a size"),
            ("a,size=-1", "not a size"),
            ("a,size=0", "nothing"),
            ("a,siez=1G", "siez"),
            ("a,size=1G,size=2G", "twice"),
        ] {
            let error = MemberSpec::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
