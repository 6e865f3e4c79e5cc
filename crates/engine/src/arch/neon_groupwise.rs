//! Dot products of rows and groups of quantized weights with Advanced SIMD.
//!
//! Bytes and weights are multiplied unsigned, with the bias that the weights are stored with, or 128. The sum of a row's bytes
//! times the bias is subtracted, which costs as much for a row as for a single column. For many rows, groups are unpacked to signed
//! bytes with their scales.
#![allow(unsafe_code)]

use core::arch::aarch64::*;

use super::LANES;
use super::neon_instructions::{in_order, neon, opaque, sdot, sdot_by_element, udot, udot_by_element, usmmla};
use super::neon_int8::{I8MM, PLAIN, left_offset, signed};
use super::tiles::UnpackedGroup;

/// Accumulators of 16 columns; they wrap, and are read as i32.
type Sums = [uint32x4_t; 4];

/// Returns the dot products of a group for each row.
///
/// # Safety
/// As for [`Simd::dot_group`](super::Simd::dot_group).
#[inline(always)]
pub(super) unsafe fn dot_group<const EXTENSION: u8, const R: usize>(
    left: *const u8,
    stride: usize,
    weights: *const u8,
    is_four_bits: bool,
) -> [Sums; R] {
    let mut x = [[neon!(vdupq_n_u8(0)); 2]; R];
    for r in 0..R {
        let row = left.wrapping_add(r * stride);
        x[r] = [neon!(vld1q_u8(row)), neon!(vld1q_u8(row.wrapping_add(16)))];
    }
    let bias = if is_four_bits { 8 } else { 128 };
    let mut sums = [[neon!(vdupq_n_u32(0)); 4]; R];
    for r in 0..R {
        sums[r] = [neon!(minus_sum::<EXTENSION>(x[r], bias)); 4];
    }
    if const { EXTENSION == PLAIN } {
        neon!(multiply_wide::<R>(&x, weights, is_four_bits, &mut sums));
        return sums;
    }
    macro_rules! quad {
        ($quad:literal) => {
            for j in 0..4 {
                let [low, high] = neon!(load_weights(weights.wrapping_add($quad * 4 * LANES + 16 * j), is_four_bits));
                for r in 0..R {
                    sums[r][j] = neon!(udot_by_element::<$quad>(low, x[r][0], sums[r][j]));
                    sums[r][j] = neon!(udot_by_element::<$quad>(high, x[r][1], sums[r][j]));
                }
            }
        };
    }
    quad!(0);
    quad!(1);
    quad!(2);
    quad!(3);
    sums
}

/// Minus the sum of 32 bytes, times a number, in all lanes.
#[target_feature(enable = "neon")]
#[inline]
fn minus_sum<const EXTENSION: u8>(x: [uint8x16_t; 2], by: u32) -> uint32x4_t {
    let sums = if const { EXTENSION == PLAIN } {
        vpaddlq_u16(vpadalq_u8(vpaddlq_u8(x[0]), x[1]))
    } else {
        let (ones, zero) = (vdupq_n_u8(1), vdupq_n_u32(0));
        // SAFETY: code with an extension comes from `vectorize_int8`.
        let first = unsafe { udot(x[0], ones, zero) };
        // SAFETY: likewise.
        unsafe { udot(x[1], ones, first) }
    };
    vdupq_n_u32(vaddvq_u32(sums).wrapping_mul(by).wrapping_neg())
}

/// Loads four elements of K of four columns, and those 16 elements later, with their bias.
///
/// # Safety
/// 16 bytes are readable, and with 8 bits as many 256 bytes later.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load_weights(from: *const u8, is_four_bits: bool) -> [uint8x16_t; 2] {
    // SAFETY: the caller guarantees the bytes.
    let first = unsafe { vld1q_u8(from) };
    if is_four_bits {
        return [vandq_u8(first, vdupq_n_u8(15)), vshrq_n_u8::<4>(first)];
    }
    // SAFETY: likewise.
    let second = unsafe { vld1q_u8(from.wrapping_add(16 * LANES)) };
    [veorq_u8(first, vdupq_n_u8(128)), veorq_u8(second, vdupq_n_u8(128))]
}

