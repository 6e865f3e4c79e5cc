//! Functions of one element.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Graph, Type};

use super::inference::{floating, one, same, truth};
use super::promotion::{category, to_floating};
use super::{Definition, Lowered, Operands, composite, done, forward, identity, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::ABS, magnitude),
    composite(aten::ABSOLUTE, magnitude, |b, o| forward(b, o, aten::ABS)),
    kernel(aten::NEG, same),
    composite(aten::NEGATIVE, same, |b, o| forward(b, o, aten::NEG)),
    composite(aten::_NEG_VIEW, same, |b, o| forward(b, o, aten::NEG)),
    composite(aten::POSITIVE, same, identity),
    kernel(aten::SIGN, same),
    composite(aten::SGN, same, |b, o| forward(b, o, aten::SIGN)),
    composite(aten::SIGNBIT, truth, signbit),
    composite(aten::SQUARE, squared, square),
    kernel(aten::CEIL, same),
    composite(aten::SPECIAL_ROUND, same, |b, o| forward(b, o, aten::ROUND_DECIMALS)),
    kernel(aten::FLOOR, same),
    kernel(aten::ROUND, same),
    composite(aten::ROUND_DECIMALS, same, round_decimals),
    kernel(aten::TRUNC, same),
    composite(aten::FIX, same, |b, o| forward(b, o, aten::TRUNC)),
    composite(aten::FRAC, same, frac),
    kernel(aten::ACOS, floating),
    composite(aten::ARCCOS, floating, |b, o| forward(b, o, aten::ACOS)),
    kernel(aten::ACOSH, floating),
    composite(aten::ARCCOSH, floating, |b, o| forward(b, o, aten::ACOSH)),
    kernel(aten::ASIN, floating),
    composite(aten::ARCSIN, floating, |b, o| forward(b, o, aten::ASIN)),
    kernel(aten::ASINH, floating),
    composite(aten::ARCSINH, floating, |b, o| forward(b, o, aten::ASINH)),
    kernel(aten::ATAN, floating),
    composite(aten::ARCTAN, floating, |b, o| forward(b, o, aten::ATAN)),
    kernel(aten::ATANH, floating),
    composite(aten::ARCTANH, floating, |b, o| forward(b, o, aten::ATANH)),
    kernel(aten::COS, floating),
    kernel(aten::COSH, floating),
    kernel(aten::SIN, floating),
    kernel(aten::SINH, floating),
    kernel(aten::TAN, floating),
    kernel(aten::TANH, floating),
    composite(aten::DEG2RAD, floating, |b, o| scaled(b, o, std::f64::consts::PI / 180.0)),
    composite(aten::RAD2DEG, floating, |b, o| scaled(b, o, 180.0 / std::f64::consts::PI)),
    kernel(aten::ERF, floating),
    kernel(aten::EXP, floating),
    composite(aten::EXP2, floating, exp2),
    composite(aten::SPECIAL_EXP2, floating, exp2),
    kernel(aten::EXPM1, floating),
    composite(aten::SPECIAL_EXPM1, floating, |b, o| forward(b, o, aten::EXPM1)),
    kernel(aten::LOG, floating),
    kernel(aten::LOG10, floating),
    kernel(aten::LOG1P, floating),
    composite(aten::SPECIAL_LOG1P, floating, |b, o| forward(b, o, aten::LOG1P)),
    kernel(aten::LOG2, floating),
    kernel(aten::RECIPROCAL, floating),
    kernel(aten::RSQRT, floating),
    kernel(aten::SQRT, floating),
    kernel(aten::SIGMOID, floating),
    composite(aten::SPECIAL_EXPIT, floating, |b, o| forward(b, o, aten::SIGMOID)),
    kernel(aten::LOGIT, floating),
    composite(aten::SPECIAL_LOGIT, floating, |b, o| forward(b, o, aten::LOGIT)),
    composite(aten::SINC, floating, sinc),
    composite(aten::SPECIAL_SINC, floating, sinc),
    kernel(aten::ISINF, truth),
    kernel(aten::ISNAN, truth),
    composite(aten::ISFINITE, truth, isfinite),
    composite(aten::ISPOSINF, truth, |b, o| is_infinity(b, o, f64::INFINITY)),
    composite(aten::ISNEGINF, truth, |b, o| is_infinity(b, o, f64::NEG_INFINITY)),
    composite(aten::ISREAL, truth, isreal),
    composite(aten::NAN_TO_NUM, same, nan_to_num),
    kernel(aten::FREXP_TENSOR, fraction_and_exponent),
    kernel(aten::_CONJ_PHYSICAL, same),
    composite(aten::CONJ_PHYSICAL, same, conj),
    composite(aten::_CONJ, same, conj),
    composite(aten::CONJ, same, conj),
];

