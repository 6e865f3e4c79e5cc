//! Fixed-point factors, as gemmlowp and TensorFlow Lite define them, and the last step of a kernel.

/// The factor `multiplier / 2^31 * 2^shift`.
///
/// A normalized factor has a multiplier of at least `2^30`; zero is `(0, 0)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub multiplier: i32,
    /// From -31 to 30. Other values count modulo 32.
    pub shift: i32,
}

impl Scale {
    /// Multiplies and rounds twice: `value * 2^shift * multiplier / 2^31` to the nearest integer, halves up, and for a
    /// negative shift the quotient by `2^-shift` to the nearest, halves away from zero. Wraps in 32 bits.
    #[inline]
    #[must_use]
    pub const fn apply(self, value: i32) -> i32 {
        let (left, right) = if self.shift > 0 { (self.shift, 0) } else { (0, self.shift.wrapping_neg()) };
        let product = value.wrapping_shl(left as u32) as i64 * self.multiplier as i64;
        divide_by_power_of_two(((product + (1 << 30)) >> 31) as i32, right as u32)
    }
}

/// `value / 2^exponent`, rounded to the nearest integer, halves away from zero. The exponent counts modulo 32.
#[inline]
pub(crate) const fn divide_by_power_of_two(value: i32, exponent: u32) -> i32 {
    let mask = 1i32.wrapping_shl(exponent).wrapping_sub(1);
    let quotient = value.wrapping_shr(exponent);
    let threshold = (mask >> 1) + (quotient < 0) as i32;
    quotient + ((value & mask) > threshold) as i32
}

/// The factors of the output channels of a layer.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// One factor for all channels.
    Tensor(Scale),
    /// `multipliers[o]` and `shifts[o]` for channel `o`.
    Channels { multipliers: &'a [i32], shifts: &'a [i32] },
}

impl Scales<'_> {
    /// True if there is a factor for each of `channels`.
    pub(crate) fn cover(&self, channels: usize) -> bool {
        match self {
            Self::Tensor(_) => true,
            Self::Channels { multipliers, shifts } => multipliers.len() == channels && shifts.len() == channels,
        }
    }

    #[inline]
    pub(crate) fn get(&self, channel: usize) -> Scale {
        match self {
            Self::Tensor(scale) => *scale,
            Self::Channels { multipliers, shifts } => {
                Scale { multiplier: multipliers[channel], shift: shifts[channel] }
            }
        }
    }
}

/// The zero point of an output and the range that a fused activation leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// The zero point.
    pub offset: i32,
    pub min: i8,
    /// Wins over `min`.
    pub max: i8,
}

impl Output {
    /// Adds the zero point, with wrap, and clamps.
    #[inline]
    #[must_use]
    pub const fn clamp(self, value: i32) -> i8 {
        let value = value.wrapping_add(self.offset);
        if value > self.max as i32 || self.min > self.max {
            self.max
        } else if value < self.min as i32 {
            self.min
        } else {
            value as i8
        }
    }
}

/// The sums of a layer to its outputs: `sums` are those of the channels from `first` on.
#[inline]
pub(crate) fn store(sums: &[i32], first: usize, scales: &Scales<'_>, output: Output, out: &mut [i8]) {
    for (i, (out, &sum)) in out.iter_mut().zip(sums).enumerate() {
        *out = output.clamp(scales.get(first + i).apply(sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition in 128 bits, without shifts of negative numbers.
    fn wide(value: i32, scale: Scale) -> i32 {
        let left = i128::from(value.wrapping_shl(scale.shift.max(0) as u32));
        let high = (left * i128::from(scale.multiplier) + (1 << 30)).div_euclid(1 << 31);
        let divisor = 1i128 << (-scale.shift).max(0);
        let magnitude = (2 * high.abs() + divisor) / (2 * divisor);
        (magnitude * high.signum()) as i32
    }

    #[test]
    fn equals_the_wide_definition() {
        let edges =
            [i32::MIN, i32::MIN + 1, -(1 << 30), -65537, -3, -2, -1, 0, 1, 2, 3, 255, 1 << 20, 1 << 30, i32::MAX];
        let multipliers = [0, 1, 1 << 30, (1 << 30) + 1, 1_717_986_918, i32::MAX - 1, i32::MAX];
        let mut state = 1u32;
        for shift in -31..=30 {
            for value in edges {
                for multiplier in multipliers {
                    let scale = Scale { multiplier, shift };
                    assert_eq!(scale.apply(value), wide(value, scale), "{value} {scale:?}");
                }
            }
            for _ in 0..1000 {
                let mut next = || {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    state
                };
                let value = next() as i32 >> (next() >> 27);
                let scale = Scale { multiplier: (next() >> 1) as i32, shift };
                assert_eq!(scale.apply(value), wide(value, scale), "{value} {scale:?}");
            }
        }
    }

    /// With values below 2^30, normalized multipliers and shifts down to -30, one rounding of the doubled product, and one addition before the
    /// shift, give the same bits.
    #[test]
    fn equals_the_form_with_one_high_product() {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        };
        for _ in 0..20_000 {
            let value = next() as i32 >> (2 + (next() >> 28));
            let multiplier = ((next() >> 2) | 1 << 30) as i32;
            let exponent = next() % 31;
            let high = ((i64::from(2 * value) * i64::from(multiplier) + (1 << 31)) >> 32) as i32;
            let nudge = if exponent > 0 { (high >> 31) + ((1 << exponent) >> 1) } else { 0 };
            let scale = Scale { multiplier, shift: -(exponent as i32) };
            assert_eq!(scale.apply(value), high.wrapping_add(nudge) >> exponent, "{value} {scale:?}");
        }
    }

    #[test]
    fn the_upper_bound_wins() {
        let output = Output { offset: 3, min: -5, max: 5 };
        assert_eq!([-9, -8, 0, 2, 3, i32::MAX].map(|x| output.clamp(x)), [-5, -5, 3, 5, 5, -5]);
        assert_eq!(Output { min: 6, ..output }.clamp(-100), 5);
    }
}
