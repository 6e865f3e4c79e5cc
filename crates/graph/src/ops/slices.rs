//! Parts of a tensor: `select`, `slice`, `split` and strided views, which become their copying twins.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Op, Symbols, TensorType, Type, ValueId};

use super::inference::by_data;
use super::{Definition, Lowered, Operands, by_lowering, composite, forward, kernel, result};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::SELECT_COPY_INT, selected, counted_from_the_start),
    composite(aten::SELECT_INT, selected, twin),
    kernel(aten::SLICE_COPY_TENSOR, sliced),
    composite(aten::SLICE_TENSOR, sliced, as_slice),
    kernel(aten::NARROW_COPY, narrowed),
    composite(aten::NARROW, narrowed, narrow),
    kernel(aten::SPLIT_COPY_TENSOR, split_evenly),
    composite(aten::SPLIT_TENSOR, split_evenly, as_split),
    composite(aten::UNSAFE_SPLIT_TENSOR, split_evenly, as_split),
    composite(aten::CHUNK, chunked, as_split),
    composite(aten::UNSAFE_CHUNK, chunked, as_split),
    kernel(aten::SPLIT_WITH_SIZES_COPY, split_by_sizes),
    composite(aten::SPLIT_WITH_SIZES, split_by_sizes, as_split),
    composite(aten::SPLIT_SIZES, split_by_sizes, as_split),
    composite(aten::UNSAFE_SPLIT_WITH_SIZES, split_by_sizes, as_split),
    composite(aten::TENSOR_SPLIT_SECTIONS, by_lowering, tensor_split),
    composite(aten::TENSOR_SPLIT_INDICES, by_lowering, tensor_split),
    composite(aten::TENSOR_SPLIT_TENSOR_INDICES_OR_SECTIONS, by_data, tensor_split_by_data),
    composite(aten::HSPLIT_INT, by_lowering, tensor_split),
    composite(aten::HSPLIT_ARRAY, by_lowering, tensor_split),
    composite(aten::VSPLIT_INT, by_lowering, tensor_split),
    composite(aten::VSPLIT_ARRAY, by_lowering, tensor_split),
    composite(aten::DSPLIT_INT, by_lowering, tensor_split),
    composite(aten::DSPLIT_ARRAY, by_lowering, tensor_split),
    kernel(aten::UNBIND_COPY_INT, unbound),
    composite(aten::UNBIND_INT, unbound, unbind),
    kernel(aten::DIAGONAL_COPY, diagonal),
    composite(aten::DIAGONAL, diagonal, twin),
    composite(aten::LINALG_DIAGONAL, diagonal, linalg_diagonal),
    composite(aten::DIAG, by_lowering, diag),
    kernel(aten::AS_STRIDED_COPY, strided),
    composite(aten::AS_STRIDED, strided, twin),
    kernel(aten::UNFOLD_COPY, windows),
    composite(aten::UNFOLD, windows, twin),
];

/// The elements from `start` on along a dimension, `length` of them.
pub(crate) fn slice(
    b: &mut Builder<'_>,
    value: ValueId,
    dim: usize,
    start: impl Into<Expr>,
    length: impl Into<Expr>,
) -> Result<ValueId, Error> {
    let (start, length) = (start.into(), length.into());
    if start.is(0) && b.graph.tensor(value)?.shape.get(dim) == Some(&length) {
        return Ok(value);
    }
    let end = start.add(length);
    b.one(aten::SLICE_COPY_TENSOR, vec![value.into(), (dim as i64).into(), start.into(), end.into()])
}

/// The elements at an index of a dimension, which goes away.
pub(crate) fn select(b: &mut Builder<'_>, value: ValueId, dim: usize, index: i64) -> Result<ValueId, Error> {
    b.one(aten::SELECT_COPY_INT, vec![value.into(), (dim as i64).into(), index.into()])
}

/// Parts of these sizes along a dimension.
pub(crate) fn split(b: &mut Builder<'_>, value: ValueId, dim: usize, sizes: Vec<Expr>) -> Result<Vec<ValueId>, Error> {
    if sizes.len() == 1 {
        return Ok(vec![value]);
    }
    b.call(aten::SPLIT_WITH_SIZES_COPY, vec![value.into(), sizes.into(), (dim as i64).into()])
}

