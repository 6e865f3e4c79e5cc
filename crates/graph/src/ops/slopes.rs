//! Slopes of sampled functions (`torch.gradient`), by differences of second order.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, ValueId};

use super::slices::slice;
use super::{Definition, Lowered, Operands, by_lowering, composite};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::GRADIENT_SCALARINT, by_lowering, gradient),
    composite(aten::GRADIENT_SCALARARRAY, by_lowering, gradient),
    composite(aten::GRADIENT_ARRAY, by_lowering, gradient),
    composite(aten::GRADIENT_SCALARRAYINT, by_lowering, gradient),
    composite(aten::GRADIENT_SCALARRAYARRAY, by_lowering, gradient),
    composite(aten::GRADIENT_TENSORARRAYINT, by_lowering, gradient),
    composite(aten::GRADIENT_TENSORARRAY, by_lowering, gradient),
];

/// The distance of samples, or their coordinates.
enum Spacing {
    Distance(f64),
    Coordinates(ValueId),
}

fn gradient(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let rank = b.tensor(x)?.rank();
    let named = |name: &str| operands.schema.position(name).filter(|index| operands.has(*index));
    let dims = match named("dim") {
        Some(index) => match operands.arg(index) {
            Arg::List(_) => operands
                .ints(index)?
                .into_iter()
                .map(|dim| super::wrap_dim(dim, rank).ok_or_else(|| operands.wrong(index, "dimensions of the tensor")))
                .collect::<Result<Vec<_>, _>>()?,
            _ => vec![operands.dim(index, rank)?],
        },
        None => (0..rank).collect(),
    };
    let order = named("edge_order").map_or(Ok(1), |index| operands.int(index))?;
    let spacings = match named("spacing") {
        None => dims.iter().map(|_| Spacing::Distance(1.0)).collect(),
        Some(index) => spacings(operands, index, dims.len())?,
    };
    let mut results = Vec::new();
    for (dim, spacing) in dims.iter().zip(&spacings) {
        results.push(match spacing {
            Spacing::Distance(distance) => even(b, x, *dim, *distance, order)?,
            Spacing::Coordinates(points) => uneven(b, x, *dim, *points, order)?,
        });
    }
    Ok(Some(results))
}

fn spacings(operands: &Operands<'_>, index: usize, count: usize) -> Result<Vec<Spacing>, Error> {
    let Arg::List(items) = operands.arg(index) else {
        let distance = operands.float(index)?;
        return Ok((0..count).map(|_| Spacing::Distance(distance)).collect());
    };
    let spacing = |item: &Arg| match item {
        Arg::Value(value) => Ok(Spacing::Coordinates(*value)),
        Arg::Float(value) => Ok(Spacing::Distance(*value)),
        Arg::Int(Expr::Int(value)) => Ok(Spacing::Distance(*value as f64)),
        _ => Err(operands.wrong(index, "numbers or tensors")),
    };
    let spacings = items.iter().map(spacing).collect::<Result<Vec<_>, _>>()?;
    if spacings.len() != count {
        return Err(operands.wrong(index, &format!("{count} of them")));
    }
    Ok(spacings)
}

/// A tensor along a dimension.
struct Along {
    x: ValueId,
    dim: usize,
    size: Expr,
}

impl Along {
    fn of(b: &Builder<'_>, x: ValueId, dim: usize, min_size: i64) -> Result<Self, Error> {
        let size = b.tensor(x)?.shape.get(dim).cloned().unwrap_or(Expr::Int(1));
        if size.as_int().is_some_and(|size| size < min_size) {
            return Err(Error::type_error("`gradient` along a dimension of too few elements").expected(min_size));
        }
        Ok(Self { x, dim, size })
    }

    /// `length` elements from `start` on.
    fn part(&self, b: &mut Builder<'_>, start: impl Into<Expr>, length: impl Into<Expr>) -> Result<ValueId, Error> {
        slice(b, self.x, self.dim, start, length)
    }

    /// The element `by` positions before the end.
    fn back(&self, b: &mut Builder<'_>, by: i64) -> Result<ValueId, Error> {
        self.part(b, self.size.sub(by), 1)
    }
}

/// The sum of values times factors.
fn combine(b: &mut Builder<'_>, terms: &[(ValueId, Arg)]) -> Result<ValueId, Error> {
    let mut sum = None;
    for (value, factor) in terms {
        let term = b.mul(*value, factor.clone())?;
        sum = Some(match sum {
            Some(sum) => b.add(sum, term)?,
            None => term,
        });
    }
    sum.ok_or_else(|| Error::type_error("a sum of nothing"))
}

