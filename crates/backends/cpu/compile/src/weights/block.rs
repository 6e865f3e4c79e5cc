//! Memory for packed weights.

use memmap2::{MmapMut, MmapOptions};

/// Alignment of the start in floats: a cache line, and the widest vector.
const ALIGNMENT: usize = 16;

/// Number of bytes from which a block is mapped, in large pages if the system has them: they are faster to map and to address.
const LARGE: usize = 4 << 20;

/// A block of floats, which begin as zeros.
pub(super) enum Block {
    /// Aligned to a page.
    Mapped(MmapMut),
    /// With room to begin at a multiple of [`ALIGNMENT`].
    Heap { floats: Vec<f32>, start: usize },
}

impl Block {
    pub fn new(len: usize) -> Self {
        let size = len * size_of::<f32>();
        if size >= LARGE
            && let Ok(block) = MmapOptions::new().len(size).map_anon()
        {
            // Without large pages, the system uses small ones.
            #[cfg(target_os = "linux")]
            let _ = block.advise(memmap2::Advice::HugePage);
            return Self::Mapped(block);
        }
        let floats = vec![0f32; len + ALIGNMENT];
        let start = floats.as_ptr().align_offset(ALIGNMENT * size_of::<f32>()).min(ALIGNMENT);
        Self::Heap { floats, start }
    }

    pub fn floats_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Mapped(block) => bytemuck::cast_slice_mut(block),
            Self::Heap { floats, start } => {
                let end = floats.len() - ALIGNMENT + *start;
                &mut floats[*start..end]
            }
        }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Mapped(block) => block,
            Self::Heap { floats, start } => bytemuck::cast_slice(&floats[*start..floats.len() - ALIGNMENT + *start]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_as_long_as_asked_for() {
        for len in [0, 1, 100, LARGE / 4 - 1, LARGE / 4, LARGE / 4 + 5] {
            let mut block = Block::new(len);
            assert_eq!(block.floats_mut().len(), len);
            assert!(block.floats_mut().iter().all(|&float| float == 0.0));
            block.floats_mut().fill(1.5);
            assert_eq!(block.as_ref().len(), 4 * len);
            assert!(block.as_ref().as_ptr().addr().is_multiple_of(4 * ALIGNMENT));
            assert!(block.as_ref().chunks(4).all(|float| float == 1.5f32.to_ne_bytes()));
        }
    }
}
