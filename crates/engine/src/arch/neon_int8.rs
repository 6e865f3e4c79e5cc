//! Register tiles of the int8 GEMM with Advanced SIMD: a register of each row holds 16 elements of K, which are multiplied
//! by element.
#![allow(unsafe_code)]

use core::arch::aarch64::*;

use super::LANES;
use super::neon_instructions::{neon, sdot_by_element, sudot_by_element, usmmla};
use super::tiles::Int8Operands;

/// No extension of [`Neon`](super::neon::Neon).
pub(crate) const PLAIN: u8 = 0;

/// FEAT_DotProd: dot products of four i8 (`sdot`).
pub(super) const DOTPROD: u8 = 1;

/// FEAT_I8MM: dot products of four u8 and four i8 (`usdot`).
pub(super) const I8MM: u8 = 2;

/// Accumulators of 16 columns.
pub(super) type Sums = [int32x4_t; 4];

/// Number that is subtracted from the left side: `sdot` and `smull` multiply signed bytes.
pub(super) const fn left_offset(extension: u8) -> i32 {
    if extension == I8MM { 0 } else { 128 }
}

/// Accumulates the products of a tile of one panel.
///
/// # Safety
/// As for [`Simd::multiply_int8`](super::Simd::multiply_int8).
#[inline(always)]
pub(super) unsafe fn multiply<const EXTENSION: u8, const N: usize>(tile: &Int8Operands, sums: &mut [Sums; N]) {
    if const { EXTENSION == I8MM } && tile.is_paired {
        neon!(multiply_by_matrix::<N>(tile, sums));
    } else if const { EXTENSION == DOTPROD || EXTENSION == I8MM } {
        neon!(multiply_by_element::<EXTENSION, N>(tile, sums));
    } else {
        neon!(multiply_pairs::<N>(tile, sums));
    }
}

/// Accumulates the products of a tile by dot products by element.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_by_element<const EXTENSION: u8, const N: usize>(tile: &Int8Operands, sums: &mut [Sums; N]) {
    let mut weights = tile.weights;
    macro_rules! quad {
        ($lane:literal, $x:ident) => {
            for j in 0..4 {
                let right = neon!(vld1q_s8(weights.wrapping_add(16 * j)));
                for r in 0..N {
                    sums[r][j] = if const { EXTENSION == I8MM } {
                        neon!(sudot_by_element::<$lane>(right, $x[r], sums[r][j]))
                    } else {
                        neon!(sdot_by_element::<$lane>(right, $x[r], sums[r][j]))
                    };
                }
            }
            weights = weights.wrapping_add(4 * LANES);
        };
    }
    for tap in 0..tile.taps {
        let left = neon!(tile.rows::<N>(tap));
        let bytes = 4 * tile.quads;
        let mut at = 0;
        while at + 16 <= bytes {
            let mut x = [neon!(vdupq_n_u8(0)); N];
            for r in 0..N {
                x[r] = neon!(signed::<EXTENSION>(vld1q_u8(left[r].wrapping_add(at))));
            }
            quad!(0, x);
            quad!(1, x);
            quad!(2, x);
            quad!(3, x);
            at += 16;
        }
        if at + 8 <= bytes {
            let mut x = [neon!(vdupq_n_u8(0)); N];
            for r in 0..N {
                let eight = neon!(vcombine_u8(vld1_u8(left[r].wrapping_add(at)), vdup_n_u8(0)));
                x[r] = neon!(signed::<EXTENSION>(eight));
            }
            quad!(0, x);
            quad!(1, x);
            at += 8;
        }
        if at < bytes {
            let mut x = [neon!(vdupq_n_u8(0)); N];
            for r in 0..N {
                x[r] = neon!(signed::<EXTENSION>(load_quad(left[r], at)));
            }
            quad!(0, x);
        }
    }
}

