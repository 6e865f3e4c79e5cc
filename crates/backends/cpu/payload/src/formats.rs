//! The formats of packed weights.

use rushlight_engine::Half;
use rushlight_engine::pack::{Bits, GroupwiseMatrix, Offsets, QuantizedMatrix, ScaleFormat};
use rushlight_format::ScalarType;

use crate::codec::{structure, union};

/// The element type of panels of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatFormat {
    F32,
    Half(Half),
}

impl FloatFormat {
    /// Returns the element type of tensors of this format.
    pub const fn dtype(self) -> ScalarType {
        match self {
            Self::F32 => ScalarType::Float,
            Self::Half(Half::F16) => ScalarType::Half,
            Self::Half(Half::Bf16) => ScalarType::BFloat16,
        }
    }
}

/// The layout of a weight-only quantized matrix, which its packed bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedFormat {
    pub bits: Bits,
    pub offsets: Offsets,
    pub scales: ScaleFormat,
    /// Consecutive rows of K that share a scale.
    pub group: u32,
}

impl QuantizedFormat {
    /// Returns the `[k, n]` matrix of this format.
    pub const fn matrix(self, k: usize, n: usize) -> QuantizedMatrix {
        let Self { bits, offsets, scales, group } = self;
        QuantizedMatrix { k, n, bits, offsets, scales, group: group as usize }
    }
}

/// The layout of a group-wise quantized matrix, with a scale for every 32 rows of K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupwiseFormat {
    /// True for integers and zero points of four bits instead of eight.
    pub is_four_bits: bool,
    pub has_zeros: bool,
    /// True for f16 scales instead of f32.
    pub has_half_scales: bool,
}

impl GroupwiseFormat {
    /// Returns the `[k, n]` matrix of this format.
    pub const fn matrix(self, k: usize, n: usize) -> GroupwiseMatrix {
        let Self { is_four_bits, has_zeros, has_half_scales } = self;
        GroupwiseMatrix { k, n, is_four_bits, has_zeros, has_half_scales }
    }
}

structure! {
    QuantizedFormat { bits, offsets, scales, group }
    GroupwiseFormat { is_four_bits, has_zeros, has_half_scales }
}

union! {
    FloatFormat { 0 F32, 1 Half(half) }
    Bits { 0 Four, 1 Six, 2 Eight }
    Offsets { 0 None, 1 ZeroPoints, 2 Minima }
    ScaleFormat { 0 F32, 1 F16, 2 Products }
}
