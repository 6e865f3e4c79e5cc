//! Differences and integrals along a dimension.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, ValueId};

use super::creation::filled;
use super::reduction::reduced_shape;
use super::{Definition, Lowered, Operands, by_lowering, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::DIFF, by_lowering, diff),
    composite(aten::TRAPEZOID_DX, by_lowering, |b, o| trapezoid(b, o, None, false)),
    composite(aten::TRAPEZOID_X, by_lowering, |b, o| trapezoid(b, o, Some(1), false)),
    composite(aten::TRAPZ_DX, by_lowering, |b, o| trapezoid(b, o, None, false)),
    composite(aten::TRAPZ_X, by_lowering, |b, o| trapezoid(b, o, Some(1), false)),
    composite(aten::CUMULATIVE_TRAPEZOID_DX, by_lowering, |b, o| trapezoid(b, o, None, true)),
    composite(aten::CUMULATIVE_TRAPEZOID_X, by_lowering, |b, o| trapezoid(b, o, Some(1), true)),
];

/// The elements along a dimension without the last, and without the first.
fn neighbours(b: &mut Builder<'_>, x: ValueId, dim: usize) -> Result<(ValueId, ValueId), Error> {
    let size = size_of(b, x, dim)?;
    Ok((part(b, x, dim, [Expr::Int(0), size.sub(1)])?, part(b, x, dim, [Expr::Int(1), size])?))
}

fn size_of(b: &Builder<'_>, x: ValueId, dim: usize) -> Result<Expr, Error> {
    Ok(b.tensor(x)?.shape.get(dim).cloned().unwrap_or(Expr::Int(1)))
}

/// The elements of a range of a dimension.
fn part(b: &mut Builder<'_>, x: ValueId, dim: usize, [from, to]: [Expr; 2]) -> Result<ValueId, Error> {
    b.one(aten::SLICE_COPY_TENSOR, vec![x.into(), Arg::from(dim as i64), from.into(), to.into()])
}

/// The area below a line through points at equal distances: the sum of the heights without half of the first and the last. As in
/// PyTorch, only the sum of these two wraps around if the heights are small integers.
fn area_of_equal_steps(b: &mut Builder<'_>, y: ValueId, dim: usize, step: Arg) -> Result<ValueId, Error> {
    let size = size_of(b, y, dim)?;
    let first = part(b, y, dim, [Expr::Int(0), Expr::Int(1)])?;
    let last = part(b, y, dim, [size.sub(1), size])?;
    let ends = b.add(first, last)?;
    let ends = b.mul(ends, 0.5)?;
    let mut sum =
        |value: ValueId| b.one(aten::SUM_DIM_INTLIST, vec![value.into(), Arg::from([dim as i64]), Arg::from(false)]);
    let (all, ends) = (sum(y)?, sum(ends)?);
    let height = b.sub(all, ends)?;
    b.mul(height, step)
}

/// Differences of neighbours, `n` times; of booleans, whether they differ.
fn diff(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let dim = operands.dim(2, ty.rank())?;
    let parts = [operands.optional(3)?, Some(x), operands.optional(4)?];
    let parts: Vec<ValueId> = parts.into_iter().flatten().collect();
    let mut value = match parts.as_slice() {
        [only] => *only,
        _ => b.one(aten::CAT, vec![Arg::from(parts), Arg::from(dim as i64)])?,
    };
    for _ in 0..operands.int(1)? {
        let (before, after) = neighbours(b, value, dim)?;
        value = if ty.dtype == ScalarType::Bool {
            b.one(aten::LOGICAL_XOR, vec![after.into(), before.into()])?
        } else {
            b.sub(after, before)?
        };
    }
    done(value)
}

/// The area below a line through the points: of each step the mean height times its width.
fn trapezoid(b: &mut Builder<'_>, operands: &Operands<'_>, places: Option<usize>, cumulative: bool) -> Lowered {
    let y = operands.value(0)?;
    let ty = b.tensor(y)?;
    let rank = ty.rank();
    let dim = operands.dim(2, rank)?;
    if !cumulative && ty.shape.get(dim).is_some_and(|size| size.is(0)) {
        // PyTorch returns zeros in the dtype of `y` here. Otherwise, the area of integers is a float.
        return filled(b, reduced_shape(&ty.shape, &[dim], false).into(), Arg::from(0), ty.dtype).and_then(done);
    }
    if !cumulative && places.is_none() {
        return area_of_equal_steps(b, y, dim, operands.number(1)?).and_then(done);
    }
    let (before, after) = neighbours(b, y, dim)?;
    let heights = b.add(before, after)?;
    let areas = match places {
        None => {
            let half = b.number_quotient(&operands.number(1)?, &Arg::Float(2.0))?;
            b.mul(heights, half)?
        }
        Some(index) => {
            let x = operands.value(index)?;
            let mut x_dim = dim;
            let mut x = x;
            if b.tensor(x)?.rank() == 1 && rank > 1 {
                let mut shape = vec![Expr::Int(1); rank];
                if let (Some(slot), Some(size)) = (shape.get_mut(dim), b.tensor(x)?.shape.first()) {
                    slot.clone_from(size);
                }
                x = b.view(x, shape)?;
            } else if b.tensor(x)?.rank() < rank {
                x_dim = dim.saturating_sub(rank - b.tensor(x)?.rank());
            }
            let (from, to) = neighbours(b, x, x_dim)?;
            let widths = b.sub(to, from)?;
            let areas = b.mul(heights, widths)?;
            b.mul(areas, 0.5)?
        }
    };
    let dim = dim as i64;
    if cumulative {
        return b.one(aten::CUMSUM, vec![areas.into(), Arg::from(dim)]).and_then(done);
    }
    b.one(aten::SUM_DIM_INTLIST, vec![areas.into(), Arg::from([dim]), Arg::from(false)]).and_then(done)
}
