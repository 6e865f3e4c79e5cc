//! AVX-512: a vector is one register.

use core::arch::x86_64::*;

use super::{Arithmetic, ByteLevels, Job, MANTISSA, SQRT_HALF, Simd};

/// AVX-512 F, BW, DQ and VL, which every processor with AVX-512 since 2017 has. Code for [`BF16`] or [`VNNI`] may use that
/// extension too.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const WITH: u8> {
    dots: Option<Bf16>,
    quads: Option<Vnni>,
}

/// No extension.
pub(crate) const PLAIN: u8 = 0;

/// Products of pairs of bf16.
const BF16: u8 = 1;

/// Products of four bytes.
const VNNI: u8 = 2;

/// That the processor has the extension BF16.
#[derive(Clone, Copy)]
struct Bf16(());

/// That the processor has the extension VNNI.
#[derive(Clone, Copy)]
struct Vnni(());

impl Avx512<PLAIN> {
    pub(crate) fn new() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512vl");
        #[cfg(not(feature = "std"))]
        let found = cfg!(all(
            target_feature = "avx512f",
            target_feature = "avx512bw",
            target_feature = "avx512dq",
            target_feature = "avx512vl"
        ));
        found.then_some(Self { dots: None, quads: None })
    }

    /// With products of bytes.
    pub(crate) fn with_quads() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::is_x86_feature_detected!("avx512vnni");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "avx512vnni");
        Self::new().filter(|_| found).map(|simd| Self { quads: Some(Vnni(())), ..simd })
    }

    /// With products of bytes, which all processors with products of bf16 have too.
    pub(crate) fn with_dots() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::is_x86_feature_detected!("avx512bf16");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "avx512bf16");
        Self::with_quads().filter(|_| found).map(|simd| Self { dots: Some(Bf16(())), ..simd })
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn enter<J: Job>(simd: Avx512<PLAIN>, job: J) -> J::Out {
    job.run(simd)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn enter_dots<J: Job>(simd: Avx512<BF16>, job: J) -> J::Out {
    job.run(simd)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn enter_quads<J: Job>(simd: Avx512<VNNI>, job: J) -> J::Out {
    job.run(simd)
}

/// The first `n` of 16 lanes.
#[inline(always)]
fn mask(n: usize) -> __mmask16 {
    ((1u32 << n.min(16)) - 1) as __mmask16
}

/// One intrinsic.
macro_rules! with {
    ($operation:expr) => {
        // SAFETY: an `Avx512` exists only where the processor has AVX-512, which is all that this needs.
        unsafe { $operation }
    };
}

impl<const WITH: u8> Arithmetic for Avx512<WITH> {
    type V = __m512;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        with!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        with!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        with!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        with!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        with!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        with!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, bound: __m512, v: __m512) -> __m512 {
        // The instruction returns its second operand when one is NaN.
        with!(_mm512_max_ps(bound, v))
    }

    #[inline(always)]
    fn min(self, bound: __m512, v: __m512) -> __m512 {
        with!(_mm512_min_ps(bound, v))
    }

    #[inline(always)]
    fn abs(self, v: __m512) -> __m512 {
        with!(_mm512_abs_ps(v))
    }

    #[inline(always)]
    fn copysign(self, v: __m512, sign: __m512) -> __m512 {
        let mask = self.splat(-0.0);
        with!(_mm512_or_ps(_mm512_abs_ps(v), _mm512_and_ps(mask, sign)))
    }

    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        with!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes))
    }

    #[inline(always)]
    fn select_equal(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        with!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b), no, yes))
    }

    #[inline(always)]
    fn sqrt(self, v: __m512) -> __m512 {
        with!(_mm512_sqrt_ps(v))
    }

    #[inline(always)]
    fn floor(self, v: __m512) -> __m512 {
        with!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(v))
    }

    #[inline(always)]
    fn ceil(self, v: __m512) -> __m512 {
        with!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(v))
    }

    #[inline(always)]
    fn trunc(self, v: __m512) -> __m512 {
        with!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(v))
    }

    #[inline(always)]
    fn round(self, v: __m512) -> __m512 {
        with!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v))
    }

    #[inline(always)]
    fn ldexp(self, v: __m512, n: __m512) -> __m512 {
        with!(_mm512_scalef_ps(v, n))
    }

    #[inline(always)]
    fn ldexp_down(self, v: __m512, n: __m512) -> __m512 {
        self.ldexp(v, n)
    }

    #[inline(always)]
    fn split(self, v: __m512) -> (__m512, __m512) {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn split(v: __m512) -> (__m512, __m512) {
            let sqrt_half = _mm512_set1_epi32(SQRT_HALF.cast_signed());
            let steps = _mm512_sub_epi32(_mm512_castps_si512(v), sqrt_half);
            let mantissa = _mm512_and_si512(steps, _mm512_set1_epi32(MANTISSA.cast_signed()));
            let mantissa = _mm512_castsi512_ps(_mm512_add_epi32(mantissa, sqrt_half));
            (mantissa, _mm512_cvtepi32_ps(_mm512_srai_epi32::<23>(steps)))
        }
        with!(split(v))
    }
}

