//! Quantiles, and membership of elements in a set.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::inference::one;
use super::views::unsqueeze;
use super::{Definition, Lowered, Operands, by_lowering, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::QUANTILE, by_lowering, quantile),
    composite(aten::QUANTILE_SCALAR, by_lowering, quantile),
    composite(aten::NANQUANTILE, by_lowering, quantile),
    composite(aten::NANQUANTILE_SCALAR, by_lowering, quantile),
    composite(aten::ISIN_TENSOR_TENSOR, membership, isin),
    composite(aten::ISIN_TENSOR_SCALAR, membership, isin),
    composite(aten::ISIN_SCALAR_TENSOR, membership, isin),
];

/// Sorts each row and takes the element at position `q (n - 1)`, or interpolates between its two neighbours. A NaN in a
/// row makes the row's result NaN. `nanquantile` skips NaN: there `n` counts the other elements of the row.
fn quantile(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    // Without a dimension, all elements are one row.
    let (rows, dim) = if operands.has(2) && ty.rank() > 0 {
        (x, operands.dim(2, ty.rank())?)
    } else {
        (b.view(x, vec![ty.numel()])?, 0)
    };
    let shape = b.tensor(rows)?.shape;
    let size = shape.get(dim).cloned().unwrap_or(Expr::Int(1));
    let last = (shape.len() as i64 - 1).max(0);
    let q = match operands.arg(1) {
        Arg::Value(q) if b.is_tensor(operands.arg(1)) => *q,
        number => b.as_tensor(number, ty.dtype)?,
    };
    let several = b.tensor(q)?.rank() > 0;
    let q = b.view(q, vec![b.tensor(q)?.numel()])?;
    let sorted = b.call(aten::SORT, vec![rows.into(), Arg::from(dim as i64)])?;
    let sorted = sorted.first().copied().ok_or_else(|| operands.wrong(0, "a tensor"))?;
    let sorted = if dim as i64 == last {
        sorted
    } else {
        b.one(aten::TRANSPOSE_COPY_INT, vec![sorted.into(), Arg::from(dim as i64), Arg::from(last)])?
    };
    let leaves_out = operands.schema.base_name() == aten::NANQUANTILE;
    let place = if leaves_out {
        let nan = b.unary(aten::ISNAN, sorted)?;
        let number = b.unary(aten::LOGICAL_NOT, nan)?;
        let count = b.one(aten::SUM_DIM_INTLIST, vec![number.into(), Arg::from([last]), Arg::from(true)])?;
        let reach = b.sub(count, 1)?;
        let reach = b.one(aten::CLAMP, vec![reach.into(), Arg::from(0), Arg::None])?;
        b.mul(q, reach)?
    } else {
        b.mul(q, Arg::Int(size.sub(1)))?
    };
    let interpolation = operands.str(4)?.unwrap_or("linear");
    let lower = b.unary(aten::FLOOR, place)?;
    let at = |b: &mut Builder<'_>, place: ValueId| {
        let index = b.cast(place, ScalarType::Long)?;
        if leaves_out {
            return b.one(aten::GATHER, vec![sorted.into(), Arg::from(last), index.into()]);
        }
        b.one(aten::INDEX_SELECT, vec![sorted.into(), Arg::from(last), index.into()])
    };
    let value = match interpolation {
        "lower" => at(b, lower)?,
        "higher" => {
            let upper = b.unary(aten::CEIL, place)?;
            at(b, upper)?
        }
        "nearest" => {
            let nearest = b.unary(aten::ROUND, place)?;
            at(b, nearest)?
        }
        "linear" | "midpoint" => {
            let upper = b.unary(aten::CEIL, place)?;
            let (below, above) = (at(b, lower)?, at(b, upper)?);
            let weight = if interpolation == "linear" { b.sub(place, lower)?.into() } else { Arg::Float(0.5) };
            let distance = b.sub(above, below)?;
            let part = b.mul(distance, weight)?;
            b.add(below, part)?
        }
        _ => return Err(operands.wrong(4, "\"linear\", \"lower\", \"higher\", \"midpoint\" or \"nearest\"")),
    };
    if leaves_out {
        return arranged(b, operands, value, &Places { dim, several, shape: &ty.shape });
    }
    let greatest = b.one(aten::SELECT_COPY_INT, vec![sorted.into(), Arg::from(last), size.sub(1).into()])?;
    let greatest = unsqueeze(b, greatest, shape.len().saturating_sub(1))?;
    let nan = b.unary(aten::ISNAN, greatest)?;
    let value = b.select(nan, f64::NAN, value)?;
    arranged(b, operands, value, &Places { dim, several, shape: &ty.shape })
}

