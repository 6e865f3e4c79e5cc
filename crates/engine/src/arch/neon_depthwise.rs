//! Tiles of int8 depthwise convolutions with Advanced SIMD: adjacent pixels, 16 channels.
//!
//! With dot products, the bytes of a column in up to four rows are interleaved to a quad for each channel. It serves all pixels
//! whose window has the column. The fifth row of a kernel is interleaved by columns instead. Without dot products, the products of
//! two taps are added in i16.
#![allow(unsafe_code)]

use core::arch::aarch64::*;

use super::LANES;
use super::neon_instructions::{in_order, neon, opaque, sdot, usdot_i32};
use super::neon_int8::{I8MM, PLAIN, Sums, left_offset, signed};
use super::tiles::{INT8_DEPTHWISE_PIXELS as PIXELS, Int8DepthwiseOperands, Int8Taps};

/// Bytes of the weights of a quad of 16 channels.
const QUADS: usize = 4 * LANES;

/// Index of the weights of the fifth row in [`Int8Taps`]: those of the first four columns, and that of the last one.
const FIFTH_ROW: usize = 5;

/// Arranges weights for [`multiply`] and returns what is added to the initial accumulators; `None` if a weight may be -128 and the
/// extension is [`PLAIN`].
///
/// # Safety
/// As for [`Simd::int8_taps`](super::Simd::int8_taps).
#[inline(always)]
pub(super) unsafe fn taps<const EXTENSION: u8, const K: usize, const STEP: usize>(
    weights: [*const i8; 4],
    to: &mut Int8Taps,
) -> Option<Sums> {
    if const { EXTENSION == PLAIN } {
        return neon!(taps_by_bytes::<K>(weights, to));
    }
    const { assert!(K == 3 || K == 5) };
    let groups = const { K.div_ceil(4) };
    let mut sums = [neon!(vdupq_n_s32(0)); 4];
    for j in 0..4 {
        let mut fifth = [neon!(vdupq_n_u32(0)); 2];
        for w in 0..K {
            let from = weights[j].wrapping_add(w * groups * QUADS);
            let quads = neon!(vld1q_s8(from));
            neon!(vst1q_s8(to[w][16 * j..].as_mut_ptr(), quads));
            if const { left_offset(EXTENSION) != 0 } {
                sums[j] = neon!(sdot(quads, vdupq_n_s8(1), sums[j]));
            }
            if const { K == 5 } {
                // Bytes after the first are zeros.
                let last = neon!(vreinterpretq_u32_s8(vld1q_s8(from.wrapping_add(QUADS))));
                let (part, shift) = if w < 4 { (0, 8 * w) } else { (1, 8 * (4 - STEP)) };
                fifth[part] = neon!(vorrq_u32(fifth[part], vshlq_u32(last, vdupq_n_s32(shift as i32))));
            }
        }
        if const { K == 5 } {
            for part in 0..2 {
                let quads = neon!(vreinterpretq_s8_u32(fifth[part]));
                neon!(vst1q_s8(to[FIFTH_ROW + part][16 * j..].as_mut_ptr(), quads));
                if const { left_offset(EXTENSION) != 0 } {
                    sums[j] = neon!(sdot(quads, vdupq_n_s8(1), sums[j]));
                }
            }
        }
        sums[j] = neon!(vmulq_n_s32(sums[j], left_offset(EXTENSION)));
    }
    Some(sums)
}