/// A selection that counts from the end, as one that counts from the start: equal ones then look equal. Others stay.
fn counted_from_the_start(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (_, size) = dim_and_size(operands, 1, operands.tensor(0, b.graph)?)?;
    let from_start = match (operands.arg(2), size.as_int()) {
        (Arg::Int(Expr::Int(index)), Some(size)) if *index < 0 => index.saturating_add(size),
        _ => return Ok(None),
    };
    let args = [operands.arg(0).clone(), operands.arg(1).clone(), from_start.into()];
    b.call(aten::SELECT_COPY_INT, args.to_vec()).map(Some)
}

/// The copying variant with the same arguments.
pub(crate) fn twin(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    match operands.schema.twin.as_deref() {
        Some(twin) => b.call(twin, operands.args.to_vec()).map(Some),
        None => Ok(None),
    }
}

/// The first argument's type with another size for a dimension.
fn resized(tensor: &TensorType, dim: usize, size: Expr) -> Vec<Type> {
    let mut shape = tensor.shape.clone();
    if let Some(slot) = shape.get_mut(dim) {
        *slot = size;
    }
    result(tensor.dtype, shape)
}

/// A dimension argument with its size; tensors without dimensions have none.
fn dim_and_size(operands: &Operands<'_>, index: usize, tensor: &TensorType) -> Result<(usize, Expr), Error> {
    let dim = operands.dim(index, tensor.rank())?;
    let size = tensor.shape.get(dim).cloned().ok_or_else(|| operands.wrong(0, "a tensor with dimensions"))?;
    Ok((dim, size))
}

fn selected(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (dim, size) = dim_and_size(operands, 1, tensor)?;
    if let (Some(index), Some(size)) = (operands.expr(2).ok().and_then(|index| index.as_int()), size.as_int())
        && !(-size..size).contains(&index)
    {
        return Err(operands.wrong(2, &format!("an index in {}..{size}", -size)));
    }
    let mut shape = tensor.shape.clone();
    shape.remove(dim);
    Ok(result(tensor.dtype, shape))
}

/// Start, end and step of a slice, counted from the front and inside of the dimension.
pub(crate) fn slice_range(
    operands: &Operands<'_>,
    first: usize,
    size: &Expr,
    symbols: &Symbols,
) -> Result<(Expr, Expr, i64), Error> {
    let bound = |index: usize, default: Expr| -> Result<Expr, Error> {
        let given = if operands.has(index) { operands.expr(index)? } else { default };
        if given.as_int().is_some_and(|given| given >= i64::MAX / 2) {
            return Ok(size.clone());
        }
        let given = from_start(given, size, symbols);
        let given = if given.range(symbols).0.is_some_and(|min| min >= 0) { given } else { given.at_least(0) };
        if is_at_most(&given, size, symbols) {
            return Ok(given);
        }
        // An exporter writes the upper bound of a size as the end.
        let (max, min) = (size.upper_bound(symbols), given.range(symbols).0);
        let is_past_end = max.zip(min).is_some_and(|(max, min)| max <= min);
        Ok(if is_past_end { size.clone() } else { given.at_most(size.clone()) })
    };
    let (start, end) = (bound(first, Expr::Int(0))?, bound(first + 1, size.clone())?);
    let step = operands.int(first + 2)?;
    if step < 1 {
        return Err(operands.wrong(first + 2, "a step of at least 1"));
    }
    Ok((start, end, step))
}

/// A bound of a slice, counted from the start of the dimension if it counts from its end, and then not before the start.
pub fn from_start(bound: Expr, size: &Expr, symbols: &Symbols) -> Expr {
    if !is_from_end(&bound, symbols) {
        return bound;
    }
    let bound = size.add(bound);
    if bound.range(symbols).0.is_some_and(|min| min >= 0) { bound } else { bound.at_least(0) }
}

