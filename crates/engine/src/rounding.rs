//! What becomes of numbers that are rounded to integers.

use crate::Engine;
use crate::arch::{Job, LANES, Simd};

/// The numbers that integers stand for: each times the scale.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    pub scale: f32,
    /// The integers, with zero among them.
    pub range: [f32; 2],
}

/// The sum of the squares of what `x`, finite numbers, are away from the nearest ones of a grid (of two, from the even one), by
/// the calling thread alone. With `weights`, each square counts as often as the weight at its place says; there are as many.
///
/// The sum is the same on every instruction set: it is that of 16 sums of f32, of each 16th square.
///
/// # Panics
/// When there are fewer weights.
pub fn rounding_error(engine: &Engine, grid: Grid, x: &[f32], weights: Option<&[f32]>) -> f32 {
    engine.level.run(Squares { grid, x, weights: weights.map(|weights| &weights[..x.len()]) })
}

struct Squares<'a> {
    grid: Grid,
    x: &'a [f32],
    weights: Option<&'a [f32]>,
}

impl Job for Squares<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let Grid { scale, range } = self.grid;
        let (inverse, scale, [least, greatest]) = (s.splat(1.0 / scale), s.splat(scale), range.map(|end| s.splat(end)));
        let mut sums = s.splat(0.0);
        for at in (0..self.x.len()).step_by(LANES) {
            // What follows the end are zeros, which are numbers of the grid.
            let x = s.read(&self.x[at..]);
            let integer = s.round(s.min(greatest, s.max(least, s.mul(x, inverse))));
            let away = s.sub(s.mul(integer, scale), x);
            let square = s.mul(away, away);
            sums = s.add(
                sums,
                match self.weights {
                    Some(weights) => s.mul(square, s.read(&weights[at..])),
                    None => square,
                },
            );
        }
        s.lanes(sums).into_iter().sum()
    }
}
