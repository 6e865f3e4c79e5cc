//! The instruction sets behind one trait, and the one place where a job enters code compiled for one of them.
//!
//! A vector is always 16 f32 lanes, the width of a panel of packed weights: one AVX-512 register, two of AVX2, four of
//! NEON, SSE2 or WebAssembly. Kernels are written once, generic over [`Simd`], and compiled for each instruction set by
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
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", all(target_arch = "wasm32", target_feature = "simd128")))]
mod quarters;
mod scalar;
mod several;
#[cfg(target_arch = "x86_64")]
mod sse2;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;

use crate::Isa;
use crate::convert::{from_bf16, from_f16, to_bf16};
pub(crate) use several::{Function, Several};

/// Lanes of a vector, and columns of a panel of packed weights.
pub(crate) const LANES: usize = 16;

/// Memory of a vector, which never lies in two cache lines: reaching both would take twice as long.
#[derive(Clone, Copy)]
#[repr(align(64))]
#[expect(dead_code, reason = "it is read and written through pointers")]
pub(crate) struct Aligned([f32; LANES]);

/// The bits of sqrt(1/2), and those of a number's mantissa.
const SQRT_HALF: u32 = core::f32::consts::FRAC_1_SQRT_2.to_bits();
const MANTISSA: u32 = (1 << 23) - 1;

/// How numbers become bytes: the nearest whole number, ties to even, plus `zero`, but at least `min` and at most `max`.
#[derive(Clone, Copy)]
pub(crate) struct ByteLevels {
    pub zero: u8,
    pub min: u8,
    pub max: u8,
}

impl ByteLevels {
    #[inline(always)]
    pub fn round<S: Simd>(self, s: S, x: S::V) -> S::V {
        let level = s.add(s.round(x), s.splat(f32::from(self.zero)));
        s.min(s.splat(f32::from(self.max)), s.max(s.splat(f32::from(self.min)), level))
    }
}

/// Arithmetic with vectors, one or several at a time.
///
/// Rounding is to nearest. Operations follow IEEE 754 except where they say otherwise.
pub(crate) trait Arithmetic: Copy {
    /// Sixteen f32.
    type V: Copy;

