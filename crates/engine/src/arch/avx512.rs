//! AVX-512: a vector is one register.

use core::arch::x86_64::*;

use super::amx::Amx;
use super::{
    Arithmetic, Bf16Pairs, I4Sums, I8Quads, I16Pairs, I32, Kernel, MANTISSA, SQRT_HALF, Simd, U8Clamp, U8Quads,
};

/// Token for AVX-512 F, BW, DQ and VL, which every processor with AVX-512 since 2017 supports.
///
/// The fields are the extensions that the processor has. `EXTENSION` is the one that the calling code is compiled for:
/// [`PLAIN`], [`BF16`] or [`VNNI`]. `vectorize_int8` and `with_bf16` change from one to the other.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const EXTENSION: u8> {
    bf16: Option<Bf16Token>,
    vnni: Option<VnniToken>,
    amx: Option<Amx>,
}

/// No further extension.
pub(crate) const PLAIN: u8 = 0;

/// AVX512_BF16: dot products of pairs of bf16.
const BF16: u8 = 1;

/// AVX512_VNNI: dot products of four u8 and four i8.
const VNNI: u8 = 2;

/// Proof that the processor supports AVX512_BF16.
#[derive(Clone, Copy)]
struct Bf16Token(());

/// Proof that the processor supports AVX512_VNNI.
#[derive(Clone, Copy)]
struct VnniToken(());

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
        found.then_some(Self { bf16: None, vnni: None, amx: None })
    }

    /// Detects AVX-512 with VNNI.
    pub(crate) fn with_vnni() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::is_x86_feature_detected!("avx512vnni");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "avx512vnni");
        Self::new().filter(|_| found).map(|simd| Self { vnni: Some(VnniToken(())), ..simd })
    }

    /// Detects AVX-512 with BF16 and VNNI; every processor with BF16 has VNNI as well.
    pub(crate) fn with_bf16() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::is_x86_feature_detected!("avx512bf16");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "avx512bf16");
        Self::with_vnni().filter(|_| found).map(|simd| Self { bf16: Some(Bf16Token(())), ..simd })
    }

    /// Detects AVX-512 with AMX, BF16 and VNNI; every processor with AMX has the others as well.
    pub(crate) fn with_amx() -> Option<Self> {
        let simd = Self::with_bf16()?;
        Amx::detect().map(|amx| Self { amx: Some(amx), ..simd })
    }
}

impl<const EXTENSION: u8> Avx512<EXTENSION> {
    /// Returns the token of AMX, if there is one.
    pub(crate) fn amx(self) -> Option<Amx> {
        self.amx
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn enter<K: Kernel>(simd: Avx512<PLAIN>, kernel: K) -> K::Out {
    kernel.run(simd)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn enter_bf16<K: Kernel>(simd: Avx512<BF16>, kernel: K) -> K::Out {
    kernel.run(simd)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn enter_vnni<K: Kernel>(simd: Avx512<VNNI>, kernel: K) -> K::Out {
    kernel.run(simd)
}

/// Mask of the first `n` of 16 lanes.
#[inline(always)]
fn mask(n: usize) -> __mmask16 {
    ((1u32 << n.min(16)) - 1) as __mmask16
}

/// Calls an intrinsic that needs AVX-512 only.
macro_rules! intrinsic {
    ($operation:expr) => {
        // SAFETY: an `Avx512` exists only where the processor has AVX-512, which is all that this needs.
        unsafe { $operation }
    };
}

impl<const EXTENSION: u8> Arithmetic for Avx512<EXTENSION> {
    type V = __m512;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        intrinsic!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        intrinsic!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, bound: __m512, v: __m512) -> __m512 {
        // `vmaxps` returns its second operand if one is NaN.
        intrinsic!(_mm512_max_ps(bound, v))
    }

    #[inline(always)]
    fn min(self, bound: __m512, v: __m512) -> __m512 {
        intrinsic!(_mm512_min_ps(bound, v))
    }

    #[inline(always)]
    fn abs(self, v: __m512) -> __m512 {
        intrinsic!(_mm512_abs_ps(v))
    }

    #[inline(always)]
    fn copysign(self, v: __m512, sign: __m512) -> __m512 {
        let mask = self.splat(-0.0);
        intrinsic!(_mm512_or_ps(_mm512_abs_ps(v), _mm512_and_ps(mask, sign)))
    }

    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        intrinsic!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes))
    }

