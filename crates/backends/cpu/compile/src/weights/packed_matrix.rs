//! Matrices of integers, packed some columns at a time. So neither all integers nor all packed bytes need to be in
//! memory at once.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use half::f16;
use rushlight_engine::pack::{
    self, GROUP_SIZE, GroupNumbers, GroupwiseMatrix, PANEL, QUANTIZED_HEADER, QuantizedGroups, QuantizedMatrix,
    ScaleFormat,
};
use rushlight_engine::parallel_map;
use rushlight_format::Make;

use rushlight_graph::{Bytes, Constant, ConstantData, Error, Parameters, Products};

use crate::error::error;

/// The integers of a matrix `[K, N]`.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// `[N, K]`, a byte each.
    integers: Constant,
    k: usize,
    n: usize,
    /// Subtracted from unsigned bytes.
    shift: u8,
    /// Columns that are read at a time: a multiple of [`PANEL`], or all.
    step: usize,
}

impl Columns {
    /// Takes integers `[N, K]`. `shift` is subtracted from their bytes.
    pub fn new(integers: Constant, shift: u8) -> Result<Self, Error> {
        /// Integers that are read at a time.
        const READ: usize = 1 << 20;
        /// Granularity of columns that are read together: a multiple of all usual head widths, and of [`PANEL`].
        const TOGETHER: usize = 48 * PANEL;
        let sizes = integers.sizes()?;
        let &[n, k] = sizes.as_slice() else { return Err(error(format!("`{}` is no matrix", integers.name))) };
        let step = READ.checked_div(k).unwrap_or(n).max(1).next_multiple_of(TOGETHER);
        // A constant that can only be computed as a whole is computed once.
        let step = if step < n && integers.rows(0..step).is_some() { step } else { n };
        Ok(Self { integers, k, n, shift, step })
    }

    /// True if both are known to hold the same integers without reading them.
    fn is(&self, other: &Self) -> bool {
        let is_data = match (&self.integers.data, &other.integers.data) {
            (ConstantData::Computed(a), ConstantData::Computed(b)) => Arc::ptr_eq(a, b),
            (ConstantData::Dense(a), ConstantData::Dense(b)) => a.as_ptr() == b.as_ptr(),
            _ => false,
        };
        is_data && (self.k, self.n, self.shift) == (other.k, other.n, other.shift)
    }

    /// The ranges of columns that are read at a time.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (n, step) = (self.n, self.step.max(1));
        (0..n).step_by(step).map(move |start| start..n.min(start + step))
    }

    /// Reads the integers of some columns, a row of K for each. The columns start where a part does.
    fn read(&self, columns: Range<usize>) -> Result<Bytes, Error> {
        let rows = if columns == (0..self.n) { Some(self.integers.clone()) } else { self.integers.rows(columns) };
        let bytes = rows.ok_or_else(|| error(format!("`{}` lost its columns", self.integers.name)))?.read()?;
        if self.shift == 0 {
            return Ok(bytes);
        }
        Ok(bytes.iter().map(|byte| byte.wrapping_sub(self.shift)).collect::<Vec<u8>>().into())
    }

    /// Applies a function to the integers of each column, on several threads.
    fn each<R: Send>(&self, threads: usize, of: impl Fn(usize, &[i8]) -> R + Sync) -> Result<Vec<R>, Error> {
        let part = |columns: Range<usize>| -> Result<Vec<R>, Error> {
            let bytes = self.read(columns.clone())?;
            let integers: &[i8] = bytemuck::cast_slice(&bytes);
            Ok(columns.clone().zip(integers.chunks_exact(self.k.max(1))).map(|(at, column)| of(at, column)).collect())
        };
        let found = parallel_map(self.parts().collect(), threads, part);
        let mut all = Vec::with_capacity(self.n);
        for part in found {
            all.extend(part?);
        }
        Ok(all)
    }

    /// Returns the sum of each column.
    pub fn sums(&self, threads: usize) -> Result<Vec<i64>, Error> {
        if self.k == 0 {
            return Ok(vec![0; self.n]);
        }
        self.each(threads, |_, column| sum(column))
    }
}

/// Returns the sum of integers.
pub(crate) fn sum(integers: &[i8]) -> i64 {
    /// Number of integers whose sum fits in an `i32`.
    const CHUNK: usize = 1 << 16;
    let sum_of = |integers: &[i8]| integers.iter().map(|integer| i32::from(*integer)).sum::<i32>();
    integers.chunks(CHUNK).map(|integers| i64::from(sum_of(integers))).sum()
}