/// The types of mantissas, in the dtype of the argument, and of integer exponents.
fn fraction_and_exponent(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    Ok([one(input.dtype, input.shape.clone())?, one(ScalarType::Int, input.shape.clone())?].concat())
}

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
    if b.tensor(x)?.dtype.is_complex() { forward(b, operands, aten::_CONJ_PHYSICAL) } else { done(x) }
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
        return b.compare(aten::packet::LT, x, zero).and_then(done);
    }
    let negative = b.compare(aten::packet::LT, x, 0)?;
    if category(dtype) < 2 {
        return done(negative);
    }
    let reciprocal = b.unary(aten::RECIPROCAL, x)?;
    let below = b.compare(aten::packet::LT, reciprocal, 0)?;
    b.one(aten::LOGICAL_OR, vec![negative.into(), below.into()]).and_then(done)
}

/// `round(x * 10^d) / 10^d`; integers stay as they are with digits to spare.
fn round_decimals(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, decimals) = (operands.value(0)?, operands.int(1)?);
    let floating = category(b.tensor(x)?.dtype) == 2;
    if decimals == 0 || !floating {
        return if floating || decimals >= 0 { b.unary(aten::ROUND, x).and_then(done) } else { refuse_decimals() };
    }
    let power = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
    let rounded = b.precisely(x, |b, x| {
        let scaled = if decimals > 0 { b.mul(x, power)? } else { b.div(x, power)? };
        let rounded = b.unary(aten::ROUND, scaled)?;
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
    let whole = b.unary(aten::TRUNC, x)?;
    b.sub(x, whole).and_then(done)
}

fn scaled(b: &mut Builder<'_>, operands: &Operands<'_>, factor: f64) -> Lowered {
    b.mul(operands.value(0)?, factor).and_then(done)
}

fn exp2(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let x = b.cast(x, to_floating(b.tensor(x)?.dtype))?;
    b.one(aten::POW_SCALAR, vec![Arg::Float(2.0), x.into()]).and_then(done)
}

/// `sin(πx) / (πx)`, and 1 at 0.
fn sinc(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let x = b.cast(x, to_floating(b.tensor(x)?.dtype))?;
    let value = b.precisely(x, |b, x| {
        let angle = b.mul(x, std::f64::consts::PI)?;
        let sine = b.unary(aten::SIN, angle)?;
        let ratio = b.div(sine, angle)?;
        let zero = b.compare(aten::packet::EQ, x, 0)?;
        b.select(zero, 1.0, ratio)
    })?;
    done(value)
}

fn isfinite(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let (infinite, nan) = (b.unary(aten::ISINF, x)?, b.unary(aten::ISNAN, x)?);
    let either = b.one(aten::LOGICAL_OR, vec![infinite.into(), nan.into()])?;
    b.unary(aten::LOGICAL_NOT, either).and_then(done)
}

fn is_infinity(b: &mut Builder<'_>, operands: &Operands<'_>, infinity: f64) -> Lowered {
    let x = operands.value(0)?;
    if category(b.tensor(x)?.dtype) < 2 {
        let isinf = b.unary(aten::ISINF, x)?;
        return done(isinf);
    }
    b.compare(aten::packet::EQ, x, infinity).and_then(done)
}

fn isreal(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    if b.tensor(x)?.dtype.is_complex() {
        let parts = b.unary(aten::VIEW_AS_REAL_COPY, x)?;
        let imaginary = b.one(aten::SELECT_COPY_INT, vec![parts.into(), Arg::from(-1), Arg::from(1)])?;
        return b.compare(aten::packet::EQ, imaginary, 0).and_then(done);
    }
    let full = [("dtype", ScalarType::Bool.into())];
    b.one_with(aten::FULL_LIKE, vec![x.into(), Arg::from(true)], &full).and_then(done)
}

/// NaN becomes a number, infinities the largest and least numbers of the dtype unless others are given.
fn nan_to_num(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dtype = b.tensor(x)?.dtype;
    if category(dtype) != 2 {
        return done(x);
    }
    let largest = largest(dtype);
    let nan = operands.number_or(1, 0.0)?;
    let (high, low) = (operands.number_or(2, largest)?, operands.number_or(3, -largest)?);
    let is_nan = b.unary(aten::ISNAN, x)?;
    let mut value = b.select(is_nan, nan, x)?;
    for (infinity, number) in [(f64::INFINITY, high), (f64::NEG_INFINITY, low)] {
        let is_infinite = b.compare(aten::packet::EQ, value, infinity)?;
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
