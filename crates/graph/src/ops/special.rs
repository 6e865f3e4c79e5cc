//! Special functions made of elementary ones.

use crate::Error;
use crate::operators::aten;
use crate::{Builder, Graph, Type, ValueId};

use super::inference::{floating, floating_arithmetic, one};
use super::promotion::to_floating;
use super::{Definition, Lowered, Operands, composite, done, forward, kernel, promote};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::LGAMMA, floating),
    composite(aten::SPECIAL_GAMMALN, floating, |b, o| forward(b, o, aten::LGAMMA)),
    composite(aten::MVLGAMMA, floating, multivariate_gamma),
    composite(aten::SPECIAL_MULTIGAMMALN, floating, multivariate_gamma),
    kernel(aten::DIGAMMA, floating),
    composite(aten::SPECIAL_DIGAMMA, floating, |b, o| forward(b, o, aten::DIGAMMA)),
    composite(aten::SPECIAL_PSI, floating, |b, o| forward(b, o, aten::DIGAMMA)),
    kernel(aten::POLYGAMMA, second_floating),
    composite(aten::SPECIAL_POLYGAMMA, second_floating, |b, o| forward(b, o, aten::POLYGAMMA)),
    kernel(aten::IGAMMA, floating_arithmetic),
    composite(aten::SPECIAL_GAMMAINC, floating_arithmetic, |b, o| forward(b, o, aten::IGAMMA)),
    kernel(aten::IGAMMAC, floating_arithmetic),
    composite(aten::SPECIAL_GAMMAINCC, floating_arithmetic, |b, o| forward(b, o, aten::IGAMMAC)),
    kernel(aten::SPECIAL_ZETA, floating_arithmetic),
    composite(aten::SPECIAL_ZETA_OTHER_SCALAR, floating_arithmetic, |b, o| of_tensors(b, o, aten::SPECIAL_ZETA)),
    composite(aten::SPECIAL_ZETA_SELF_SCALAR, floating_arithmetic, |b, o| of_tensors(b, o, aten::SPECIAL_ZETA)),
    kernel(aten::I0, floating),
    composite(aten::SPECIAL_I0, floating, |b, o| forward(b, o, aten::I0)),
    kernel(aten::SPECIAL_I0E, floating),
    kernel(aten::SPECIAL_I1, floating),
    kernel(aten::SPECIAL_I1E, floating),
    kernel(aten::SPECIAL_BESSEL_J0, floating),
    kernel(aten::SPECIAL_BESSEL_J1, floating),
    kernel(aten::SPECIAL_BESSEL_Y0, floating),
    kernel(aten::SPECIAL_BESSEL_Y1, floating),
    kernel(aten::SPECIAL_MODIFIED_BESSEL_I0, floating),
    kernel(aten::SPECIAL_MODIFIED_BESSEL_I1, floating),
    kernel(aten::SPECIAL_MODIFIED_BESSEL_K0, floating),
    kernel(aten::SPECIAL_MODIFIED_BESSEL_K1, floating),
    kernel(aten::SPECIAL_SCALED_MODIFIED_BESSEL_K0, floating),
    kernel(aten::SPECIAL_SCALED_MODIFIED_BESSEL_K1, floating),
    kernel(aten::SPECIAL_SPHERICAL_BESSEL_J0, floating),
    kernel(aten::SPECIAL_AIRY_AI, floating),
    kernel(aten::SPECIAL_ERFCX, floating),
    kernel(aten::SPECIAL_NDTRI, floating),
    kernel(aten::SPECIAL_LOG_NDTR, floating),
    composite(aten::SPECIAL_ERF, floating, |b, o| forward(b, o, aten::ERF)),
    kernel(aten::ERFC, floating),
    composite(aten::SPECIAL_ERFC, floating, |b, o| forward(b, o, aten::ERFC)),
    composite(aten::ERFINV, floating, |b, o| precisely(b, o, inverse_erf)),
    composite(aten::SPECIAL_ERFINV, floating, |b, o| precisely(b, o, inverse_erf)),
    composite(aten::SPECIAL_NDTR, floating, |b, o| precisely(b, o, normal_distribution)),
    composite(aten::SPECIAL_ENTR, floating, |b, o| precisely(b, o, entropy)),
];

