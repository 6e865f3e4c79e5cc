//! Conversions between `f16` and `f32` without branches, so that loops over them become vector code.

use half::f16;

#[inline(always)]
pub(crate) fn widen(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    // The exponent moves by the difference of the biases, 112, which also scales subnormal numbers.
    let scaled = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    // 65536 and more were infinity or NaN.
    let special = if scaled >= 65536.0 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled.to_bits() | special | (bits & 0x8000) << 16)
}

/// Rounds to the nearest, ties to even.
#[inline(always)]
pub(crate) fn round(value: f32) -> f16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // The sum puts the bits of a subnormal result at the end of the fraction, and rounds.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let odd = (magnitude >> 13) & 1;
    let regular = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let large = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let result = if magnitude < 113 << 23 { small } else { regular };
    let result = if magnitude >= 143 << 23 { large } else { result };
    f16::from_bits((result | (bits >> 16) & 0x8000) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_goes_both_ways() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits);
            let wide = widen(value);
            if value.is_nan() {
                assert!(wide.is_nan() && round(wide).is_nan());
            } else {
                assert_eq!(wide.to_bits(), value.to_f32().to_bits());
                assert_eq!(round(wide).to_bits(), bits);
            }
        }
    }

    #[test]
    fn rounding_is_that_of_the_half_crate() {
        for bits in (0..u32::MAX).step_by(4093) {
            let value = f32::from_bits(bits);
            if !value.is_nan() {
                assert_eq!(round(value).to_bits(), f16::from_f32(value).to_bits(), "{value:e}");
            }
        }
    }
}
