//! Parts of a tensor along one dimension.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor, TensorMut};

use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::shape::{Dims, normalize_dim};
use crate::support::slice::{SliceRange, normalize_index};

/// `aten::slice_copy.Tensor_out(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1, *,
/// Tensor(a!) out) -> Tensor(a!)`
pub const SLICE_COPY_TENSOR_OUT: Op = Op::new("aten::slice_copy.Tensor_out", 6, slice_copy);

/// `aten::narrow_copy.out(Tensor self, int dim, SymInt start, SymInt length, *, Tensor(a!) out) -> Tensor(a!)`
pub const NARROW_COPY_OUT: Op = Op::new("aten::narrow_copy.out", 5, narrow_copy);

/// `aten::select_copy.int_out(Tensor self, int dim, SymInt index, *, Tensor(a!) out) -> Tensor(a!)`
pub const SELECT_COPY_INT_OUT: Op = Op::new("aten::select_copy.int_out", 4, select_copy);

/// Slices.
pub const OPS: OpGroup = &[SLICE_COPY_TENSOR_OUT, NARROW_COPY_OUT, SELECT_COPY_INT_OUT];

fn slice_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(5)?);
    let dim = existing_dim(cx.int(1)?, &input)?;
    let range =
        SliceRange::new(input.size(dim), cx.optional_int(2)?, cx.optional_int(3)?, cx.int(4)?).map_err(|e| e.arg(4))?;
    same_dtype(input.dtype(), &out, 5)?;
    take(&mut out, input, dim, range).map_err(|e| e.arg(5))
}

fn narrow_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(4)?);
    let dim = existing_dim(cx.int(1)?, &input)?;
    let (start, length, size) = (cx.int(2)?, cx.int(3)?, input.size(dim) as i64);
    let from = if start < 0 { start.wrapping_add(size) } else { start };
    if !(0..=size).contains(&from) {
        let expected = "a position in the dimension";
        return Err(Error::from(Detail::Value { what: "start", expected, got: start }).arg(2));
    }
    if !(0..=size - from).contains(&length) {
        let expected = "not negative, and within the dimension";
        return Err(Error::from(Detail::Value { what: "length", expected, got: length }).arg(3));
    }
    same_dtype(input.dtype(), &out, 4)?;
    take(&mut out, input, dim, SliceRange { start: from as usize, len: length as usize, step: 1 }).map_err(|e| e.arg(4))
}

/// A dimension of a tensor that has some.
fn existing_dim(dim: i64, input: &Tensor<'_>) -> Result<usize> {
    if input.rank() == 0 {
        return Err(Error::from(Detail::Rank { expected: "1 or more", got: 0 }).arg(0));
    }
    normalize_dim(dim, input.rank()).map_err(|e| e.arg(1))
}

/// Resizes `out` and copies the range of `dim` to it.
pub(super) fn take(out: &mut TensorMut<'_>, input: Tensor<'_>, dim: usize, range: SliceRange) -> Result<()> {
    let (mut sizes, mut strides) = (Dims::from_slice(input.sizes())?, Dims::from_slice(input.strides())?);
    let offset = if range.len == 0 { 0 } else { range.start.wrapping_mul(strides[dim]) };
    sizes[dim] = range.len;
    strides[dim] = if range.len > 1 { strides[dim].wrapping_mul(range.step) } else { 0 };
    out.resize(&sizes)?;
    let mut copy = StridedCopy::of(&sizes, out.strides(), &strides);
    copy.src_offset = offset;
    copy.run(out, input)
}

fn select_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(3)?);
    let dim = existing_dim(cx.int(1)?, &input)?;
    let index = normalize_index(cx.int(2)?, input.size(dim)).map_err(|e| e.arg(2))?;
    same_dtype(input.dtype(), &out, 3)?;
    select(&mut out, input, dim, index).map_err(|e| e.arg(3))
}

/// Resizes `out` and copies position `index` of `dim` to it.
pub(super) fn select(out: &mut TensorMut<'_>, input: Tensor<'_>, dim: usize, index: usize) -> Result<()> {
    let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
    for (i, (&size, &stride)) in input.sizes().iter().zip(input.strides()).enumerate() {
        if i != dim {
            sizes.push(size)?;
            strides.push(stride)?;
        }
    }
    out.resize(&sizes)?;
    let mut copy = StridedCopy::of(&sizes, out.strides(), &strides);
    copy.src_offset = index.wrapping_mul(input.strides()[dim]);
    copy.run(out, input)
}
