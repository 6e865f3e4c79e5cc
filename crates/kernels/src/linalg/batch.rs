//! Batches of matrices: reading them as rows of `f64`, and writing results of any type and layout.

use rushlight_runtime::{Detail, Element, Error, KernelContext, Result, ScalarType, Tensor, TensorMut};

use crate::support::number::Number;
use crate::support::shape::{Dims, Walk, broadcast_strides};

/// Rows and columns.
pub(super) type Shape = [usize; 2];

/// A tensor of matrices of `f32` or `f64`.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    tensor: Tensor<'a>,
    /// Sizes of the batch.
    pub(super) sizes: Dims,
    /// Strides of the batch.
    pub(super) strides: Dims,
    pub(super) shape: Shape,
    steps: [usize; 2],
}

impl<'a> Source<'a> {
    /// The tensor at position `argument`; its last two dimensions are rows and columns.
    pub(super) fn new(tensor: Tensor<'a>, argument: usize) -> Result<Self> {
        let fault = |detail: Detail| Err(Error::from(detail).arg(argument));
        if !matches!(tensor.dtype(), ScalarType::Float | ScalarType::Double) {
            return fault(Detail::Dtype { expected: "f32 or f64", got: tensor.dtype() });
        }
        let (&[ref sizes @ .., rows, columns], &[ref strides @ .., down, across]) = (tensor.sizes(), tensor.strides())
        else {
            return fault(Detail::Rank { expected: "at least 2", got: tensor.rank() });
        };
        let (sizes, strides) = (Dims::from_slice(sizes)?, Dims::from_slice(strides)?);
        Ok(Self { tensor, sizes, strides, shape: [rows, columns], steps: [down, across] })
    }

    /// As [`Source::new`], for square matrices.
    pub(super) fn square(tensor: Tensor<'a>, argument: usize) -> Result<Self> {
        let source = Self::new(tensor, argument)?;
        let [rows, columns] = source.shape;
        if rows != columns {
            let dim = tensor.rank().saturating_sub(1);
            return Err(Error::from(Detail::Size { dim, expected: rows, got: columns }).arg(argument));
        }
        Ok(source)
    }

    /// Reads vectors along the last dimension as matrices of one column.
    pub(super) fn vectors(tensor: Tensor<'a>, argument: usize) -> Result<Self> {
        let fault = |detail: Detail| Err(Error::from(detail).arg(argument));
        if !matches!(tensor.dtype(), ScalarType::Float | ScalarType::Double) {
            return fault(Detail::Dtype { expected: "f32 or f64", got: tensor.dtype() });
        }
        let (&[ref sizes @ .., len], &[ref strides @ .., step]) = (tensor.sizes(), tensor.strides()) else {
            return fault(Detail::Rank { expected: "at least 1", got: 0 });
        };
        let (sizes, strides) = (Dims::from_slice(sizes)?, Dims::from_slice(strides)?);
        Ok(Self { tensor, sizes, strides, shape: [len, 1], steps: [step, 0] })
    }

    /// The transposed matrices.
    pub(super) fn transposed(self) -> Self {
        let ([rows, columns], [down, across]) = (self.shape, self.steps);
        Self { shape: [columns, rows], steps: [across, down], ..self }
    }

    /// Strides of the batch as if it had these sizes.
    pub(super) fn broadcast(&self, sizes: &[usize]) -> Result<Dims> {
        broadcast_strides(&self.sizes, &self.strides, sizes)
    }

    pub(super) fn dtype(&self) -> ScalarType {
        self.tensor.dtype()
    }

    /// Reads the matrix at `offset`, row by row.
    pub(super) fn load(&self, offset: usize, to: &mut [f64]) -> Result<()> {
        match self.tensor.dtype() {
            ScalarType::Float => self.read(self.tensor.as_slice::<f32>()?, offset, to),
            _ => self.read(self.tensor.as_slice::<f64>()?, offset, to),
        }
        Ok(())
    }

    fn read<T: Number>(&self, elements: &[T], offset: usize, to: &mut [f64]) {
        let ([_, columns], [down, across]) = (self.shape, self.steps);
        for (row, to) in to.chunks_exact_mut(columns.max(1)).enumerate() {
            for (column, to) in to.iter_mut().enumerate() {
                *to = elements.get(offset + row * down + column * across).map_or(0.0, |x| x.to_f64());
            }
        }
    }
}

