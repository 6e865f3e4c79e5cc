//! Sums and differences.

use rushlight_runtime::{Complex, Error, KernelContext, Op, Result, Scalar, ScalarType, Tensor, TensorMut};

use crate::support::elementwise::{binary, bytes, map, out_like, plain, ready_broadcast, unary, zip};
use crate::support::number::Arithmetic;
use crate::support::promote;
use crate::support::tile::scalar_as;

/// `add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out)`: `self + alpha * other`.
pub const ADD_OUT: Op = Op::new("aten::add.out", 4, add_out);
/// `add.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out)`.
pub const ADD_SCALAR_OUT: Op = Op::new("aten::add.Scalar_out", 4, add_scalar_out);
/// `sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out)`: `self - alpha * other`.
pub const SUB_OUT: Op = Op::new("aten::sub.out", 4, sub_out);
/// `sub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out)`.
pub const SUB_SCALAR_OUT: Op = Op::new("aten::sub.Scalar_out", 4, sub_scalar_out);
/// `rsub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out)`: `other - alpha * self`.
pub const RSUB_SCALAR_OUT: Op = Op::new("aten::rsub.Scalar_out", 4, rsub_scalar_out);

pub const OPS: &[Op] = &[ADD_OUT, ADD_SCALAR_OUT, SUB_OUT, SUB_SCALAR_OUT, RSUB_SCALAR_OUT];

fn add_out(cx: &KernelContext<'_>) -> Result<()> {
    if cx.is_int(2, 1) && plain(cx, 3, |x, y| x + y) {
        return Ok(());
    }
    add_any(cx)
}

#[inline(never)]
fn add_any(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(3)?);
    let alpha = cx.scalar(2)?;
    let common = promote::tensors(&a, &b)?;
    check_alpha(alpha, common)?;
    ready_broadcast(&mut out, 3, &a, &b, common)?;
    add_scaled(&a, &b, alpha, common, &mut out)
}

fn sub_out(cx: &KernelContext<'_>) -> Result<()> {
    if cx.is_int(2, 1) && plain(cx, 3, |x, y| x - y) {
        return Ok(());
    }
    sub_any(cx)
}

#[inline(never)]
fn sub_any(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(3)?);
    let alpha = cx.scalar(2)?;
    let common = promote::tensors(&a, &b)?;
    check_alpha(alpha, common)?;
    reject_bool(common)?;
    ready_broadcast(&mut out, 3, &a, &b, common)?;
    add_scaled(&a, &b, negated(alpha), common, &mut out)
}

fn add_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, alpha) = (cx.tensor(0)?, cx.scalar(1)?, cx.scalar(2)?);
    let common = promote::tensor_scalar(&a, b)?;
    check_alpha(alpha, common)?;
    let mut out = out_like(cx, 3, &a, common)?;
    affine(&a, Scalar::Int(1), (b, alpha), common, &mut out)
}

fn sub_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, alpha) = (cx.tensor(0)?, cx.scalar(1)?, cx.scalar(2)?);
    let common = promote::tensor_scalar(&a, b)?;
    check_alpha(alpha, common)?;
    reject_bool(common)?;
    let mut out = out_like(cx, 3, &a, common)?;
    affine(&a, Scalar::Int(1), (b, negated(alpha)), common, &mut out)
}

fn rsub_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, alpha) = (cx.tensor(0)?, cx.scalar(1)?, cx.scalar(2)?);
    let common = promote::tensor_scalar(&a, b)?;
    check_alpha(alpha, common)?;
    reject_bool(common)?;
    let mut out = out_like(cx, 3, &a, common)?;
    affine(&a, negated(alpha), (b, Scalar::Int(1)), common, &mut out)
}

/// `a + alpha * b`.
#[inline(never)]
fn add_scaled(
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    alpha: Scalar,
    common: ScalarType,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let types = (common, common, common);
    if common.is_complex() {
        return compute!(COMPLEX, common, C => {
            let alpha = scalar_as::<C>(alpha, common).re;
            let add = |x: C, y: C| Complex { re: x.re + alpha * y.re, im: x.im + alpha * y.im };
            binary(a, b, out, types, &zip(add))
        });
    }
    // An alpha of 1 or -1 has its own loop, because the CPUs have no vector instruction that multiplies bytes.
    if matches!(common, ScalarType::Byte | ScalarType::Char)
        && match scalar_as::<i32>(alpha, common) as u8 {
            1 => bytes(a, b, out, common, &zip(u8::wrapping_add)),
            255 => bytes(a, b, out, common, &zip(u8::wrapping_sub)),
            alpha => bytes(a, b, out, common, &zip(move |x: u8, y: u8| x.wrapping_add(y.wrapping_mul(alpha)))),
        }
    {
        return Ok(());
    }
    compute!(REAL, common, C => {
        let alpha = scalar_as::<C>(alpha, common);
        binary(a, b, out, types, &zip(move |x: C, y: C| x.add(y.mul(alpha))))
    })
}

/// `scale * a + b * alpha`.
fn affine(
    a: &Tensor<'_>,
    scale: Scalar,
    (b, alpha): (Scalar, Scalar),
    common: ScalarType,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    if common.is_complex() {
        return compute!(COMPLEX, common, C => {
            let (scale, offset) = (scalar_as::<C>(scale, common).re,
                scalar_as::<C>(b, common).re * scalar_as::<C>(alpha, common).re);
            let add = |x: C| Complex { re: scale * x.re + offset, im: scale * x.im };
            unary(a, out, (common, common), &map(add))
        });
    }
    compute!(REAL, common, C => {
        let (scale, offset) = (scalar_as::<C>(scale, common),
            scalar_as::<C>(b, common).mul(scalar_as::<C>(alpha, common)));
        unary(a, out, (common, common), &map(move |x: C| x.mul(scale).add(offset)))
    })
}

fn negated(alpha: Scalar) -> Scalar {
    match alpha {
        Scalar::Int(v) => Scalar::Int(v.wrapping_neg()),
        Scalar::Double(v) => Scalar::Double(-v),
        Scalar::Bool(v) => Scalar::Int(-i64::from(v)),
    }
}

fn check_alpha(alpha: Scalar, common: ScalarType) -> Result<()> {
    match alpha {
        Scalar::Bool(_) if common != ScalarType::Bool => {
            Err(Error::invalid("a boolean alpha is only accepted for boolean results").arg(2))
        }
        Scalar::Double(_) if common.is_integral(true) => {
            Err(Error::invalid("alpha must not be a floating-point number for integer results").arg(2))
        }
        _ => Ok(()),
    }
}

fn reject_bool(common: ScalarType) -> Result<()> {
    if common == ScalarType::Bool {
        return Err(
            Error::invalid("booleans cannot be subtracted; logical_xor and logical_not do what is meant").arg(0)
        );
    }
    Ok(())
}
