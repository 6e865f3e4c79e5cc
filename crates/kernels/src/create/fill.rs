//! Tensors made from sizes and a value.

use rushlight_runtime::{Error, IntList, KernelContext, Op, OpGroup, Result, Scalar, TensorMut};

use crate::support::convert::fill;
use crate::support::shape::Dims;

/// `aten::full.out(SymInt[] size, Scalar fill_value, *, Tensor(a!) out) -> Tensor(a!)`
pub const FULL_OUT: Op = Op::new("aten::full.out", 3, full);

/// `aten::ones.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)`
pub const ONES_OUT: Op = Op::new("aten::ones.out", 2, ones);

/// `aten::zeros.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)`
pub const ZEROS_OUT: Op = Op::new("aten::zeros.out", 2, zeros);

/// `aten::empty.out(SymInt[] size, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)`. The elements
/// keep the values that the memory holds.
pub const EMPTY_OUT: Op = Op::new("aten::empty.out", 3, empty);

/// `dim_order_ops::_empty_dim_order.out(int[] size, *, int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)`. The
/// dim order is the output's.
pub const EMPTY_DIM_ORDER_OUT: Op = Op::new("dim_order_ops::_empty_dim_order.out", 3, empty);

/// `aten::scalar_tensor.out(Scalar s, *, Tensor(a!) out) -> Tensor(a!)`
pub const SCALAR_TENSOR_OUT: Op = Op::new("aten::scalar_tensor.out", 2, scalar_tensor);

/// Constant tensors.
pub const OPS: OpGroup = &[FULL_OUT, ONES_OUT, ZEROS_OUT, EMPTY_OUT, EMPTY_DIM_ORDER_OUT, SCALAR_TENSOR_OUT];

fn full(cx: &KernelContext<'_>) -> Result<()> {
    let mut out = cx.out(2)?;
    resize(&mut out, cx.ints(0)?).map_err(|e| e.arg(2))?;
    fill(cx.scalar(1)?, &mut out).map_err(|e| e.arg(1))
}

fn ones(cx: &KernelContext<'_>) -> Result<()> {
    let mut out = cx.out(1)?;
    resize(&mut out, cx.ints(0)?).map_err(|e| e.arg(1))?;
    fill(Scalar::Int(1), &mut out).map_err(|e| e.arg(1))
}

fn zeros(cx: &KernelContext<'_>) -> Result<()> {
    let mut out = cx.out(1)?;
    resize(&mut out, cx.ints(0)?).map_err(|e| e.arg(1))?;
    out.bytes_mut().fill(0);
    Ok(())
}

fn empty(cx: &KernelContext<'_>) -> Result<()> {
    resize(&mut cx.out(2)?, cx.ints(0)?).map_err(|e| e.arg(2))
}

fn scalar_tensor(cx: &KernelContext<'_>) -> Result<()> {
    let mut out = cx.out(1)?;
    out.resize(&[]).map_err(|e| e.arg(1))?;
    fill(cx.scalar(0)?, &mut out).map_err(|e| e.arg(0))
}

/// Gives `out` the sizes of an argument.
pub(super) fn resize(out: &mut TensorMut<'_>, sizes: IntList<'_>) -> Result<()> {
    let mut dims = Dims::EMPTY;
    for size in sizes.iter() {
        dims.push(usize::try_from(size).map_err(|_| Error::invalid("a size is negative or too large"))?)?;
    }
    out.resize(&dims)
}
