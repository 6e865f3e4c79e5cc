//! The instruction sets behind one trait, and the one place where a job enters code compiled for one of them.
//!
//! A vector is always 16 f32 lanes, the width of a panel of packed weights: one AVX-512 register, two of AVX2, four of
//! NEON. Kernels are written once, generic over [`Simd`], and compiled for each instruction set by
//! [`Simd::vectorize`]. All of a kernel must be `#[inline(always)]`, down to the operations of the trait: only what is
//! inlined into the function with `#[target_feature]` is compiled with the feature.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::Isa;

/// Lanes of a vector, and columns of a panel of packed weights.
pub(crate) const LANES: usize = 16;

/// An instruction set: a token that exists only where the processor has it.
///
/// Rounding is to nearest. Operations follow IEEE 754 except where they say otherwise.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type V: Copy;

    /// Rows of the largest register tile of a product.
    const ROWS: usize;
    /// Panels, each of 16 columns, of the largest register tile: 1 or 2.
    const PANELS: usize;

    /// Runs a job in a function compiled for this instruction set.
    fn vectorize<J: Job>(self, job: J) -> J::Out;

    fn splat(self, x: f32) -> Self::V;

    /// # Safety
    /// 16 floats are readable at `from`.
    unsafe fn load(self, from: *const f32) -> Self::V;

    /// # Safety
    /// 16 floats are writable at `to`.
    unsafe fn store(self, to: *mut f32, v: Self::V);

    /// The first `n` lanes, at most 16; zeros in the others.
    ///
    /// # Safety
    /// `n` floats are readable at `from`.
    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, n: usize) -> Self::V {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: the caller vouches for `n` floats, and `n` is at most 16.
        unsafe { core::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), n.min(LANES)) };
        // SAFETY: the array has 16 floats.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// The first `n` lanes, at most 16, to memory.
    ///
    /// # Safety
    /// `n` floats are writable at `to`.
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize, v: Self::V) {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: the array has 16 floats.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        // SAFETY: the caller vouches for `n` floats, and `n` is at most 16.
        unsafe { core::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n.min(LANES)) };
    }

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the instruction set has it.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The greater; `v` where `v` is NaN. `bound` is not NaN.
    fn max(self, bound: Self::V, v: Self::V) -> Self::V;
    /// The lesser; `v` where `v` is NaN. `bound` is not NaN.
    fn min(self, bound: Self::V, v: Self::V) -> Self::V;
    fn abs(self, v: Self::V) -> Self::V;
    /// The magnitude of `v` with the sign of `sign`.
    fn copysign(self, v: Self::V, sign: Self::V) -> Self::V;
    /// `yes` where `a < b`, else `no`, which includes NaN.
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// 2 to the power of `n`, for integral `n` from -126 to 127.
    fn exp2i(self, n: Self::V) -> Self::V;
}

/// Something to compute with any instruction set.
pub(crate) trait Job {
    type Out;

    /// Must be `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Out;
}

/// An instruction set that was found on this machine.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Scalar(scalar::Scalar),
    /// The tile of AVX-512 in portable code, so that every machine can test its ways through the loops.
    #[cfg(test)]
    WideScalar(scalar::WideScalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
}

impl Level {
    pub(crate) fn of(isa: Isa) -> Option<Level> {
        match isa {
            Isa::Scalar => Some(Level::Scalar(scalar::Scalar::new())),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::Avx2::new().map(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::Avx512::new().map(Level::Avx512),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::Neon::new().map(Level::Neon),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    pub(crate) fn best() -> Level {
        let found = Isa::ALL.iter().rev().find_map(|&isa| Level::of(isa));
        found.unwrap_or(Level::Scalar(scalar::Scalar::new()))
    }

    #[cfg(test)]
    pub(crate) fn wide_scalar() -> Level {
        Level::WideScalar(scalar::WideScalar::new())
    }

    pub(crate) fn isa(self) -> Isa {
        match self {
            Level::Scalar(_) => Isa::Scalar,
            #[cfg(test)]
            Level::WideScalar(_) => Isa::Scalar,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => Isa::Avx512,
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => Isa::Neon,
        }
    }

    /// Runs a job in code compiled for this instruction set.
    #[inline]
    pub(crate) fn run<J: Job>(self, job: J) -> J::Out {
        match self {
            Level::Scalar(simd) => simd.vectorize(job),
            #[cfg(test)]
            Level::WideScalar(simd) => simd.vectorize(job),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(simd) => simd.vectorize(job),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(simd) => simd.vectorize(job),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(simd) => simd.vectorize(job),
        }
    }

    /// Rows and panels of the largest register tile.
    pub(crate) fn tile(self) -> (usize, usize) {
        struct Shape;
        impl Job for Shape {
            type Out = (usize, usize);
            #[inline(always)]
            fn run<S: Simd>(self, _: S) -> (usize, usize) {
                (S::ROWS, S::PANELS)
            }
        }
        self.run(Shape)
    }
}

impl core::fmt::Debug for Level {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.isa().fmt(f)
    }
}
