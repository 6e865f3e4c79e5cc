//! Writing elements by index or mask, as functions that give the changed tensor.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::indexing::{clamped, index_at, index_list};
use super::inference::same;
use super::number::MAX_COMPUTED;
use super::slices::diagonal_length;
use super::views::{expand, permute};
use super::{Definition, Lowered, Operands, broadcast, by_lowering, composite, kernel, result};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::INDEX_PUT, same),
    composite(aten::_UNSAFE_INDEX_PUT, same, index_put),
    composite(aten::_UNSAFE_MASKED_INDEX_PUT_ACCUMULATE, by_lowering, masked_index_put),
    composite(aten::INDEX_ADD, same, index_add),
    composite(aten::INDEX_COPY, same, index_copy),
    composite(aten::INDEX_FILL_INT_SCALAR, same, index_fill),
    composite(aten::INDEX_FILL_INT_TENSOR, same, index_fill),
    composite(aten::INDEX_REDUCE, same, index_reduce),
    kernel(aten::SCATTER_SRC, same),
    kernel(aten::SCATTER_VALUE, same),
    kernel(aten::SCATTER_ADD, same),
    kernel(aten::SCATTER_REDUCE_TWO, same),
    composite(aten::SCATTER_REDUCE, same, scatter_reduce),
    composite(aten::SCATTER_VALUE_REDUCE, same, scatter_reduce),
    kernel(aten::MASKED_FILL_SCALAR, masked),
    composite(aten::MASKED_FILL_TENSOR, masked, masked_fill),
    kernel(aten::MASKED_SCATTER, masked),
    kernel(aten::SELECT_SCATTER, same),
    kernel(aten::SLICE_SCATTER, same),
    composite(aten::DIAGONAL_SCATTER, same, diagonal_scatter),
    composite(aten::AS_STRIDED_SCATTER, same, as_strided_scatter),
    composite(aten::PUT, same, put),
];

fn masked(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (tensor, mask) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    Ok(result(tensor.dtype, broadcast([tensor.shape.as_slice(), mask.shape.as_slice()])?))
}

fn index_put(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.call(aten::INDEX_PUT, operands.args.to_vec()).map(Some)
}

/// Adds values where the mask is true: zeros, elsewhere, change nothing.
fn masked_index_put(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = b.tensor(operands.value(0)?)?;
    let indices = clamped(b, &tensor, &index_list(operands, 2)?)?;
    let outside = b.one(aten::LOGICAL_NOT, vec![operands.value(1)?.into()])?;
    let values = b.one(aten::MASKED_FILL_SCALAR, vec![operands.value(3)?.into(), outside.into(), 0.into()])?;
    b.call(aten::INDEX_PUT, vec![operands.value(0)?.into(), indices, values.into(), true.into()]).map(Some)
}

