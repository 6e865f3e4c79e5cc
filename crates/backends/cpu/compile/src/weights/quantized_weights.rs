//! Quantized weights: their integers, wherever they are stored, and their scales, as kernels read them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use half::f16;
use rushlight_cpu_payload::QuantizedFormat;
use rushlight_engine::pack::{self, Bits, GroupwiseMatrix, Offsets, QuantizedMatrix, ScaleFormat, UNIT_ROWS};
use rushlight_format::ScalarType;

use rushlight_graph::quantization::QuantizedConstant;
use rushlight_graph::{Bytes, Constant, ConstantData, Error, Granularity, Parameters, row_major_strides};

use super::packed_matrix::{ColumnGroups, Columns, PackedMatrix, sum};
use crate::error::error;

/// The groups of weights of a matrix that share a scale and a zero point.
#[derive(Clone, Copy)]
struct Groups {
    /// True if integers and zero points have four bits, not eight.
    is_four_bits: bool,
    /// The number of rows, a multiple of 32.
    rows: usize,
}

/// True if the groups of a matrix `[K, N]` have four bits, false if they have eight; `None` if it has none, as [`groups_of`]
/// says.
pub(crate) fn is_groupwise_four_bits(constant: &Constant) -> Option<bool> {
    groups_of(constant).map(|groups| groups.is_four_bits)
}

/// The groups of a matrix `[K, N]`; `None` if they are not of whole columns or of multiples of 32 of their rows.
fn groups_of(constant: &Constant) -> Option<Groups> {
    let quantized = constant.quantized()?;
    let quantization = quantized.quantization()?;
    let (sizes, (least, greatest)) = (constant.sizes().ok()?, quantization.range);
    let &[k, n] = sizes.as_slice() else { return None };
    let has_zeros_within = |range: RangeInclusive<i32>| quantization.zero_points.all(|it| range.contains(&it));
    let is_four_bits = least >= -8 && greatest <= 7 && has_zeros_within(-8..=7);
    let fits = (is_four_bits || has_zeros_within(-128..=127)) && quantized.minima.is_none();
    if !fits || quantized.integers.ty.dtype != ScalarType::Char || !k.is_multiple_of(pack::GROUP_SIZE) {
        return None;
    }
    let rows = match &quantization.granularity {
        Granularity::Block { shape } => match shape.as_slice() {
            [rows, 1] if *rows > 0 && (*rows as usize).is_multiple_of(pack::GROUP_SIZE) => *rows as usize,
            _ => return None,
        },
        Granularity::Channel { axis: 1 } => k,
        _ => return None,
    };
    let count = k.checked_div(rows).unwrap_or(0) * n;
    let is_whole = quantization.scales.len() >= count && quantization.zero_points.len() >= count;
    is_whole.then_some(Groups { is_four_bits, rows })
}

/// A matrix `[K, N]` with groups, as a GEMM of dynamically quantized rows reads it; `None` of one without groups.
pub(crate) fn groupwise(constant: &Constant) -> Result<Option<(GroupwiseMatrix, Arc<PackedMatrix>)>, Error> {
    let Some(Groups { is_four_bits, rows }) = groups_of(constant) else { return Ok(None) };
    let sizes = constant.sizes()?;
    let (Some(quantization), &[k, n]) = (constant.quantized().and_then(|it| it.quantization()), sizes.as_slice())
    else {
        return Ok(None);
    };
    let shape = [k.checked_div(rows).unwrap_or(0), n];
    let (scales, zeros) = (&quantization.scales, &quantization.zero_points);
    let (scales, zeros) = match scales.transposed(shape).zip(zeros.transposed(shape)) {
        Some(turned) => turned,
        // A matrix without rows has scales of no group.
        None if k == 0 => (Parameters::same(0.0, 0), Parameters::same(0, 0)),
        None => return Ok(None),
    };
    let has_zeros = !zeros.all(|zero| zero == 0);
    // Scales are read for every group: those of 16 bits, whose error is far below that of four bits, take half. Beside weights of
    // eight bits that is little.
    let has_half_scales = is_four_bits && k > pack::GROUP_SIZE && scales.all(fits_half);
    // Longer groups are several with the same scale.
    let (groups, repeated) = (shape[0], rows / pack::GROUP_SIZE);
    let groups = ColumnGroups { scales, zeros, minima: None, is_one: false, groups, repeated, shift: 0, has_zeros };
    let matrix = GroupwiseMatrix { k, n, is_four_bits, has_zeros, has_half_scales };
    Ok(Some((matrix, Arc::new(PackedMatrix::groupwise(columns(constant)?, matrix, groups)))))
}