/// An output that is a batch of matrices, vectors or scalars.
pub(super) struct Target<'a> {
    tensor: TensorMut<'a>,
    /// Strides of the batch.
    pub(super) strides: Dims,
    shape: Shape,
    steps: [usize; 2],
}

impl<'a> Target<'a> {
    /// The output at position `argument`, with a dtype, the sizes of the batch, and the shape of each result.
    pub(super) fn new(
        cx: &'a KernelContext<'_>,
        argument: usize,
        dtype: ScalarType,
        batch: &[usize],
        each: &[usize],
    ) -> Result<Self> {
        let mut tensor = cx.out(argument)?;
        if tensor.dtype() != dtype {
            return Err(Error::from(Detail::ElementType { expected: dtype, got: tensor.dtype() }).arg(argument));
        }
        let mut sizes = Dims::from_slice(batch)?;
        each.iter().try_for_each(|&size| sizes.push(size))?;
        tensor.resize(&sizes).map_err(|e| e.arg(argument))?;
        let strides = Dims::from_slice(tensor.strides())?;
        let (lead, own) = strides.split_at(batch.len());
        let (shape, steps) = match (each, own) {
            (&[rows, columns], &[down, across]) => ([rows, columns], [down, across]),
            (&[len], &[step]) => ([len, 1], [step, 0]),
            _ => ([1, 1], [0, 0]),
        };
        let strides = Dims::from_slice(lead)?;
        Ok(Self { tensor, strides, shape, steps })
    }

    /// Empties an output that is not requested.
    pub(super) fn nothing(cx: &KernelContext<'_>, argument: usize) -> Result<()> {
        cx.out(argument)?.resize(&[0]).map_err(|e| e.arg(argument))
    }

    /// The transposed matrices.
    pub(super) fn transposed(self) -> Self {
        let ([rows, columns], [down, across]) = (self.shape, self.steps);
        Self { shape: [columns, rows], steps: [across, down], ..self }
    }

    /// Writes the matrix at `offset` from rows.
    pub(super) fn store(&mut self, offset: usize, from: &[f64]) -> Result<()> {
        match self.tensor.dtype() {
            ScalarType::Float => self.write::<f32>(offset, from),
            ScalarType::Int => self.write::<i32>(offset, from),
            _ => self.write::<f64>(offset, from),
        }
    }

    fn write<T: Number + Element>(&mut self, offset: usize, from: &[f64]) -> Result<()> {
        let ([_, columns], [down, across]) = (self.shape, self.steps);
        let elements = self.tensor.as_mut_slice::<T>()?;
        for (row, from) in from.chunks_exact(columns.max(1)).enumerate() {
            for (column, &x) in from.iter().enumerate() {
                if let Some(to) = elements.get_mut(offset + row * down + column * across) {
                    *to = T::from_f64(x);
                }
            }
        }
        Ok(())
    }
}

/// Calls `f` with the offsets of each element of a batch.
pub(super) fn each<const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
    mut f: impl FnMut([usize; N]) -> Result<()>,
) -> Result<()> {
    if sizes.contains(&0) {
        return Ok(());
    }
    let mut walk = Walk::new(sizes, strides)?;
    loop {
        f(walk.offsets)?;
        if !walk.next() {
            return Ok(());
        }
    }
}

/// Bytes of temporary memory for `numbers(rows, columns)` elements of `f64`, for a matrix of the tensor at position `argument`.
pub(super) fn temp(cx: &KernelContext<'_>, argument: usize, numbers: fn(usize, usize) -> usize) -> Result<usize> {
    let tensor = cx.tensor(argument)?;
    let &[.., rows, columns] = tensor.sizes() else { return Ok(0) };
    Ok(numbers(rows, columns).saturating_mul(8).saturating_add(256))
}

/// The saturating product.
pub(super) fn area(rows: usize, columns: usize) -> usize {
    rows.saturating_mul(columns)
}

/// Returns PyTorch's error for a matrix that cannot be inverted or decomposed, if the caller asked for the check.
pub(super) fn check(asked: bool, info: usize, what: &'static str) -> Result<()> {
    if asked && info != 0 { Err(Error::invalid(what).arg(0)) } else { Ok(()) }
}
