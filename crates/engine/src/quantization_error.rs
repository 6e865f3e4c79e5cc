//! Error of symmetric quantization, for choosing scales.

use crate::Engine;
use crate::arch::{Kernel, LANES, Simd};

/// The representable values: `scale` times the integers of a range.
#[derive(Debug, Clone, Copy)]
pub struct QuantizationGrid {
    pub scale: f32,
    /// Smallest and largest integer; contains zero.
    pub range: [f32; 2],
}

/// Sum of the squared errors of quantizing `x` (finite values) to a grid with round-to-nearest-even, on the calling
/// thread. `weights`, one per element, weight the squares.
///
/// The same on every instruction set: 16 f32 sums, one for each lane.
///
/// # Panics
/// If there are fewer weights than elements.
pub fn quantization_error(engine: &Engine, grid: QuantizationGrid, x: &[f32], weights: Option<&[f32]>) -> f32 {
    engine.dispatch.run(SquaredErrors { grid, x, weights: weights.map(|weights| &weights[..x.len()]) })
}

struct SquaredErrors<'a> {
    grid: QuantizationGrid,
    x: &'a [f32],
    weights: Option<&'a [f32]>,
}

impl Kernel for SquaredErrors<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let QuantizationGrid { scale, range } = self.grid;
        let (inverse, scale, [low, high]) = (s.splat(1.0 / scale), s.splat(scale), range.map(|end| s.splat(end)));
        let mut sums = s.splat(0.0);
        for at in (0..self.x.len()).step_by(LANES) {
            // Lanes after the end are zero, which is on the grid.
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
        s.to_array(sums).into_iter().sum()
    }
}
