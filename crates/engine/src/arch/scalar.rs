//! Portable code, auto-vectorized as far as the target's baseline allows.

use super::{Arithmetic, Kernel, LANES, MANTISSA, SQRT_HALF, Simd};

/// Token of the portable implementation.
#[derive(Clone, Copy)]
pub(crate) struct Scalar(());

impl Scalar {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

#[inline(never)]
fn enter<S: Simd, K: Kernel>(simd: S, kernel: K) -> K::Out {
    kernel.run(simd)
}

// Where a SIMD implementation exists, this code is only a reference, and in debug builds it is only tested. Its loops
// stay out of line there: inlining them would take nine tenths of the engine's compile time.
#[cfg_attr(any(baseline_simd, debug_assertions), inline(never))]
#[cfg_attr(not(any(baseline_simd, debug_assertions)), inline(always))]
fn each(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = f(i);
    }
    lanes
}

impl Arithmetic for Scalar {
    type V = [f32; LANES];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
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
    fn select_equal(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        each(|i| if a[i] == b[i] { yes[i] } else { no[i] })
    }

    #[inline(always)]
    fn sqrt(self, v: Self::V) -> Self::V {
        each(|i| libm::sqrtf(v[i]))
    }

    #[inline(always)]
    fn floor(self, v: Self::V) -> Self::V {
        each(|i| libm::floorf(v[i]))
    }

    #[inline(always)]
    fn ceil(self, v: Self::V) -> Self::V {
        each(|i| libm::ceilf(v[i]))
    }

    #[inline(always)]
    fn trunc(self, v: Self::V) -> Self::V {
        each(|i| libm::truncf(v[i]))
    }

    #[inline(always)]
    fn round(self, v: Self::V) -> Self::V {
        each(|i| libm::rintf(v[i]))
    }

    #[inline(always)]
    fn ldexp(self, v: Self::V, n: Self::V) -> Self::V {
        each(|i| f32::from_bits(v[i].to_bits().wrapping_add((n[i] as i32 as u32) << 23)))
    }

    #[inline(always)]
    fn split(self, v: Self::V) -> (Self::V, Self::V) {
        let from_sqrt_half = |i: usize| v[i].to_bits().wrapping_sub(SQRT_HALF);
        (
            each(|i| f32::from_bits((from_sqrt_half(i) & MANTISSA) + SQRT_HALF)),
            each(|i| ((from_sqrt_half(i) as i32) >> 23) as f32),
        )
    }
}

impl Simd for Scalar {
    type WithBf16 = Self;

    const MR: usize = 2;
    const NR_PANELS: usize = 1;
    const DEPTHWISE_PIXELS: usize = 4;
    const VECTOR_REGISTERS: usize = 4;
    const INT8_MR: usize = Self::MR;

    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        enter(self, kernel)
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        // SAFETY: the caller guarantees 16 floats.
        unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller guarantees 16 floats.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(v) };
    }
}

/// The register tile of AVX-512 in portable code, to test its control flow on machines without AVX-512.
#[cfg(feature = "wide-scalar")]
#[derive(Clone, Copy)]
pub(crate) struct WideScalar(Scalar);

#[cfg(feature = "wide-scalar")]
impl WideScalar {
    pub(crate) const fn new() -> Self {
        Self(Scalar::new())
    }
}

/// Forwards methods of [`WideScalar`] to [`Scalar`], out of line to save compile time.
#[cfg(feature = "wide-scalar")]
macro_rules! forward {
    ($($name:ident($($argument:ident),+);)+) => {
        $(#[inline(never)]
        fn $name(self, $($argument: Self::V),+) -> Self::V {
            self.0.$name($($argument),+)
        })+
    };
}

#[cfg(feature = "wide-scalar")]
impl Arithmetic for WideScalar {
    type V = [f32; LANES];

    fn splat(self, x: f32) -> Self::V {
        self.0.splat(x)
    }

    forward! {
        add(a, b);
        sub(a, b);
        mul(a, b);
        div(a, b);
        fma(a, b, c);
        max(bound, v);
        min(bound, v);
        abs(v);
        copysign(v, sign);
        select_less(a, b, yes, no);
        select_equal(a, b, yes, no);
        sqrt(v);
        floor(v);
        ceil(v);
        trunc(v);
        round(v);
        ldexp(v, n);
    }

    fn split(self, v: Self::V) -> (Self::V, Self::V) {
        self.0.split(v)
    }
}

#[cfg(feature = "wide-scalar")]
impl Simd for WideScalar {
    type WithBf16 = Self;

    const MR: usize = 14;
    const NR_PANELS: usize = 2;
    const DEPTHWISE_PIXELS: usize = 4;
    const VECTOR_REGISTERS: usize = 4;
    const INT8_MR: usize = Self::MR;
    const MAY_HAVE_BF16: bool = true;

    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        enter(self, kernel)
    }

    fn with_bf16(self) -> Option<Self> {
        Some(self)
    }

    unsafe fn load(self, from: *const f32) -> Self::V {
        // SAFETY: the caller guarantees it.
        unsafe { self.0.load(from) }
    }

    unsafe fn store(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller guarantees it.
        unsafe { self.0.store(to, v) };
    }
}

#[cfg(test)]
mod tests {
    use super::Scalar;
    use crate::Isa;
    use crate::arch::{Dispatch, Kernel, Simd};

    /// Transposes the 8 x 8 block of 32 bits that begins at an element of 16.
    struct Transpose<'a>(&'a [u16], &'a mut [f32; 64]);

    impl Kernel for Transpose<'_> {
        type Out = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            assert!(self.0.len() >= 128);
            // SAFETY: both sides have 64 elements.
            unsafe { s.transpose8(self.0.as_ptr().cast(), 8, self.1.as_mut_ptr(), 8) };
        }
    }

    #[test]
    fn blocks_are_transposed_from_any_address() {
        let numbers: [u16; 130] = core::array::from_fn(|at| at as u16);
        // One of these is no address of an f32.
        for start in 0..2 {
            let from = &numbers[start..];
            let expected = |at: usize| {
                let first = (at % 8 * 8 + at / 8) * 2;
                u32::from(from[first]) | u32::from(from[first + 1]) << 16
            };
            let check = |run: &dyn Fn(Transpose<'_>)| {
                let mut to = [0.0; 64];
                run(Transpose(from, &mut to));
                assert_eq!(to.map(f32::to_bits), core::array::from_fn(expected));
            };
            check(&|block| Scalar::new().vectorize(block));
            Isa::available().filter_map(Dispatch::of).for_each(|dispatch| check(&|block| dispatch.run(block)));
        }
    }
}
