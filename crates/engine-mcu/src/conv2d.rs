//! Convolutions in two dimensions.

use crate::Mismatch;
use crate::dot::{dot, dot4};
use crate::image::{Image, Patch, Window};
use crate::requantize::{Output, Scales, store};

/// A convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv2d<'a> {
    pub input: Image,
    /// The shape of the output. Its channels are a multiple of the groups.
    pub output: Image,
    pub window: Window,
    /// Divides the channels of the input and of the output.
    pub groups: usize,
    /// `[output.channels, rows.kernel, columns.kernel, input.channels / groups]`.
    pub weight: &'a [i8],
    /// For each output channel, or none for zeros.
    pub bias: Option<&'a [i32]>,
    pub scales: Scales<'a>,
    /// The negated zero point of the input.
    pub input_offset: i32,
    pub epilogue: Output,
}

impl Conv2d<'_> {
    fn is_valid(&self, x: &[i8], out: &[i8]) -> bool {
        let Self { input, output, window, groups, .. } = *self;
        let divides = |channels: usize| groups > 0 && channels.is_multiple_of(groups);
        let weights = || window.taps()?.checked_mul(output.channels)?.checked_mul(input.channels / groups);
        divides(input.channels)
            && divides(output.channels)
            && input.batch == output.batch
            && input.is_shape_of(x)
            && output.is_shape_of(out)
            && window.is_valid(&input, &output)
            && weights() == Some(self.weight.len())
            && self.bias.is_none_or(|bias| bias.len() == output.channels)
            && self.scales.cover(output.channels)
    }
}

/// Computes a convolution: `x` has the shape `input`, `out` the shape `output`.
pub fn conv2d(conv: &Conv2d<'_>, x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    Mismatch::unless(conv.is_valid(x, out))?;
    conv.window.for_each_patch((&conv.input, x), (&conv.output, out), |patch, out| conv.pixel(patch, out));
    Ok(())
}

impl Conv2d<'_> {
    /// Computes all channels of one output position.
    fn pixel(&self, patch: &Patch<'_>, out: &mut [i8]) {
        let channels = self.output.channels / self.groups;
        for (group, out) in out.chunks_exact_mut(channels).enumerate() {
            for (block, out) in out.chunks_mut(4).enumerate() {
                let first = group * channels + 4 * block;
                let mut sums = [0; 4];
                let sums = &mut sums;
                if let Some(bias) = self.bias {
                    sums[..out.len()].copy_from_slice(&bias[first..first + out.len()]);
                }
                self.accumulate(patch, group, first, out.len(), sums);
                store(&sums[..out.len()], first, &self.scales, self.epilogue, out);
            }
        }
    }

    /// Adds the sums of `count` output channels, 1 to 4, from `first` on.
    fn accumulate(&self, patch: &Patch<'_>, group: usize, first: usize, count: usize, sums: &mut [i32; 4]) {
        let Conv2d { input, window, weight, input_offset, .. } = *self;
        let depth = input.channels / self.groups;
        let filter = window.rows.kernel * window.columns.kernel * depth;
        // Neighbouring taps are one run of elements, unless there are gaps between them.
        let is_dense = window.columns.dilation == 1 && self.groups == 1;
        let taps = patch.columns.len();
        let (runs, length) = if is_dense { (taps.min(1), taps * depth) } else { (taps, depth) };
        for (i, row) in patch.rows.clone().enumerate() {
            let y = patch.top + i * window.rows.dilation;
            for run in 0..runs {
                let column = patch.left + run * window.columns.dilation;
                let at = (y * input.width + column) * input.channels + group * depth;
                let tap = row * window.columns.kernel + patch.columns.start + run;
                let x = &patch.x[at..at + length];
                let w = &weight[first * filter + tap * depth..];
                if count == 4 {
                    dot4(sums, x, w, filter, input_offset);
                } else {
                    for (i, sum) in sums[..count].iter_mut().enumerate() {
                        *sum = sum.wrapping_add(dot(x, &w[i * filter..], input_offset));
                    }
                }
            }
        }
    }
}
