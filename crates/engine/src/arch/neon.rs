//! Advanced SIMD (NEON) of 64-bit Arm: a vector is four registers.

use core::arch::aarch64::*;

use super::neon_instructions::{sdot, usdot};
use super::neon_int8::{self, DOTPROD, I8MM, PLAIN};
use super::tiles::{
    INT8_DEPTHWISE_PIXELS, Int8DepthwiseOperands, Int8Operands, Int8PanelSums, Int8Taps, UnpackedGroup,
};
use super::x128::{each_register, nibbles_register_wise, register_wise, transpose8_register_wise};
use super::{Arithmetic, I8Quads, I32, Kernel, LANES, MANTISSA, SQRT_HALF, Simd, U8Clamp, U8Quads};
use super::{neon_depthwise, neon_groupwise};

/// Token for Advanced SIMD, part of every 64-bit Arm target with floating point. `EXTENSION` says which further
/// instructions its code may use: [`PLAIN`], [`DOTPROD`] or [`I8MM`].
#[derive(Clone, Copy)]
pub(crate) struct Neon<const EXTENSION: u8> {
    int8_dot: Option<Int8Dot>,
}

/// The int8 dot product extension that the processor supports.
#[derive(Clone, Copy)]
enum Int8Dot {
    Dotprod,
    I8mm,
}

impl Neon<PLAIN> {
    #[cfg(baseline_simd)]
    pub(crate) const BASELINE: Self = Self { int8_dot: None };

    pub(crate) fn new() -> Option<Self> {
        cfg!(target_feature = "neon").then_some(Self { int8_dot: None })
    }

    /// Detects FEAT_DotProd.
    pub(crate) fn with_dotprod() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::arch::is_aarch64_feature_detected!("dotprod");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "dotprod");
        Self::new().filter(|_| found).map(|_| Self { int8_dot: Some(Int8Dot::Dotprod) })
    }

    /// Detects FEAT_I8MM, and FEAT_DotProd beside it.
    pub(crate) fn with_i8mm() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::arch::is_aarch64_feature_detected!("i8mm");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "i8mm");
        Self::with_dotprod().filter(|_| found).map(|_| Self { int8_dot: Some(Int8Dot::I8mm) })
    }

    pub(crate) fn has_i8mm(self) -> bool {
        matches!(self.int8_dot, Some(Int8Dot::I8mm))
    }
}

#[target_feature(enable = "neon")]
fn enter<K: Kernel>(simd: Neon<PLAIN>, kernel: K) -> K::Out {
    kernel.run(simd)
}

#[target_feature(enable = "neon,dotprod")]
fn enter_dotprod<K: Kernel>(simd: Neon<DOTPROD>, kernel: K) -> K::Out {
    kernel.run(simd)
}

#[target_feature(enable = "neon,dotprod,i8mm")]
fn enter_i8mm<K: Kernel>(simd: Neon<I8MM>, kernel: K) -> K::Out {
    kernel.run(simd)
}

/// Int8 dot product without the extensions: multiplies in i16, accumulates pairwise in i32.
#[target_feature(enable = "neon")]
#[inline]
fn dot_u8i8_by_i16(a: float32x4_t, b: float32x4_t, sum: float32x4_t) -> float32x4_t {
    let (a, b) = (vreinterpretq_u8_f32(a), vreinterpretq_s8_f32(b));
    let (low_a, high_a) = (vmovl_u8(vget_low_u8(a)), vmovl_high_u8(a));
    let (low_a, high_a) = (vreinterpretq_s16_u16(low_a), vreinterpretq_s16_u16(high_a));
    let (low_b, high_b) = (vmovl_s8(vget_low_s8(b)), vmovl_high_s8(b));
    let first = vpaddq_s32(vmull_s16(vget_low_s16(low_a), vget_low_s16(low_b)), vmull_high_s16(low_a, low_b));
    let second = vpaddq_s32(vmull_s16(vget_low_s16(high_a), vget_low_s16(high_b)), vmull_high_s16(high_a, high_b));
    vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(sum), vpaddq_s32(first, second)))
}

