//! Convolutions with as many groups as input channels.

use crate::Mismatch;
use crate::image::{Image, Patch, Window};
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
    // A valid shape has channels.
    let multiplier = conv.output.channels / conv.input.channels;
    conv.window.for_each_patch((&conv.input, x), (&conv.output, out), |patch, out| {
        if multiplier == 1 {
            for (tile, out) in out.chunks_mut(LANES).enumerate() {
                conv.tile(patch, LANES * tile, LANES * tile, false, out);
            }
        } else {
            for (channel, out) in out.chunks_exact_mut(multiplier).enumerate() {
                for (tile, out) in out.chunks_mut(LANES).enumerate() {
                    conv.tile(patch, channel, channel * multiplier + LANES * tile, true, out);
                }
            }
        }
    });
    Ok(())
}

impl Depthwise2d<'_> {
    /// Computes the output channels from `first` on, at most [`LANES`]. They read the input channels from `channel` on, or
    /// that one alone if it `is_shared`.
    fn tile(&self, patch: &Patch<'_>, channel: usize, first: usize, is_shared: bool, out: &mut [i8]) {
        let Depthwise2d { input, output, window, weight, input_offset, .. } = *self;
        let lanes = out.len();
        let mut sums = [0i32; LANES];
        let sums = &mut sums[..lanes];
        if let Some(bias) = self.bias {
            sums.copy_from_slice(&bias[first..first + lanes]);
        }
        for (i, row) in patch.rows.clone().enumerate() {
            let y = patch.top + i * window.rows.dilation;
            for (j, column) in patch.columns.clone().enumerate() {
                let column_of_x = patch.left + j * window.columns.dilation;
                let at = (y * input.width + column_of_x) * input.channels + channel;
                let tap = row * window.columns.kernel + column;
                let w = &weight[tap * output.channels + first..][..lanes];
                if is_shared {
                    let x = i32::from(patch.x[at]).wrapping_add(input_offset);
                    for (sum, &w) in sums.iter_mut().zip(w) {
                        *sum = sum.wrapping_add(x.wrapping_mul(i32::from(w)));
                    }
                } else {
                    for ((sum, &x), &w) in sums.iter_mut().zip(&patch.x[at..at + lanes]).zip(w) {
                        let x = i32::from(x).wrapping_add(input_offset);
                        *sum = sum.wrapping_add(x.wrapping_mul(i32::from(w)));
                    }
                }
            }
        }
        store(sums, first, &self.scales, self.epilogue, out);
    }
}
