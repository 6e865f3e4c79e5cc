//! Several tensors as one, repetition, rotation, triangles and padding.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, TensorType, Type, ValueId};

use super::inference::same;
use super::slices::slice;
use super::views::{expand, transpose, unsqueeze};
use super::{Definition, Lowered, Operands, broadcast, by_lowering, composite, done, forward, kernel, promote, result};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::CAT, concatenated),
    composite(aten::CONCAT, concatenated, cat),
    composite(aten::CONCATENATE, concatenated, cat),
    kernel(aten::STACK, stacked),
    composite(aten::_STACK, stacked, stack),
    composite(aten::PAD_SEQUENCE, by_lowering, pad_sequence),
    composite(aten::FLATTEN_DENSE_TENSORS, by_lowering, flatten_all),
    composite(aten::HSTACK, by_lowering, hstack),
    composite(aten::VSTACK, by_lowering, vstack),
    composite(aten::ROW_STACK, by_lowering, vstack),
    composite(aten::DSTACK, by_lowering, dstack),
    composite(aten::COLUMN_STACK, by_lowering, column_stack),
    composite(aten::ATLEAST_1D_SEQUENCE, by_lowering, at_least),
    composite(aten::ATLEAST_2D_SEQUENCE, by_lowering, at_least),
    composite(aten::ATLEAST_3D_SEQUENCE, by_lowering, at_least),
    composite(aten::BROADCAST_TENSORS, by_lowering, broadcast_tensors),
    composite(aten::MESHGRID, by_lowering, meshgrid),
    composite(aten::MESHGRID_INDEXING, by_lowering, meshgrid),
    composite(aten::CARTESIAN_PROD, by_lowering, cartesian_prod),
    composite(aten::COMBINATIONS, by_lowering, combinations),
    composite(aten::BLOCK_DIAG, by_lowering, block_diag),
    kernel(aten::REPEAT, repeated),
    composite(aten::TILE, by_lowering, tile),
    composite(aten::REPEAT_INTERLEAVE_SELF_INT, by_lowering, repeat_interleave),
    kernel(aten::REPEAT_INTERLEAVE_TENSOR, interleaved_indices),
    composite(aten::REPEAT_INTERLEAVE_SELF_TENSOR, by_lowering, repeat_interleave_each),
    kernel(aten::FLIP, same),
    composite(aten::FLIPLR, same, fliplr),
    composite(aten::FLIPUD, same, flipud),
    composite(aten::ROLL, same, roll),
    composite(aten::ROT90, by_lowering, rot90),
    kernel(aten::TRIL, same),
    composite(aten::TRIU, same, triu),
    composite(aten::DIAG_EMBED, by_lowering, diag_embed),
    composite(aten::DIAGFLAT, by_lowering, diagflat),
];

/// Kernels have it for given dimensions; without any, the elements are rolled as one row.
fn roll(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if operands.has(2) && !operands.ints(2)?.is_empty() {
        return Ok(None);
    }
    let ty = b.tensor(operands.value(0)?)?;
    let row = b.one(aten::VIEW_COPY, vec![operands.arg(0).clone(), vec![ty.numel()].into()])?;
    let rolled = b.one(aten::ROLL, vec![row.into(), operands.arg(1).clone(), [0].into()])?;
    b.call(aten::VIEW_COPY, vec![rolled.into(), ty.shape.into()]).map(Some)
}

/// The tensors one after the other along a dimension.
pub(crate) fn cat_of(b: &mut Builder<'_>, values: Vec<ValueId>, dim: usize) -> Result<ValueId, Error> {
    match values.as_slice() {
        [value] => Ok(*value),
        _ => b.one(aten::CAT, vec![values.into(), (dim as i64).into()]),
    }
}

fn list_of(operands: &Operands<'_>) -> Result<Vec<ValueId>, Error> {
    let values = operands.values(0)?;
    if values.is_empty() { Err(operands.wrong(0, "at least one tensor")) } else { Ok(values) }
}