/// Arranges weights as `[K][K][16]`, columns before rows.
///
/// # Safety
/// As for [`taps`].
#[target_feature(enable = "neon")]
#[inline]
unsafe fn taps_by_bytes<const K: usize>(weights: [*const i8; 4], to: &mut Int8Taps) -> Option<Sums> {
    let groups = const { K.div_ceil(4) };
    let to = to.as_flattened_mut();
    let mut minimum = vdupq_n_s8(0);
    // Up to 25 weights fit in an i16.
    const { assert!(K <= 5) };
    let mut sums = [vdupq_n_s16(0); 2];
    for (w, group) in (0..K).flat_map(|w| (0..groups).map(move |group| (w, group))) {
        let mut quads = [0; QUADS];
        for j in 0..4 {
            // SAFETY: the caller guarantees the weights.
            let four = unsafe { vld1q_s8(weights[j].wrapping_add((w * groups + group) * QUADS)) };
            // SAFETY: there are 16 bytes for each four channels.
            unsafe { vst1q_s8(quads[16 * j..].as_mut_ptr(), four) };
        }
        // SAFETY: the array has 64 bytes.
        let int8x16x4_t(first, second, third, fourth) = unsafe { vld4q_s8(quads.as_ptr()) };
        for (h, row) in (4 * group..K).zip([first, second, third, fourth]) {
            minimum = vminq_s8(minimum, row);
            sums = [vaddw_s8(sums[0], vget_low_s8(row)), vaddw_high_s8(sums[1], row)];
            // SAFETY: there are 16 bytes for each tap.
            unsafe { vst1q_s8(to[(w * K + h) * LANES..].as_mut_ptr(), row) };
        }
    }
    if vminvq_s8(minimum) == i8::MIN {
        return None;
    }
    let [low, high] = sums;
    let wide = [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)];
    Some(wide.map(|sums| vmulq_n_s32(sums, left_offset(PLAIN))))
}

/// Accumulates the products of a tile of a `K` x `K` kernel whose pixels are `STEP` columns apart.
///
/// # Safety
/// As for [`Simd::depthwise_int8`](super::Simd::depthwise_int8).
#[inline(always)]
pub(super) unsafe fn multiply<const EXTENSION: u8, const K: usize, const STEP: usize, const IS_EDGE: bool>(
    operands: &Int8DepthwiseOperands<'_, K>,
    sums: &mut [Sums; PIXELS],
) {
    if const { EXTENSION == PLAIN } {
        neon!(multiply_pairs::<K, STEP, IS_EDGE>(operands, sums));
    } else {
        neon!(multiply_quads::<EXTENSION, K, STEP, IS_EDGE>(operands, sums));
        if const { K == 5 } {
            neon!(multiply_fifth_row::<EXTENSION, K, STEP, IS_EDGE>(operands, sums));
        }
    }
}

/// Evaluates code for each column of a tile, in which the column is a constant: accumulators must be indexed by constants.
macro_rules! each_column {
    ($k:ident, $step:ident, |$column:ident| $code:block) => {{
        const { assert!((PIXELS - 1) * $step + $k <= 11) };
        each_column!(@ $k, $step, $column, $code, 0 1 2 3 4 5 6 7 8 9 10);
    }};
    (@ $k:ident, $step:ident, $column:ident, $code:block, $($number:literal)*) => {$(
        if const { $number < (PIXELS - 1) * $step + $k } {
            let $column: usize = $number;
            $code
        }
    )*};
}

/// Accumulates the products of the first four rows, or three.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
#[expect(clippy::large_stack_frames, reason = "the code has a copy for each column, whose variables are in registers")]
unsafe fn multiply_quads<const EXTENSION: u8, const K: usize, const STEP: usize, const IS_EDGE: bool>(
    operands: &Int8DepthwiseOperands<'_, K>,
    sums: &mut [Sums; PIXELS],
) {
    let mut index = [neon!(vdupq_n_u8(0)); 4];
    for j in 0..4 {
        index[j] = neon!(vld1q_u8(QUAD_INDEX[j].as_ptr()));
    }
    each_column!(K, STEP, |column| {
        let mut x = [neon!(vdupq_n_u8(0)); 4];
        for h in 0..const { if K < 4 { K } else { 4 } } {
            x[h] = neon!(load::<EXTENSION, K, IS_EDGE>(operands, h, column));
        }
        let taps = opaque(operands.taps).cast::<i8>();
        for j in 0..4 {
            let quads = if const { K < 4 } {
                neon!(vqtbl3q_u8(uint8x16x3_t(x[0], x[1], x[2]), index[j]))
            } else {
                neon!(vqtbl4q_u8(uint8x16x4_t(x[0], x[1], x[2], x[3]), index[j]))
            };
            for n in 0..PIXELS {
                if n * STEP <= column && column < n * STEP + K {
                    let right = neon!(vld1q_s8(taps.wrapping_add((column - n * STEP) * QUADS + 16 * j)));
                    sums[n][j] = neon!(dot::<EXTENSION>(quads, right, sums[n][j]));
                }
            }
        }
        for n in 0..PIXELS {
            if n * STEP <= column && column < n * STEP + K {
                sums[n] = neon!(in_order(sums[n]));
            }
        }
    });
}

