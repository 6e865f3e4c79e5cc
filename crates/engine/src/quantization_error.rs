//! Error of symmetric quantization, for choosing scales.

use crate::Engine;
use crate::arch::{Kernel, LANES, Simd};

/// For each of some scales the sum of the squared errors of quantizing `x` (finite values) with it to integers of a range, which
/// contains zero, with round-to-nearest-even, on the calling thread. `weights`, one per element, weight the squares.
///
/// The same on every instruction set: 16 f32 sums, one for each lane.
///
/// # Panics
/// If there are fewer weights than elements.
pub fn quantization_errors<const N: usize>(
    engine: &Engine,
    scales: [f32; N],
    range: [f32; 2],
    x: &[f32],
    weights: Option<&[f32]>,
) -> [f32; N] {
    engine.dispatch.run(SquaredErrors { scales, range, x, weights: weights.map(|weights| &weights[..x.len()]) })
}

struct SquaredErrors<'a, const N: usize> {
    scales: [f32; N],
    range: [f32; 2],
    x: &'a [f32],
    weights: Option<&'a [f32]>,
}

impl<const N: usize> Kernel for SquaredErrors<'_, N> {
    type Out = [f32; N];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; N] {
        let [low, high] = self.range.map(|end| s.splat(end));
        let mut errors = [0.0; N];
        for (error, scale) in errors.iter_mut().zip(self.scales) {
            let (inverse, scale) = (s.splat(1.0 / scale), s.splat(scale));
            let mut sums = s.splat(0.0);
            for at in (0..self.x.len()).step_by(LANES) {
                // Lanes after the end are zero, which every scale has.
                let x = s.load_slice(&self.x[at..]);
                let integer = s.round(s.min(high, s.max(low, s.mul(x, inverse))));
                let away = s.sub(s.mul(integer, scale), x);
                let square = s.mul(away, away);
                sums = s.add(
                    sums,
                    match self.weights {
                        Some(weights) => s.mul(square, s.load_slice(&weights[at..])),
                        None => square,
                    },
                );
            }
            *error = s.to_array(sums).into_iter().sum();
        }
        errors
    }
}
