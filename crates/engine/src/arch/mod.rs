//! SIMD abstraction: one trait for all instruction sets, and the runtime dispatch that enters code compiled for one.
//!
//! A vector always has 16 f32 lanes, the width of a panel of packed weights: one register with AVX-512, two with AVX2,
//! four with NEON, SSE2 or WebAssembly. Kernels are written once, generic over [`Simd`], and instantiated per
//! instruction set by [`Simd::vectorize`], which calls them from a function with `#[target_feature]`. Everything below
//! that call must be `#[inline(always)]`, down to the methods of the trait: only code inlined into that function is
//! compiled with the feature.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod depthwise_rows;
mod dispatch;
mod group_rows;
mod interleaved;
mod isa;
pub(crate) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_depthwise;
#[cfg(target_arch = "aarch64")]
mod neon_groupwise;
#[cfg(target_arch = "aarch64")]
mod neon_instructions;
#[cfg(target_arch = "aarch64")]
mod neon_int8;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod sse2;
mod tiles;
mod typed;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", all(target_arch = "wasm32", target_feature = "simd128")))]
mod x128;

use crate::float16::{from_bf16, from_f16, to_bf16};
pub(crate) use depthwise_rows::{DepthwiseEpilogue, DepthwiseMemory, DepthwiseRows, DepthwiseShape};
pub(crate) use dispatch::Dispatch;
pub(crate) use group_rows::{GroupMemory, PackedGroup};
pub(crate) use interleaved::{Interleaved, VectorFn};
pub use isa::Isa;
pub(crate) use scalar::Scalar;
#[cfg(feature = "wide-scalar")]
pub(crate) use scalar::WideScalar;
pub(crate) use tiles::{
    INT8_DEPTHWISE_PIXELS, Int8DepthwiseOperands, Int8Operands, Int8PanelSums, Int8Taps, UnpackedGroup,
};
pub(crate) use typed::{Bf16Pairs, I4Sums, I8Quads, I16Pairs, I32, U8Quads};

/// Number of f32 lanes of a vector, and of columns of a panel of packed weights.
pub(crate) const LANES: usize = 16;

/// Storage for one vector, aligned to a cache line so that a load never straddles two.
#[derive(Clone, Copy)]
#[repr(align(64))]
#[expect(dead_code, reason = "it is read and written through pointers")]
pub(crate) struct Aligned([f32; LANES]);

/// Bit pattern of sqrt(1/2), and the mask of the mantissa bits of an f32.
const SQRT_HALF: u32 = core::f32::consts::FRAC_1_SQRT_2.to_bits();
const MANTISSA: u32 = (1 << 23) - 1;

/// Output range of a requantization to u8: `clamp(round_ties_even(x) + zero, min, max)`.
#[derive(Clone, Copy)]
pub(crate) struct U8Clamp {
    pub zero: u8,
    pub min: u8,
    pub max: u8,
}

impl U8Clamp {
    /// Rounds, adds the zero point and clamps, to integral f32 values.
    #[inline(always)]
    pub fn round<S: Simd>(self, s: S, x: S::V) -> S::V {
        let x = s.add(s.round(x), s.splat(f32::from(self.zero)));
        s.min(s.splat(f32::from(self.max)), s.max(s.splat(f32::from(self.min)), x))
    }
}

/// Floating-point arithmetic on one vector, or on several ([`Interleaved`]).
///
/// Rounds to nearest, ties to even. Operations follow IEEE 754 unless their documentation says otherwise.
pub(crate) trait Arithmetic: Copy {
    /// Sixteen f32 lanes.
    type V: Copy;

    fn splat(self, x: f32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the instruction set has a fused multiply-add.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Maximum; returns `v` if both compare equal (including zeros of opposite sign) or if `v` is NaN. `bound` must not
    /// be NaN.
    fn max(self, bound: Self::V, v: Self::V) -> Self::V;
    /// Minimum; returns `v` if both compare equal (including zeros of opposite sign) or if `v` is NaN. `bound` must not
    /// be NaN.
    fn min(self, bound: Self::V, v: Self::V) -> Self::V;
    /// Clamps to `min..=max`, which are not NaN; NaN stays NaN. A zero that equals a bound may get the bound's sign.
    #[inline(always)]
    fn clamp(self, v: Self::V, min: Self::V, max: Self::V) -> Self::V {
        self.min(max, self.max(min, v))
    }

    fn abs(self, v: Self::V) -> Self::V;
    /// Magnitude of `v` with the sign of `sign`.
    fn copysign(self, v: Self::V, sign: Self::V) -> Self::V;
    /// `yes` where `a < b`, else `no`; comparisons with NaN are false.
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// `yes` where `a == b`, else `no`; comparisons with NaN are false.
    fn select_equal(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    fn sqrt(self, v: Self::V) -> Self::V;
    fn floor(self, v: Self::V) -> Self::V;
    fn ceil(self, v: Self::V) -> Self::V;
    fn trunc(self, v: Self::V) -> Self::V;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, v: Self::V) -> Self::V;
    /// `v * 2^n` for integral `n`, if `v` and the result are normal numbers.
    fn ldexp(self, v: Self::V, n: Self::V) -> Self::V;
    /// `v * 2^n` for `v` in [1/2, 2] and integral `n` in [-200, 0]; subnormal results may be flushed to 0.
    #[inline(always)]
    fn ldexp_down(self, v: Self::V, n: Self::V) -> Self::V {
        let min_exponent = self.splat(-126.0);
        self.select_less(n, min_exponent, self.splat(0.0), self.ldexp(v, self.max(min_exponent, n)))
    }

    /// Splits a positive normal number into `(m, n)` with `v = m * 2^n`, `n` integral and `m` in [sqrt(1/2), sqrt(2)).
    fn split(self, v: Self::V) -> (Self::V, Self::V);

    /// Maximum that propagates NaN from either operand.
    #[inline(always)]
    fn maximum(self, a: Self::V, b: Self::V) -> Self::V {
        self.select_equal(a, a, self.max(a, b), a)
    }

    /// Minimum that propagates NaN from either operand.
    #[inline(always)]
    fn minimum(self, a: Self::V, b: Self::V) -> Self::V {
        self.select_equal(a, a, self.min(a, b), a)
    }
}

/// An instruction set, represented by a token that can only be constructed where the processor supports it.
pub(crate) trait Simd: Arithmetic + Send + Sync + 'static {
    /// Rows (MR) of the largest register tile of the f32 GEMM.
    const MR: usize;
    /// Panels of 16 columns of the largest register tile (NR / 16): 1 or 2.
    const NR_PANELS: usize;
    /// Output pixels of the largest register tile of the depthwise convolution, from 4 to 6.
    const DEPTHWISE_PIXELS: usize;
    /// Number of 16-lane vectors that fit in the register file.
    const VECTOR_REGISTERS: usize;

