//! Rounding to integers. Integer tensors are copied.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType};

use crate::support::convert::convert;
use crate::support::elementwise::{map, out_like, unary};
use crate::support::math;

/// `ceil.out(Tensor self, *, Tensor(a!) out)`.
pub const CEIL_OUT: Op = Op::new("aten::ceil.out", 2, ceil_out);
/// `floor.out(Tensor self, *, Tensor(a!) out)`.
pub const FLOOR_OUT: Op = Op::new("aten::floor.out", 2, floor_out);
/// `round.out(Tensor self, *, Tensor(a!) out)`: halves go to the even neighbour.
pub const ROUND_OUT: Op = Op::new("aten::round.out", 2, round_out);
/// `trunc.out(Tensor self, *, Tensor(a!) out)`.
pub const TRUNC_OUT: Op = Op::new("aten::trunc.out", 2, trunc_out);

pub const OPS: &[Op] = &[CEIL_OUT, FLOOR_OUT, ROUND_OUT, TRUNC_OUT];

fn ceil_out(cx: &KernelContext<'_>) -> Result<()> {
    whole(cx, &map(math::ceil), &map(libm::ceil))
}

fn floor_out(cx: &KernelContext<'_>) -> Result<()> {
    whole(cx, &map(math::floor), &map(libm::floor))
}

fn round_out(cx: &KernelContext<'_>) -> Result<()> {
    whole(cx, &map(math::round), &map(libm::rint))
}

fn trunc_out(cx: &KernelContext<'_>) -> Result<()> {
    whole(cx, &map(math::trunc), &map(libm::trunc))
}

fn whole(
    cx: &KernelContext<'_>,
    f32_kernel: &dyn Fn(&[f32], &mut [f32]),
    f64_kernel: &dyn Fn(&[f64], &mut [f64]),
) -> Result<()> {
    let a = cx.tensor(0)?;
    let dtype = a.dtype();
    let mut out = out_like(cx, 1, &a, dtype)?;
    match dtype {
        ScalarType::Double => unary(&a, &mut out, (dtype, dtype), f64_kernel),
        _ if dtype.is_floating() => unary(&a, &mut out, (dtype, dtype), f32_kernel),
        _ if dtype.is_integral(false) => convert(&a, &mut out),
        got => Err(Error::from(Detail::Dtype { expected: "an integer or floating type", got }).arg(0)),
    }
}