/// u8 x i8 by `sdot`: `a` is shifted to i8 by subtracting 128, and 128 times the sum of `b` is added back. The compiler
/// hoists that sum, which is the same for all rows of the tile.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn dot_u8i8(a: float32x4_t, b: float32x4_t, sum: float32x4_t) -> float32x4_t {
    let a = vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_f32(a), vdupq_n_u8(128)));
    let b = vreinterpretq_s8_f32(b);
    let sums = vshlq_n_s32::<1>(sdot(b, vdupq_n_s8(64), vdupq_n_s32(0)));
    vreinterpretq_f32_s32(vaddq_s32(sdot(a, b, vreinterpretq_s32_f32(sum)), sums))
}

/// Zero-extends 16 bytes to i32 lanes.
#[target_feature(enable = "neon")]
#[inline]
fn widen(bytes: uint8x16_t) -> [float32x4_t; 4] {
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
    [
        vreinterpretq_f32_u32(vmovl_u16(vget_low_u16(low))),
        vreinterpretq_f32_u32(vmovl_high_u16(low)),
        vreinterpretq_f32_u32(vmovl_u16(vget_low_u16(high))),
        vreinterpretq_f32_u32(vmovl_high_u16(high)),
    ]
}

/// Rounds 16 f32 lanes to u8.
#[target_feature(enable = "neon")]
#[inline]
fn narrow(v: [float32x4_t; 4]) -> uint8x16_t {
    let low = vmovn_high_u32(vmovn_u32(vcvtnq_u32_f32(v[0])), vcvtnq_u32_f32(v[1]));
    let high = vmovn_high_u32(vmovn_u32(vcvtnq_u32_f32(v[2])), vcvtnq_u32_f32(v[3]));
    vmovn_high_u16(vmovn_u16(low), high)
}

/// Widens four f16 bit patterns.
#[target_feature(enable = "neon")]
#[inline]
fn widen_f16(v: uint16x4_t) -> float32x4_t {
    let wide;
    // SAFETY: the instruction, which is part of Advanced SIMD, touches its registers alone. Its intrinsic takes a type that is
    // not stable.
    unsafe {
        core::arch::asm!(
            "fcvtl {wide:v}.4s, {v:v}.4h",
            wide = lateout(vreg) wide,
            v = in(vreg) v,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    wide
}

/// Loads the first `n` floats (at most 4) and zeroes the other lanes.
///
/// # Safety
/// `n` floats are readable.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load_floats(from: *const f32, n: usize) -> float32x4_t {
    let zero = vdupq_n_f32(0.0);
    match n {
        0 => zero,
        // SAFETY: the caller guarantees the float.
        1 => unsafe { vld1q_lane_f32::<0>(from, zero) },
        // SAFETY: the caller guarantees four floats.
        4.. => unsafe { vld1q_f32(from) },
        _ => {
            // SAFETY: the caller guarantees two floats.
            let low = vcombine_f32(unsafe { vld1_f32(from) }, vdup_n_f32(0.0));
            // SAFETY: the caller guarantees the third float.
            if n == 3 { unsafe { vld1q_lane_f32::<2>(from.wrapping_add(2), low) } } else { low }
        }
    }
}

/// Stores the first `n` lanes (at most 4).
///
/// # Safety
/// `n` floats are writable.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn store_floats(to: *mut f32, n: usize, v: float32x4_t) {
    match n {
        0 => {}
        // SAFETY: the caller guarantees the float.
        1 => unsafe { vst1q_lane_f32::<0>(to, v) },
        // SAFETY: the caller guarantees four floats.
        4.. => unsafe { vst1q_f32(to, v) },
        _ => {
            let low = vget_low_f32(v);
            // SAFETY: the caller guarantees two floats.
            unsafe { vst1_f32(to, low) };
            if n == 3 {
                // SAFETY: the caller guarantees the third float.
                unsafe { vst1q_lane_f32::<2>(to.wrapping_add(2), v) };
            }
        }
    }
}

