//! Random numbers. Their sequence is not PyTorch's.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::creation::inferred;
use super::inference::{one, same};
use super::{Definition, Lowered, Operands, composite, compute_dtype, done, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::RAND, |o, _| sized(o, 0, ScalarType::Float)),
    kernel(aten::RANDN, |o, _| sized(o, 0, ScalarType::Float)),
    composite(aten::RAND_LIKE, like, |b, o| generate(b, o, aten::RAND, 1.0, 0.0)),
    composite(aten::RANDN_LIKE, like, |b, o| generate(b, o, aten::RANDN, 1.0, 0.0)),
    composite(aten::UNIFORM, same, |b, o| generate(b, o, aten::RAND, o.float(2)? - o.float(1)?, o.float(1)?)),
    composite(aten::NORMAL_FUNCTIONAL, same, |b, o| generate(b, o, aten::RANDN, o.float(2)?, o.float(1)?)),
    composite(
        aten::NORMAL_FLOAT_FLOAT,
        |o, _| sized(o, 2, ScalarType::Float),
        |b, o| generate(b, o, aten::RANDN, o.float(1)?, o.float(0)?),
    ),
    composite(aten::NORMAL_TENSOR_FLOAT, same, normal),
    composite(aten::NORMAL_FLOAT_TENSOR, |o, g| like_of(o, g, 1), normal),
    composite(aten::NORMAL_TENSOR_TENSOR, super::inference::arithmetic, normal),
    composite(aten::RANDINT, |o, _| sized(o, 1, ScalarType::Long), |b, o| integers(b, o, None, 0)),
    composite(aten::RANDINT_LOW, |o, _| sized(o, 2, ScalarType::Long), |b, o| integers(b, o, Some(0), 1)),
    composite(aten::RANDINT_LIKE, like, |b, o| integers(b, o, None, 1)),
    composite(aten::RANDINT_LIKE_LOW_DTYPE, like, |b, o| integers(b, o, Some(1), 2)),
    composite(aten::BERNOULLI, same, |b, o| bernoulli(b, o, 0)),
    composite(aten::BERNOULLI_P, same, |b, o| bernoulli(b, o, 1)),
    composite(aten::BERNOULLI_TENSOR, same, |b, o| bernoulli(b, o, 1)),
    composite(aten::EXPONENTIAL, same, exponential),
    kernel(aten::RANDPERM, permutation),
    kernel(aten::MULTINOMIAL, chosen),
    kernel(aten::POISSON, same),
    kernel(aten::_STANDARD_GAMMA, same),
    kernel(aten::BINOMIAL, super::inference::arithmetic),
    composite(aten::_SAMPLE_DIRICHLET, same, dirichlet),
    composite(aten::GEOMETRIC, same, geometric),
    composite(aten::CAUCHY, same, cauchy),
    composite(aten::LOG_NORMAL, same, log_normal),
];

fn sized(operands: &Operands<'_>, size: usize, dtype: ScalarType) -> Result<Vec<Type>, Error> {
    let given = operands.schema.position("dtype").unwrap_or(usize::MAX);
    one(operands.dtype_or(given, dtype)?, operands.exprs(size)?)
}

fn like(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    like_of(operands, graph, 0)
}

fn like_of(operands: &Operands<'_>, graph: &Graph, index: usize) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(index, graph)?;
    let given = operands.schema.position("dtype").unwrap_or(usize::MAX);
    one(operands.dtype_or(given, input.dtype)?, input.shape.clone())
}

fn permutation(operands: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.dtype_or(1, ScalarType::Long)?, vec![operands.expr(0)?])
}

/// Samples of a distribution, of this dtype and shape.
fn samples(b: &mut Builder<'_>, name: &str, shape: &[Expr], dtype: ScalarType) -> Result<ValueId, Error> {
    b.one_with(name, vec![Arg::from(shape.to_vec())], &[("dtype", compute_dtype(dtype).into())])
}

fn generate(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str, scale: f64, offset: f64) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let mut value = samples(b, name, &shape, dtype)?;
    if scale != 1.0 {
        value = b.mul(value, scale)?;
    }
    if offset != 0.0 {
        value = b.add(value, offset)?;
    }
    b.cast(value, dtype).and_then(done)
}