/// For each four channels, the indices of their bytes in four rows of 16 bytes.
static QUAD_INDEX: [[u8; 16]; 4] = {
    let mut index = [[0; 16]; 4];
    let mut at = 0;
    while at < 64 {
        index[at / 16][at % 16] = (at % 4 * 16 + at / 4) as u8;
        at += 1;
    }
    index
};

/// Accumulates the products of the fifth row. Quads of four columns serve two pixels: the last column of a pixel's window is one of
/// the next pixel's first four.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_fifth_row<const EXTENSION: u8, const K: usize, const STEP: usize, const IS_EDGE: bool>(
    operands: &Int8DepthwiseOperands<'_, K>,
    sums: &mut [Sums; PIXELS],
) {
    let mut x = [neon!(vdupq_n_u8(0)); 12];
    each_column!(K, STEP, |column| {
        x[column] = neon!(load::<EXTENSION, K, IS_EDGE>(operands, 4, column));
    });
    macro_rules! quads {
        ($($n:literal)*) => {$(
            let four = [x[$n * STEP], x[$n * STEP + 1], x[$n * STEP + 2], x[$n * STEP + 3]];
            let quads = neon!(interleave(four));
            let taps = opaque(operands.taps).cast::<i8>();
            for j in 0..4 {
                if const { $n < PIXELS } {
                    let right = neon!(vld1q_s8(taps.wrapping_add(FIFTH_ROW * QUADS + 16 * j)));
                    sums[$n % PIXELS][j] = neon!(dot::<EXTENSION>(quads[j], right, sums[$n % PIXELS][j]));
                }
                if const { $n > 0 } {
                    let before = const { ($n + PIXELS - 1) % PIXELS };
                    let right = neon!(vld1q_s8(taps.wrapping_add((FIFTH_ROW + 1) * QUADS + 16 * j)));
                    sums[before][j] = neon!(dot::<EXTENSION>(quads[j], right, sums[before][j]));
                }
            }
            sums[$n % PIXELS] = neon!(in_order(sums[$n % PIXELS]));
        )*};
    }
    const { assert!(PIXELS == 4) };
    quads!(0 1 2 3 4);
}

/// Interleaves the bytes of four vectors.
#[target_feature(enable = "neon")]
#[inline]
fn interleave(x: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
    let pair = |a, b| [vreinterpretq_u16_u8(vzip1q_u8(a, b)), vreinterpretq_u16_u8(vzip2q_u8(a, b))];
    let ([low, high], [low_after, high_after]) = (pair(x[0], x[1]), pair(x[2], x[3]));
    [
        vreinterpretq_u8_u16(vzip1q_u16(low, low_after)),
        vreinterpretq_u8_u16(vzip2q_u16(low, low_after)),
        vreinterpretq_u8_u16(vzip1q_u16(high, high_after)),
        vreinterpretq_u8_u16(vzip2q_u16(high, high_after)),
    ]
}

/// Dot products of the bytes that [`Columns::load`] returns.
///
/// # Safety
/// The target has the extension, which is not [`PLAIN`].
#[inline(always)]
unsafe fn dot<const EXTENSION: u8>(x: uint8x16_t, weights: int8x16_t, sum: int32x4_t) -> int32x4_t {
    if const { EXTENSION == I8MM } {
        neon!(usdot_i32(x, weights, sum))
    } else {
        neon!(sdot(vreinterpretq_s8_u8(x), weights, sum))
    }
}

