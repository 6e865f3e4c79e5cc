//! Activation functions, and dropout, which does nothing at inference.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::inference::{arithmetic, one, same, tensor};
use super::promotion::to_floating;
use super::{Definition, Lowered, Operands, composite, done, kernel, known_number};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::RELU, same),
    kernel(aten::HARDTANH, same),
    composite(aten::RELU6, same, relu6),
    kernel(aten::LEAKY_RELU, same),
    composite(aten::RRELU, same, rrelu),
    composite(aten::PRELU, same, prelu),
    composite(aten::_PRELU_KERNEL, arithmetic, |b, o| negative_slope(b, o.value(0)?, o.value(1)?).and_then(done)),
    kernel(aten::ELU, same),
    composite(aten::CELU, same, celu),
    composite(aten::SELU, same, selu),
    kernel(aten::GELU, same),
    composite(aten::SILU, same, silu),
    composite(aten::MISH, same, mish),
    composite(aten::HARDSWISH, same, hardswish),
    composite(aten::HARDSIGMOID, same, hardsigmoid),
    composite(aten::SOFTPLUS, same, softplus),
    composite(aten::LOG_SIGMOID, same, log_sigmoid),
    composite(aten::LOG_SIGMOID_FORWARD, log_sigmoid_forward_type, log_sigmoid_forward),
    composite(aten::THRESHOLD, same, threshold),
    composite(aten::HARDSHRINK, same, hardshrink),
    composite(aten::SOFTSHRINK, same, softshrink),
    kernel(aten::GLU, gated),
    composite(aten::_SOFTMAX, softmax_type, |b, o| widened_softmax(b, o, aten::_SOFTMAX)),
    composite(aten::_LOG_SOFTMAX, softmax_type, |b, o| widened_softmax(b, o, aten::_LOG_SOFTMAX)),
    composite(aten::_MASKED_SOFTMAX, same, masked_softmax),
    composite(aten::SOFTMAX_INT, softmax_of, |b, o| softmax(b, o, aten::_SOFTMAX)),
    composite(aten::SPECIAL_SOFTMAX, softmax_of, |b, o| softmax(b, o, aten::_SOFTMAX)),
    composite(aten::LOG_SOFTMAX_INT, softmax_of, |b, o| softmax(b, o, aten::_LOG_SOFTMAX)),
    composite(aten::SPECIAL_LOG_SOFTMAX, softmax_of, |b, o| softmax(b, o, aten::_LOG_SOFTMAX)),
    composite(aten::DROPOUT, same, dropout),
    composite(aten::FEATURE_DROPOUT, same, dropout),
    composite(aten::ALPHA_DROPOUT, same, dropout),
    composite(aten::FEATURE_ALPHA_DROPOUT, same, dropout),
    composite(aten::NATIVE_DROPOUT, dropout_with_mask, native_dropout),
];

/// `relu6(x)` is `hardtanh(x, 0, 6)`.
fn relu6(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.one(aten::HARDTANH, vec![operands.value(0)?.into(), Arg::from(0), Arg::from(6)]).and_then(done)
}

/// At inference the slope is the middle of its range.
fn rrelu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if operands.bool(3)? {
        let (x, lower, upper) = (operands.value(0)?, operands.float(1)?, operands.float(2)?);
        let uniform = b.one(aten::RAND_LIKE, vec![x.into()])?;
        let scaled = b.mul(uniform, upper - lower)?;
        let slope = b.add(scaled, lower)?;
        let negative = b.compare(aten::packet::LE, x, 0)?;
        let sloped = b.mul(x, slope)?;
        return b.select(negative, sloped, x).and_then(done);
    }
    let sum = b.number_sum(&operands.number(1)?, &operands.number(2)?)?;
    let slope = b.number_quotient(&sum, &Arg::Float(2.0))?;
    b.one(aten::LEAKY_RELU, vec![operands.value(0)?.into(), slope]).and_then(done)
}

/// One slope for each channel, or one for all.
fn prelu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, weight) = (operands.value(0)?, operands.value(1)?);
    let (rank, count) = (b.tensor(x)?.rank(), b.tensor(weight)?.numel());
    let mut shape = vec![Expr::Int(1); rank];
    if let Some(channel) = shape.get_mut(usize::from(rank > 1)) {
        *channel = count;
    } else if !count.is(1) {
        return Err(Error::type_error("`aten::prelu` of a tensor without dimensions takes one slope"));
    }
    let weight = b.view(weight, shape)?;
    negative_slope(b, x, weight).and_then(done)
}