/// Accumulates the products of a group without an extension, in u16, which holds eight products of a byte and a nibble.
///
/// # Safety
/// As for [`dot_group`].
#[inline(always)]
unsafe fn multiply_wide<const R: usize>(
    x: &[[uint8x16_t; 2]; R],
    weights: *const u8,
    is_four_bits: bool,
    sums: &mut [Sums; R],
) {
    for j in 0..4 {
        // Sums of each four columns, two for each.
        let mut pairs = [[neon!(vdupq_n_u32(0)); 2]; R];
        let mut products = [[neon!(vdupq_n_u16(0)); 2]; R];
        for quad in 0..4 {
            let [low, high] = neon!(load_weights(weights.wrapping_add(quad * 4 * LANES + 16 * j), is_four_bits));
            for r in 0..R {
                let first = neon!(repeat_quad(x[r][0], quad));
                let second = neon!(repeat_quad(x[r][1], quad));
                if is_four_bits {
                    products[r] = neon!([
                        vmlal_u8(products[r][0], vget_low_u8(low), first),
                        vmlal_u8(products[r][1], vget_high_u8(low), first)
                    ]);
                    products[r] = neon!([
                        vmlal_u8(products[r][0], vget_low_u8(high), second),
                        vmlal_u8(products[r][1], vget_high_u8(high), second)
                    ]);
                } else {
                    pairs[r] = neon!([
                        vpadalq_u16(pairs[r][0], vmull_u8(vget_low_u8(low), first)),
                        vpadalq_u16(pairs[r][1], vmull_u8(vget_high_u8(low), first))
                    ]);
                    pairs[r] = neon!([
                        vpadalq_u16(pairs[r][0], vmull_u8(vget_low_u8(high), second)),
                        vpadalq_u16(pairs[r][1], vmull_u8(vget_high_u8(high), second))
                    ]);
                }
            }
        }
        for r in 0..R {
            let [low, high] =
                if is_four_bits { neon!([vpaddlq_u16(products[r][0]), vpaddlq_u16(products[r][1])]) } else { pairs[r] };
            sums[r][j] = neon!(vaddq_u32(sums[r][j], vpaddq_u32(low, high)));
        }
    }
}

/// Two copies of the four bytes in a lane.
#[target_feature(enable = "neon")]
#[inline]
fn repeat_quad(x: uint8x16_t, lane: usize) -> uint8x8_t {
    let x = vreinterpretq_u32_u8(x);
    vreinterpret_u8_u32(match lane {
        0 => vdup_laneq_u32::<0>(x),
        1 => vdup_laneq_u32::<1>(x),
        2 => vdup_laneq_u32::<2>(x),
        _ => vdup_laneq_u32::<3>(x),
    })
}

/// Unpacks a group: `[8][16][4]` signed bytes, four elements of K of each column, for [`multiply_by_element`]; or `[4][8][2][8]`, eight
/// elements of K of pairs of columns, for [`multiply_by_matrix`].
///
/// # Safety
/// As for [`Simd::unpack_group`](super::Simd::unpack_group).
#[inline(always)]
pub(super) unsafe fn unpack<const EXTENSION: u8>(
    weights: *const u8,
    is_four_bits: bool,
    zeros: &[u8; LANES],
    scales: [float32x4_t; 4],
    to: &mut UnpackedGroup,
) {
    for j in 0..4 {
        let at = weights.wrapping_add(16 * j);
        let mut quads = [neon!(vdupq_n_s8(0)); 8];
        if is_four_bits {
            let zeros: [u8; 16] = core::array::from_fn(|byte| zeros[4 * j + byte / 4]);
            let zeros = neon!(vld1q_u8(zeros.as_ptr()));
            for quad in 0..4 {
                let [low, high] = neon!(load_weights(at.wrapping_add(quad * 4 * LANES), true));
                quads[quad] = neon!(vreinterpretq_s8_u8(vsubq_u8(low, zeros)));
                quads[4 + quad] = neon!(vreinterpretq_s8_u8(vsubq_u8(high, zeros)));
            }
        } else {
            for quad in 0..8 {
                quads[quad] = neon!(vld1q_s8(at.wrapping_add(quad * 4 * LANES).cast()));
            }
        }
        if const { EXTENSION == I8MM } {
            for step in 0..4 {
                let (first, second) = (quads[2 * step], quads[2 * step + 1]);
                let [low, high] = neon!(zip_quads(first, second));
                let to = to.weights.as_flattened_mut()[step * 8 * LANES + 32 * j..].as_mut_ptr();
                neon!(vst1q_s8(to, low));
                neon!(vst1q_s8(to.wrapping_add(16), high));
            }
            let pairs = neon!(vreinterpretq_f64_f32(scales[j]));
            neon!(vst1q_f64(to.scales[8 * j..].as_mut_ptr().cast(), vzip1q_f64(pairs, pairs)));
            neon!(vst1q_f64(to.scales[8 * j + 4..].as_mut_ptr().cast(), vzip2q_f64(pairs, pairs)));
        } else {
            let mut sums = neon!(vdupq_n_s32(0));
            for quad in 0..8 {
                neon!(vst1q_s8(to.weights[quad][16 * j..].as_mut_ptr(), quads[quad]));
                sums = neon!(sdot(quads[quad], vdupq_n_s8(1), sums));
            }
            neon!(vst1q_s32(to.offsets[4 * j..].as_mut_ptr(), vmulq_n_s32(sums, left_offset(EXTENSION))));
            neon!(vst1q_f32(to.scales[4 * j..].as_mut_ptr(), scales[j]));
        }
    }
}

