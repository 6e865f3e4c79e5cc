//! Scales and zero points, and the fixed-point factors of the kernels.

use rushlight_format::ScalarType;
use rushlight_graph::quantization::PerTensor;
use rushlight_graph::{Arg, Node};

/// The quantization of an int8 tensor: `q` stands for `(q - zero_point) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Affine {
    /// In f64, because ExecuTorch computes multipliers in doubles.
    pub scale: f64,
    pub zero_point: i32,
    /// Minimum and maximum integer in use.
    pub range: (i32, i32),
}

impl Affine {
    /// Reads the parameters of a node that quantizes to int8, or dequantizes from it; `None` for other nodes.
    pub fn of(node: &Node) -> Option<Self> {
        let PerTensor { scale, zero_point, range, dtype } = PerTensor::of(node)?;
        let scale = match node.arg("scale") {
            Some(Arg::Float(scale)) => *scale,
            _ => f64::from(scale),
        };
        let is_int8 = |value: i64| i8::try_from(value).is_ok();
        let fits = dtype == ScalarType::Char && is_int8(zero_point) && is_int8(range.0) && is_int8(range.1);
        fits.then_some(Self { scale, zero_point: zero_point as i32, range: (range.0 as i32, range.1 as i32) })
    }

    /// Quantizes a number as ExecuTorch's passes quantize bounds: in f32, halves to even.
    pub fn quantize(&self, number: f64) -> i32 {
        let integer = ((number / self.scale + f64::from(self.zero_point)) as f32).round_ties_even();
        // The cast saturates.
        (integer as i32).clamp(self.range.0, self.range.1)
    }

    /// The largest magnitude of an integer after its zero point.
    pub fn largest(&self) -> f64 {
        f64::from((self.range.0 - self.zero_point).abs().max((self.range.1 - self.zero_point).abs()))
    }

    /// True if both map integers to the same numbers.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.scale == other.scale && self.zero_point == other.zero_point
    }
}

/// A factor `multiplier / 2^31 * 2^shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Factor {
    pub multiplier: i32,
    pub shift: i32,
}

impl Factor {
    const ZERO: Self = Self { multiplier: 0, shift: 0 };

    /// As [`of`](Self::of); also `None` if `largest`, the largest magnitude of an accumulator, does not fit in 32 bits after the shift to the
    /// left, with which the kernels begin.
    pub fn of_accumulator(scale: f64, largest: f64) -> Option<Self> {
        Self::of(scale).filter(|factor| factor.fits(largest))
    }

    /// True if accumulators of this largest magnitude fit in 32 bits after the shift to the left.
    pub fn fits(self, largest: f64) -> bool {
        self.shift <= 0 || largest * f64::from(1u32 << self.shift) < f64::from(1u32 << 31)
    }

    /// The factor nearest to a scale; `None` for scales that are negative, not finite, or too large for the kernels.
    pub fn of(scale: f64) -> Option<Self> {
        const EXPONENT: u64 = 0x7ff << 52;
        if scale == 0.0 {
            return Some(Self::ZERO);
        }
        if !(scale.is_normal() && scale > 0.0) {
            return None;
        }
        let bits = scale.to_bits();
        let exponent = ((bits & EXPONENT) >> 52) as i32 - 1022;
        // In [0.5, 1).
        let mantissa = f64::from_bits(bits & !EXPONENT | 1022 << 52);
        let multiplier = (mantissa * f64::from(1u32 << 31)).round_ties_even() as i64;
        let (multiplier, shift) = if multiplier == 1 << 31 { (1 << 30, exponent + 1) } else { (multiplier, exponent) };
        match shift {
            // Every accumulator of 32 bits gives zero.
            ..-31 => Some(Self::ZERO),
            -31..=30 => Some(Self { multiplier: i32::try_from(multiplier).ok()?, shift }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_normalized_and_rounded_to_even() {
        let factor = |multiplier, shift| Some(Factor { multiplier, shift });
        assert_eq!(Factor::of(1.0), factor(1 << 30, 1));
        assert_eq!(Factor::of(0.75), factor(3 << 29, 0));
        assert_eq!(Factor::of(0.1), factor(1_717_986_918, -3));
        // The mantissa rounds up to one.
        assert_eq!(Factor::of(1.0 - f64::EPSILON / 2.0), factor(1 << 30, 1));
        assert_eq!((Factor::of(0.0), Factor::of(1e-30)), (factor(0, 0), factor(0, 0)));
        for scale in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Factor::of(scale), None, "{scale}");
        }
    }

    #[test]
    fn accumulators_fit_after_their_shift() {
        assert_eq!(Factor::of_accumulator(65_536.0, 16_383.0).map(|factor| factor.shift), Some(17));
        assert_eq!(Factor::of_accumulator(65_536.0, 65_025.0), None);
        assert_eq!(Factor::of_accumulator(0.5, 1e12), Factor::of(0.5));
    }

    #[test]
    fn numbers_outside_of_the_range_saturate() {
        let affine = Affine { scale: 0.5, zero_point: -128, range: (-128, 127) };
        assert_eq!([0.0, -1.0, 6.0, 1e30].map(|number| affine.quantize(number)), [-128, -128, -116, 127]);
        assert_eq!(affine.quantize(0.25), -128);
    }
}