    /// Rows (MR) of the largest register tile of the int8 GEMM.
    const INT8_MR: usize;

    /// Number that [`multiply_int8`](Self::multiply_int8) subtracts from the elements of the left side: 128 where bytes are
    /// multiplied as signed ones. Initial accumulators then contain the number times the column's sum of weights.
    const INT8_LEFT_OFFSET: i32 = 0;

    /// True if the accumulators of an int8 tile that are only scaled are stored from registers.
    const FINISHES_INT8_IN_REGISTERS: bool = Self::VECTOR_REGISTERS >= 32;

    /// True if [`depthwise_int8`](Self::depthwise_int8) exists.
    const HAS_INT8_DEPTHWISE: bool = false;

    /// True if [`store_lookup`](Self::store_lookup) exists, and is faster than an activation.
    const LOOKS_UP_ACTIVATIONS: bool = false;

    /// True if many rows are multiplied faster by a panel that [`pair_int8_columns`](Self::pair_int8_columns) wrote.
    const PAIRS_INT8_COLUMNS: bool = false;

    /// True if [`dot_group`](Self::dot_group) exists.
    const MULTIPLIES_GROUPS: bool = false;

    /// Rows of the largest tile of [`multiply_groups`](Self::multiply_groups); 0 if it does not exist.
    const GROUP_ROWS: usize = 0;

    /// True if [`store_u8x4`](Self::store_u8x4) is faster than four calls of [`store_u8`](Self::store_u8).
    const PACKS_U8_TOGETHER: bool = true;

    /// Vectors that [`Interleaved`] processes together to hide latency: 1, 2 or 4.
    const INTERLEAVE: usize = 1;

    /// True if [`dot_i16`](Self::dot_i16) does more multiply-adds in a given time than [`fma`](Arithmetic::fma).
    const HAS_I16_DOT: bool = false;

    /// True if [`nibbles_of_rows`](Self::nibbles_of_rows) and [`dot_u8i8`](Self::dot_u8i8) are faster than 16-bit dot products of
    /// nibbles that are unpacked.
    const MULTIPLIES_NIBBLES: bool = false;

    /// Token type that [`with_bf16`](Self::with_bf16) returns; `Self` where bf16 is not supported.
    type WithBf16: Simd;

    /// True if [`with_bf16`](Self::with_bf16) can return a token.
    const MAY_HAVE_BF16: bool = false;

    /// True for the token whose code may use bf16 dot products, the one that [`with_bf16`](Self::with_bf16) returns.
    const HAS_BF16: bool = false;

    /// Runs a kernel in a function compiled for this instruction set.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out;

    /// Like [`vectorize`](Self::vectorize), with [`dot_u8i8`](Self::dot_u8i8) as a native instruction if the processor
    /// has one.
    #[inline(always)]
    fn vectorize_int8<K: Kernel>(self, kernel: K) -> K::Out {
        self.vectorize(kernel)
    }

    /// True if the processor has a native instruction for [`dot_u8i8`](Self::dot_u8i8).
    #[inline(always)]
    fn has_int8_dot(self) -> bool {
        false
    }

    /// Loads 16 lanes.
    ///
    /// # Safety
    /// 16 floats are readable at `from`.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// Stores 16 lanes.
    ///
    /// # Safety
    /// 16 floats are writable at `to`.
    unsafe fn store(self, to: *mut f32, v: Self::V);

    /// Prefetches a cache line, where the instruction set has such an instruction. Accepts any address.
    #[inline(always)]
    fn prefetch(self, _: *const f32) {}