/// Differentiates evenly spaced samples: central differences, and at the ends one-sided differences of the first or second order.
fn even(b: &mut Builder<'_>, x: ValueId, dim: usize, distance: f64, order: i64) -> Result<ValueId, Error> {
    let along = Along::of(b, x, dim, order + 1)?;
    let inner = along.size.sub(2);
    let (left, right) = (along.part(b, 0, inner.clone())?, along.part(b, 2, inner)?);
    let difference = b.sub(right, left)?;
    let middle = b.div(difference, 2.0 * distance)?;
    let mut ends = Vec::new();
    for at_start in [true, false] {
        let at = |b: &mut Builder<'_>, place: i64| {
            if at_start { along.part(b, place, 1) } else { along.back(b, place + 1) }
        };
        let sign = if at_start { 1.0 } else { -1.0 };
        let (first, second) = (at(b, 0)?, at(b, 1)?);
        let value = if order == 2 {
            let third = at(b, 2)?;
            let terms =
                [(first, -1.5), (second, 2.0), (third, -0.5)].map(|(value, factor)| (value, Arg::Float(factor)));
            combine(b, &terms)?
        } else {
            b.sub(second, first)?
        };
        ends.push(b.div(value, sign * distance)?);
    }
    joined(b, &ends, middle, dim)
}

fn joined(b: &mut Builder<'_>, ends: &[ValueId], middle: ValueId, dim: usize) -> Result<ValueId, Error> {
    let [start, end] = *ends else { return Ok(middle) };
    b.one(aten::CAT, vec![Arg::from(vec![start, middle, end]), Arg::from(dim as i64)])
}

/// Differentiates samples at given coordinates, by parabolas through three neighbours.
fn uneven(b: &mut Builder<'_>, x: ValueId, dim: usize, points: ValueId, order: i64) -> Result<ValueId, Error> {
    let along = Along::of(b, x, dim, order + 1)?;
    let rank = b.tensor(x)?.rank();
    let mut shape = vec![Expr::Int(1); rank];
    if let Some(slot) = shape.get_mut(dim) {
        *slot = along.size.clone();
    }
    let points = b.view(points, shape)?;
    let points = Along { x: points, dim, size: along.size.clone() };
    let less = along.size.sub(1);
    let (low, high) = (points.part(b, 0, less.clone())?, points.part(b, 1, less.clone())?);
    let steps = Along { x: b.sub(high, low)?, dim, size: less };
    let inner = along.size.sub(2);
    let (before, after) = (steps.part(b, 0, inner.clone())?, steps.part(b, 1, inner.clone())?);
    let values = [along.part(b, 0, inner.clone())?, along.part(b, 1, inner.clone())?, along.part(b, 2, inner)?];
    let middle = parabola(b, values, before, after, 1)?;
    let mut ends = Vec::new();
    for at_start in [true, false] {
        let (first, second) = if at_start {
            (along.part(b, 0, 1)?, along.part(b, 1, 1)?)
        } else {
            (along.back(b, 2)?, along.back(b, 1)?)
        };
        ends.push(if order == 2 {
            let (before, after) = if at_start {
                (steps.part(b, 0, 1)?, steps.part(b, 1, 1)?)
            } else {
                (steps.back(b, 2)?, steps.back(b, 1)?)
            };
            let third = if at_start { along.part(b, 2, 1)? } else { along.back(b, 3)? };
            let values = if at_start { [first, second, third] } else { [third, first, second] };
            parabola(b, values, before, after, if at_start { 0 } else { 2 })?
        } else {
            let step = if at_start { steps.part(b, 0, 1)? } else { steps.back(b, 1)? };
            let difference = b.sub(second, first)?;
            b.div(difference, step)?
        });
    }
    joined(b, &ends, middle, dim)
}

/// The slope of the parabola through three samples, at one of them; `p` and `q` are the steps between them.
fn parabola(b: &mut Builder<'_>, values: [ValueId; 3], p: ValueId, q: ValueId, at: usize) -> Result<ValueId, Error> {
    let (sum, difference, product) = (b.add(p, q)?, b.sub(q, p)?, b.mul(p, q)?);
    let (first, last) = (b.mul(p, sum)?, b.mul(q, sum)?);
    let numerators = match at {
        0 => {
            let twice = b.add(p, sum)?;
            [b.unary(aten::NEG, twice)?, sum, b.unary(aten::NEG, p)?]
        }
        1 => [b.unary(aten::NEG, q)?, difference, p],
        _ => [q, b.unary(aten::NEG, sum)?, b.add(q, sum)?],
    };
    let mut terms = Vec::new();
    for ((value, numerator), denominator) in values.into_iter().zip(numerators).zip([first, product, last]) {
        terms.push((value, b.div(numerator, denominator)?.into()));
    }
    combine(b, &terms)
}
