//! Dimensions in another order.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::shape::{Dims, normalize_dim};

/// `aten::permute_copy.out(Tensor self, int[] dims, *, Tensor(a!) out) -> Tensor(a!)`
pub const PERMUTE_COPY_OUT: Op = Op::new("aten::permute_copy.out", 3, permute_copy);

/// `aten::transpose_copy.int_out(Tensor self, int dim0, int dim1, *, Tensor(a!) out) -> Tensor(a!)`
pub const TRANSPOSE_COPY_INT_OUT: Op = Op::new("aten::transpose_copy.int_out", 4, transpose_copy);

/// `aten::t_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)`
pub const T_COPY_OUT: Op = Op::new("aten::t_copy.out", 2, t_copy);

/// Permutations.
pub const OPS: OpGroup = &[PERMUTE_COPY_OUT, TRANSPOSE_COPY_INT_OUT, T_COPY_OUT];

fn permute_copy(cx: &KernelContext<'_>) -> Result<()> {
    let rank = cx.tensor(0)?.rank();
    let dims = cx.ints(1)?;
    if dims.len() != rank {
        return Err(Error::from(Detail::Count { what: "dimensions", expected: rank, got: dims.len() }).arg(1));
    }
    let mut order = Dims::EMPTY;
    for dim in dims.iter() {
        let dim = normalize_dim(dim, rank).map_err(|e| e.arg(1))?;
        if order.contains(&dim) {
            return Err(Error::invalid("a dimension appears twice").arg(1));
        }
        order.push(dim)?;
    }
    permute(cx, &order, 2)
}

fn transpose_copy(cx: &KernelContext<'_>) -> Result<()> {
    let rank = cx.tensor(0)?.rank();
    let a = normalize_dim(cx.int(1)?, rank).map_err(|e| e.arg(1))?;
    let b = normalize_dim(cx.int(2)?, rank).map_err(|e| e.arg(2))?;
    let mut order = identity(rank)?;
    if rank > 0 {
        order.swap(a, b);
    }
    permute(cx, &order, 3)
}

fn t_copy(cx: &KernelContext<'_>) -> Result<()> {
    let rank = cx.tensor(0)?.rank();
    if rank > 2 {
        return Err(Error::from(Detail::Rank { expected: "at most 2", got: rank }).arg(0));
    }
    let mut order = identity(rank)?;
    order.reverse();
    permute(cx, &order, 1)
}

fn identity(rank: usize) -> Result<Dims> {
    let mut order = Dims::filled(rank, 0)?;
    order.iter_mut().enumerate().for_each(|(i, dim)| *dim = i);
    Ok(order)
}

/// Copies argument 0 so that dimension `order[i]` becomes dimension `i`.
fn permute(cx: &KernelContext<'_>, order: &[usize], out: usize) -> Result<()> {
    let (input, argument, mut out) = (cx.tensor(0)?, out, cx.out(out)?);
    same_dtype(input.dtype(), &out, argument)?;
    let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
    for &dim in order {
        sizes.push(input.sizes()[dim])?;
        strides.push(input.strides()[dim])?;
    }
    out.resize(&sizes).map_err(|e| e.arg(argument))?;
    StridedCopy::of(&sizes, out.strides(), &strides).run(&mut out, input)
}
