//! Products.

use rushlight_runtime::{Complex, KernelContext, Op, Result};

use crate::support::elementwise::{binary, bytes, map, out_like, plain, ready_broadcast, unary, zip};
use crate::support::number::Arithmetic;
use crate::support::promote;
use crate::support::tile::scalar_as;

/// `mul.out(Tensor self, Tensor other, *, Tensor(a!) out)`.
pub const MUL_OUT: Op = Op::new("aten::mul.out", 3, mul_out);
/// `mul.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)`.
pub const MUL_SCALAR_OUT: Op = Op::new("aten::mul.Scalar_out", 3, mul_scalar_out);

pub const OPS: &[Op] = &[MUL_OUT, MUL_SCALAR_OUT];

fn mul_out(cx: &KernelContext<'_>) -> Result<()> {
    if plain(cx, 2, |x, y| x * y) {
        return Ok(());
    }
    multiply(cx)
}

#[inline(never)]
fn multiply(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(2)?);
    let (a, b, out) = (&a, &b, &mut out);
    let common = promote::tensors(a, b)?;
    ready_broadcast(out, 2, a, b, common)?;
    let types = (common, common, common);
    if common.is_complex() {
        return compute!(COMPLEX, common, C => {
            let mul = |x: C, y: C| Complex { re: x.re * y.re - x.im * y.im, im: x.re * y.im + x.im * y.re };
            binary(a, b, out, types, &zip(mul))
        });
    }
    if bytes(a, b, out, common, &zip(u8::wrapping_mul)) {
        return Ok(());
    }
    compute!(REAL, common, C => binary(a, b, out, types, &zip(move |x: C, y: C| x.mul(y))))
}

fn mul_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
    let common = promote::tensor_scalar(&a, b)?;
    let mut out = out_like(cx, 2, &a, common)?;
    if common.is_complex() {
        return compute!(COMPLEX, common, C => {
            let b = scalar_as::<C>(b, common).re;
            unary(&a, &mut out, (common, common), &map(move |x: C| Complex { re: x.re * b, im: x.im * b }))
        });
    }
    compute!(REAL, common, C => {
        let b = scalar_as::<C>(b, common);
        unary(&a, &mut out, (common, common), &map(move |x: C| x.mul(b)))
    })
}
