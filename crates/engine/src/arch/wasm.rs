//! WebAssembly `simd128` and `relaxed-simd`: a vector is four 128-bit registers.
//!
//! A module with unsupported instructions is rejected as a whole when it is loaded, so nothing is detected at run
//! time: the instruction set that the module was compiled for is available.
#![allow(unused_unsafe, reason = "of all instruction sets, only this one's operations are safe to call")]

use core::arch::wasm32::*;

use super::x128::{each_register, nibbles_register_wise, register_wise, transpose8_register_wise, u8_register_wise};
use super::{Arithmetic, I8Quads, I16Pairs, I32, Kernel, MANTISSA, SQRT_HALF, Simd, U8Quads};

/// Token for `simd128`, and for `relaxed-simd` if `RELAXED`.
#[derive(Clone, Copy)]
pub(crate) struct Wasm<const RELAXED: bool>(());

#[cfg(any(not(target_feature = "relaxed-simd"), feature = "wide-scalar"))]
impl Wasm<false> {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

#[cfg(target_feature = "relaxed-simd")]
impl Wasm<true> {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

/// False if LLVM (22 at least) may compile `f32x4_pmax` and `f32x4_pmin` to `relaxed_max` and `relaxed_min`, which
/// return either operand if one is NaN.
const HAS_PMAX: bool = !cfg!(target_feature = "relaxed-simd");

/// Transposes a 4 x 4 block.
#[inline(always)]
fn transpose4(rows: [v128; 4]) -> [v128; 4] {
    let pair = |a, b| (i32x4_shuffle::<0, 4, 2, 6>(a, b), i32x4_shuffle::<1, 5, 3, 7>(a, b));
    let ((even01, odd01), (even23, odd23)) = (pair(rows[0], rows[1]), pair(rows[2], rows[3]));
    [
        i64x2_shuffle::<0, 2>(even01, even23),
        i64x2_shuffle::<0, 2>(odd01, odd23),
        i64x2_shuffle::<1, 3>(even01, even23),
        i64x2_shuffle::<1, 3>(odd01, odd23),
    ]
}

impl<const RELAXED: bool> Wasm<RELAXED> {
    /// `yes` where all bits of a lane of `mask` are set, `no` where none is.
    #[inline(always)]
    fn select(mask: v128, yes: v128, no: v128) -> v128 {
        if RELAXED { i32x4_relaxed_laneselect(yes, no, mask) } else { v128_bitselect(yes, no, mask) }
    }
}

/// Int8 dot product by multiplication in i16. The relaxed dot product takes only 7 bits of one side: handling the
/// eighth bit apart is exact, but twice as slow as this on V8. (V8's baseline compiler, as of Node.js 20, also
/// disagrees with its optimizing one.)
#[inline(always)]
fn dot_u8i8(a: v128, b: v128, sum: v128) -> v128 {
    let even = i32x4_dot_i16x8(v128_and(a, u16x8_splat(0xff)), i16x8_shr(i16x8_shl(b, 8), 8));
    let odd = i32x4_dot_i16x8(u16x8_shr(a, 8), i16x8_shr(b, 8));
    i32x4_add(sum, i32x4_add(even, odd))
}

/// Zero-extends 16 bytes to i32 lanes.
///
/// # Safety
/// 16 bytes are readable.
#[inline(always)]
unsafe fn widen(from: *const u8) -> [v128; 4] {
    // SAFETY: the caller guarantees 16 bytes.
    let bytes = unsafe { v128_load(from.cast()) };
    let (low, high) = (u16x8_extend_low_u8x16(bytes), u16x8_extend_high_u8x16(bytes));
    [
        u32x4_extend_low_u16x8(low),
        u32x4_extend_high_u16x8(low),
        u32x4_extend_low_u16x8(high),
        u32x4_extend_high_u16x8(high),
    ]
}

/// Rounds 16 f32 lanes to u8 and stores them.
///
/// # Safety
/// 16 bytes are writable.
#[inline(always)]
unsafe fn narrow(v: [v128; 4], to: *mut u8) {
    let v = v.map(|v| i32x4_trunc_sat_f32x4(f32x4_nearest(v)));
    let bytes = u8x16_narrow_i16x8(i16x8_narrow_i32x4(v[0], v[1]), i16x8_narrow_i32x4(v[2], v[3]));
    // SAFETY: the caller guarantees 16 bytes.
    unsafe { v128_store(to.cast(), bytes) };
}

/// Low nibbles of each byte, minus 8.
#[inline(always)]
fn low_nibbles(v: v128) -> v128 {
    i8x16_sub(v128_and(v, u8x16_splat(15)), u8x16_splat(8))
}

/// High nibbles of each byte, minus 8.
#[inline(always)]
fn high_nibbles(v: v128) -> v128 {
    i8x16_sub(u8x16_shr(v, 4), u8x16_splat(8))
}

impl<const RELAXED: bool> Arithmetic for Wasm<RELAXED> {
    type V = [v128; 4];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        each_register!(|_i| f32x4_splat(x))
    }

