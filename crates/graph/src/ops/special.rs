//! Special functions made of elementary ones.

use crate::Error;
use crate::{Builder, ValueId};

use super::inference::floating;
use super::promotion::to_floating;
use super::{Definition, Lowered, Operands, composite, done, forward};

pub(crate) const OPS: &[Definition] = &[
    composite("aten::special_erf", floating, |b, o| forward(b, o, "aten::erf")),
    composite("aten::erfc", floating, |b, o| precisely(b, o, complement)),
    composite("aten::special_erfc", floating, |b, o| precisely(b, o, complement)),
    composite("aten::erfinv", floating, |b, o| precisely(b, o, inverse_erf)),
    composite("aten::special_erfinv", floating, |b, o| precisely(b, o, inverse_erf)),
    composite("aten::special_ndtr", floating, |b, o| precisely(b, o, normal_distribution)),
    composite("aten::special_entr", floating, |b, o| precisely(b, o, entropy)),
];

/// Applies a function in a floating dtype, in single precision at least.
fn precisely(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    function: fn(&mut Builder<'_>, ValueId) -> Result<ValueId, Error>,
) -> Lowered {
    let x = operands.value(0)?;
    let x = b.cast(x, to_floating(b.tensor(x)?.dtype))?;
    b.precisely(x, function).and_then(done)
}

/// `1 - erf(x)`.
fn complement(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let erf = b.unary("aten::erf", x)?;
    b.sub(1, erf)
}

/// The distribution function of the standard normal distribution.
fn normal_distribution(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let scaled = b.mul(x, std::f64::consts::FRAC_1_SQRT_2)?;
    let erf = b.unary("aten::erf", scaled)?;
    let shifted = b.add(erf, 1)?;
    b.mul(shifted, 0.5)
}

/// `-x log x`, 0 at 0 and minus infinity below.
fn entropy(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let log = b.unary("aten::log", x)?;
    let product = b.mul(x, log)?;
    let value = b.unary("aten::neg", product)?;
    let (zero, negative) = (b.compare("aten::eq", x, 0)?, b.compare("aten::lt", x, 0)?);
    let value = b.select(zero, 0.0, value)?;
    b.select(negative, f64::NEG_INFINITY, value)
}

/// Winitzki's approximation, made exact by three steps of Newton's method on the error function.
fn inverse_erf(b: &mut Builder<'_>, y: ValueId) -> Result<ValueId, Error> {
    const A: f64 = 0.147;
    let square = b.mul(y, y)?;
    let negative = b.unary("aten::neg", square)?;
    let log = b.unary("aten::log1p", negative)?;
    let half = b.mul(log, 0.5)?;
    let middle = b.add(half, 2.0 / (std::f64::consts::PI * A))?;
    let (squared, scaled) = (b.mul(middle, middle)?, b.mul(log, 1.0 / A)?);
    let inner = b.sub(squared, scaled)?;
    let root = b.unary("aten::sqrt", inner)?;
    let outer = b.sub(root, middle)?;
    let magnitude = b.unary("aten::sqrt", outer)?;
    let sign = b.unary("aten::sign", y)?;
    let start = b.mul(sign, magnitude)?;
    let mut x = start;
    for _ in 0..3 {
        let erf = b.unary("aten::erf", x)?;
        let error = b.sub(erf, y)?;
        let xx = b.mul(x, x)?;
        let inverse_slope = b.unary("aten::exp", xx)?;
        let step = b.mul(error, inverse_slope)?;
        let step = b.mul(step, 0.5 * std::f64::consts::PI.sqrt())?;
        x = b.sub(x, step)?;
    }
    // At the ends there is nothing to refine.
    let magnitude = b.unary("aten::abs", y)?;
    let inside = b.compare("aten::lt", magnitude, 1)?;
    let end = b.compare("aten::eq", magnitude, 1)?;
    let infinite = b.mul(sign, f64::INFINITY)?;
    let outside = b.select(end, infinite, f64::NAN)?;
    b.select(inside, x, outside)
}
