//! Distances and similarities.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type};

use super::inference::{broadcast_shape, one};
use super::norm::vector_norm;
use super::promotion::to_floating;
use super::reduction::reduced_shape;
use super::{Definition, Lowered, Operands, broadcast, composite, compute_dtype, done, kernel, promote};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::COSINE_SIMILARITY, |o, g| along_dim(o, g, 2), cosine_similarity),
    composite(aten::PAIRWISE_DISTANCE, pairwise_type, pairwise_distance),
    composite(aten::CDIST, pairs, cdist),
    kernel(aten::_CDIST_FORWARD, pairs),
    composite(aten::_EUCLIDEAN_DIST, pairs, euclidean),
    composite(aten::PDIST, condensed, pdist),
    kernel(aten::_PDIST_FORWARD, condensed),
];

fn along_dim(operands: &Operands<'_>, graph: &Graph, dim: usize) -> Result<Vec<Type>, Error> {
    let args = [operands.arg(0), operands.arg(1)];
    let shape = broadcast_shape(&args, graph)?;
    let dim = operands.dim(dim, shape.len())?;
    one(to_floating(promote(&args, graph)?), reduced_shape(&shape, &[dim], false))
}

/// `x·y / (max(‖x‖, eps) max(‖y‖, eps))` along a dimension.
fn cosine_similarity(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let shape = broadcast_shape(&[operands.arg(0), operands.arg(1)], b.graph)?;
    let dim = operands.dim(2, shape.len())? as i64;
    let eps = operands.number(3)?;
    let dtype = to_floating(promote(&[operands.arg(0), operands.arg(1)], b.graph)?);
    let mut unit = |index| {
        let x = b.cast(operands.value(index)?, compute_dtype(dtype))?;
        let x = if b.tensor(x)?.shape == shape {
            x
        } else {
            b.one(aten::EXPAND_COPY, vec![x.into(), shape.clone().into()])?
        };
        let norm = vector_norm(b, x, 2.0, &Arg::from([dim]), &Arg::from(true))?;
        let norm = b.one(aten::CLAMP, vec![norm.into(), eps.clone(), Arg::None])?;
        b.div(x, norm)
    };
    let (x, y) = (unit(0)?, unit(1)?);
    let product = b.mul(x, y)?;
    let sum = b.one(aten::SUM_DIM_INTLIST, vec![product.into(), Arg::from([dim]), Arg::from(false)])?;
    b.cast(sum, dtype).and_then(done)
}

fn pairwise_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let args = [operands.arg(0), operands.arg(1)];
    let shape = broadcast_shape(&args, graph)?;
    let last = shape.len().saturating_sub(1);
    one(to_floating(promote(&args, graph)?), reduced_shape(&shape, &[last], operands.bool(4)?))
}

/// The norm of `x - y + eps` along the last dimension.
fn pairwise_distance(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (p, eps) = (operands.float(2)?, operands.number(3)?);
    let difference = b.sub(operands.value(0)?, operands.value(1)?)?;
    let distance = b.precisely(difference, |b, x| {
        let shifted = b.add(x, eps)?;
        vector_norm(b, shifted, p, &Arg::from([-1]), operands.arg(4))
    })?;
    done(distance)
}

/// Rows of the first with rows of the second, in batches that broadcast.
fn pairs(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (x, y) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let ([batch_x @ .., rows, _], [batch_y @ .., columns, _]) = (x.shape.as_slice(), y.shape.as_slice()) else {
        return Err(operands.wrong(0, "matrices"));
    };
    let mut shape = broadcast([batch_x, batch_y])?;
    shape.extend([rows.clone(), columns.clone()]);
    one(promote(&[operands.arg(0), operands.arg(1)], graph)?, shape)
}

fn cdist(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.one(aten::_CDIST_FORWARD, operands.args.to_vec()).and_then(done)
}

fn euclidean(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let args = vec![operands.arg(0).clone(), operands.arg(1).clone(), Arg::Float(2.0), Arg::None];
    b.one(aten::_CDIST_FORWARD, args).and_then(done)
}

/// Each pair of rows once.
fn condensed(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let [rows, _] = input.shape.as_slice() else { return Err(operands.wrong(0, "a matrix")) };
    let pairs = rows.mul(rows.sub(1)).floor_div(2);
    one(input.dtype, vec![pairs.at_least(Expr::Int(0))])
}

fn pdist(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    super::forward(b, operands, aten::_PDIST_FORWARD)
}