/// Scales and zero points of the groups of a matrix's columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ColumnGroups {
    /// `[N, groups]`, or one for all if [`is_one`](Self::is_one).
    pub scales: Parameters<f32>,
    pub zeros: Parameters<i32>,
    /// `[N, groups]`, if the format has minima.
    pub minima: Option<Parameters<f32>>,
    pub is_one: bool,
    /// Number of groups of a column before repetition.
    pub groups: usize,
    /// Number of groups of the packed matrix for each group here.
    pub repeated: usize,
    /// Subtracted from zero points.
    pub shift: i32,
    /// True if there are zero points other than 0.
    pub has_zeros: bool,
}

impl ColumnGroups {
    /// Returns the scales of the packed matrix' groups of some columns.
    fn scales(&self, columns: Range<usize>) -> Cow<'_, [f32]> {
        self.floats(&self.scales, columns)
    }

    fn floats<'f>(&'f self, numbers: &'f Parameters<f32>, columns: Range<usize>) -> Cow<'f, [f32]> {
        let (start, end) = (columns.start * self.groups, columns.end * self.groups);
        match numbers.as_slice().and_then(|numbers| numbers.get(start..end)) {
            Some(numbers) if self.repeated == 1 && !self.is_one => Cow::Borrowed(numbers),
            _ => Cow::Owned(self.of(numbers, columns)),
        }
    }

    /// Returns the parameters of some columns' groups as units and factors.
    fn products<'f>(&self, numbers: &'f Parameters<f32>, columns: Range<usize>) -> Option<GroupNumbers<'f>> {
        let Products { factors, units, each } = numbers.as_products()?;
        let (start, end) = (columns.start * self.groups, columns.end * self.groups);
        Some(GroupNumbers::Products { units: units.get(start / each..end / each)?, factors: factors.get(start..end)? })
    }

    /// Returns the zero points of the packed matrix' groups of some columns; empty if all are 0.
    fn zeros(&self, columns: Range<usize>) -> Vec<i8> {
        if !self.has_zeros {
            return Vec::new();
        }
        self.of(&self.zeros, columns).into_iter().map(|zero| (zero - self.shift) as i8).collect()
    }

    fn of<T: bytemuck::Pod + Send + Sync>(&self, numbers: &Parameters<T>, columns: Range<usize>) -> Vec<T> {
        let groups = columns.start * self.groups..columns.end * self.groups;
        let number = |group: usize| numbers.get(if self.is_one { 0 } else { group }).unwrap_or_else(T::zeroed);
        groups.flat_map(|group| std::iter::repeat_n(number(group), self.repeated)).collect()
    }
}

/// A matrix of integers in the layout that the engine reads.
#[derive(Clone, Debug)]
pub(crate) struct PackedMatrix {
    columns: Columns,
    form: Form,
}

#[derive(Clone, Debug, PartialEq)]
enum Form {
    Int8,
    Groupwise(GroupwiseMatrix, ColumnGroups),
    WeightOnly(QuantizedMatrix, ColumnGroups),
}

impl PackedMatrix {
    /// Packs for an int8 GEMM.
    pub fn int8(columns: Columns) -> Self {
        Self { columns, form: Form::Int8 }
    }

    /// Packs for a GEMM of dynamically quantized rows with groups of 32 weights.
    pub fn groupwise(mut columns: Columns, matrix: GroupwiseMatrix, groups: ColumnGroups) -> Self {
        if matrix.has_zeros {
            // The scales follow after all panels.
            columns.step = columns.n;
        }
        Self { columns, form: Form::Groupwise(matrix, groups) }
    }

    /// Packs for a GEMM of floats with dequantized weights.
    pub fn weight_only(columns: Columns, matrix: QuantizedMatrix, groups: ColumnGroups) -> Self {
        Self { columns, form: Form::WeightOnly(matrix, groups) }
    }

    /// True if both are known to pack to the same bytes without packing them.
    pub fn is(&self, other: &Self) -> bool {
        self.columns.is(&other.columns) && self.form == other.form
    }

    /// Number of bytes; `None` if they overflow `usize`.
    pub fn len(&self) -> Option<usize> {
        match &self.form {
            Form::Int8 => pack::matrix_i8_len(self.columns.k, self.columns.n),
            Form::Groupwise(matrix, _) => matrix.len(),
            Form::WeightOnly(matrix, _) => pack::quantized_len(matrix),
        }
    }

    /// True if scales are among the integers.
    pub fn has_scales(&self) -> bool {
        self.form != Form::Int8
    }

