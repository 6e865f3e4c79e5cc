//! Normalizations, at inference.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::inference::{same, tensor};
use super::norm::vector_norm;
use super::promotion::to_floating;
use super::{Definition, Lowered, Operands, composite, compute_dtype, done, kernel, promote};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::BATCH_NORM, same, batch_norm),
    composite(aten::NATIVE_BATCH_NORM, batch_statistics, native_batch_norm),
    composite(aten::_BATCH_NORM_NO_UPDATE, batch_statistics_with_reserve, batch_norm_no_update),
    composite(aten::_NATIVE_BATCH_NORM_LEGIT_FUNCTIONAL, batch_statistics_with_running, batch_norm_that_trains),
    kernel(aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, batch_statistics),
    kernel(aten::_NATIVE_BATCH_NORM_LEGIT_NO_STATS, batch_statistics),
    composite(aten::INSTANCE_NORM, same, instance_norm),
    composite(aten::GROUP_NORM, same, group_norm),
    kernel(aten::NATIVE_GROUP_NORM, group_statistics),
    composite(aten::LAYER_NORM, same, layer_norm),
    kernel(aten::NATIVE_LAYER_NORM, layer_statistics),
    composite(aten::RMS_NORM, rms_norm_type, rms_norm),
    composite(aten::_WEIGHT_NORM, same, weight_norm),
    composite(aten::_WEIGHT_NORM_INTERFACE, weight_norm_type, weight_norm_interface),
    composite(aten::NORM_EXCEPT_DIM, norm_except_dim_type, norm_except_dim),
];

/// The result, and the mean and inverse deviation of each channel, which are empty when running statistics are used.
fn batch_statistics(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let trains = operands.schema.position("training").map_or(Ok(false), |index| operands.bool(index))?;
    let channels = input.shape.get(1).cloned().ok_or_else(|| operands.wrong(0, "a tensor of at least 2 dimensions"))?;
    let dtype = operands.optional(1)?.map_or(Ok(input.dtype), |weight| graph.tensor(weight).map(|ty| ty.dtype))?;
    let stats = tensor(dtype, vec![if trains { channels } else { Expr::Int(0) }]);
    Ok(vec![tensor(input.dtype, input.shape.clone()), stats.clone(), stats])
}

fn batch_statistics_with_reserve(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let mut types = batch_statistics(operands, graph)?;
    types.push(tensor(rushlight_format::ScalarType::Byte, vec![Expr::Int(0)]));
    Ok(types)
}

/// Lowers `batch_norm`: with running statistics at inference, and with those of the batch if the module keeps none.
fn batch_norm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    // An empty input has nothing to normalize.
    if operands.tensor(0, b.graph)?.numel().is(0) {
        return done(operands.value(0)?);
    }
    let training = operands.bool(5)?;
    first(native(b, operands, training)?)
}

fn native_batch_norm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let training = operands.bool(5)?;
    native(b, operands, training).map(Some)
}

fn native(b: &mut Builder<'_>, operands: &Operands<'_>, training: bool) -> Result<Vec<ValueId>, Error> {
    let arg = |index| operands.arg(index).clone();
    if !training {
        let args = vec![arg(0), arg(1), arg(2), arg(3), arg(4), arg(6), arg(7)];
        return b.call(aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, args);
    }
    if operands.has(3) || operands.has(4) {
        return Err(Error::unsupported(format!("`{}` in training mode", operands.schema.name))
            .help("call `model.eval()` before `torch.export.export`"));
    }
    b.call(aten::_NATIVE_BATCH_NORM_LEGIT_NO_STATS, vec![arg(0), arg(1), arg(2), Arg::from(true), arg(6), arg(7)])
}

fn batch_norm_no_update(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut results = b.call(aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, operands.args.to_vec())?;
    let reserve = [("dtype", rushlight_format::ScalarType::Byte.into())];
    results.push(b.one_with(aten::FULL, vec![Arg::from([0]), Arg::from(0)], &reserve)?);
    Ok(Some(results))
}

