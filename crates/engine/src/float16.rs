//! 16-bit floating-point formats: conversions of single elements, in portable code that the compiler vectorizes.

/// A 16-bit floating-point format; its elements are stored as bit patterns in `u16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16, the upper half of binary32.
    Bf16,
}

/// Bit pattern of +infinity.
const INFINITY: u32 = 255 << 23;

/// Widens an f16, exactly.
#[inline(always)]
pub(crate) fn from_f16(x: u16) -> f32 {
    let (sign, magnitude) = (u32::from(x & 0x8000) << 16, u32::from(x & 0x7fff));
    // The exponent biases differ by 112; a multiplication corrects that and normalizes subnormals.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    let special = if magnitude >= 0x7c00 { INFINITY } else { 0 };
    f32::from_bits(scaled.to_bits() | special | sign)
}

/// Rounds to f16, to nearest, ties to even; overflows to infinity.
#[inline(always)]
pub(crate) fn to_f16(x: f32) -> u16 {
    let (sign, magnitude) = ((x.to_bits() >> 16) as u16 & 0x8000, x.to_bits() & 0x7fff_ffff);
    // Adding 1/2 aligns the bits of a number that is subnormal in f16.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let finite = if magnitude < 113 << 23 { small } else { normal };
    let large = if magnitude > INFINITY { 0x7e00 } else { 0x7c00 };
    sign | if magnitude >= 143 << 23 { large } else { finite as u16 }
}

/// Widens a bf16, exactly.
#[inline(always)]
pub(crate) fn from_bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// Rounds to bf16, to nearest, ties to even; overflows to infinity.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if bits & 0x7fff_ffff > INFINITY { (bits >> 16) as u16 | 0x40 } else { rounded }
}