/// `mean + std * z`, where either may be a tensor.
fn normal(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let value = samples(b, aten::RANDN, &shape, dtype)?;
    let scaled = b.mul(value, operands.arg(1).clone())?;
    let value = b.add(scaled, operands.arg(0).clone())?;
    b.cast(value, dtype).and_then(done)
}

/// Uniform integers from the argument `low`, or 0, below the argument `high`.
fn integers(b: &mut Builder<'_>, operands: &Operands<'_>, low: Option<usize>, high: usize) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let low = low.map_or(Ok(Expr::Int(0)), |index| operands.expr(index))?;
    let count = operands.expr(high)?.sub(low.clone());
    let value = samples(b, aten::RAND, &shape, ScalarType::Double)?;
    let scaled = b.mul(value, Arg::Int(count))?;
    let whole = b.unary(aten::FLOOR, scaled)?;
    let value = if low.is(0) { whole } else { b.add(whole, Arg::Int(low))? };
    b.cast(value, dtype).and_then(done)
}

/// 1 with the probability that an argument gives.
fn bernoulli(b: &mut Builder<'_>, operands: &Operands<'_>, probability: usize) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let value = samples(b, aten::RAND, &shape, ScalarType::Float)?;
    let below = b.compare(aten::packet::LT, value, operands.arg(probability).clone())?;
    b.cast(below, dtype).and_then(done)
}

/// `-log(1 - u) / lambda`.
fn exponential(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let uniform = samples(b, aten::RAND, &shape, dtype)?;
    let negative = b.unary(aten::NEG, uniform)?;
    let log = b.unary(aten::LOG1P, negative)?;
    let value = {
        let rate = b.number_product(&Arg::Float(-1.0), &operands.number(1)?)?;
        b.div(log, rate)?
    };
    b.cast(value, dtype).and_then(done)
}

/// The type of the sampled category indices of each row.
fn chosen(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let mut shape = operands.tensor(0, graph)?.shape.clone();
    match shape.last_mut() {
        Some(last) if operands.tensor(0, graph)?.rank() <= 2 => *last = operands.expr(1)?,
        _ => return Err(operands.wrong(0, "a vector or matrix")),
    }
    one(ScalarType::Long, shape)
}

/// Samples of the gamma distribution, divided by their sum.
fn dirichlet(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let value = b.precisely(x, |b, x| {
        let samples = b.one(aten::_STANDARD_GAMMA, vec![x.into()])?;
        let sum = b.one(aten::SUM_DIM_INTLIST, vec![samples.into(), Arg::from([-1]), Arg::from(true)])?;
        b.div(samples, sum)
    })?;
    done(value)
}

/// `ceil(log(1 - u) / log(1 - p))`, and at least 1.
fn geometric(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let p = operands.float(1)?;
    if !(p > 0.0 && p < 1.0) {
        return Err(operands.wrong(1, "a probability between 0 and 1"));
    }
    let uniform = samples(b, aten::RAND, &shape, ScalarType::Double)?;
    let negative = b.unary(aten::NEG, uniform)?;
    let log = b.unary(aten::LOG1P, negative)?;
    let trials = b.div(log, (-p).ln_1p())?;
    let whole = b.unary(aten::CEIL, trials)?;
    let value = b.one(aten::CLAMP, vec![whole.into(), Arg::from(1), Arg::None])?;
    b.cast(value, dtype).and_then(done)
}

/// `median + sigma tan(π (u - 1/2))`.
fn cauchy(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let uniform = samples(b, aten::RAND, &shape, dtype)?;
    let centred = b.sub(uniform, 0.5)?;
    let angle = b.mul(centred, std::f64::consts::PI)?;
    let tangent = b.unary(aten::TAN, angle)?;
    let scaled = b.mul(tangent, operands.float(2)?)?;
    let value = b.add(scaled, operands.float(1)?)?;
    b.cast(value, dtype).and_then(done)
}

/// The exponential of a normal distribution.
fn log_normal(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dtype, shape) = inferred(b, operands)?;
    let normal = samples(b, aten::RANDN, &shape, dtype)?;
    let scaled = b.mul(normal, operands.float(2)?)?;
    let shifted = b.add(scaled, operands.float(1)?)?;
    let value = b.unary(aten::EXP, shifted)?;
    b.cast(value, dtype).and_then(done)
}
