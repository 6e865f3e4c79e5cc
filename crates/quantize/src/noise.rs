//! The noise of quantized results: signal-to-noise ratio and bias per channel.

use super::report::decibels;

/// The squares of numbers and of their errors, and the errors of each channel, which are the last dimension.
#[derive(Clone, Debug, Default)]
pub(super) struct Noise {
    signal: f64,
    noise: f64,
    /// Number of elements of each channel.
    rows: u64,
    errors: Vec<Errors>,
}

/// Of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    sum: f64,
    squares: f64,
}

impl Noise {
    /// Adds a result and what came instead.
    pub fn add(&mut self, sizes: &[usize], floats: &[f32], integers: &[f32]) {
        const LANES: usize = 16;
        /// Rows whose sums are in 32 bits.
        const ROWS: usize = 32;
        let channels = sizes.last().copied().unwrap_or(1).max(1);
        self.errors.resize(channels, Errors::default());
        let vectors = channels / LANES * LANES;
        for (floats, integers) in floats.chunks(ROWS * channels).zip(integers.chunks(ROWS * channels)) {
            for first in (0..vectors).step_by(LANES) {
                self.add_channels::<LANES>(first, channels, floats, integers);
            }
            for first in vectors..channels {
                self.add_channels::<1>(first, channels, floats, integers);
            }
            self.rows += (floats.len() / channels) as u64;
        }
    }

    /// Adds `N` channels of a few rows.
    fn add_channels<const N: usize>(&mut self, first: usize, channels: usize, floats: &[f32], integers: &[f32]) {
        let (mut signals, mut sums, mut squares) = ([0.0f32; N], [0.0f32; N], [0.0f32; N]);
        for (floats, integers) in floats.chunks_exact(channels).zip(integers.chunks_exact(channels)) {
            let (Some(floats), Some(integers)) =
                (floats[first..].first_chunk::<N>(), integers[first..].first_chunk::<N>())
            else {
                continue;
            };
            for at in 0..N {
                let error = floats[at] - integers[at];
                signals[at] += floats[at] * floats[at];
                sums[at] += error;
                squares[at] += error * error;
            }
        }
        for at in 0..N {
            let errors = &mut self.errors[first + at];
            errors.sum += f64::from(sums[at]);
            errors.squares += f64::from(squares[at]);
            self.signal += f64::from(signals[at]);
            self.noise += f64::from(squares[at]);
        }
    }

    /// Accumulates the noise of another call of the layer.
    pub fn merge(&mut self, other: &Self) {
        self.signal += other.signal;
        self.noise += other.noise;
    }

    /// Signal to noise in dB; `None` without either.
    pub fn ratio(&self) -> Option<f64> {
        decibels(self.signal, self.noise)
    }

    /// Number of elements.
    pub fn elements(&self) -> f64 {
        self.rows as f64 * self.errors.len() as f64
    }

    pub fn channels(&self) -> usize {
        self.errors.len()
    }

    /// Returns the bias of each channel, where it is significant, and counts the noise as if it were
    /// added.
    pub fn correct(&mut self) -> Vec<f32> {
        let count = self.rows.max(1) as f64;
        let correction = |errors: &mut Errors| {
            let mean = errors.sum / count;
            let variance = (errors.squares / count - mean * mean).max(0.0);
            if mean * mean * count <= 4.0 * variance {
                return 0.0;
            }
            self.noise -= mean * mean * count;
            mean as f32
        };
        let corrections = self.errors.iter_mut().map(correction).collect();
        self.noise = self.noise.max(0.0);
        corrections
    }
}

/// Signal and noise of a quantized output, over the elements that are finite in floats.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deviation {
    signal: f64,
    noise: f64,
    /// Count of elements that are NaN or infinite, but finite in floats.
    pub non_finite: u64,
}

impl Deviation {
    /// Accumulates an output in floats and its quantized counterpart. Elements that are not finite in floats, such as those of
    /// a mask, are ignored.
    pub fn add(&mut self, floats: &[f32], integers: &[f32]) {
        for (float, integer) in floats.iter().zip(integers).filter(|(float, _)| float.is_finite()) {
            let (float, integer) = (f64::from(*float), f64::from(*integer));
            self.signal += float * float;
            if integer.is_finite() {
                self.noise += (float - integer) * (float - integer);
            } else {
                self.non_finite += 1;
            }
        }
    }

    /// Accumulates another deviation.
    pub fn merge(&mut self, other: &Self) {
        self.signal += other.signal;
        self.noise += other.noise;
        self.non_finite += other.non_finite;
    }

    /// Signal to noise in dB; `None` without either.
    pub fn ratio(&self) -> Option<f64> {
        decibels(self.signal, self.noise)
    }

    /// True if the signal-to-noise is at least `least` dB, or there is no noise.
    pub fn reaches(&self, least: f64) -> bool {
        self.non_finite == 0 && self.ratio().is_none_or(|ratio| ratio >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_channels_are_corrected() {
        // Six rows of two channels; the second channel is always 0.5 too small.
        let floats: Vec<f32> = (0..12u8).map(f32::from).collect();
        let off = |at: usize| if at % 2 == 1 { 0.5 } else { [0.1, -0.1, 0.0][at / 2 % 3] };
        let integers: Vec<f32> = floats.iter().enumerate().map(|(at, float)| float - off(at)).collect();
        let mut noise = Noise::default();
        noise.add(&[2, 3, 2], &floats, &integers);
        let before = noise.ratio().unwrap();
        let corrections = noise.correct();
        assert_eq!(corrections[0], 0.0);
        assert!((corrections[1] - 0.5).abs() < 1e-6);
        assert!(noise.ratio().unwrap() > before + 10.0);
        let mut last = Noise::default();
        last.add(&[3, 4], &floats, &floats);
        assert_eq!((last.channels(), last.ratio()), (4, Some(f64::INFINITY)));
        assert_eq!(Noise::default().ratio(), None);
    }

    #[test]
    fn elements_that_are_not_finite_in_floats_are_no_signal() {
        let mut masked = Deviation::default();
        masked.add(&[1.0, f32::NEG_INFINITY, f32::NAN], &[1.1, f32::NEG_INFINITY, 0.0]);
        assert!(masked.ratio().is_some_and(|ratio| (ratio - 20.0).abs() < 1e-3) && masked.reaches(19.0));
        let mut broken = Deviation::default();
        broken.add(&[1.0, 2.0], &[1.0, f32::NAN]);
        assert_eq!((broken.non_finite, broken.reaches(0.0)), (1, false));
        assert!(Deviation::default().reaches(200.0));
    }
}
