//! Convolutions with as many groups as input channels.

use core::ops::Range;

use crate::Mismatch;
use crate::image::{Image, Window};
use crate::requantize::{Output, Scales, store};

/// A depthwise convolution. Each input channel gives `output.channels / input.channels` output channels.
#[derive(Clone, Copy, Debug)]
pub struct Depthwise2d<'a> {
    pub input: Image,
    /// The shape of the output. Its channels are a multiple of the input's.
    pub output: Image,
    pub window: Window,
    /// `[rows.kernel, columns.kernel, output.channels]`.
    pub weight: &'a [i8],
    /// For each output channel, or none for zeros.
    pub bias: Option<&'a [i32]>,
    pub scales: Scales<'a>,
    /// The negated zero point of the input.
    pub input_offset: i32,
    pub epilogue: Output,
}

impl Depthwise2d<'_> {
    fn is_valid(&self, x: &[i8], out: &[i8]) -> bool {
        let Self { input, output, window, .. } = *self;
        input.channels > 0
            && output.channels.is_multiple_of(input.channels)
            && input.batch == output.batch
            && input.is_shape_of(x)
            && output.is_shape_of(out)
            && window.is_valid(&input, &output)
            && window.taps().and_then(|taps| taps.checked_mul(output.channels)) == Some(self.weight.len())
            && self.bias.is_none_or(|bias| bias.len() == output.channels)
            && self.scales.cover(output.channels)
    }
}

/// Number of output channels that are computed together: their sums are on the stack.
const LANES: usize = 16;

/// Computes a depthwise convolution: `x` has the shape `input`, `out` the shape `output`.
pub fn depthwise2d(conv: &Depthwise2d<'_>, x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    Mismatch::unless(conv.is_valid(x, out))?;
    let Depthwise2d { input, output, window, .. } = *conv;
    if out.is_empty() {
        return Ok(());
    }
    let multiplier = output.channels / input.channels;
    for (row, out) in out.chunks_exact_mut(output.width * output.channels).enumerate() {
        let (image, y) = (row / output.height, row % output.height);
        let x = &x[image * input.size()..(image + 1) * input.size()];
        let (rows, top) = window.rows.taps(y, input.height);
        for (column, out) in out.chunks_exact_mut(output.channels).enumerate() {
            let (columns, left) = window.columns.taps(column, input.width);
            let patch = Patch { conv, x, rows: rows.clone(), top, columns, left };
            if multiplier == 1 {
                for (tile, out) in out.chunks_mut(LANES).enumerate() {
                    patch.tile(LANES * tile, LANES * tile, false, out);
                }
            } else {
                for (channel, out) in out.chunks_exact_mut(multiplier).enumerate() {
                    for (tile, out) in out.chunks_mut(LANES).enumerate() {
                        patch.tile(channel, channel * multiplier + LANES * tile, true, out);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The part of a window that lies inside of the image.
struct Patch<'a> {
    conv: &'a Depthwise2d<'a>,
    /// One image.
    x: &'a [i8],
    rows: Range<usize>,
    /// The row under the first tap.
    top: usize,
    columns: Range<usize>,
    /// The column under the first tap.
    left: usize,
}

impl Patch<'_> {
    /// Computes the output channels from `first` on, at most [`LANES`]. They read the input channels from `channel` on, or
    /// that one alone if it `is_shared`.
    fn tile(&self, channel: usize, first: usize, is_shared: bool, out: &mut [i8]) {
        let Depthwise2d { input, output, window, weight, input_offset, .. } = *self.conv;
        let lanes = out.len();
        let mut sums = [0i32; LANES];
        let sums = &mut sums[..lanes];
        if let Some(bias) = self.conv.bias {
            sums.copy_from_slice(&bias[first..first + lanes]);
        }
        for (i, row) in self.rows.clone().enumerate() {
            let y = self.top + i * window.rows.dilation;
            for (j, column) in self.columns.clone().enumerate() {
                let column_of_x = self.left + j * window.columns.dilation;
                let at = (y * input.width + column_of_x) * input.channels + channel;
                let tap = row * window.columns.kernel + column;
                let w = &weight[tap * output.channels + first..][..lanes];
                if is_shared {
                    let x = i32::from(self.x[at]).wrapping_add(input_offset);
                    for (sum, &w) in sums.iter_mut().zip(w) {
                        *sum = sum.wrapping_add(x.wrapping_mul(i32::from(w)));
                    }
                } else {
                    for ((sum, &x), &w) in sums.iter_mut().zip(&self.x[at..at + lanes]).zip(w) {
                        let x = i32::from(x).wrapping_add(input_offset);
                        *sum = sum.wrapping_add(x.wrapping_mul(i32::from(w)));
                    }
                }
            }
        }
        store(sums, first, &self.conv.scales, self.conv.epilogue, out);
    }
}
