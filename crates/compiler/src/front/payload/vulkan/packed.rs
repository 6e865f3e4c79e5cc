//! Packed weights of quantized layers, as the integers and scales of PyTorch's operators.

use rushlight_format::ScalarType;
use rushlight_graph::operators::quantized_decomposed;
use rushlight_graph::{Arg, Constant, Error, TensorType, ValueId};

use super::calls::{Calls, last_size};

impl Calls<'_, '_> {
    /// Weights of 8 bits with a scale for each row. Integers may have padding behind their rows, and so may scales.
    pub fn channel_weights(&mut self, weight: u32, scales: u32) -> Result<ValueId, Error> {
        let (sizes, integers) = self.values.constant(weight, self.site)?;
        let [rows, columns] = sizes[..] else { return Err(Error::invalid("weights of a layer that are no matrix")) };
        let integers = integers.to_vec();
        self.dequantized_channels(integers, &[rows, columns], scales, [-128, 127])
    }

    /// Weights of 4 bits with a scale for each row: two in a byte, the first in its high bits, and 8 above their values.
    pub fn channel_weights_of_4_bits(&mut self, x: ValueId, weight: u32, scales: u32) -> Result<ValueId, Error> {
        let columns = self.columns(x)?;
        let (sizes, packed) = self.values.constant(weight, self.site)?;
        let integers = unpacked(&sizes, &packed, columns, [4, 0])?;
        self.dequantized_channels(integers, &[sizes[0], columns], scales, [-8, 7])
    }

    fn dequantized_channels(
        &mut self,
        integers: Vec<u8>,
        sizes: &[usize],
        scales: u32,
        [min, max]: [i64; 2],
    ) -> Result<ValueId, Error> {
        let rows = sizes.first().copied().unwrap_or_default();
        let (_, scales) = self.values.constant(scales, self.site)?;
        let scales = scales.get(..4 * rows).ok_or_else(|| Error::invalid("a layer has too few scales"))?;
        let scales = self.floats(&[rows], scales.to_vec())?;
        let integers = self.integers(sizes, integers)?;
        let args =
            vec![integers.into(), scales.into(), Arg::None, 0.into(), min.into(), max.into(), ScalarType::Char.into()];
        self.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL, args)
    }

    /// Weights of a convolution, of 8 bits with a scale for each output channel: `[out, in / groups, height, width]`. They are
    /// stored as `[height, width, out]` if each channel is convolved by itself, else as rows of `[height, width, in / groups]`,
    /// which may have padding behind them.
    pub fn window_weights(
        &mut self,
        weight: u32,
        scales: u32,
        [rows, channels, height, width]: [usize; 4],
        is_depthwise: bool,
    ) -> Result<ValueId, Error> {
        let (sizes, stored) = self.values.constant(weight, self.site)?;
        let missing = || Error::invalid("a convolution has fewer weights than its window").got(format!("{sizes:?}"));
        let stride = sizes.last().copied().ok_or_else(missing)?;
        let taps = height.saturating_mul(width);
        let count = rows.checked_mul(channels).and_then(|count| count.checked_mul(taps));
        let count = count.filter(|count| *count <= stored.len()).ok_or_else(missing)?;
        let mut integers = Vec::with_capacity(count);
        for row in 0..rows {
            for channel in 0..channels {
                for tap in 0..taps {
                    let at = if is_depthwise { tap * stride + row } else { row * stride + tap * channels + channel };
                    integers.push(*stored.get(at).ok_or_else(missing)?);
                }
            }
        }
        self.dequantized_channels(integers, &[rows, channels, height, width], scales, [-128, 127])
    }

    /// Weights of 4 bits with a scale for each group of a row: two in a byte, the first in its low bits, and 8 above their
    /// values. Scales are transposed, `[groups, rows]`, and may have padding behind their rows.
    pub fn group_weights(
        &mut self,
        x: ValueId,
        weight: u32,
        scales: u32,
        group: i64,
        out: u32,
    ) -> Result<ValueId, Error> {
        let (columns, rows) = (self.columns(x)?, self.rows(out)?);
        let size = usize::try_from(group).ok().filter(|group| *group > 0 && columns.is_multiple_of(*group));
        let groups = columns / size.ok_or_else(|| Error::invalid("groups that do not divide a row").got(group))?;
        let (sizes, packed) = self.values.constant(weight, self.site)?;
        let mut integers = unpacked(&sizes, &packed, columns, [0, 4])?;
        let missing = || Error::invalid("a layer has fewer weights or scales than rows").expected(rows);
        integers.get(..rows * columns).ok_or_else(missing)?;
        integers.truncate(rows * columns);
        let (scale_sizes, scales) = self.values.constant(scales, self.site)?;
        let stride = scale_sizes.last().copied().filter(|stride| *stride >= rows).ok_or_else(missing)?;
        let mut transposed = Vec::with_capacity(4 * rows * groups);
        for row in 0..rows {
            for group in 0..groups {
                let at = 4 * (group * stride + row);
                transposed.extend_from_slice(scales.get(at..at + 4).ok_or_else(missing)?);
            }
        }
        let scales = self.floats(&[rows, groups], transposed)?;
        let integers = self.integers(&[rows, columns], integers)?;
        let args = vec![
            integers.into(),
            scales.into(),
            Arg::None,
            (-8).into(),
            7.into(),
            ScalarType::Char.into(),
            group.into(),
            ScalarType::Float.into(),
        ];
        self.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP, args)
    }

    /// Number of elements of a row of `x`.
    fn columns(&self, x: ValueId) -> Result<usize, Error> {
        let last = last_size(self, x)?.as_int().and_then(|last| usize::try_from(last).ok());
        last.ok_or_else(|| Error::unsupported("a quantized layer whose rows vary in length"))
    }

    fn integers(&mut self, sizes: &[usize], integers: Vec<u8>) -> Result<ValueId, Error> {
        let sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        let ty = TensorType::of(ScalarType::Char, &sizes);
        Ok(self.site.constant(Constant::dense("vulkan_weight".to_owned(), ty, integers)?))
    }

    fn floats(&mut self, sizes: &[usize], floats: Vec<u8>) -> Result<ValueId, Error> {
        let sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        let ty = TensorType::of(ScalarType::Float, &sizes);
        Ok(self.site.constant(Constant::dense("vulkan_scales".to_owned(), ty, floats)?))
    }
}

/// Integers of 4 bits, two in a byte, at these bits of it: as bytes, 8 less than they are. Rows may have padding behind them.
fn unpacked(sizes: &[usize], packed: &[u8], columns: usize, bits: [u32; 2]) -> Result<Vec<u8>, Error> {
    let [rows, each] = sizes else { return Err(Error::invalid("weights of a layer that are no matrix")) };
    if each * 2 < columns {
        return Err(Error::invalid("rows of weights that are too short").expected(columns).got(each * 2));
    }
    let mut integers = Vec::with_capacity(rows.saturating_mul(columns).min(2 * packed.len()));
    for row in packed.chunks_exact((*each).max(1)) {
        let pairs = row.iter().flat_map(|byte| bits.map(|shift| (byte >> shift & 15).wrapping_sub(8)));
        integers.extend(pairs.take(columns));
    }
    Ok(integers)
}
