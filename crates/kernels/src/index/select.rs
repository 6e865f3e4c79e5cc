//! Whole positions of one dimension: rows of a table, slices put back.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor, TensorMut};

use super::indexing::Indexing;
use super::rows::RowSelection;
use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::index::Indices;
use crate::support::shape::{Dims, normalize_dim};
use crate::support::slice::{SliceRange, normalize_index};

/// `aten::index_select.out(Tensor self, int dim, Tensor index, *, Tensor(a!) out) -> Tensor(a!)`
pub const INDEX_SELECT_OUT: Op = Op::new("aten::index_select.out", 4, index_select);

/// `aten::embedding.out(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False,
/// bool sparse=False, *, Tensor(a!) out) -> Tensor(a!)`
pub const EMBEDDING_OUT: Op = Op::new("aten::embedding.out", 6, embedding);

/// `aten::select_scatter.out(Tensor self, Tensor src, int dim, SymInt index, *, Tensor(a!) out) -> Tensor(a!)`
pub const SELECT_SCATTER_OUT: Op = Op::new("aten::select_scatter.out", 5, select_scatter);

/// `aten::slice_scatter.out(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1,
/// *, Tensor(a!) out) -> Tensor(a!)`
pub const SLICE_SCATTER_OUT: Op = Op::new("aten::slice_scatter.out", 7, slice_scatter);

/// Selection along one dimension.
pub const OPS: OpGroup = &[INDEX_SELECT_OUT, EMBEDDING_OUT, SELECT_SCATTER_OUT, SLICE_SCATTER_OUT];

fn index_select(cx: &KernelContext<'_>) -> Result<()> {
    let (input, index, mut out) = (cx.tensor(0)?, cx.tensor(2)?, cx.out(3)?);
    let dim = normalize_dim(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let indices = Indices::of(&index).map_err(|e| e.arg(2))?;
    if index.rank() > 1 {
        return Err(Error::from(Detail::Rank { expected: "at most 1", got: index.rank() }).arg(2));
    }
    same_dtype(input.dtype(), &out, 3)?;
    if input.rank() == 0 {
        if index.numel() != 1 {
            return Err(Error::from(Detail::Count { what: "indices", expected: 1, got: index.numel() }).arg(2));
        }
        indices.position(0, 1, false).map_err(|e| e.arg(2))?;
        out.resize(&[]).map_err(|e| e.arg(3))?;
        out.bytes_mut().copy_from_slice(input.bytes());
        return Ok(());
    }
    let mut sizes = Dims::from_slice(input.sizes())?;
    sizes[dim] = index.numel();
    out.resize(&sizes).map_err(|e| e.arg(3))?;
    if index.rank() == 0 {
        let position = indices.position(0, input.size(dim), false).map_err(|e| e.arg(2))?;
        let mut copy = StridedCopy::of(&sizes, out.strides(), input.strides());
        copy.src_offset = position.wrapping_mul(input.strides()[dim]);
        return copy.run(&mut out, input);
    }
    if dim == 0 && take_rows(&mut out, input, &index).map_err(|e| e.arg(2))? {
        return Ok(());
    }
    Indexing::along(input.sizes(), dim, &index)?.take(&mut out, input).map_err(|e| e.arg(2))
}

fn embedding(cx: &KernelContext<'_>) -> Result<()> {
    let (weight, index, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(5)?);
    if weight.rank() != 2 {
        return Err(Error::from(Detail::Rank { expected: "2", got: weight.rank() }).arg(0));
    }
    same_dtype(weight.dtype(), &out, 5)?;
    out.resize(&RowSelection::sizes(weight.sizes(), &index)?).map_err(|e| e.arg(5))?;
    if take_rows(&mut out, weight, &index).map_err(|e| e.arg(1))? {
        return Ok(());
    }
    let plan = Indexing::along(weight.sizes(), 0, &index).map_err(|e| e.arg(1))?;
    plan.take(&mut out, weight).map_err(|e| e.arg(1))
}

/// Copies the rows along the first dimension that `index` names, if all tensors are contiguous; else false.
fn take_rows(out: &mut TensorMut<'_>, input: Tensor<'_>, index: &Tensor<'_>) -> Result<bool> {
    if !input.is_contiguous() || !out.is_contiguous() {
        return Ok(false);
    }
    let Some(rows) = RowSelection::new(input.sizes(), input.dtype().size(), index, false) else { return Ok(false) };
    rows.take(out.bytes_mut(), input.bytes())?;
    Ok(true)
}

fn select_scatter(cx: &KernelContext<'_>) -> Result<()> {
    let (input, src, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(4)?);
    let dim = scatter_dim(&input, cx.int(2)?)?;
    let index = normalize_index(cx.int(3)?, input.size(dim)).map_err(|e| e.arg(3))?;
    copy_input(&mut out, input, 4)?;
    let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
    for (i, (&size, &stride)) in input.sizes().iter().zip(out.strides()).enumerate() {
        if i != dim {
            sizes.push(size)?;
            strides.push(stride)?;
        }
    }
    let offset = index.wrapping_mul(out.strides()[dim]);
    overwrite(&mut out, src, &sizes, &strides, offset)
}

fn slice_scatter(cx: &KernelContext<'_>) -> Result<()> {
    let (input, src, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(6)?);
    let dim = scatter_dim(&input, cx.int(2)?)?;
    let range =
        SliceRange::new(input.size(dim), cx.optional_int(3)?, cx.optional_int(4)?, cx.int(5)?).map_err(|e| e.arg(5))?;
    copy_input(&mut out, input, 6)?;
    let (mut sizes, mut strides) = (Dims::from_slice(input.sizes())?, Dims::from_slice(out.strides())?);
    let offset = range.start.wrapping_mul(strides[dim]);
    sizes[dim] = range.len;
    strides[dim] = if range.len > 1 { strides[dim].wrapping_mul(range.step) } else { 0 };
    overwrite(&mut out, src, &sizes, &strides, offset)
}

fn scatter_dim(input: &Tensor<'_>, dim: i64) -> Result<usize> {
    if input.rank() == 0 {
        return Err(Error::from(Detail::Rank { expected: "1 or more", got: 0 }).arg(0));
    }
    normalize_dim(dim, input.rank()).map_err(|e| e.arg(2))
}

/// Resizes `out` to `input`'s sizes and copies all of it.
pub(super) fn copy_input(out: &mut TensorMut<'_>, input: Tensor<'_>, argument: usize) -> Result<()> {
    same_dtype(input.dtype(), out, argument)?;
    out.resize(input.sizes()).map_err(|e| e.arg(argument))?;
    if input.strides() == out.strides() {
        out.bytes_mut().copy_from_slice(input.bytes());
        return Ok(());
    }
    StridedCopy::of(input.sizes(), out.strides(), input.strides()).run(out, input)
}

/// Copies `src` over a part of `out`, converted to its type.
fn overwrite(
    out: &mut TensorMut<'_>,
    src: Tensor<'_>,
    sizes: &[usize],
    strides: &[usize],
    offset: usize,
) -> Result<()> {
    if src.rank() != sizes.len() {
        return Err(Error::from(Detail::Rank { expected: "that of the part to replace", got: src.rank() }).arg(1));
    }
    for (dim, (&expected, &got)) in sizes.iter().zip(src.sizes()).enumerate() {
        if expected != got {
            return Err(Error::from(Detail::Size { dim, expected, got }).arg(1));
        }
    }
    let mut copy = StridedCopy::of(sizes, strides, src.strides());
    copy.dst_offset = offset;
    copy.run(out, src).map_err(|e| e.arg(1))
}