/// `self`, dimension and index of the operators that write along one dimension; scalars become lists of one.
fn along(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<(ValueId, usize, ValueId), Error> {
    let (value, tensor) = (operands.value(0)?, operands.tensor(0, b.graph)?.clone());
    let dim = operands.dim(1, tensor.rank())?;
    let index = operands.value(2)?;
    let count = b.tensor(index)?.numel();
    let index = b.view(index, vec![count])?;
    let value = if tensor.rank() == 0 { b.view(value, vec![Expr::Int(1)])? } else { value };
    Ok((value, dim, index))
}

/// Writes `values` along a dimension and gives the result the shape of the first argument.
fn put_along(b: &mut Builder<'_>, operands: &Operands<'_>, values: ValueId, accumulate: bool) -> Lowered {
    let (value, dim, index) = along(b, operands)?;
    let changed = b.one(aten::INDEX_PUT, vec![value.into(), index_at(dim, index), values.into(), accumulate.into()])?;
    let shape = operands.tensor(0, b.graph)?.shape.clone();
    Ok(Some(vec![b.view(changed, shape)?]))
}

fn index_add(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let values = super::matmul::scaled(b, operands.value(3)?, operands.arg(4))?;
    put_along(b, operands, values, true)
}

fn index_copy(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    put_along(b, operands, operands.value(3)?, false)
}

fn index_fill(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dtype = operands.tensor(0, b.graph)?.dtype;
    let fill = match operands.arg(3) {
        Arg::Value(value) if b.is_tensor(operands.arg(3)) => b.cast(*value, dtype)?,
        number => b.as_tensor(number, dtype)?,
    };
    put_along(b, operands, fill, false)
}

/// A reduction with one index for each slice: the index repeated over the slices' elements.
fn index_reduce(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (value, dim, index) = along(b, operands)?;
    let source = operands.value(3)?;
    let mut shape = b.tensor(source)?.shape;
    let source = if shape.is_empty() { b.view(source, vec![Expr::Int(1)])? } else { source };
    if shape.is_empty() {
        shape.push(Expr::Int(1));
    }
    let mut along = vec![Expr::Int(1); shape.len()];
    if let (Some(slot), Some(size)) = (along.get_mut(dim), shape.get(dim)) {
        slot.clone_from(size);
    }
    let index = b.view(index, along)?;
    let index = expand(b, index, shape)?;
    let args = vec![
        value.into(),
        (dim as i64).into(),
        index.into(),
        source.into(),
        operands.arg(4).clone(),
        operands.arg(5).clone(),
    ];
    let reduced = b.one(aten::SCATTER_REDUCE_TWO, args)?;
    let shape = operands.tensor(0, b.graph)?.shape.clone();
    Ok(Some(vec![b.view(reduced, shape)?]))
}

/// `scatter` with `add` or `multiply`.
fn scatter_reduce(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let reduce = match operands.str(4)? {
        Some("add") => "sum",
        Some("multiply") => "prod",
        _ => return Err(operands.wrong(4, "`add` or `multiply`")),
    };
    let (dtype, index) = (operands.tensor(0, b.graph)?.dtype, operands.value(2)?);
    let source = match operands.arg(3) {
        Arg::Value(value) if b.is_tensor(operands.arg(3)) => *value,
        number => {
            let number = b.as_tensor(number, dtype)?;
            let shape = b.tensor(index)?.shape;
            expand(b, number, shape)?
        }
    };
    let args = vec![
        operands.value(0)?.into(),
        operands.arg(1).clone(),
        index.into(),
        source.into(),
        reduce.into(),
        true.into(),
    ];
    b.call(aten::SCATTER_REDUCE_TWO, args).map(Some)
}

/// A choice between the tensor and the value, which has no dimensions.
fn masked_fill(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dtype = operands.tensor(0, b.graph)?.dtype;
    let fill = b.cast(operands.value(2)?, dtype)?;
    b.call(aten::WHERE_SELF, vec![operands.value(1)?.into(), fill.into(), operands.value(0)?.into()]).map(Some)
}

/// Written by index: the two dimensions first, so that the diagonal comes out first too.
fn diagonal_scatter(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let (rank, offset) = (tensor.rank(), operands.int(2)?);
    let (first, second) = (operands.dim(3, rank)?, operands.dim(4, rank)?);
    let (Some(rows), Some(columns)) = (tensor.shape.get(first), tensor.shape.get(second)) else {
        return Err(operands.wrong(0, "a tensor of at least 2 dimensions"));
    };
    let length = diagonal_length(rows, columns, offset).as_int();
    let Some(length) = length.filter(|length| *length <= MAX_COMPUTED) else {
        return Err(operands.unknown_sizes(0, "sizes of the diagonal", b.graph));
    };
    let mut dims = vec![first, second];
    dims.extend((0..rank).filter(|dim| *dim != first && *dim != second));
    let value = permute(b, operands.value(0)?, &dims)?;
    let mut last_first: Vec<usize> = (0..operands.tensor(1, b.graph)?.rank()).collect();
    if let Some(last) = last_first.pop() {
        last_first.insert(0, last);
    }
    let source = permute(b, operands.value(1)?, &last_first)?;
    let source = b.cast(source, tensor.dtype)?;
    let mut numbers = |from: i64| {
        let values: Vec<i64> = (0..length).map(|index| from.saturating_add(index)).collect();
        super::number::longs("diagonal", &values).map(|constant| b.constant(constant))
    };
    let indices = Arg::List(vec![numbers(offset.saturating_neg().max(0))?.into(), numbers(offset.max(0))?.into()]);
    let changed = b.one(aten::INDEX_PUT, vec![value.into(), indices, source.into()])?;
    let mut back = vec![0; rank];
    for (at, dim) in dims.iter().enumerate() {
        if let Some(slot) = back.get_mut(*dim) {
            *slot = at;
        }
    }
    permute(b, changed, &back).map(|value| Some(vec![value]))
}

/// Written by index into all elements in a row.
fn as_strided_scatter(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let (sizes, strides) = (operands.ints(2)?, operands.ints(3)?);
    let offset = if operands.has(4) { operands.int(4)? } else { 0 };
    let mut places = vec![offset];
    for (size, stride) in sizes.iter().zip(&strides) {
        let count = usize::try_from(*size).unwrap_or(0).saturating_mul(places.len());
        if count > 1 << 20 {
            return Err(Error::unsupported("`as_strided_scatter` of more than a million elements"));
        }
        places = places
            .iter()
            .flat_map(|place| (0..*size).map(move |index| index.saturating_mul(*stride).saturating_add(*place)))
            .collect();
    }
    let count = Expr::Int(places.len() as i64);
    let places = b.constant(super::number::longs("places", &places)?);
    let flat = b.view(operands.value(0)?, vec![tensor.numel()])?;
    let source = b.view(operands.value(1)?, vec![count])?;
    let source = b.cast(source, tensor.dtype)?;
    let changed = b.one(aten::INDEX_PUT, vec![flat.into(), index_at(0, places), source.into()])?;
    b.view(changed, tensor.shape).map(|value| Some(vec![value]))
}

/// `put`: by index into all elements in a row.
fn put(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let shape = operands.tensor(1, b.graph)?.shape.clone();
    let flat = b.view(operands.value(0)?, vec![tensor.numel()])?;
    let source = b.view(operands.value(2)?, shape)?;
    let args = vec![flat.into(), index_at(0, operands.value(1)?), source.into(), operands.arg(3).clone()];
    let changed = b.one(aten::INDEX_PUT, args)?;
    b.view(changed, tensor.shape).map(|value| Some(vec![value]))
}