/// Accumulates the products of a tile in pairs of rows, and of columns in the last row. No weight is -128, so that the products of
/// two taps fit in an i16.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
#[expect(clippy::large_stack_frames, reason = "the code has a copy for each column, whose variables are in registers")]
unsafe fn multiply_pairs<const K: usize, const STEP: usize, const IS_EDGE: bool>(
    operands: &Int8DepthwiseOperands<'_, K>,
    sums: &mut [Sums; PIXELS],
) {
    const { assert!(K % 2 == 1) };
    // Products of the last row, to which those of the next column are added.
    let mut waiting = [[neon!(vdupq_n_s16(0)); 2]; PIXELS];
    each_column!(K, STEP, |column| {
        let mut x = [neon!(vdupq_n_s8(0)); K];
        for h in 0..K {
            x[h] = neon!(vreinterpretq_s8_u8(load::<PLAIN, K, IS_EDGE>(operands, h, column)));
        }
        let taps = opaque(operands.taps).cast::<i8>();
        for n in 0..PIXELS {
            if n * STEP <= column && column < n * STEP + K {
                let w = column - n * STEP;
                let mut right = [neon!(vdupq_n_s8(0)); K];
                for h in 0..K {
                    right[h] = neon!(vld1q_s8(taps.wrapping_add((w * K + h) * LANES)));
                }
                for pair in 0..K / 2 {
                    let products = neon!(products(x[2 * pair], right[2 * pair]));
                    let products = neon!(add_products(products, x[2 * pair + 1], right[2 * pair + 1]));
                    sums[n] = neon!(accumulate(sums[n], products));
                }
                waiting[n] = if w.is_multiple_of(2) {
                    neon!(products(x[K - 1], right[K - 1]))
                } else {
                    neon!(add_products(waiting[n], x[K - 1], right[K - 1]))
                };
                if w % 2 == 1 || w == K - 1 {
                    sums[n] = neon!(accumulate(sums[n], waiting[n]));
                }
                sums[n] = neon!(in_order(sums[n]));
            }
        }
    });
}

/// Products of 16 bytes, in i16.
#[target_feature(enable = "neon")]
#[inline]
fn products(a: int8x16_t, b: int8x16_t) -> [int16x8_t; 2] {
    [vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)]
}

/// Adds the products of 16 bytes.
#[target_feature(enable = "neon")]
#[inline]
fn add_products(sums: [int16x8_t; 2], a: int8x16_t, b: int8x16_t) -> [int16x8_t; 2] {
    [vmlal_s8(sums[0], vget_low_s8(a), vget_low_s8(b)), vmlal_high_s8(sums[1], a, b)]
}

/// Adds i16 to the accumulators of 16 channels.
#[target_feature(enable = "neon")]
#[inline]
fn accumulate(sums: Sums, products: [int16x8_t; 2]) -> Sums {
    [
        vaddw_s16(sums[0], vget_low_s16(products[0])),
        vaddw_high_s16(sums[1], products[0]),
        vaddw_s16(sums[2], vget_low_s16(products[1])),
        vaddw_high_s16(sums[3], products[1]),
    ]
}

/// Loads 16 channels of a row in a column, as the extension multiplies them.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn load<const EXTENSION: u8, const K: usize, const IS_EDGE: bool>(
    operands: &Int8DepthwiseOperands<'_, K>,
    row: usize,
    column: usize,
) -> uint8x16_t {
    let Int8DepthwiseOperands { from, strides, first, in_w, pad, .. } = operands;
    if const { !IS_EDGE } {
        return neon!(signed::<EXTENSION>(vld1q_u8(from[row].wrapping_add(column * strides[0]))));
    }
    let inside = from[row].wrapping_add(column * strides[row]);
    let from = core::hint::select_unpredictable(first.wrapping_add(column) < *in_w, inside, *pad);
    neon!(signed::<EXTENSION>(vld1q_u8(from)))
}