    register_wise! {
        add(a, b) => f32x4_add(a, b);
        sub(a, b) => f32x4_sub(a, b);
        mul(a, b) => f32x4_mul(a, b);
        div(a, b) => f32x4_div(a, b);
        fma(a, b, c) => if RELAXED { f32x4_relaxed_madd(a, b, c) } else { f32x4_add(f32x4_mul(a, b), c) };
        // `pmax` and `pmin` return their first operand if one is NaN or both are equal.
        max(bound, v) => if HAS_PMAX { f32x4_pmax(v, bound) } else { Self::select(f32x4_lt(v, bound), bound, v) };
        min(bound, v) => if HAS_PMAX { f32x4_pmin(v, bound) } else { Self::select(f32x4_gt(v, bound), bound, v) };
        abs(v) => f32x4_abs(v);
        copysign(v, sign) => v128_bitselect(sign, v, f32x4_splat(-0.0));
        select_less(a, b, yes, no) => Self::select(f32x4_lt(a, b), yes, no);
        select_equal(a, b, yes, no) => Self::select(f32x4_eq(a, b), yes, no);
        sqrt(v) => f32x4_sqrt(v);
        floor(v) => f32x4_floor(v);
        ceil(v) => f32x4_ceil(v);
        trunc(v) => f32x4_trunc(v);
        round(v) => f32x4_nearest(v);
        ldexp(v, n) => {
            let exponent = if RELAXED { i32x4_relaxed_trunc_f32x4(n) } else { i32x4_trunc_sat_f32x4(n) };
            i32x4_add(v, i32x4_shl(exponent, 23))
        };
    }

    #[inline(always)]
    fn split(self, v: Self::V) -> (Self::V, Self::V) {
        let split_register = |v| {
            let sqrt_half = u32x4_splat(SQRT_HALF);
            let from_sqrt_half = i32x4_sub(v, sqrt_half);
            let mantissa = i32x4_add(v128_and(from_sqrt_half, u32x4_splat(MANTISSA)), sqrt_half);
            (mantissa, f32x4_convert_i32x4(i32x4_shr(from_sqrt_half, 23)))
        };
        let parts = v.map(split_register);
        (parts.map(|part| part.0), parts.map(|part| part.1))
    }
}

impl<const RELAXED: bool> Simd for Wasm<RELAXED> {
    type WithBf16 = Self;

    const MR: usize = 2;
    const NR_PANELS: usize = 1;
    const DEPTHWISE_PIXELS: usize = 4;
    const VECTOR_REGISTERS: usize = 4;
    const HAS_I16_DOT: bool = true;
    const INT8_MR: usize = Self::MR;