fn negative_slope(b: &mut Builder<'_>, x: ValueId, slope: ValueId) -> Result<ValueId, Error> {
    let (positive, scaled) = (b.compare(aten::packet::GT, x, 0)?, b.mul(x, slope)?);
    b.select(positive, x, scaled)
}

fn celu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let alpha = operands.number(1)?;
    let inverse = b.number_quotient(&Arg::Float(1.0), &alpha)?;
    let args = vec![operands.value(0)?.into(), alpha, Arg::Float(1.0), inverse];
    b.one(aten::ELU, args).and_then(done)
}

/// The constants are those of Klambauer et al., "Self-Normalizing Neural Networks".
fn selu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    const ALPHA: f64 = 1.673_263_242_354_377_2;
    const SCALE: f64 = 1.050_700_987_355_480_5;
    let args = vec![operands.value(0)?.into(), Arg::Float(ALPHA), Arg::Float(SCALE), Arg::Float(1.0)];
    b.one(aten::ELU, args).and_then(done)
}

fn silu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let value = b.precisely(operands.value(0)?, |b, x| {
        let gate = b.unary(aten::SIGMOID, x)?;
        b.mul(x, gate)
    })?;
    done(value)
}

/// `x * tanh(log(1 + exp(x)))`; where the exponential overflows, the hyperbolic tangent is 1.
fn mish(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let value = b.precisely(operands.value(0)?, |b, x| {
        let exponential = b.unary(aten::EXP, x)?;
        let softplus = b.unary(aten::LOG1P, exponential)?;
        let gate = b.unary(aten::TANH, softplus)?;
        b.mul(x, gate)
    })?;
    done(value)
}

fn hardswish(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let value = b.precisely(operands.value(0)?, |b, x| {
        let gate = relu6_of_plus_3(b, x)?;
        let product = b.mul(x, gate)?;
        b.div(product, 6.0)
    })?;
    done(value)
}

fn hardsigmoid(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let value = b.precisely(operands.value(0)?, |b, x| {
        let gate = relu6_of_plus_3(b, x)?;
        b.div(gate, 6.0)
    })?;
    done(value)
}

fn relu6_of_plus_3(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let shifted = b.add(x, 3.0)?;
    b.one(aten::HARDTANH, vec![shifted.into(), Arg::Float(0.0), Arg::Float(6.0)])
}

/// `log(1 + exp(beta x)) / beta`, and `x` itself beyond the threshold.
fn softplus(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (beta, threshold) = (operands.number(1)?, operands.number(2)?);
    let value = b.precisely(operands.value(0)?, |b, x| {
        let unit = known_number(&beta).is_some_and(|beta| (beta - 1.0).abs() < f64::EPSILON);
        let scaled = if unit { x } else { b.mul(x, beta.clone())? };
        let exponential = b.unary(aten::EXP, scaled)?;
        let log = b.unary(aten::LOG1P, exponential)?;
        let curve = if unit { log } else { b.div(log, beta)? };
        let straight = b.compare(aten::packet::GT, scaled, threshold)?;
        b.select(straight, x, curve)
    })?;
    done(value)
}

fn log_sigmoid(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.precisely(operands.value(0)?, log_of_sigmoid).and_then(done)
}

/// `min(x, 0) - log1p(exp(-|x|))`.
pub(crate) fn log_of_sigmoid(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let negative_part = b.one(aten::CLAMP, vec![x.into(), Arg::None, Arg::from(0)])?;
    let magnitude = b.unary(aten::ABS, x)?;
    let negative = b.unary(aten::NEG, magnitude)?;
    let exponential = b.unary(aten::EXP, negative)?;
    let log = b.unary(aten::LOG1P, exponential)?;
    b.sub(negative_part, log)
}

/// The second result is `exp(-|x|)`, which gradients use.
fn log_sigmoid_forward_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let types = same(operands, graph)?;
    Ok([types.clone(), types].concat())
}

fn log_sigmoid_forward(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let value = b.precisely(x, log_of_sigmoid)?;
    let buffer = b.precisely(x, |b, x| {
        let magnitude = b.unary(aten::ABS, x)?;
        let negative = b.unary(aten::NEG, magnitude)?;
        b.unary(aten::EXP, negative)
    })?;
    Ok(Some(vec![value, buffer]))
}

fn threshold(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dtype = b.tensor(x)?.dtype;
    let below = b.compare(aten::packet::LE, x, operands.arg(1).clone())?;
    let value = b.as_tensor(operands.arg(2), dtype)?;
    b.select(below, value, x).and_then(done)
}