/// Stores the first `n` bytes (at most 16).
///
/// # Safety
/// `n` bytes are writable.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn store_bytes(to: *mut u8, n: usize, v: uint8x16_t) {
    if n >= 16 {
        // SAFETY: the caller guarantees 16 bytes.
        return unsafe { vst1q_u8(to, v) };
    }
    let (mut to, mut rest) = (to, vget_low_u8(v));
    if n & 8 != 0 {
        // SAFETY: the caller guarantees eight bytes.
        unsafe { vst1_u8(to, rest) };
        (to, rest) = (to.wrapping_add(8), vget_high_u8(v));
    }
    let mut rest = vget_lane_u64::<0>(vreinterpret_u64_u8(rest));
    if n & 4 != 0 {
        // SAFETY: the caller guarantees four bytes after those.
        unsafe { to.cast::<u32>().write_unaligned(rest as u32) };
        (to, rest) = (to.wrapping_add(4), rest >> 32);
    }
    if n & 2 != 0 {
        // SAFETY: likewise, two bytes.
        unsafe { to.cast::<u16>().write_unaligned(rest as u16) };
        (to, rest) = (to.wrapping_add(2), rest >> 16);
    }
    if n & 1 != 0 {
        // SAFETY: likewise, the last byte.
        unsafe { to.write(rest as u8) };
    }
}

/// Low nibbles of each byte, minus 8.
#[target_feature(enable = "neon")]
#[inline]
fn low_nibbles(v: float32x4_t) -> float32x4_t {
    let low = vandq_u8(vreinterpretq_u8_f32(v), vdupq_n_u8(15));
    vreinterpretq_f32_u8(vsubq_u8(low, vdupq_n_u8(8)))
}

/// High nibbles of each byte, minus 8.
#[target_feature(enable = "neon")]
#[inline]
fn high_nibbles(v: float32x4_t) -> float32x4_t {
    vreinterpretq_f32_u8(vsubq_u8(vshrq_n_u8::<4>(vreinterpretq_u8_f32(v)), vdupq_n_u8(8)))
}

/// Transposes a 4 x 4 block.
#[target_feature(enable = "neon")]
#[inline]
fn transpose4(rows: [float32x4_t; 4]) -> [float32x4_t; 4] {
    let pair = |a, b| (vreinterpretq_f64_f32(vtrn1q_f32(a, b)), vreinterpretq_f64_f32(vtrn2q_f32(a, b)));
    let ((even01, odd01), (even23, odd23)) = (pair(rows[0], rows[1]), pair(rows[2], rows[3]));
    let columns =
        [vtrn1q_f64(even01, even23), vtrn1q_f64(odd01, odd23), vtrn2q_f64(even01, even23), vtrn2q_f64(odd01, odd23)];
    columns.map(|v| vreinterpretq_f32_f64(v))
}

impl<const EXTENSION: u8> Arithmetic for Neon<EXTENSION> {
    type V = [float32x4_t; 4];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        each_register!(|_i| vdupq_n_f32(x))
    }

    register_wise! {
        add(a, b) => vaddq_f32(a, b);
        sub(a, b) => vsubq_f32(a, b);
        mul(a, b) => vmulq_f32(a, b);
        div(a, b) => vdivq_f32(a, b);
        fma(a, b, c) => vfmaq_f32(c, a, b);
        // `fmax` orders -0 below +0, where the other instruction sets return `v`.
        max(bound, v) => vbslq_f32(vcltq_f32(v, bound), bound, v);
        min(bound, v) => vbslq_f32(vcgtq_f32(v, bound), bound, v);
        // `fmax` propagates NaN.
        clamp(v, min, max) => vminq_f32(max, vmaxq_f32(min, v));
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
        fn split_register(v: float32x4_t) -> (float32x4_t, float32x4_t) {
            let sqrt_half = vdupq_n_s32(SQRT_HALF.cast_signed());
            let from_sqrt_half = vsubq_s32(vreinterpretq_s32_f32(v), sqrt_half);
            let mantissa = vandq_s32(from_sqrt_half, vdupq_n_s32(MANTISSA.cast_signed()));
            let mantissa = vreinterpretq_f32_s32(vaddq_s32(mantissa, sqrt_half));
            (mantissa, vcvtq_f32_s32(vshrq_n_s32::<23>(from_sqrt_half)))
        }
        let parts = each_register!(|i| split_register(v[i]));
        (parts.map(|part| part.0), parts.map(|part| part.1))
    }
}

