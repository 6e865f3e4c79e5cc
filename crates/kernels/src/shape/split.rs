//! A tensor cut into several along one dimension.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, OutList, Result, Tensor, TensorMut};

use super::slice::{select, take};
use crate::support::shape::normalize_dim;
use crate::support::slice::SliceRange;

/// `aten::split_copy.Tensor_out(Tensor self, SymInt split_size, int dim=0, *, Tensor(a!)[] out) -> ()`
pub const SPLIT_COPY_TENSOR_OUT: Op = Op::new("aten::split_copy.Tensor_out", 4, split_copy);

/// `aten::split_with_sizes_copy.out(Tensor self, SymInt[] split_sizes, int dim=0, *, Tensor(a!)[] out) -> ()`
pub const SPLIT_WITH_SIZES_COPY_OUT: Op = Op::new("aten::split_with_sizes_copy.out", 4, split_with_sizes_copy);

/// `aten::unbind_copy.int_out(Tensor self, int dim=0, *, Tensor(a!)[] out) -> ()`
pub const UNBIND_COPY_INT_OUT: Op = Op::new("aten::unbind_copy.int_out", 3, unbind_copy);

/// Splits. Outputs of another real type get converted elements, as in ExecuTorch.
pub const OPS: OpGroup = &[SPLIT_COPY_TENSOR_OUT, SPLIT_WITH_SIZES_COPY_OUT, UNBIND_COPY_INT_OUT];

fn split_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut outs) = (cx.tensor(0)?, cx.outs(3)?);
    let dim = split_dim(cx.int(2)?, &input, 2)?;
    let (chunk, size) = (cx.int(1)?, input.size(dim));
    let Some(chunk) = usize::try_from(chunk).ok().filter(|&chunk| chunk > 0 || size == 0) else {
        return Err(Error::from(Detail::Value { what: "split size", expected: "more than 0", got: chunk }).arg(1));
    };
    // A dimension of size 0 still has one chunk.
    let count = size.div_ceil(chunk.max(1)).max(1);
    check_count(&outs, count, 3)?;
    for i in 0..count {
        let start = i * chunk;
        piece(&mut outs, i, input, dim, SliceRange { start, len: chunk.min(size - start), step: 1 })?;
    }
    Ok(())
}

fn split_with_sizes_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, sizes, mut outs) = (cx.tensor(0)?, cx.ints(1)?, cx.outs(3)?);
    let dim = split_dim(cx.int(2)?, &input, 2)?;
    check_count(&outs, sizes.len(), 3)?;
    let (mut start, size) = (0, input.size(dim));
    for (i, got) in sizes.iter().enumerate() {
        let Some(len) = usize::try_from(got).ok().filter(|&len| len <= size - start) else {
            let expected = "not negative, and within what is left of the dimension";
            return Err(Error::from(Detail::Value { what: "split size", expected, got }).arg(1));
        };
        piece(&mut outs, i, input, dim, SliceRange { start, len, step: 1 })?;
        start += len;
    }
    if start == size {
        return Ok(());
    }
    Err(Error::from(Detail::Count { what: "sum of the split sizes", expected: size, got: start }).arg(1))
}

fn unbind_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut outs) = (cx.tensor(0)?, cx.outs(2)?);
    let dim = split_dim(cx.int(1)?, &input, 1)?;
    check_count(&outs, input.size(dim), 2)?;
    for i in 0..input.size(dim) {
        let mut out = outs.get(i)?;
        check_dtype(input, &out, 2)?;
        select(&mut out, input, dim, i).map_err(|e| e.arg(2))?;
    }
    Ok(())
}

fn piece(outs: &mut OutList<'_>, index: usize, input: Tensor<'_>, dim: usize, range: SliceRange) -> Result<()> {
    let mut out = outs.get(index)?;
    check_dtype(input, &out, 3)?;
    take(&mut out, input, dim, range).map_err(|e| e.arg(3))
}

/// Real types convert to one another; others only go with themselves.
fn check_dtype(input: Tensor<'_>, out: &TensorMut<'_>, argument: usize) -> Result<()> {
    if input.dtype() == out.dtype() || !(input.dtype().is_complex() || out.dtype().is_complex()) {
        return Ok(());
    }
    Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(argument))
}

fn split_dim(dim: i64, input: &Tensor<'_>, argument: usize) -> Result<usize> {
    if input.rank() == 0 {
        return Err(Error::from(Detail::Rank { expected: "1 or more", got: 0 }).arg(0));
    }
    normalize_dim(dim, input.rank()).map_err(|e| e.arg(argument))
}

fn check_count(outs: &OutList<'_>, expected: usize, argument: usize) -> Result<()> {
    if outs.len() == expected {
        return Ok(());
    }
    Err(Error::from(Detail::Count { what: "outputs", expected, got: outs.len() }).arg(argument))
}