/// The shape of the second argument, in a floating dtype.
fn second_floating(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(1, graph)?;
    one(to_floating(input.dtype), input.shape.clone())
}

/// Calls the overload for two tensors; one argument may be a number.
pub(super) fn of_tensors(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    let dtype = to_floating(promote(&[operands.arg(0), operands.arg(1)], b.graph)?);
    let mut tensor = |index| {
        let value = b.as_tensor(operands.arg(index), dtype)?;
        b.cast(value, dtype)
    };
    let args = vec![tensor(0)?.into(), tensor(1)?.into()];
    b.one(name, args).and_then(done)
}

/// The logarithm of the gamma function of `p` variables.
fn multivariate_gamma(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let p = operands.int(1)?;
    if !(1..=1024).contains(&p) {
        return Err(operands.wrong(1, "at least 1, and at most 1024"));
    }
    let x = operands.value(0)?;
    let x = b.cast(x, to_floating(b.tensor(x)?.dtype))?;
    let value = b.precisely(x, |b, x| {
        let mut sum = b.unary(aten::LGAMMA, x)?;
        for j in 1..p {
            let shifted = b.sub(x, 0.5 * j as f64)?;
            let term = b.unary(aten::LGAMMA, shifted)?;
            sum = b.add(sum, term)?;
        }
        b.add(sum, (p * (p - 1)) as f64 / 4.0 * std::f64::consts::PI.ln())
    })?;
    done(value)
}

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

/// The distribution function of the standard normal distribution.
fn normal_distribution(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let scaled = b.mul(x, std::f64::consts::FRAC_1_SQRT_2)?;
    let erf = b.unary(aten::ERF, scaled)?;
    let shifted = b.add(erf, 1)?;
    b.mul(shifted, 0.5)
}

/// `-x log x`, 0 at 0 and minus infinity below.
fn entropy(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let log = b.unary(aten::LOG, x)?;
    let product = b.mul(x, log)?;
    let value = b.unary(aten::NEG, product)?;
    let (zero, negative) = (b.compare(aten::packet::EQ, x, 0)?, b.compare(aten::packet::LT, x, 0)?);
    let value = b.select(zero, 0.0, value)?;
    b.select(negative, f64::NEG_INFINITY, value)
}

/// Winitzki's approximation, made exact by three steps of Newton's method on the error function.
fn inverse_erf(b: &mut Builder<'_>, y: ValueId) -> Result<ValueId, Error> {
    const A: f64 = 0.147;
    let square = b.mul(y, y)?;
    let negative = b.unary(aten::NEG, square)?;
    let log = b.unary(aten::LOG1P, negative)?;
    let half = b.mul(log, 0.5)?;
    let middle = b.add(half, 2.0 / (std::f64::consts::PI * A))?;
    let (squared, scaled) = (b.mul(middle, middle)?, b.mul(log, 1.0 / A)?);
    let inner = b.sub(squared, scaled)?;
    let root = b.unary(aten::SQRT, inner)?;
    let outer = b.sub(root, middle)?;
    let magnitude = b.unary(aten::SQRT, outer)?;
    let sign = b.unary(aten::SIGN, y)?;
    let start = b.mul(sign, magnitude)?;
    let mut x = start;
    for _ in 0..3 {
        let erf = b.unary(aten::ERF, x)?;
        let error = b.sub(erf, y)?;
        let xx = b.mul(x, x)?;
        let inverse_slope = b.unary(aten::EXP, xx)?;
        let step = b.mul(error, inverse_slope)?;
        let step = b.mul(step, 0.5 * std::f64::consts::PI.sqrt())?;
        x = b.sub(x, step)?;
    }
    // At the ends there is nothing to refine.
    let magnitude = b.unary(aten::ABS, y)?;
    let inside = b.compare(aten::packet::LT, magnitude, 1)?;
    let end = b.compare(aten::packet::EQ, magnitude, 1)?;
    let infinite = b.mul(sign, f64::INFINITY)?;
    let outside = b.select(end, infinite, f64::NAN)?;
    b.select(inside, x, outside)
}