    /// Sums of the dequantized weights of each column of a groupwise matrix.
    pub fn group_sums(&self, threads: usize) -> Result<Vec<f32>, Error> {
        let Form::Groupwise(matrix, groups) = &self.form else { return Err(error("sums of a matrix without groups")) };
        self.columns.each(threads, |at, column| {
            let (scales, zeros) = (groups.scales(at..at + 1), groups.zeros(at..at + 1));
            let zeros = zeros.iter().copied().chain(std::iter::repeat(0));
            let terms = column.as_chunks::<GROUP_SIZE>().0.iter().zip(&*scales).zip(zeros);
            let term = |((integers, scale), zero): ((&[i8; GROUP_SIZE], &f32), i8)| {
                let sum = integers.iter().map(|integer| i32::from(*integer)).sum::<i32>();
                let scale = if matrix.has_half_scales { f16::from_f32(*scale).to_f32() } else { *scale };
                f64::from(scale) * f64::from(sum - GROUP_SIZE as i32 * i32::from(zero))
            };
            terms.map(term).sum::<f64>() as f32
        })
    }

    /// Packs the whole matrix.
    pub fn pack(&self, to: &mut [u8]) -> Result<(), Error> {
        let mut rest = to;
        for (index, columns) in self.columns.parts().enumerate() {
            let size = self.part_size(index, columns.len());
            let too_short = || error("packed weights do not fit their memory");
            let (part, after) = std::mem::take(&mut rest).split_at_mut_checked(size).ok_or_else(too_short)?;
            self.pack_part(index, columns, part)?;
            rest = after;
        }
        Ok(())
    }

    /// Passes the packed bytes to `see`, part by part.
    pub fn for_parts(&self, mut see: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut buffer = Vec::new();
        for (index, columns) in self.columns.parts().enumerate() {
            buffer.resize(self.part_size(index, columns.len()), 0);
            self.pack_part(index, columns, &mut buffer)?;
            see(&buffer);
        }
        Ok(())
    }

    /// Size in bytes of a part with `columns` columns.
    fn part_size(&self, index: usize, columns: usize) -> usize {
        let size = match &self.form {
            Form::Int8 => pack::matrix_i8_len(self.columns.k, columns),
            Form::Groupwise(matrix, _) => GroupwiseMatrix { n: columns, ..*matrix }.len(),
            Form::WeightOnly(matrix, _) => {
                // The first part has the header.
                let header = if index == 0 { 0 } else { QUANTIZED_HEADER };
                pack::quantized_len(&QuantizedMatrix { n: columns, ..*matrix }).map(|size| size - header)
            }
        };
        size.unwrap_or(usize::MAX)
    }

    fn pack_part(&self, index: usize, columns: Range<usize>, to: &mut [u8]) -> Result<(), Error> {
        let n = columns.len();
        let bytes = self.columns.read(columns.clone())?;
        let integers: &[i8] = bytemuck::cast_slice(&bytes);
        let k = self.columns.k;
        if integers.len() != k * n {
            return Err(error(format!("`{}` has another number of integers", self.columns.integers.name))
                .expected(k * n)
                .got(integers.len()));
        }
        match &self.form {
            Form::Int8 => pack::matrix_i8_into(bytemuck::cast_slice_mut(to), k, n, integers),
            Form::Groupwise(matrix, groups) => {
                let (scales, zeros) = (groups.scales(columns.clone()), groups.zeros(columns));
                pack::groupwise_into(to, &GroupwiseMatrix { n, ..*matrix }, integers, &scales, &zeros);
            }
            Form::WeightOnly(matrix, groups) => {
                let mut to = to;
                if index == 0 {
                    let header = pack::quantized_header(matrix).ok_or_else(|| error("weights beyond all memory"))?;
                    let (head, rest) = to.split_at_mut(QUANTIZED_HEADER);
                    head.copy_from_slice(&header);
                    to = rest;
                }
                let matrix = QuantizedMatrix { n, ..*matrix };
                let lost = || error(format!("`{}` lost its units", self.columns.integers.name));
                let zeros = groups.zeros(columns.clone());
                let (scales, minima);
                let numbers = if matrix.scales == ScaleFormat::Products {
                    let products = |numbers| groups.products(numbers, columns.clone()).ok_or_else(lost);
                    let minima = groups.minima.as_ref().map(products).transpose()?;
                    [products(&groups.scales)?, minima.unwrap_or(GroupNumbers::Each(&[]))]
                } else {
                    scales = groups.scales(columns.clone());
                    minima = groups.minima.as_ref().map(|minima| groups.floats(minima, columns)).unwrap_or_default();
                    [GroupNumbers::Each(&scales), GroupNumbers::Each(&minima)]
                };
                let [scales, minima] = numbers;
                pack::quantized_panels(to, &matrix, integers, &QuantizedGroups { scales, zeros: &zeros, minima });
            }
        }
        Ok(())
    }