/// True if a bound of a slice counts from the end of the dimension: if it is negative, or a size, or a product of these, that is negated.
/// An exporter that writes the latter has decided so; of a size of zero, PyTorch itself would take everything.
fn is_from_end(bound: &Expr, symbols: &Symbols) -> bool {
    bound.upper_bound(symbols).is_some_and(|max| max < 0 || (max == 0 && bound.is_product()))
}

/// True if a size is at most another, whatever the sizes of inputs are.
fn is_at_most(size: &Expr, other: &Expr, symbols: &Symbols) -> bool {
    other.sub(size.clone()).range(symbols).0.is_some_and(|min| min >= 0)
}

fn sliced(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (dim, size) = dim_and_size(operands, 1, tensor)?;
    let (start, end, step) = slice_range(operands, 2, &size, &graph.symbols)?;
    // Any start after the end gives an empty slice. Without the clamp of the start, the bounds of the length are tighter.
    let start = match operands.expr(2) {
        Ok(given) if given.as_int().is_some_and(|given| given >= 0) => given,
        _ => start,
    };
    let length = end.sub(start);
    let length = if length.range(&graph.symbols).0.is_some_and(|min| min >= 0) { length } else { length.at_least(0) };
    Ok(resized(tensor, dim, length.ceil_div(step)))
}

fn as_slice(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?;
    let (dim, size) = dim_and_size(operands, 1, tensor)?;
    let (start, end, step) = slice_range(operands, 2, &size, &b.graph.symbols)?;
    if start.is(0) && end == size && step == 1 {
        return Ok(Some(vec![operands.value(0)?]));
    }
    let args = vec![operands.value(0)?.into(), (dim as i64).into(), start.into(), end.into(), step.into()];
    b.call(aten::SLICE_COPY_TENSOR, args).map(Some)
}

fn narrowed(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (dim, _) = dim_and_size(operands, 1, tensor)?;
    Ok(resized(tensor, dim, operands.expr(3)?))
}

fn narrow(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?;
    let (dim, size) = dim_and_size(operands, 1, tensor)?;
    let start = operands.expr(2)?;
    let negative = start.range(&b.graph.symbols).1.is_some_and(|max| max < 0);
    let start = if negative { size.add(start) } else { start };
    Ok(Some(vec![slice(b, operands.value(0)?, dim, start, operands.expr(3)?)?]))
}

/// A number of parts, at most a million: where it depends on an input, it is that of the exported program.
fn count_of(operands: &Operands<'_>, count: Option<i64>) -> Option<usize> {
    let known = Some(operands.results.len()).filter(|count| *count > 0);
    count.map_or(known, |count| usize::try_from(count).ok()).filter(|count| *count <= 1 << 20)
}

/// The sizes of parts of `part` elements, the last of which may be smaller.
fn even_parts(operands: &Operands<'_>, size: &Expr, part: &Expr) -> Result<Vec<Expr>, Error> {
    let count = size.ceil_div(part.clone()).as_int().map(|count| if size.is(0) { 1 } else { count });
    let Some(count) = count_of(operands, count).filter(|count| *count > 0) else {
        return Err(operands.wrong(1, "a number of parts that depends on no input"));
    };
    let last = size.sub(part.mul(count as i64 - 1));
    let mut sizes = vec![part.clone(); count];
    if let Some(slot) = sizes.last_mut() {
        *slot = last;
    }
    Ok(sizes)
}

/// The dimension that an operator splits, with the sizes of the parts.
fn parts(operands: &Operands<'_>, graph: &Graph) -> Result<(usize, Vec<Expr>), Error> {
    let tensor = operands.tensor(0, graph)?;
    let (dim, size) = dim_and_size(operands, 2, tensor)?;
    let name = &operands.schema.name;
    if name.contains("with_sizes") || name == aten::SPLIT_SIZES {
        return Ok((dim, operands.exprs(1)?));
    }
    let number = operands.expr(1)?;
    if number.as_int().is_some_and(|number| number < i64::from(!size.is(0))) {
        return Err(operands.wrong(1, "at least 1"));
    }
    let is_chunk = matches!(operands.schema.base_name(), aten::CHUNK | aten::UNSAFE_CHUNK);
    if is_chunk && size.is(0) {
        return Ok((dim, vec![Expr::Int(0); usize::try_from(operands.int(1)?).unwrap_or(1).min(1 << 20)]));
    }
    let part = if is_chunk { size.ceil_div(number) } else { number };
    Ok((dim, even_parts(operands, &size, &part)?))
}