    fn splat(self, x: f32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the instruction set has it.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The greater; `v` where they are equal (zeros of both signs too) or `v` is NaN. `bound` is not NaN.
    fn max(self, bound: Self::V, v: Self::V) -> Self::V;
    /// The lesser; `v` where they are equal (zeros of both signs too) or `v` is NaN. `bound` is not NaN.
    fn min(self, bound: Self::V, v: Self::V) -> Self::V;
    fn abs(self, v: Self::V) -> Self::V;
    /// The magnitude of `v` with the sign of `sign`.
    fn copysign(self, v: Self::V, sign: Self::V) -> Self::V;
    /// `yes` where `a < b`, else `no`, which includes NaN.
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// `yes` where `a == b`, else `no`, which includes NaN.
    fn select_equal(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    fn sqrt(self, v: Self::V) -> Self::V;
    fn floor(self, v: Self::V) -> Self::V;
    fn ceil(self, v: Self::V) -> Self::V;
    fn trunc(self, v: Self::V) -> Self::V;
    /// The nearest integer, ties to even.
    fn round(self, v: Self::V) -> Self::V;
    /// `v * 2^n` for integral `n`, if both `v` and the result are normal numbers.
    fn ldexp(self, v: Self::V, n: Self::V) -> Self::V;
    /// `v * 2^n` for `v` from 1/2 to 2 and integral `n` from -200 to 0; what is no normal number may be 0.
    #[inline(always)]
    fn ldexp_down(self, v: Self::V, n: Self::V) -> Self::V {
        let least = self.splat(-126.0);
        self.select_less(n, least, self.splat(0.0), self.ldexp(v, self.max(least, n)))
    }

    /// A positive normal number as (m, n) with `v = m * 2^n`, `n` integral and `m` from sqrt(1/2) to sqrt(2).
    fn split(self, v: Self::V) -> (Self::V, Self::V);

    /// The greater; NaN where either is.
    #[inline(always)]
    fn maximum(self, a: Self::V, b: Self::V) -> Self::V {
        self.select_equal(a, a, self.max(a, b), a)
    }

    /// The lesser; NaN where either is.
    #[inline(always)]
    fn minimum(self, a: Self::V, b: Self::V) -> Self::V {
        self.select_equal(a, a, self.min(a, b), a)
    }
}

/// An instruction set: a token that exists only where the processor has it.
pub(crate) trait Simd: Arithmetic + Send + Sync + 'static {
    /// Rows of the largest register tile of a product.
    const ROWS: usize;
    /// Panels, each of 16 columns, of the largest register tile: 1 or 2.
    const PANELS: usize;
    /// Pixels of the largest register tile of a depthwise convolution, from 4 to 6.
    const PIXELS: usize;
    /// Vectors that the registers hold.
    const VECTORS: usize;

    /// Rows of the largest register tile of a product of bytes.
    const QUAD_ROWS: usize;

    /// Vectors of which [`Several`] are taken at a time: 1, 2 or 4.
    const SIDE_BY_SIDE: usize = 1;

    /// What [`dots`](Self::dots) gives, or nothing of interest.
    type Dots: Simd;
    const MAY_DOT: bool = false;

    /// Whether this is code for a processor with products of pairs of bf16: those that [`dots`](Self::dots) gives.
    const TAKES_BF16: bool = false;

    /// Runs a job in a function compiled for this instruction set.
    fn vectorize<J: Job>(self, job: J) -> J::Out;

    /// The same with [`dot4`](Self::dot4) as an instruction, if the processor has it.
    #[inline(always)]
    fn vectorize_quads<J: Job>(self, job: J) -> J::Out {
        self.vectorize(job)
    }

    /// Whether the processor has [`dot4`](Self::dot4) as an instruction.
    #[inline(always)]
    fn has_quads(self) -> bool {
        false
    }

    /// # Safety
    /// 16 floats are readable at `from`.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// # Safety
    /// 16 floats are writable at `to`.
    unsafe fn store(self, to: *mut f32, v: Self::V);

    /// Asks for the cache line that is read soon, where there is such an instruction. Any address will do.
    #[inline(always)]
    fn prefetch(self, _: *const f32) {}

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

    /// Sixteen numbers of [`Half::F16`](crate::Half), which is exact.
    ///
    /// # Safety
    /// 16 numbers are readable at `from`.
    #[inline(always)]
    unsafe fn widen_f16(self, from: *const u16) -> Self::V {
        // SAFETY: the caller vouches for 16 numbers.
        let narrow = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        let mut lanes = [0.0f32; LANES];
        for lane in 0..LANES {
            lanes[lane] = from_f16(narrow[lane]);
        }
        // SAFETY: the array has 16 floats.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// The first and the second numbers of sixteen pairs of [`Half::Bf16`](crate::Half), which is exact.
    ///
    /// # Safety
    /// 16 pairs are readable at `from`.
    #[inline(always)]
    unsafe fn widen_pairs(self, from: *const u16) -> [Self::V; 2] {
        // SAFETY: the caller vouches for 16 pairs.
        let pairs = unsafe { from.cast::<[[u16; 2]; LANES]>().read_unaligned() };
        let mut lanes = [[0.0f32; LANES]; 2];
        for (lane, pair) in pairs.into_iter().enumerate() {
            lanes[0][lane] = from_bf16(pair[0]);
            lanes[1][lane] = from_bf16(pair[1]);
        }
        // SAFETY: each array has 16 floats.
        [unsafe { self.load(lanes[0].as_ptr()) }, unsafe { self.load(lanes[1].as_ptr()) }]
    }

    /// This instruction set with products of pairs of bf16 as instructions: [`narrow`](Self::narrow) and
    /// [`dot`](Self::dot), if the processor has it, which is possible only with [`MAY_DOT`](Self::MAY_DOT).
    #[inline(always)]
    fn dots(self) -> Option<Self::Dots> {
        None
    }

    /// The first `n` floats, at most 16, to the nearest of [`Half::Bf16`](crate::Half), ties to even, and zeros. Numbers
    /// below the normal ones may become zero.
    ///
    /// # Safety
    /// `n` floats are readable at `from`, and 16 numbers writable at `to`.
    #[inline(always)]
    unsafe fn narrow(self, from: *const f32, n: usize, to: *mut u16) {
        // SAFETY: the caller vouches for both.
        unsafe { narrow_portably(self, from, n, to) };
    }

    /// The first `n` numbers of [`Half::Bf16`](crate::Half), at most 16, which is exact; zeros in the others.
    ///
    /// # Safety
    /// `n` numbers are readable at `from`.
    #[inline(always)]
    unsafe fn widen_bf16(self, from: *const u16, n: usize) -> Self::V {
        let mut narrow = [0; LANES];
        // SAFETY: the caller vouches for `n` numbers, and `n` is at most 16.
        unsafe { core::ptr::copy_nonoverlapping(from, narrow.as_mut_ptr(), n.min(LANES)) };
        self.read(&narrow.map(from_bf16))
    }

    /// The first `n` lanes, at most 16, as [`narrow`](Self::narrow) rounds them.
    ///
    /// # Safety
    /// `n` numbers are writable at `to`.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, n: usize, v: Self::V) {
        // SAFETY: the caller vouches for `n` numbers.
        unsafe { store_bf16_portably(self, to, n, v) };
    }

    /// The bits of pairs of bf16, from lanes that are such numbers.
    #[inline(always)]
    fn pair_bf16(self, first: Self::V, second: Self::V) -> Self::V {
        let (first, second) = (self.lanes(first), self.lanes(second));
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            lanes[lane] = f32::from_bits(first[lane].to_bits() >> 16 | second[lane].to_bits());
        }
        self.read(&lanes)
    }

