//! Arithmetic of two elements.

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Arg, Builder, Graph, Type, ValueId};

use super::inference::{arithmetic, broadcast_shape, floating_arithmetic, one};
use super::promotion::to_floating;
use super::{Definition, Lowered, Operands, composite, compute_dtype, done, forward, kernel, promote};

pub(crate) const OPS: &[Definition] = &[
    kernel("aten::add.Tensor", arithmetic),
    kernel("aten::add.Scalar", arithmetic),
    kernel("aten::sub.Tensor", arithmetic),
    kernel("aten::sub.Scalar", arithmetic),
    composite("aten::subtract.Tensor", arithmetic, |b, o| forward(b, o, "aten::sub.Tensor")),
    composite("aten::subtract.Scalar", arithmetic, |b, o| forward(b, o, "aten::sub.Scalar")),
    kernel("aten::rsub.Scalar", arithmetic),
    composite("aten::rsub.Tensor", arithmetic, rsub),
    kernel("aten::mul.Tensor", arithmetic),
    kernel("aten::mul.Scalar", arithmetic),
    composite("aten::multiply.Tensor", arithmetic, |b, o| forward(b, o, "aten::mul.Tensor")),
    composite("aten::multiply.Scalar", arithmetic, |b, o| forward(b, o, "aten::mul.Scalar")),
    kernel("aten::div.Tensor", floating_arithmetic),
    kernel("aten::div.Scalar", floating_arithmetic),
    composite("aten::divide.Tensor", floating_arithmetic, |b, o| forward(b, o, "aten::div.Tensor")),
    composite("aten::divide.Scalar", floating_arithmetic, |b, o| forward(b, o, "aten::div.Scalar")),
    composite("aten::true_divide.Tensor", floating_arithmetic, |b, o| forward(b, o, "aten::div.Tensor")),
    composite("aten::true_divide.Scalar", floating_arithmetic, |b, o| forward(b, o, "aten::div.Scalar")),
    kernel("aten::div.Tensor_mode", rounded_division),
    kernel("aten::div.Scalar_mode", rounded_division),
    composite("aten::divide.Tensor_mode", rounded_division, |b, o| forward(b, o, "aten::div.Tensor_mode")),
    composite("aten::divide.Scalar_mode", rounded_division, |b, o| forward(b, o, "aten::div.Scalar_mode")),
    kernel("aten::floor_divide", arithmetic),
    composite("aten::floor_divide.Scalar", arithmetic, floor_divide_scalar),
    kernel("aten::fmod.Tensor", arithmetic),
    kernel("aten::fmod.Scalar", arithmetic),
    kernel("aten::remainder.Tensor", arithmetic),
    kernel("aten::remainder.Scalar", arithmetic),
    composite("aten::remainder.Scalar_Tensor", arithmetic, |b, o| scalar_first(b, o, "aten::remainder.Tensor")),
    kernel("aten::pow.Tensor_Tensor", arithmetic),
    kernel("aten::pow.Tensor_Scalar", arithmetic),
    kernel("aten::pow.Scalar", arithmetic),
    composite("aten::float_power.Tensor_Tensor", double_arithmetic, float_power),
    composite("aten::float_power.Tensor_Scalar", double_arithmetic, float_power),
    composite("aten::float_power.Scalar", double_arithmetic, float_power),
    kernel("aten::atan2", floating_arithmetic),
    composite("aten::arctan2", floating_arithmetic, |b, o| forward(b, o, "aten::atan2")),
    kernel("aten::maximum", arithmetic),
    kernel("aten::minimum", arithmetic),
    composite("aten::max.other", arithmetic, |b, o| forward(b, o, "aten::maximum")),
    composite("aten::min.other", arithmetic, |b, o| forward(b, o, "aten::minimum")),
    composite("aten::fmax", arithmetic, |b, o| beyond(b, o, "aten::gt")),
    composite("aten::fmin", arithmetic, |b, o| beyond(b, o, "aten::lt")),
    composite("aten::hypot", arithmetic, hypot),
    composite("aten::logaddexp", floating_arithmetic, logaddexp),
    composite("aten::logaddexp2", floating_arithmetic, logaddexp2),
    composite("aten::copysign.Tensor", floating_arithmetic, copysign),
    composite("aten::copysign.Scalar", floating_arithmetic, copysign),
    composite("aten::heaviside", arithmetic, heaviside),
    composite("aten::ldexp.Tensor", floating_arithmetic, ldexp),
    composite("aten::xlogy.Tensor", floating_arithmetic, |b, o| times_log(b, o, "aten::log")),
    composite("aten::xlogy.Scalar_Other", floating_arithmetic, |b, o| times_log(b, o, "aten::log")),
    composite("aten::xlogy.Scalar_Self", floating_arithmetic, |b, o| times_log(b, o, "aten::log")),
    composite("aten::special_xlogy", floating_arithmetic, |b, o| times_log(b, o, "aten::log")),
    composite("aten::special_xlogy.other_scalar", floating_arithmetic, |b, o| times_log(b, o, "aten::log")),
    composite("aten::special_xlogy.self_scalar", floating_arithmetic, |b, o| times_log(b, o, "aten::log")),
    composite("aten::special_xlog1py", floating_arithmetic, |b, o| times_log(b, o, "aten::log1p")),
    composite("aten::special_xlog1py.other_scalar", floating_arithmetic, |b, o| times_log(b, o, "aten::log1p")),
    composite("aten::special_xlog1py.self_scalar", floating_arithmetic, |b, o| times_log(b, o, "aten::log1p")),
    composite("aten::_add_relu.Tensor", arithmetic, add_relu),
    composite("aten::_add_relu.Scalar", arithmetic, add_relu),
];