impl<const EXTENSION: u8> Simd for Neon<EXTENSION> {
    type WithBf16 = Self;

    const MR: usize = 6;
    const NR_PANELS: usize = 1;
    const DEPTHWISE_PIXELS: usize = 5;
    const VECTOR_REGISTERS: usize = 8;
    // `sdot` needs registers for the rows and for the offset beside the accumulators.
    const INT8_MR: usize = match EXTENSION {
        I8MM => 6,
        DOTPROD => 4,
        _ => 2,
    };
    const INT8_LEFT_OFFSET: i32 = neon_int8::left_offset(EXTENSION);
    const FINISHES_INT8_IN_REGISTERS: bool = true;
    const HAS_INT8_DEPTHWISE: bool = true;
    const LOOKS_UP_ACTIVATIONS: bool = true;
    const PAIRS_INT8_COLUMNS: bool = EXTENSION == I8MM;
    const MULTIPLIES_GROUPS: bool = true;
    const GROUP_ROWS: usize = match EXTENSION {
        I8MM => 6,
        DOTPROD => 4,
        _ => 0,
    };
    const PACKS_U8_TOGETHER: bool = false;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Out {
        let Self { int8_dot } = self;
        match const { EXTENSION } {
            // SAFETY: a `Neon<I8MM>` and a `Neon<DOTPROD>` come from `vectorize_int8`.
            I8MM => unsafe { enter_i8mm(Neon { int8_dot }, kernel) },
            // SAFETY: likewise.
            DOTPROD => unsafe { enter_dotprod(Neon { int8_dot }, kernel) },
            // SAFETY: a `Neon` exists only where the target has Advanced SIMD.
            _ => unsafe { enter(Neon { int8_dot }, kernel) },
        }
    }

    #[inline(always)]
    fn vectorize_int8<K: Kernel>(self, kernel: K) -> K::Out {
        let Self { int8_dot } = self;
        match int8_dot {
            // SAFETY: `Int8Dot::I8mm` exists only where the processor has FEAT_I8MM and FEAT_DotProd.
            Some(Int8Dot::I8mm) => unsafe { enter_i8mm(Neon { int8_dot }, kernel) },
            // SAFETY: `Int8Dot::Dotprod` exists only where the processor has FEAT_DotProd.
            Some(Int8Dot::Dotprod) => unsafe { enter_dotprod(Neon { int8_dot }, kernel) },
            None => self.vectorize(kernel),
        }
    }