    /// For each lane `sum` and the products of the numbers of its pair of bf16, rounded after each or at the end.
    #[inline(always)]
    fn dot(self, a: Self::V, b: Self::V, sum: Self::V) -> Self::V {
        dot_portably(self, a, b, sum)
    }

    /// For each lane, whose bits are an `i32` in `sum` and the result, `sum` and the products of the four `u8` of `a` with the
    /// four `i8` of `b`, exactly; what is beyond 32 bits is lost.
    #[inline(always)]
    fn dot4(self, a: Self::V, b: Self::V, sum: Self::V) -> Self::V {
        let [a, b, sum] = [a, b, sum].map(|v| self.lanes(v).map(f32::to_bits));
        let mut sums = [0.0; LANES];
        for lane in 0..LANES {
            // The left side comes as a number, weights as they lie in memory.
            let (a, b) = (a[lane].to_le_bytes(), b[lane].to_ne_bytes().map(u8::cast_signed));
            let mut all = sum[lane].cast_signed();
            for i in 0..4 {
                all = all.wrapping_add(i32::from(a[i]) * i32::from(b[i]));
            }
            sums[lane] = f32::from_bits(all.cast_unsigned());
        }
        self.read(&sums)
    }

    /// Lanes whose bits are `i32` times a number; what is beyond 32 bits is lost.
    #[inline(always)]
    fn times(self, v: Self::V, by: i32) -> Self::V {
        let product = |lane: f32| f32::from_bits(lane.to_bits().cast_signed().wrapping_mul(by).cast_unsigned());
        self.read(&self.lanes(v).map(product))
    }

    /// Bytes whose low and whose high four bits are each 8 above a signed number: both numbers, as bytes.
    #[inline(always)]
    fn nibbles(self, v: Self::V) -> (Self::V, Self::V) {
        let lanes = self.lanes(v).map(|lane| lane.to_bits().to_ne_bytes());
        let low = lanes.map(|bytes| f32::from_bits(u32::from_ne_bytes(bytes.map(|byte| (byte & 15).wrapping_sub(8)))));
        let high = lanes.map(|bytes| f32::from_bits(u32::from_ne_bytes(bytes.map(|byte| (byte >> 4).wrapping_sub(8)))));
        (self.read(&low), self.read(&high))
    }

    /// The nearest floats of lanes whose bits are `i32`, ties to even.
    #[inline(always)]
    fn floats(self, v: Self::V) -> Self::V {
        self.read(&self.lanes(v).map(|lane| lane.to_bits().cast_signed() as f32))
    }

