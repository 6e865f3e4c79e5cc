//! Losses.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::activation::log_of_sigmoid;
use super::inference::{broadcast_shape, one};
use super::promotion::to_floating;
use super::{Definition, Lowered, Operands, by_lowering, composite, compute_dtype, done, known_number, promote};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::MSE_LOSS, |o, g| reduced(o, g, 2), |b, o| pointwise(b, o, 2, squared)),
    composite(aten::L1_LOSS, |o, g| reduced(o, g, 2), |b, o| pointwise(b, o, 2, absolute)),
    composite(aten::SMOOTH_L1_LOSS, |o, g| reduced(o, g, 2), smooth_l1),
    composite(aten::HUBER_LOSS, |o, g| reduced(o, g, 2), huber),
    composite(aten::KL_DIV, |o, g| reduced(o, g, 2), kl_div),
    composite(aten::POISSON_NLL_LOSS, |o, g| reduced(o, g, 5), poisson),
    composite(aten::BINARY_CROSS_ENTROPY, |o, g| reduced(o, g, 3), binary_cross_entropy),
    composite(aten::BINARY_CROSS_ENTROPY_WITH_LOGITS, |o, g| reduced(o, g, 4), with_logits),
    composite(aten::SOFT_MARGIN_LOSS, |o, g| reduced(o, g, 2), soft_margin),
    composite(aten::MARGIN_RANKING_LOSS, by_lowering, margin_ranking),
    composite(aten::HINGE_EMBEDDING_LOSS, |o, g| reduced(o, g, 3), hinge_embedding),
    composite(aten::COSINE_EMBEDDING_LOSS, by_lowering, cosine_embedding),
    composite(aten::TRIPLET_MARGIN_LOSS, by_lowering, triplet_margin),
    composite(aten::NLL_LOSS, by_lowering, |b, o| nll(b, o).map(|(loss, _)| Some(vec![loss]))),
    composite(aten::NLL_LOSS2D, by_lowering, |b, o| nll(b, o).map(|(loss, _)| Some(vec![loss]))),
    composite(aten::NLL_LOSS_ND, by_lowering, |b, o| nll(b, o).map(|(loss, _)| Some(vec![loss]))),
    composite(aten::NLL_LOSS_FORWARD, by_lowering, |b, o| nll(b, o).map(|(loss, total)| Some(vec![loss, total]))),
    composite(aten::NLL_LOSS2D_FORWARD, by_lowering, |b, o| nll(b, o).map(|(loss, total)| Some(vec![loss, total]))),
    composite(aten::CROSS_ENTROPY_LOSS, by_lowering, cross_entropy),
];

/// PyTorch's codes for the reduction of the losses of elements.
const MEAN: i64 = 1;
const SUM: i64 = 2;

fn reduced(operands: &Operands<'_>, graph: &Graph, reduction: usize) -> Result<Vec<Type>, Error> {
    let args = [operands.arg(0), operands.arg(1)];
    let dtype = to_floating(promote(&args, graph)?);
    let each = operands.int(reduction)? == 0;
    one(dtype, if each { broadcast_shape(&args, graph)? } else { Vec::new() })
}

/// The losses themselves, their mean or their sum.
pub(crate) fn reduce(
    b: &mut Builder<'_>,
    losses: ValueId,
    reduction: i64,
    dtype: ScalarType,
) -> Result<ValueId, Error> {
    let value = match reduction {
        MEAN => b.unary(aten::MEAN, losses)?,
        SUM => b.unary(aten::SUM, losses)?,
        _ => losses,
    };
    b.cast(value, dtype)
}