/// Four elements of K of four columns and the next four, as eight elements of pairs of columns.
#[target_feature(enable = "neon")]
#[inline]
fn zip_quads(first: int8x16_t, second: int8x16_t) -> [int8x16_t; 2] {
    let (first, second) = (vreinterpretq_s32_s8(first), vreinterpretq_s32_s8(second));
    [vreinterpretq_s8_s32(vzip1q_s32(first, second)), vreinterpretq_s8_s32(vzip2q_s32(first, second))]
}

/// Multiplies rows by groups with dot products by element.
///
/// # Safety
/// As for [`Simd::multiply_groups`](super::Simd::multiply_groups).
#[inline(always)]
pub(super) unsafe fn multiply_by_element<const R: usize>(
    mut left: *const u8,
    stride: usize,
    groups: &[UnpackedGroup],
    totals: *mut f32,
) {
    for group in groups {
        let mut sums = [[neon!(vdupq_n_s32(0)); 4]; R];
        for j in 0..4 {
            let offsets = neon!(vld1q_s32(group.offsets[4 * j..].as_ptr()));
            for r in 0..R {
                sums[r][j] = offsets;
            }
        }
        macro_rules! quad {
            ($lane:literal, $x:ident, $half:literal) => {
                for j in 0..4 {
                    let right = neon!(vld1q_s8(group.weights[4 * $half + $lane][16 * j..].as_ptr()));
                    for r in 0..R {
                        sums[r][j] = neon!(sdot_by_element::<$lane>(right, $x[r], sums[r][j]));
                    }
                }
                for r in 0..R {
                    sums[r] = neon!(in_order(sums[r]));
                }
            };
        }
        macro_rules! half {
            ($half:literal) => {
                let mut x = [neon!(vdupq_n_u8(0)); R];
                for r in 0..R {
                    x[r] = neon!(signed::<PLAIN>(vld1q_u8(left.wrapping_add(r * stride + 16 * $half))));
                }
                quad!(0, x, $half);
                quad!(1, x, $half);
                quad!(2, x, $half);
                quad!(3, x, $half);
            };
        }
        half!(0);
        half!(1);
        let mut scales = [neon!(vdupq_n_f32(0.0)); 4];
        for j in 0..4 {
            scales[j] = neon!(vld1q_f32(group.scales[4 * j..].as_ptr()));
        }
        let totals = opaque(totals.cast_const()).cast_mut();
        for r in 0..R {
            neon!(add_scaled(totals.wrapping_add(r * LANES), sums[r], scales));
        }
        left = left.wrapping_add(32);
    }
}

