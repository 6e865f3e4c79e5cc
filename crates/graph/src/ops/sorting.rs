//! Sorting, selection by rank, and histograms.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::inference::{one, same, tensor};
use super::promotion::category;
use super::reduction::reduced_shape;
use super::{Definition, Lowered, Operands, composite, done, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::SORT, |o, g| sorted(o, g, 1)),
    kernel(aten::SORT_STABLE, |o, g| sorted(o, g, 2)),
    composite(aten::ARGSORT, positions, |b, o| argsort(b, o, 1)),
    composite(aten::ARGSORT_STABLE, positions, |b, o| argsort(b, o, 2)),
    composite(aten::MSORT, same, msort),
    kernel(aten::TOPK, topk),
    kernel(aten::HISTC, histogram),
    composite(aten::KTHVALUE, kthvalue_type, kthvalue),
    composite(aten::MEDIAN, one_element, median),
    composite(aten::MEDIAN_DIM, picked, median_dim),
    composite(aten::NANMEDIAN, one_element, nanmedian),
    composite(aten::NANMEDIAN_DIM, picked, nanmedian_dim),
];

fn sorted(operands: &Operands<'_>, graph: &Graph, dim: usize) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    operands.dim(dim, input.rank())?;
    Ok(vec![tensor(input.dtype, input.shape.clone()), tensor(ScalarType::Long, input.shape.clone())])
}

fn positions(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(ScalarType::Long, operands.tensor(0, graph)?.shape.clone())
}

fn argsort(b: &mut Builder<'_>, operands: &Operands<'_>, dim: usize) -> Lowered {
    let args = vec![operands.arg(0).clone(), Arg::from(true), operands.arg(dim).clone(), operands.arg(dim + 1).clone()];
    let results = b.call(aten::SORT_STABLE, args)?;
    Ok(Some(results.into_iter().skip(1).collect()))
}

fn msort(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let results = b.call(aten::SORT, vec![operands.arg(0).clone(), Arg::from(0)])?;
    Ok(Some(results.into_iter().take(1).collect()))
}

fn histogram(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.tensor(0, graph)?.dtype, vec![operands.expr(1)?])
}

fn topk(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let dim = operands.dim(2, input.rank())?;
    let mut shape = input.shape.clone();
    if let Some(size) = shape.get_mut(dim) {
        let count = operands.expr(1)?;
        if let (Some(count), Some(size)) = (count.as_int(), size.as_int())
            && !(0..=size).contains(&count)
        {
            return Err(operands.wrong(1, &format!("at most {size}")));
        }
        *size = count;
    }
    Ok(vec![tensor(input.dtype, shape.clone()), tensor(ScalarType::Long, shape)])
}

/// One element along the dim in parameter 1, kept as in parameter 2, with its position.
fn picked(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    pick_type(operands, graph, 1)
}

fn kthvalue_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    pick_type(operands, graph, 2)
}

fn pick_type(operands: &Operands<'_>, graph: &Graph, dim: usize) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let shape = reduced_shape(&input.shape, &[operands.dim(dim, input.rank())?], operands.bool(dim + 1)?);
    Ok(vec![tensor(input.dtype, shape.clone()), tensor(ScalarType::Long, shape)])
}

fn kthvalue(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dim = operands.dim(2, b.tensor(x)?.rank())?;
    pick(b, x, dim, &operands.expr(1)?.sub(1), operands.bool(3)?).map(Some)
}

fn one_element(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.tensor(0, graph)?.dtype, Vec::new())
}

fn median(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (flat, numbers) = all_elements(b, operands)?;
    if flat == numbers {
        let results = median_along(b, flat, 0, false)?;
        return Ok(Some(results.into_iter().take(1).collect()));
    }
    let size = b.tensor(flat)?.numel();
    let middle = size.sub(1).at_least(0).floor_div(2);
    let Some(value) = pick(b, numbers, 0, &middle, false)?.first().copied() else { return Ok(None) };
    let nan = b.unary(aten::ISNAN, flat)?;
    let any = b.one(aten::ANY, vec![nan.into()])?;
    b.select(any, f64::NAN, value).and_then(done)
}