/// Converts both arguments to the dtype that losses are computed in; also returns the dtype of the result.
fn pair(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<(ValueId, ValueId, ScalarType), Error> {
    let dtype = to_floating(promote(&[operands.arg(0), operands.arg(1)], b.graph)?);
    let wide = compute_dtype(dtype);
    Ok((b.cast(operands.value(0)?, wide)?, b.cast(operands.value(1)?, wide)?, dtype))
}

fn pointwise(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    reduction: usize,
    loss: fn(&mut Builder<'_>, ValueId) -> Result<ValueId, Error>,
) -> Lowered {
    let (x, y, dtype) = pair(b, operands)?;
    let difference = b.sub(x, y)?;
    let losses = loss(b, difference)?;
    reduce(b, losses, operands.int(reduction)?, dtype).and_then(done)
}

fn squared(b: &mut Builder<'_>, difference: ValueId) -> Result<ValueId, Error> {
    b.mul(difference, difference)
}

fn absolute(b: &mut Builder<'_>, difference: ValueId) -> Result<ValueId, Error> {
    b.unary(aten::ABS, difference)
}

/// `d²/2β` below β, `d - β/2` above.
fn smooth_l1(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y, dtype) = pair(b, operands)?;
    let beta = operands.number(3)?;
    let difference = b.sub(x, y)?;
    let distance = b.unary(aten::ABS, difference)?;
    let losses = if known_number(&beta) == Some(0.0) {
        distance
    } else {
        let square = b.mul(distance, distance)?;
        let (inverse, half) = (b.number_quotient(&Arg::Float(0.5), &beta)?, b.number_product(&Arg::Float(0.5), &beta)?);
        let (curved, straight) = (b.mul(square, inverse)?, b.sub(distance, half)?);
        let near = b.compare(aten::packet::LT, distance, beta)?;
        b.select(near, curved, straight)?
    };
    reduce(b, losses, operands.int(2)?, dtype).and_then(done)
}

/// `d²/2` up to δ, `δ (d - δ/2)` above.
fn huber(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y, dtype) = pair(b, operands)?;
    let delta = operands.number(3)?;
    let half = b.number_product(&Arg::Float(0.5), &delta)?;
    let difference = b.sub(x, y)?;
    let distance = b.unary(aten::ABS, difference)?;
    let square = b.mul(distance, distance)?;
    let (curved, beyond) = (b.mul(square, 0.5)?, b.sub(distance, half)?);
    let straight = b.mul(beyond, delta.clone())?;
    let near = b.compare(aten::packet::LE, distance, delta)?;
    let losses = b.select(near, curved, straight)?;
    reduce(b, losses, operands.int(2)?, dtype).and_then(done)
}

/// `t (log t - x)`, where `x` is a logarithm and `t` may be one.
fn kl_div(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, target, dtype) = pair(b, operands)?;
    let losses = if operands.bool(3)? {
        let (probability, difference) = (b.unary(aten::EXP, target)?, b.sub(target, x)?);
        b.mul(probability, difference)?
    } else {
        let entropy = b.one(aten::XLOGY_TENSOR, vec![target.into(), target.into()])?;
        let cross = b.mul(target, x)?;
        b.sub(entropy, cross)?
    };
    reduce(b, losses, operands.int(2)?, dtype).and_then(done)
}

/// `exp(x) - t x` for a logarithm `x`, else `x - t log(x + eps)`. With `full`, Stirling's approximation of `log t!` is
/// added for targets above 1.
fn poisson(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, target, dtype) = pair(b, operands)?;
    let mut losses = if operands.bool(2)? {
        let (rate, product) = (b.unary(aten::EXP, x)?, b.mul(target, x)?);
        b.sub(rate, product)?
    } else {
        let shifted = b.add(x, operands.number(4)?)?;
        let log = b.unary(aten::LOG, shifted)?;
        let product = b.mul(target, log)?;
        b.sub(x, product)?
    };
    if operands.bool(3)? {
        let log = b.unary(aten::LOG, target)?;
        let product = b.mul(target, log)?;
        let rest = b.sub(product, target)?;
        let circle = b.mul(target, 2.0 * std::f64::consts::PI)?;
        let root = b.unary(aten::LOG, circle)?;
        let root = b.mul(root, 0.5)?;
        let factorial = b.add(rest, root)?;
        let large = b.compare(aten::packet::GT, target, 1)?;
        let factorial = b.select(large, factorial, 0)?;
        losses = b.add(losses, factorial)?;
    }
    reduce(b, losses, operands.int(5)?, dtype).and_then(done)
}

