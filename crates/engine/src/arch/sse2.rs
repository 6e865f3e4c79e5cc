//! SSE2, the baseline of x86-64: a vector is four registers.

use core::arch::x86_64::*;

use super::x128::{each_register, nibbles_register_wise, register_wise, transpose8_register_wise, u8_register_wise};
use super::{Arithmetic, I8Quads, I16Pairs, I32, Kernel, MANTISSA, SQRT_HALF, Simd, U8Quads};

/// Token for SSE2, part of every x86-64 target.
#[derive(Clone, Copy)]
pub(crate) struct Sse2(());

impl Sse2 {
    #[cfg(baseline_simd)]
    pub(crate) const BASELINE: Self = Self(());

    pub(crate) fn new() -> Option<Self> {
        cfg!(target_feature = "sse2").then_some(Self(()))
    }
}

#[target_feature(enable = "sse2")]
fn enter<K: Kernel>(simd: Sse2, kernel: K) -> K::Out {
    kernel.run(simd)
}

/// `yes` where the bits of `mask` are set, else `no`.
#[target_feature(enable = "sse2")]
#[inline]
fn select(mask: __m128, yes: __m128, no: __m128) -> __m128 {
    _mm_or_ps(_mm_and_ps(mask, yes), _mm_andnot_ps(mask, no))
}

/// Magnitude of `v` with the sign of `sign`.
#[target_feature(enable = "sse2")]
#[inline]
fn with_sign(v: __m128, sign: __m128) -> __m128 {
    select(_mm_set1_ps(-0.0), sign, v)
}

/// `integral` with the sign of `v` where |v| < 2^23, else `v`: larger floats have no fraction.
#[target_feature(enable = "sse2")]
#[inline]
fn unless_integral(v: __m128, integral: __m128) -> __m128 {
    let has_fraction = _mm_cmplt_ps(with_sign(v, _mm_setzero_ps()), _mm_set1_ps(8_388_608.0));
    select(has_fraction, with_sign(integral, v), v)
}

/// Truncates toward zero, for |v| below 2^31.
#[target_feature(enable = "sse2")]
#[inline]
fn truncate(v: __m128) -> __m128 {
    _mm_cvtepi32_ps(_mm_cvttps_epi32(v))
}

#[target_feature(enable = "sse2")]
#[inline]
fn floor(v: __m128) -> __m128 {
    let truncated = truncate(v);
    unless_integral(v, _mm_sub_ps(truncated, _mm_and_ps(_mm_cmplt_ps(v, truncated), _mm_set1_ps(1.0))))
}

#[target_feature(enable = "sse2")]
#[inline]
fn ceil(v: __m128) -> __m128 {
    let truncated = truncate(v);
    unless_integral(v, _mm_add_ps(truncated, _mm_and_ps(_mm_cmplt_ps(truncated, v), _mm_set1_ps(1.0))))
}

/// Transposes a 4 x 4 block.
#[target_feature(enable = "sse2")]
#[inline]
fn transpose4([mut a, mut b, mut c, mut d]: [__m128; 4]) -> [__m128; 4] {
    _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
    [a, b, c, d]
}

/// Int8 dot product by multiplication in i16 (`pmaddwd`).
#[target_feature(enable = "sse2")]
#[inline]
fn dot_u8i8(a: __m128, b: __m128, sum: __m128) -> __m128 {
    let (a, b) = (_mm_castps_si128(a), _mm_castps_si128(b));
    let even = _mm_srai_epi16::<8>(_mm_slli_epi16::<8>(b));
    let even = _mm_madd_epi16(_mm_and_si128(a, _mm_set1_epi16(0xff)), even);
    let odd = _mm_madd_epi16(_mm_srli_epi16::<8>(a), _mm_srai_epi16::<8>(b));
    _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(sum), _mm_add_epi32(even, odd)))
}

