//! Dot products of rows and groups of quantized weights with Advanced SIMD.
//!
//! Bytes and weights are multiplied unsigned, with the bias that the weights are stored with, or 128. The sum of a row's bytes
//! times the bias is subtracted, which costs as much for a row as for a single column.
#![allow(unsafe_code)]

use core::arch::aarch64::*;

use super::LANES;
use super::neon_instructions::{neon, udot, udot_by_element};
use super::neon_int8::PLAIN;

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
