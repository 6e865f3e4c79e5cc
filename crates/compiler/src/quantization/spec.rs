//! The quantization of tensors: element types, ranges, scales and zero points.

use std::ops::RangeInclusive;

use rushlight_format::ScalarType;

/// The quantization of an activation: integers `q` stand for `(q - zero_point) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivationSpec {
    /// `Char`, `Byte`, `Short` or `UInt16`.
    pub dtype: ScalarType,
    /// Minimum and maximum integer.
    pub range: [i32; 2],
    /// True if the range of floats is symmetric around zero, so that the zero point is the middle of the integers.
    pub is_symmetric: bool,
    /// True if scales are powers of two.
    pub is_power_of_two: bool,
    pub scales: ActivationScales,
}

/// The origin of an activation's scale and zero point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ActivationScales {
    /// Chosen from the ranges in a calibration.
    Calibrated,
    /// Known from the operator, such as 1/256 and -128 for the results of a softmax.
    Fixed { scale: f32, zero_point: i32 },
    /// Chosen at run time, one for each tensor.
    PerTensor,
    /// Chosen at run time, one for each row. Integers are affine, of `Char`, and have its whole range.
    PerToken,
}

impl ActivationSpec {
    /// `Char`, affine, with a calibrated scale.
    pub const INT8: Self = Self {
        dtype: ScalarType::Char,
        range: [-128, 127],
        is_symmetric: false,
        is_power_of_two: false,
        scales: ActivationScales::Calibrated,
    };
    /// `Byte`, affine, with a calibrated scale.
    pub const UINT8: Self = Self { dtype: ScalarType::Byte, range: [0, 255], ..Self::INT8 };
    /// `Short`, symmetric, with a calibrated scale.
    pub const INT16: Self = Self { dtype: ScalarType::Short, range: [-32767, 32767], is_symmetric: true, ..Self::INT8 };

    /// True if scales are chosen at run time.
    pub const fn is_dynamic(&self) -> bool {
        matches!(self.scales, ActivationScales::PerTensor | ActivationScales::PerToken)
    }

    /// Bits of an integer.
    pub const fn bits(&self) -> usize {
        8 * self.dtype.size()
    }

    /// Number of steps between the minimum and the maximum integer.
    pub const fn steps(&self) -> f32 {
        (self.range[1] - self.range[0]) as f32
    }

    /// Returns the scale and the zero point that map a range of floats, zero included, to the integers. The minimum scale is
    /// that of PyTorch's observers, `torch.finfo(torch.float32).eps`. Requantization is in f32 and needs no larger one.
    pub fn parameters(&self, (low, high): (f32, f32)) -> (f32, i32) {
        let [min, max] = self.range;
        let (low, high) = if self.is_symmetric { self.symmetric((low, high)) } else { (low, high) };
        let mut scale = ((high - low) / self.steps()).max(f32::EPSILON);
        if self.is_power_of_two {
            scale = next_power_of_two(scale);
        }
        if self.is_symmetric {
            return (scale, i32::midpoint(min, max + 1));
        }
        let zero = min as f32 - (low / scale).round_ties_even();
        (scale, zero.clamp(min as f32, max as f32) as i32)
    }

    /// Extends a range of floats to both sides of zero alike.
    pub fn symmetric(&self, (low, high): (f32, f32)) -> (f32, f32) {
        let most = high.max(-low);
        (-most, most)
    }

