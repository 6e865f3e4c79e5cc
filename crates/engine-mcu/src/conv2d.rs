//! Convolutions in two dimensions.

use core::ops::Range;

use crate::Mismatch;
use crate::dot::{dot, dot4};
use crate::image::{Image, Window};
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
    let Conv2d { input, output, window, .. } = *conv;
    let row_size = output.width * output.channels;
    if out.is_empty() {
        return Ok(());
    }
    for (row, out) in out.chunks_exact_mut(row_size).enumerate() {
        let (image, y) = (row / output.height, row % output.height);
        let x = &x[image * input.size()..(image + 1) * input.size()];
        let (rows, top) = window.rows.taps(y, input.height);
        for (column, out) in out.chunks_exact_mut(output.channels).enumerate() {
            let (columns, left) = window.columns.taps(column, input.width);
            let patch = Patch { conv, x, rows: rows.clone(), top, columns, left };
            patch.pixel(out);
        }
    }
    Ok(())
}

/// The part of a window that lies inside of the image.
struct Patch<'a> {
    conv: &'a Conv2d<'a>,
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
    /// Computes all channels of one output position.
    fn pixel(&self, out: &mut [i8]) {
        let channels = self.conv.output.channels / self.conv.groups;
        for (group, out) in out.chunks_exact_mut(channels).enumerate() {
            for (block, out) in out.chunks_mut(4).enumerate() {
                let first = group * channels + 4 * block;
                let mut sums = [0; 4];
                let sums = &mut sums;
                if let Some(bias) = self.conv.bias {
                    sums[..out.len()].copy_from_slice(&bias[first..first + out.len()]);
                }
                self.accumulate(group, first, out.len(), sums);
                store(&sums[..out.len()], first, &self.conv.scales, self.conv.epilogue, out);
            }
        }
    }

    /// Adds the sums of `count` output channels, 1 to 4, from `first` on.
    fn accumulate(&self, group: usize, first: usize, count: usize, sums: &mut [i32; 4]) {
        let Conv2d { input, window, weight, input_offset, .. } = *self.conv;
        let depth = input.channels / self.conv.groups;
        let filter = window.rows.kernel * window.columns.kernel * depth;
        // Neighbouring taps are one run of elements, unless there are gaps between them.
        let is_dense = window.columns.dilation == 1 && self.conv.groups == 1;
        let taps = self.columns.len();
        let (runs, length) = if is_dense { (taps.min(1), taps * depth) } else { (taps, depth) };
        for (i, row) in self.rows.clone().enumerate() {
            let y = self.top + i * window.rows.dilation;
            for run in 0..runs {
                let column = self.left + run * window.columns.dilation;
                let at = (y * input.width + column) * input.channels + group * depth;
                let tap = row * window.columns.kernel + self.columns.start + run;
                let x = &self.x[at..at + length];
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
