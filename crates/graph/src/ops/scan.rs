//! Cumulative operations along a dimension.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::binary::log_add;
use super::inference::{one, same, tensor};
use super::promotion::{category, to_floating};
use super::{Definition, Lowered, Operands, composite, done, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::CUMSUM, cumulative),
    composite(aten::CUMPROD, cumulative, cumprod),
    composite(aten::CUMMAX, with_positions, |b, o| extremum(b, o, aten::packet::GE)),
    composite(aten::CUMMIN, with_positions, |b, o| extremum(b, o, aten::packet::LE)),
    composite(aten::LOGCUMSUMEXP, same, logcumsumexp),
    composite(aten::_LOGCUMSUMEXP, same, logcumsumexp),
];

/// Integers give `i64`, unless a dtype is given.
fn cumulative(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    operands.dim(1, input.rank())?;
    let natural = if category(input.dtype) < 2 { ScalarType::Long } else { input.dtype };
    one(operands.dtype_or(2, natural)?, input.shape.clone())
}

fn with_positions(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    operands.dim(1, input.rank())?;
    Ok(vec![tensor(input.dtype, input.shape.clone()), tensor(ScalarType::Long, input.shape.clone())])
}

fn cumprod(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let types = cumulative(operands, b.graph)?;
    let dtype = types.first().and_then(Type::as_tensor).map_or(ScalarType::Long, |ty| ty.dtype);
    let x = b.cast(operands.value(0)?, dtype)?;
    let mut value = Scanned::new(b, operands, x)?;
    for step in value.steps(b)? {
        let before = value.shifted(b, value.x, step, Arg::from(1))?;
        value.x = b.mul(value.x, before)?;
    }
    done(value.x)
}

fn logcumsumexp(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let x = b.cast(x, to_floating(b.tensor(x)?.dtype))?;
    let value = b.precisely(x, |b, x| {
        let mut value = Scanned::new(b, operands, x)?;
        for step in value.steps(b)? {
            let before = value.shifted(b, value.x, step, Arg::Float(f64::NEG_INFINITY))?;
            value.x = log_add(b, value.x, before)?;
        }
        Ok(value.x)
    })?;
    done(value)
}

/// The extremum so far and its latest position; NaN is beyond everything.
fn extremum(b: &mut Builder<'_>, operands: &Operands<'_>, beyond: &str) -> Lowered {
    let x = operands.value(0)?;
    let mut value = Scanned::new(b, operands, x)?;
    let mut positions = value.positions(b)?;
    for step in value.steps(b)? {
        let before = value.shifted(b, value.x, step, Arg::from(0))?;
        let before_position = value.shifted(b, positions, step, Arg::from(-1))?;
        let (further, nan) = (b.compare(beyond, value.x, before)?, b.unary(aten::ISNAN, value.x)?);
        let first = b.compare(aten::packet::LT, before_position, 0)?;
        let kept = b.one(aten::LOGICAL_OR, vec![further.into(), nan.into()])?;
        let kept = b.one(aten::LOGICAL_OR, vec![kept.into(), first.into()])?;
        value.x = b.select(kept, value.x, before)?;
        positions = b.select(kept, positions, before_position)?;
    }
    Ok(Some(vec![value.x, positions]))
}

/// A scan by doubling: step `k` combines each element with the one `2^k` positions before it. It takes one step for each binary digit of
/// the size, and works for sizes with a known upper bound alone.
struct Scanned {
    x: ValueId,
    dim: usize,
    rank: usize,
    size: Expr,
}

impl Scanned {
    fn new(b: &Builder<'_>, operands: &Operands<'_>, x: ValueId) -> Result<Self, Error> {
        let ty = b.tensor(x)?;
        let dim = operands.dim(1, ty.rank())?;
        let size = ty.shape.get(dim).cloned().unwrap_or(Expr::Int(1));
        Ok(Self { x, dim, rank: ty.rank(), size })
    }

    /// The distances of the steps.
    fn steps(&self, b: &Builder<'_>) -> Result<Vec<i64>, Error> {
        let bound = self.size.upper_bound(&b.graph.symbols).ok_or_else(|| {
            Error::unsupported("a cumulative operation along a dimension without an upper bound")
                .help("give the dimension a maximum in `dynamic_shapes`")
        })?;
        Ok(std::iter::successors(Some(1i64), |step| step.checked_mul(2)).take_while(|step| *step < bound).collect())
    }

    /// `x` moved up by `step` places; `fill` comes in.
    fn shifted(&self, b: &mut Builder<'_>, x: ValueId, step: i64, fill: Arg) -> Result<ValueId, Error> {
        let mut padding = vec![0i64; 2 * (self.rank - self.dim)];
        if let Some(before) = padding.iter_mut().nth_back(1) {
            *before = step;
        }
        let padded = b.one(aten::CONSTANT_PAD_ND, vec![x.into(), Arg::from(padding.as_slice()), fill])?;
        let slice = vec![padded.into(), Arg::from(self.dim as i64), Arg::from(0), self.size.clone().into()];
        b.one(aten::SLICE_COPY_TENSOR, slice)
    }

    /// The index along the dimension, of each element.
    fn positions(&self, b: &mut Builder<'_>) -> Result<ValueId, Error> {
        let shape = b.tensor(self.x)?.shape;
        let range = vec![Arg::from(0), Arg::Int(self.size.clone()), Arg::from(1)];
        let range = b.one_with(aten::ARANGE_START_STEP, range, &[("dtype", ScalarType::Long.into())])?;
        let mut aligned = vec![Expr::Int(1); shape.len()];
        if let Some(size) = aligned.get_mut(self.dim) {
            *size = self.size.clone();
        }
        let range = b.view(range, aligned)?;
        if b.tensor(range)?.shape == shape {
            return Ok(range);
        }
        b.one(aten::EXPAND_COPY, vec![range.into(), shape.into()])
    }
}