    /// Loads the first `n` lanes (at most 16) and zeroes the others.
    ///
    /// # Safety
    /// `n` floats are readable at `from`.
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, n: usize) -> Self::V {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: the caller guarantees `n` floats, and `n` is at most 16.
        unsafe { core::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), n.min(LANES)) };
        // SAFETY: the array has 16 floats.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// Stores the first `n` lanes (at most 16).
    ///
    /// # Safety
    /// `n` floats are writable at `to`.
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, n: usize, v: Self::V) {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: the array has 16 floats.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        // SAFETY: the caller guarantees `n` floats, and `n` is at most 16.
        unsafe { core::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n.min(LANES)) };
    }

    /// Sets all lanes to an i32.
    #[inline(always)]
    fn splat_i32(self, x: i32) -> I32<Self> {
        I32(self.splat(f32::from_bits(x.cast_unsigned())))
    }

    /// Loads the first `n` i32 lanes (at most 16) and zeroes the others.
    ///
    /// # Safety
    /// `n` elements are readable at `from`.
    #[inline(always)]
    unsafe fn load_partial_i32(self, from: *const i32, n: usize) -> I32<Self> {
        // SAFETY: the caller guarantees `n` elements, and an f32 is as large.
        I32(unsafe { self.load_partial(from.cast(), n) })
    }

    /// Loads 16 i32 lanes.
    ///
    /// # Safety
    /// 16 elements are readable at `from`.
    #[inline(always)]
    unsafe fn load_i32(self, from: *const i32) -> I32<Self> {
        // SAFETY: the caller guarantees 16 elements.
        I32(unsafe { self.load(from.cast()) })
    }

    /// Stores 16 i32 lanes.
    ///
    /// # Safety
    /// 16 elements are writable at `to`.
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut i32, v: I32<Self>) {
        // SAFETY: the caller guarantees 16 elements.
        unsafe { self.store(to.cast(), v.0) };
    }

    /// Sets all lanes to four u8, the bytes of a little-endian number.
    #[inline(always)]
    fn splat_u8_quads(self, quad: u32) -> U8Quads<Self> {
        U8Quads(self.splat(f32::from_bits(quad)))
    }

    /// Loads 16 quads of u8.
    ///
    /// # Safety
    /// 64 bytes are readable at `from`.
    #[inline(always)]
    unsafe fn load_u8_quads(self, from: *const u8) -> U8Quads<Self> {
        // SAFETY: the caller guarantees 64 bytes.
        U8Quads(unsafe { self.load(from.cast()) })
    }

    /// Stores 16 quads of u8.
    ///
    /// # Safety
    /// 64 bytes are writable at `to`.
    #[inline(always)]
    unsafe fn store_u8_quads(self, to: *mut u8, v: U8Quads<Self>) {
        // SAFETY: the caller guarantees 64 bytes.
        unsafe { self.store(to.cast(), v.0) };
    }

    /// Sets all lanes to four i8, the bytes of a little-endian number.
    #[inline(always)]
    fn splat_i8_quads(self, quad: u32) -> I8Quads<Self> {
        I8Quads(self.splat(f32::from_bits(quad)))
    }

    /// Loads 16 quads of i8.
    ///
    /// # Safety
    /// 64 bytes are readable at `from`.
    #[inline(always)]
    unsafe fn load_i8_quads(self, from: *const i8) -> I8Quads<Self> {
        // SAFETY: the caller guarantees 64 bytes.
        I8Quads(unsafe { self.load(from.cast()) })
    }

    /// Sets all lanes to a pair of bf16, the first in the low bits.
    #[inline(always)]
    fn splat_bf16_pairs(self, pair: u32) -> Bf16Pairs<Self> {
        Bf16Pairs(self.splat(f32::from_bits(pair)))
    }

    /// Loads 16 pairs of bf16.
    ///
    /// # Safety
    /// 32 elements are readable at `from`.
    #[inline(always)]
    unsafe fn load_bf16_pairs(self, from: *const u16) -> Bf16Pairs<Self> {
        // SAFETY: the caller guarantees 64 bytes.
        Bf16Pairs(unsafe { self.load(from.cast()) })
    }

    /// Stores 16 pairs of bf16.
    ///
    /// # Safety
    /// 32 elements are writable at `to`.
    #[inline(always)]
    unsafe fn store_bf16_pairs(self, to: *mut u16, v: Bf16Pairs<Self>) {
        // SAFETY: the caller guarantees 64 bytes.
        unsafe { self.store(to.cast(), v.0) };
    }

    /// Loads 16 f16 elements and widens them, exactly.
    ///
    /// # Safety
    /// 16 elements are readable at `from`.
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::V {
        // SAFETY: the caller guarantees 16 elements.
        let narrow = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        let mut lanes = [0.0f32; LANES];
        for lane in 0..LANES {
            lanes[lane] = from_f16(narrow[lane]);
        }
        // SAFETY: the array has 16 floats.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// Loads 16 pairs of bf16 and widens them, exactly: the first elements of the pairs, and the second ones.
    ///
    /// # Safety
    /// 16 pairs are readable at `from`.
    #[inline(always)]
    unsafe fn widen_bf16_pairs(self, from: *const u16) -> [Self::V; 2] {
        // SAFETY: the caller guarantees 16 pairs.
        let pairs = unsafe { from.cast::<[[u16; 2]; LANES]>().read_unaligned() };
        let mut lanes = [[0.0f32; LANES]; 2];
        for (lane, pair) in pairs.into_iter().enumerate() {
            lanes[0][lane] = from_bf16(pair[0]);
            lanes[1][lane] = from_bf16(pair[1]);
        }
        // SAFETY: each array has 16 floats.
        [unsafe { self.load(lanes[0].as_ptr()) }, unsafe { self.load(lanes[1].as_ptr()) }]
    }

    /// Returns the token whose code uses native bf16 instructions ([`narrow_to_bf16`](Self::narrow_to_bf16) and
    /// [`dot_bf16`](Self::dot_bf16)), if the processor has them. Can be `Some` only with
    /// [`MAY_HAVE_BF16`](Self::MAY_HAVE_BF16).
    #[inline(always)]
    fn with_bf16(self) -> Option<Self::WithBf16> {
        None
    }

    /// Rounds the first `n` floats (at most 16) to bf16, ties to even, and stores 16 elements, the others as zeros.
    /// Subnormals may be flushed to zero.
    ///
    /// # Safety
    /// `n` floats are readable at `from`, and 16 elements writable at `to`.
    #[inline(always)]
    unsafe fn narrow_to_bf16(self, from: *const f32, n: usize, to: *mut u16) {
        // SAFETY: the caller guarantees both.
        unsafe { narrow_to_bf16_portable(self, from, n, to) };
    }

    /// Loads the first `n` bf16 elements (at most 16) and widens them, exactly; zeroes the other lanes.
    ///
    /// # Safety
    /// `n` elements are readable at `from`.
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16, n: usize) -> Self::V {
        if n == LANES {
            // SAFETY: the caller guarantees 16 elements.
            let narrow = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
            return self.load_slice(&narrow.map(from_bf16));
        }
        let mut narrow = [0; LANES];
        // SAFETY: the caller guarantees `n` elements, and `n` is at most 16.
        unsafe { core::ptr::copy_nonoverlapping(from, narrow.as_mut_ptr(), n.min(LANES)) };
        self.load_slice(&narrow.map(from_bf16))
    }

    /// Rounds the first `n` lanes (at most 16) as [`narrow_to_bf16`](Self::narrow_to_bf16) does and stores them.
    ///
    /// # Safety
    /// `n` elements are writable at `to`.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, n: usize, v: Self::V) {
        // SAFETY: the caller guarantees `n` elements.
        unsafe { store_bf16_portable(self, to, n, v) };
    }

    /// Packs two vectors whose lanes are bf16 values into pairs of bf16.
    #[inline(always)]
    fn pack_bf16_pairs(self, first: Self::V, second: Self::V) -> Bf16Pairs<Self> {
        let (first, second) = (self.to_array(first), self.to_array(second));
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            lanes[lane] = f32::from_bits(first[lane].to_bits() >> 16 | second[lane].to_bits());
        }
        Bf16Pairs(self.load_slice(&lanes))
    }

    /// `sum + a.0 * b.0 + a.1 * b.1` for the pair of bf16 in each lane; intermediate rounding depends on the
    /// instruction set.
    #[inline(always)]
    fn dot_bf16(self, a: Bf16Pairs<Self>, b: Bf16Pairs<Self>, sum: Self::V) -> Self::V {
        dot_bf16_portable(self, a, b, sum)
    }

    /// `sum + dot(a, b)` for the four u8 of `a` and the four i8 of `b` in each lane, in i32; wraps on overflow.
    #[inline(always)]
    fn dot_u8i8(self, a: U8Quads<Self>, b: I8Quads<Self>, sum: I32<Self>) -> I32<Self> {
        let [a, b, sum] = [a.0, b.0, sum.0].map(|v| self.to_array(v).map(f32::to_bits));
        let mut sums = [0.0; LANES];
        for lane in 0..LANES {
            // The left side was read as a little-endian number, weights as bytes in memory order.
            let (a, b) = (a[lane].to_le_bytes(), b[lane].to_ne_bytes().map(u8::cast_signed));
            let mut all = sum[lane].cast_signed();
            for i in 0..4 {
                all = all.wrapping_add(i32::from(a[i]) * i32::from(b[i]));
            }
            sums[lane] = f32::from_bits(all.cast_unsigned());
        }
        I32(self.load_slice(&sums))
    }

    /// Accumulates the products of a register tile of the int8 GEMM, less those of
    /// [`INT8_LEFT_OFFSET`](Self::INT8_LEFT_OFFSET).
    ///
    /// # Safety
    /// The pointers of `N` rows are readable for each tap, each to `4 * quads` bytes. Each of `P` panels has 64 weights for
    /// each step.
    #[inline(always)]
    unsafe fn multiply_int8<const N: usize, const P: usize>(
        self,
        tile: &Int8Operands,
        accumulators: &mut [[I32<Self>; P]; N],
    ) {
        // SAFETY: the caller guarantees it.
        unsafe { tile.multiply(self, accumulators) };
    }

    /// Writes the first panel of a tile for matrix multiplications of two rows, eight elements of K and two columns: for each
    /// eight elements of a tap, of which the last may be zeros, `[8][2][8]` weights. Only with
    /// [`PAIRS_INT8_COLUMNS`](Self::PAIRS_INT8_COLUMNS).
    ///
    /// # Safety
    /// The panel has 64 weights for each step; [`paired_bytes`](Int8Operands::paired_bytes) bytes are writable.
    #[inline(always)]
    unsafe fn pair_int8_columns(self, _: &Int8Operands, _to: *mut i8) {}

    /// Returns the column sums of a panel of `quads` steps of four k.
    ///
    /// # Safety
    /// The panel has 64 weights for each step.
    #[inline(always)]
    unsafe fn int8_panel_sums(self, weights: *const i8, quads: usize) -> Int8PanelSums<Self> {
        let (ones, mut sums) = (self.splat_u8_quads(0x0101_0101), self.splat_i32(0));
        for quad in 0..quads {
            // SAFETY: the caller guarantees the weights.
            sums = self.dot_u8i8(ones, unsafe { self.load_i8_quads(weights.wrapping_add(quad * 4 * LANES)) }, sums);
        }
        Int8PanelSums { sums, may_have_minimum: true }
    }

    /// Arranges the packed weights of 16 channels of an int8 depthwise kernel. `weights` are the first of each four channels;
    /// those of the next tap are 64 bytes later, `[K][ceil(K / 4)]`. Returns what is added to the initial accumulators; `None` if
    /// [`depthwise_int8`](Self::depthwise_int8) does not multiply by such weights. `K` is 3 or 5, and `STEP` 1 or 2. Only with
    /// [`HAS_INT8_DEPTHWISE`](Self::HAS_INT8_DEPTHWISE).
    ///
    /// # Safety
    /// The weights are readable.
    #[inline(always)]
    unsafe fn int8_taps<const K: usize, const STEP: usize>(
        self,
        _weights: [*const i8; 4],
        _: &mut Int8Taps,
    ) -> Option<I32<Self>> {
        None
    }

    /// Accumulates the products of a tile of an int8 depthwise convolution whose pixels are `STEP` columns apart. Only with
    /// [`HAS_INT8_DEPTHWISE`](Self::HAS_INT8_DEPTHWISE).
    ///
    /// # Safety
    /// 16 bytes are readable in each row and each column, and all rows have the same stride. With `IS_EDGE`, this holds for
    /// columns inside the input, each row has its own stride, and 16 bytes of padding are readable.
    #[inline(always)]
    unsafe fn depthwise_int8<const K: usize, const STEP: usize, const IS_EDGE: bool>(
        self,
        _: &Int8DepthwiseOperands<'_, K>,
        _: &mut [[I32<Self>; 1]; INT8_DEPTHWISE_PIXELS],
    ) {
    }

    /// Accumulates the products of the first steps of `R` rows and `P` panels, those that the instruction set multiplies
    /// several at a time; returns their number. Each sum is accumulated in the order of K, by [`fma`](Arithmetic::fma).
    ///
    /// # Safety
    /// `steps` floats are readable at each pointer of `left`, and 16 for each step in each panel.
    #[inline(always)]
    unsafe fn multiply_f32<const R: usize, const P: usize>(
        self,
        _left: &[*const f32; R],
        _steps: usize,
        _panel: *const f32,
        _panel_stride: usize,
        _sums: &mut [[Self::V; P]; R],
    ) -> usize {
        0
    }

    /// Sums of [`dot_u8i4`](Self::dot_u8i4) before the first product.
    #[inline(always)]
    fn zero_i4_sums(self) -> I4Sums<Self> {
        I4Sums(self.splat(0.0))
    }

    /// `sum + dot(a, b)` for the four u8 of `a` and the four integers in -8..=7 of `b` in each lane. Exact for up to eight
    /// dot products: `8 * 2 * 255 * 8` fits in an i16.
    #[inline(always)]
    fn dot_u8i4(self, a: U8Quads<Self>, b: I8Quads<Self>, sum: I4Sums<Self>) -> I4Sums<Self> {
        I4Sums(self.dot_u8i8(a, b, I32(sum.0)).0)
    }

    /// Returns the sums that [`dot_u8i4`](Self::dot_u8i4) accumulated.
    #[inline(always)]
    fn i4_sums_to_i32(self, sums: I4Sums<Self>) -> I32<Self> {
        I32(sums.0)
    }

    /// `sum + a.0 * b.0 + a.1 * b.1` for the pair of i16 in each lane, in i32; wraps on overflow.
    #[inline(always)]
    fn dot_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>, sum: I32<Self>) -> I32<Self> {
        let [a, b, sum] = [a.0, b.0, sum.0].map(|v| self.to_array(v).map(|lane| lane.to_bits().cast_signed()));
        let mut sums = [0.0; LANES];
        for lane in 0..LANES {
            let low = i32::from(a[lane] as i16) * i32::from(b[lane] as i16);
            let high = (a[lane] >> 16) * (b[lane] >> 16);
            sums[lane] = f32::from_bits(sum[lane].wrapping_add(low).wrapping_add(high).cast_unsigned());
        }
        I32(self.load_slice(&sums))
    }

    /// Two neighbouring fields of `WIDTH` bits of lanes that hold bytes, from bit `SHIFT` on, as pairs.
    #[inline(always)]
    fn bit_pairs<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> I16Pairs<Self> {
        let field = (1 << WIDTH) - 1;
        let pair = |byte: u32| byte >> SHIFT & field | (byte >> (SHIFT + WIDTH) & field) << 16;
        I16Pairs(self.load_slice(&self.to_array(v.0).map(|lane| f32::from_bits(pair(lane.to_bits())))))
    }

    /// Subtracts i16; wraps on overflow.
    #[inline(always)]
    fn sub_i16(self, a: I16Pairs<Self>, b: I16Pairs<Self>) -> I16Pairs<Self> {
        let (a, b) = (self.to_array(a.0).map(f32::to_bits), self.to_array(b.0).map(f32::to_bits));
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            let high = (a[lane] >> 16).wrapping_sub(b[lane] >> 16) << 16;
            lanes[lane] = f32::from_bits(a[lane].wrapping_sub(b[lane]) & 0xffff | high);
        }
        I16Pairs(self.load_slice(&lanes))
    }

    /// The four bits from bit `SHIFT` on of each i16, less `zeros` in 0..=15, as bf16.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn nibbles_to_bf16<const SHIFT: u32>(self, v: I16Pairs<Self>, zeros: I16Pairs<Self>) -> Bf16Pairs<Self> {
        let (v, zeros) = (self.to_array(v.0).map(f32::to_bits), self.to_array(zeros.0).map(f32::to_bits));
        let number = |v: u32, zero: u32| ((v >> SHIFT & 15) as f32 - (zero & 15) as f32).to_bits() >> 16;
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            let [low, high] = [0, 16].map(|half| number(v[lane] >> half, zeros[lane] >> half));
            lanes[lane] = f32::from_bits(low | high << 16);
        }
        Bf16Pairs(self.load_slice(&lanes))
    }

    /// Subtracts i8; wraps on overflow.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn sub_i8(self, a: I8Quads<Self>, b: I8Quads<Self>) -> I8Quads<Self> {
        let (a, b) = (self.to_array(a.0), self.to_array(b.0));
        let bytes = |lane: usize| [a, b].map(|lanes| lanes[lane].to_bits().to_ne_bytes());
        let difference =
            |[a, b]: [[u8; 4]; 2]| u32::from_ne_bytes(core::array::from_fn(|at| a[at].wrapping_sub(b[at])));
        I8Quads(self.load_slice(&core::array::from_fn::<_, LANES, _>(|lane| f32::from_bits(difference(bytes(lane))))))
    }

    /// `above << BITS | below` in each lane.
    #[inline(always)]
    fn join_bits<const BITS: i32>(self, above: I32<Self>, below: I32<Self>) -> I32<Self> {
        let (above, below) = (self.to_array(above.0), self.to_array(below.0));
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            lanes[lane] = f32::from_bits(above[lane].to_bits() << BITS | below[lane].to_bits());
        }
        I32(self.load_slice(&lanes))
    }

    /// Adds i32 lanes; wraps on overflow.
    #[inline(always)]
    fn add_i32(self, a: I32<Self>, b: I32<Self>) -> I32<Self> {
        let (a, b) = (self.to_array(a.0), self.to_array(b.0));
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            lanes[lane] = f32::from_bits(a[lane].to_bits().wrapping_add(b[lane].to_bits()));
        }
        I32(self.load_slice(&lanes))
    }

    /// Multiplies i32 lanes by a scalar; wraps on overflow.
    #[inline(always)]
    fn mul_i32(self, v: I32<Self>, by: i32) -> I32<Self> {
        let product = |lane: f32| f32::from_bits(lane.to_bits().cast_signed().wrapping_mul(by).cast_unsigned());
        I32(self.load_slice(&self.to_array(v.0).map(product)))
    }

    /// The nibbles of four rows of 16 bytes, as quads of the 16 columns: the low nibbles, and the high ones.
    #[inline(always)]
    fn nibbles_of_rows(self, rows: U8Quads<Self>) -> (U8Quads<Self>, U8Quads<Self>) {
        let rows = self.to_array(rows.0).map(|lane| lane.to_bits().to_ne_bytes());
        let nibbles = |shift: u32| {
            let quad = |column: usize| {
                u32::from_le_bytes([0, 4, 8, 12].map(|row| rows[row + column / 4][column % 4] >> shift & 15))
            };
            U8Quads(self.load_slice(&core::array::from_fn::<_, LANES, _>(|column| f32::from_bits(quad(column)))))
        };
        (nibbles(0), nibbles(4))
    }

    /// Unpacks bytes that hold two unsigned nibbles with bias 8 into signed bytes: the low nibbles, and the high ones.
    #[inline(always)]
    fn unpack_nibbles(self, v: U8Quads<Self>) -> (I8Quads<Self>, I8Quads<Self>) {
        let lanes = self.to_array(v.0).map(|lane| lane.to_bits().to_ne_bytes());
        let low = lanes.map(|bytes| f32::from_bits(u32::from_ne_bytes(bytes.map(|byte| (byte & 15).wrapping_sub(8)))));
        let high = lanes.map(|bytes| f32::from_bits(u32::from_ne_bytes(bytes.map(|byte| (byte >> 4).wrapping_sub(8)))));
        (I8Quads(self.load_slice(&low)), I8Quads(self.load_slice(&high)))
    }

    /// Converts i32 lanes to f32, rounding to nearest, ties to even.
    #[inline(always)]
    fn i32_to_f32(self, v: I32<Self>) -> Self::V {
        self.load_slice(&self.to_array(v.0).map(|lane| lane.to_bits().cast_signed() as f32))
    }

    /// Converts `WIDTH` bits (at most 4) of lanes that hold bytes, from bit `SHIFT` on, to f32.
    #[inline(always)]
    fn bits_to_f32<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> Self::V {
        let byte = self.i32_to_f32(v);
        let above = |bits: i32| self.floor(self.mul(byte, self.splat(1.0 / (1 << bits) as f32)));
        let low = if SHIFT == 0 { byte } else { above(SHIFT) };
        if SHIFT + WIDTH == 8 {
            return low;
        }
        self.fma(above(SHIFT + WIDTH), self.splat(-((1 << WIDTH) as f32)), low)
    }

    /// Loads the first `n` bytes (at most 16), zero-extended to i32 lanes; zeroes the other lanes.
    ///
    /// # Safety
    /// `n` bytes are readable at `from`.
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, n: usize) -> I32<Self> {
        // SAFETY: the caller guarantees `n` bytes.
        unsafe { load_u8_portable(self, from, n) }
    }

    /// Widens the 16 nibbles of 8 bytes to i32, the low nibble of a byte first.
    #[inline(always)]
    fn widen_nibbles(self, pairs: [u8; LANES / 2]) -> I32<Self> {
        let spread = |four: u64| {
            let bits = (four | four << 16) & 0x0000_ffff_0000_ffff;
            let bits = (bits | bits << 8) & 0x00ff_00ff_00ff_00ff;
            (bits | bits << 4) & 0x0f0f_0f0f_0f0f_0f0f
        };
        let pairs = u64::from_le_bytes(pairs);
        let bytes = u128::from(spread(pairs & 0xffff_ffff)) | u128::from(spread(pairs >> 32)) << 64;
        // SAFETY: there are 16 bytes.
        unsafe { self.load_u8(bytes.to_le_bytes().as_ptr(), LANES) }
    }

    /// Rounds and clamps four vectors to u8 and stores each as 16 bytes. NaN becomes an unspecified byte.
    ///
    /// # Safety
    /// 16 bytes are writable at each address.
    #[inline(always)]
    unsafe fn store_u8x4(self, to: [*mut u8; 4], v: [Self::V; 4], clamp: U8Clamp) {
        for i in 0..4 {
            // SAFETY: the caller guarantees the bytes.
            unsafe { self.store_u8(to[i], LANES, v[i], clamp) };
        }
    }

    /// Rounds and clamps the first `n` lanes (at most 16) to u8 and stores them. NaN becomes an unspecified byte.
    ///
    /// # Safety
    /// `n` bytes are writable at `to`.
    #[inline(always)]
    unsafe fn store_u8(self, to: *mut u8, n: usize, v: Self::V, clamp: U8Clamp) {
        // SAFETY: the caller guarantees the bytes.
        unsafe { self.store_as_u8(to, n, clamp.round(self, v)) };
    }

    /// Stores `table[x]` for the bytes `x` that [`store_u8`](Self::store_u8) would store at each address; the table has 256
    /// entries. Only with [`LOOKS_UP_ACTIVATIONS`](Self::LOOKS_UP_ACTIVATIONS).
    ///
    /// # Safety
    /// `n` bytes are writable at each address.
    #[inline(always)]
    unsafe fn store_lookup<const R: usize>(
        self,
        _to: [*mut u8; R],
        _n: usize,
        _: [Self::V; R],
        _: U8Clamp,
        _table: &[u8],
    ) {
    }

    /// Rounds the first `n` f32 lanes (at most 16) to u8, ties to even, and stores them. Lanes must be at most 255;
    /// negative lanes and NaN become unspecified bytes.
    ///
    /// # Safety
    /// `n` bytes are writable at `to`.
    #[inline(always)]
    unsafe fn store_as_u8(self, to: *mut u8, n: usize, v: Self::V) {
        let lanes = self.to_array(self.round(v)).map(|lane| lane as u8);
        // SAFETY: the caller guarantees `n` bytes, and `n` is at most 16.
        unsafe { core::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n.min(LANES)) };
    }

    /// Inserts the byte in each lane of `below` before the first three of the quad in `above`: `above << 8 | below`.
    #[inline(always)]
    fn push_u8(self, above: U8Quads<Self>, below: I32<Self>) -> U8Quads<Self> {
        let (above, below) = (self.to_array(above.0), self.to_array(below.0));
        let mut lanes = [0.0; LANES];
        for lane in 0..LANES {
            lanes[lane] = f32::from_bits(above[lane].to_bits() << 8 | below[lane].to_bits());
        }
        U8Quads(self.load_slice(&lanes))
    }

    /// Returns the dot products of 32 elements of `R` rows, which are `stride` bytes apart, and a group of 16 columns of a
    /// [`GroupwiseMatrix`](crate::pack::GroupwiseMatrix). Only with [`MULTIPLIES_GROUPS`](Self::MULTIPLIES_GROUPS).
    ///
    /// # Safety
    /// 32 bytes are readable in each row, and 256 bytes of 4-bit weights or 512 of 8-bit ones.
    #[inline(always)]
    unsafe fn dot_group<const R: usize>(
        self,
        _left: *const u8,
        _stride: usize,
        _weights: *const u8,
        _is_four_bits: bool,
    ) -> [I32<Self>; R] {
        [self.splat_i32(0); R]
    }

    /// Unpacks a group of 16 columns of a [`GroupwiseMatrix`](crate::pack::GroupwiseMatrix). `zeros` are subtracted from 4-bit
    /// weights, which have the same bias. Only with [`GROUP_ROWS`](Self::GROUP_ROWS).
    ///
    /// # Safety
    /// 256 bytes of 4-bit weights are readable, or 512 of 8-bit ones.
    #[inline(always)]
    unsafe fn unpack_group(
        self,
        _weights: *const u8,
        _is_four_bits: bool,
        _zeros: [u8; LANES],
        _scales: Self::V,
        _: &mut UnpackedGroup,
    ) {
    }

    /// Multiplies `R` rows, which are `stride` bytes apart, by groups, and adds the scaled sums of each group to `totals`. These are
    /// `[R][16]` floats, or 32 if `R` is 1, in the order of the instruction set. Only with [`GROUP_ROWS`](Self::GROUP_ROWS).
    ///
    /// # Safety
    /// 32 bytes are readable in each row for each group, and the totals are readable and writable.
    #[inline(always)]
    unsafe fn multiply_groups<const R: usize>(
        self,
        _left: *const u8,
        _stride: usize,
        _: &[UnpackedGroup],
        _totals: *mut f32,
    ) {
    }

    /// Arranges the totals of [`multiply_groups`](Self::multiply_groups) as `[R][16]`.
    ///
    /// # Safety
    /// As for `multiply_groups`.
    #[inline(always)]
    unsafe fn arrange_totals<const R: usize>(self, _totals: *mut f32) {}

    /// Loads a vector from a slice, zero-filled if it has fewer than 16 elements.
    #[inline(always)]
    fn load_slice(self, from: &[f32]) -> Self::V {
        if from.len() >= LANES {
            // SAFETY: there are 16 floats.
            unsafe { self.load(from.as_ptr()) }
        } else {
            // SAFETY: the slice has this many floats.
            unsafe { self.load_partial(from.as_ptr(), from.len()) }
        }
    }

    /// Stores the first lanes to a slice: 16, or all elements of a shorter slice.
    #[inline(always)]
    fn store_slice(self, to: &mut [f32], v: Self::V) {
        if to.len() >= LANES {
            // SAFETY: there are 16 floats.
            unsafe { self.store(to.as_mut_ptr(), v) };
        } else {
            // SAFETY: the slice has this many floats.
            unsafe { self.store_partial(to.as_mut_ptr(), to.len(), v) };
        }
    }

    /// Returns the lanes as an array.
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: the array has 16 floats.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        lanes
    }

    /// Sum of all lanes, by pairwise (tree) reduction.
    #[inline(always)]
    fn reduce_add(self, v: Self::V) -> f32 {
        let mut lanes = self.to_array(v);
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
        }
        lanes[0]
    }

    /// [`reduce_add`](Self::reduce_add) of each of four vectors, whose lanes may be added in another order.
    #[inline(always)]
    fn reduce_add4(self, v: [Self::V; 4]) -> [f32; 4] {
        v.map(|v| self.reduce_add(v))
    }

    /// Maximum of all lanes; unspecified if a lane is NaN.
    #[inline(always)]
    fn reduce_max(self, v: Self::V) -> f32 {
        let mut lanes = self.to_array(v);
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                let other = lanes[i + width];
                lanes[i] = if other > lanes[i] { other } else { lanes[i] };
            }
        }
        lanes[0]
    }

    /// Transposes an 8 x 8 block: `to[j * to_stride + i] = from[i * from_stride + j]`.
    ///
    /// # Safety
    /// 8 rows of 8 floats are readable at `from` and writable at `to`, at any address: pairs of bf16 are only aligned to one of them.
    #[inline(always)]
    unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for i in 0..8 {
            for j in 0..8 {
                // SAFETY: the caller guarantees all of it.
                let x = unsafe { from.wrapping_add(i * from_stride + j).read_unaligned() };
                // SAFETY: likewise.
                unsafe { to.wrapping_add(j * to_stride + i).write_unaligned(x) };
            }
        }
    }
}

