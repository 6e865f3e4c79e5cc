//! Linear layers: a matrix of rows by a transposed matrix of weights.

use crate::Mismatch;
use crate::dot::{dot, dot4};
use crate::requantize::{Output, Scales, store};

/// A linear layer. A batched matmul is one for each batch, with the other matrix as the weight.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// Elements of a row of the input.
    pub inner: usize,
    pub outputs: usize,
    /// `[outputs, inner]`.
    pub weight: &'a [i8],
    /// For each output, or none for zeros.
    pub bias: Option<&'a [i32]>,
    pub scales: Scales<'a>,
    /// Is added to inputs: the negated zero point. Zero if the bias already contains it, as CMSIS-NN's `kernel_sum` does.
    pub input_offset: i32,
    /// Is added to weights.
    pub weight_offset: i32,
    pub output: Output,
}

impl Linear<'_> {
    fn is_valid(&self, rows: usize, out: &[i8]) -> bool {
        let length = |a: usize, b: usize| a.checked_mul(b);
        length(self.outputs, self.inner) == Some(self.weight.len())
            && length(rows, self.outputs) == Some(out.len())
            && self.bias.is_none_or(|bias| bias.len() == self.outputs)
            && self.scales.cover(self.outputs)
    }
}

/// Computes rows of outputs: `x` is `[rows, inner]`, `out` is `[rows, outputs]`.
pub fn linear(layer: &Linear<'_>, x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    if layer.outputs == 0 {
        return Mismatch::unless(out.is_empty());
    }
    let rows = out.len() / layer.outputs;
    Mismatch::unless(layer.is_valid(rows, out) && rows.checked_mul(layer.inner) == Some(x.len()))?;
    for (row, out) in out.chunks_exact_mut(layer.outputs).enumerate() {
        let x = &x[row * layer.inner..(row + 1) * layer.inner];
        // The part of the sum that the offset of the weights gives, equal for all outputs.
        let common = match layer.weight_offset {
            0 => 0,
            offset => x
                .iter()
                .fold(0i32, |sum, &x| sum.wrapping_add(i32::from(x)).wrapping_add(layer.input_offset))
                .wrapping_mul(offset),
        };
        row_of_outputs(layer, x, common, out);
    }
    Ok(())
}

fn row_of_outputs(layer: &Linear<'_>, x: &[i8], common: i32, out: &mut [i8]) {
    let Linear { inner, weight, bias, input_offset, .. } = *layer;
    let start = |o: usize| common.wrapping_add(bias.map_or(0, |bias| bias[o]));
    for (block, out) in out.chunks_mut(4).enumerate() {
        let o = 4 * block;
        let weight = &weight[o * inner..];
        let mut sums = [0; 4];
        for (i, sum) in sums[..out.len()].iter_mut().enumerate() {
            *sum = start(o + i);
        }
        if out.len() == 4 {
            dot4(&mut sums, x, weight, inner, input_offset);
        } else {
            for (i, sum) in sums[..out.len()].iter_mut().enumerate() {
                *sum = sum.wrapping_add(dot(x, &weight[i * inner..], input_offset));
            }
        }
        store(&sums[..out.len()], o, &layer.scales, layer.output, out);
    }
}
