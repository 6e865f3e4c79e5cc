//! AVX2, FMA and F16C: a vector is two registers.

use core::arch::x86_64::*;

use super::{Arithmetic, I4Sums, I8Quads, I16Pairs, I32, Kernel, MANTISSA, SQRT_HALF, Simd, U8Quads};

/// Token for AVX2 with FMA and F16C, which every processor with AVX2 supports. With `VNNI`, its code may use AVX-VNNI
/// as well.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool> {
    vnni: Option<VnniToken>,
}

/// Proof that the processor supports AVX-VNNI.
#[derive(Clone, Copy)]
struct VnniToken(());

impl Avx2<false> {
    pub(crate) fn new() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("f16c");
        #[cfg(not(feature = "std"))]
        let found = cfg!(all(target_feature = "avx2", target_feature = "fma", target_feature = "f16c"));
        found.then_some(Self { vnni: None })
    }

    /// Detects AVX2 with AVX-VNNI.
    pub(crate) fn with_vnni() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::is_x86_feature_detected!("avxvnni");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "avxvnni");
        Self::new().filter(|_| found).map(|_| Self { vnni: Some(VnniToken(())) })
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn enter<K: Kernel>(simd: Avx2<false>, kernel: K) -> K::Out {
    kernel.run(simd)
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn enter_vnni<K: Kernel>(simd: Avx2<true>, kernel: K) -> K::Out {
    kernel.run(simd)
}

/// Evaluates one expression for each of the two registers of a vector.
macro_rules! both_registers {
    ($low:expr, $high:expr) => {
        [
            // SAFETY: an `Avx2` exists only where the processor has AVX2, FMA and F16C, which is all that this needs;
            // callers of loads guarantee the memory.
            unsafe { $low },
            // SAFETY: likewise.
            unsafe { $high },
        ]
    };
}

/// Masks of the two registers for the first `n` of 16 lanes.
#[inline(always)]
fn masks(n: usize) -> [__m256i; 2] {
    static ONES_THEN_ZEROS: [i32; 32] = {
        let mut mask = [0; 32];
        let mut i = 0;
        while i < 16 {
            mask[i] = -1;
            i += 1;
        }
        mask
    };
    let first = ONES_THEN_ZEROS.as_ptr().wrapping_add(16 - n.min(16));
    // `first` is at most 16 elements into the table of 32, which leaves 16.
    both_registers!(_mm256_loadu_si256(first.cast()), _mm256_loadu_si256(first.wrapping_add(8).cast()))
}

/// Stores the first `n` floats (fewer than 8) without a masked store, which takes dozens of cycles on some processors.
///
/// # Safety
/// `n` floats are writable at `to`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn store_below_8(to: *mut f32, n: usize, v: __m256) {
    let (mut to, mut rest) = (to, _mm256_castps256_ps128(v));
    if n & 4 != 0 {
        // SAFETY: the caller guarantees at least 4 floats.
        unsafe { _mm_storeu_ps(to, rest) };
        to = to.wrapping_add(4);
        rest = _mm256_extractf128_ps::<1>(v);
    }
    if n & 2 != 0 {
        let two = _mm_castps_pd(rest);
        // SAFETY: the caller guarantees 2 floats after those.
        unsafe { _mm_storel_pd(to.cast(), two) };
        to = to.wrapping_add(2);
        rest = _mm_movehl_ps(rest, rest);
    }
    if n & 1 != 0 {
        // SAFETY: the caller guarantees the last float.
        unsafe { _mm_store_ss(to, rest) };
    }
}

