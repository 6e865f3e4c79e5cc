//! Powers.

use core::cell::Cell;

use rushlight_runtime::{Error, KernelContext, Op, Result, Scalar, ScalarType, Tensor, TensorMut};

use crate::support::convert;
use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};
use crate::support::math;
use crate::support::promote;
use crate::support::tile::{ComputeType, scalar_as};

/// `pow.Tensor_Tensor_out(Tensor self, Tensor exponent, *, Tensor(a!) out)`.
pub const POW_TENSOR_TENSOR_OUT: Op = Op::new("aten::pow.Tensor_Tensor_out", 3, pow_tensor_tensor_out);
/// `pow.Tensor_Scalar_out(Tensor self, Scalar exponent, *, Tensor(a!) out)`.
pub const POW_TENSOR_SCALAR_OUT: Op = Op::new("aten::pow.Tensor_Scalar_out", 3, pow_tensor_scalar_out);
/// `pow.Scalar_out(Scalar self, Tensor exponent, *, Tensor(a!) out)`.
pub const POW_SCALAR_OUT: Op = Op::new("aten::pow.Scalar_out", 3, pow_scalar_out);

pub const OPS: &[Op] = &[POW_TENSOR_TENSOR_OUT, POW_TENSOR_SCALAR_OUT, POW_SCALAR_OUT];

fn pow_tensor_tensor_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = promote::tensors(&a, &b)?;
    let mut out = out_broadcast(cx, 2, &a, &b, common)?;
    let types = (common, common, common);
    match ComputeType::of(common)? {
        ComputeType::F32 => binary(&a, &b, &mut out, types, &math::pow),
        ComputeType::F64 => binary(&a, &b, &mut out, types, &zip(libm::pow)),
        _ => compute!(INT, common, C => binary(&a, &b, &mut out, types, &zip(C::raise))),
    }
}

fn pow_tensor_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
    let common = promote::tensor_scalar(&a, b)?;
    let mut out = out_like(cx, 2, &a, common)?;
    match ComputeType::of(common)? {
        ComputeType::F32 => power_f32(&a, b.to_f64() as f32, common, &mut out),
        ComputeType::F64 => power_f64(&a, b.to_f64(), &mut out),
        _ if b.to_f64() < 0.0 => Err(Error::invalid("integers cannot be raised to negative integer powers").arg(1)),
        _ => compute!(INT, common, C => {
            let b = scalar_as::<C>(b, common);
            unary(&a, &mut out, (common, common), &map(move |x: C| x.raise(b)))
        }),
    }
}

fn pow_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.scalar(0)?, cx.tensor(1)?);
    let common = promote::tensor_scalar(&b, a)?;
    let mut out = out_like(cx, 2, &b, common)?;
    let types = (common, common);
    if a.to_f64() == 1.0 {
        return convert::fill(Scalar::Int(1), &mut out);
    }
    match ComputeType::of(common)? {
        ComputeType::F32 => unary(&b, &mut out, types, &math::pow_of(a.to_f64() as f32)),
        ComputeType::F64 => {
            let a = a.to_f64();
            unary(&b, &mut out, types, &map(|y| libm::pow(a, y)))
        }
        _ => compute!(INT, common, C => {
            let negative = Cell::new(false);
            let a = scalar_as::<C>(a, common);
            unary(&b, &mut out, types, &map(|y: C| {
                if y < 0 {
                    negative.set(true);
                }
                a.raise(y)
            }))?;
            if negative.get() && a != 1 && a != -1 {
                return Err(Error::invalid("integers cannot be raised to negative integer powers").arg(1));
            }
            Ok(())
        }),
    }
}

/// Small exponents are products, quotients and roots, as in PyTorch.
fn power_f32(a: &Tensor<'_>, y: f32, common: ScalarType, out: &mut TensorMut<'_>) -> Result<()> {
    let types = (common, common);
    if y == 2.0 {
        return unary(a, out, types, &map(|x: f32| x * x));
    }
    if y == 3.0 {
        return unary(a, out, types, &map(|x: f32| x * x * x));
    }
    if y == 0.5 {
        return unary(a, out, types, &math::sqrt);
    }
    if y == -0.5 {
        return unary(a, out, types, &math::rsqrt);
    }
    if y == -1.0 {
        return unary(a, out, types, &map(|x: f32| 1.0 / x));
    }
    if y == -2.0 {
        return unary(a, out, types, &map(|x: f32| 1.0 / (x * x)));
    }
    unary(a, out, types, &math::pow_by(y))
}

fn power_f64(a: &Tensor<'_>, y: f64, out: &mut TensorMut<'_>) -> Result<()> {
    let power = |x: f64| {
        if y == 2.0 {
            x * x
        } else if y == 0.5 {
            libm::sqrt(x)
        } else if y == -0.5 {
            1.0 / libm::sqrt(x)
        } else {
            libm::pow(x, y)
        }
    };
    unary(a, out, (ScalarType::Double, ScalarType::Double), &map(power))
}

trait Raise: Sized {
    /// Wraps. Negative exponents give 0 except for the bases 1 and -1.
    fn raise(self, exponent: Self) -> Self;
}

macro_rules! raise {
    ($t:ty) => {
        impl Raise for $t {
            fn raise(self, exponent: Self) -> Self {
                if exponent < 0 {
                    return match self {
                        1 => 1,
                        -1 => {
                            if exponent % 2 == 0 {
                                1
                            } else {
                                -1
                            }
                        }
                        _ => 0,
                    };
                }
                let (mut base, mut left, mut result) = (self, exponent, 1 as $t);
                while left > 0 {
                    if left & 1 == 1 {
                        result = result.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    left >>= 1;
                }
                result
            }
        }
    };
}

raise!(i32);
raise!(i64);
