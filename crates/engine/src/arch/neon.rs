//! Advanced SIMD of 64-bit Arm: a vector is four registers.

use core::arch::aarch64::*;

use super::quarters::{by_quarters, bytes_by_quarters, nibbles_by_quarters, quarters, transpose8_by_quarters};
use super::{Arithmetic, Job, MANTISSA, SQRT_HALF, Simd};

/// Advanced SIMD, part of every 64-bit Arm target with floating point. Code for [`DOT`] or [`I8MM`] may use that extension
/// too.
#[derive(Clone, Copy)]
pub(crate) struct Neon<const WITH: u8> {
    quads: Option<Quads>,
}

/// No extension.
pub(crate) const PLAIN: u8 = 0;

/// Products of four bytes with signs.
const DOT: u8 = 1;

/// Products of four bytes without signs with such that have them.
const I8MM: u8 = 2;

/// The extension that the processor has for products of four bytes.
#[derive(Clone, Copy)]
enum Quads {
    DotProd,
    I8mm,
}

impl Neon<PLAIN> {
    pub(crate) fn new() -> Option<Self> {
        cfg!(target_feature = "neon").then_some(Self { quads: None })
    }

    /// With products of bytes that have signs.
    pub(crate) fn with_quads() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::arch::is_aarch64_feature_detected!("dotprod");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "dotprod");
        Self::new().filter(|_| found).map(|_| Self { quads: Some(Quads::DotProd) })
    }

    /// With products of bytes of which one side has no signs.
    pub(crate) fn with_mixed_quads() -> Option<Self> {
        #[cfg(feature = "std")]
        let found = std::arch::is_aarch64_feature_detected!("i8mm");
        #[cfg(not(feature = "std"))]
        let found = cfg!(target_feature = "i8mm");
        Self::new().filter(|_| found).map(|_| Self { quads: Some(Quads::I8mm) })
    }

    pub(crate) fn has_mixed_quads(self) -> bool {
        matches!(self.quads, Some(Quads::I8mm))
    }
}

#[target_feature(enable = "neon")]
fn enter<J: Job>(simd: Neon<PLAIN>, job: J) -> J::Out {
    job.run(simd)
}

#[target_feature(enable = "neon,dotprod")]
fn enter_quads<J: Job>(simd: Neon<DOT>, job: J) -> J::Out {
    job.run(simd)
}

#[target_feature(enable = "neon,i8mm")]
fn enter_mixed_quads<J: Job>(simd: Neon<I8MM>, job: J) -> J::Out {
    job.run(simd)
}

/// Products of bytes, which are multiplied with 16 bits.
#[target_feature(enable = "neon")]
#[inline]
fn dot4_by_pairs(a: float32x4_t, b: float32x4_t, sum: float32x4_t) -> float32x4_t {
    let (a, b) = (vreinterpretq_u8_f32(a), vreinterpretq_s8_f32(b));
    let (low_a, high_a) = (vmovl_u8(vget_low_u8(a)), vmovl_high_u8(a));
    let (low_a, high_a) = (vreinterpretq_s16_u16(low_a), vreinterpretq_s16_u16(high_a));
    let (low_b, high_b) = (vmovl_s8(vget_low_s8(b)), vmovl_high_s8(b));
    let first = vpaddq_s32(vmull_s16(vget_low_s16(low_a), vget_low_s16(low_b)), vmull_high_s16(low_a, low_b));
    let second = vpaddq_s32(vmull_s16(vget_low_s16(high_a), vget_low_s16(high_b)), vmull_high_s16(high_a, high_b));
    vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(sum), vpaddq_s32(first, second)))
}

/// Functions of one instruction: for each lane `sum` and the products of four bytes.
macro_rules! dots {
    ($($(#[$doc:meta])* $name:ident($v:ty, $sum:ty) => $instruction:literal, $features:literal;)+) => {$(
        $(#[$doc])*
        #[target_feature(enable = $features)]
        #[inline]
        fn $name(a: $v, b: $v, sum: $sum) -> $sum {
            let mut sum = sum;
            // SAFETY: the instruction touches its registers alone, and the function is for processors that have it.
            unsafe {
                core::arch::asm!(
                    concat!($instruction, " {sum:v}.4s, {a:v}.16b, {b:v}.16b"),
                    sum = inout(vreg) sum,
                    a = in(vreg) a,
                    b = in(vreg) b,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        }
    )+};
}

dots! {
    /// Of signed bytes on both sides.
    signed_dot(int8x16_t, int32x4_t) => "sdot", "neon,dotprod";
    /// Of unsigned bytes with signed ones: rows and lines of weights as they lie in memory. (`usmmla` multiplies twice as many at
    /// once, but two rows by eight of K, of which a line has four, and its sums are those of two rows and two columns.)
    mixed_dot4(float32x4_t, float32x4_t) => "usdot", "neon,i8mm";
}

/// Products of unsigned bytes, which are taken 128 less, with signed ones, whose sum is then added 128 times: once for all
/// rows that a line of weights is multiplied with.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn dot4(a: float32x4_t, b: float32x4_t, sum: float32x4_t) -> float32x4_t {
    let a = vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_f32(a), vdupq_n_u8(128)));
    let b = vreinterpretq_s8_f32(b);
    let sums = vshlq_n_s32::<1>(signed_dot(b, vdupq_n_s8(64), vdupq_n_s32(0)));
    vreinterpretq_f32_s32(vaddq_s32(signed_dot(a, b, vreinterpretq_s32_f32(sum)), sums))
}

/// # Safety
/// 16 bytes are readable.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn widen(from: *const u8) -> [float32x4_t; 4] {
    // SAFETY: the caller vouches for 16 bytes.
    let bytes = unsafe { vld1q_u8(from) };
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
    [
        vreinterpretq_f32_u32(vmovl_u16(vget_low_u16(low))),
        vreinterpretq_f32_u32(vmovl_high_u16(low)),
        vreinterpretq_f32_u32(vmovl_u16(vget_low_u16(high))),
        vreinterpretq_f32_u32(vmovl_high_u16(high)),
    ]
}