/// True if a scale is in the range of normal numbers of 16 bits.
fn fits_half(scale: f32) -> bool {
    (f16::MIN_POSITIVE.to_f32()..=f16::MAX.to_f32()).contains(&scale)
}

/// The integers of a matrix `[K, N]`.
pub(crate) fn columns(constant: &Constant) -> Result<Columns, Error> {
    let quantized = constant.quantized().ok_or_else(|| error(format!("`{}` is not quantized", constant.name)))?;
    let turned = quantized.integers.permuted(&[1, 0]);
    Columns::new(turned.ok_or_else(|| error(format!("`{}` is no matrix", constant.name)))?, 0)
}

/// Weight-only quantization: a matrix of 4, 6 or 8 bits, whose columns, or groups of their rows, have scales, and which becomes
/// floats where it is multiplied.
#[derive(Debug)]
pub(crate) struct WeightOnly {
    pub matrix: QuantizedMatrix,
    pub packed: Arc<PackedMatrix>,
}

impl WeightOnly {
    /// Of a constant `[k, n]`; `None` of one that is none.
    pub fn of(constant: &Constant) -> Option<Self> {
        Self::of_matrix(constant, false)
    }

    /// Of a constant `[n, k]`, whose rows become columns; `None` of one that is none.
    pub fn of_rows(constant: &Constant) -> Option<Self> {
        Self::of_matrix(constant, true)
    }

    fn of_matrix(constant: &Constant, is_turned: bool) -> Option<Self> {
        let quantized = constant.quantized()?;
        let quantization = quantized.quantization()?;
        let (sizes, (least, greatest)) = (constant.sizes().ok()?, quantization.range);
        let (k, n) = match *sizes.as_slice() {
            [k, n] if !is_turned => (k, n),
            [n, k] => (k, n),
            _ => return None,
        };
        let has_minima = quantized.minima.is_some();
        let are_zeros_within = |range: RangeInclusive<i32>| quantization.zero_points.all(|zero| range.contains(&zero));
        let (bits, shift) = match quantized.integers.ty.dtype {
            ScalarType::Char if has_minima && least >= 0 => match greatest {
                ..=15 => (Bits::Four, 0),
                16..=63 => (Bits::Six, 0),
                64.. => (Bits::Eight, 0),
            },
            ScalarType::Char if least >= -8 && greatest <= 7 => (Bits::Four, 0),
            ScalarType::Char if least >= -32 && greatest <= 31 && are_zeros_within(-32..=31) => (Bits::Six, 0),
            ScalarType::Char => (Bits::Eight, 0),
            ScalarType::Byte if least >= 0 && greatest <= 15 => (Bits::Four, 8u8),
            ScalarType::Byte => (Bits::Eight, 128),
            _ => return None,
        };
        let group = match &quantization.granularity {
            Granularity::Tensor => k,
            Granularity::Channel { axis } if *axis == u8::from(!is_turned) => k,
            Granularity::Channel { .. } => return None,
            Granularity::Block { shape } => match *shape.as_slice() {
                [group, 1] if !is_turned && group.is_multiple_of(2) => group as usize,
                [1, group] if is_turned && group.is_multiple_of(2) => group as usize,
                _ => return None,
            },
        };
        let (scales, zeros) = (&quantization.scales, &quantization.zero_points);
        let signed = |zero: i32| zero - i32::from(shift);
        let bounds = if bits == Bits::Four { -8..=7 } else { -128..=127 };
        if !zeros.all(|zero| bounds.contains(&signed(zero))) {
            return None;
        }
        let groups = k.div_ceil(group.max(1));
        let is_one = scales.len() == 1 || groups == 0;
        let (scales, zeros, minima) = if is_turned || is_one {
            (scales.clone(), zeros.clone(), quantized.minima.clone())
        } else {
            let minima = quantized.minima.as_ref();
            let minima = minima.map(|minima| minima.transposed([groups, n]).ok_or(())).transpose().ok()?;
            (scales.transposed([groups, n])?, zeros.transposed([groups, n])?, minima)
        };
        let is_count = |len: usize| is_one || len == groups * n;
        if ![scales.len(), zeros.len()].into_iter().chain(minima.as_ref().map(Parameters::len)).all(is_count) {
            return None;
        }
        let has_zeros = !zeros.all(|zero| signed(zero) == 0);
        let offsets = match (has_minima, has_zeros) {
            (false, false) => Offsets::None,
            (false, true) => Offsets::ZeroPoints,
            (true, false) if least >= 0 && !is_one => Offsets::Minima,
            (true, _) => return None,
        };
        let numbers: Vec<&Parameters<f32>> = std::iter::once(&scales).chain(&minima).collect();
        let format = scale_format(&numbers, k, group);
        let matrix = QuantizedMatrix { k, n, bits, offsets, scales: format, group };
        let eight_bits = QuantizedMatrix { bits: Bits::Eight, ..matrix };
        // Six bits are of four rows each.
        let matrix = [matrix, eight_bits].into_iter().find(|matrix| pack::quantized_len(matrix).is_some())?;
        let order = if is_turned { [0, 1] } else { [1, 0] };
        let columns = Columns::new(quantized.integers.permuted(&order)?, shift).ok()?;
        let shift = i32::from(shift);
        let groups = ColumnGroups { scales, zeros, minima, is_one, groups, repeated: 1, shift, has_zeros };
        Some(Self { matrix, packed: Arc::new(PackedMatrix::weight_only(columns, matrix, groups)) })
    }