fn concatenated(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let values = list_of(operands)?;
    let tensors = values.iter().map(|value| graph.tensor(*value)).collect::<Result<Vec<_>, _>>()?;
    let args: Vec<Arg> = values.iter().map(|value| Arg::Value(*value)).collect();
    let dtype = promote(&args.iter().collect::<Vec<_>>(), graph)?;
    // Tensors of size [0] are ignored, for any rank of the others.
    let is_empty = |tensor: &TensorType| matches!(tensor.shape.as_slice(), [size] if size.is(0));
    let Some(first) = tensors.iter().find(|tensor| !is_empty(tensor)) else {
        return Ok(result(dtype, vec![Expr::Int(0)]));
    };
    let dim = operands.dim(1, first.rank())?;
    let mut shape = first.shape.clone();
    let mut total = Expr::Int(0);
    for tensor in tensors.iter().filter(|tensor| !is_empty(tensor)) {
        let Some(size) = tensor.shape.get(dim).filter(|_| tensor.rank() == shape.len()) else {
            return Err(operands.wrong(0, &format!("tensors of {} dimensions", shape.len())));
        };
        total = total.add(size.clone());
        for (at, (known, size)) in shape.iter_mut().zip(&tensor.shape).enumerate().filter(|(at, _)| *at != dim) {
            if known.is_static() && size.is_static() && known != size {
                return Err(operands.wrong(0, &format!("tensors of equal sizes in dimension {at}")));
            }
            if size.is_static() {
                known.clone_from(size);
            }
        }
    }
    if let Some(slot) = shape.get_mut(dim) {
        *slot = total;
    }
    Ok(result(dtype, shape))
}

fn cat(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.call(aten::CAT, operands.args.to_vec()).map(Some)
}

fn stacked(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let values = list_of(operands)?;
    let args: Vec<Arg> = values.iter().map(|value| Arg::Value(*value)).collect();
    let dtype = promote(&args.iter().collect::<Vec<_>>(), graph)?;
    let shapes = values.iter().map(|value| Ok(graph.tensor(*value)?.shape.as_slice()));
    let shapes = shapes.collect::<Result<Vec<_>, Error>>()?;
    let mut shape = shapes.first().map(|shape| shape.to_vec()).unwrap_or_default();
    for other in &shapes {
        let differs = |(x, y): (&Expr, &Expr)| x.is_static() && y.is_static() && x != y;
        if other.len() != shape.len() || shape.iter().zip(*other).any(differs) {
            return Err(operands.wrong(0, "tensors of one shape"));
        }
    }
    let dim = operands.dim(1, shape.len() + 1)?;
    shape.insert(dim, Expr::Int(values.len() as i64));
    Ok(result(dtype, shape))
}

fn stack(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    forward(b, operands, aten::STACK)
}

/// Sequences, padded to the length of the longest, as a batch.
fn pad_sequence(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let values = list_of(operands)?;
    let lengths = values.iter().map(|value| Ok(b.tensor(*value)?.shape.first().cloned()));
    let lengths = lengths.collect::<Result<Option<Vec<_>>, Error>>()?;
    let lengths = lengths.ok_or_else(|| operands.wrong(0, "tensors with dimensions"))?;
    let longest = lengths.iter().fold(Expr::Int(0), |longest, length| longest.at_least(length.clone()));
    let mut padded = Vec::new();
    for (value, length) in values.into_iter().zip(lengths) {
        let missing = longest.sub(length);
        let pair = if operands.str(3)? == Some("left") { [missing, Expr::Int(0)] } else { [Expr::Int(0), missing] };
        let inner = b.tensor(value)?.rank() - 1;
        let padding = [vec![Expr::Int(0); 2 * inner], pair.to_vec()].concat();
        let fill = operands.arg(2).clone();
        padded.push(b.one(aten::CONSTANT_PAD_ND, vec![value.into(), padding.into(), fill])?);
    }
    let dim = i64::from(!operands.bool(1)?);
    b.call(aten::STACK, vec![padded.into(), dim.into()]).map(Some)
}

fn flatten_all(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let flat = list_of(operands)?.into_iter().map(|value| {
        let count = b.tensor(value)?.numel();
        b.view(value, vec![count])
    });
    let flat = flat.collect::<Result<Vec<_>, _>>()?;
    done(cat_of(b, flat, 0)?)
}