/// `-(t log x + (1 - t) log(1 - x))`, with logarithms clamped to at least -100.
fn binary_cross_entropy(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, target, dtype) = pair(b, operands)?;
    let bounded =
        |b: &mut Builder<'_>, log: ValueId| b.one(aten::CLAMP, vec![log.into(), Arg::Float(-100.0), Arg::None]);
    let log = b.unary(aten::LOG, x)?;
    let log = bounded(b, log)?;
    let negative = b.unary(aten::NEG, x)?;
    let other = b.unary(aten::LOG1P, negative)?;
    let other = bounded(b, other)?;
    // (t - 1) log(1 - x) - t log x.
    let less = b.sub(target, 1)?;
    let (first, second) = (b.mul(less, other)?, b.mul(target, log)?);
    let losses = b.sub(first, second)?;
    let losses = weighted(b, losses, operands.optional(2)?)?;
    reduce(b, losses, operands.int(3)?, dtype).and_then(done)
}

fn weighted(b: &mut Builder<'_>, losses: ValueId, weight: Option<ValueId>) -> Result<ValueId, Error> {
    match weight {
        Some(weight) => {
            let dtype = b.tensor(losses)?.dtype;
            let weight = b.cast(weight, dtype)?;
            b.mul(losses, weight)
        }
        None => Ok(losses),
    }
}

/// `(1 - t) x - (1 + (p - 1) t) log σ(x)`.
fn with_logits(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, target, dtype) = pair(b, operands)?;
    let mut log = log_of_sigmoid(b, x)?;
    if let Some(positive) = operands.optional(3)? {
        let wide = b.tensor(x)?.dtype;
        let positive = b.cast(positive, wide)?;
        let more = b.sub(positive, 1)?;
        let more = b.mul(more, target)?;
        let factor = b.add(more, 1)?;
        log = b.mul(log, factor)?;
    }
    let rest = b.sub(1, target)?;
    let linear = b.mul(rest, x)?;
    let losses = b.sub(linear, log)?;
    let losses = weighted(b, losses, operands.optional(2)?)?;
    reduce(b, losses, operands.int(4)?, dtype).and_then(done)
}

/// `log(1 + exp(-t x))`.
fn soft_margin(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, target, dtype) = pair(b, operands)?;
    let product = b.mul(x, target)?;
    let log = log_of_sigmoid(b, product)?;
    let losses = b.unary(aten::NEG, log)?;
    reduce(b, losses, operands.int(2)?, dtype).and_then(done)
}

/// `max(0, -t (x - y) + margin)`.
fn margin_ranking(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y, target) = (operands.value(0)?, operands.value(1)?, operands.value(2)?);
    let difference = b.sub(y, x)?;
    let product = b.mul(target, difference)?;
    let shifted = b.add(product, operands.number(3)?)?;
    let losses = b.one(aten::CLAMP, vec![shifted.into(), Arg::from(0), Arg::None])?;
    let dtype = b.tensor(losses)?.dtype;
    reduce(b, losses, operands.int(4)?, dtype).and_then(done)
}

/// `x` where the target is 1, `max(0, margin - x)` where it is -1.
fn hinge_embedding(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, target, dtype) = pair(b, operands)?;
    let rest = b.sub(operands.number(2)?, x)?;
    let rest = b.one(aten::CLAMP, vec![rest.into(), Arg::from(0), Arg::None])?;
    let (not_positive, not_negative) =
        (b.compare(aten::packet::NE, target, 1)?, b.compare(aten::packet::NE, target, -1)?);
    let (margin, own) = (b.select(not_positive, rest, 0.0)?, b.select(not_negative, x, 0.0)?);
    let losses = b.add(margin, own)?;
    reduce(b, losses, operands.int(3)?, dtype).and_then(done)
}