/// Multiplies rows by groups with matrix multiplications of pairs of rows and columns.
///
/// # Safety
/// As for [`Simd::multiply_groups`](super::Simd::multiply_groups).
#[inline(always)]
pub(super) unsafe fn multiply_by_matrix<const R: usize>(
    left: *const u8,
    stride: usize,
    groups: &[UnpackedGroup],
    totals: *mut f32,
) {
    // Of rows, blocks and operands, only the first half of `R` is used. The last row of an odd number is repeated.
    let pairs = const { R.div_ceil(2) };
    let mut rows = [[left; 2]; R];
    for pair in 0..pairs {
        let other = if 2 * pair + 1 < R { 2 * pair + 1 } else { R - 1 };
        rows[pair] = [left.wrapping_add(2 * pair * stride), left.wrapping_add(other * stride)];
    }
    for group in groups {
        let mut blocks = [[[neon!(vdupq_n_s32(0)); 4]; 2]; R];
        macro_rules! step {
            ($($step:literal)*) => {$(
                let mut x = [neon!(vdupq_n_u8(0)); R];
                for pair in 0..pairs {
                    x[pair] = neon!(join_eight(rows[pair]));
                    rows[pair] = [rows[pair][0].wrapping_add(8), rows[pair][1].wrapping_add(8)];
                }
                for c in 0..8 {
                    let weights = group.weights.as_ptr().cast::<i8>();
                    let right = neon!(vld1q_s8(weights.wrapping_add($step * 8 * LANES + 16 * c)));
                    for pair in 0..pairs {
                        blocks[pair][c / 4][c % 4] = neon!(usmmla(x[pair], right, blocks[pair][c / 4][c % 4]));
                    }
                }
                for pair in 0..pairs {
                    blocks[pair] = neon!([in_order(blocks[pair][0]), in_order(blocks[pair][1])]);
                }
            )*};
        }
        step!(0 1 2 3);
        let totals = opaque(totals.cast_const()).cast_mut();
        for half in 0..2 {
            let mut scales = [neon!(vdupq_n_f32(0.0)); 4];
            for c in 0..4 {
                scales[c] = neon!(vld1q_f32(group.scales[16 * half + 4 * c..].as_ptr()));
            }
            for pair in 0..pairs {
                neon!(add_scaled(totals.wrapping_add(LANES * (2 * pair + half)), blocks[pair][half], scales));
            }
        }
    }
}

/// Loads eight bytes of two rows.
///
/// # Safety
/// They are readable.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn join_eight([first, second]: [*const u8; 2]) -> uint8x16_t {
    // SAFETY: the caller guarantees the bytes.
    let low = vreinterpretq_u64_u8(vcombine_u8(unsafe { vld1_u8(first) }, vdup_n_u8(0)));
    // SAFETY: likewise.
    let high = unsafe { second.cast::<u64>().read_unaligned() };
    vreinterpretq_u8_u64(vsetq_lane_u64::<1>(high, low))
}

/// Adds 16 sums times their scales to totals, in two operations.
///
/// # Safety
/// 16 floats are readable and writable.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn add_scaled(totals: *mut f32, sums: [int32x4_t; 4], scales: [float32x4_t; 4]) {
    let mut next = [vdupq_n_f32(0.0); 4];
    for j in 0..4 {
        let scaled = vmulq_f32(vcvtq_f32_s32(sums[j]), scales[j]);
        // SAFETY: the caller guarantees the floats.
        next[j] = vaddq_f32(unsafe { vld1q_f32(totals.wrapping_add(4 * j)) }, scaled);
    }
    for j in 0..4 {
        // SAFETY: likewise.
        unsafe { vst1q_f32(totals.wrapping_add(4 * j), next[j]) };
    }
}

/// Arranges the totals of [`multiply_by_matrix`] by rows.
///
/// # Safety
/// As for [`Simd::multiply_groups`](super::Simd::multiply_groups).
#[inline(always)]
pub(super) unsafe fn arrange_totals<const R: usize>(totals: *mut f32) {
    for pair in 0..const { R.div_ceil(2) } {
        let totals = totals.wrapping_add(2 * LANES * pair);
        let mut blocks = [neon!(vdupq_n_f64(0.0)); 8];
        for c in 0..8 {
            blocks[c] = neon!(vld1q_f64(totals.wrapping_add(4 * c).cast()));
        }
        for j in 0..4 {
            let (first, second) = (blocks[2 * j], blocks[2 * j + 1]);
            neon!(vst1q_f64(totals.wrapping_add(4 * j).cast(), vzip1q_f64(first, second)));
            neon!(vst1q_f64(totals.wrapping_add(LANES + 4 * j).cast(), vzip2q_f64(first, second)));
        }
    }
}