    /// The columns of a piece.
    fn piece(&self, piece: u64) -> Option<(usize, Range<usize>)> {
        let index = usize::try_from(piece).ok()?;
        Some((index, self.columns.parts().nth(index)?))
    }
}

impl Make for PackedMatrix {
    fn size(&self) -> u64 {
        self.len().unwrap_or(usize::MAX) as u64
    }

    fn pieces(&self) -> u64 {
        self.columns.parts().count() as u64
    }

    fn piece_size(&self, piece: u64) -> u64 {
        self.piece(piece).map_or(0, |(index, columns)| self.part_size(index, columns.len()) as u64)
    }

    fn make(&self, piece: u64, buffer: &mut Vec<u8>) -> Option<()> {
        let (index, columns) = self.piece(piece)?;
        buffer.resize(self.part_size(index, columns.len()), 0);
        self.pack_part(index, columns, buffer).ok()
    }
}

#[cfg(test)]
mod tests {
    use rushlight_engine::pack::{Bits, Offsets};
    use rushlight_format::{Blob, ScalarType};
    use rushlight_graph::TensorType;

    use super::*;

    /// Integers `[N, K]`, and columns of them that are read in several parts.
    fn columns(n: usize, k: usize) -> (Vec<i8>, Columns) {
        let integers: Vec<i8> = (0..n * k).map(|at| (at * 37 % 251 % 16) as i8 - 8).collect();
        let ty = TensorType::of(ScalarType::Char, &[n as i64, k as i64]);
        let constant = Constant::dense("w", ty, bytemuck::cast_slice(&integers).to_vec()).unwrap();
        let columns = Columns::new(constant, 0).unwrap();
        assert!(columns.parts().count() > 1);
        (integers, columns)
    }

    #[test]
    fn parts_together_are_the_packed_matrix() {
        let (n, k) = (1610, 2048);
        let (integers, columns) = columns(n, k);
        let groups = k / GROUP_SIZE;
        let scales: Vec<f32> = (0..n * groups).map(|at| (1 + at % 90) as f32 / 64.0).collect();
        let of = |has_zeros: bool| ColumnGroups {
            scales: scales.clone().into(),
            zeros: Parameters::same(i32::from(has_zeros), n * groups),
            minima: None,
            is_one: false,
            groups,
            repeated: 1,
            shift: 0,
            has_zeros,
        };
        for has_zeros in [false, true] {
            let zeros = vec![1; if has_zeros { n * groups } else { 0 }];
            let groupwise = GroupwiseMatrix { k, n, is_four_bits: true, has_zeros, has_half_scales: true };
            let mut of_groupwise = vec![9; groupwise.len().unwrap()];
            pack::groupwise_into(&mut of_groupwise, &groupwise, &integers, &scales, &zeros);
            let offsets = if has_zeros { Offsets::ZeroPoints } else { Offsets::None };
            let (bits, group_scales) = (Bits::Four, ScaleFormat::F32);
            let weight_only = QuantizedMatrix { k, n, bits, offsets, scales: group_scales, group: GROUP_SIZE };
            let mut of_weight_only = vec![9; pack::quantized_len(&weight_only).unwrap()];
            pack::quantized(&mut of_weight_only, &weight_only, &integers, &QuantizedGroups::new(&scales, &zeros));
            let mut of_int8 = vec![9; pack::matrix_i8_len(k, n).unwrap()];
            pack::matrix_i8_into(bytemuck::cast_slice_mut(&mut of_int8), k, n, &integers);
            for (matrix, expected) in [
                (PackedMatrix::groupwise(columns.clone(), groupwise, of(has_zeros)), of_groupwise),
                (PackedMatrix::weight_only(columns.clone(), weight_only, of(has_zeros)), of_weight_only),
                (PackedMatrix::int8(columns.clone()), of_int8),
            ] {
                let (mut packed, mut shown) = (vec![7; matrix.len().unwrap()], Vec::new());
                matrix.pack(&mut packed).unwrap();
                matrix.for_parts(|part| shown.extend_from_slice(part)).unwrap();
                assert!(packed == expected && shown == expected, "{:?}", matrix.form != Form::Int8);
                assert!(Blob::Made(Arc::new(matrix)).bytes().unwrap() == expected);
            }
        }
    }

    #[test]
    fn sums_are_those_of_columns() {
        let (n, k) = (1610, 2048);
        let (integers, columns) = columns(n, k);
        let expected: Vec<i64> =
            integers.chunks(k).map(|column| column.iter().map(|integer| i64::from(*integer)).sum()).collect();
        assert_eq!(columns.sums(1).unwrap(), expected);
        assert_eq!(columns.sums(3).unwrap(), expected);
    }
}