/// Applies `atleast_1d`, `atleast_2d` or `atleast_3d` to each tensor of a list.
fn each_at_least(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Result<Vec<ValueId>, Error> {
    list_of(operands)?.into_iter().map(|value| b.one(name, vec![value.into()])).collect()
}

fn at_least(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    each_at_least(b, operands, operands.schema.base_name()).map(Some)
}

fn hstack(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let values = each_at_least(b, operands, aten::ATLEAST_1D)?;
    let flat = values.first().is_some_and(|value| b.graph.tensor(*value).is_ok_and(|tensor| tensor.rank() == 1));
    cat_of(b, values, usize::from(!flat)).map(|value| Some(vec![value]))
}

fn vstack(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let values = each_at_least(b, operands, aten::ATLEAST_2D)?;
    cat_of(b, values, 0).map(|value| Some(vec![value]))
}

fn dstack(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let values = each_at_least(b, operands, aten::ATLEAST_3D)?;
    cat_of(b, values, 2).map(|value| Some(vec![value]))
}

/// Vectors become columns.
fn column_stack(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut columns = Vec::new();
    for value in list_of(operands)? {
        let tensor = b.tensor(value)?;
        let column = if tensor.rank() <= 1 { b.view(value, vec![tensor.numel(), Expr::Int(1)])? } else { value };
        columns.push(column);
    }
    cat_of(b, columns, 1).map(|value| Some(vec![value]))
}

fn broadcast_tensors(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let values = operands.values(0)?;
    let tensors = values.iter().map(|value| b.tensor(*value)).collect::<Result<Vec<_>, _>>()?;
    let shape = broadcast(tensors.iter().map(|tensor| tensor.shape.as_slice()))?;
    values.into_iter().map(|value| expand(b, value, shape.clone())).collect::<Result<_, _>>().map(Some)
}

fn meshgrid(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let columns_first = operands.schema.position("indexing").is_some_and(|at| *operands.arg(at) == Arg::from("xy"));
    grids(b, &operands.values(0)?, columns_first).map(Some)
}

/// Each vector along a dimension of its own, repeated along the others.
fn grids(b: &mut Builder<'_>, values: &[ValueId], columns_first: bool) -> Result<Vec<ValueId>, Error> {
    let sizes = values.iter().map(|value| Ok(b.tensor(*value)?.numel())).collect::<Result<Vec<_>, Error>>()?;
    let mut grids = Vec::new();
    for (dim, value) in values.iter().enumerate() {
        let mut along = vec![Expr::Int(1); sizes.len()];
        if let (Some(slot), Some(size)) = (along.get_mut(dim), sizes.get(dim)) {
            slot.clone_from(size);
        }
        let placed = b.view(*value, along)?;
        let grid = expand(b, placed, sizes.clone())?;
        grids.push(if columns_first && sizes.len() > 1 { transpose(b, grid, 0, 1)? } else { grid });
    }
    Ok(grids)
}

fn cartesian_prod(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let values = list_of(operands)?;
    if let [value] = values.as_slice() {
        return Ok(Some(vec![*value]));
    }
    let grids = grids(b, &values, false)?;
    let grids = grids.into_iter().map(|grid| {
        let count = b.tensor(grid)?.numel();
        b.view(grid, vec![count])
    });
    let grids = grids.collect::<Result<Vec<_>, _>>()?;
    b.call(aten::STACK, vec![grids.into(), 1.into()]).map(Some)
}

/// The combinations of `r` elements of a vector, in order.
fn combinations(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, r, repeated) = (operands.value(0)?, operands.int(1)?, operands.bool(2)?);
    let ty = b.tensor(x)?;
    let [size] = ty.shape.as_slice() else { return Err(operands.wrong(0, "a vector")) };
    let Some(size) = size.as_int() else {
        return Err(operands.unknown_sizes(0, "sizes", b.graph));
    };
    let Some(r) = usize::try_from(r).ok().filter(|r| *r <= 64) else {
        return Err(operands.wrong(1, "at most 64, and not negative"));
    };
    let mut rows: Vec<Vec<i64>> = vec![Vec::new()];
    for _ in 0..r {
        let mut longer = Vec::new();
        for row in &rows {
            let first = row.last().map_or(0, |last| last + i64::from(!repeated));
            for next in first..size {
                longer.push([row.as_slice(), &[next]].concat());
            }
            super::number::check_computed(&operands.schema.name, (longer.len() * r) as i64)?;
        }
        rows = longer;
    }
    let count = if r == 0 { 0 } else { rows.len() as i64 };
    let indices = b.constant(super::number::longs("combinations", &rows.concat())?);
    let picked = b.one(aten::INDEX_SELECT, vec![x.into(), Arg::from(0), indices.into()])?;
    let shape = if r == 0 { vec![Expr::Int(0)] } else { vec![Expr::Int(count), Expr::Int(r as i64)] };
    Ok(Some(vec![b.view(picked, shape)?]))
}

fn block_diag(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut blocks = Vec::new();
    let mut width = Expr::Int(0);
    for value in each_at_least(b, operands, aten::ATLEAST_2D)? {
        let columns = b.tensor(value)?.shape.last().cloned().unwrap_or(Expr::Int(1));
        blocks.push((value, width.clone(), columns.clone()));
        width = width.add(columns);
    }
    let mut rows = Vec::new();
    for (value, left, columns) in blocks {
        let right = width.sub(left.clone()).sub(columns);
        let padding = Arg::from(vec![left, right]);
        rows.push(b.one(aten::CONSTANT_PAD_ND, vec![value.into(), padding])?);
    }
    cat_of(b, rows, 0).map(|value| Some(vec![value]))
}