/// Positions of a quantile's dimensions.
struct Places<'a> {
    dim: usize,
    several: bool,
    shape: &'a [Expr],
}

/// Moves the last dimension, that of the quantiles, to the front, and inserts dimensions of size 1 for `keepdim`.
fn arranged(b: &mut Builder<'_>, operands: &Operands<'_>, value: ValueId, places: &Places<'_>) -> Lowered {
    let Places { dim, several, shape } = *places;
    let ty = b.tensor(value)?;
    let rank = ty.rank();
    let keepdim = operands.bool(3)?;
    // The transposition put the original last dimension at `dim`. The permutation below puts it back.
    let along = operands.has(2) && !shape.is_empty();
    let mut kept: Vec<Expr> = if along { shape.to_vec() } else { vec![Expr::Int(1); shape.len()] };
    if let Some(slot) = kept.get_mut(dim) {
        *slot = Expr::Int(1);
    }
    let last = rank.saturating_sub(1);
    let mut order: Vec<usize> = vec![last];
    if along && rank > 0 {
        // Positions of the original dimensions in the transposed tensor.
        let position = |at: usize| if at == last { dim } else { at };
        order.extend((0..rank).filter(|at| *at != dim).map(position));
    }
    let count = ty.shape.last().cloned().unwrap_or(Expr::Int(1));
    let dims: Vec<i64> = order.iter().map(|at| *at as i64).collect();
    let moved = if rank > 1 { b.one(aten::PERMUTE_COPY, vec![value.into(), dims.as_slice().into()])? } else { value };
    let mut target: Vec<Expr> = if several { vec![count] } else { Vec::new() };
    if keepdim {
        target.extend(kept);
    } else if along {
        target.extend(shape.iter().enumerate().filter(|(at, _)| *at != dim).map(|(_, size)| size.clone()));
    }
    b.view(moved, target).and_then(done)
}

fn membership(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let shape = match operands.arg(0) {
        Arg::Value(value) => graph.tensor(*value)?.shape.clone(),
        _ => Vec::new(),
    };
    one(ScalarType::Bool, shape)
}

/// Compares each element with all elements of the other tensor.
fn isin(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let found = match (operands.arg(0), operands.arg(1)) {
        (Arg::Value(elements), Arg::Value(others)) => {
            let (elements_ty, others_ty) = (b.tensor(*elements)?, b.tensor(*others)?);
            let mut shape = elements_ty.shape.clone();
            shape.push(Expr::Int(1));
            let (elements, others) = (b.view(*elements, shape)?, b.view(*others, vec![others_ty.numel()])?);
            let equal = b.compare(aten::packet::EQ, elements, others)?;
            b.one(aten::ANY_DIM, vec![equal.into(), Arg::from(-1), Arg::from(false)])?
        }
        (Arg::Value(elements), number) => b.compare(aten::packet::EQ, *elements, number.clone())?,
        (number, _) => {
            let equal = b.compare(aten::packet::EQ, operands.value(1)?, number.clone())?;
            b.unary(aten::ANY, equal)?
        }
    };
    if operands.bool(3)? { b.unary(aten::LOGICAL_NOT, found).and_then(done) } else { done(found) }
}
