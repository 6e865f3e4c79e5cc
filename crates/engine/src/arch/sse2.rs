//! SSE2, which every x86-64 processor has: a vector is four registers.

use core::arch::x86_64::*;

use super::{Job, MANTISSA, SQRT_HALF, Simd};

/// SSE2, part of every x86-64 target.
#[derive(Clone, Copy)]
pub(crate) struct Sse2(());

impl Sse2 {
    pub(crate) fn new() -> Option<Self> {
        cfg!(target_feature = "sse2").then_some(Self(()))
    }
}

#[target_feature(enable = "sse2")]
fn enter<J: Job>(simd: Sse2, job: J) -> J::Out {
    job.run(simd)
}

/// Applies an intrinsic to all quarters.
macro_rules! quarters {
    (|$i:ident| $operation:expr) => {{
        let quarter = |$i: usize| {
            // SAFETY: an `Sse2` exists only where the target has SSE2, which is all that this needs.
            unsafe { $operation }
        };
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }};
}

/// `yes` where the bits of `mask` are set, else `no`.
#[target_feature(enable = "sse2")]
#[inline]
fn select(mask: __m128, yes: __m128, no: __m128) -> __m128 {
    _mm_or_ps(_mm_and_ps(mask, yes), _mm_andnot_ps(mask, no))
}

/// The magnitude of `v` with the sign of `sign`.
#[target_feature(enable = "sse2")]
#[inline]
fn with_sign(v: __m128, sign: __m128) -> __m128 {
    select(_mm_set1_ps(-0.0), sign, v)
}

/// `integral`, with the sign of `v`, where `v` may have a fraction, else `v`: from 2^23 on floats are integral.
#[target_feature(enable = "sse2")]
#[inline]
fn unless_integral(v: __m128, integral: __m128) -> __m128 {
    let has_fraction = _mm_cmplt_ps(with_sign(v, _mm_setzero_ps()), _mm_set1_ps(8_388_608.0));
    select(has_fraction, with_sign(integral, v), v)
}

/// `v` without its fraction, if it is below 2^31.
#[target_feature(enable = "sse2")]
#[inline]
fn cut(v: __m128) -> __m128 {
    _mm_cvtepi32_ps(_mm_cvttps_epi32(v))
}

#[target_feature(enable = "sse2")]
#[inline]
fn floor(v: __m128) -> __m128 {
    let cut = cut(v);
    unless_integral(v, _mm_sub_ps(cut, _mm_and_ps(_mm_cmplt_ps(v, cut), _mm_set1_ps(1.0))))
}

#[target_feature(enable = "sse2")]
#[inline]
fn ceil(v: __m128) -> __m128 {
    let cut = cut(v);
    unless_integral(v, _mm_add_ps(cut, _mm_and_ps(_mm_cmplt_ps(cut, v), _mm_set1_ps(1.0))))
}

#[target_feature(enable = "sse2")]
#[inline]
fn round(v: __m128) -> __m128 {
    unless_integral(v, _mm_cvtepi32_ps(_mm_cvtps_epi32(v)))
}

impl Simd for Sse2 {
    type V = [__m128; 4];

    const ROWS: usize = 2;
    const PANELS: usize = 1;