    /// The first `n` bytes, at most 16, as lanes whose bits are that number; zeros in the others.
    ///
    /// # Safety
    /// `n` bytes are readable at `from`.
    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8, n: usize) -> Self::V {
        // SAFETY: the caller vouches for `n` bytes.
        unsafe { load_bytes_portably(self, from, n) }
    }

    /// Four times 16 numbers as bytes, each 16 at a place of their own. NaN may become any byte.
    ///
    /// # Safety
    /// 16 bytes are writable at each place.
    #[inline(always)]
    unsafe fn store_levels(self, to: [*mut u8; 4], v: [Self::V; 4], levels: ByteLevels) {
        for i in 0..4 {
            // SAFETY: the caller vouches for the bytes.
            unsafe { self.store_bytes(to[i], LANES, levels.round(self, v[i])) };
        }
    }

    /// The first `n` lanes, at most 16, which are floats, as the nearest bytes, ties to even. They are 255 at most; those
    /// below 0 or NaN may become any byte.
    ///
    /// # Safety
    /// `n` bytes are writable at `to`.
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8, n: usize, v: Self::V) {
        let lanes = self.lanes(self.round(v)).map(|lane| lane as u8);
        // SAFETY: the caller vouches for `n` bytes, and `n` is at most 16.
        unsafe { core::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n.min(LANES)) };
    }

    /// The bits `above << 8 | below` of each lane.
    #[inline(always)]
    fn push_byte(self, above: Self::V, below: Self::V) -> Self::V {
        let (above, below) = (self.lanes(above), self.lanes(below));
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            lanes[lane] = f32::from_bits(above[lane].to_bits() << 8 | below[lane].to_bits());
        }
        self.read(&lanes)
    }

    /// The first 16 floats, or fewer and zeros.
    #[inline(always)]
    fn read(self, from: &[f32]) -> Self::V {
        if from.len() >= LANES {
            // SAFETY: there are 16 floats.
            unsafe { self.load(from.as_ptr()) }
        } else {
            // SAFETY: there are as many floats as the slice has.
            unsafe { self.load_part(from.as_ptr(), from.len()) }
        }
    }

    /// Writes the first 16 floats, or fewer if there are fewer.
    #[inline(always)]
    fn write(self, to: &mut [f32], v: Self::V) {
        if to.len() >= LANES {
            // SAFETY: there are 16 floats.
            unsafe { self.store(to.as_mut_ptr(), v) };
        } else {
            // SAFETY: there are as many floats as the slice has.
            unsafe { self.store_part(to.as_mut_ptr(), to.len(), v) };
        }
    }

    #[inline(always)]
    fn lanes(self, v: Self::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: the array has 16 floats.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        lanes
    }

    /// The sum of all lanes: of pairs, then of pairs of these, and so on.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let mut lanes = self.lanes(v);
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
        }
        lanes[0]
    }

    /// The greatest lane; which of the numbers counts where there is NaN is not said.
    #[inline(always)]
    fn greatest(self, v: Self::V) -> f32 {
        let mut lanes = self.lanes(v);
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                let other = lanes[i + width];
                lanes[i] = if other > lanes[i] { other } else { lanes[i] };
            }
        }
        lanes[0]
    }

    /// Writes 8 columns of 8 rows as rows: `to[j * to_stride + i] = from[i * from_stride + j]`.
    ///
    /// # Safety
    /// At `from` are 8 rows of 8 readable floats, at `to` as many writable ones.
    #[inline(always)]
    unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for i in 0..8 {
            for j in 0..8 {
                // SAFETY: the caller vouches for all of it.
                let x = unsafe { *from.wrapping_add(i * from_stride + j) };
                // SAFETY: likewise.
                unsafe { *to.wrapping_add(j * to_stride + i) = x };
            }
        }
    }
}

/// [`Simd::narrow`] for every instruction set.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn narrow_portably<S: Simd>(s: S, from: *const f32, n: usize, to: *mut u16) {
    // SAFETY: the caller vouches for `n` floats.
    let lanes = s.lanes(unsafe { s.load_part(from, n) });
    // SAFETY: the caller vouches for 16 numbers.
    unsafe { to.cast::<[u16; LANES]>().write_unaligned(lanes.map(to_bf16)) };
}