/// Accumulates the products of a tile by matrix multiplications of pairs of rows and columns.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_by_matrix<const N: usize>(tile: &Int8Operands, sums: &mut [Sums; N]) {
    // Blocks of two rows and two columns, of which only the first half of `N` is used.
    let pairs = const { N.div_ceil(2) };
    let mut blocks = [[neon!(vdupq_n_s32(0)); 8]; N];
    // The second row of a pair; the last row of an odd number is repeated.
    let second = |pair: usize| if 2 * pair + 1 < N { 2 * pair + 1 } else { N - 1 };
    for pair in 0..pairs {
        for j in 0..4 {
            let halves = neon!(join_rows(sums[2 * pair][j], sums[second(pair)][j]));
            [blocks[pair][2 * j], blocks[pair][2 * j + 1]] = halves;
        }
    }
    let mut weights = tile.weights;
    macro_rules! step {
        ($x:ident) => {
            for c in 0..8 {
                let right = neon!(vld1q_s8(weights.wrapping_add(16 * c)));
                for pair in 0..pairs {
                    blocks[pair][c] = neon!(usmmla($x[pair], right, blocks[pair][c]));
                }
            }
            weights = weights.wrapping_add(8 * LANES);
        };
    }
    for tap in 0..tile.taps {
        let left = neon!(tile.rows::<N>(tap));
        let bytes = 4 * tile.quads;
        let mut at = 0;
        while at + 8 <= bytes {
            let mut x = [neon!(vdupq_n_u8(0)); N];
            for pair in 0..pairs {
                let first = neon!(vld1_u8(left[2 * pair].wrapping_add(at)));
                let other = neon!(vld1_u8(left[second(pair)].wrapping_add(at)));
                x[pair] = neon!(vcombine_u8(first, other));
            }
            step!(x);
            at += 8;
        }
        if at < bytes {
            let mut x = [neon!(vdupq_n_u8(0)); N];
            for pair in 0..pairs {
                let first = neon!(vget_low_u8(load_quad(left[2 * pair], at)));
                let other = neon!(vget_low_u8(load_quad(left[second(pair)], at)));
                x[pair] = neon!(vcombine_u8(first, other));
            }
            step!(x);
        }
    }
    for pair in 0..pairs {
        for j in 0..4 {
            let [first, other] = neon!(join_rows(blocks[pair][2 * j], blocks[pair][2 * j + 1]));
            sums[2 * pair][j] = first;
            if 2 * pair + 1 < N {
                sums[2 * pair + 1][j] = other;
            }
        }
    }
}

/// The low halves of two registers, and the high halves.
#[target_feature(enable = "neon")]
#[inline]
fn join_rows(a: int32x4_t, b: int32x4_t) -> [int32x4_t; 2] {
    let (a, b) = (vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b));
    [vreinterpretq_s32_s64(vzip1q_s64(a, b)), vreinterpretq_s32_s64(vzip2q_s64(a, b))]
}

/// Writes a panel for [`multiply_by_matrix`].
///
/// # Safety
/// As for [`Simd::pair_int8_columns`](super::Simd::pair_int8_columns).
#[inline(always)]
pub(super) unsafe fn pair_columns(tile: &Int8Operands, mut to: *mut i8) {
    let mut weights = tile.weights;
    for _ in 0..tile.taps {
        for quad in (0..tile.quads).step_by(2) {
            let has_second = quad + 1 < tile.quads;
            for j in 0..4 {
                let first = neon!(vreinterpretq_s32_s8(vld1q_s8(weights.wrapping_add(16 * j))));
                let mut second = neon!(vdupq_n_s32(0));
                if has_second {
                    second = neon!(vreinterpretq_s32_s8(vld1q_s8(weights.wrapping_add(4 * LANES + 16 * j))));
                }
                neon!(vst1q_s8(to.wrapping_add(32 * j), vreinterpretq_s8_s32(vzip1q_s32(first, second))));
                neon!(vst1q_s8(to.wrapping_add(32 * j + 16), vreinterpretq_s8_s32(vzip2q_s32(first, second))));
            }
            weights = weights.wrapping_add(if has_second { 8 * LANES } else { 4 * LANES });
            to = to.wrapping_add(8 * LANES);
        }
    }
}

/// Bytes of the left side as the dot product of the extension takes them.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn signed<const EXTENSION: u8>(x: uint8x16_t) -> uint8x16_t {
    if const { left_offset(EXTENSION) == 0 } { x } else { veorq_u8(x, vdupq_n_u8(128)) }
}

