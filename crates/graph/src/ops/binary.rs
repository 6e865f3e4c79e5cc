//! Arithmetic of two elements.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Graph, Type, ValueId};

use super::inference::{arithmetic, broadcast_shape, floating_arithmetic, one};
use super::promotion::to_floating;
use super::{Definition, Lowered, Operands, composite, compute_dtype, done, forward, kernel, promote};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::ADD_TENSOR, arithmetic),
    kernel(aten::ADD_SCALAR, arithmetic),
    kernel(aten::SUB_TENSOR, arithmetic),
    kernel(aten::SUB_SCALAR, arithmetic),
    composite(aten::SUBTRACT_TENSOR, arithmetic, |b, o| forward(b, o, aten::SUB_TENSOR)),
    composite(aten::SUBTRACT_SCALAR, arithmetic, |b, o| forward(b, o, aten::SUB_SCALAR)),
    kernel(aten::RSUB_SCALAR, arithmetic),
    composite(aten::RSUB_TENSOR, arithmetic, rsub),
    kernel(aten::MUL_TENSOR, arithmetic),
    kernel(aten::MUL_SCALAR, arithmetic),
    composite(aten::MULTIPLY_TENSOR, arithmetic, |b, o| forward(b, o, aten::MUL_TENSOR)),
    composite(aten::MULTIPLY_SCALAR, arithmetic, |b, o| forward(b, o, aten::MUL_SCALAR)),
    kernel(aten::DIV_TENSOR, floating_arithmetic),
    kernel(aten::DIV_SCALAR, floating_arithmetic),
    composite(aten::DIVIDE_TENSOR, floating_arithmetic, |b, o| forward(b, o, aten::DIV_TENSOR)),
    composite(aten::DIVIDE_SCALAR, floating_arithmetic, |b, o| forward(b, o, aten::DIV_SCALAR)),
    composite(aten::TRUE_DIVIDE_TENSOR, floating_arithmetic, |b, o| forward(b, o, aten::DIV_TENSOR)),
    composite(aten::TRUE_DIVIDE_SCALAR, floating_arithmetic, |b, o| forward(b, o, aten::DIV_SCALAR)),
    kernel(aten::DIV_TENSOR_MODE, rounded_division),
    kernel(aten::DIV_SCALAR_MODE, rounded_division),
    composite(aten::DIVIDE_TENSOR_MODE, rounded_division, |b, o| forward(b, o, aten::DIV_TENSOR_MODE)),
    composite(aten::DIVIDE_SCALAR_MODE, rounded_division, |b, o| forward(b, o, aten::DIV_SCALAR_MODE)),
    kernel(aten::FLOOR_DIVIDE, arithmetic),
    composite(aten::FLOOR_DIVIDE_SCALAR, arithmetic, floor_divide_scalar),
    kernel(aten::FMOD_TENSOR, arithmetic),
    kernel(aten::FMOD_SCALAR, arithmetic),
    kernel(aten::REMAINDER_TENSOR, arithmetic),
    kernel(aten::REMAINDER_SCALAR, arithmetic),
    composite(aten::REMAINDER_SCALAR_TENSOR, arithmetic, |b, o| scalar_first(b, o, aten::REMAINDER_TENSOR)),
    kernel(aten::POW_TENSOR_TENSOR, arithmetic),
    kernel(aten::POW_TENSOR_SCALAR, arithmetic),
    kernel(aten::POW_SCALAR, arithmetic),
    composite(aten::FLOAT_POWER_TENSOR_TENSOR, double_arithmetic, float_power),
    composite(aten::FLOAT_POWER_TENSOR_SCALAR, double_arithmetic, float_power),
    composite(aten::FLOAT_POWER_SCALAR, double_arithmetic, float_power),
    kernel(aten::ATAN2, floating_arithmetic),
    composite(aten::ARCTAN2, floating_arithmetic, |b, o| forward(b, o, aten::ATAN2)),
    kernel(aten::MAXIMUM, arithmetic),
    kernel(aten::MINIMUM, arithmetic),
    composite(aten::MAX_OTHER, arithmetic, |b, o| forward(b, o, aten::MAXIMUM)),
    composite(aten::MIN_OTHER, arithmetic, |b, o| forward(b, o, aten::MINIMUM)),
    composite(aten::FMAX, arithmetic, |b, o| beyond(b, o, aten::packet::GT)),
    composite(aten::FMIN, arithmetic, |b, o| beyond(b, o, aten::packet::LT)),
    composite(aten::HYPOT, arithmetic, hypot),
    composite(aten::LOGADDEXP, floating_arithmetic, logaddexp),
    composite(aten::LOGADDEXP2, floating_arithmetic, logaddexp2),
    composite(aten::COPYSIGN_TENSOR, floating_arithmetic, copysign),
    composite(aten::COPYSIGN_SCALAR, floating_arithmetic, copysign),
    composite(aten::HEAVISIDE, arithmetic, heaviside),
    composite(aten::LDEXP_TENSOR, floating_arithmetic, ldexp),
    composite(aten::XLOGY_TENSOR, floating_arithmetic, |b, o| times_log(b, o, aten::LOG)),
    composite(aten::XLOGY_SCALAR_OTHER, floating_arithmetic, |b, o| times_log(b, o, aten::LOG)),
    composite(aten::XLOGY_SCALAR_SELF, floating_arithmetic, |b, o| times_log(b, o, aten::LOG)),
    composite(aten::SPECIAL_XLOGY, floating_arithmetic, |b, o| times_log(b, o, aten::LOG)),
    composite(aten::SPECIAL_XLOGY_OTHER_SCALAR, floating_arithmetic, |b, o| times_log(b, o, aten::LOG)),
    composite(aten::SPECIAL_XLOGY_SELF_SCALAR, floating_arithmetic, |b, o| times_log(b, o, aten::LOG)),
    composite(aten::SPECIAL_XLOG1PY, floating_arithmetic, |b, o| times_log(b, o, aten::LOG1P)),
    composite(aten::SPECIAL_XLOG1PY_OTHER_SCALAR, floating_arithmetic, |b, o| times_log(b, o, aten::LOG1P)),
    composite(aten::SPECIAL_XLOG1PY_SELF_SCALAR, floating_arithmetic, |b, o| times_log(b, o, aten::LOG1P)),
    kernel(aten::NEXTAFTER, arithmetic),
    kernel(aten::GCD, arithmetic),
    composite(aten::LCM, arithmetic, lcm),
    composite(aten::_ADD_RELU_TENSOR, arithmetic, add_relu),
    composite(aten::_ADD_RELU_SCALAR, arithmetic, add_relu),
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
    b.one(aten::SUB_TENSOR, args).and_then(done)
}

