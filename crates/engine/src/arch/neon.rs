//! Advanced SIMD of 64-bit Arm: a vector is four registers.

use core::arch::aarch64::*;

use super::{Job, MANTISSA, SQRT_HALF, Simd};

/// Advanced SIMD, part of every 64-bit Arm target with floating point.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn new() -> Option<Self> {
        cfg!(target_feature = "neon").then_some(Self(()))
    }
}

#[target_feature(enable = "neon")]
fn enter<J: Job>(simd: Neon, job: J) -> J::Out {
    job.run(simd)
}

/// Applies an intrinsic to all quarters.
macro_rules! quarters {
    (|$i:ident| $operation:expr) => {{
        let quarter = |$i: usize| {
            // SAFETY: a `Neon` exists only where the target has Advanced SIMD, which is all that this needs.
            unsafe { $operation }
        };
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }};
}

impl Simd for Neon {
    type V = [float32x4_t; 4];

    const ROWS: usize = 6;
    const PANELS: usize = 1;

    #[inline(always)]
    fn vectorize<J: Job>(self, job: J) -> J::Out {
        // SAFETY: a `Neon` exists only where the target has Advanced SIMD.
        unsafe { enter(self, job) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        quarters!(|_i| vdupq_n_f32(x))
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        quarters!(|i| vld1q_f32(from.wrapping_add(4 * i)))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        quarters!(|i| vst1q_f32(to.wrapping_add(4 * i), v[i]));
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        quarters!(|i| vaddq_f32(a[i], b[i]))
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        quarters!(|i| vsubq_f32(a[i], b[i]))
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        quarters!(|i| vmulq_f32(a[i], b[i]))
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        quarters!(|i| vdivq_f32(a[i], b[i]))
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        quarters!(|i| vfmaq_f32(c[i], a[i], b[i]))
    }

    #[inline(always)]
    fn max(self, bound: Self::V, v: Self::V) -> Self::V {
        // FMAX takes zero for greater than minus zero, where the other instruction sets return `v`.
        quarters!(|i| vbslq_f32(vcltq_f32(v[i], bound[i]), bound[i], v[i]))
    }

    #[inline(always)]
    fn min(self, bound: Self::V, v: Self::V) -> Self::V {
        quarters!(|i| vbslq_f32(vcgtq_f32(v[i], bound[i]), bound[i], v[i]))
    }

    #[inline(always)]
    fn abs(self, v: Self::V) -> Self::V {
        quarters!(|i| vabsq_f32(v[i]))
    }

    #[inline(always)]
    fn copysign(self, v: Self::V, sign: Self::V) -> Self::V {
        quarters!(|i| vbslq_f32(vdupq_n_u32(1 << 31), sign[i], v[i]))
    }

    #[inline(always)]
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        quarters!(|i| vbslq_f32(vcltq_f32(a[i], b[i]), yes[i], no[i]))
    }

    #[inline(always)]
    fn select_equal(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        quarters!(|i| vbslq_f32(vceqq_f32(a[i], b[i]), yes[i], no[i]))
    }

    #[inline(always)]
    fn sqrt(self, v: Self::V) -> Self::V {
        quarters!(|i| vsqrtq_f32(v[i]))
    }

    #[inline(always)]
    fn floor(self, v: Self::V) -> Self::V {
        quarters!(|i| vrndmq_f32(v[i]))
    }

    #[inline(always)]
    fn ceil(self, v: Self::V) -> Self::V {
        quarters!(|i| vrndpq_f32(v[i]))
    }

    #[inline(always)]
    fn trunc(self, v: Self::V) -> Self::V {
        quarters!(|i| vrndq_f32(v[i]))
    }

    #[inline(always)]
    fn round(self, v: Self::V) -> Self::V {
        quarters!(|i| vrndnq_f32(v[i]))
    }

    #[inline(always)]
    fn ldexp(self, v: Self::V, n: Self::V) -> Self::V {
        quarters!(|i| {
            let exponent = vshlq_n_s32::<23>(vcvtnq_s32_f32(n[i]));
            vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(v[i]), exponent))
        })
    }

    #[inline(always)]
    fn split(self, v: Self::V) -> (Self::V, Self::V) {
        #[target_feature(enable = "neon")]
        #[inline]
        fn quarter(v: float32x4_t) -> (float32x4_t, float32x4_t) {
            let sqrt_half = vdupq_n_s32(SQRT_HALF.cast_signed());
            let steps = vsubq_s32(vreinterpretq_s32_f32(v), sqrt_half);
            let mantissa = vandq_s32(steps, vdupq_n_s32(MANTISSA.cast_signed()));
            let mantissa = vreinterpretq_f32_s32(vaddq_s32(mantissa, sqrt_half));
            (mantissa, vcvtq_f32_s32(vshrq_n_s32::<23>(steps)))
        }
        let parts = quarters!(|i| quarter(v[i]));
        (parts.map(|part| part.0), parts.map(|part| part.1))
    }

    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        #[target_feature(enable = "neon")]
        #[inline]
        fn sum(v: [float32x4_t; 4]) -> f32 {
            vaddvq_f32(vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3])))
        }
        // SAFETY: as for `vectorize`.
        unsafe { sum(v) }
    }

    #[inline(always)]
    unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        /// The same for 4 rows of 4.
        #[target_feature(enable = "neon")]
        #[inline]
        unsafe fn transpose4(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
            // SAFETY: the caller vouches for 4 rows of 4 floats.
            let row = |i: usize| unsafe { vld1q_f32(from.wrapping_add(i * from_stride)) };
            let rows = [row(0), row(1), row(2), row(3)];
            let pair = |a, b| (vreinterpretq_f64_f32(vtrn1q_f32(a, b)), vreinterpretq_f64_f32(vtrn2q_f32(a, b)));
            let ((even01, odd01), (even23, odd23)) = (pair(rows[0], rows[1]), pair(rows[2], rows[3]));
            let columns = [
                vtrn1q_f64(even01, even23),
                vtrn1q_f64(odd01, odd23),
                vtrn2q_f64(even01, even23),
                vtrn2q_f64(odd01, odd23),
            ];
            for (j, v) in columns.into_iter().enumerate() {
                // SAFETY: the caller vouches for 4 rows of 4 floats.
                unsafe { vst1q_f32(to.wrapping_add(j * to_stride), vreinterpretq_f32_f64(v)) };
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
