//! Functions of one element.

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Arg, Builder, Graph, Type};

use super::inference::{floating, one, same, truth};
use super::promotion::{category, to_floating};
use super::{Definition, Lowered, Operands, composite, done, forward, identity, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel("aten::abs", magnitude),
    composite("aten::absolute", magnitude, |b, o| forward(b, o, "aten::abs")),
    kernel("aten::neg", same),
    composite("aten::negative", same, |b, o| forward(b, o, "aten::neg")),
    composite("aten::_neg_view", same, |b, o| forward(b, o, "aten::neg")),
    composite("aten::positive", same, identity),
    kernel("aten::sign", same),
    composite("aten::sgn", same, |b, o| forward(b, o, "aten::sign")),
    composite("aten::signbit", truth, signbit),
    composite("aten::square", squared, square),
    kernel("aten::ceil", same),
    composite("aten::special_round", same, |b, o| forward(b, o, "aten::round.decimals")),
    kernel("aten::floor", same),
    kernel("aten::round", same),
    composite("aten::round.decimals", same, round_decimals),
    kernel("aten::trunc", same),
    composite("aten::fix", same, |b, o| forward(b, o, "aten::trunc")),
    composite("aten::frac", same, frac),
    kernel("aten::acos", floating),
    composite("aten::arccos", floating, |b, o| forward(b, o, "aten::acos")),
    kernel("aten::acosh", floating),
    composite("aten::arccosh", floating, |b, o| forward(b, o, "aten::acosh")),
    kernel("aten::asin", floating),
    composite("aten::arcsin", floating, |b, o| forward(b, o, "aten::asin")),
    kernel("aten::asinh", floating),
    composite("aten::arcsinh", floating, |b, o| forward(b, o, "aten::asinh")),
    kernel("aten::atan", floating),
    composite("aten::arctan", floating, |b, o| forward(b, o, "aten::atan")),
    kernel("aten::atanh", floating),
    composite("aten::arctanh", floating, |b, o| forward(b, o, "aten::atanh")),
    kernel("aten::cos", floating),
    kernel("aten::cosh", floating),
    kernel("aten::sin", floating),
    kernel("aten::sinh", floating),
    kernel("aten::tan", floating),
    kernel("aten::tanh", floating),
    composite("aten::deg2rad", floating, |b, o| scaled(b, o, std::f64::consts::PI / 180.0)),
    composite("aten::rad2deg", floating, |b, o| scaled(b, o, 180.0 / std::f64::consts::PI)),
    kernel("aten::erf", floating),
    kernel("aten::exp", floating),
    composite("aten::exp2", floating, exp2),
    composite("aten::special_exp2", floating, exp2),
    kernel("aten::expm1", floating),
    composite("aten::special_expm1", floating, |b, o| forward(b, o, "aten::expm1")),
    kernel("aten::log", floating),
    kernel("aten::log10", floating),
    kernel("aten::log1p", floating),
    composite("aten::special_log1p", floating, |b, o| forward(b, o, "aten::log1p")),
    kernel("aten::log2", floating),
    kernel("aten::reciprocal", floating),
    kernel("aten::rsqrt", floating),
    kernel("aten::sqrt", floating),
    kernel("aten::sigmoid", floating),
    composite("aten::special_expit", floating, |b, o| forward(b, o, "aten::sigmoid")),
    kernel("aten::logit", floating),
    composite("aten::special_logit", floating, |b, o| forward(b, o, "aten::logit")),
    composite("aten::sinc", floating, sinc),
    composite("aten::special_sinc", floating, sinc),
    kernel("aten::isinf", truth),
    kernel("aten::isnan", truth),
    composite("aten::isfinite", truth, isfinite),
    composite("aten::isposinf", truth, |b, o| is_infinity(b, o, f64::INFINITY)),
    composite("aten::isneginf", truth, |b, o| is_infinity(b, o, f64::NEG_INFINITY)),
    composite("aten::isreal", truth, isreal),
    composite("aten::nan_to_num", same, nan_to_num),
    kernel("aten::_conj_physical", same),
    composite("aten::conj_physical", same, conj),
    composite("aten::_conj", same, conj),
    composite("aten::conj", same, conj),
];

/// The absolute value of a complex number and its parts are real.
fn magnitude(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(real_dtype(input.dtype), input.shape.clone())
}

/// The dtype of the parts of complex numbers; other dtypes are their own.
pub(crate) const fn real_dtype(dtype: ScalarType) -> ScalarType {
    match dtype {
        ScalarType::ComplexHalf => ScalarType::Half,
        ScalarType::ComplexFloat => ScalarType::Float,
        ScalarType::ComplexDouble => ScalarType::Double,
        other => other,
    }
}

/// Real numbers are their own conjugates.
fn conj(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    if b.tensor(x)?.dtype.is_complex() { forward(b, operands, "aten::_conj_physical") } else { done(x) }
}

/// Powers of booleans are integers.
fn squared(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(if input.dtype == ScalarType::Bool { ScalarType::Long } else { input.dtype }, input.shape.clone())
}