/// Zero-extends 16 bytes to i32 lanes.
///
/// # Safety
/// 16 bytes are readable.
#[target_feature(enable = "sse2")]
#[inline]
unsafe fn widen(from: *const u8) -> [__m128; 4] {
    let zero = _mm_setzero_si128();
    // SAFETY: the caller guarantees 16 bytes.
    let bytes = unsafe { _mm_loadu_si128(from.cast()) };
    let (low, high) = (_mm_unpacklo_epi8(bytes, zero), _mm_unpackhi_epi8(bytes, zero));
    let registers = [
        _mm_unpacklo_epi16(low, zero),
        _mm_unpackhi_epi16(low, zero),
        _mm_unpacklo_epi16(high, zero),
        _mm_unpackhi_epi16(high, zero),
    ];
    registers.map(|register| _mm_castsi128_ps(register))
}

/// Rounds 16 f32 lanes to u8 and stores them.
///
/// # Safety
/// 16 bytes are writable.
#[target_feature(enable = "sse2")]
#[inline]
unsafe fn narrow(v: [__m128; 4], to: *mut u8) {
    let low = _mm_packs_epi32(_mm_cvtps_epi32(v[0]), _mm_cvtps_epi32(v[1]));
    let high = _mm_packs_epi32(_mm_cvtps_epi32(v[2]), _mm_cvtps_epi32(v[3]));
    let bytes = _mm_packus_epi16(low, high);
    // SAFETY: the caller guarantees 16 bytes.
    unsafe { _mm_storeu_si128(to.cast(), bytes) };
}

/// Low nibbles of each byte, minus 8.
#[target_feature(enable = "sse2")]
#[inline]
fn low_nibbles(v: __m128) -> __m128 {
    let low = _mm_and_si128(_mm_castps_si128(v), _mm_set1_epi8(15));
    _mm_castsi128_ps(_mm_sub_epi8(low, _mm_set1_epi8(8)))
}

/// High nibbles of each byte, minus 8.
#[target_feature(enable = "sse2")]
#[inline]
fn high_nibbles(v: __m128) -> __m128 {
    low_nibbles(_mm_castsi128_ps(_mm_srli_epi16::<4>(_mm_castps_si128(v))))
}

impl Arithmetic for Sse2 {
    type V = [__m128; 4];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        each_register!(|_i| _mm_set1_ps(x))
    }

    register_wise! {
        add(a, b) => _mm_add_ps(a, b);
        sub(a, b) => _mm_sub_ps(a, b);
        mul(a, b) => _mm_mul_ps(a, b);
        div(a, b) => _mm_div_ps(a, b);
        fma(a, b, c) => _mm_add_ps(_mm_mul_ps(a, b), c);
        // `maxps` and `minps` return their second operand if one is NaN or both are equal.
        max(bound, v) => _mm_max_ps(bound, v);
        min(bound, v) => _mm_min_ps(bound, v);
        abs(v) => _mm_andnot_ps(_mm_set1_ps(-0.0), v);
        copysign(v, sign) => with_sign(v, sign);
        select_less(a, b, yes, no) => select(_mm_cmplt_ps(a, b), yes, no);
        select_equal(a, b, yes, no) => select(_mm_cmpeq_ps(a, b), yes, no);
        sqrt(v) => _mm_sqrt_ps(v);
        floor(v) => floor(v);
        ceil(v) => ceil(v);
        trunc(v) => unless_integral(v, truncate(v));
        round(v) => unless_integral(v, _mm_cvtepi32_ps(_mm_cvtps_epi32(v)));
        ldexp(v, n) => {
            let exponent = _mm_slli_epi32::<23>(_mm_cvtps_epi32(n));
            _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(v), exponent))
        };
    }

    #[inline(always)]
    fn split(self, v: Self::V) -> (Self::V, Self::V) {
        #[target_feature(enable = "sse2")]
        #[inline]
        fn split_register(v: __m128) -> (__m128, __m128) {
            let sqrt_half = _mm_set1_epi32(SQRT_HALF.cast_signed());
            let from_sqrt_half = _mm_sub_epi32(_mm_castps_si128(v), sqrt_half);
            let mantissa = _mm_and_si128(from_sqrt_half, _mm_set1_epi32(MANTISSA.cast_signed()));
            let mantissa = _mm_castsi128_ps(_mm_add_epi32(mantissa, sqrt_half));
            (mantissa, _mm_cvtepi32_ps(_mm_srai_epi32::<23>(from_sqrt_half)))
        }
        let parts = each_register!(|i| split_register(v[i]));
        (parts.map(|part| part.0), parts.map(|part| part.1))
    }
}

