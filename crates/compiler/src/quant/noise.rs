//! How far numbers are off.

use super::report::decibels;

/// The squares of numbers and of their errors, and the errors of each channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Noise {
    /// The dimension of channels; the last if `None`.
    axis: Option<usize>,
    signal: f64,
    noise: f64,
    errors: Vec<Errors>,
}

/// Of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Noise {
    /// Of results that have their channels in this dimension; the last if `None`.
    pub fn by_axis(axis: Option<usize>) -> Self {
        Self { axis, ..Self::default() }
    }

    /// Adds a result and what came instead.
    pub fn add(&mut self, sizes: &[usize], floats: &[f32], integers: &[f32]) {
        let axis = self.axis.unwrap_or(sizes.len().saturating_sub(1));
        let channels = sizes.get(axis).copied().unwrap_or(1).max(1);
        let inner: usize = sizes.get(axis + 1..).unwrap_or_default().iter().product();
        self.errors.resize(channels, Errors::default());
        let rows = floats.chunks(inner.max(1)).zip(integers.chunks(inner.max(1)));
        for (index, (floats, integers)) in rows.enumerate() {
            let (mut signal, mut sum, mut squares) = (0.0, 0.0, 0.0);
            for (float, integer) in floats.iter().zip(integers) {
                let (float, error) = (f64::from(*float), f64::from(float - integer));
                signal += float * float;
                sum += error;
                squares += error * error;
            }
            self.signal += signal;
            self.noise += squares;
            let errors = &mut self.errors[index % channels];
            errors.count += floats.len() as u64;
            errors.sum += sum;
            errors.squares += squares;
        }
    }

    /// Adds what another has seen of other results.
    pub fn merge(&mut self, other: &Self) {
        self.signal += other.signal;
        self.noise += other.noise;
    }

    /// Signal to noise in dB; `None` without either.
    pub fn ratio(&self) -> Option<f64> {
        decibels(self.signal, self.noise)
    }

    pub fn channels(&self) -> usize {
        self.errors.len()
    }

    /// What each channel is too small by on average, where that is more than chance, and counts the noise as if it were
    /// added.
    pub fn correct(&mut self) -> Vec<f32> {
        let correction = |errors: &mut Errors| {
            let count = errors.count.max(1) as f64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_channels_are_corrected() {
        // Two pictures of two channels with three elements; the second channel is always 0.5 too small.
        let floats: Vec<f32> = (0..12u8).map(f32::from).collect();
        let integers: Vec<f32> = (0..12u8)
            .map(|at| f32::from(at) - if at / 3 % 2 == 1 { 0.5 } else { [0.1, -0.1, 0.0][usize::from(at % 3)] })
            .collect();
        let mut noise = Noise::by_axis(Some(1));
        noise.add(&[2, 2, 3], &floats, &integers);
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
}