fn part_types(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (dim, sizes) = parts(operands, graph)?;
    Ok(sizes.into_iter().flat_map(|size| resized(tensor, dim, size)).collect())
}

fn split_evenly(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    part_types(operands, graph)
}

fn chunked(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    part_types(operands, graph)
}

fn split_by_sizes(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    part_types(operands, graph)
}

fn as_split(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (dim, sizes) = parts(operands, b.graph)?;
    split(b, operands.value(0)?, dim, sizes).map(Some)
}

/// Lowers `tensor_split` and its forms. The parts differ in size by at most one, or end at given indices.
fn tensor_split(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = b.graph.tensor(operands.value(0)?)?.clone();
    let dim = match operands.schema.base_name() {
        aten::packet::TENSOR_SPLIT => operands.dim(2, tensor.rank())?,
        aten::packet::HSPLIT => usize::from(tensor.rank() > 1),
        aten::packet::VSPLIT => 0,
        _ => 2,
    };
    let size = tensor.shape.get(dim).cloned().ok_or_else(|| operands.wrong(0, "a tensor with more dimensions"))?;
    let value = operands.value(0)?;
    if matches!(operands.arg(1), Arg::List(_)) {
        // As PyTorch defines it: slices between neighbouring indices.
        let mut start = Expr::Int(0);
        let mut parts = Vec::new();
        for end in operands.exprs(1)?.into_iter().chain([size]) {
            let args = vec![value.into(), Arg::from(dim as i64), start.into(), end.clone().into()];
            parts.push(b.one(aten::SLICE_COPY_TENSOR, args)?);
            start = end;
        }
        return Ok(Some(parts));
    }
    let sections = operands.int(1)?;
    if !(1..=1 << 20).contains(&sections) {
        return Err(operands.wrong(1, "at least 1 section"));
    }
    if let (Some(size), false) = (size.as_int(), operands.schema.base_name() == aten::packet::TENSOR_SPLIT)
        && size % sections != 0
    {
        return Err(operands.wrong(1, &format!("a divisor of {size}")));
    }
    let lengths = (0..sections).map(|index| size.add(sections - 1 - index).floor_div(sections));
    if !size.is_static() {
        return split(b, value, dim, lengths.collect()).map(Some);
    }
    let mut start = Expr::Int(0);
    let mut parts = Vec::new();
    for length in lengths {
        parts.push(slice(b, value, dim, start.clone(), length.clone())?);
        start = start.add(length);
    }
    Ok(Some(parts))
}

/// Splits at the indices in a tensor: finds the positions between two indices with `nonzero`, and selects them.
fn tensor_split_by_data(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, indices) = (operands.value(0)?, operands.value(1)?);
    let tensor = b.tensor(x)?;
    let (dim, size) = dim_and_size(operands, 2, &tensor)?;
    if b.tensor(indices)?.rank() == 0 {
        // `torch.export` accepts only a constant number of sections, and has recorded that many results.
        let sections = Arg::from(operands.results.len() as i64);
        return b.call(aten::TENSOR_SPLIT_SECTIONS, vec![x.into(), sections, Arg::from(dim as i64)]).map(Some);
    }
    let types = by_data(operands, b.graph)?;
    let indices = b.cast(indices, ScalarType::Long)?;
    let negative = b.compare(aten::packet::LT, indices, 0)?;
    let wrapped = b.add(indices, Arg::Int(size.clone()))?;
    let indices = b.select(negative, wrapped, indices)?;
    let places = super::creation::indices(b, size, ScalarType::Long)?;
    let nonzero = b.schemas().expect(aten::NONZERO)?;
    let mut parts = Vec::new();
    for (part, ty) in types.iter().enumerate() {
        let Some(length) = ty.as_tensor().and_then(|ty| ty.shape.get(dim)).cloned() else { return Ok(None) };
        let mut inside = None;
        if part > 0 {
            let start = select(b, indices, 0, part as i64 - 1)?;
            inside = Some(b.one(aten::GE_TENSOR, vec![places.into(), start.into()])?);
        }
        if part + 1 < types.len() {
            let end = select(b, indices, 0, part as i64)?;
            let before = b.one(aten::LT_TENSOR, vec![places.into(), end.into()])?;
            inside = Some(match inside {
                Some(inside) => b.one(aten::LOGICAL_AND, vec![inside.into(), before.into()])?,
                None => before,
            });
        }
        let Some(inside) = inside else {
            parts.push(x);
            continue;
        };
        let rows = result(ScalarType::Long, vec![length.clone(), Expr::Int(1)]);
        let rows = b.push(Op::Call(nonzero.clone()), vec![inside.into()], rows);
        let Some(rows) = rows.first().copied() else { return Ok(None) };
        let rows = b.view(rows, vec![length])?;
        parts.push(b.one(aten::INDEX_SELECT, vec![x.into(), Arg::from(dim as i64), rows.into()])?);
    }
    Ok(Some(parts))
}

