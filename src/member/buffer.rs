//! Memory that starts on a sector's boundary, as `O_DIRECT` wants it.

use bytemuck::{Pod, Zeroable};

use crate::units::SECTOR_LEN;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; SECTOR_LEN]);

/// A buffer of whole sectors that starts on a sector's boundary.
#[derive(Clone)]
pub struct AlignedBuf {
    pages: Vec<Page>,
}

impl AlignedBuf {
    /// A buffer of zeros of at least `len` bytes, rounded up to whole sectors.
    pub fn zeroed(len: usize) -> Self {
        Self { pages: bytemuck::zeroed_vec(len.div_ceil(SECTOR_LEN)) }
    }

    /// A copy of `bytes`, padded with zeros to whole sectors.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf[..bytes.len()].copy_from_slice(bytes);
        buf
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.pages)
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.pages)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_padded() {
        let buf = AlignedBuf::copy_of(&[7; 5000]);
        assert_eq!(buf.len(), 8192);
        assert_eq!(buf.as_ptr() as usize % SECTOR_LEN, 0);
        assert!(buf[..5000].iter().all(|&b| b == 7) && buf[5000..].iter().all(|&b| b == 0));
    }
}
