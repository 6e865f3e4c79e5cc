//! Advanced SIMD of 64-bit Arm: a vector is four registers.

use core::arch::aarch64::*;

use super::{Job, Simd};

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
        // The instruction returns NaN when one operand is NaN.
        quarters!(|i| vmaxq_f32(bound[i], v[i]))
    }

    #[inline(always)]
    fn min(self, bound: Self::V, v: Self::V) -> Self::V {
        quarters!(|i| vminq_f32(bound[i], v[i]))
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
    fn exp2i(self, n: Self::V) -> Self::V {
        quarters!(|i| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(n[i]), vdupq_n_s32(127)))))
    }
}