    /// Refuses a quantization that the operators of PyTorch do not have.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), String> {
        let integers: RangeInclusive<i32> = match self.dtype {
            ScalarType::Char => -128..=127,
            ScalarType::Byte => 0..=255,
            ScalarType::Short => -32_768..=32_767,
            ScalarType::UInt16 => 0..=65_535,
            other => return Err(format!("activations of `{other:?}` are none of Char, Byte, Short and UInt16")),
        };
        let [min, max] = self.range;
        if min >= max || !integers.contains(&min) || !integers.contains(&max) {
            return Err(format!("`{:?}` has no range from {min} to {max}", self.dtype));
        }
        match self.scales {
            ActivationScales::Fixed { scale, zero_point }
                if !(scale.is_normal() && scale > 0.0 && integers.contains(&zero_point)) =>
            {
                Err(format!("a fixed scale {scale} with the zero point {zero_point}"))
            }
            ActivationScales::PerToken | ActivationScales::PerTensor if self.is_power_of_two => {
                Err("powers of two as scales that are chosen at run time".to_owned())
            }
            ActivationScales::PerToken if Self { scales: ActivationScales::Calibrated, ..*self } != Self::INT8 => {
                Err("scales per row at run time, of other integers than affine ones from -128 to 127".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The quantization of weights: symmetric integers of at most 8 bits, stored as `Char`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightSpec {
    /// Minimum and maximum integer. A narrow range, such as -127 to 127, is symmetric.
    pub range: [i8; 2],
    pub scales: WeightScales,
    /// True if scales are powers of two.
    pub is_power_of_two: bool,
}

/// The weights that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightScales {
    /// All weights of a layer.
    PerTensor,
    /// Those of an output channel ([`Layer::axis`](super::Layer)).
    PerChannel,
    /// This number of consecutive weights of an output channel. Only linear layers and embeddings have groups.
    PerGroup(usize),
}

impl WeightSpec {
    /// 8 bits with a narrow range, and a scale for each output channel.
    pub const INT8: Self = Self { range: [-127, 127], scales: WeightScales::PerChannel, is_power_of_two: false };
    /// 4 bits, with a scale for each 32 consecutive weights.
    pub const INT4: Self = Self { range: [-8, 7], scales: WeightScales::PerGroup(32), is_power_of_two: false };

    /// Bits of an integer.
    pub const fn bits(&self) -> u32 {
        let [min, max] = self.range;
        let most = if -(min as i16) - 1 > max as i16 { -(min as i16) - 1 } else { max as i16 };
        i16::BITS - most.leading_zeros() + 1
    }

    /// Number of consecutive weights that share a scale, in a layer of `count` weights with `k` of them for each output.
    pub const fn group(&self, count: usize, k: usize) -> usize {
        match self.scales {
            WeightScales::PerTensor => count,
            WeightScales::PerChannel => k,
            WeightScales::PerGroup(size) => size,
        }
    }

    /// The scale itself, or the next power of two.
    pub fn scale(&self, scale: f32) -> f32 {
        if self.is_power_of_two { next_power_of_two(scale) } else { scale }
    }
}

/// The quantization of a layer's bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BiasSpec {
    Float,
    /// 32-bit integers. Their scale is the product of those of the input and the weights; therefore the input has a scale that
    /// is known before the program runs.
    Int32,
}

/// The quantization of a layer's constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    pub weight: WeightSpec,
    pub bias: BiasSpec,
}

/// The smallest power of two that is not below a positive number.
fn next_power_of_two(number: f32) -> f32 {
    const MANTISSA: u32 = (1 << 23) - 1;
    f32::from_bits((number.to_bits() + MANTISSA) & !MANTISSA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_always_a_number() {
        for spec in [ActivationSpec::INT8, ActivationSpec::UINT8] {
            let [min, max] = spec.range;
            for range in [(0.0, 6.0), (-3.0, 5.0), (-2.0, 0.0), (0.0, 0.0)] {
                let (scale, zero) = spec.parameters(range);
                assert!(scale > 0.0 && (min..=max).contains(&zero));
                let reaches = |number: f32| (number / scale).round() + zero as f32;
                assert!(reaches(range.0) >= min as f32 - 1.0 && reaches(range.1) <= max as f32 + 1.0, "{range:?}");
            }
        }
        assert_eq!(ActivationSpec::INT8.parameters((0.0, 255.0)), (1.0, -128));
        assert_eq!(ActivationSpec::UINT8.parameters((0.0, 255.0)), (1.0, 0));
    }

    #[test]
    fn scales_follow_ranges_down_to_the_epsilon_of_pytorch() {
        for scale in [1e-3f32, 1e-5, 2e-7] {
            let (got, zero) = ActivationSpec::INT8.parameters((0.0, 255.0 * scale));
            assert!((got / scale - 1.0).abs() < 1e-6 && zero == -128, "{got} for {scale}");
        }
        // torch.finfo(torch.float32).eps is the default of the observers.
        assert_eq!(ActivationSpec::INT8.parameters((0.0, 0.0)).0, f32::EPSILON);
    }

    #[test]
    fn symmetric_ranges_have_their_zero_in_the_middle() {
        let symmetric = ActivationSpec { is_symmetric: true, ..ActivationSpec::INT8 };
        assert_eq!(symmetric.parameters((-1.0, 255.0)), (2.0, 0));
        let narrow = ActivationSpec { range: [-127, 127], ..symmetric };
        assert_eq!(narrow.parameters((-254.0, 1.0)), (2.0, 0));
        assert_eq!(ActivationSpec { is_symmetric: true, ..ActivationSpec::UINT8 }.parameters((0.0, 127.5)), (1.0, 128));
        assert_eq!(ActivationSpec::INT16.parameters((0.0, 32767.0)), (1.0, 0));
        let shifts = ActivationSpec { is_power_of_two: true, ..symmetric };
        assert_eq!(shifts.parameters((-1.0, 127.5)), (1.0, 0));
        assert_eq!(shifts.parameters((-1.0, 128.0)), (2.0, 0));
    }

    #[test]
    fn specs_without_operators_are_refused() {
        for spec in [ActivationSpec::INT8, ActivationSpec::UINT8, ActivationSpec::INT16] {
            assert_eq!(spec.check(), Ok(()));
            assert_eq!(ActivationSpec { scales: ActivationScales::PerTensor, ..spec }.check(), Ok(()));
        }
        let with = |scales| ActivationSpec { scales, ..ActivationSpec::INT8 };
        assert_eq!(with(ActivationScales::PerToken).check(), Ok(()));
        assert_eq!(with(ActivationScales::Fixed { scale: 1.0 / 256.0, zero_point: -128 }).check(), Ok(()));
        let refused = [
            ActivationSpec { dtype: ScalarType::Float, ..ActivationSpec::INT8 },
            ActivationSpec { range: [0, 255], ..ActivationSpec::INT8 },
            ActivationSpec { range: [3, 3], ..ActivationSpec::INT8 },
            ActivationSpec { scales: ActivationScales::PerToken, ..ActivationSpec::UINT8 },
            ActivationSpec { is_power_of_two: true, ..with(ActivationScales::PerTensor) },
            with(ActivationScales::Fixed { scale: 0.0, zero_point: 0 }),
            with(ActivationScales::Fixed { scale: 1.0, zero_point: 128 }),
        ];
        assert!(refused.iter().all(|spec| spec.check().is_err()));
    }

    #[test]
    fn bits_hold_the_range() {
        let bits = |range| WeightSpec { range, ..WeightSpec::INT8 }.bits();
        assert_eq!([[-127, 127], [-128, 127], [-8, 7], [-7, 7], [-2, 1], [-1, 1]].map(bits), [8, 8, 4, 4, 2, 2]);
        assert_eq!((WeightSpec::INT8.group(12, 4), WeightSpec::INT4.group(128, 64)), (4, 32));
    }
}