    #[inline(always)]
    fn has_int8_dot(self) -> bool {
        self.int8_dot.is_some()
    }

    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, n: usize) -> I32<Self> {
        // SAFETY: the caller guarantees `n` bytes.
        let bytes = unsafe { neon_int8::load_bytes(from, n) };
        // SAFETY: as for `vectorize`.
        I32(unsafe { widen(bytes) })
    }

    #[inline(always)]
    unsafe fn store_as_u8(self, to: *mut u8, n: usize, v: Self::V) {
        // SAFETY: as for `vectorize`.
        let bytes = unsafe { narrow(v) };
        // SAFETY: the caller guarantees `n` bytes.
        unsafe { store_bytes(to, n, bytes) };
    }

    nibbles_register_wise!(low_nibbles, high_nibbles);

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        each_register!(|i| vld1q_f32(from.wrapping_add(4 * i)))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        each_register!(|i| vst1q_f32(to.wrapping_add(4 * i), v[i]));
    }

    #[inline(always)]
    unsafe fn multiply_int8<const N: usize, const P: usize>(
        self,
        tile: &Int8Operands,
        accumulators: &mut [[I32<Self>; P]; N],
    ) {
        for p in 0..P {
            let tile = Int8Operands { weights: tile.weights.wrapping_add(p * tile.weights_stride), ..*tile };
            // SAFETY: as for `vectorize`.
            let mut sums = [unsafe { [vdupq_n_s32(0); 4] }; N];
            for r in 0..N {
                sums[r] = each_register!(|i| vreinterpretq_s32_f32(accumulators[r][p].0[i]));
            }
            // SAFETY: the caller guarantees the operands; code with an extension comes from `vectorize_int8`.
            unsafe { neon_int8::multiply::<EXTENSION, N>(&tile, &mut sums) };
            for r in 0..N {
                accumulators[r][p] = I32(each_register!(|i| vreinterpretq_f32_s32(sums[r][i])));
            }
        }
    }

    #[inline(always)]
    unsafe fn pair_int8_columns(self, tile: &Int8Operands, to: *mut i8) {
        // SAFETY: the caller guarantees both panels.
        unsafe { neon_int8::pair_columns(tile, to) };
    }

    #[inline(always)]
    unsafe fn int8_panel_sums(self, weights: *const i8, quads: usize) -> Int8PanelSums<Self> {
        // SAFETY: the caller guarantees the weights.
        let (sums, may_have_minimum) = unsafe { neon_int8::panel_sums::<EXTENSION>(weights, quads) };
        Int8PanelSums { sums: I32(each_register!(|i| vreinterpretq_f32_s32(sums[i]))), may_have_minimum }
    }

    #[inline(always)]
    unsafe fn int8_taps<const K: usize, const STEP: usize>(
        self,
        weights: [*const i8; 4],
        to: &mut Int8Taps,
    ) -> Option<I32<Self>> {
        // SAFETY: the caller guarantees the weights; code with an extension comes from `vectorize_int8`.
        let sums = unsafe { neon_depthwise::taps::<EXTENSION, K, STEP>(weights, to) }?;
        Some(I32(each_register!(|i| vreinterpretq_f32_s32(sums[i]))))
    }

    #[inline(always)]
    unsafe fn depthwise_int8<const K: usize, const STEP: usize, const IS_EDGE: bool>(
        self,
        operands: &Int8DepthwiseOperands<'_, K>,
        accumulators: &mut [[I32<Self>; 1]; INT8_DEPTHWISE_PIXELS],
    ) {
        // SAFETY: as for `vectorize`.
        let mut sums = [unsafe { [vdupq_n_s32(0); 4] }; INT8_DEPTHWISE_PIXELS];
        for n in 0..INT8_DEPTHWISE_PIXELS {
            sums[n] = each_register!(|i| vreinterpretq_s32_f32(accumulators[n][0].0[i]));
        }
        // SAFETY: the caller guarantees the operands; code with an extension comes from `vectorize_int8`.
        unsafe { neon_depthwise::multiply::<EXTENSION, K, STEP, IS_EDGE>(operands, &mut sums) };
        for n in 0..INT8_DEPTHWISE_PIXELS {
            accumulators[n][0] = I32(each_register!(|i| vreinterpretq_f32_s32(sums[n][i])));
        }
    }

    #[inline(always)]
    unsafe fn multiply_f32<const R: usize, const P: usize>(
        self,
        left: &[*const f32; R],
        steps: usize,
        panel: *const f32,
        panel_stride: usize,
        sums: &mut [[Self::V; P]; R],
    ) -> usize {
        let whole = steps / 4 * 4;
        for p in 0..P {
            let mut panel = panel.wrapping_add(p * panel_stride);
            macro_rules! step {
                ($lane:literal, $x:ident) => {
                    for j in 0..4 {
                        // SAFETY: the caller guarantees 16 floats for each step.
                        let right = unsafe { vld1q_f32(panel.wrapping_add(4 * j)) };
                        for r in 0..R {
                            // SAFETY: as for `vectorize`.
                            sums[r][p][j] = unsafe { vfmaq_laneq_f32::<$lane>(sums[r][p][j], right, $x[r]) };
                        }
                    }
                    panel = panel.wrapping_add(LANES);
                };
            }
            for k in (0..whole).step_by(4) {
                // SAFETY: as for `vectorize`.
                let mut x = [unsafe { vdupq_n_f32(0.0) }; R];
                for r in 0..R {
                    // SAFETY: the caller guarantees a float for each step.
                    x[r] = unsafe { vld1q_f32(left[r].wrapping_add(k)) };
                }
                step!(0, x);
                step!(1, x);
                step!(2, x);
                step!(3, x);
            }
        }
        whole
    }

    #[inline(always)]
    unsafe fn dot_group<const R: usize>(
        self,
        left: *const u8,
        stride: usize,
        weights: *const u8,
        is_four_bits: bool,
    ) -> [I32<Self>; R] {
        // SAFETY: the caller guarantees the bytes; code with an extension comes from `vectorize_int8`.
        let dots = unsafe { neon_groupwise::dot_group::<EXTENSION, R>(left, stride, weights, is_four_bits) };
        let mut sums = [self.splat_i32(0); R];
        for r in 0..R {
            sums[r] = I32(each_register!(|i| vreinterpretq_f32_u32(dots[r][i])));
        }
        sums
    }

    #[inline(always)]
    unsafe fn unpack_group(
        self,
        weights: *const u8,
        is_four_bits: bool,
        zeros: [u8; LANES],
        scales: Self::V,
        to: &mut UnpackedGroup,
    ) {
        // SAFETY: the caller guarantees the weights; code with an extension comes from `vectorize_int8`.
        unsafe { neon_groupwise::unpack::<EXTENSION>(weights, is_four_bits, &zeros, scales, to) };
    }

    #[inline(always)]
    unsafe fn multiply_groups<const R: usize>(
        self,
        left: *const u8,
        stride: usize,
        groups: &[UnpackedGroup],
        totals: *mut f32,
    ) {
        if const { EXTENSION == I8MM } {
            // SAFETY: the caller guarantees the rows and totals; code with an extension comes from `vectorize_int8`.
            unsafe { neon_groupwise::multiply_by_matrix::<R>(left, stride, groups, totals) };
        } else if const { EXTENSION == DOTPROD } {
            // SAFETY: likewise.
            unsafe { neon_groupwise::multiply_by_element::<R>(left, stride, groups, totals) };
        }
    }

    #[inline(always)]
    unsafe fn arrange_totals<const R: usize>(self, totals: *mut f32) {
        if const { EXTENSION == I8MM } {
            // SAFETY: the caller guarantees the totals.
            unsafe { neon_groupwise::arrange_totals::<R>(totals) };
        }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::V {
        each_register!(|i| widen_f16(vld1_u16(from.wrapping_add(4 * i))))
    }

    #[inline(always)]
    unsafe fn store_u8(self, to: *mut u8, n: usize, v: Self::V, clamp: U8Clamp) {
        // SAFETY: as for `vectorize`.
        let bytes = unsafe { neon_int8::to_u8(v, clamp.zero, clamp.min, clamp.max) };
        // SAFETY: the caller guarantees `n` bytes.
        unsafe { store_bytes(to, n, bytes) };
    }

    #[inline(always)]
    unsafe fn store_lookup<const R: usize>(
        self,
        to: [*mut u8; R],
        n: usize,
        v: [Self::V; R],
        clamp: U8Clamp,
        table: &[u8],
    ) {
        let Some(table) = table.first_chunk() else { return };
        // SAFETY: as for `vectorize`.
        let mut bytes = [unsafe { vdupq_n_u8(0) }; R];
        for r in 0..R {
            // SAFETY: likewise.
            bytes[r] = unsafe { neon_int8::to_u8(v[r], clamp.zero, clamp.min, clamp.max) };
        }
        // SAFETY: likewise.
        let bytes = unsafe { neon_int8::lookup(table, bytes) };
        for r in 0..R {
            // SAFETY: the caller guarantees `n` bytes.
            unsafe { store_bytes(to[r], n, bytes[r]) };
        }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, n: usize) -> Self::V {
        if n >= LANES {
            // SAFETY: the caller guarantees 16 floats.
            return unsafe { self.load(from) };
        }
        each_register!(|i| load_floats(from.wrapping_add(4 * i), n.saturating_sub(4 * i)))
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, n: usize, v: Self::V) {
        if n >= LANES {
            // SAFETY: the caller guarantees 16 floats.
            return unsafe { self.store(to, v) };
        }
        each_register!(|i| store_floats(to.wrapping_add(4 * i), n.saturating_sub(4 * i), v[i]));
    }

    #[inline(always)]
    fn dot_u8i8(self, a: U8Quads<Self>, b: I8Quads<Self>, sum: I32<Self>) -> I32<Self> {
        let (a, b, sum) = (a.0, b.0, sum.0);
        I32(each_register!(|i| match const { EXTENSION } {
            I8MM => usdot(a[i], b[i], sum[i]),
            DOTPROD => dot_u8i8(a[i], b[i], sum[i]),
            _ => dot_u8i8_by_i16(a[i], b[i], sum[i]),
        }))
    }

    #[inline(always)]
    fn add_i32(self, a: I32<Self>, b: I32<Self>) -> I32<Self> {
        let (a, b) = (a.0, b.0);
        I32(each_register!(|i| {
            let sum = vaddq_s32(vreinterpretq_s32_f32(a[i]), vreinterpretq_s32_f32(b[i]));
            vreinterpretq_f32_s32(sum)
        }))
    }

    #[inline(always)]
    fn mul_i32(self, v: I32<Self>, by: i32) -> I32<Self> {
        let v = v.0;
        I32(each_register!(|i| vreinterpretq_f32_s32(vmulq_n_s32(vreinterpretq_s32_f32(v[i]), by))))
    }

    #[inline(always)]
    fn i32_to_f32(self, v: I32<Self>) -> Self::V {
        let v = v.0;
        each_register!(|i| vcvtq_f32_s32(vreinterpretq_s32_f32(v[i])))
    }

    #[inline(always)]
    fn bits_to_f32<const SHIFT: i32, const WIDTH: i32>(self, v: I32<Self>) -> Self::V {
        let v = v.0;
        each_register!(|i| {
            let shifted = vshlq_u32(vreinterpretq_u32_f32(v[i]), vdupq_n_s32(-SHIFT));
            vcvtq_f32_u32(vandq_u32(shifted, vdupq_n_u32((1 << WIDTH) - 1)))
        })
    }

    #[inline(always)]
    fn push_u8(self, above: U8Quads<Self>, below: I32<Self>) -> U8Quads<Self> {
        let (above, below) = (above.0, below.0);
        U8Quads(each_register!(|i| {
            let above = vshlq_n_u32::<8>(vreinterpretq_u32_f32(above[i]));
            vreinterpretq_f32_u32(vorrq_u32(above, vreinterpretq_u32_f32(below[i])))
        }))
    }

    #[inline(always)]
    fn reduce_add(self, v: Self::V) -> f32 {
        #[target_feature(enable = "neon")]
        #[inline]
        fn sum(v: [float32x4_t; 4]) -> f32 {
            vaddvq_f32(vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3])))
        }
        // SAFETY: as for `vectorize`.
        unsafe { sum(v) }
    }

    transpose8_register_wise!(vld1q_f32, transpose4, vst1q_f32);
}
