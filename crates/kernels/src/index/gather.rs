//! One index for each element: gather, scatter and the reductions on the way.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor};

use super::select::copy_input;
use crate::support::convert::check_range;
use crate::support::copy::same_dtype;
use crate::support::index::Indices;
use crate::support::number::Number;
use crate::support::shape::{Dims, Walk, normalize_dim};

/// `aten::gather.out(Tensor self, int dim, Tensor index, *, bool sparse_grad=False, Tensor(a!) out) -> Tensor(a!)`
pub const GATHER_OUT: Op = Op::new("aten::gather.out", 5, gather);

/// `aten::scatter.src_out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out) -> Tensor(a!)`
pub const SCATTER_SRC_OUT: Op = Op::new("aten::scatter.src_out", 5, scatter_src);

/// `aten::scatter.value_out(Tensor self, int dim, Tensor index, Scalar value, *, Tensor(a!) out) -> Tensor(a!)`
pub const SCATTER_VALUE_OUT: Op = Op::new("aten::scatter.value_out", 5, scatter_value);

/// Gathering and scattering. Where indices repeat, the last element in memory order wins.
pub const OPS: OpGroup = &[GATHER_OUT, SCATTER_SRC_OUT, SCATTER_VALUE_OUT];

fn gather(cx: &KernelContext<'_>) -> Result<()> {
    let (input, index, mut out) = (cx.tensor(0)?, cx.tensor(2)?, cx.out(4)?);
    let along = IndexedDim::new(cx, input.sizes(), input.strides())?;
    same_dtype(input.dtype(), &out, 4)?;
    out.resize(index.sizes()).map_err(|e| e.arg(4))?;
    let strides = Dims::from_slice(out.strides())?;
    dispatch_size!(input.dtype(), N => {
        let (dst, src) = (out.bytes_mut().as_chunks_mut::<N>().0, input.bytes().as_chunks::<N>().0);
        along.walk(&index, &strides, |from, to| dst[to] = src[from])
    })
}

fn scatter_src(cx: &KernelContext<'_>) -> Result<()> {
    let (input, index, src, mut out) = (cx.tensor(0)?, cx.tensor(2)?, cx.tensor(3)?, cx.out(4)?);
    copy_input(&mut out, input, 4)?;
    let strides = Dims::from_slice(out.strides())?;
    let along = IndexedDim::new(cx, input.sizes(), &strides)?;
    check_source(input.dtype(), &index, &src)?;
    dispatch_size!(src.dtype(), N => {
        let (dst, src_data) = (out.bytes_mut().as_chunks_mut::<N>().0, src.bytes().as_chunks::<N>().0);
        along.walk(&index, src.strides(), |to, from| dst[to] = src_data[from])
    })
}

fn scatter_value(cx: &KernelContext<'_>) -> Result<()> {
    let (input, index, value, mut out) = (cx.tensor(0)?, cx.tensor(2)?, cx.scalar(3)?, cx.out(4)?);
    copy_input(&mut out, input, 4)?;
    let strides = Dims::from_slice(out.strides())?;
    let along = IndexedDim::new(cx, input.sizes(), &strides)?;
    check_range(value, input.dtype()).map_err(|e| e.arg(3))?;
    dispatch!(REALHBBF16, input.dtype(), T => {
        let value = T::from_scalar(value);
        let dst = out.as_mut_slice::<T>()?;
        along.walk(&index, index.strides(), |to, _| dst[to] = value)
    })
}

/// The source of a scatter has the type of the tensor, and its sizes cover the index.
pub(super) fn check_source(dtype: ScalarType, index: &Tensor<'_>, src: &Tensor<'_>) -> Result<()> {
    if src.dtype() != dtype {
        return Err(Error::from(Detail::Dtype { expected: dtype.name(), got: src.dtype() }).arg(3));
    }
    if index.numel() == 0 {
        return Ok(());
    }
    if index.rank().max(1) != src.rank().max(1) {
        return Err(Error::from(Detail::Rank { expected: "that of the index", got: src.rank() }).arg(3));
    }
    for dim in 0..index.rank() {
        if index.size(dim) > src.size(dim) {
            let (expected, got) = (index.size(dim), src.size(dim));
            return Err(Error::from(Detail::Size { dim, expected, got }).arg(3));
        }
    }
    Ok(())
}

/// The dimension of a tensor that an index tensor (argument 2) replaces the coordinate of.
pub(super) struct IndexedDim {
    size: usize,
    stride: usize,
    /// Strides of the tensor, 0 along the dimension.
    others: Dims,
}

impl IndexedDim {
    /// For dimension argument 1 of a tensor with these sizes and strides. The index must be no larger than the
    /// tensor in the other dimensions.
    pub(super) fn new(cx: &KernelContext<'_>, sizes: &[usize], strides: &[usize]) -> Result<Self> {
        let (dim, index) = (cx.int(1)?, cx.tensor(2)?);
        let dim = normalize_dim(dim, sizes.len()).map_err(|e| e.arg(1))?;
        // An index without elements may have any type and rank.
        if index.numel() != 0 {
            Indices::of(&index).map_err(|e| e.arg(2))?;
            if index.rank().max(1) != sizes.len().max(1) {
                return Err(Error::from(Detail::Rank { expected: "that of the tensor", got: index.rank() }).arg(2));
            }
            for (i, &expected) in sizes.iter().enumerate() {
                if i != dim && index.size(i) > expected {
                    return Err(Error::from(Detail::Size { dim: i, expected, got: index.size(i) }).arg(2));
                }
            }
        }
        let mut others = Dims::from_slice(strides)?;
        let stride = others.get_mut(dim).map_or(1, core::mem::take);
        Ok(Self { size: sizes.get(dim).copied().unwrap_or(1), stride, others })
    }

    /// Calls `each` with the offset in the tensor and the offset by the strides `other`, for every element of the
    /// index. Sizes were checked before.
    pub(super) fn walk(&self, index: &Tensor<'_>, other: &[usize], mut each: impl FnMut(usize, usize)) -> Result<()> {
        if index.numel() == 0 {
            return Ok(());
        }
        let indices = Indices::of(index)?;
        let IndexRows { mut starts, len, steps } = self.rows(index, other)?;
        loop {
            let [mut at, mut own, mut target] = starts.offsets;
            for _ in 0..len {
                let position = indices.position(at, self.size, false).map_err(|e| e.arg(2))?;
                each(own + position * self.stride, target);
                at += steps[0];
                own += steps[1];
                target += steps[2];
            }
            if !starts.next() {
                return Ok(());
            }
        }
    }

    /// The rows of the index, one of one element if it has no dimensions.
    fn rows(&self, index: &Tensor<'_>, other: &[usize]) -> Result<IndexRows> {
        let (&len, outer) = index.sizes().split_last().unwrap_or((&1, &[]));
        let strides = [index.strides(), &self.others, other];
        let steps = strides.map(|strides| strides.get(outer.len()).copied().unwrap_or(0));
        let starts = Walk::new(outer, strides.map(|strides| strides.get(..outer.len()).unwrap_or(&[])))?;
        Ok(IndexRows { starts, len, steps })
    }
}

/// The rows of an index tensor: offsets of their first elements in it, in the tensor and by other strides, their length,
/// and steps from element to element.
struct IndexRows {
    starts: Walk<3>,
    len: usize,
    steps: [usize; 3],
}