/// `1 - cos` where the target is 1, `max(0, cos - margin)` where it is -1.
fn cosine_embedding(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    const EPSILON: f64 = 1e-12;
    let (x, y, target) = (operands.value(0)?, operands.value(1)?, operands.value(2)?);
    let dim = b.tensor(target)?.rank() as i64;
    let mut sum = |x: ValueId, y: ValueId| {
        let product = b.mul(x, y)?;
        b.one(aten::SUM_DIM_INTLIST, vec![product.into(), Arg::from([dim]), Arg::from(false)])
    };
    let (product, xx, yy) = (sum(x, y)?, sum(x, x)?, sum(y, y)?);
    let (xx, yy) = (b.add(xx, EPSILON)?, b.add(yy, EPSILON)?);
    let squares = b.mul(xx, yy)?;
    let norm = b.unary(aten::SQRT, squares)?;
    let cosine = b.div(product, norm)?;
    let (apart, over) = (b.sub(1, cosine)?, b.sub(cosine, operands.number(3)?)?);
    let over = b.one(aten::CLAMP, vec![over.into(), Arg::from(0), Arg::None])?;
    let (positive, negative) = (b.compare(aten::packet::EQ, target, 1)?, b.compare(aten::packet::EQ, target, -1)?);
    let (near, far) = (b.select(positive, apart, 0)?, b.select(negative, over, 0)?);
    let losses = b.add(near, far)?;
    let dtype = b.tensor(losses)?.dtype;
    reduce(b, losses, operands.int(4)?, dtype).and_then(done)
}

/// `max(0, d(anchor, positive) - d(anchor, negative) + margin)`.
fn triplet_margin(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (p, eps) = (operands.arg(4).clone(), operands.arg(5).clone());
    let mut distance = |x: usize, y: usize| {
        b.one(aten::PAIRWISE_DISTANCE, vec![operands.arg(x).clone(), operands.arg(y).clone(), p.clone(), eps.clone()])
    };
    let (near, mut far) = (distance(0, 1)?, distance(0, 2)?);
    if operands.bool(6)? {
        let other = distance(1, 2)?;
        far = b.one(aten::MINIMUM, vec![far.into(), other.into()])?;
    }
    let difference = b.sub(near, far)?;
    let shifted = b.add(difference, operands.number(3)?)?;
    let losses = b.one(aten::CLAMP, vec![shifted.into(), Arg::from(0), Arg::None])?;
    let dtype = b.tensor(losses)?.dtype;
    reduce(b, losses, operands.int(7)?, dtype).and_then(done)
}

/// The weight of each class, and the class that is ignored.
struct Classes {
    weight: Option<ValueId>,
    ignored: Expr,
    reduction: i64,
}