/// [`Simd::store_bf16`] for every instruction set.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn store_bf16_portably<S: Simd>(s: S, to: *mut u16, n: usize, v: S::V) {
    let narrow = s.lanes(v).map(to_bf16);
    // SAFETY: the caller vouches for `n` numbers, and `n` is at most 16.
    unsafe { core::ptr::copy_nonoverlapping(narrow.as_ptr(), to, n.min(LANES)) };
}

/// [`Simd::load_bytes`] for every instruction set.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn load_bytes_portably<S: Simd>(s: S, from: *const u8, n: usize) -> S::V {
    let mut bytes = [0u8; LANES];
    // SAFETY: the caller vouches for `n` bytes, and `n` is at most 16.
    unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), n.min(LANES)) };
    s.read(&bytes.map(|byte| f32::from_bits(u32::from(byte))))
}

/// [`Simd::dot`] for every instruction set.
#[inline(always)]
fn dot_portably<S: Simd>(s: S, a: S::V, b: S::V, sum: S::V) -> S::V {
    let pairs = [s.lanes(a), s.lanes(b)].map(|lanes| lanes.map(f32::to_bits));
    let second = pairs.map(|pairs| pairs.map(|pair| f32::from_bits(pair & 0xffff_0000)));
    let first = pairs.map(|pairs| pairs.map(|pair| f32::from_bits(pair << 16)));
    let sum = s.fma(s.read(&second[0]), s.read(&second[1]), sum);
    s.fma(s.read(&first[0]), s.read(&first[1]), sum)
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
    Sse2(sse2::Sse2),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512<{ avx512::PLAIN }>),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon<{ neon::PLAIN }>),
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128(wasm::Wasm<false>),
    #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
    RelaxedSimd(wasm::Wasm<true>),
}

impl Level {
    pub(crate) fn of(isa: Isa) -> Option<Level> {
        match isa {
            Isa::Scalar => Some(Level::Scalar(scalar::Scalar::new())),
            #[cfg(target_arch = "x86_64")]
            Isa::Sse2 => sse2::Sse2::new().map(Level::Sse2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::Avx2::new().map(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => avx2::Avx2::with_quads().map(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::Avx512::new().map(Level::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => avx512::Avx512::with_quads().map(Level::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => avx512::Avx512::with_dots().map(Level::Avx512),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::Neon::new().map(Level::Neon),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => neon::Neon::with_quads().map(Level::Neon),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm => neon::Neon::with_mixed_quads().map(Level::Neon),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => Some(Level::Simd128(wasm::Wasm::<false>::new())),
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Isa::RelaxedSimd => Some(Level::RelaxedSimd(wasm::Wasm::<true>::new())),
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
            Level::Sse2(_) => Isa::Sse2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(simd) if simd.has_quads() => Isa::AvxVnni,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(simd) if simd.dots().is_some() => Isa::Avx512Bf16,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(simd) if simd.has_quads() => Isa::Avx512Vnni,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => Isa::Avx512,
            #[cfg(target_arch = "aarch64")]
            Level::Neon(simd) if simd.has_mixed_quads() => Isa::NeonI8mm,
            #[cfg(target_arch = "aarch64")]
            Level::Neon(simd) if simd.has_quads() => Isa::NeonDot,
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => Isa::Neon,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128(_) => Isa::Simd128,
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Level::RelaxedSimd(_) => Isa::RelaxedSimd,
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
            Level::Sse2(simd) => simd.vectorize(job),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(simd) => simd.vectorize(job),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(simd) => simd.vectorize(job),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(simd) => simd.vectorize(job),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128(simd) => simd.vectorize(job),
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Level::RelaxedSimd(simd) => simd.vectorize(job),
        }
    }

    /// The same with [`dot4`](Simd::dot4) as an instruction, if the processor has it.
    #[inline]
    pub(crate) fn run_quads<J: Job>(self, job: J) -> J::Out {
        struct WithQuads<J>(J);
        impl<J: Job> Job for WithQuads<J> {
            type Out = J::Out;
            #[inline(always)]
            fn run<S: Simd>(self, s: S) -> J::Out {
                s.vectorize_quads(self.0)
            }
        }
        self.run(WithQuads(job))
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