fn square(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dtype = b.tensor(x)?.dtype;
    let x = b.cast(x, if dtype == ScalarType::Bool { ScalarType::Long } else { dtype })?;
    b.mul(x, x).and_then(done)
}

/// The sign of a zero shows in its reciprocal.
fn signbit(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dtype = b.tensor(x)?.dtype;
    if dtype == ScalarType::Bool {
        let zero = b.as_tensor(&Arg::from(false), ScalarType::Bool)?;
        return b.compare("aten::lt", x, zero).and_then(done);
    }
    let negative = b.compare("aten::lt", x, 0)?;
    if category(dtype) < 2 {
        return done(negative);
    }
    let reciprocal = b.unary("aten::reciprocal", x)?;
    let below = b.compare("aten::lt", reciprocal, 0)?;
    b.one("aten::logical_or", vec![negative.into(), below.into()]).and_then(done)
}

/// `round(x * 10^d) / 10^d`; integers stay as they are with digits to spare.
fn round_decimals(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, decimals) = (operands.value(0)?, operands.int(1)?);
    let floating = category(b.tensor(x)?.dtype) == 2;
    if decimals == 0 || !floating {
        return if floating || decimals >= 0 { b.unary("aten::round", x).and_then(done) } else { refuse_decimals() };
    }
    let power = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
    let rounded = b.precisely(x, |b, x| {
        let scaled = if decimals > 0 { b.mul(x, power)? } else { b.div(x, power)? };
        let rounded = b.unary("aten::round", scaled)?;
        if decimals > 0 { b.div(rounded, power) } else { b.mul(rounded, power) }
    })?;
    done(rounded)
}

fn refuse_decimals() -> Lowered {
    Err(Error::unsupported("rounding integers to tens"))
}

/// `x - trunc(x)`.
fn frac(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let whole = b.unary("aten::trunc", x)?;
    b.sub(x, whole).and_then(done)
}

fn scaled(b: &mut Builder<'_>, operands: &Operands<'_>, factor: f64) -> Lowered {
    b.mul(operands.value(0)?, factor).and_then(done)
}

fn exp2(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let x = b.cast(x, to_floating(b.tensor(x)?.dtype))?;
    b.one("aten::pow.Scalar", vec![Arg::Float(2.0), x.into()]).and_then(done)
}

/// `sin(πx) / (πx)`, and 1 at 0.
fn sinc(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let x = b.cast(x, to_floating(b.tensor(x)?.dtype))?;
    let value = b.precisely(x, |b, x| {
        let angle = b.mul(x, std::f64::consts::PI)?;
        let sine = b.unary("aten::sin", angle)?;
        let ratio = b.div(sine, angle)?;
        let zero = b.compare("aten::eq", x, 0)?;
        b.select(zero, 1.0, ratio)
    })?;
    done(value)
}

fn isfinite(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let (infinite, nan) = (b.unary("aten::isinf", x)?, b.unary("aten::isnan", x)?);
    let either = b.one("aten::logical_or", vec![infinite.into(), nan.into()])?;
    b.unary("aten::logical_not", either).and_then(done)
}

fn is_infinity(b: &mut Builder<'_>, operands: &Operands<'_>, infinity: f64) -> Lowered {
    let x = operands.value(0)?;
    if category(b.tensor(x)?.dtype) < 2 {
        let isinf = b.unary("aten::isinf", x)?;
        return done(isinf);
    }
    b.compare("aten::eq", x, infinity).and_then(done)
}

fn isreal(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    if b.tensor(x)?.dtype.is_complex() {
        let parts = b.unary("aten::view_as_real_copy", x)?;
        let imaginary = b.one("aten::select_copy.int", vec![parts.into(), Arg::from(-1), Arg::from(1)])?;
        return b.compare("aten::eq", imaginary, 0).and_then(done);
    }
    let full = [("dtype", ScalarType::Bool.into())];
    b.one_with("aten::full_like", vec![x.into(), Arg::from(true)], &full).and_then(done)
}

/// NaN becomes a number, infinities the largest and least numbers of the dtype unless others are given.
fn nan_to_num(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dtype = b.tensor(x)?.dtype;
    if category(dtype) != 2 {
        return done(x);
    }
    let largest = largest(dtype);
    let nan = operands.float_or(1, 0.0)?;
    let (high, low) = (operands.float_or(2, largest)?, operands.float_or(3, -largest)?);
    let is_nan = b.unary("aten::isnan", x)?;
    let mut value = b.select(is_nan, nan, x)?;
    for (infinity, number) in [(f64::INFINITY, high), (f64::NEG_INFINITY, low)] {
        let is_infinite = b.compare("aten::eq", value, infinity)?;
        value = b.select(is_infinite, number, value)?;
    }
    done(value)
}

/// The maximum finite number of a floating dtype.
pub(crate) fn largest(dtype: ScalarType) -> f64 {
    match dtype {
        ScalarType::Half => f64::from(half::f16::MAX),
        ScalarType::BFloat16 => f64::from(half::bf16::MAX),
        ScalarType::Double => f64::MAX,
        _ => f64::from(f32::MAX),
    }
}
