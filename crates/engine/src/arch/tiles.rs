//! Operands of register tiles that instruction sets compute in their own way, and the portable loop over K.
#![allow(unsafe_code)]

use super::{I32, LANES, Simd};

/// Operands of a register tile of the int8 GEMM: rows behind pointers, and panels of packed weights.
#[derive(Clone, Copy)]
pub(crate) struct Int8Operands {
    /// Pointers to the rows' elements, `[taps][pointer_stride]`, starting with the tile's first row.
    pub(crate) pointers: *const *const u8,
    pub(crate) pointer_stride: usize,
    pub(crate) taps: usize,
    /// Steps of four k per tap.
    pub(crate) quads: usize,
    /// First panel, and the bytes between panels.
    pub(crate) weights: *const i8,
    pub(crate) weights_stride: usize,
    /// Prefetch address of the first step and the bytes to that of the next step; the same offset applies to a second
    /// panel.
    pub(crate) ahead: *const i8,
    pub(crate) ahead_step: usize,
    /// True if a weight may be -128, see [`Int8PanelSums`].
    pub(crate) may_have_minimum: bool,
    /// True if the panel was written by [`Simd::pair_int8_columns`].
    #[cfg_attr(not(target_arch = "aarch64"), expect(dead_code, reason = "only Advanced SIMD reads it"))]
    pub(crate) is_paired: bool,
}

/// Facts of a panel of int8 weights that tiles need; only where [`Simd::INT8_LEFT_OFFSET`] is not 0.
pub(crate) struct Int8PanelSums<S: Simd> {
    /// Sum of the weights of each column.
    pub(crate) sums: I32<S>,
    /// True if a weight may be -128. Two products of -128 and -128 do not fit in an i16.
    pub(crate) may_have_minimum: bool,
}

/// A group of 32 rows of 16 columns of quantized weights, unpacked by [`Simd::unpack_group`] in the order of the instruction set.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct UnpackedGroup {
    pub(crate) weights: [[i8; 4 * LANES]; 8],
    pub(crate) scales: [f32; 2 * LANES],
    /// Initial accumulators.
    pub(crate) offsets: [i32; LANES],
}

/// Adjacent pixels of a tile of [`Simd::depthwise_int8`].
pub(crate) const INT8_DEPTHWISE_PIXELS: usize = 4;

/// Weights of 16 channels of an int8 depthwise kernel in the order of the instruction set, see [`Simd::int8_taps`].
pub(crate) type Int8Taps = [[i8; 4 * LANES]; 7];

/// Operands of adjacent pixels of an int8 depthwise convolution with a `K` x `K` kernel: 16 channels.
#[cfg_attr(not(target_arch = "aarch64"), expect(dead_code, reason = "only Advanced SIMD reads them"))]
pub(crate) struct Int8DepthwiseOperands<'a, const K: usize> {
    /// The bytes of the first column in each row, and the bytes to those of the next column.
    pub(crate) from: [*const u8; K],
    pub(crate) strides: [usize; K],
    /// The first column, which may lie before the input, and the columns of the input.
    pub(crate) first: usize,
    pub(crate) in_w: usize,
    /// 16 bytes that columns outside of the input have.
    pub(crate) pad: *const u8,
    pub(crate) taps: &'a Int8Taps,
}

impl Int8Operands {
    /// Returns the size in bytes of a panel that [`Simd::pair_int8_columns`] writes.
    pub(crate) const fn paired_bytes(&self) -> usize {
        self.taps * self.quads.div_ceil(2) * 8 * LANES
    }

    /// Returns the pointers of the rows of a tap.
    ///
    /// # Safety
    /// There are `N` rows.
    #[inline(always)]
    pub(super) unsafe fn rows<const N: usize>(&self, tap: usize) -> [*const u8; N] {
        let pointers = self.pointers.wrapping_add(tap * self.pointer_stride);
        let mut rows = [core::ptr::null::<u8>(); N];
        for r in 0..N {
            // SAFETY: there is a pointer for each row and tap.
            rows[r] = unsafe { *pointers.wrapping_add(r) };
        }
        rows
    }

    /// Accumulates the products of a tile by [`Simd::dot_u8i8`].
    ///
    /// # Safety
    /// As for [`Simd::multiply_int8`].
    // LLVM keeps the accumulators in registers only if every access is in an unrolled loop over indices.
    #[inline(always)]
    pub(super) unsafe fn multiply<S: Simd, const N: usize, const P: usize>(&self, s: S, sums: &mut [[I32<S>; P]; N]) {
        let (mut weights, mut ahead) = (self.weights, self.ahead);
        for tap in 0..self.taps {
            // SAFETY: the caller guarantees the rows.
            let left = unsafe { self.rows::<N>(tap) };
            for quad in 0..self.quads {
                let mut right = [s.splat_i8_quads(0); P];
                for p in 0..P {
                    // SAFETY: each panel has 64 weights for each four of K.
                    right[p] = unsafe { s.load_i8_quads(weights.wrapping_add(p * self.weights_stride)) };
                }
                if const { N == S::INT8_MR } {
                    for p in 0..P {
                        s.prefetch(ahead.wrapping_add(p * self.weights_stride).cast());
                    }
                    ahead = ahead.wrapping_add(self.ahead_step);
                }
                for r in 0..N {
                    // SAFETY: each pointer is to four bytes for each step.
                    let bytes = unsafe { left[r].wrapping_add(quad * 4).cast::<u32>().read_unaligned() };
                    let x = s.splat_u8_quads(u32::from_le(bytes));
                    for p in 0..P {
                        sums[r][p] = s.dot_u8i8(x, right[p], sums[r][p]);
                    }
                }
                weights = weights.wrapping_add(4 * LANES);
            }
        }
    }
}