/// The loss and the sum of the weights.
fn nll(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<(ValueId, ValueId), Error> {
    let (weight, reduction, ignored) = (operands.optional(2)?, operands.int(3)?, operands.expr(4)?);
    let classes = Classes { weight, ignored, reduction };
    class_loss(b, operands.value(0)?, operands.value(1)?, &classes)
}

/// `-x[target]`, weighted; the mean is weighted too.
fn class_loss(
    b: &mut Builder<'_>,
    x: ValueId,
    target: ValueId,
    classes: &Classes,
) -> Result<(ValueId, ValueId), Error> {
    let (dtype, rank) = (b.tensor(x)?.dtype, b.tensor(x)?.rank());
    let dim = Arg::from(i64::from(rank > 1));
    let target = b.cast(target, ScalarType::Long)?;
    let counts = b.compare(aten::packet::NE, target, Arg::Int(classes.ignored.clone()))?;
    let safe = b.select(counts, target, 0)?;
    let picked = b.one(aten::UNSQUEEZE_COPY, vec![safe.into(), dim.clone()])?;
    let picked = b.one(aten::GATHER, vec![x.into(), dim.clone(), picked.into()])?;
    let shape = b.tensor(target)?.shape;
    let picked = b.view(picked, shape.clone())?;
    let each = match classes.weight {
        Some(weight) => {
            let flat = b.view(safe, vec![Expr::product(&shape)])?;
            let weights = b.one(aten::INDEX_SELECT, vec![weight.into(), Arg::from(0), flat.into()])?;
            b.view(weights, shape)?
        }
        None => b.cast(counts, dtype)?,
    };
    let each = b.select(counts, each, 0)?;
    let product = b.mul(picked, each)?;
    let losses = b.unary(aten::NEG, product)?;
    let losses = b.select(counts, losses, 0)?;
    let total = b.unary(aten::SUM, each)?;
    let sum = b.unary(aten::SUM, losses)?;
    Ok(match classes.reduction {
        MEAN => (b.div(sum, total)?, total),
        SUM => (sum, total),
        _ => {
            let zero = b.as_tensor(&Arg::from(0), dtype)?;
            (losses, zero)
        }
    })
}

/// The logarithm of the softmax, then the loss of the classes or of probabilities; smoothing mixes in all classes.
fn cross_entropy(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, target) = (operands.value(0)?, operands.value(1)?);
    let (ty, target_ty) = (b.tensor(x)?, b.tensor(target)?);
    let dim = i64::from(ty.rank() > 1);
    let classes = Classes { weight: operands.optional(2)?, ignored: operands.expr(4)?, reduction: operands.int(3)? };
    let smoothing = operands.float(5)?;
    let log = b.one(aten::_LOG_SOFTMAX, vec![x.into(), Arg::from(dim), Arg::from(false)])?;
    if target_ty.dtype.is_floating() && target_ty.shape.len() == ty.rank() {
        return probabilities(b, log, target, &classes, smoothing, dim);
    }
    let (loss, total) = class_loss(b, log, target, &classes)?;
    if smoothing == 0.0 {
        return done(loss);
    }
    let counts = b.compare(aten::packet::NE, target, Arg::Int(classes.ignored.clone()))?;
    let weighted = weighted_classes(b, log, classes.weight, dim)?;
    let sums = b.one(aten::SUM_DIM_INTLIST, vec![weighted.into(), Arg::from([dim]), Arg::from(false)])?;
    let negative = b.unary(aten::NEG, sums)?;
    let smooth = b.select(counts, negative, 0)?;
    let smooth = match classes.reduction {
        MEAN => {
            let sum = b.unary(aten::SUM, smooth)?;
            b.div(sum, total)?
        }
        SUM => b.unary(aten::SUM, smooth)?,
        _ => smooth,
    };
    let loss = b.mul(loss, 1.0 - smoothing)?;
    let smooth = spread(b, smooth, smoothing, ty.shape.get(dim as usize))?;
    b.add(loss, smooth).and_then(done)
}

/// The part of the smoothing that each class gets.
fn spread(b: &mut Builder<'_>, x: ValueId, smoothing: f64, classes: Option<&Expr>) -> Result<ValueId, Error> {
    let scaled = b.mul(x, smoothing)?;
    b.div(scaled, classes.cloned().unwrap_or(Expr::Int(1)))
}

/// Each class times its weight.
fn weighted_classes(b: &mut Builder<'_>, log: ValueId, weight: Option<ValueId>, dim: i64) -> Result<ValueId, Error> {
    let Some(weight) = weight else { return Ok(log) };
    let ty = b.tensor(log)?;
    let shape = ty.shape.iter().enumerate();
    let shape = shape.map(|(at, size)| if at as i64 == dim { size.clone() } else { Expr::Int(1) }).collect();
    let weight = b.view(weight, shape)?;
    b.mul(log, weight)
}

fn probabilities(
    b: &mut Builder<'_>,
    log: ValueId,
    target: ValueId,
    classes: &Classes,
    smoothing: f64,
    dim: i64,
) -> Lowered {
    let ty = b.tensor(log)?;
    let mut target = target;
    if smoothing > 0.0 {
        let rest = b.mul(target, 1.0 - smoothing)?;
        let ones = super::creation::filled(b, Arg::List(Vec::new()), Arg::from(1), ty.dtype)?;
        let part = spread(b, ones, smoothing, ty.shape.get(dim as usize))?;
        target = b.add(rest, part)?;
    }
    let weighted = weighted_classes(b, log, classes.weight, dim)?;
    let product = b.mul(weighted, target)?;
    let negative = b.unary(aten::NEG, product)?;
    let losses = b.one(aten::SUM_DIM_INTLIST, vec![negative.into(), Arg::from([dim]), Arg::from(false)])?;
    // The mean is over samples, not over weights.
    reduce(b, losses, classes.reduction, ty.dtype).and_then(done)
}