/// The types of [`batch_statistics`], then the running statistics after the call.
fn batch_statistics_with_running(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let mut types = batch_statistics(operands, graph)?;
    for index in [3, 4] {
        let running = operands.tensor(index, graph)?;
        types.push(tensor(running.dtype, running.shape.clone()));
    }
    Ok(types)
}

/// Normalizes by the batch's statistics, and moves the running ones towards them. The running variance is unbiased.
fn batch_norm_that_trains(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let arg = |index| operands.arg(index).clone();
    let (x, mean, variance) = (operands.value(0)?, operands.value(3)?, operands.value(4)?);
    if !operands.bool(5)? {
        let args = vec![arg(0), arg(1), arg(2), arg(3), arg(4), arg(6), arg(7)];
        let mut results = b.call(aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, args)?;
        results.extend([mean, variance]);
        return Ok(Some(results));
    }
    let args = vec![arg(0), arg(1), arg(2), Arg::from(true), arg(6), arg(7)];
    let mut results = b.call(aten::_NATIVE_BATCH_NORM_LEGIT_NO_STATS, args)?;
    let dims: Vec<i64> = (0..b.tensor(x)?.rank() as i64).filter(|dim| *dim != 1).collect();
    let dims = Arg::from(dims.as_slice());
    let batch = b.call(aten::VAR_MEAN_CORRECTION, vec![x.into(), dims, Arg::from(1), Arg::from(false)])?;
    let [batch_variance, batch_mean] = batch.as_slice() else { return Err(operands.wrong(0, "a tensor")) };
    for (running, of_batch) in [(mean, *batch_mean), (variance, *batch_variance)] {
        let dtype = b.tensor(running)?.dtype;
        let of_batch = b.cast(of_batch, dtype)?;
        let moved = b.one(aten::LERP_SCALAR, vec![running.into(), of_batch.into(), arg(6)])?;
        results.push(moved);
    }
    Ok(Some(results))
}

/// Normalizes each channel of each sample as its own group.
fn instance_norm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    // A tensor without elements stays as it is: a group of no elements has no mean.
    if operands.tensor(0, b.graph)?.numel().is(0) {
        return done(operands.value(0)?);
    }
    let arg = |index| operands.arg(index).clone();
    if !operands.bool(5)? {
        let args = vec![arg(0), arg(1), arg(2), arg(3), arg(4), arg(6), arg(7)];
        return first(b.call(aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, args)?);
    }
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let channels = ty.shape.get(1).cloned().ok_or_else(|| operands.wrong(0, "a tensor of at least 2 dimensions"))?;
    normalise_groups(b, x, [arg(1), arg(2)], channels, arg(7))
}

fn group_norm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let affine = [operands.arg(2).clone(), operands.arg(3).clone()];
    normalise_groups(b, operands.value(0)?, affine, operands.expr(1)?, operands.arg(4).clone())
}

fn normalise_groups(b: &mut Builder<'_>, x: ValueId, affine: [Arg; 2], groups: Expr, eps: Arg) -> Lowered {
    let shape = b.tensor(x)?.shape;
    let (Some(batch), Some(channels)) = (shape.first(), shape.get(1)) else {
        return Err(Error::type_error("a normalisation of groups takes at least 2 dimensions").got(shape.len()));
    };
    let area = Expr::product(shape.iter().skip(2));
    let [weight, bias] = affine;
    let sizes = [Arg::Int(batch.clone()), Arg::Int(channels.clone()), Arg::Int(area)];
    let args = [Arg::Value(x), weight, bias].into_iter().chain(sizes).chain([Arg::from(groups), eps]);
    first(b.call(aten::NATIVE_GROUP_NORM, args.collect())?)
}

fn group_statistics(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let stats = tensor(input.dtype, vec![operands.expr(3)?, operands.expr(6)?]);
    Ok(vec![tensor(input.dtype, input.shape.clone()), stats.clone(), stats])
}

fn layer_norm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    first(b.call(aten::NATIVE_LAYER_NORM, operands.args.iter().take(5).cloned().collect())?)
}