/// Portable implementation of [`Simd::narrow_to_bf16`].
///
/// # Safety
/// As for [`Simd::narrow_to_bf16`].
#[inline(always)]
unsafe fn narrow_to_bf16_portable<S: Simd>(s: S, from: *const f32, n: usize, to: *mut u16) {
    // SAFETY: the caller guarantees `n` floats.
    let lanes = s.to_array(unsafe { s.load_partial(from, n) });
    // SAFETY: the caller guarantees 16 elements.
    unsafe { to.cast::<[u16; LANES]>().write_unaligned(lanes.map(to_bf16)) };
}

/// Portable implementation of [`Simd::store_bf16`].
///
/// # Safety
/// As for [`Simd::store_bf16`].
#[inline(always)]
unsafe fn store_bf16_portable<S: Simd>(s: S, to: *mut u16, n: usize, v: S::V) {
    let narrow = s.to_array(v).map(to_bf16);
    // SAFETY: the caller guarantees `n` elements, and `n` is at most 16.
    unsafe { core::ptr::copy_nonoverlapping(narrow.as_ptr(), to, n.min(LANES)) };
}

/// Portable implementation of [`Simd::load_u8`].
///
/// # Safety
/// As for [`Simd::load_u8`].
#[inline(always)]
unsafe fn load_u8_portable<S: Simd>(s: S, from: *const u8, n: usize) -> I32<S> {
    let mut bytes = [0u8; LANES];
    // SAFETY: the caller guarantees `n` bytes, and `n` is at most 16.
    unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), n.min(LANES)) };
    I32(s.load_slice(&bytes.map(|byte| f32::from_bits(u32::from(byte)))))
}

/// Portable implementation of [`Simd::dot_bf16`].
#[inline(always)]
fn dot_bf16_portable<S: Simd>(s: S, a: Bf16Pairs<S>, b: Bf16Pairs<S>, sum: S::V) -> S::V {
    let pairs = [s.to_array(a.0), s.to_array(b.0)].map(|lanes| lanes.map(f32::to_bits));
    let second = pairs.map(|pairs| pairs.map(|pair| f32::from_bits(pair & 0xffff_0000)));
    let first = pairs.map(|pairs| pairs.map(|pair| f32::from_bits(pair << 16)));
    let sum = s.fma(s.load_slice(&second[0]), s.load_slice(&second[1]), sum);
    s.fma(s.load_slice(&first[0]), s.load_slice(&first[1]), sum)
}

/// A computation that is compiled once per instruction set.
pub(crate) trait Kernel {
    type Out;

    /// Runs in a function compiled for `S`. Implementations must be `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Out;
}