impl<const VNNI: bool> Arithmetic for Avx2<VNNI> {
    type V = [__m256; 2];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: as for `vectorize`.
        let half = unsafe { _mm256_set1_ps(x) };
        [half, half]
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        both_registers!(_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1]))
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        both_registers!(_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1]))
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        both_registers!(_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1]))
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        both_registers!(_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1]))
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        both_registers!(_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1]))
    }

    #[inline(always)]
    fn max(self, bound: Self::V, v: Self::V) -> Self::V {
        // `vmaxps` returns its second operand if one is NaN.
        both_registers!(_mm256_max_ps(bound[0], v[0]), _mm256_max_ps(bound[1], v[1]))
    }

    #[inline(always)]
    fn min(self, bound: Self::V, v: Self::V) -> Self::V {
        both_registers!(_mm256_min_ps(bound[0], v[0]), _mm256_min_ps(bound[1], v[1]))
    }

    #[inline(always)]
    fn abs(self, v: Self::V) -> Self::V {
        let sign = self.splat(-0.0);
        both_registers!(_mm256_andnot_ps(sign[0], v[0]), _mm256_andnot_ps(sign[1], v[1]))
    }

    #[inline(always)]
    fn copysign(self, v: Self::V, sign: Self::V) -> Self::V {
        let mask = self.splat(-0.0);
        let magnitude = self.abs(v);
        both_registers!(
            _mm256_or_ps(magnitude[0], _mm256_and_ps(mask[0], sign[0])),
            _mm256_or_ps(magnitude[1], _mm256_and_ps(mask[1], sign[1]))
        )
    }

    #[inline(always)]
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        both_registers!(
            _mm256_blendv_ps(no[0], yes[0], _mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0])),
            _mm256_blendv_ps(no[1], yes[1], _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1]))
        )
    }

    #[inline(always)]
    fn select_equal(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        both_registers!(
            _mm256_blendv_ps(no[0], yes[0], _mm256_cmp_ps::<_CMP_EQ_OQ>(a[0], b[0])),
            _mm256_blendv_ps(no[1], yes[1], _mm256_cmp_ps::<_CMP_EQ_OQ>(a[1], b[1]))
        )
    }

    #[inline(always)]
    fn sqrt(self, v: Self::V) -> Self::V {
        both_registers!(_mm256_sqrt_ps(v[0]), _mm256_sqrt_ps(v[1]))
    }

    #[inline(always)]
    fn floor(self, v: Self::V) -> Self::V {
        const MODE: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
        both_registers!(_mm256_round_ps::<MODE>(v[0]), _mm256_round_ps::<MODE>(v[1]))
    }

    #[inline(always)]
    fn ceil(self, v: Self::V) -> Self::V {
        const MODE: i32 = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
        both_registers!(_mm256_round_ps::<MODE>(v[0]), _mm256_round_ps::<MODE>(v[1]))
    }

    #[inline(always)]
    fn trunc(self, v: Self::V) -> Self::V {
        const MODE: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
        both_registers!(_mm256_round_ps::<MODE>(v[0]), _mm256_round_ps::<MODE>(v[1]))
    }

    #[inline(always)]
    fn round(self, v: Self::V) -> Self::V {
        const MODE: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        both_registers!(_mm256_round_ps::<MODE>(v[0]), _mm256_round_ps::<MODE>(v[1]))
    }

    #[inline(always)]
    fn ldexp(self, v: Self::V, n: Self::V) -> Self::V {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn half(v: __m256, n: __m256) -> __m256 {
            let exponent = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), exponent))
        }
        both_registers!(half(v[0], n[0]), half(v[1], n[1]))
    }

    #[inline(always)]
    fn split(self, v: Self::V) -> (Self::V, Self::V) {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn half(v: __m256) -> (__m256, __m256) {
            let sqrt_half = _mm256_set1_epi32(SQRT_HALF.cast_signed());
            let from_sqrt_half = _mm256_sub_epi32(_mm256_castps_si256(v), sqrt_half);
            let mantissa = _mm256_and_si256(from_sqrt_half, _mm256_set1_epi32(MANTISSA.cast_signed()));
            let mantissa = _mm256_castsi256_ps(_mm256_add_epi32(mantissa, sqrt_half));
            (mantissa, _mm256_cvtepi32_ps(_mm256_srai_epi32::<23>(from_sqrt_half)))
        }
        let [low, high] = both_registers!(half(v[0]), half(v[1]));
        ([low.0, high.0], [low.1, high.1])
    }
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type WithBf16 = Self;

    const MR: usize = 6;
    const NR_PANELS: usize = 1;
    const DEPTHWISE_PIXELS: usize = 6;
    const VECTOR_REGISTERS: usize = 8;
    const HAS_I16_DOT: bool = true;
    const INT8_MR: usize = if VNNI { 6 } else { 4 };
    const INTERLEAVE: usize = 2;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        let Self { vnni } = self;
        if const { VNNI } {
            // SAFETY: an `Avx2<true>` comes from a `VnniToken`, which exists only where the processor has AVX-VNNI.
            unsafe { enter_vnni(Avx2 { vnni }, kernel) }
        } else {
            // SAFETY: an `Avx2` exists only where the processor has AVX2 and FMA.
            unsafe { enter(Avx2 { vnni }, kernel) }
        }
    }

    #[inline(always)]
    fn vectorize_int8<K: Kernel>(self, kernel: K) -> K::Out {
        let Some(vnni) = self.vnni else { return self.vectorize(kernel) };
        // SAFETY: the token is there only where the processor has AVX-VNNI.
        unsafe { enter_vnni(Avx2 { vnni: Some(vnni) }, kernel) }
    }

    #[inline(always)]
    fn has_int8_dot(self) -> bool {
        self.vnni.is_some()
    }

    #[inline(always)]
    fn dot_u8i8(self, a: U8Quads<Self>, b: I8Quads<Self>, sum: I32<Self>) -> I32<Self> {
        #[target_feature(enable = "avx2,avxvnni")]
        #[inline]
        fn dot_u8i8(a: __m256, b: __m256, sum: __m256) -> __m256 {
            let (a, b) = (_mm256_castps_si256(a), _mm256_castps_si256(b));
            let sum = _mm256_castps_si256(sum);
            _mm256_castsi256_ps(_mm256_dpbusd_avx_epi32(sum, a, b))
        }
        #[target_feature(enable = "avx2")]
        #[inline]
        fn dot_u8i8_by_i16(a: __m256, b: __m256, sum: __m256) -> __m256 {
            let (a, b) = (_mm256_castps_si256(a), _mm256_castps_si256(b));
            let sum = _mm256_castps_si256(sum);
            let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b));
            let even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(0xff)), even);
            let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(a), _mm256_srai_epi16::<8>(b));
            _mm256_castsi256_ps(_mm256_add_epi32(sum, _mm256_add_epi32(even, odd)))
        }
        let (a, b, sum) = (a.0, b.0, sum.0);
        I32(if const { VNNI } {
            // An `Avx2<true>` exists only where the processor has AVX-VNNI.
            both_registers!(dot_u8i8(a[0], b[0], sum[0]), dot_u8i8(a[1], b[1], sum[1]))
        } else {
            both_registers!(dot_u8i8_by_i16(a[0], b[0], sum[0]), dot_u8i8_by_i16(a[1], b[1], sum[1]))
        })
    }

    #[inline(always)]
    fn dot_u8i4(self, a: U8Quads<Self>, b: I8Quads<Self>, sum: I4Sums<Self>) -> I4Sums<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn dot(a: __m256, b: __m256, sum: __m256) -> __m256 {
            let pairs = _mm256_maddubs_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b));
            _mm256_castsi256_ps(_mm256_add_epi16(_mm256_castps_si256(sum), pairs))
        }
        if const { VNNI } {
            return I4Sums(self.dot_u8i8(a, b, I32(sum.0)).0);
        }
        let (a, b, sum) = (a.0, b.0, sum.0);
        I4Sums(both_registers!(dot(a[0], b[0], sum[0]), dot(a[1], b[1], sum[1])))
    }

    #[inline(always)]
    fn i4_sums_to_i32(self, sums: I4Sums<Self>) -> I32<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn of_pairs(pairs: __m256) -> __m256 {
            _mm256_castsi256_ps(_mm256_madd_epi16(_mm256_castps_si256(pairs), _mm256_set1_epi16(1)))
        }
        if const { VNNI } {
            return I32(sums.0);
        }
        I32(both_registers!(of_pairs(sums.0[0]), of_pairs(sums.0[1])))
    }

    #[inline(always)]
    fn dot_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>, sum: I32<Self>) -> I32<Self> {
        #[target_feature(enable = "avx2,avxvnni")]
        #[inline]
        fn dot(a: __m256, b: __m256, sum: __m256) -> __m256 {
            let (a, b) = (_mm256_castps_si256(a), _mm256_castps_si256(b));
            _mm256_castsi256_ps(_mm256_dpwssd_avx_epi32(_mm256_castps_si256(sum), a, b))
        }
        #[target_feature(enable = "avx2")]
        #[inline]
        fn multiply_and_add(a: __m256, b: __m256, sum: __m256) -> __m256 {
            let products = _mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), products))
        }
        let (a, b, sum) = (a.0, b.0, sum.0);
        I32(if const { VNNI } {
            both_registers!(dot(a[0], b[0], sum[0]), dot(a[1], b[1], sum[1]))
        } else {
            both_registers!(multiply_and_add(a[0], b[0], sum[0]), multiply_and_add(a[1], b[1], sum[1]))
        })
    }

    #[inline(always)]
    fn bit_pairs<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> I16Pairs<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn pairs<const SHIFT: i32, const WIDTH: i32>(v: __m256) -> __m256 {
            let (v, field) = (_mm256_castps_si256(v), (1 << WIDTH) - 1);
            let low = _mm256_srl_epi32(v, _mm_cvtsi32_si128(SHIFT));
            let high = _mm256_sll_epi32(v, _mm_cvtsi32_si128(16 - SHIFT - WIDTH));
            let low = _mm256_and_si256(low, _mm256_set1_epi32(field));
            _mm256_castsi256_ps(_mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi32(field << 16))))
        }
        let v = v.0;
        I16Pairs(both_registers!(pairs::<SHIFT, WIDTH>(v[0]), pairs::<SHIFT, WIDTH>(v[1])))
    }

    #[inline(always)]
    fn sub_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>) -> I16Pairs<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn sub(a: __m256, b: __m256) -> __m256 {
            _mm256_castsi256_ps(_mm256_sub_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b)))
        }
        I16Pairs(both_registers!(sub(a.0[0], b.0[0]), sub(a.0[1], b.0[1])))
    }

    #[inline(always)]
    fn join_bits<const BITS: i32>(self, above: I32<Self>, below: I32<Self>) -> I32<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn join<const BITS: i32>(above: __m256, below: __m256) -> __m256 {
            let above = _mm256_sll_epi32(_mm256_castps_si256(above), _mm_cvtsi32_si128(BITS));
            _mm256_castsi256_ps(_mm256_or_si256(above, _mm256_castps_si256(below)))
        }
        let (above, below) = (above.0, below.0);
        I32(both_registers!(join::<BITS>(above[0], below[0]), join::<BITS>(above[1], below[1])))
    }

    #[inline(always)]
    fn add_i32(self, a: I32<Self>, b: I32<Self>) -> I32<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn add(a: __m256, b: __m256) -> __m256 {
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)))
        }
        I32(both_registers!(add(a.0[0], b.0[0]), add(a.0[1], b.0[1])))
    }

    #[inline(always)]
    fn mul_i32(self, v: I32<Self>, by: i32) -> I32<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn times(v: __m256, by: i32) -> __m256 {
            _mm256_castsi256_ps(_mm256_mullo_epi32(_mm256_castps_si256(v), _mm256_set1_epi32(by)))
        }
        I32(both_registers!(times(v.0[0], by), times(v.0[1], by)))
    }

    #[inline(always)]
    fn unpack_nibbles(self, v: U8Quads<Self>) -> (I8Quads<Self>, I8Quads<Self>) {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn low(v: __m256) -> __m256 {
            let low = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi8(15));
            _mm256_castsi256_ps(_mm256_sub_epi8(low, _mm256_set1_epi8(8)))
        }
        #[target_feature(enable = "avx2")]
        #[inline]
        fn high(v: __m256) -> __m256 {
            low(_mm256_castsi256_ps(_mm256_srli_epi16::<4>(_mm256_castps_si256(v))))
        }
        let v = v.0;
        (I8Quads(both_registers!(low(v[0]), low(v[1]))), I8Quads(both_registers!(high(v[0]), high(v[1]))))
    }

    #[inline(always)]
    fn i32_to_f32(self, v: I32<Self>) -> Self::V {
        let v = v.0;
        both_registers!(_mm256_cvtepi32_ps(_mm256_castps_si256(v[0])), _mm256_cvtepi32_ps(_mm256_castps_si256(v[1])))
    }

    #[inline(always)]
    fn bits_to_f32<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> Self::V {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn bits<const SHIFT: i32, const WIDTH: i32>(v: __m256) -> __m256 {
            let shifted = _mm256_srli_epi32::<SHIFT>(_mm256_castps_si256(v));
            _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32((1 << WIDTH) - 1)))
        }
        let v = v.0;
        both_registers!(bits::<SHIFT, WIDTH>(v[0]), bits::<SHIFT, WIDTH>(v[1]))
    }

    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, n: usize) -> I32<Self> {
        if n < 16 {
            // SAFETY: the caller guarantees `n` bytes.
            return unsafe { super::load_u8_portable(self, from, n) };
        }
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn eight(from: *const u8) -> __m256 {
            // SAFETY: the caller guarantees 8 bytes.
            _mm256_castsi256_ps(_mm256_cvtepu8_epi32(unsafe { _mm_loadl_epi64(from.cast()) }))
        }
        I32(both_registers!(eight(from), eight(from.wrapping_add(8))))
    }

    #[inline(always)]
    fn widen_nibbles(self, pairs: [u8; 8]) -> I32<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn eight(four: u64) -> __m256 {
            let shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
            let shifted = _mm256_srlv_epi32(_mm256_set1_epi32(four as i32), shifts);
            _mm256_castsi256_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(15)))
        }
        let pairs = u64::from_le_bytes(pairs);
        I32(both_registers!(eight(pairs), eight(pairs >> 32)))
    }

    #[inline(always)]
    unsafe fn store_as_u8(self, to: *mut u8, n: usize, v: Self::V) {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn pack(v: [__m256; 2]) -> __m128i {
            let words = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
        }
        // SAFETY: as for `vectorize`.
        let bytes = unsafe { pack(v) };
        if n >= 16 {
            // SAFETY: the caller guarantees 16 bytes.
            return unsafe { _mm_storeu_si128(to.cast(), bytes) };
        }
        let mut lanes = [0u8; 16];
        // SAFETY: the array has 16 bytes.
        unsafe { _mm_storeu_si128(lanes.as_mut_ptr().cast(), bytes) };
        // SAFETY: the caller guarantees `n` bytes.
        unsafe { core::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n) };
    }

    #[inline(always)]
    fn push_u8(self, above: U8Quads<Self>, below: I32<Self>) -> U8Quads<Self> {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn push_u8(above: __m256, below: __m256) -> __m256 {
            let above = _mm256_slli_epi32::<8>(_mm256_castps_si256(above));
            _mm256_castsi256_ps(_mm256_or_si256(above, _mm256_castps_si256(below)))
        }
        U8Quads(both_registers!(push_u8(above.0[0], below.0[0]), push_u8(above.0[1], below.0[1])))
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        both_registers!(_mm256_loadu_ps(from), _mm256_loadu_ps(from.wrapping_add(8)))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller guarantees 16 floats.
        unsafe { _mm256_storeu_ps(to, v[0]) };
        // SAFETY: these are the last 8 of them.
        unsafe { _mm256_storeu_ps(to.wrapping_add(8), v[1]) };
    }

    #[inline(always)]
    fn prefetch(self, from: *const f32) {
        // SAFETY: no address is invalid.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, n: usize) -> Self::V {
        let [low, high] = masks(n);
        both_registers!(_mm256_maskload_ps(from, low), _mm256_maskload_ps(from.wrapping_add(8), high))
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, n: usize, v: Self::V) {
        if n < 8 {
            // SAFETY: the caller guarantees `n` floats.
            return unsafe { store_below_8(to, n, v[0]) };
        }
        // SAFETY: the caller guarantees at least 8.
        unsafe { _mm256_storeu_ps(to, v[0]) };
        if n < 16 {
            // SAFETY: the caller guarantees `n - 8` more.
            unsafe { store_below_8(to.wrapping_add(8), n - 8, v[1]) };
        } else {
            // SAFETY: the caller guarantees 16.
            unsafe { _mm256_storeu_ps(to.wrapping_add(8), v[1]) };
        }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::V {
        let second = from.wrapping_add(8);
        both_registers!(_mm256_cvtph_ps(_mm_loadu_si128(from.cast())), _mm256_cvtph_ps(_mm_loadu_si128(second.cast())))
    }

    #[inline(always)]
    fn reduce_add(self, v: Self::V) -> f32 {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn sum(v: [__m256; 2]) -> f32 {
            let eight = _mm256_add_ps(v[0], v[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
        // SAFETY: as for `vectorize`.
        unsafe { sum(v) }
    }

    #[inline(always)]
    fn reduce_max(self, v: Self::V) -> f32 {
        #[target_feature(enable = "avx2")]
        #[inline]
        fn greatest(v: [__m256; 2]) -> f32 {
            let eight = _mm256_max_ps(v[0], v[1]);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
        // SAFETY: as for `vectorize`.
        unsafe { greatest(v) }
    }

    #[inline(always)]
    unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: as for `vectorize`; the caller guarantees the memory.
        unsafe { transpose8(from, from_stride, to, to_stride) };
    }
}

/// [`Simd::transpose8`] for AVX2 and AVX-512.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn transpose8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    // Row i in the low half and row i + 4 in the high half: what remains are 4 x 4 transposes within each half.
    let both = |i: usize, column: usize| {
        let row = from.wrapping_add(i * from_stride + column);
        // SAFETY: the caller guarantees 8 rows of 8 floats.
        let low = unsafe { _mm_loadu_ps(row) };
        // SAFETY: likewise.
        let high = unsafe { _mm_loadu_ps(row.wrapping_add(4 * from_stride)) };
        _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
    };
    for column in [0, 4] {
        let rows = [both(0, column), both(1, column), both(2, column), both(3, column)];
        let (low01, high01) = (_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[0], rows[1]));
        let (low23, high23) = (_mm256_unpacklo_ps(rows[2], rows[3]), _mm256_unpackhi_ps(rows[2], rows[3]));
        let columns = [
            _mm256_shuffle_ps::<0x44>(low01, low23),
            _mm256_shuffle_ps::<0xee>(low01, low23),
            _mm256_shuffle_ps::<0x44>(high01, high23),
            _mm256_shuffle_ps::<0xee>(high01, high23),
        ];
        for (j, v) in columns.into_iter().enumerate() {
            // SAFETY: the caller guarantees 8 rows of 8 floats.
            unsafe { _mm256_storeu_ps(to.wrapping_add((column + j) * to_stride), v) };
        }
    }
}