    #[inline(always)]
    fn vectorize<J: Job>(self, job: J) -> J::Out {
        // SAFETY: an `Sse2` exists only where the target has SSE2.
        unsafe { enter(self, job) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        quarters!(|_i| _mm_set1_ps(x))
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        quarters!(|i| _mm_loadu_ps(from.wrapping_add(4 * i)))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        quarters!(|i| _mm_storeu_ps(to.wrapping_add(4 * i), v[i]));
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        quarters!(|i| _mm_add_ps(a[i], b[i]))
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        quarters!(|i| _mm_sub_ps(a[i], b[i]))
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        quarters!(|i| _mm_mul_ps(a[i], b[i]))
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        quarters!(|i| _mm_div_ps(a[i], b[i]))
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        quarters!(|i| _mm_add_ps(_mm_mul_ps(a[i], b[i]), c[i]))
    }

    #[inline(always)]
    fn max(self, bound: Self::V, v: Self::V) -> Self::V {
        // The instruction returns its second operand when one is NaN, and when they are equal.
        quarters!(|i| _mm_max_ps(bound[i], v[i]))
    }

    #[inline(always)]
    fn min(self, bound: Self::V, v: Self::V) -> Self::V {
        quarters!(|i| _mm_min_ps(bound[i], v[i]))
    }

    #[inline(always)]
    fn abs(self, v: Self::V) -> Self::V {
        quarters!(|i| _mm_andnot_ps(_mm_set1_ps(-0.0), v[i]))
    }

    #[inline(always)]
    fn copysign(self, v: Self::V, sign: Self::V) -> Self::V {
        quarters!(|i| with_sign(v[i], sign[i]))
    }

    #[inline(always)]
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        quarters!(|i| select(_mm_cmplt_ps(a[i], b[i]), yes[i], no[i]))
    }

    #[inline(always)]
    fn select_equal(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        quarters!(|i| select(_mm_cmpeq_ps(a[i], b[i]), yes[i], no[i]))
    }

    #[inline(always)]
    fn sqrt(self, v: Self::V) -> Self::V {
        quarters!(|i| _mm_sqrt_ps(v[i]))
    }

    #[inline(always)]
    fn floor(self, v: Self::V) -> Self::V {
        quarters!(|i| floor(v[i]))
    }

    #[inline(always)]
    fn ceil(self, v: Self::V) -> Self::V {
        quarters!(|i| ceil(v[i]))
    }

    #[inline(always)]
    fn trunc(self, v: Self::V) -> Self::V {
        quarters!(|i| unless_integral(v[i], cut(v[i])))
    }

    #[inline(always)]
    fn round(self, v: Self::V) -> Self::V {
        quarters!(|i| round(v[i]))
    }

    #[inline(always)]
    fn ldexp(self, v: Self::V, n: Self::V) -> Self::V {
        quarters!(|i| {
            let exponent = _mm_slli_epi32::<23>(_mm_cvtps_epi32(n[i]));
            _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(v[i]), exponent))
        })
    }

    #[inline(always)]
    fn split(self, v: Self::V) -> (Self::V, Self::V) {
        #[target_feature(enable = "sse2")]
        #[inline]
        fn quarter(v: __m128) -> (__m128, __m128) {
            let sqrt_half = _mm_set1_epi32(SQRT_HALF.cast_signed());
            let steps = _mm_sub_epi32(_mm_castps_si128(v), sqrt_half);
            let mantissa = _mm_and_si128(steps, _mm_set1_epi32(MANTISSA.cast_signed()));
            let mantissa = _mm_castsi128_ps(_mm_add_epi32(mantissa, sqrt_half));
            (mantissa, _mm_cvtepi32_ps(_mm_srai_epi32::<23>(steps)))
        }
        let parts = quarters!(|i| quarter(v[i]));
        (parts.map(|part| part.0), parts.map(|part| part.1))
    }

    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
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

    #[inline(always)]
    unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        /// The same for 4 rows of 4.
        #[target_feature(enable = "sse2")]
        #[inline]
        unsafe fn transpose4(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
            // SAFETY: the caller vouches for 4 rows of 4 floats.
            let row = |i: usize| unsafe { _mm_loadu_ps(from.wrapping_add(i * from_stride)) };
            let (mut a, mut b, mut c, mut d) = (row(0), row(1), row(2), row(3));
            _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
            for (j, v) in [a, b, c, d].into_iter().enumerate() {
                // SAFETY: the caller vouches for 4 rows of 4 floats.
                unsafe { _mm_storeu_ps(to.wrapping_add(j * to_stride), v) };
            }
        }
        for (i, j) in [(0, 0), (0, 4), (4, 0), (4, 4)] {
            let from = from.wrapping_add(i * from_stride + j);
            let to = to.wrapping_add(j * to_stride + i);
            // SAFETY: as for `vectorize`; the caller vouches for the memory.
            unsafe { transpose4(from, from_stride, to, to_stride) };
        }
    }
}
