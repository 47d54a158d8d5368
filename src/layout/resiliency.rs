//! What people ask for: how data is to survive lost members.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::{COLUMNS_MAX, INTERLEAVE_DEFAULT_BYTES, INTERLEAVE_MAX_BYTES, INTERLEAVE_MIN_BYTES};
use crate::units::KIB;

/// The family of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Data striped over members, once. Losing any member loses data.
    Simple,
    /// Two or three whole copies.
    Mirror,
    /// Striped over columns, each of which has two or three copies.
    StripedMirror,
    /// Striped over data columns, with one to three parity columns.
    Parity,
}

impl Kind {
    /// The word that commands use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Mirror => "mirror",
            Self::StripedMirror => "striped-mirror",
            Self::Parity => "parity",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = BadResiliency;

    fn from_str(text: &str) -> Result<Self, BadResiliency> {
        match text {
            "simple" => Ok(Self::Simple),
            "mirror" => Ok(Self::Mirror),
            "striped-mirror" => Ok(Self::StripedMirror),
            "parity" => Ok(Self::Parity),
            _ => Err(BadResiliency::Unknown { text: text.to_owned() }),
        }
    }
}

/// Why a resiliency can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadResiliency {
    /// No layout has this name.
    #[error(
        "{text:?} is no resiliency: take simple, mirror, mirror:3, striped-mirror, striped-mirror:3, parity, \
         parity:2 or parity:3, with columns=K behind it if need be"
    )]
    Unknown {
        /// What was typed.
        text: String,
    },
    /// Copies were given for a layout that has none.
    #[error("{kind} has no copies to choose: leave them out, or take mirror or striped-mirror")]
    CopiesNotTaken {
        /// The layout.
        kind: Kind,
    },
    /// A number of copies that no mirror has.
    #[error("{kind} with {copies} copies is not possible: take 2 or 3")]
    Copies {
        /// The layout.
        kind: Kind,
        /// What was asked for.
        copies: u8,
    },
    /// Parity columns were given for a layout that has none.
    #[error("{kind} has no parity: leave it out, or take the resiliency parity")]
    ParityNotTaken {
        /// The layout.
        kind: Kind,
    },
    /// A number of parity columns that no layout has.
    #[error("{parity} parity columns are not possible: take 1, 2 or 3")]
    Parity {
        /// What was asked for.
        parity: u8,
    },
    /// A number of data columns that no layout has.
    #[error("{columns} columns are not possible: take 1 to {COLUMNS_MAX}, or auto")]
    Columns {
        /// What was asked for.
        columns: u8,
    },
    /// A mirror is not striped.
    #[error("a mirror has one column, not {columns}: striped-mirror is the one that stripes over several")]
    MirrorColumns {
        /// What was asked for.
        columns: u8,
    },
    /// An interleave out of bounds, or no power of two.
    #[error(
        "an interleave of {interleave} bytes is not possible: take a power of two from {}K to {}K",
        INTERLEAVE_MIN_BYTES / KIB, INTERLEAVE_MAX_BYTES / KIB
    )]
    Interleave {
        /// What was asked for, in bytes.
        interleave: u64,
    },
}

/// Copies of the metadata of a pool that survives three failures. Data has at most one less.
const METADATA_COPIES_MAX: u8 = 4;

/// How data is to survive lost members. Validated: [`Resiliency::new`] makes it, and so does decoding.
///
/// Invariants: `copies` is 1 without copies, else 2 or 3 (4 only for metadata); `parity` is 0 without parity, else 1 to 3; one
/// of the two is at rest. `interleave` is a power of two within [`crate::limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Resiliency {
    /// The family.
    pub kind: Kind,
    /// Copies of each data column: 1 for `simple` and `parity`.
    pub copies: u8,
    /// Parity columns: 0 unless the family is `parity`.
    pub parity: u8,
    /// Data columns wished for; `None` takes as many as there are members, up to
    /// [`crate::limits::AUTO_COLUMNS_MAX`]. Always `None` for a mirror, which has one.
    pub columns: Option<u8>,
    /// Bytes of one column in one row.
    pub interleave: u64,
}

/// [`Resiliency`] as bytes claim it to be, field for field.
#[derive(Deserialize)]
struct Unchecked {
    kind: Kind,
    copies: u8,
    parity: u8,
    columns: Option<u8>,
    interleave: u64,
}

impl TryFrom<Unchecked> for Resiliency {
    type Error = BadResiliency;

    fn try_from(raw: Unchecked) -> Result<Self, BadResiliency> {
        if raw.kind == Kind::Mirror && raw.copies == METADATA_COPIES_MAX {
            let three = Self::try_from(Unchecked { copies: METADATA_COPIES_MAX - 1, ..raw })?;
            return Ok(Self { copies: METADATA_COPIES_MAX, ..three });
        }
        let copies = (raw.copies != 1).then_some(raw.copies);
        let parity = (raw.parity != 0).then_some(raw.parity);
        let made = Self::new(raw.kind, copies, parity, raw.columns, Some(raw.interleave))?;
        // A field at rest where the family needs one would silently become the default.
        match made {
            _ if made.copies != raw.copies => {
                Err(BadResiliency::Copies { kind: raw.kind, copies: raw.copies })
            }
            _ if made.parity != raw.parity => Err(BadResiliency::Parity { parity: raw.parity }),
            _ => Ok(made),
        }
    }
}