    #[inline(never)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        kernel.run(self)
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        each_register!(|i| load4(from.wrapping_add(4 * i)))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        each_register!(|i| store4(to.wrapping_add(4 * i), v[i]));
    }

    u8_register_wise!(widen, narrow);
    nibbles_register_wise!(low_nibbles, high_nibbles);

    #[inline(always)]
    fn dot_u8i8(self, a: U8Quads<Self>, b: I8Quads<Self>, sum: I32<Self>) -> I32<Self> {
        let (a, b, sum) = (a.0, b.0, sum.0);
        I32(each_register!(|i| dot_u8i8(a[i], b[i], sum[i])))
    }

    #[inline(always)]
    fn dot_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>, sum: I32<Self>) -> I32<Self> {
        let (a, b, sum) = (a.0, b.0, sum.0);
        I32(each_register!(|i| i32x4_add(sum[i], i32x4_dot_i16x8(a[i], b[i]))))
    }

    #[inline(always)]
    fn bit_pairs<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> I16Pairs<Self> {
        let (v, field) = (v.0, (1 << WIDTH) - 1);
        I16Pairs(each_register!(|i| {
            let low = v128_and(u32x4_shr(v[i], SHIFT as u32), i32x4_splat(field));
            let high = i32x4_shl(v[i], (16 - SHIFT - WIDTH) as u32);
            v128_or(low, v128_and(high, i32x4_splat(field << 16)))
        }))
    }

    #[inline(always)]
    fn sub_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>) -> I16Pairs<Self> {
        let (a, b) = (a.0, b.0);
        I16Pairs(each_register!(|i| i16x8_sub(a[i], b[i])))
    }

    #[inline(always)]
    fn join_bits<const BITS: i32>(self, above: I32<Self>, below: I32<Self>) -> I32<Self> {
        let (above, below) = (above.0, below.0);
        I32(each_register!(|i| v128_or(i32x4_shl(above[i], BITS as u32), below[i])))
    }

    #[inline(always)]
    fn add_i32(self, a: I32<Self>, b: I32<Self>) -> I32<Self> {
        let (a, b) = (a.0, b.0);
        I32(each_register!(|i| i32x4_add(a[i], b[i])))
    }

    #[inline(always)]
    fn i32_to_f32(self, v: I32<Self>) -> Self::V {
        let v = v.0;
        each_register!(|i| f32x4_convert_i32x4(v[i]))
    }

    #[inline(always)]
    fn bits_to_f32<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> Self::V {
        let v = v.0;
        each_register!(|i| {
            let shifted = u32x4_shr(v[i], SHIFT as u32);
            f32x4_convert_i32x4(v128_and(shifted, i32x4_splat((1 << WIDTH) - 1)))
        })
    }

    #[inline(always)]
    fn push_u8(self, above: U8Quads<Self>, below: I32<Self>) -> U8Quads<Self> {
        let (above, below) = (above.0, below.0);
        U8Quads(each_register!(|i| v128_or(i32x4_shl(above[i], 8), below[i])))
    }

    #[inline(always)]
    fn reduce_add(self, v: Self::V) -> f32 {
        let four = f32x4_add(f32x4_add(v[0], v[2]), f32x4_add(v[1], v[3]));
        let two = f32x4_add(four, i64x2_shuffle::<1, 1>(four, four));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }

    transpose8_register_wise!(load4, transpose4, store4);
}

/// Loads four floats.
///
/// # Safety
/// Four floats are readable at `from`.
#[inline(always)]
unsafe fn load4(from: *const f32) -> v128 {
    // SAFETY: the caller guarantees it, and any alignment will do.
    unsafe { v128_load(from.cast()) }
}

/// Stores four floats.
///
/// # Safety
/// Four floats are writable at `to`.
#[inline(always)]
unsafe fn store4(to: *mut f32, v: v128) {
    // SAFETY: the caller guarantees it, and any alignment will do.
    unsafe { v128_store(to.cast(), v) };
}