    #[inline(always)]
    fn select_equal(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        intrinsic!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b), no, yes))
    }

    #[inline(always)]
    fn sqrt(self, v: __m512) -> __m512 {
        intrinsic!(_mm512_sqrt_ps(v))
    }

    #[inline(always)]
    fn floor(self, v: __m512) -> __m512 {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(v))
    }

    #[inline(always)]
    fn ceil(self, v: __m512) -> __m512 {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(v))
    }

    #[inline(always)]
    fn trunc(self, v: __m512) -> __m512 {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(v))
    }

    #[inline(always)]
    fn round(self, v: __m512) -> __m512 {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v))
    }

    #[inline(always)]
    fn ldexp(self, v: __m512, n: __m512) -> __m512 {
        intrinsic!(_mm512_scalef_ps(v, n))
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
            let from_sqrt_half = _mm512_sub_epi32(_mm512_castps_si512(v), sqrt_half);
            let mantissa = _mm512_and_si512(from_sqrt_half, _mm512_set1_epi32(MANTISSA.cast_signed()));
            let mantissa = _mm512_castsi512_ps(_mm512_add_epi32(mantissa, sqrt_half));
            (mantissa, _mm512_cvtepi32_ps(_mm512_srai_epi32::<23>(from_sqrt_half)))
        }
        intrinsic!(split(v))
    }
}

impl<const EXTENSION: u8> Simd for Avx512<EXTENSION> {
    type WithBf16 = Avx512<BF16>;

