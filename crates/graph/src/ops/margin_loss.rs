//! Losses that compare the scores of all classes with those of the target classes.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, ValueId};

use super::creation::filled;
use super::loss::reduce;
use super::views::unsqueeze;
use super::{Definition, Lowered, Operands, by_lowering, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::MULTI_MARGIN_LOSS, by_lowering, multi_margin),
    composite(aten::MULTILABEL_MARGIN_LOSS, by_lowering, multilabel_margin),
];

/// Scores with a row for each sample, and the number of classes.
fn rows(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<(ValueId, Expr, bool), Error> {
    let x = operands.value(0)?;
    let shape = b.tensor(x)?.shape;
    match shape.as_slice() {
        [] => Ok((b.view(x, vec![Expr::Int(1), Expr::Int(1)])?, Expr::Int(1), true)),
        [classes] => Ok((unsqueeze(b, x, 0)?, classes.clone(), true)),
        [_, classes] => Ok((x, classes.clone(), false)),
        _ => Err(operands.wrong(0, "scores: a vector for each sample")),
    }
}

/// For each row, the sum of violated margins divided by the number of classes.
fn per_class(b: &mut Builder<'_>, margins: ValueId, classes: Expr, dims: &[i64]) -> Result<ValueId, Error> {
    let sum = b.one(aten::SUM_DIM_INTLIST, vec![margins.into(), Arg::from(dims), Arg::from(false)])?;
    b.div(sum, Arg::Int(classes))
}

/// Reduces the losses of the samples. The loss of a single sample has no dimension.
fn reduced(b: &mut Builder<'_>, losses: ValueId, reduction: i64, single: bool) -> Result<ValueId, Error> {
    let dtype = b.tensor(losses)?.dtype;
    let value = reduce(b, losses, reduction, dtype)?;
    if single && reduction == 0 { b.view(value, Vec::new()) } else { Ok(value) }
}

/// `Σ max(0, margin - x[y] + x[i])^p w[y] / C` over the classes `i` other than `y`.
fn multi_margin(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, classes, single) = rows(b, operands)?;
    let (target, p, margin) = (operands.value(1)?, operands.int(2)?, operands.float(3)?);
    if p != 1 && p != 2 {
        return Err(operands.wrong(2, "1 or 2"));
    }
    let samples = b.tensor(x)?.shape.first().cloned().unwrap_or(Expr::Int(1));
    let index = b.view(target, vec![samples, Expr::Int(1)])?;
    let right = b.one(aten::GATHER, vec![x.into(), Arg::from(1), index.into()])?;
    let difference = b.sub(x, right)?;
    let shifted = b.add(difference, margin)?;
    let mut over = b.one(aten::CLAMP, vec![shifted.into(), Arg::from(0), Arg::None])?;
    if p == 2 {
        over = b.mul(over, over)?;
    }
    if let Some(weight) = operands.optional(4)? {
        let flat = b.view(target, vec![b.tensor(target)?.numel()])?;
        let weights = b.one(aten::INDEX_SELECT, vec![weight.into(), Arg::from(0), flat.into()])?;
        let weights = unsqueeze(b, weights, 1)?;
        over = b.mul(over, weights)?;
    }
    let over = b.one(aten::SCATTER_VALUE, vec![over.into(), Arg::from(1), index.into(), Arg::from(0)])?;
    let losses = per_class(b, over, classes, &[1])?;
    reduced(b, losses, operands.int(5)?, single).and_then(done)
}

/// `Σ max(0, 1 - x[y] + x[i]) / C` over all targets `y`, up to the first negative one, and all classes `i` that are no target.
fn multilabel_margin(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, classes, single) = rows(b, operands)?;
    let ty = b.tensor(x)?;
    let target = b.view(operands.value(1)?, ty.shape.clone())?;
    let negative = b.compare(aten::packet::LT, target, 0)?;
    let negative = b.cast(negative, ScalarType::Long)?;
    let ended = b.one(aten::CUMSUM, vec![negative.into(), Arg::from(1)])?;
    let counts = b.compare(aten::packet::EQ, ended, 0)?;
    let counts = b.cast(counts, ty.dtype)?;
    let index = b.one(aten::CLAMP, vec![target.into(), Arg::from(0), Arg::None])?;
    let none = filled(b, ty.shape.clone().into(), Arg::from(0), ty.dtype)?;
    let named = b.one(aten::SCATTER_ADD, vec![none.into(), Arg::from(1), index.into(), counts.into()])?;
    let other = b.compare(aten::packet::EQ, named, 0)?;
    let other = b.cast(other, ty.dtype)?;
    let right = b.one(aten::GATHER, vec![x.into(), Arg::from(1), index.into()])?;
    // [sample, target, class]
    let (right, counts) = (unsqueeze(b, right, 2)?, unsqueeze(b, counts, 2)?);
    let (x, other) = (unsqueeze(b, x, 1)?, unsqueeze(b, other, 1)?);
    let difference = b.sub(x, right)?;
    let shifted = b.add(difference, 1)?;
    let over = b.one(aten::CLAMP, vec![shifted.into(), Arg::from(0), Arg::None])?;
    let over = b.mul(over, counts)?;
    let over = b.mul(over, other)?;
    let losses = per_class(b, over, classes, &[1, 2])?;
    reduced(b, losses, operands.int(2)?, single).and_then(done)
}
