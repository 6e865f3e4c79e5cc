//! Views with strides of their own: as_strided, diagonals and sliding windows.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::shape::{Dims, normalize_dim};

/// `aten::as_strided_copy.out(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None, *,
/// Tensor(a!) out) -> Tensor(a!)`
pub const AS_STRIDED_COPY_OUT: Op = Op::new("aten::as_strided_copy.out", 5, as_strided_copy);

/// `aten::diagonal_copy.out(Tensor self, int offset=0, int dim1=0, int dim2=1, *, Tensor(a!) out) -> Tensor(a!)`
pub const DIAGONAL_COPY_OUT: Op = Op::new("aten::diagonal_copy.out", 5, diagonal_copy);

/// `aten::unfold_copy.out(Tensor self, int dimension, int size, int step, *, Tensor(a!) out) -> Tensor(a!)`
pub const UNFOLD_COPY_OUT: Op = Op::new("aten::unfold_copy.out", 5, unfold_copy);

/// Strided views.
pub const OPS: OpGroup = &[AS_STRIDED_COPY_OUT, DIAGONAL_COPY_OUT, UNFOLD_COPY_OUT];

fn as_strided_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(4)?);
    let (targets, steps, offset) = (cx.ints(1)?, cx.ints(2)?, cx.optional_int(3)?.unwrap_or(0));
    same_dtype(input.dtype(), &out, 4)?;
    if steps.len() != targets.len() {
        return Err(Error::from(Detail::Count { what: "strides", expected: targets.len(), got: steps.len() }).arg(2));
    }
    let natural = |what, got, argument| {
        usize::try_from(got)
            .ok()
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or_else(|| Error::from(Detail::Value { what, expected: "not negative", got }).arg(argument))
    };
    let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
    for (size, stride) in targets.iter().zip(steps.iter()) {
        sizes.push(natural("size", size, 1)?)?;
        strides.push(natural("stride", stride, 2)?)?;
    }
    let offset = natural("storage offset", offset, 3)?;
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    let mut copy = StridedCopy::of(&sizes, out.strides(), &strides);
    copy.src_offset = offset;
    copy.run(&mut out, input).map_err(|e| e.arg(0))
}

fn diagonal_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, offset, mut out) = (cx.tensor(0)?, cx.int(1)?, cx.out(4)?);
    if input.rank() < 2 {
        return Err(Error::from(Detail::Rank { expected: "2 or more", got: input.rank() }).arg(0));
    }
    let a = normalize_dim(cx.int(2)?, input.rank()).map_err(|e| e.arg(2))?;
    let b = normalize_dim(cx.int(3)?, input.rank()).map_err(|e| e.arg(3))?;
    if a == b {
        return Err(Error::invalid("the two dimensions of a diagonal must differ").arg(3));
    }
    same_dtype(input.dtype(), &out, 4)?;
    let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
    for (dim, (&size, &stride)) in input.sizes().iter().zip(input.strides()).enumerate() {
        if dim != a && dim != b {
            sizes.push(size)?;
            strides.push(stride)?;
        }
    }
    // Positions that the diagonal leaves out at the start of each dimension.
    let skip = |offset: i64| usize::try_from(offset.max(0)).unwrap_or(usize::MAX);
    let (rows, columns) = (skip(offset.saturating_neg()), skip(offset));
    let length = input.size(a).saturating_sub(rows).min(input.size(b).saturating_sub(columns));
    sizes.push(length)?;
    strides.push(input.strides()[a].wrapping_add(input.strides()[b]))?;
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    let mut copy = StridedCopy::of(&sizes, out.strides(), &strides);
    if length > 0 {
        copy.src_offset = rows.wrapping_mul(input.strides()[a]).wrapping_add(columns.wrapping_mul(input.strides()[b]));
    }
    copy.run(&mut out, input)
}

fn unfold_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(4)?);
    let dim = normalize_dim(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let (size, step) = (cx.int(2)?, cx.int(3)?);
    let Some(window) = usize::try_from(size).ok().filter(|&size| size <= input.size(dim)) else {
        let expected = "not negative, and at most the size of the dimension";
        return Err(Error::from(Detail::Value { what: "window size", expected, got: size }).arg(2));
    };
    let Some(step) = usize::try_from(step).ok().filter(|&step| step > 0) else {
        return Err(Error::from(Detail::Value { what: "step", expected: "more than 0", got: step }).arg(3));
    };
    let (mut sizes, mut strides) = (Dims::from_slice(input.sizes())?, Dims::from_slice(input.strides())?);
    let stride = strides.get(dim).copied().unwrap_or(1);
    if input.rank() > 0 {
        sizes[dim] = (input.size(dim) - window) / step + 1;
        strides[dim] = stride.saturating_mul(step);
        if sizes[dim] == 1 {
            strides[dim] = 0;
        }
    }
    sizes.push(window)?;
    strides.push(stride)?;
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    StridedCopy::of(&sizes, out.strides(), &strides).run(&mut out, input)
}