fn floor_divide_scalar(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let args = vec![operands.arg(0).clone(), operands.arg(1).clone(), Arg::from("floor")];
    b.one(aten::DIV_SCALAR_MODE, args).and_then(done)
}

/// Calls the overload for two tensors where the first argument is a number.
pub(crate) fn scalar_first(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    let dtype = promote(&[operands.arg(0), operands.arg(1)], b.graph)?;
    let first = b.as_tensor(operands.arg(0), dtype)?;
    b.one(name, vec![first.into(), operands.arg(1).clone()]).and_then(done)
}

fn float_power(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    double_arithmetic(operands, b.graph)?;
    // The power of a number is a root or a product where PyTorch computes one, which differs at -0 and infinity.
    if let (Arg::Value(base), exponent @ (Arg::Int(_) | Arg::Float(_))) = (operands.arg(0), operands.arg(1)) {
        let base = b.cast(*base, ScalarType::Double)?;
        return b.one(aten::POW_TENSOR_SCALAR, vec![base.into(), exponent.clone()]).and_then(done);
    }
    let (base, exponent, _) = tensors(b, operands, ScalarType::Double)?;
    b.one(aten::POW_TENSOR_TENSOR, vec![base.into(), exponent.into()]).and_then(done)
}

/// The one of two numbers that is beyond the other; a number rather than NaN.
fn beyond(b: &mut Builder<'_>, operands: &Operands<'_>, comparison: &str) -> Lowered {
    let (x, y) = (operands.value(0)?, operands.value(1)?);
    let (beyond, other_nan) = (b.compare(comparison, x, y)?, b.unary(aten::ISNAN, y)?);
    let first = b.one(aten::LOGICAL_OR, vec![beyond.into(), other_nan.into()])?;
    b.select(first, x, y).and_then(done)
}

