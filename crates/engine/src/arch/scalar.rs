//! Portable code, which the compiler vectorises as far as the target's baseline allows.

use super::{Job, LANES, Simd};

/// Portable code with a register tile of `R` rows and `P` panels.
#[derive(Clone, Copy)]
pub(crate) struct Portable<const R: usize, const P: usize>(());

pub(crate) type Scalar = Portable<2, 1>;

#[cfg(test)]
pub(crate) type WideScalar = Portable<14, 2>;

impl<const R: usize, const P: usize> Portable<R, P> {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = f(i);
    }
    lanes
}

impl<const R: usize, const P: usize> Simd for Portable<R, P> {
    type V = [f32; LANES];

    const ROWS: usize = R;
    const PANELS: usize = P;

    #[inline(always)]
    fn vectorize<J: Job>(self, job: J) -> J::Out {
        job.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        // SAFETY: the caller vouches for 16 floats.
        unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller vouches for 16 floats.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(v) };
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        each(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn max(self, bound: Self::V, v: Self::V) -> Self::V {
        each(|i| if v[i] < bound[i] { bound[i] } else { v[i] })
    }

    #[inline(always)]
    fn min(self, bound: Self::V, v: Self::V) -> Self::V {
        each(|i| if v[i] > bound[i] { bound[i] } else { v[i] })
    }

    #[inline(always)]
    fn abs(self, v: Self::V) -> Self::V {
        each(|i| v[i].abs())
    }

    #[inline(always)]
    fn copysign(self, v: Self::V, sign: Self::V) -> Self::V {
        each(|i| v[i].copysign(sign[i]))
    }

    #[inline(always)]
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        each(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }

    #[inline(always)]
    fn exp2i(self, n: Self::V) -> Self::V {
        each(|i| f32::from_bits(((n[i] as i32 + 127) << 23) as u32))
    }
}
