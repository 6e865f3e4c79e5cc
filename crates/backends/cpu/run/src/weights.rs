//! Weights: windows of a mapped program, or memory that whoever compiled the program handed over.

use std::collections::HashMap;
use std::sync::Arc;

/// Blobs of weights by name.
pub type Weights = HashMap<String, SharedBytes>;

/// Bytes that several share. They are aligned as floats are, and do not change.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A blob of floats.
pub(crate) enum Blob<'m> {
    Lent(&'m [f32]),
    Shared(SharedBytes),
}

impl<'m> Blob<'m> {
    /// Of bytes in the program; `None` if they are not aligned.
    pub fn borrowed(bytes: &'m [u8]) -> Option<Self> {
        floats(bytes).map(Self::Lent)
    }

    /// Of bytes that others use, too; `None` if they are not aligned.
    pub fn shared(bytes: &SharedBytes) -> Option<Self> {
        floats((**bytes).as_ref())?;
        Some(Self::Shared(bytes.clone()))
    }

    pub fn floats(&self) -> &[f32] {
        match self {
            Self::Lent(floats) => floats,
            // Bytes that change after all give nothing, not a panic.
            Self::Shared(bytes) => floats((**bytes).as_ref()).unwrap_or_default(),
        }
    }
}

/// Casts bytes to floats; `None` if they are not aligned. An empty slice has no alignment to keep.
fn floats(bytes: &[u8]) -> Option<&[f32]> {
    if bytes.is_empty() { Some(&[]) } else { bytemuck::try_cast_slice(bytes).ok() }
}
