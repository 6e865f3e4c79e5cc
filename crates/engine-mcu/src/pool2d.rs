//! Pooling in two dimensions. Padding is no part of a window.

use crate::Mismatch;
use crate::image::{Image, Window};

/// A pooling operator over the windows of an image.
#[derive(Clone, Copy, Debug)]
pub struct Pool2d {
    pub input: Image,
    /// The shape of the output, with the channels of the input. Every window has at least one tap inside of the image.
    pub output: Image,
    pub window: Window,
    pub min: i8,
    /// Wins over `min`.
    pub max: i8,
}

impl Pool2d {
    fn is_valid(&self, x: &[i8], out: &[i8]) -> bool {
        let Self { input, output, window, .. } = *self;
        let is_filled = || {
            (0..output.height).all(|y| !window.rows.taps(y, input.height).0.is_empty())
                && (0..output.width).all(|x| !window.columns.taps(x, input.width).0.is_empty())
        };
        input.batch == output.batch
            && input.channels == output.channels
            && input.is_shape_of(x)
            && output.is_shape_of(out)
            && window.is_valid(&input, &output)
            // Sums of fewer elements fit into 32 bits.
            && window.taps().is_some_and(|taps| taps < 1 << 23)
            && is_filled()
    }

    /// Folds the taps of each output: `start` begins, `fold` adds an element, and `end` gets the number of taps.
    fn each(
        &self,
        x: &[i8],
        out: &mut [i8],
        start: i32,
        fold: impl Fn(i32, i32) -> i32,
        end: impl Fn(i32, i32) -> i32,
    ) -> Result<(), Mismatch> {
        Mismatch::unless(self.is_valid(x, out))?;
        let Self { input, window, .. } = *self;
        window.for_each_patch((&input, x), (&self.output, out), |patch, out| {
            let (rows, columns) = (patch.rows.len(), patch.columns.len());
            let count = (rows * columns) as i32;
            for (tile, out) in out.chunks_mut(LANES).enumerate() {
                let mut lanes = [start; LANES];
                let lanes = &mut lanes[..out.len()];
                for y in (0..rows).map(|i| patch.top + i * window.rows.dilation) {
                    for column in (0..columns).map(|i| patch.left + i * window.columns.dilation) {
                        let at = (y * input.width + column) * input.channels + LANES * tile;
                        for (lane, &x) in lanes.iter_mut().zip(&patch.x[at..at + out.len()]) {
                            *lane = fold(*lane, i32::from(x));
                        }
                    }
                }
                for (out, &lane) in out.iter_mut().zip(&*lanes) {
                    *out = end(lane, count).max(i32::from(self.min)).min(i32::from(self.max)) as i8;
                }
            }
        });
        Ok(())
    }
}

/// Number of channels that are computed together: their sums are on the stack.
const LANES: usize = 16;

/// Averages windows, rounded to the nearest integer, halves away from zero. The zero point has no part in it: input and
/// output share scale and zero point.
pub fn avg_pool2d(pool: &Pool2d, x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    let average = |sum: i32, count: i32| {
        let half = count / 2;
        (if sum > 0 { sum + half } else { sum - half }) / count
    };
    pool.each(x, out, 0, |sum, x| sum + x, average)
}

/// Computes the maximum of each window.
pub fn max_pool2d(pool: &Pool2d, x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    pool.each(x, out, i32::from(i8::MIN), i32::max, |max, _| max)
}