/// Without a rounding mode, a quotient of integers is floating.
fn rounded_division(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    match operands.str(2)? {
        None => floating_arithmetic(operands, graph),
        Some("floor" | "trunc") => arithmetic(operands, graph),
        Some(_) => Err(operands.wrong(2, "\"floor\", \"trunc\" or none")),
    }
}

/// Real numbers in double precision.
fn double_arithmetic(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let args = [operands.arg(0), operands.arg(1)];
    if promote(&args, graph)?.is_complex() {
        return Err(Error::unsupported("`aten::float_power` of complex numbers"));
    }
    one(ScalarType::Double, broadcast_shape(&args, graph)?)
}

/// The first two arguments as tensors of the dtype that they promote to, in which PyTorch computes.
fn pair(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<(ValueId, ValueId, ScalarType), Error> {
    let dtype = promote(&[operands.arg(0), operands.arg(1)], b.graph)?;
    tensors(b, operands, dtype)
}

/// As [`pair`], in a floating dtype.
fn floating_pair(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<(ValueId, ValueId, ScalarType), Error> {
    let dtype = promote(&[operands.arg(0), operands.arg(1)], b.graph)?;
    tensors(b, operands, to_floating(dtype))
}

fn tensors(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    dtype: ScalarType,
) -> Result<(ValueId, ValueId, ScalarType), Error> {
    let wide = compute_dtype(dtype);
    let mut tensor = |index| {
        let value = b.as_tensor(operands.arg(index), wide)?;
        b.cast(value, wide)
    };
    Ok((tensor(0)?, tensor(1)?, dtype))
}

/// `other - alpha * self`.
fn rsub(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let args = vec![operands.arg(1).clone(), operands.arg(0).clone(), operands.arg(2).clone()];
    b.one("aten::sub.Tensor", args).and_then(done)
}

fn floor_divide_scalar(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let args = vec![operands.arg(0).clone(), operands.arg(1).clone(), Arg::from("floor")];
    b.one("aten::div.Scalar_mode", args).and_then(done)
}

/// Calls the overload for two tensors where the first argument is a number.
pub(crate) fn scalar_first(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    let dtype = promote(&[operands.arg(0), operands.arg(1)], b.graph)?;
    let first = b.as_tensor(operands.arg(0), dtype)?;
    b.one(name, vec![first.into(), operands.arg(1).clone()]).and_then(done)
}

fn float_power(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    double_arithmetic(operands, b.graph)?;
    let (base, exponent, _) = tensors(b, operands, ScalarType::Double)?;
    b.one("aten::pow.Tensor_Tensor", vec![base.into(), exponent.into()]).and_then(done)
}

/// The one of two numbers that is beyond the other; a number rather than NaN.
fn beyond(b: &mut Builder<'_>, operands: &Operands<'_>, comparison: &str) -> Lowered {
    let (x, y) = (operands.value(0)?, operands.value(1)?);
    let (beyond, other_nan) = (b.compare(comparison, x, y)?, b.unary("aten::isnan", y)?);
    let first = b.one("aten::logical_or", vec![beyond.into(), other_nan.into()])?;
    b.select(first, x, y).and_then(done)
}

fn hypot(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y, dtype) = pair(b, operands)?;
    let (xx, yy) = (b.mul(x, x)?, b.mul(y, y)?);
    let sum = b.add(xx, yy)?;
    let root = b.unary("aten::sqrt", sum)?;
    b.cast(root, dtype).and_then(done)
}

/// `log(exp(x) + exp(y))` as `max + log1p(exp(-|x - y|))`; equal infinities are their own sum.
fn logaddexp(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y, dtype) = floating_pair(b, operands)?;
    let sum = log_add(b, x, y)?;
    b.cast(sum, dtype).and_then(done)
}