/// Loads the four bytes at an offset to the first lane and zeroes the others.
///
/// # Safety
/// Four bytes are readable, at any address.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load_quad(from: *const u8, at: usize) -> uint8x16_t {
    let quad;
    // SAFETY: the caller guarantees four bytes, which the instruction reads. Through an integer register, operations on the quad would
    // be more.
    unsafe {
        core::arch::asm!(
            "ldr {quad:s}, [{from}, {at}]",
            quad = lateout(vreg) quad,
            from = in(reg) from,
            at = in(reg) at,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    quad
}

/// Accumulates the products of a tile without an extension: the products of two elements of K in i16, then pairs of those in
/// i32. Each register of sums becomes two, with a sum for the even pairs of each column and one for the odd pairs.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_pairs<const N: usize>(tile: &Int8Operands, sums: &mut [Sums; N]) {
    let mut weights = tile.weights;
    let mut pairs = [[neon!(vdupq_n_s32(0)); 8]; N];
    for tap in 0..tile.taps {
        let left = neon!(tile.rows::<N>(tap));
        let bytes = 4 * tile.quads;
        let mut at = 0;
        if !tile.may_have_minimum {
            while at + 8 <= bytes {
                let mut x = [[neon!(vdupq_n_s8(0)); 2]; N];
                for r in 0..N {
                    x[r] = neon!(load_two_quads(left[r].wrapping_add(at)));
                }
                for j in 0..4 {
                    let first = neon!(vld1q_s8(weights.wrapping_add(16 * j)));
                    let second = neon!(vld1q_s8(weights.wrapping_add(4 * LANES + 16 * j)));
                    for r in 0..N {
                        let low = neon!(vmull_s8(vget_low_s8(first), vget_low_s8(x[r][0])));
                        let low = neon!(vmlal_s8(low, vget_low_s8(second), vget_low_s8(x[r][1])));
                        pairs[r][2 * j] = neon!(vpadalq_s16(pairs[r][2 * j], low));
                        let high = neon!(vmull_high_s8(first, x[r][0]));
                        let high = neon!(vmlal_high_s8(high, second, x[r][1]));
                        pairs[r][2 * j + 1] = neon!(vpadalq_s16(pairs[r][2 * j + 1], high));
                    }
                }
                weights = weights.wrapping_add(8 * LANES);
                at += 8;
            }
        }
        while at < bytes {
            let mut x = [neon!(vdupq_n_s8(0)); N];
            for r in 0..N {
                x[r] = neon!(repeat_quad(left[r].wrapping_add(at)));
            }
            for j in 0..4 {
                let right = neon!(vld1q_s8(weights.wrapping_add(16 * j)));
                for r in 0..N {
                    let low = neon!(vmull_s8(vget_low_s8(right), vget_low_s8(x[r])));
                    pairs[r][2 * j] = neon!(vpadalq_s16(pairs[r][2 * j], low));
                    let high = neon!(vmull_high_s8(right, x[r]));
                    pairs[r][2 * j + 1] = neon!(vpadalq_s16(pairs[r][2 * j + 1], high));
                }
            }
            weights = weights.wrapping_add(4 * LANES);
            at += 4;
        }
    }
    for r in 0..N {
        for j in 0..4 {
            sums[r][j] = neon!(vaddq_s32(sums[r][j], vpaddq_s32(pairs[r][2 * j], pairs[r][2 * j + 1])));
        }
    }
}

/// Loads four bytes less 128 to all lanes.
///
/// # Safety
/// Four bytes are readable, at any address.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn repeat_quad(from: *const u8) -> int8x16_t {
    // SAFETY: the caller guarantees four bytes.
    let quad = vreinterpretq_u8_u32(vdupq_n_u32(unsafe { from.cast::<u32>().read_unaligned() }));
    vreinterpretq_s8_u8(signed::<0>(quad))
}

/// Loads eight bytes less 128: the first four to all lanes, and the others.
///
/// # Safety
/// Eight bytes are readable, at any address.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load_two_quads(from: *const u8) -> [int8x16_t; 2] {
    // SAFETY: the caller guarantees eight bytes.
    let both = vreinterpret_u32_u8(veor_u8(unsafe { vld1_u8(from) }, vdup_n_u8(128)));
    [vreinterpretq_s8_u32(vdupq_lane_u32::<0>(both)), vreinterpretq_s8_u32(vdupq_lane_u32::<1>(both))]
}