    /// The format that steps name.
    pub fn format(&self) -> QuantizedFormat {
        let QuantizedMatrix { bits, offsets, scales, group, .. } = self.matrix;
        // A group of more rows than there are is one of all rows.
        QuantizedFormat { bits, offsets, scales, group: u32::try_from(group).unwrap_or(u32::MAX) }
    }
}

/// The smallest format that holds scales and minima exactly.
fn scale_format(numbers: &[&Parameters<f32>], k: usize, group: usize) -> ScaleFormat {
    let is_half = |number: f32| f16::from_f32(number).to_f32().to_bits() == number.to_bits();
    let are_products = |numbers: &&Parameters<f32>| {
        let products = numbers.as_products();
        products.is_some_and(|products| {
            products.each.checked_mul(group) == Some(UNIT_ROWS) && products.units.iter().all(|unit| is_half(*unit))
        })
    };
    if k.is_multiple_of(UNIT_ROWS) && numbers.iter().all(are_products) {
        ScaleFormat::Products
    } else if numbers.iter().all(|numbers| numbers.all(is_half)) {
        ScaleFormat::F16
    } else {
        ScaleFormat::F32
    }
}

/// True if weights have 8 bits, zero points of 0, and one scale, or one for each index of an axis.
pub(crate) fn has_scale_of_columns(quantized: &QuantizedConstant, axis: u8) -> bool {
    let Some(quantization) = quantized.quantization() else { return false };
    let columns = match &quantization.granularity {
        Granularity::Tensor => true,
        Granularity::Channel { axis: own } => *own == axis,
        Granularity::Block { .. } => false,
    };
    let has_offsets = quantized.minima.is_some() || !quantization.zero_points.all(|zero| zero == 0);
    columns && quantized.integers.ty.dtype == ScalarType::Char && !has_offsets
}

/// The integers of a weight, wherever they lie.
#[derive(Debug)]
pub(crate) struct Integers {
    bytes: Bytes,
    offset: usize,
    strides: Vec<usize>,
}

impl Integers {
    pub fn of(constant: &Constant) -> Result<Self, Error> {
        let integers =
            &constant.quantized().ok_or_else(|| error(format!("`{}` is not quantized", constant.name)))?.integers;
        let sizes = integers.sizes()?;
        Ok(match &integers.data {
            ConstantData::Strided { storage, offset, strides } => {
                Self { bytes: storage.clone(), offset: *offset, strides: strides.clone() }
            }
            _ => Self { bytes: integers.read()?, offset: 0, strides: row_major_strides(&sizes) },
        })
    }

    /// The sum of each index of the first dimension, whose elements are `each`.
    pub fn sums(&self, sizes: &[usize], each: usize) -> Vec<i64> {
        let strides = row_major_strides(sizes);
        let (count, step) = (sizes.first().copied().unwrap_or(0), self.strides.first().copied().unwrap_or(0));
        let mut inner: Vec<(usize, usize)> = self.strides.iter().copied().zip(sizes.iter().copied()).skip(1).collect();
        let is_dense = fills_memory(&mut inner);
        let bytes: &[u8] = &self.bytes;
        let sum_of = |first: usize| {
            let start = self.offset + first * step;
            if let Some(bytes) = bytes.get(start..start + each).filter(|_| is_dense) {
                return sum(bytemuck::cast_slice(bytes));
            }
            let place = |at: usize| -> usize {
                let dims = sizes.iter().zip(&strides).zip(&self.strides).skip(1);
                dims.map(|((size, stride), own)| at / stride % size * own).sum()
            };
            (0..each).map(|at| bytes.get(start + place(at)).map_or(0, |byte| i64::from(byte.cast_signed()))).sum()
        };
        (0..count).map(sum_of).collect()
    }