impl Resiliency {
    /// Makes a resiliency; `None` takes the default: 2 copies, 1 parity column, automatic columns,
    /// [`INTERLEAVE_DEFAULT_BYTES`].
    ///
    /// # Errors
    /// A [`BadResiliency`] that names the value which the family can't have.
    pub fn new(
        kind: Kind,
        copies: Option<u8>,
        parity: Option<u8>,
        columns: Option<u8>,
        interleave: Option<u64>,
    ) -> Result<Self, BadResiliency> {
        let copies = match (kind, copies) {
            (Kind::Mirror | Kind::StripedMirror, None) => 2,
            (Kind::Mirror | Kind::StripedMirror, Some(copies @ 2..=3)) => copies,
            (Kind::Mirror | Kind::StripedMirror, Some(copies)) => {
                return Err(BadResiliency::Copies { kind, copies });
            }
            (_, None) => 1,
            (_, Some(_)) => return Err(BadResiliency::CopiesNotTaken { kind }),
        };
        let parity = match (kind, parity) {
            (Kind::Parity, None) => 1,
            (Kind::Parity, Some(parity @ 1..=3)) => parity,
            (Kind::Parity, Some(parity)) => return Err(BadResiliency::Parity { parity }),
            (_, None) => 0,
            (_, Some(_)) => return Err(BadResiliency::ParityNotTaken { kind }),
        };
        let columns = match (kind, columns) {
            (_, None) | (Kind::Mirror, Some(1)) => None,
            (_, Some(columns)) if columns == 0 || columns > COLUMNS_MAX => {
                return Err(BadResiliency::Columns { columns });
            }
            (Kind::Mirror, Some(columns)) => return Err(BadResiliency::MirrorColumns { columns }),
            (_, Some(columns)) => Some(columns),
        };
        let interleave = interleave.unwrap_or(INTERLEAVE_DEFAULT_BYTES);
        if !interleave_is_possible(interleave) {
            return Err(BadResiliency::Interleave { interleave });
        }
        Ok(Self { kind, copies, parity, columns, interleave })
    }

    /// Reads what people type: `simple`, `mirror`, `mirror:3`, `striped-mirror`, `parity:2`, and the same
    /// with ` columns=K` behind it, as [`fmt::Display`] prints it. The interleave is the default.
    ///
    /// # Errors
    /// [`BadResiliency`] for any other text, and for values which the family can't have.
    pub fn parse(text: &str) -> Result<Self, BadResiliency> {
        let unknown = || BadResiliency::Unknown { text: text.to_owned() };
        let number = |digits: &str| digits.parse::<u8>().map_err(|_| unknown());
        let mut words = text.split_whitespace();
        let layout = words.next().ok_or_else(unknown)?;
        let columns = match words.next().map(|word| word.strip_prefix("columns=").ok_or_else(unknown)) {
            None => None,
            Some(columns) => match columns? {
                "auto" => None,
                digits => Some(number(digits)?),
            },
        };
        if words.next().is_some() {
            return Err(unknown());
        }
        let (name, count) = match layout.split_once(':') {
            None => (layout, None),
            Some((name, digits)) => (name, Some(number(digits)?)),
        };
        let kind = name.parse().map_err(|_| unknown())?;
        let (copies, parity) = if kind == Kind::Parity { (None, count) } else { (count, None) };
        Self::new(kind, copies, parity, columns, None)
    }

    /// Any this many members of a set can be lost, with nothing lost.
    pub fn tolerance(&self) -> usize {
        usize::from(self.parity) + usize::from(self.copies.saturating_sub(1))
    }

    /// Members that a set needs at its narrowest to have its full redundancy.
    pub fn min_members(&self) -> usize {
        self.tolerance() + 1
    }

    /// Members that a new pool must have: those of the columns that were given, else [`Self::min_members`].
    pub fn wanted_members(&self) -> usize {
        let columns = usize::from(self.columns.unwrap_or(1));
        columns * usize::from(self.copies) + usize::from(self.parity)
    }
}

/// Whether a set may have this interleave, in bytes.
pub(super) fn interleave_is_possible(bytes: u64) -> bool {
    bytes.is_power_of_two() && (INTERLEAVE_MIN_BYTES..=INTERLEAVE_MAX_BYTES).contains(&bytes)
}

impl fmt::Display for Resiliency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.kind.name().to_owned();
        match self.kind {
            Kind::Parity if self.parity != 1 => text += &format!(":{}", self.parity),
            Kind::Mirror | Kind::StripedMirror if self.copies != 2 => text += &format!(":{}", self.copies),
            _ => {}
        }
        if let Some(columns) = self.columns {
            text += &format!(" columns={columns}");
        }
        f.pad(&text)
    }
}

impl FromStr for Resiliency {
    type Err = BadResiliency;

    fn from_str(text: &str) -> Result<Self, BadResiliency> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests;