fn hypot(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y, dtype) = pair(b, operands)?;
    let (xx, yy) = (b.mul(x, x)?, b.mul(y, y)?);
    let sum = b.add(xx, yy)?;
    let root = b.unary(aten::SQRT, sum)?;
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
    let (greater, difference) = (b.one(aten::MAXIMUM, vec![x.into(), y.into()])?, b.sub(x, y)?);
    let distance = b.unary(aten::ABS, difference)?;
    let negative = b.unary(aten::NEG, distance)?;
    let exponential = b.unary(aten::EXP, negative)?;
    let more = b.unary(aten::LOG1P, exponential)?;
    let sum = b.add(greater, more)?;
    let infinite = b.unary(aten::ISINF, greater)?;
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
    let (magnitude, negative) = (b.unary(aten::ABS, x)?, b.unary(aten::SIGNBIT, sign)?);
    let opposite = b.unary(aten::NEG, magnitude)?;
    let value = b.select(negative, opposite, magnitude)?;
    b.cast(value, dtype).and_then(done)
}

/// 0 below zero, 1 above, the second argument at zero.
fn heaviside(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, at_zero) = (operands.value(0)?, operands.value(1)?);
    let dtype = b.tensor(x)?.dtype;
    let (zero, positive) = (b.compare(aten::packet::EQ, x, 0)?, b.compare(aten::packet::GT, x, 0)?);
    let step = b.cast(positive, dtype)?;
    b.select(zero, at_zero, step).and_then(done)
}

/// `x * 2^n`.
fn ldexp(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, n, dtype) = floating_pair(b, operands)?;
    let power = b.one(aten::POW_SCALAR, vec![Arg::Float(2.0), n.into()])?;
    let value = b.mul(x, power)?;
    b.cast(value, dtype).and_then(done)
}

/// `x * log(y)`, which is 0 where `x` is 0 unless `y` is NaN.
fn times_log(b: &mut Builder<'_>, operands: &Operands<'_>, log: &str) -> Lowered {
    let (x, y, dtype) = floating_pair(b, operands)?;
    let logarithm = b.unary(log, y)?;
    let product = b.mul(x, logarithm)?;
    let (zero, nan) = (b.compare(aten::packet::EQ, x, 0)?, b.unary(aten::ISNAN, y)?);
    let value = b.select(zero, 0.0, product)?;
    let value = b.select(nan, f64::NAN, value)?;
    b.cast(value, dtype).and_then(done)
}

/// `|a / gcd(a, b) * b|`, and 0 where both operands are 0.
fn lcm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y, _) = pair(b, operands)?;
    let divisor = b.one(aten::GCD, vec![x.into(), y.into()])?;
    let zero = b.compare(aten::packet::EQ, divisor, 0)?;
    let divisor = b.select(zero, 1, divisor)?;
    let part = b.one(aten::DIV_TENSOR_MODE, vec![x.into(), divisor.into(), Arg::from("trunc")])?;
    let product = b.mul(part, y)?;
    b.unary(aten::ABS, product).and_then(done)
}

fn add_relu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let name = if b.is_tensor(operands.arg(1)) { aten::ADD_TENSOR } else { aten::ADD_SCALAR };
    let sum = b.one(name, operands.args.to_vec())?;
    b.unary(aten::RELU, sum).and_then(done)
}