fn unbound(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (dim, size) = dim_and_size(operands, 1, tensor)?;
    let Some(count) = count_of(operands, size.as_int()) else {
        return Err(operands.unknown_sizes(0, "sizes", graph));
    };
    let mut shape = tensor.shape.clone();
    shape.remove(dim);
    Ok(vec![Type::Tensor(TensorType::new(tensor.dtype, shape)); count])
}

fn unbind(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?;
    let (dim, size) = dim_and_size(operands, 1, tensor)?;
    if size.is_static() {
        return twin(b, operands);
    }
    let count = super::infer(operands, b.graph)?.len() as i64;
    let value = operands.value(0)?;
    (0..count).map(|index| select(b, value, dim, index)).collect::<Result<_, _>>().map(Some)
}

fn diagonal(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let offset = operands.int(1)?;
    let ((first, rows), (second, columns)) = (dim_and_size(operands, 2, tensor)?, dim_and_size(operands, 3, tensor)?);
    if first == second {
        return Err(operands.wrong(3, "another dimension than the first"));
    }
    let length = diagonal_length(&rows, &columns, offset);
    let keep = |(dim, _): &(usize, &Expr)| *dim != first && *dim != second;
    let mut shape: Vec<Expr> = tensor.shape.iter().enumerate().filter(keep).map(|(_, size)| size.clone()).collect();
    shape.push(length);
    Ok(result(tensor.dtype, shape))
}

fn linalg_diagonal(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    forward(b, operands, aten::DIAGONAL_COPY)
}

/// Number of elements on a diagonal of a matrix.
pub(crate) fn diagonal_length(rows: &Expr, columns: &Expr, offset: i64) -> Expr {
    let (rows, columns) =
        if offset >= 0 { (rows.clone(), columns.sub(offset)) } else { (rows.add(offset), columns.clone()) };
    let length = rows.at_most(columns);
    match length.as_int() {
        Some(length) => Expr::Int(length.max(0)),
        None => length,
    }
}

/// A diagonal of a matrix, or a matrix with this diagonal.
fn diag(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (value, offset) = (operands.value(0)?, operands.arg(1).clone());
    let name = if b.graph.tensor(value)?.rank() == 1 { aten::DIAG_EMBED } else { aten::DIAGONAL_COPY };
    b.call(name, vec![value.into(), offset]).map(Some)
}

fn strided(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    Ok(result(operands.tensor(0, graph)?.dtype, operands.exprs(1)?))
}

fn windows(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (size, step) = (operands.int(2)?, operands.int(3)?);
    if step < 1 || size < 0 {
        return Err(operands.wrong(3, "a step of at least 1"));
    }
    let mut shape = tensor.shape.clone();
    if tensor.rank() > 0 {
        let (dim, whole) = dim_and_size(operands, 1, tensor)?;
        if whole.as_int().is_some_and(|whole| size > whole) {
            return Err(operands.wrong(2, "a window that fits the dimension"));
        }
        if let Some(slot) = shape.get_mut(dim) {
            *slot = whole.sub(size).floor_div(step).add(1);
        }
    }
    shape.push(Expr::Int(size));
    Ok(result(tensor.dtype, shape))
}