impl Simd for Sse2 {
    type WithBf16 = Self;

    const MR: usize = 2;
    const NR_PANELS: usize = 1;
    const DEPTHWISE_PIXELS: usize = 4;
    const VECTOR_REGISTERS: usize = 4;
    const HAS_I16_DOT: bool = true;
    const INT8_MR: usize = Self::MR;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        // SAFETY: an `Sse2` exists only where the target has SSE2.
        unsafe { enter(self, kernel) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        each_register!(|i| _mm_loadu_ps(from.wrapping_add(4 * i)))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        each_register!(|i| _mm_storeu_ps(to.wrapping_add(4 * i), v[i]));
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
        I32(each_register!(|i| {
            let products = _mm_madd_epi16(_mm_castps_si128(a[i]), _mm_castps_si128(b[i]));
            _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(sum[i]), products))
        }))
    }

    #[inline(always)]
    fn bit_pairs<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> I16Pairs<Self> {
        let (v, field) = (v.0, (1 << WIDTH) - 1);
        I16Pairs(each_register!(|i| {
            let v = _mm_castps_si128(v[i]);
            let low = _mm_and_si128(_mm_srl_epi32(v, _mm_cvtsi32_si128(SHIFT)), _mm_set1_epi32(field));
            let high = _mm_sll_epi32(v, _mm_cvtsi32_si128(16 - SHIFT - WIDTH));
            _mm_castsi128_ps(_mm_or_si128(low, _mm_and_si128(high, _mm_set1_epi32(field << 16))))
        }))
    }

    #[inline(always)]
    fn sub_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>) -> I16Pairs<Self> {
        let (a, b) = (a.0, b.0);
        I16Pairs(each_register!(|i| _mm_castsi128_ps(_mm_sub_epi16(_mm_castps_si128(a[i]), _mm_castps_si128(b[i])))))
    }

    #[inline(always)]
    fn join_bits<const BITS: i32>(self, above: I32<Self>, below: I32<Self>) -> I32<Self> {
        let (above, below) = (above.0, below.0);
        I32(each_register!(|i| {
            let above = _mm_sll_epi32(_mm_castps_si128(above[i]), _mm_cvtsi32_si128(BITS));
            _mm_castsi128_ps(_mm_or_si128(above, _mm_castps_si128(below[i])))
        }))
    }

    #[inline(always)]
    fn add_i32(self, a: I32<Self>, b: I32<Self>) -> I32<Self> {
        let (a, b) = (a.0, b.0);
        I32(each_register!(|i| _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(a[i]), _mm_castps_si128(b[i])))))
    }

    #[inline(always)]
    fn i32_to_f32(self, v: I32<Self>) -> Self::V {
        let v = v.0;
        each_register!(|i| _mm_cvtepi32_ps(_mm_castps_si128(v[i])))
    }

    #[inline(always)]
    fn bits_to_f32<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> Self::V {
        let v = v.0;
        each_register!(|i| {
            let shifted = _mm_srli_epi32::<SHIFT>(_mm_castps_si128(v[i]));
            _mm_cvtepi32_ps(_mm_and_si128(shifted, _mm_set1_epi32((1 << WIDTH) - 1)))
        })
    }

    #[inline(always)]
    fn push_u8(self, above: U8Quads<Self>, below: I32<Self>) -> U8Quads<Self> {
        let (above, below) = (above.0, below.0);
        U8Quads(each_register!(|i| {
            let above = _mm_slli_epi32::<8>(_mm_castps_si128(above[i]));
            _mm_or_ps(_mm_castsi128_ps(above), below[i])
        }))
    }

    #[inline(always)]
    fn reduce_add(self, v: Self::V) -> f32 {
        #[target_feature(enable = "sse2")]
        #[inline]
        fn sum(v: [__m128; 4]) -> f32 {
            let four = _mm_add_ps(_mm_add_ps(v[0], v[2]), _mm_add_ps(v[1], v[3]));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
        // SAFETY: as for `vectorize`.
        unsafe { sum(v) }
    }

    transpose8_register_wise!(_mm_loadu_ps, transpose4, _mm_storeu_ps);
}
