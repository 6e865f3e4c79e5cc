//! Transposed convolutions in two dimensions.

use crate::Mismatch;
use crate::dot::dot;
use crate::image::{Axis, Image, Window};
use crate::requantize::{Output, Scales, store};

/// A transposed convolution. The padding of the window is what the output lacks at its start.
#[derive(Clone, Copy, Debug)]
pub struct ConvTranspose2d<'a> {
    pub input: Image,
    pub output: Image,
    pub window: Window,
    /// `[output.channels, rows.kernel, columns.kernel, input.channels]`.
    pub weight: &'a [i8],
    /// For each output channel, or none for zeros.
    pub bias: Option<&'a [i32]>,
    pub scales: Scales<'a>,
    /// The negated zero point of the input.
    pub input_offset: i32,
    pub epilogue: Output,
}

impl ConvTranspose2d<'_> {
    fn is_valid(&self, x: &[i8], out: &[i8]) -> bool {
        let Self { input, output, window, .. } = *self;
        let weights = || window.taps()?.checked_mul(output.channels)?.checked_mul(input.channels);
        input.batch == output.batch
            && input.is_shape_of(x)
            && output.is_shape_of(out)
            && window.is_valid(&output, &input)
            && weights() == Some(self.weight.len())
            && self.bias.is_none_or(|bias| bias.len() == output.channels)
            && self.scales.cover(output.channels)
    }
}

/// Computes a transposed convolution: `x` has the shape `input`, `out` the shape `output`.
///
/// Each output gathers the inputs that reach it. No row is written twice, and none outside of the output.
pub fn conv_transpose2d(conv: &ConvTranspose2d<'_>, x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    Mismatch::unless(conv.is_valid(x, out))?;
    let ConvTranspose2d { input, output, .. } = *conv;
    if out.is_empty() {
        return Ok(());
    }
    for (row, out) in out.chunks_exact_mut(output.width * output.channels).enumerate() {
        let (image, y) = (row / output.height, row % output.height);
        let x = &x[image * input.size()..(image + 1) * input.size()];
        for (column, out) in out.chunks_exact_mut(output.channels).enumerate() {
            for (channel, out) in out.iter_mut().enumerate() {
                let sum = gather(conv, x, y, column, channel);
                store(&[sum], channel, &conv.scales, conv.epilogue, core::slice::from_mut(out));
            }
        }
    }
    Ok(())
}

/// The sum of one channel of the output at a row and a column.
fn gather(conv: &ConvTranspose2d<'_>, x: &[i8], row: usize, column: usize, channel: usize) -> i32 {
    let ConvTranspose2d { input, window, weight, input_offset, .. } = *conv;
    let mut sum = conv.bias.map_or(0, |bias| bias[channel]);
    for row_tap in 0..window.rows.kernel {
        let Some(y) = source(&window.rows, row, row_tap, input.height) else { continue };
        for column_tap in 0..window.columns.kernel {
            let Some(column) = source(&window.columns, column, column_tap, input.width) else { continue };
            let at = (y * input.width + column) * input.channels;
            let tap = (channel * window.rows.kernel + row_tap) * window.columns.kernel + column_tap;
            let x = &x[at..at + input.channels];
            sum = sum.wrapping_add(dot(x, &weight[tap * input.channels..], input_offset));
        }
    }
    sum
}

/// The input position that reaches output position `at` through `tap`.
fn source(axis: &Axis, at: usize, tap: usize, size: usize) -> Option<usize> {
    let distance = (at + axis.padding).checked_sub(tap * axis.dilation)?;
    let position = distance / axis.stride;
    (distance.is_multiple_of(axis.stride) && position < size).then_some(position)
}