/// Statistics keep the normalized dimensions with size 1.
fn layer_statistics(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let normalised = operands.exprs(1)?.len();
    let kept =
        input.rank().checked_sub(normalised).ok_or_else(|| operands.wrong(1, "no more sizes than dimensions"))?;
    let sizes = input.shape.iter().enumerate().map(|(dim, size)| if dim < kept { size.clone() } else { Expr::Int(1) });
    let stats = tensor(input.dtype, sizes.collect());
    Ok(vec![tensor(input.dtype, input.shape.clone()), stats.clone(), stats])
}

fn rms_norm_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    Ok(vec![tensor(promote(&[operands.arg(0), operands.arg(2)], graph)?, input.shape.clone())])
}

/// `x * rsqrt(mean(x²) + eps) * weight` over the last dimensions. Without a value, `eps` is the machine epsilon of the
/// compute dtype.
fn rms_norm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let normalised = operands.exprs(1)?.len() as i64;
    let wide = compute_dtype(ty.dtype);
    let dims: Vec<i64> = (1..=normalised).map(|dim| -dim).collect();
    let epsilon = if wide == rushlight_format::ScalarType::Double { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let eps = operands.number_or(3, epsilon)?;
    let x = b.cast(x, wide)?;
    let squares = b.mul(x, x)?;
    let mean = b.one(aten::MEAN_DIM, vec![squares.into(), Arg::from(dims.as_slice()), Arg::from(true)])?;
    let shifted = b.add(mean, eps)?;
    let scale = b.unary(aten::RSQRT, shifted)?;
    let mut value = b.mul(x, scale)?;
    if let Some(weight) = operands.optional(2)? {
        let weight = b.cast(weight, wide)?;
        value = b.mul(value, weight)?;
    }
    let dtype = promote(&[operands.arg(0), operands.arg(2)], b.graph)?;
    b.cast(value, dtype).and_then(done)
}

/// `v * g / ‖v‖`, with the norm over all dimensions but one.
fn weight_norm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (v, g) = (operands.value(0)?, operands.value(1)?);
    let norm = norm_but(b, v, operands.int(2)?, 2.0)?;
    let scale = b.div(g, norm)?;
    b.mul(v, scale).and_then(done)
}

fn weight_norm_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let mut types = same(operands, graph)?;
    let g = operands.tensor(1, graph)?;
    types.push(tensor(g.dtype, g.shape.clone()));
    Ok(types)
}

fn weight_norm_interface(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (v, g) = (operands.value(0)?, operands.value(1)?);
    let norm = norm_but(b, v, operands.int(2)?, 2.0)?;
    let scale = b.div(g, norm)?;
    let shape = b.tensor(g)?.shape;
    Ok(Some(vec![b.mul(v, scale)?, b.view(norm, shape)?]))
}

fn norm_except_dim_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let kept = operands.int(2)?;
    let shape = input.shape.iter().enumerate();
    let shape = shape.map(|(dim, size)| if dim as i64 == kept { size.clone() } else { Expr::Int(1) }).collect();
    Ok(vec![tensor(to_floating(input.dtype), if kept == -1 { Vec::new() } else { shape })])
}

fn norm_except_dim(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let norm = norm_but(b, operands.value(0)?, operands.int(2)?, operands.float(1)?)?;
    let types = norm_except_dim_type(operands, b.graph)?;
    let shape = types.first().and_then(Type::as_tensor).map(|ty| ty.shape.clone()).unwrap_or_default();
    b.view(norm, shape).and_then(done)
}

/// The norm over all dimensions but one; the reduced dimensions keep size 1. A `kept` of -1 reduces all dimensions.
fn norm_but(b: &mut Builder<'_>, v: ValueId, kept: i64, p: f64) -> Result<ValueId, Error> {
    let rank = b.tensor(v)?.rank() as i64;
    let dims: Vec<i64> = (0..rank).filter(|dim| *dim != kept).collect();
    b.precisely(v, |b, v| vector_norm(b, v, p, &Arg::from(dims.as_slice()), &Arg::from(true)))
}

/// Returns the first of several results.
fn first(results: Vec<ValueId>) -> Lowered {
    Ok(Some(results.into_iter().take(1).collect()))
}