impl<const WITH: u8> Simd for Avx512<WITH> {
    type Dots = Avx512<BF16>;

    const ROWS: usize = 14;
    const PANELS: usize = 2;
    const PIXELS: usize = 6;
    const VECTORS: usize = 32;
    const QUAD_ROWS: usize = if WITH == VNNI { 14 } else { 12 };
    const SIDE_BY_SIDE: usize = 4;
    const MAY_DOT: bool = true;
    const TAKES_BF16: bool = WITH == BF16;

    #[inline(always)]
    fn vectorize<J: Job>(self, job: J) -> J::Out {
        let Self { dots, quads } = self;
        match const { WITH } {
            // SAFETY: an `Avx512<BF16>` comes from `dots`, which only gives one where the processor has BF16.
            BF16 => unsafe { enter_dots(Avx512 { dots, quads }, job) },
            // SAFETY: an `Avx512<VNNI>` comes from `quads`, which only gives one where the processor has VNNI.
            VNNI => unsafe { enter_quads(Avx512 { dots, quads }, job) },
            // SAFETY: an `Avx512` exists only where the processor has AVX-512.
            _ => unsafe { enter(Avx512 { dots, quads }, job) },
        }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        with!(_mm512_loadu_ps(from))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m512) {
        with!(_mm512_storeu_ps(to, v));
    }

    #[inline(always)]
    fn prefetch(self, from: *const f32) {
        // SAFETY: no address is invalid.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, n: usize) -> __m512 {
        with!(_mm512_maskz_loadu_ps(mask(n), from))
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize, v: __m512) {
        with!(_mm512_mask_storeu_ps(to, mask(n), v));
    }

