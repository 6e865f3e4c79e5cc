//! Copies, casts and changes of the memory layout.

use rushlight_runtime::{Error, KernelContext, Op, Result};

use crate::support::convert::convert;

/// `copy.out(Tensor self, Tensor src, bool non_blocking=False, *, Tensor(a!) out)`: `src` in the shape of `self`.
pub const COPY_OUT: Op = Op::new("aten::copy.out", 4, copy_out);
/// `copy_(Tensor(a!) self, Tensor src, bool non_blocking=False)`.
pub const COPY: Op = Op::new("aten::copy_", 3, copy_in_place).writing(&[0]);
/// `_to_copy.out(Tensor self, *, bool non_blocking=False, MemoryFormat? memory_format=None, Tensor(a!) out)`.
pub const TO_COPY_OUT: Op = Op::new("aten::_to_copy.out", 4, |cx| duplicate(cx, 3));
/// `clone.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out)`.
pub const CLONE_OUT: Op = Op::new("aten::clone.out", 3, |cx| duplicate(cx, 2));
/// `alias_copy.out(Tensor self, *, Tensor(a!) out)`.
pub const ALIAS_COPY_OUT: Op = Op::new("aten::alias_copy.out", 2, |cx| duplicate(cx, 1));
/// `detach_copy.out(Tensor self, *, Tensor(a!) out)`.
pub const DETACH_COPY_OUT: Op = Op::new("aten::detach_copy.out", 2, |cx| duplicate(cx, 1));
/// `lift_fresh_copy.out(Tensor self, *, Tensor(a!) out)`.
pub const LIFT_FRESH_COPY_OUT: Op = Op::new("aten::lift_fresh_copy.out", 2, |cx| duplicate(cx, 1));
/// `_to_dim_order_copy.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out)`.
pub const TO_DIM_ORDER_COPY_OUT: Op = Op::new("dim_order_ops::_to_dim_order_copy.out", 4, reorder);
/// `_clone_dim_order.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out)`.
pub const CLONE_DIM_ORDER_OUT: Op = Op::new("dim_order_ops::_clone_dim_order.out", 4, reorder);

pub const OPS: &[Op] = &[
    COPY_OUT,
    COPY,
    TO_COPY_OUT,
    CLONE_OUT,
    ALIAS_COPY_OUT,
    DETACH_COPY_OUT,
    LIFT_FRESH_COPY_OUT,
    TO_DIM_ORDER_COPY_OUT,
    CLONE_DIM_ORDER_OUT,
];

fn copy_out(cx: &KernelContext<'_>) -> Result<()> {
    let (shape, src) = (cx.tensor(0)?, cx.tensor(1)?);
    let mut out = cx.out(3)?;
    out.resize(shape.sizes()).map_err(|e| e.arg(3))?;
    convert(&src, &mut out).map_err(|e| e.arg(1))
}

fn copy_in_place(cx: &KernelContext<'_>) -> Result<()> {
    let src = cx.tensor(1)?;
    convert(&src, &mut cx.out(0)?).map_err(|e| e.arg(1))
}

/// The output has the layout of its plan; the memory format argument has no effect.
fn duplicate(cx: &KernelContext<'_>, index: usize) -> Result<()> {
    let a = cx.tensor(0)?;
    let mut out = cx.out(index)?;
    out.resize(a.sizes()).map_err(|e| e.arg(index))?;
    convert(&a, &mut out).map_err(|e| e.arg(0))
}

fn reorder(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let mut out = cx.out(3)?;
    if let Some(order) = cx.optional_ints(2)?
        && !order.iter().eq(out.dim_order().iter().map(|&dim| i64::from(dim)))
    {
        return Err(Error::invalid("dim_order differs from that of the output").arg(2));
    }
    out.resize(a.sizes()).map_err(|e| e.arg(3))?;
    convert(&a, &mut out).map_err(|e| e.arg(0))
}
