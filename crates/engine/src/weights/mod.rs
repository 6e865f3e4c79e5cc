//! Element types of packed weights.
#![allow(unsafe_code)]

mod quantized;

use alloc::vec::Vec;

use crate::Half;
use crate::arch::{Kernel, LANES, Simd};
use crate::error::{Error, at_least};

pub use quantized::QuantizedWeights;
pub(crate) use quantized::{PanelGroups, QuantizedGroup};

/// Packed weights, as a function of [`pack`](crate::pack) returned them, optionally rounded to 16 bits by
/// [`pack::narrow`](crate::pack::narrow).
///
/// Accumulation is in f32. 16-bit weights are widened on the fly, except where the processor has bf16 dot products
/// ([`Engine::supports_bf16`](crate::Engine::supports_bf16)): there bf16 weights are multiplied as such and the left side is
/// rounded to bf16 as well, unless it has fewer than [`MIN_GEMM_ROWS`](crate::MIN_GEMM_ROWS) rows. Where 16-bit dot products are
/// faster than floats (x86, WebAssembly), the left side of quantized weights in groups of 16 rows or more is rounded to integers of
/// 16 bits: each element by up to 2^-16 of the largest of the 256 elements of its row and block.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a> {
    F32(&'a [f32]),
    Half(Half, &'a [u16]),
    /// Weight-only quantized, for GEMM and GEMV only.
    Quantized(QuantizedWeights<'a>),
}

impl<'a> From<&'a [f32]> for Weights<'a> {
    fn from(weights: &'a [f32]) -> Self {
        Self::F32(weights)
    }
}

impl<'a> From<&'a Vec<f32>> for Weights<'a> {
    fn from(weights: &'a Vec<f32>) -> Self {
        Self::F32(weights)
    }
}

impl Weights<'_> {
    /// Number of weights, including padding.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(weights) => weights.len(),
            Self::Half(_, weights) => weights.len(),
            Self::Quantized(quantized) => quantized.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits at element `at`. Quantized weights are returned whole, twice.
    pub(crate) fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::F32(weights) => {
                let (first, others) = weights.split_at(at);
                (Self::F32(first), Self::F32(others))
            }
            Self::Half(half, weights) => {
                let (first, others) = weights.split_at(at);
                (Self::Half(half, first), Self::Half(half, others))
            }
            Self::Quantized(_) => (self, self),
        }
    }

    /// Checks that there are at least `expected` weights, and that quantized weights have `rows` rows per panel; `None`
    /// rejects quantized weights.
    pub(crate) fn check(&self, expected: usize, rows: Option<usize>) -> Result<(), Error> {
        let what = "packed weights";
        if let Self::Quantized(quantized) = self
            && rows != Some(quantized.rows())
        {
            return Err(Error::Mismatch { what, expected: rows.unwrap_or(0), got: quantized.rows() });
        }
        at_least(what, self.len(), expected)
    }
}

/// Packed weights of one element type, read a row of a panel (16 elements) at a time.
pub(crate) trait PanelRows: Copy {
    /// Loads the row at element `at`, a multiple of 16, as f32.
    ///
    /// # Safety
    /// The row exists.
    unsafe fn load_row<S: Simd>(self, s: S, at: usize) -> S::V;

    /// Loads the two rows from element `at` on, a multiple of 32; panels have an even number of rows.
    ///
    /// # Safety
    /// Both rows exist.
    #[inline(always)]
    unsafe fn load_row_pair<S: Simd>(self, s: S, at: usize) -> [S::V; 2] {
        // SAFETY: the caller guarantees both.
        [unsafe { self.load_row(s, at) }, unsafe { self.load_row(s, at + LANES) }]
    }
}

/// Panels of f32 weights.
#[derive(Clone, Copy)]
pub(crate) struct F32Panels(pub(crate) *const f32);

impl PanelRows for F32Panels {
    #[inline(always)]
    unsafe fn load_row<S: Simd>(self, s: S, at: usize) -> S::V {
        // SAFETY: the caller guarantees 16 floats.
        unsafe { s.load(self.0.wrapping_add(at)) }
    }
}

/// Panels of [`Half::F16`].
#[derive(Clone, Copy)]
pub(crate) struct F16Panels(pub(crate) *const u16);

impl PanelRows for F16Panels {
    #[inline(always)]
    unsafe fn load_row<S: Simd>(self, s: S, at: usize) -> S::V {
        // SAFETY: the caller guarantees 16 elements.
        unsafe { s.load_f16(self.0.wrapping_add(at)) }
    }
}

/// Panels of [`Half::Bf16`], whose rows are stored in pairs.
#[derive(Clone, Copy)]
pub(crate) struct Bf16Panels(pub(crate) *const u16);

impl PanelRows for Bf16Panels {
    #[inline(always)]
    unsafe fn load_row<S: Simd>(self, s: S, at: usize) -> S::V {
        let pair = at / (2 * LANES) * (2 * LANES);
        // SAFETY: panels have whole pairs.
        let rows = unsafe { s.widen_bf16_pairs(self.0.wrapping_add(pair)) };
        rows[usize::from(at > pair)]
    }

    #[inline(always)]
    unsafe fn load_row_pair<S: Simd>(self, s: S, at: usize) -> [S::V; 2] {
        debug_assert!(at.is_multiple_of(2 * LANES), "the first row of a pair");
        // SAFETY: the caller guarantees both rows.
        unsafe { s.widen_bf16_pairs(self.0.wrapping_add(at)) }
    }
}

/// Widens `rows` rows of a panel to f32, from element `first` on, a multiple of 16.
pub(crate) struct WidenPanel<'a> {
    pub(crate) packed: Weights<'a>,
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Destination of `16 * rows` floats.
    pub(crate) to: *mut f32,
}

impl WidenPanel<'_> {
    /// Runs the kernel.
    ///
    /// # Safety
    /// The weights exist, and `16 * rows` floats are writable at `to`.
    pub(crate) unsafe fn run<S: Simd>(self, s: S) {
        s.vectorize(self);
    }

    #[inline(always)]
    fn widen_rows<S: Simd>(&self, s: S, source: impl PanelRows) {
        let to = |row: usize| self.to.wrapping_add(row * LANES);
        let single = self.rows.min(self.first / LANES % 2);
        let last = self.rows - (self.rows - single) % 2;
        for row in (single..last).step_by(2) {
            // SAFETY: `run` requires the weights.
            let [one, other] = unsafe { source.load_row_pair(s, self.first + row * LANES) };
            // SAFETY: `run` requires the destination.
            unsafe { s.store(to(row), one) };
            // SAFETY: likewise.
            unsafe { s.store(to(row + 1), other) };
        }
        for row in (0..single).chain(last..self.rows) {
            // SAFETY: `run` requires the weights.
            let v = unsafe { source.load_row(s, self.first + row * LANES) };
            // SAFETY: `run` requires the destination.
            unsafe { s.store(to(row), v) };
        }
    }
}

impl Kernel for WidenPanel<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.packed {
            // f32 weights are read in place.
            Weights::F32(_) => {}
            Weights::Half(Half::F16, packed) => self.widen_rows(s, F16Panels(packed.as_ptr())),
            Weights::Half(Half::Bf16, packed) => self.widen_rows(s, Bf16Panels(packed.as_ptr())),
            // SAFETY: `run` requires all of it.
            Weights::Quantized(quantized) => unsafe {
                quantized::widen(s, &quantized, self.first, self.rows, self.to);
            },
        }
    }
}