    const MR: usize = 14;
    const NR_PANELS: usize = 2;
    const DEPTHWISE_PIXELS: usize = 6;
    const VECTOR_REGISTERS: usize = 32;
    const HAS_I16_DOT: bool = true;
    const INT8_MR: usize = if EXTENSION == VNNI { 14 } else { 12 };
    const INTERLEAVE: usize = 4;
    const MAY_HAVE_BF16: bool = true;
    const HAS_BF16: bool = EXTENSION == BF16;
    const MULTIPLIES_NIBBLES: bool = EXTENSION == VNNI;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        let Self { bf16, vnni, amx } = self;
        match const { EXTENSION } {
            // SAFETY: an `Avx512<BF16>` comes from a `Bf16Token`, which exists only where the processor has BF16.
            BF16 => unsafe { enter_bf16(Avx512 { bf16, vnni, amx }, kernel) },
            // SAFETY: an `Avx512<VNNI>` comes from a `VnniToken`, which exists only where the processor has VNNI.
            VNNI => unsafe { enter_vnni(Avx512 { bf16, vnni, amx }, kernel) },
            // SAFETY: an `Avx512` exists only where the processor has AVX-512.
            _ => unsafe { enter(Avx512 { bf16, vnni, amx }, kernel) },
        }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        intrinsic!(_mm512_loadu_ps(from))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m512) {
        intrinsic!(_mm512_storeu_ps(to, v));
    }

    #[inline(always)]
    fn prefetch(self, from: *const f32) {
        // SAFETY: no address is invalid.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, n: usize) -> __m512 {
        intrinsic!(_mm512_maskz_loadu_ps(mask(n), from))
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, n: usize, v: __m512) {
        intrinsic!(_mm512_mask_storeu_ps(to, mask(n), v));
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::V {
        intrinsic!(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast())))
    }

    #[inline(always)]
    fn with_bf16(self) -> Option<Avx512<BF16>> {
        self.bf16.map(|bf16| Avx512 { bf16: Some(bf16), vnni: self.vnni, amx: self.amx })
    }

    #[inline(always)]
    fn vectorize_int8<K: Kernel>(self, kernel: K) -> K::Out {
        let Some(vnni) = self.vnni else { return self.vectorize(kernel) };
        // SAFETY: the token exists only where the processor has VNNI.
        unsafe { enter_vnni(Avx512 { bf16: self.bf16, vnni: Some(vnni), amx: self.amx }, kernel) }
    }

    #[inline(always)]
    fn has_int8_dot(self) -> bool {
        self.vnni.is_some()
    }

    #[inline(always)]
    fn dot_u8i8(self, a: U8Quads<Self>, b: I8Quads<Self>, sum: I32<Self>) -> I32<Self> {
        #[target_feature(enable = "avx512f,avx512vnni")]
        #[inline]
        fn dot_u8i8(a: __m512, b: __m512, sum: __m512) -> __m512 {
            let (a, b) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
            let sum = _mm512_castps_si512(sum);
            _mm512_castsi512_ps(_mm512_dpbusd_epi32(sum, a, b))
        }
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn dot_u8i8_by_i16(a: __m512, b: __m512, sum: __m512) -> __m512 {
            let (a, b) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
            let sum = _mm512_castps_si512(sum);
            let even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(b));
            let even = _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(0xff)), even);
            let odd = _mm512_madd_epi16(_mm512_srli_epi16::<8>(a), _mm512_srai_epi16::<8>(b));
            _mm512_castsi512_ps(_mm512_add_epi32(sum, _mm512_add_epi32(even, odd)))
        }
        if const { EXTENSION == VNNI } {
            // SAFETY: an `Avx512<VNNI>` exists only where the processor has VNNI.
            I32(unsafe { dot_u8i8(a.0, b.0, sum.0) })
        } else {
            I32(intrinsic!(dot_u8i8_by_i16(a.0, b.0, sum.0)))
        }
    }

    #[inline(always)]
    fn dot_u8i4(self, a: U8Quads<Self>, b: I8Quads<Self>, sum: I4Sums<Self>) -> I4Sums<Self> {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn dot(a: __m512, b: __m512, sum: __m512) -> __m512 {
            let pairs = _mm512_maddubs_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b));
            _mm512_castsi512_ps(_mm512_add_epi16(_mm512_castps_si512(sum), pairs))
        }
        if const { EXTENSION == VNNI } {
            return I4Sums(self.dot_u8i8(a, b, I32(sum.0)).0);
        }
        I4Sums(intrinsic!(dot(a.0, b.0, sum.0)))
    }

    #[inline(always)]
    fn i4_sums_to_i32(self, sums: I4Sums<Self>) -> I32<Self> {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn of_pairs(pairs: __m512) -> __m512 {
            _mm512_castsi512_ps(_mm512_madd_epi16(_mm512_castps_si512(pairs), _mm512_set1_epi16(1)))
        }
        if const { EXTENSION == VNNI } {
            return I32(sums.0);
        }
        I32(intrinsic!(of_pairs(sums.0)))
    }

    #[inline(always)]
    fn dot_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>, sum: I32<Self>) -> I32<Self> {
        #[target_feature(enable = "avx512f,avx512vnni")]
        #[inline]
        fn dot(a: __m512, b: __m512, sum: __m512) -> __m512 {
            let (a, b) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
            _mm512_castsi512_ps(_mm512_dpwssd_epi32(_mm512_castps_si512(sum), a, b))
        }
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn multiply_and_add(a: __m512, b: __m512, sum: __m512) -> __m512 {
            let products = _mm512_madd_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum), products))
        }
        if const { EXTENSION == VNNI } {
            // SAFETY: an `Avx512<VNNI>` exists only where the processor has VNNI.
            I32(unsafe { dot(a.0, b.0, sum.0) })
        } else {
            I32(intrinsic!(multiply_and_add(a.0, b.0, sum.0)))
        }
    }

    #[inline(always)]
    fn bit_pairs<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> I16Pairs<Self> {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn pairs<const SHIFT: i32, const WIDTH: i32>(v: __m512) -> __m512 {
            let (v, field) = (_mm512_castps_si512(v), (1 << WIDTH) - 1);
            let low = _mm512_srl_epi32(v, _mm_cvtsi32_si128(SHIFT));
            let high = _mm512_sll_epi32(v, _mm_cvtsi32_si128(16 - SHIFT - WIDTH));
            let low = _mm512_and_si512(low, _mm512_set1_epi32(field));
            _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi32(field << 16))))
        }
        I16Pairs(intrinsic!(pairs::<SHIFT, WIDTH>(v.0)))
    }

    #[inline(always)]
    fn sub_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>) -> I16Pairs<Self> {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn sub(a: __m512, b: __m512) -> __m512 {
            _mm512_castsi512_ps(_mm512_sub_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b)))
        }
        I16Pairs(intrinsic!(sub(a.0, b.0)))
    }

    #[inline(always)]
    fn nibbles_to_bf16<const SHIFT: u32>(self, v: I16Pairs<Self>, zeros: I16Pairs<Self>) -> Bf16Pairs<Self> {
        // The permutation reads the low five bits of an index, so that -16 to -1 index the upper half of the table.
        const NUMBERS: [u16; 32] = {
            let mut numbers = [0; 32];
            let mut at = 0;
            while at < 32 {
                let difference = if at < 16 { at as f32 } else { at as f32 - 32.0 };
                numbers[at] = (difference.to_bits() >> 16) as u16;
                at += 1;
            }
            numbers
        };
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn look_up<const SHIFT: u32>(v: __m512, zeros: __m512) -> __m512 {
            let shifted = _mm512_srli_epi16::<SHIFT>(_mm512_castps_si512(v));
            let nibbles = _mm512_and_si512(shifted, _mm512_set1_epi16(15));
            let differences = _mm512_sub_epi16(nibbles, _mm512_castps_si512(zeros));
            // SAFETY: 32 numbers.
            let numbers = unsafe { _mm512_loadu_epi16(NUMBERS.as_ptr().cast()) };
            _mm512_castsi512_ps(_mm512_permutexvar_epi16(differences, numbers))
        }
        Bf16Pairs(intrinsic!(look_up::<SHIFT>(v.0, zeros.0)))
    }

    #[inline(always)]
    fn join_bits<const BITS: i32>(self, above: I32<Self>, below: I32<Self>) -> I32<Self> {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn join<const BITS: i32>(above: __m512, below: __m512) -> __m512 {
            let above = _mm512_sll_epi32(_mm512_castps_si512(above), _mm_cvtsi32_si128(BITS));
            _mm512_castsi512_ps(_mm512_or_si512(above, _mm512_castps_si512(below)))
        }
        I32(intrinsic!(join::<BITS>(above.0, below.0)))
    }

    #[inline(always)]
    fn add_i32(self, a: I32<Self>, b: I32<Self>) -> I32<Self> {
        I32(intrinsic!(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.0), _mm512_castps_si512(b.0)))))
    }

    #[inline(always)]
    fn mul_i32(self, v: I32<Self>, by: i32) -> I32<Self> {
        I32(intrinsic!(_mm512_castsi512_ps(_mm512_mullo_epi32(_mm512_castps_si512(v.0), _mm512_set1_epi32(by)))))
    }

    #[inline(always)]
    fn unpack_nibbles(self, v: U8Quads<Self>) -> (I8Quads<Self>, I8Quads<Self>) {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn unpack_nibbles(v: __m512) -> (__m512, __m512) {
            let (v, mask, eight) = (_mm512_castps_si512(v), _mm512_set1_epi8(15), _mm512_set1_epi8(8));
            let low = _mm512_sub_epi8(_mm512_and_si512(v, mask), eight);
            let high = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16::<4>(v), mask), eight);
            (_mm512_castsi512_ps(low), _mm512_castsi512_ps(high))
        }
        let (low, high) = intrinsic!(unpack_nibbles(v.0));
        (I8Quads(low), I8Quads(high))
    }

    #[inline(always)]
    fn nibbles_of_rows(self, rows: U8Quads<Self>) -> (U8Quads<Self>, U8Quads<Self>) {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        fn nibbles_of_rows(rows: __m512) -> (__m512, __m512) {
            // `fours` gathers columns 4 i to 4 i + 3 of all four rows in 128-bit lane i; `transposed` transposes each lane.
            let fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let transposed =
                _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
            let (fours, mask) = (_mm512_permutexvar_epi32(fours, _mm512_castps_si512(rows)), _mm512_set1_epi8(15));
            // Masks come between the shuffles: LLVM would merge them into one that takes seven instructions.
            let low = _mm512_and_si512(fours, mask);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(fours), mask);
            let quads = |nibbles| _mm512_castsi512_ps(_mm512_shuffle_epi8(nibbles, transposed));
            (quads(low), quads(high))
        }
        let (low, high) = intrinsic!(nibbles_of_rows(rows.0));
        (U8Quads(low), U8Quads(high))
    }

    #[inline(always)]
    fn sub_i8(self, a: I8Quads<Self>, b: I8Quads<Self>) -> I8Quads<Self> {
        let (a, b) = intrinsic!((_mm512_castps_si512(a.0), _mm512_castps_si512(b.0)));
        I8Quads(intrinsic!(_mm512_castsi512_ps(_mm512_sub_epi8(a, b))))
    }

    #[inline(always)]
    fn i32_to_f32(self, v: I32<Self>) -> __m512 {
        intrinsic!(_mm512_cvtepi32_ps(_mm512_castps_si512(v.0)))
    }

    #[inline(always)]
    fn bits_to_f32<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> __m512 {
        // A lookup by the low four bits of each lane.
        let numbers = const {
            let mut numbers = [0.0; 16];
            let mut at = 0;
            while at < 16 {
                numbers[at] = (at % (1 << WIDTH)) as f32;
                at += 1;
            }
            numbers
        };
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn look_up<const SHIFT: i32>(numbers: [f32; 16], v: __m512) -> __m512 {
            // SAFETY: 16 floats.
            let numbers = unsafe { _mm512_loadu_ps(numbers.as_ptr()) };
            let shifted = _mm512_srlv_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(SHIFT));
            _mm512_permutexvar_ps(shifted, numbers)
        }
        intrinsic!(look_up::<SHIFT>(numbers, v.0))
    }

    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, n: usize) -> I32<Self> {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        #[inline]
        unsafe fn load_u8(from: *const u8, n: usize) -> __m512 {
            let bytes = if n >= 16 {
                // SAFETY: the caller guarantees 16 bytes.
                unsafe { _mm_loadu_si128(from.cast()) }
            } else {
                // SAFETY: the caller guarantees `n` bytes.
                unsafe { _mm_maskz_loadu_epi8(mask(n), from.cast()) }
            };
            _mm512_castsi512_ps(_mm512_cvtepu8_epi32(bytes))
        }
        I32(intrinsic!(load_u8(from, n)))
    }

    #[inline(always)]
    fn widen_nibbles(self, pairs: [u8; 8]) -> I32<Self> {
        #[target_feature(enable = "avx512f,avx2")]
        #[inline]
        fn sixteen(pairs: u64) -> __m512 {
            let [low, high] = [pairs, pairs >> 32].map(|four| _mm256_set1_epi32(four as i32));
            let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
            let shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
            let shifted = _mm512_srlv_epi32(both, shifts);
            _mm512_castsi512_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(15)))
        }
        I32(intrinsic!(sixteen(u64::from_le_bytes(pairs))))
    }

    #[inline(always)]
    unsafe fn store_as_u8(self, to: *mut u8, n: usize, v: __m512) {
        intrinsic!(_mm512_mask_cvtepi32_storeu_epi8(to.cast(), mask(n), _mm512_cvtps_epi32(v)));
    }

    #[inline(always)]
    unsafe fn store_u8x4(self, to: [*mut u8; 4], v: [__m512; 4], clamp: U8Clamp) {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        unsafe fn store_u8x4(to: [*mut u8; 4], v: [__m512; 4], clamp: U8Clamp) {
            // Out-of-range conversions to i32 return `i32::MIN`, which would saturate to the wrong end.
            let limit = _mm512_set1_ps(65536.0);
            let mut integers = [_mm512_setzero_si512(); 4];
            for i in 0..4 {
                integers[i] = _mm512_cvtps_epi32(_mm512_min_ps(v[i], limit));
            }
            let zero = _mm512_set1_epi16(i16::from(clamp.zero));
            let low = _mm512_adds_epi16(_mm512_packs_epi32(integers[0], integers[1]), zero);
            let high = _mm512_adds_epi16(_mm512_packs_epi32(integers[2], integers[3]), zero);
            let bytes = _mm512_packus_epi16(low, high);
            let bytes = _mm512_max_epu8(bytes, _mm512_set1_epi8(clamp.min.cast_signed()));
            let bytes = _mm512_min_epu8(bytes, _mm512_set1_epi8(clamp.max.cast_signed()));
            // The packs interleave 128-bit lanes; this brings the four bytes of each vector together.
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let bytes = _mm512_permutexvar_epi32(order, bytes);
            let bytes = [
                _mm512_castsi512_si128(bytes),
                _mm512_extracti32x4_epi32::<1>(bytes),
                _mm512_extracti32x4_epi32::<2>(bytes),
                _mm512_extracti32x4_epi32::<3>(bytes),
            ];
            for i in 0..4 {
                // SAFETY: the caller guarantees 16 bytes at each address.
                unsafe { _mm_storeu_si128(to[i].cast(), bytes[i]) };
            }
        }
        intrinsic!(store_u8x4(to, v, clamp));
    }

    #[inline(always)]
    fn push_u8(self, above: U8Quads<Self>, below: I32<Self>) -> U8Quads<Self> {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn push_u8(above: __m512, below: __m512) -> __m512 {
            let above = _mm512_slli_epi32::<8>(_mm512_castps_si512(above));
            _mm512_castsi512_ps(_mm512_or_si512(above, _mm512_castps_si512(below)))
        }
        U8Quads(intrinsic!(push_u8(above.0, below.0)))
    }

    #[inline(always)]
    unsafe fn narrow_to_bf16(self, from: *const f32, n: usize, to: *mut u16) {
        if const { EXTENSION != BF16 } {
            // SAFETY: the caller guarantees the memory.
            return unsafe { super::narrow_to_bf16_portable(self, from, n, to) };
        }
        // SAFETY: the caller guarantees `n` floats.
        let v = unsafe { self.load_partial(from, n) };
        // SAFETY: the caller guarantees 16 elements.
        unsafe { self.store_bf16(to, 16, v) };
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16, n: usize) -> __m512 {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        #[inline]
        unsafe fn widen(from: *const u16, n: usize) -> __m512 {
            let narrow = if n >= 16 {
                // SAFETY: the caller guarantees 16 elements.
                unsafe { _mm256_loadu_si256(from.cast()) }
            } else {
                // SAFETY: the caller guarantees `n` elements.
                unsafe { _mm256_maskz_loadu_epi16(mask(n), from.cast()) }
            };
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(narrow)))
        }
        intrinsic!(widen(from, n))
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, n: usize, v: __m512) {
        #[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx512vl")]
        #[inline]
        unsafe fn store(to: *mut u16, n: usize, v: __m512) {
            let pairs = _mm512_cvtneps_pbh(v);
            // SAFETY: both types are 32 bytes, and any bit pattern is valid.
            let pairs = unsafe { core::mem::transmute::<__m256bh, __m256i>(pairs) };
            if n >= 16 {
                // SAFETY: the caller guarantees 16 elements.
                unsafe { _mm256_storeu_si256(to.cast(), pairs) };
            } else {
                // SAFETY: the caller guarantees `n` elements.
                unsafe { _mm256_mask_storeu_epi16(to.cast(), mask(n), pairs) };
            }
        }
        if const { EXTENSION != BF16 } {
            // SAFETY: the caller guarantees the memory.
            return unsafe { super::store_bf16_portable(self, to, n, v) };
        }
        // SAFETY: an `Avx512<BF16>` exists only where the processor has BF16; the caller guarantees the memory.
        unsafe { store(to, n, v) };
    }

    #[inline(always)]
    fn pack_bf16_pairs(self, first: __m512, second: __m512) -> Bf16Pairs<Self> {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn pair(first: __m512, second: __m512) -> __m512 {
            let first = _mm512_srli_epi32::<16>(_mm512_castps_si512(first));
            _mm512_castsi512_ps(_mm512_or_si512(first, _mm512_castps_si512(second)))
        }
        Bf16Pairs(intrinsic!(pair(first, second)))
    }

    #[inline(always)]
    fn dot_bf16(self, a: Bf16Pairs<Self>, b: Bf16Pairs<Self>, sum: __m512) -> __m512 {
        #[target_feature(enable = "avx512f,avx512bf16")]
        #[inline]
        fn dot(a: __m512, b: __m512, sum: __m512) -> __m512 {
            // SAFETY: both types are 64 bytes, and any bit pattern is valid.
            let pairs = |v: __m512| unsafe { core::mem::transmute::<__m512, __m512bh>(v) };
            _mm512_dpbf16_ps(sum, pairs(a), pairs(b))
        }
        if const { EXTENSION == BF16 } {
            // SAFETY: an `Avx512<BF16>` exists only where the processor has BF16.
            unsafe { dot(a.0, b.0, sum) }
        } else {
            super::dot_bf16_portable(self, a, b, sum)
        }
    }

    #[inline(always)]
    fn reduce_add(self, v: __m512) -> f32 {
        intrinsic!(_mm512_reduce_add_ps(v))
    }

    #[inline(always)]
    fn reduce_add4(self, v: [__m512; 4]) -> [f32; 4] {
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn sums([a, b, c, d]: [__m512; 4]) -> [f32; 4] {
            // Each quarter of `sums` has four parts of the sum of one vector.
            let halves = |a, b| {
                let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b);
                _mm512_add_ps(low, _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b))
            };
            let (ab, cd) = (halves(a, b), halves(c, d));
            let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd);
            let sums = _mm512_add_ps(even, _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd));
            let sums = _mm512_add_ps(sums, _mm512_permute_ps::<0b01_00_11_10>(sums));
            let sums = _mm512_add_ps(sums, _mm512_permute_ps::<0b10_11_00_01>(sums));
            let firsts = _mm512_castps512_ps128(_mm512_maskz_compress_ps(0b0001_0001_0001_0001, sums));
            let mut four = [0.0; 4];
            // SAFETY: there is room for four.
            unsafe { _mm_storeu_ps(four.as_mut_ptr(), firsts) };
            four
        }
        intrinsic!(sums(v))
    }

    #[inline(always)]
    fn reduce_max(self, v: __m512) -> f32 {
        intrinsic!(_mm512_reduce_max_ps(v))
    }

    #[inline(always)]
    unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        intrinsic!(super::avx2::transpose8(from, from_stride, to, to_stride));
    }
}
