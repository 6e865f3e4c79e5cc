//! Instructions of Advanced SIMD for dot products, whose intrinsics are not stable.
#![allow(unsafe_code)]

use core::arch::aarch64::*;

/// Evaluates an expression with intrinsics.
macro_rules! neon {
    ($operation:expr) => {{
        // SAFETY: the token exists only where the target has the instructions; the caller guarantees the memory.
        unsafe { $operation }
    }};
}
pub(super) use neon;

/// Returns a pointer of which the compiler does not know where it is from: loads through it stay where they are, and take registers
/// only there.
#[inline(always)]
#[expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read through the pointer")]
pub(super) fn opaque<T>(from: *const T) -> *const T {
    let mut from = from;
    // SAFETY: there is no instruction.
    unsafe { core::arch::asm!("/* {0} */", inout(reg) from, options(nomem, nostack, preserves_flags)) };
    from
}

/// Keeps what is computed with accumulators before and after this place apart: the compiler would otherwise finish one accumulator
/// after the other, with the operands of all of them in memory.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn in_order([a, b, c, d]: [int32x4_t; 4]) -> [int32x4_t; 4] {
    let (mut a, mut b, mut c, mut d) = (a, b, c, d);
    // SAFETY: there is no instruction.
    unsafe {
        core::arch::asm!(
            "/* {a:v} {b:v} {c:v} {d:v} */",
            a = inout(vreg) a,
            b = inout(vreg) b,
            c = inout(vreg) c,
            d = inout(vreg) d,
            options(nomem, nostack, preserves_flags)
        );
    }
    [a, b, c, d]
}

/// Defines functions that wrap one instruction on whole registers, which accumulates.
macro_rules! dot_instructions {
    ($($(#[$doc:meta])* $name:ident($a:ty, $b:ty, $sum:ty) => $instruction:literal, $features:literal;)+) => {$(
        $(#[$doc])*
        #[target_feature(enable = $features)]
        #[inline]
        pub(super) fn $name(a: $a, b: $b, sum: $sum) -> $sum {
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

dot_instructions! {
    /// `sum + dot(a, b)` for the four bytes in each lane, i8 x i8.
    sdot(int8x16_t, int8x16_t, int32x4_t) => "sdot", "neon,dotprod";
    /// u8 x u8.
    udot(uint8x16_t, uint8x16_t, uint32x4_t) => "udot", "neon,dotprod";
    /// u8 x i8, in the layout that both sides have in memory.
    usdot(float32x4_t, float32x4_t, float32x4_t) => "usdot", "neon,i8mm";
    /// The same by their own types.
    usdot_i32(uint8x16_t, int8x16_t, int32x4_t) => "usdot", "neon,i8mm";
    /// `sum + a b^T` for a 2 x 8 matrix of u8 and one of i8.
    usmmla(uint8x16_t, int8x16_t, int32x4_t) => "usmmla", "neon,i8mm";
}

/// Defines functions that wrap one instruction: `sum + dot(weights, x[LANE])`, for the four bytes in each lane of the weights
/// and in one lane of `x`.
macro_rules! dot_by_element {
    ($($(#[$doc:meta])* $name:ident($weights:ty, $sum:ty) => $instruction:literal, $features:literal;)+) => {$(
        $(#[$doc])*
        #[target_feature(enable = $features)]
        #[inline]
        pub(super) fn $name<const LANE: i32>(weights: $weights, x: uint8x16_t, sum: $sum) -> $sum {
            let mut sum = sum;
            // SAFETY: the instruction touches its registers alone, and the function is for processors that have it.
            unsafe {
                core::arch::asm!(
                    concat!($instruction, " {sum:v}.4s, {weights:v}.16b, {x:v}.4b[{lane}]"),
                    sum = inout(vreg) sum,
                    weights = in(vreg) weights,
                    x = in(vreg) x,
                    lane = const LANE,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        }
    )+};
}

dot_by_element! {
    /// i8 x i8.
    sdot_by_element(int8x16_t, int32x4_t) => "sdot", "neon,dotprod";
    /// i8 x u8.
    sudot_by_element(int8x16_t, int32x4_t) => "sudot", "neon,i8mm";
    /// u8 x u8.
    udot_by_element(uint8x16_t, uint32x4_t) => "udot", "neon,dotprod";
}