/// # Safety
/// 16 bytes are writable.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn narrow(v: [float32x4_t; 4], to: *mut u8) {
    let low = vmovn_high_u32(vmovn_u32(vcvtnq_u32_f32(v[0])), vcvtnq_u32_f32(v[1]));
    let high = vmovn_high_u32(vmovn_u32(vcvtnq_u32_f32(v[2])), vcvtnq_u32_f32(v[3]));
    let bytes = vmovn_high_u16(vmovn_u16(low), high);
    // SAFETY: the caller vouches for 16 bytes.
    unsafe { vst1q_u8(to, bytes) };
}

/// The low four bits of bytes, 8 less.
#[target_feature(enable = "neon")]
#[inline]
fn low_nibbles(v: float32x4_t) -> float32x4_t {
    let low = vandq_u8(vreinterpretq_u8_f32(v), vdupq_n_u8(15));
    vreinterpretq_f32_u8(vsubq_u8(low, vdupq_n_u8(8)))
}

/// The high four bits of bytes, 8 less.
#[target_feature(enable = "neon")]
#[inline]
fn high_nibbles(v: float32x4_t) -> float32x4_t {
    vreinterpretq_f32_u8(vsubq_u8(vshrq_n_u8::<4>(vreinterpretq_u8_f32(v)), vdupq_n_u8(8)))
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

impl<const WITH: u8> Arithmetic for Neon<WITH> {
    type V = [float32x4_t; 4];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        quarters!(|_i| vdupq_n_f32(x))
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
}

impl<const WITH: u8> Simd for Neon<WITH> {
    type Dots = Self;

    const ROWS: usize = 6;
    const PANELS: usize = 1;
    const PIXELS: usize = 5;
    const VECTORS: usize = 8;
    const QUAD_ROWS: usize = match WITH {
        I8MM => 6,
        DOT => 4,
        _ => 2,
    };

    #[inline(always)]
    fn vectorize<J: Job>(self, job: J) -> J::Out {
        let Self { quads } = self;
        match const { WITH } {
            // SAFETY: a `Neon<I8MM>` and a `Neon<DOT>` come from `vectorize_quads`.
            I8MM => unsafe { enter_mixed_quads(Neon { quads }, job) },
            // SAFETY: likewise.
            DOT => unsafe { enter_quads(Neon { quads }, job) },
            // SAFETY: a `Neon` exists only where the target has Advanced SIMD.
            _ => unsafe { enter(Neon { quads }, job) },
        }
    }

    #[inline(always)]
    fn vectorize_quads<J: Job>(self, job: J) -> J::Out {
        let Self { quads } = self;
        match quads {
            // SAFETY: this is there only where the processor has I8MM.
            Some(Quads::I8mm) => unsafe { enter_mixed_quads(Neon { quads }, job) },
            // SAFETY: this is there only where the processor has DotProd.
            Some(Quads::DotProd) => unsafe { enter_quads(Neon { quads }, job) },
            None => self.vectorize(job),
        }
    }

    #[inline(always)]
    fn has_quads(self) -> bool {
        self.quads.is_some()
    }

    bytes_by_quarters!(widen, narrow);
    nibbles_by_quarters!(low_nibbles, high_nibbles);

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        quarters!(|i| vld1q_f32(from.wrapping_add(4 * i)))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Self::V) {
        quarters!(|i| vst1q_f32(to.wrapping_add(4 * i), v[i]));
    }

    by_quarters! {
        dot4(a, b, sum) => match const { WITH } {
            I8MM => mixed_dot4(a, b, sum),
            DOT => dot4(a, b, sum),
            _ => dot4_by_pairs(a, b, sum),
        };
        floats(v) => vcvtq_f32_s32(vreinterpretq_s32_f32(v));
        push_byte(above, below) => {
            let above = vshlq_n_u32::<8>(vreinterpretq_u32_f32(above));
            vreinterpretq_f32_u32(vorrq_u32(above, vreinterpretq_u32_f32(below)))
        };
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