    /// Those of a convolution's weights by the indices of channels and of depth, height and width. Indices of spatial
    /// dimensions that the weights lack are ignored.
    pub fn of_volumes(&self) -> impl Fn(usize, usize, [usize; 3]) -> i8 {
        let mut entries = self.entries::<5>();
        let spatial = self.strides.len().saturating_sub(2).min(3);
        entries.strides[2..].rotate_right(3 - spatial);
        move |a, b, [d, h, w]| entries.get([a, b, d, h, w])
    }

    /// Like [`of_volumes`](Self::of_volumes), for one or two spatial dimensions.
    pub fn of_images(&self) -> impl Fn(usize, usize, usize, usize) -> i8 {
        let get = self.of_volumes();
        move |a, b, h, w| get(a, b, [0, h, w])
    }

    /// All of them, to be read one by one.
    pub fn entries<const D: usize>(&self) -> Entries<'_, D> {
        let strides = std::array::from_fn(|dim| self.strides.get(dim).copied().unwrap_or(0));
        Entries { bytes: self.bytes.get(self.offset..).unwrap_or_default(), strides }
    }
}

/// True if the elements of dimensions, with these strides and sizes, are adjacent in memory, in whichever order.
fn fills_memory(dims: &mut [(usize, usize)]) -> bool {
    dims.sort_unstable();
    let mut next = 1;
    // The stride of a dimension of one element is of no consequence.
    dims.iter().filter(|(_, size)| *size != 1).all(|(stride, size)| {
        let is_next = *stride == next;
        next *= size;
        is_next
    })
}

/// The integers of a weight of `D` dimensions.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a, const D: usize> {
    bytes: &'a [u8],
    strides: [usize; D],
}

impl<const D: usize> Entries<'_, D> {
    /// The integer at some indices; 0 beyond the end.
    #[inline]
    pub fn get(&self, indices: [usize; D]) -> i8 {
        let at = indices.iter().zip(&self.strides).fold(0, |at, (index, stride)| at + index * stride);
        self.bytes.get(at).map_or(0, |byte| byte.cast_signed())
    }
}

/// The scale of each of `columns` columns, in whose order scales repeat.
pub(crate) fn scales(constant: &Constant, columns: usize) -> Result<Vec<f32>, Error> {
    let scales = constant.quantized().and_then(|quantized| quantized.quantization()).map(|it| &it.scales);
    match scales {
        Some(scales) if !scales.is_empty() && columns.is_multiple_of(scales.len()) => {
            Ok(scales.iter().collect::<Vec<f32>>().repeat(columns / scales.len()))
        }
        _ => Err(error(format!("`{}` has no scale for each column", constant.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_the_order_in_memory() {
        let (sizes, each) = ([2, 3, 2, 1], 6);
        let of_strides = |strides: [usize; 4]| {
            let mut bytes = vec![0u8; 64];
            for at in 0..12usize {
                let index = [at / 6, at / 2 % 3, at % 2, 0];
                let place: usize = index.iter().zip(strides).map(|(index, stride)| index * stride).sum();
                bytes[1 + place] = (at as i8 - 7).cast_unsigned();
            }
            let integers = Integers { bytes: bytes.into(), offset: 1, strides: strides.to_vec() };
            integers.sums(&sizes, each)
        };
        let expected = vec![-27, 9];
        for strides in [[6, 2, 1, 1], [6, 1, 3, 3], [6, 1, 3, 99], [1, 4, 2, 2], [30, 10, 5, 1]] {
            assert_eq!(of_strides(strides), expected, "{strides:?}");
        }
    }

    #[test]
    fn strides_with_gaps_or_overlaps_do_not_fill_memory() {
        assert!(fills_memory(&mut [(3, 2), (1, 3), (7, 1)]));
        assert!(fills_memory(&mut []));
        assert!(!fills_memory(&mut [(4, 2), (1, 3)]));
        assert!(!fills_memory(&mut [(0, 2), (1, 3)]));
    }
}
