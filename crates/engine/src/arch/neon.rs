//! Advanced SIMD of 64-bit Arm: a vector is four registers.

use core::arch::aarch64::*;

use super::quarters::{by_quarters, quarters, transpose8_by_quarters};
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

/// The columns of four rows.
#[target_feature(enable = "neon")]
#[inline]
fn transpose4(rows: [float32x4_t; 4]) -> [float32x4_t; 4] {
    let pair = |a, b| (vreinterpretq_f64_f32(vtrn1q_f32(a, b)), vreinterpretq_f64_f32(vtrn2q_f32(a, b)));
    let ((even01, odd01), (even23, odd23)) = (pair(rows[0], rows[1]), pair(rows[2], rows[3]));
    let columns =
        [vtrn1q_f64(even01, even23), vtrn1q_f64(odd01, odd23), vtrn2q_f64(even01, even23), vtrn2q_f64(odd01, odd23)];
    columns.map(|v| vreinterpretq_f32_f64(v))
}

impl Simd for Neon {
    type V = [float32x4_t; 4];
    type Dots = Self;
    type Quads = Self;

    const ROWS: usize = 6;
    const PANELS: usize = 1;
    const PIXELS: usize = 5;
    const VECTORS: usize = 8;
    const QUAD_ROWS: usize = Self::ROWS;

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

    by_quarters! {
        add(a, b) => vaddq_f32(a, b);
        sub(a, b) => vsubq_f32(a, b);
        mul(a, b) => vmulq_f32(a, b);
        div(a, b) => vdivq_f32(a, b);
        fma(a, b, c) => vfmaq_f32(c, a, b);
        // FMAX takes zero for greater than minus zero, where the other instruction sets return `v`.
        max(bound, v) => vbslq_f32(vcltq_f32(v, bound), bound, v);
        min(bound, v) => vbslq_f32(vcgtq_f32(v, bound), bound, v);
        abs(v) => vabsq_f32(v);
        copysign(v, sign) => vbslq_f32(vdupq_n_u32(1 << 31), sign, v);
        select_less(a, b, yes, no) => vbslq_f32(vcltq_f32(a, b), yes, no);
        select_equal(a, b, yes, no) => vbslq_f32(vceqq_f32(a, b), yes, no);
        sqrt(v) => vsqrtq_f32(v);
        floor(v) => vrndmq_f32(v);
        ceil(v) => vrndpq_f32(v);
        trunc(v) => vrndq_f32(v);
        round(v) => vrndnq_f32(v);
        ldexp(v, n) => {
            let exponent = vshlq_n_s32::<23>(vcvtnq_s32_f32(n));
            vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(v), exponent))
        };
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

    transpose8_by_quarters!(vld1q_f32, transpose4, vst1q_f32);
}
