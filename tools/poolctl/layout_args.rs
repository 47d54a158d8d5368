//! The arguments that say how data is kept, for all commands that take them.

use poolfs::layout::{Kind, Resiliency};
use poolfs::units::parse_size;

use super::error::{Result, ToolError};

/// How data is kept.
#[derive(Debug, clap::Args)]
pub struct LayoutArgs {
    /// simple, mirror, striped-mirror or parity.
    #[arg(long, value_name = "LAYOUT")]
    pub resiliency: Option<String>,
    /// Copies of a mirror: 2 or 3.
    #[arg(long, value_name = "2|3")]
    pub copies: Option<u8>,
    /// Parity columns: 1, 2 or 3.
    #[arg(long, value_name = "1|2|3")]
    pub parity: Option<u8>,
    /// Data columns, or auto: as many as there are members.
    #[arg(long, value_name = "K|auto")]
    pub columns: Option<String>,
    /// Bytes of one column in one row: 64K to 1M, a power of two.
    #[arg(long, value_name = "SIZE")]
    pub interleave: Option<String>,
    /// Size of a slab: 1M to 256M, a power of two (default: from the members' sizes).
    #[arg(long, value_name = "SIZE")]
    pub slab: Option<String>,
}

impl LayoutArgs {
    /// The resiliency asked for; a mirror when none is.
    ///
    /// # Errors
    /// [`ToolError`] for what makes no sense.
    pub fn resiliency(&self) -> Result<Resiliency> {
        match &self.resiliency {
            None => self.of(Kind::Mirror),
            // `mirror:3` and `parity:2` are understood too.
            Some(text) => {
                let named = Resiliency::parse(text)?;
                let copies = self.copies.or((named.copies > 1).then_some(named.copies));
                let parity = self.parity.or((named.parity > 0).then_some(named.parity));
                self.with(named.kind, copies, parity)
            }
        }
    }

    /// A family, with the numbers that were given as far as it has them.
    ///
    /// # Errors
    /// [`ToolError`] for what makes no sense.
    fn of(&self, kind: Kind) -> Result<Resiliency> {
        self.with(kind, self.copies, self.parity)
    }

    fn with(&self, kind: Kind, copies: Option<u8>, parity: Option<u8>) -> Result<Resiliency> {
        Ok(Resiliency::new(kind, copies, parity, self.columns()?, self.interleave()?)?)
    }

    /// The interleave that was given, in bytes.
    ///
    /// # Errors
    /// [`ToolError::Size`].
    pub fn interleave(&self) -> Result<Option<u64>> {
        size("--interleave", self.interleave.as_deref())
    }

    /// The size of a slab that was given, in bytes.
    ///
    /// # Errors
    /// [`ToolError::Size`].
    pub fn slab_bytes(&self) -> Result<Option<u64>> {
        size("--slab", self.slab.as_deref())
    }

    fn columns(&self) -> Result<Option<u8>> {
        match self.columns.as_deref() {
            None | Some("auto") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| ToolError::Columns { text: text.to_owned() }),
        }
    }
}

fn size(what: &'static str, text: Option<&str>) -> Result<Option<u64>> {
    text.map(parse_size).transpose().map_err(|source| ToolError::Size { what, source })
}