/// [`logaddexp`] of tensors of one floating dtype.
pub(crate) fn log_add(b: &mut Builder<'_>, x: ValueId, y: ValueId) -> Result<ValueId, Error> {
    let (greater, difference) = (b.one("aten::maximum", vec![x.into(), y.into()])?, b.sub(x, y)?);
    let distance = b.unary("aten::abs", difference)?;
    let negative = b.unary("aten::neg", distance)?;
    let exponential = b.unary("aten::exp", negative)?;
    let more = b.unary("aten::log1p", exponential)?;
    let sum = b.add(greater, more)?;
    let infinite = b.unary("aten::isinf", greater)?;
    b.select(infinite, greater, sum)
}

/// As [`logaddexp`], with powers of two.
fn logaddexp2(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y, dtype) = floating_pair(b, operands)?;
    let (x, y) = (b.mul(x, std::f64::consts::LN_2)?, b.mul(y, std::f64::consts::LN_2)?);
    let sum = log_add(b, x, y)?;
    let sum = b.mul(sum, std::f64::consts::LOG2_E)?;
    b.cast(sum, dtype).and_then(done)
}

fn copysign(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, sign, dtype) = floating_pair(b, operands)?;
    let (magnitude, negative) = (b.unary("aten::abs", x)?, b.unary("aten::signbit", sign)?);
    let opposite = b.unary("aten::neg", magnitude)?;
    let value = b.select(negative, opposite, magnitude)?;
    b.cast(value, dtype).and_then(done)
}

/// 0 below zero, 1 above, the second argument at zero.
fn heaviside(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, at_zero) = (operands.value(0)?, operands.value(1)?);
    let dtype = b.tensor(x)?.dtype;
    let (zero, positive) = (b.compare("aten::eq", x, 0)?, b.compare("aten::gt", x, 0)?);
    let step = b.cast(positive, dtype)?;
    b.select(zero, at_zero, step).and_then(done)
}

/// `x * 2^n`.
fn ldexp(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, n, dtype) = floating_pair(b, operands)?;
    let power = b.one("aten::pow.Scalar", vec![Arg::Float(2.0), n.into()])?;
    let value = b.mul(x, power)?;
    b.cast(value, dtype).and_then(done)
}

/// `x * log(y)`, which is 0 where `x` is 0 unless `y` is NaN.
fn times_log(b: &mut Builder<'_>, operands: &Operands<'_>, log: &str) -> Lowered {
    let (x, y, dtype) = floating_pair(b, operands)?;
    let logarithm = b.unary(log, y)?;
    let product = b.mul(x, logarithm)?;
    let (zero, nan) = (b.compare("aten::eq", x, 0)?, b.unary("aten::isnan", y)?);
    let value = b.select(zero, 0.0, product)?;
    let value = b.select(nan, f64::NAN, value)?;
    b.cast(value, dtype).and_then(done)
}

fn add_relu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let name = if b.is_tensor(operands.arg(1)) { "aten::add.Tensor" } else { "aten::add.Scalar" };
    let sum = b.one(name, operands.args.to_vec())?;
    b.unary("aten::relu", sum).and_then(done)
}