fn repeated(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let mut shape = operands.exprs(1)?;
    let Some(new) = shape.len().checked_sub(tensor.rank()) else {
        return Err(operands.wrong(1, &format!("at least {} numbers", tensor.rank())));
    };
    for (times, size) in shape.iter_mut().skip(new).zip(&tensor.shape) {
        *times = times.mul(size.clone());
    }
    Ok(result(tensor.dtype, shape))
}

/// As `repeat`, where missing numbers in front are 1.
fn tile(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut times = operands.exprs(1)?;
    let rank = operands.tensor(0, b.graph)?.rank();
    while times.len() < rank {
        times.insert(0, Expr::Int(1));
    }
    b.call(aten::REPEAT, vec![operands.value(0)?.into(), times.into()]).map(Some)
}

/// Every element of a dimension several times: a new dimension after it, expanded and merged.
fn repeat_interleave(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (value, dim) = flattened_along(b, operands, 2)?;
    interleave(b, value, dim, operands.expr(1)?).map(|value| Some(vec![value]))
}

/// Every element of a dimension `times` times.
pub(crate) fn interleave(b: &mut Builder<'_>, value: ValueId, dim: usize, times: Expr) -> Result<ValueId, Error> {
    if times.is(1) {
        return Ok(value);
    }
    let mut merged = b.tensor(value)?.shape;
    let apart = unsqueeze(b, value, dim + 1)?;
    let mut shape = merged.clone();
    shape.insert((dim + 1).min(shape.len()), times.clone());
    if let Some(size) = merged.get_mut(dim) {
        *size = size.mul(times);
    }
    let whole = expand(b, apart, shape)?;
    b.view(whole, merged)
}

/// The first argument and the dimension at `index`; without one, all elements in a row.
pub(crate) fn flattened_along(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    index: usize,
) -> Result<(ValueId, usize), Error> {
    let (value, tensor) = (operands.value(0)?, operands.tensor(0, b.graph)?.clone());
    if operands.has(index) && tensor.rank() > 0 {
        return Ok((value, operands.dim(index, tensor.rank())?));
    }
    Ok((b.view(value, vec![tensor.numel()])?, 0))
}

/// `repeat_interleave(repeats)`: each index as often as it says.
fn interleaved_indices(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    if let Some(known) = operands.known_types(graph) {
        return Ok(known);
    }
    if operands.has(1) {
        return Ok(result(operands.tensor(0, graph)?.dtype, vec![operands.expr(1)?]));
    }
    Err(Error::unsupported("the sum of `repeats` is only known when the program runs")
        .help("give `output_size` to `repeat_interleave`"))
}

fn repeat_interleave_each(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (value, dim) = flattened_along(b, operands, 2)?;
    let repeats = operands.value(1)?;
    let size = b.tensor(value)?.shape.get(dim).cloned().unwrap_or(Expr::Int(1));
    let count = b.tensor(repeats)?;
    if count.numel().is(1) && !size.is(1) {
        return Err(Error::unsupported("one number of repetitions in a tensor, for all elements"));
    }
    let known = operands.known_types(b.graph).and_then(|types| types.into_iter().next());
    let length = match (known, operands.has(3)) {
        (_, true) => operands.expr(3)?,
        (Some(Type::Tensor(ty)), _) => ty.shape.get(dim).cloned().unwrap_or(Expr::Int(1)),
        _ => {
            return Err(Error::unsupported(
                "the size of what `repeat_interleave` gives is only known when the program runs",
            )
            .help("give `output_size`"));
        }
    };
    // The size stays out of the call, so that the kernel counts itself.
    let schema = b.schemas().expect(aten::REPEAT_INTERLEAVE_TENSOR)?;
    let args = vec![repeats.into(), Arg::None];
    let indices = b.push(crate::Op::Call(schema), args, result(count.dtype, vec![length]));
    let indices = indices.first().copied().map_or(Arg::None, Arg::Value);
    b.call(aten::INDEX_SELECT, vec![value.into(), (dim as i64).into(), indices]).map(Some)
}

fn flip_dim(b: &mut Builder<'_>, operands: &Operands<'_>, dim: i64) -> Lowered {
    b.call(aten::FLIP, vec![operands.value(0)?.into(), [dim].into()]).map(Some)
}