/// Returns the column sums of `quads` steps of four k of a panel, and true if a weight may be -128.
///
/// # Safety
/// The panel has that many steps.
#[inline(always)]
pub(super) unsafe fn panel_sums<const EXTENSION: u8>(mut weights: *const i8, quads: usize) -> (Sums, bool) {
    let mut sums = [neon!(vdupq_n_s32(0)); 4];
    // Pairs of sums, and the minimum.
    let mut pairs = [neon!(vdupq_n_s32(0)); 8];
    let mut minimum = neon!(vdupq_n_s8(0));
    for _ in 0..quads {
        for j in 0..4 {
            let right = neon!(vld1q_s8(weights.wrapping_add(16 * j)));
            if const { EXTENSION == DOTPROD } {
                sums[j] = neon!(sdot_by_element::<0>(right, vdupq_n_u8(1), sums[j]));
            } else {
                minimum = neon!(vminq_s8(minimum, right));
                pairs[2 * j] = neon!(vpadalq_s16(pairs[2 * j], vmovl_s8(vget_low_s8(right))));
                pairs[2 * j + 1] = neon!(vpadalq_s16(pairs[2 * j + 1], vmovl_high_s8(right)));
            }
        }
        weights = weights.wrapping_add(4 * LANES);
    }
    for j in 0..4 {
        sums[j] = neon!(vaddq_s32(sums[j], vpaddq_s32(pairs[2 * j], pairs[2 * j + 1])));
    }
    (sums, const { EXTENSION != DOTPROD } && neon!(vminvq_s8(minimum)) == i8::MIN)
}

/// Loads the first `n` bytes (at most 16) and zeroes the others.
///
/// # Safety
/// `n` bytes are readable.
#[target_feature(enable = "neon")]
#[inline]
pub(super) unsafe fn load_bytes(from: *const u8, n: usize) -> uint8x16_t {
    if n >= 16 {
        // SAFETY: the caller guarantees 16 bytes.
        return unsafe { vld1q_u8(from) };
    }
    if n >= 8 {
        // SAFETY: the caller guarantees eight bytes.
        let first = unsafe { vld1_u8(from) };
        if n == 8 {
            return vcombine_u8(first, vdup_n_u8(0));
        }
        // SAFETY: the caller guarantees `n` bytes.
        let last = vreinterpret_u64_u8(unsafe { vld1_u8(from.wrapping_add(n - 8)) });
        let last = vshl_u64(last, vdup_n_s64(8 * (n as i64 - 16)));
        return vcombine_u8(first, vreinterpret_u8_u64(last));
    }
    let mut bytes = 0u64;
    for i in (0..n).rev() {
        // SAFETY: the caller guarantees `n` bytes.
        bytes = bytes << 8 | u64::from(unsafe { *from.wrapping_add(i) });
    }
    vreinterpretq_u8_u64(vsetq_lane_u64::<0>(bytes, vdupq_n_u64(0)))
}

/// Looks up bytes in a table.
///
/// # Safety
/// The target has Advanced SIMD.
#[inline(always)]
pub(super) unsafe fn lookup<const R: usize>(table: &[u8; 256], at: [uint8x16_t; R]) -> [uint8x16_t; R] {
    let mut bytes = at;
    for i in 0..4 {
        let from = table.as_ptr().wrapping_add(64 * i);
        let part = uint8x16x4_t(
            neon!(vld1q_u8(from)),
            neon!(vld1q_u8(from.wrapping_add(16))),
            neon!(vld1q_u8(from.wrapping_add(32))),
            neon!(vld1q_u8(from.wrapping_add(48))),
        );
        for r in 0..R {
            // An index beyond a part is out of range in `tbx`, which leaves the byte.
            bytes[r] = if i == 0 {
                neon!(vqtbl4q_u8(part, at[r]))
            } else {
                neon!(vqtbx4q_u8(bytes[r], part, vsubq_u8(at[r], vdupq_n_u8(64 * i as u8))))
            };
        }
    }
    bytes
}

/// Rounds 16 f32 lanes to nearest, ties to even, adds `zero`, and clamps to `min..=max`.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn to_u8(v: [float32x4_t; 4], zero: u8, min: u8, max: u8) -> uint8x16_t {
    // Each narrowing saturates, so that the result is that of a sum of any width.
    let zero = vdupq_n_s16(i16::from(zero));
    let low = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(v[0])), vcvtnq_s32_f32(v[1]));
    let high = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(v[2])), vcvtnq_s32_f32(v[3]));
    let bytes = vqmovun_high_s16(vqmovun_s16(vqaddq_s16(low, zero)), vqaddq_s16(high, zero));
    vminq_u8(vdupq_n_u8(max), vmaxq_u8(vdupq_n_u8(min), bytes))
}