fn hardshrink(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let magnitude = b.unary(aten::ABS, x)?;
    let small = b.compare(aten::packet::LE, magnitude, operands.arg(1).clone())?;
    b.select(small, 0, x).and_then(done)
}

/// NaN stays NaN, as it does times 0.
fn softshrink(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let magnitude = b.unary(aten::ABS, x)?;
    let large = b.compare(aten::packet::GT, magnitude, operands.arg(1).clone())?;
    let sign = b.unary(aten::SIGN, x)?;
    let step = b.mul(sign, operands.arg(1).clone())?;
    let (shrunk, nothing) = (b.sub(x, step)?, b.mul(x, 0)?);
    b.select(large, shrunk, nothing).and_then(done)
}

/// Half as long along one dimension.
fn gated(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let dim = operands.dim(1, input.rank())?;
    let mut shape = input.shape.clone();
    let size = shape.get_mut(dim).ok_or_else(|| operands.wrong(0, "a tensor with dimensions"))?;
    if size.as_int().is_some_and(|size| size % 2 != 0) {
        return Err(operands.wrong(0, "an even size along the dimension that is split"));
    }
    *size = size.floor_div(2);
    one(input.dtype, shape)
}

fn softmax_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    operands.dim(1, input.rank())?;
    one(if operands.bool(2)? { ScalarType::Float } else { input.dtype }, input.shape.clone())
}

/// Kernels have no half-to-float form.
fn widened_softmax(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    if !operands.bool(2)? {
        return Ok(None);
    }
    let x = b.cast(operands.value(0)?, ScalarType::Float)?;
    b.one(name, vec![x.into(), operands.arg(1).clone(), Arg::from(false)]).and_then(done)
}

fn softmax_of(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    operands.dim(1, input.rank())?;
    one(operands.dtype(2)?.unwrap_or_else(|| to_floating(input.dtype)), input.shape.clone())
}

fn softmax(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    let x = softmax_input(b, operands)?;
    b.one(name, vec![x.into(), operands.arg(1).clone(), Arg::from(false)]).and_then(done)
}

fn softmax_input(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<ValueId, Error> {
    let x = operands.value(0)?;
    let dtype = operands.dtype(2)?.unwrap_or_else(|| b.graph.tensor(x).map_or(ScalarType::Float, |t| t.dtype));
    b.cast(x, to_floating(dtype))
}

fn dropout(_: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if operands.bool(2)? && operands.float(1)? != 0.0 {
        return Err(training(operands));
    }
    done(operands.value(0)?)
}

fn dropout_with_mask(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    // PyTorch gives a mask of no elements in the input's dtype.
    let mask = if input.numel().is(0) { input.dtype } else { ScalarType::Bool };
    Ok(vec![tensor(input.dtype, input.shape.clone()), tensor(mask, input.shape.clone())])
}

/// Kernels have it; calls that change nothing are removed.
fn native_dropout(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if !operands.has(2) || operands.bool(2)? {
        return Ok(None);
    }
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let mask = [("dtype", if ty.numel().is(0) { ty.dtype } else { ScalarType::Bool }.into())];
    let mask = b.one_with(aten::FULL_LIKE, vec![x.into(), Arg::from(true)], &mask)?;
    Ok(Some(vec![x, mask]))
}

fn training(operands: &Operands<'_>) -> Error {
    Error::unsupported(format!("`{}` in training mode", operands.schema.name))
        .help("call `model.eval()` before `torch.export.export`")
}

/// A softmax over the elements where the mask is false. A row without such elements is NaN.
fn masked_softmax(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, mut mask) = (operands.value(0)?, operands.value(1)?);
    let ty = b.tensor(x)?;
    // Mask type 1 is a key mask, `[batch, key]`, for `[batch, head, query, key]`.
    if operands.has(3) && operands.int(3)? == 1 && ty.rank() == 4 {
        let shape = b.tensor(mask)?.shape;
        if let [batch, keys] = shape.as_slice() {
            mask = b.view(mask, vec![batch.clone(), Expr::Int(1), Expr::Int(1), keys.clone()])?;
        }
    }
    let dim = if operands.has(2) { operands.int(2)? } else { -1 };
    let left = b.select(mask, f64::NEG_INFINITY, x)?;
    b.one(aten::_SOFTMAX, vec![left.into(), Arg::from(dim), Arg::from(false)]).and_then(done)
}