    #[inline(always)]
    unsafe fn widen_f16(self, from: *const u16) -> Self::V {
        with!(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast())))
    }

    #[inline(always)]
    fn dots(self) -> Option<Avx512<BF16>> {
        self.dots.map(|dots| Avx512 { dots: Some(dots), quads: self.quads })
    }

    #[inline(always)]
    fn vectorize_quads<J: Job>(self, job: J) -> J::Out {
        let Some(quads) = self.quads else { return self.vectorize(job) };
        // SAFETY: the token is there only where the processor has VNNI.
        unsafe { enter_quads(Avx512 { dots: self.dots, quads: Some(quads) }, job) }
    }

    #[inline(always)]
    fn has_quads(self) -> bool {
        self.quads.is_some()
    }

    #[inline(always)]
    fn dot4(self, a: __m512, b: __m512, sum: __m512) -> __m512 {
        #[target_feature(enable = "avx512f,avx512vnni")]
        #[inline]
        fn dot4(a: __m512, b: __m512, sum: __m512) -> __m512 {
            let (a, b) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
            let sum = _mm512_castps_si512(sum);
            _mm512_castsi512_ps(_mm512_dpbusd_epi32(sum, a, b))
        }
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn dot4_by_pairs(a: __m512, b: __m512, sum: __m512) -> __m512 {
            let (a, b) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
            let sum = _mm512_castps_si512(sum);
            let even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(b));
            let even = _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(0xff)), even);
            let odd = _mm512_madd_epi16(_mm512_srli_epi16::<8>(a), _mm512_srai_epi16::<8>(b));
            _mm512_castsi512_ps(_mm512_add_epi32(sum, _mm512_add_epi32(even, odd)))
        }
        if const { WITH == VNNI } {
            // SAFETY: an `Avx512<VNNI>` exists only where the processor has VNNI.
            unsafe { dot4(a, b, sum) }
        } else {
            with!(dot4_by_pairs(a, b, sum))
        }
    }

    #[inline(always)]
    fn times(self, v: __m512, by: i32) -> __m512 {
        with!(_mm512_castsi512_ps(_mm512_mullo_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(by))))
    }

    #[inline(always)]
    fn nibbles(self, v: __m512) -> (__m512, __m512) {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn nibbles(v: __m512) -> (__m512, __m512) {
            let (v, mask, eight) = (_mm512_castps_si512(v), _mm512_set1_epi8(15), _mm512_set1_epi8(8));
            let low = _mm512_sub_epi8(_mm512_and_si512(v, mask), eight);
            let high = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16::<4>(v), mask), eight);
            (_mm512_castsi512_ps(low), _mm512_castsi512_ps(high))
        }
        with!(nibbles(v))
    }

    #[inline(always)]
    fn floats(self, v: __m512) -> __m512 {
        with!(_mm512_cvtepi32_ps(_mm512_castps_si512(v)))
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8, n: usize) -> __m512 {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        #[inline]
        unsafe fn load_bytes(from: *const u8, n: usize) -> __m512 {
            let bytes = if n >= 16 {
                // SAFETY: the caller vouches for 16 bytes.
                unsafe { _mm_loadu_si128(from.cast()) }
            } else {
                // SAFETY: the caller vouches for `n` bytes.
                unsafe { _mm_maskz_loadu_epi8(mask(n), from.cast()) }
            };
            _mm512_castsi512_ps(_mm512_cvtepu8_epi32(bytes))
        }
        with!(load_bytes(from, n))
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8, n: usize, v: __m512) {
        with!(_mm512_mask_cvtepi32_storeu_epi8(to.cast(), mask(n), _mm512_cvtps_epi32(v)));
    }

    #[inline(always)]
    unsafe fn store_levels(self, to: [*mut u8; 4], v: [__m512; 4], levels: ByteLevels) {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        unsafe fn store_levels(to: [*mut u8; 4], v: [__m512; 4], levels: ByteLevels) {
            // What is too large for an integer would become the least one.
            let limit = _mm512_set1_ps(65536.0);
            let mut whole = [_mm512_setzero_si512(); 4];
            for i in 0..4 {
                whole[i] = _mm512_cvtps_epi32(_mm512_min_ps(v[i], limit));
            }
            let zero = _mm512_set1_epi16(i16::from(levels.zero));
            let low = _mm512_adds_epi16(_mm512_packs_epi32(whole[0], whole[1]), zero);
            let high = _mm512_adds_epi16(_mm512_packs_epi32(whole[2], whole[3]), zero);
            let bytes = _mm512_packus_epi16(low, high);
            let bytes = _mm512_max_epu8(bytes, _mm512_set1_epi8(levels.min.cast_signed()));
            let bytes = _mm512_min_epu8(bytes, _mm512_set1_epi8(levels.max.cast_signed()));
            // Each quarter has four bytes of each vector.
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let bytes = _mm512_permutexvar_epi32(order, bytes);
            let bytes = [
                _mm512_castsi512_si128(bytes),
                _mm512_extracti32x4_epi32::<1>(bytes),
                _mm512_extracti32x4_epi32::<2>(bytes),
                _mm512_extracti32x4_epi32::<3>(bytes),
            ];
            for i in 0..4 {
                // SAFETY: the caller vouches for 16 bytes at each place.
                unsafe { _mm_storeu_si128(to[i].cast(), bytes[i]) };
            }
        }
        with!(store_levels(to, v, levels));
    }

    #[inline(always)]
    fn push_byte(self, above: __m512, below: __m512) -> __m512 {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn push_byte(above: __m512, below: __m512) -> __m512 {
            let above = _mm512_slli_epi32::<8>(_mm512_castps_si512(above));
            _mm512_castsi512_ps(_mm512_or_si512(above, _mm512_castps_si512(below)))
        }
        with!(push_byte(above, below))
    }

    #[inline(always)]
    unsafe fn narrow(self, from: *const f32, n: usize, to: *mut u16) {
        if const { WITH != BF16 } {
            // SAFETY: the caller vouches for the memory.
            return unsafe { super::narrow_portably(self, from, n, to) };
        }
        // SAFETY: the caller vouches for `n` floats.
        let v = unsafe { self.load_part(from, n) };
        // SAFETY: the caller vouches for 16 numbers.
        unsafe { self.store_bf16(to, 16, v) };
    }

    #[inline(always)]
    unsafe fn widen_bf16(self, from: *const u16, n: usize) -> __m512 {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        #[inline]
        unsafe fn widen(from: *const u16, n: usize) -> __m512 {
            let narrow = if n >= 16 {
                // SAFETY: the caller vouches for 16 numbers.
                unsafe { _mm256_loadu_si256(from.cast()) }
            } else {
                // SAFETY: the caller vouches for `n` numbers.
                unsafe { _mm256_maskz_loadu_epi16(mask(n), from.cast()) }
            };
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(narrow)))
        }
        with!(widen(from, n))
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, n: usize, v: __m512) {
        #[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx512vl")]
        #[inline]
        unsafe fn store(to: *mut u16, n: usize, v: __m512) {
            let pairs = _mm512_cvtneps_pbh(v);
            // SAFETY: both are 32 bytes of which any are valid.
            let pairs = unsafe { core::mem::transmute::<__m256bh, __m256i>(pairs) };
            if n >= 16 {
                // SAFETY: the caller vouches for 16 numbers.
                unsafe { _mm256_storeu_si256(to.cast(), pairs) };
            } else {
                // SAFETY: the caller vouches for `n` numbers.
                unsafe { _mm256_mask_storeu_epi16(to.cast(), mask(n), pairs) };
            }
        }
        if const { WITH != BF16 } {
            // SAFETY: the caller vouches for the memory.
            return unsafe { super::store_bf16_portably(self, to, n, v) };
        }
        // SAFETY: an `Avx512<BF16>` exists only where the processor has BF16; the caller vouches for the memory.
        unsafe { store(to, n, v) };
    }

    #[inline(always)]
    fn pair_bf16(self, first: __m512, second: __m512) -> __m512 {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn pair(first: __m512, second: __m512) -> __m512 {
            let first = _mm512_srli_epi32::<16>(_mm512_castps_si512(first));
            _mm512_castsi512_ps(_mm512_or_si512(first, _mm512_castps_si512(second)))
        }
        with!(pair(first, second))
    }

    #[inline(always)]
    fn dot(self, a: __m512, b: __m512, sum: __m512) -> __m512 {
        #[target_feature(enable = "avx512f,avx512bf16")]
        #[inline]
        fn dot(a: __m512, b: __m512, sum: __m512) -> __m512 {
            // SAFETY: both are 64 bytes of which any are valid.
            let pairs = |v: __m512| unsafe { core::mem::transmute::<__m512, __m512bh>(v) };
            _mm512_dpbf16_ps(sum, pairs(a), pairs(b))
        }
        if const { WITH == BF16 } {
            // SAFETY: an `Avx512<BF16>` exists only where the processor has BF16.
            unsafe { dot(a, b, sum) }
        } else {
            super::dot_portably(self, a, b, sum)
        }
    }

    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        with!(_mm512_reduce_add_ps(v))
    }

    #[inline(always)]
    fn greatest(self, v: __m512) -> f32 {
        with!(_mm512_reduce_max_ps(v))
    }

    #[inline(always)]
    unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        with!(super::avx2::transpose8(from, from_stride, to, to_stride));
    }
}