/// Returns the flattened elements, and the same with a NaN appended if there may be no elements. NaN sorts last, so that the
/// median of no elements is NaN.
fn all_elements(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<(ValueId, ValueId), Error> {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let numel = ty.numel();
    let flat = b.view(x, vec![numel.clone()])?;
    let is_float = category(ty.dtype) == 2;
    if numel.is(0) && !is_float {
        return Err(Error::unsupported("the median of no integers, which PyTorch leaves to the processor"));
    }
    if !is_float || numel.range(&b.graph.symbols).0.is_some_and(|min| min > 0) {
        return Ok((flat, flat));
    }
    let padded = b.one(aten::CONSTANT_PAD_ND, vec![flat.into(), [0, 1].into(), Arg::Float(f64::NAN)])?;
    Ok((flat, padded))
}

fn median_dim(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dim = operands.dim(1, b.tensor(x)?.rank())?;
    median_along(b, x, dim, operands.bool(2)?).map(Some)
}

/// The lower of two in the middle; NaN if there is one, which sorts last.
fn median_along(b: &mut Builder<'_>, x: ValueId, dim: usize, keepdim: bool) -> Result<Vec<ValueId>, Error> {
    let ty = b.tensor(x)?;
    let size = ty.shape.get(dim).cloned().unwrap_or(Expr::Int(1));
    let middle = pick(b, x, dim, &size.sub(1).floor_div(2), keepdim)?;
    if category(ty.dtype) != 2 {
        return Ok(middle);
    }
    let [value, position] = middle.as_slice() else { return Ok(middle) };
    // The maximum of truth values is the first NaN, if there is one.
    let nan = b.unary(aten::ISNAN, x)?;
    let nan = b.cast(nan, ScalarType::Byte)?;
    let dim = if ty.rank() == 0 { 0 } else { dim as i64 };
    let first = b.call(aten::MAX_DIM, vec![nan.into(), Arg::from(dim), Arg::from(keepdim)])?;
    let [nan, nan_position] = first.as_slice() else { return Ok(middle) };
    let nan = b.cast(*nan, ScalarType::Bool)?;
    Ok(vec![b.select(nan, f64::NAN, *value)?, b.select(nan, *nan_position, *position)?])
}

/// The element of this rank along a dimension, and its position.
fn pick(b: &mut Builder<'_>, x: ValueId, dim: usize, rank: &Expr, keepdim: bool) -> Result<Vec<ValueId>, Error> {
    let ty = b.tensor(x)?;
    if ty.rank() == 0 {
        let zero = b.as_tensor(&Arg::from(0), ScalarType::Long)?;
        return Ok(vec![x, zero]);
    }
    let results = b.call(aten::SORT, vec![x.into(), Arg::from(dim as i64)])?;
    let shape = reduced_shape(&ty.shape, &[dim], keepdim);
    let pick = |b: &mut Builder<'_>, sorted: ValueId| {
        let picked = b.one(aten::SELECT_COPY_INT, vec![sorted.into(), Arg::from(dim as i64), rank.clone().into()])?;
        b.view(picked, shape.clone())
    };
    results.into_iter().map(|sorted| pick(b, sorted)).collect()
}

fn nanmedian(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (_, numbers) = all_elements(b, operands)?;
    Ok(Some(nanmedian_along(b, numbers, 0, false)?.into_iter().take(1).collect()))
}

fn nanmedian_dim(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dim = operands.dim(1, b.tensor(x)?.rank())?;
    nanmedian_along(b, x, dim, operands.bool(2)?).map(Some)
}

/// The lower median of the elements that are not NaN, which sort first.
fn nanmedian_along(b: &mut Builder<'_>, x: ValueId, dim: usize, keepdim: bool) -> Result<Vec<ValueId>, Error> {
    let ty = b.tensor(x)?;
    if category(ty.dtype) != 2 || ty.rank() == 0 {
        return median_along(b, x, dim, keepdim);
    }
    let along = Arg::from(dim as i64);
    let nan = b.unary(aten::ISNAN, x)?;
    let number = b.unary(aten::LOGICAL_NOT, nan)?;
    let count = b.one(aten::SUM_DIM_INTLIST, vec![number.into(), Arg::from([dim as i64]), Arg::from(true)])?;
    let last = b.sub(count, 1)?;
    let last = b.one(aten::CLAMP, vec![last.into(), Arg::from(0), Arg::None])?;
    let middle = b.one(aten::DIV_SCALAR_MODE, vec![last.into(), Arg::from(2), Arg::from("floor")])?;
    let results = b.call(aten::SORT, vec![x.into(), along.clone()])?;
    let shape = reduced_shape(&ty.shape, &[dim], keepdim);
    let pick = |b: &mut Builder<'_>, sorted: ValueId| {
        let picked = b.one(aten::GATHER, vec![sorted.into(), along.clone(), middle.into()])?;
        b.view(picked, shape.clone())
    };
    results.into_iter().map(|sorted| pick(b, sorted)).collect()
}
