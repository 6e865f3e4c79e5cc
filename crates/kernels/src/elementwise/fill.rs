//! Tensors filled with one value.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use crate::support::convert::{convert, fill};

/// `fill.Scalar_out(Tensor self, Scalar value, *, Tensor(a!) out)`.
pub const FILL_SCALAR_OUT: Op = Op::new("aten::fill.Scalar_out", 3, |cx| fill_scalar(cx, 2));
/// `fill.Tensor_out(Tensor self, Tensor value, *, Tensor(a!) out)`.
pub const FILL_TENSOR_OUT: Op = Op::new("aten::fill.Tensor_out", 3, fill_tensor_out);
/// `full_like.out(Tensor self, Scalar fill_value, *, MemoryFormat? memory_format=None, Tensor(a!) out)`.
pub const FULL_LIKE_OUT: Op = Op::new("aten::full_like.out", 4, |cx| fill_scalar(cx, 3));

pub const OPS: &[Op] = &[FILL_SCALAR_OUT, FILL_TENSOR_OUT, FULL_LIKE_OUT];

fn fill_scalar(cx: &KernelContext<'_>, index: usize) -> Result<()> {
    let (a, value) = (cx.tensor(0)?, cx.scalar(1)?);
    let mut out = cx.out(index)?;
    out.resize(a.sizes()).map_err(|e| e.arg(index))?;
    fill(value, &mut out).map_err(|e| e.arg(1))
}

fn fill_tensor_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, value) = (cx.tensor(0)?, cx.tensor(1)?);
    if value.rank() != 0 {
        return Err(Error::from(Detail::Rank { expected: "0", got: value.rank() }).arg(1));
    }
    let mut out = cx.out(2)?;
    out.resize(a.sizes()).map_err(|e| e.arg(2))?;
    convert(&value, &mut out).map_err(|e| e.arg(1))
}