fn fliplr(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    flip_dim(b, operands, 1)
}

fn flipud(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    flip_dim(b, operands, 0)
}

/// Quarter turns in the plane of two dimensions, from the first towards the second.
fn rot90(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let value = operands.value(0)?;
    let rank = b.tensor(value)?.rank();
    let dims = operands.ints(2)?;
    let [first, second] = dims.as_slice() else { return Err(operands.wrong(2, "two dimensions")) };
    let wrap = |dim: i64| usize::try_from(if dim < 0 { dim + rank as i64 } else { dim }).ok().filter(|dim| *dim < rank);
    let (Some(first), Some(second)) = (wrap(*first), wrap(*second)) else {
        return Err(operands.wrong(2, "two dimensions of the tensor"));
    };
    let mut flip = |value: ValueId, dims: &[usize]| {
        let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
        b.one(aten::FLIP, vec![value.into(), dims.as_slice().into()])
    };
    let turned = match operands.int(1)?.rem_euclid(4) {
        1 => {
            let flipped = flip(value, &[second])?;
            transpose(b, flipped, first, second)?
        }
        2 => flip(value, &[first, second])?,
        3 => {
            let flipped = flip(value, &[first])?;
            transpose(b, flipped, first, second)?
        }
        _ => value,
    };
    Ok(Some(vec![turned]))
}

/// Sets the elements below the diagonal to zero.
fn triu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let matrix = tensor.shape.get(tensor.rank().saturating_sub(2)..).unwrap_or_default().to_vec();
    if matrix.len() != 2 {
        return Err(operands.wrong(0, "a tensor of at least 2 dimensions"));
    }
    let below = operands.expr(1)?.sub(1);
    let mask = lower_triangle(b, matrix, below)?;
    b.call(aten::MASKED_FILL_SCALAR, vec![operands.value(0)?.into(), mask.into(), 0.into()]).map(Some)
}

/// True if an element of a matrix is on the diagonal or below it.
pub(crate) fn lower_triangle(b: &mut Builder<'_>, matrix: Vec<Expr>, diagonal: Expr) -> Result<ValueId, Error> {
    let full = b.one_with(aten::FULL, vec![matrix.into(), true.into()], &[("dtype", ScalarType::Bool.into())])?;
    b.one(aten::TRIL, vec![full.into(), diagonal.into()])
}

/// Vectors on the diagonal of matrices of zeros.
///
/// A row longer by one than the matrix, repeated, moves by one element with every row: zeros after each element of the
/// vector, seen as a square, are the diagonal.
fn diag_embed(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = operands.tensor(0, b.graph)?.clone();
    let (offset, rank) = (operands.int(1)?, tensor.rank() + 1);
    let (first, second) = (operands.dim(2, rank)?, operands.dim(3, rank)?);
    let Some((length, lead)) = tensor.shape.split_last() else {
        return Err(operands.wrong(0, "a tensor with dimensions"));
    };
    let square = length.mul(length.clone());
    let column = unsqueeze(b, operands.value(0)?, tensor.rank())?;
    let spaced = b.one(aten::CONSTANT_PAD_ND, vec![column.into(), Arg::from(vec![Expr::Int(0), length.clone()])])?;
    let flat = b.view(spaced, [lead, &[square.add(length.clone())]].concat())?;
    let cut = slice(b, flat, lead.len(), 0, square)?;
    let mut matrix = b.view(cut, [lead, &[length.clone(), length.clone()]].concat())?;
    if offset != 0 {
        let (right, down) = (offset.max(0), offset.saturating_neg().max(0));
        let padding = [right, down, down, right];
        matrix = b.one(aten::CONSTANT_PAD_ND, vec![matrix.into(), padding.into()])?;
    }
    let mut dims: Vec<usize> = (0..lead.len()).collect();
    let (low, high) = (first.min(second), first.max(second));
    let (low_source, high_source) =
        if first < second { (lead.len(), lead.len() + 1) } else { (lead.len() + 1, lead.len()) };
    if first == second {
        return Err(operands.wrong(3, "another dimension than the first"));
    }
    dims.insert(low.min(dims.len()), low_source);
    dims.insert(high.min(dims.len()), high_source);
    super::views::permute(b, matrix, &dims).map(|value| Some(vec![value]))
}

fn diagflat(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let count = operands.tensor(0, b.graph)?.numel();
    let flat = b.view(operands.value(0)?, vec![count])?;
    b.call(aten::DIAG_EMBED, vec![flat.into(), operands.arg(1).clone()]).map(Some)
}
