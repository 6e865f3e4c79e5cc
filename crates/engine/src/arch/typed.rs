//! Vectors of other element types: newtypes over the f32 vector of an instruction set.
//!
//! A register holds any of them. The types keep their interpretations apart at no cost, so that an accumulator of the
//! int8 GEMM, for example, cannot be added as f32 before [`Simd::i32_to_f32`] has converted it.

use super::Simd;

/// Sixteen i32 lanes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct I32<S: Simd>(pub(super) S::V);

/// Sixteen lanes of four u8.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct U8Quads<S: Simd>(pub(super) S::V);

/// Sixteen lanes of four i8.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct I8Quads<S: Simd>(pub(super) S::V);

#[cfg(target_arch = "x86_64")]
impl<S: Simd> I8Quads<S> {
    /// Reinterprets the bytes of each lane as a quad.
    #[inline(always)]
    pub fn of(lanes: I32<S>) -> Self {
        Self(lanes.0)
    }

    #[inline(always)]
    pub fn into_i32(self) -> I32<S> {
        I32(self.0)
    }
}

/// Sixteen lanes of two i16, the first in the lower half.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct I16Pairs<S: Simd>(pub(super) S::V);

impl<S: Simd> I16Pairs<S> {
    /// Lanes that hold pairs.
    #[inline(always)]
    pub fn of(lanes: I32<S>) -> Self {
        Self(lanes.0)
    }

    #[inline(always)]
    pub fn into_i32(self) -> I32<S> {
        I32(self.0)
    }
}

/// Sixteen lanes of two bf16.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Bf16Pairs<S: Simd>(pub(super) S::V);

/// Sixteen lanes of sums of products of u8 and 4-bit integers, which [`Simd::dot_u8i4`] accumulates: i32, or pairs of i16
/// where the instruction set multiplies bytes into those.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct I4Sums<S: Simd>(pub(super) S::V);

impl<S: Simd> I32<S> {
    /// Reinterprets lanes in 0..=255 as quads whose first byte they are and whose other bytes are zero.
    #[inline(always)]
    pub(crate) fn as_u8_quads(self) -> U8Quads<S> {
        U8Quads(self.0)
    }

    /// Repeats the low byte of each lane, which is in 0..=255, in all of its bytes.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn repeat_byte(self, s: S) -> I8Quads<S> {
        I8Quads::of(s.mul_i32(self, 0x0101_0101))
    }
}
