//! Legalizes data movement that has no step of its own to views, copies and selections by constant indices.

use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Arg, Builder, Call, Constant, Expr, NodeId, TensorType, ValueId};

/// Maximum number of elements of a dimension that is reversed, or that a padding adds on both sides. Each becomes a copy.
const MAX_COPIES: i64 = 64;

/// Maximum size of a dimension that is padded with its own elements.
const MAX_PADDED: i64 = 1 << 15;

/// Maximum number of elements of a matrix whose triangle is a constant mask.
const MAX_MASK: i64 = 1 << 18;

/// Lowers data movement to operators that have steps. `None` of other nodes, and of those with other arguments.
pub(super) fn legalize(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<Vec<ValueId>>, Error> {
    let name = builder.graph.nodes[node].op.name();
    if name == aten::UNBIND_COPY_INT {
        return unbind(builder, node);
    }
    let value = match name {
        aten::T_COPY | aten::TRANSPOSE_COPY_INT => transpose(builder, node)?,
        aten::DETACH_COPY | aten::LIFT_FRESH_COPY => {
            let input = Call::new(builder.graph, node).value("self")?;
            Some(builder.one(aten::ALIAS_COPY, vec![input.into()])?)
        }
        aten::NARROW_COPY => narrow(builder, node)?,
        aten::REPEAT => repeat(builder, node)?,
        aten::PIXEL_SHUFFLE => pixel_shuffle(builder, node)?,
        aten::PIXEL_UNSHUFFLE => pixel_unshuffle(builder, node)?,
        aten::DIAGONAL_COPY => diagonal(builder, node)?,
        aten::UNFOLD_COPY => windows(builder, node)?,
        aten::SELECT_SCATTER => select_scatter(builder, node)?,
        aten::FLIP => flip(builder, node)?,
        aten::REFLECTION_PAD1D | aten::REFLECTION_PAD2D | aten::REFLECTION_PAD3D => {
            pad(builder, node, |at, size| if at < 0 { -at } else { (2 * (size - 1) - at).min(at) })?
        }
        aten::REPLICATION_PAD1D | aten::REPLICATION_PAD2D | aten::REPLICATION_PAD3D => {
            pad(builder, node, |at, size| at.clamp(0, size - 1))?
        }
        aten::TRIL => lower_triangle(builder, node)?,
        aten::GLU => gated(builder, node)?,
        _ => None,
    };
    Ok(value.map(|value| vec![value]))
}

/// A dimension that is an argument, from the start.
fn dim_of(call: &Call<'_>, name: &str, rank: usize) -> Option<usize> {
    wrap_dim(call.int(name)?, rank).filter(|dim| *dim < rank)
}

/// The sizes of a tensor, if no input gives them.
fn fixed_sizes(shape: &[Expr]) -> Option<Vec<i64>> {
    shape.iter().map(Expr::as_int).collect()
}

/// One selection for each result.
fn unbind(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<Vec<ValueId>>, Error> {
    let call = Call::new(builder.graph, node);
    let (input, count) = (call.value("self")?, call.node.results.len());
    let Some(dim) = dim_of(&call, "dim", call.shape(input)?.len()) else { return Ok(None) };
    let select = |index: usize| {
        let args = vec![input.into(), Arg::from(dim as i64), Arg::from(index as i64)];
        builder.one(aten::SELECT_COPY_INT, args)
    };
    (0..count).map(select).collect::<Result<_, _>>().map(Some)
}

fn transpose(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let input = call.value("self")?;
    let rank = call.shape(input)?.len();
    let mut dims: Vec<i64> = (0..rank as i64).collect();
    if call.name() == aten::T_COPY {
        dims.reverse();
    } else {
        let (Some(first), Some(second)) = (dim_of(&call, "dim0", rank), dim_of(&call, "dim1", rank)) else {
            return Ok(None);
        };
        dims.swap(first, second);
    }
    builder.one(aten::PERMUTE_COPY, vec![input.into(), dims.as_slice().into()]).map(Some)
}

fn narrow(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let input = call.value("self")?;
    let shape = call.shape(input)?;
    let (Some(dim), Some(start), Some(length)) =
        (dim_of(&call, "dim", shape.len()), call.int("start"), call.expr("length"))
    else {
        return Ok(None);
    };
    let start = if start < 0 { shape[dim].add(start) } else { Expr::Int(start) };
    let end = start.add(length);
    let args = vec![input.into(), Arg::from(dim as i64), start.into(), end.into()];
    builder.one(aten::SLICE_COPY_TENSOR, args).map(Some)
}

/// A new dimension before each one that is repeated, expanded and merged with it.
fn repeat(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let input = call.value("self")?;
    let (shape, Some(times)) = (call.shape(input)?, call.exprs("repeats")) else { return Ok(None) };
    let Some(new) = times.len().checked_sub(shape.len()) else { return Ok(None) };
    let (mut apart, mut repeated) = (Vec::new(), Vec::new());
    for (times, size) in times[new..].iter().zip(shape) {
        if !times.is(1) {
            apart.push(Expr::Int(1));
            repeated.push(times.clone());
        }
        apart.push(size.clone());
        repeated.push(size.clone());
    }
    let repeated = [&times[..new], &repeated].concat();
    let merged = call.shape(call.result()?)?.to_vec();
    let apart = builder.one(aten::VIEW_COPY, vec![input.into(), apart.into()])?;
    let repeated = builder.one(aten::EXPAND_COPY, vec![apart.into(), repeated.into()])?;
    builder.one(aten::VIEW_COPY, vec![repeated.into(), merged.into()]).map(Some)
}

/// A reshape, a permutation of the last dimensions and a reshape to the result's sizes. Dimensions before `tail` stay in front.
fn rearranged(builder: &mut Builder<'_>, node: NodeId, tail: &[Expr], order: &[i64]) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let (input, result) = (call.value("self")?, call.shape(call.result()?)?.to_vec());
    let shape = call.shape(input)?;
    let Some(lead) = shape.len().checked_sub(3) else { return Ok(None) };
    let apart = [&shape[..lead], tail].concat();
    let order: Vec<i64> = (0..lead as i64).chain(order.iter().map(|dim| dim + lead as i64)).collect();
    let apart = builder.one(aten::VIEW_COPY, vec![input.into(), apart.into()])?;
    let moved = builder.one(aten::PERMUTE_COPY, vec![apart.into(), order.as_slice().into()])?;
    builder.one(aten::VIEW_COPY, vec![moved.into(), result.into()]).map(Some)
}

/// `[C * r * r, H, W]` to `[C, H * r, W * r]`.
fn pixel_shuffle(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let (input, result) = (call.shape(call.value("self")?)?, call.shape(call.result()?)?);
    let ([.., channels, _, _], [.., height, width], Some(factor)) = (result, input, call.int("upscale_factor")) else {
        return Ok(None);
    };
    let factor = Expr::Int(factor);
    let tail = [channels.clone(), factor.clone(), factor, height.clone(), width.clone()];
    rearranged(builder, node, &tail, &[0, 3, 1, 4, 2])
}

/// `[C, H * r, W * r]` to `[C * r * r, H, W]`.
fn pixel_unshuffle(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let (input, result) = (call.shape(call.value("self")?)?, call.shape(call.result()?)?);
    let ([.., channels, _, _], [.., height, width], Some(factor)) = (input, result, call.int("downscale_factor"))
    else {
        return Ok(None);
    };
    let factor = Expr::Int(factor);
    let tail = [channels.clone(), height.clone(), factor.clone(), width.clone(), factor];
    rearranged(builder, node, &tail, &[0, 2, 4, 1, 3])
}

/// The strides of a row-major tensor.
fn row_major(sizes: &[i64]) -> Option<Vec<i64>> {
    let mut strides = vec![1i64; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim].checked_mul(sizes[dim])?;
    }
    Some(strides)
}

/// A call whose input and result have fixed sizes.
struct FixedCall {
    input: ValueId,
    /// Row-major strides of the input.
    strides: Vec<i64>,
    /// Sizes of the result.
    result: Vec<i64>,
}

impl FixedCall {
    /// Reads a call. `None` if a size is not fixed, or if the strides overflow.
    fn new(call: &Call<'_>) -> Result<Option<Self>, Error> {
        let input = call.value("self")?;
        let strides = fixed_sizes(call.shape(input)?).as_deref().and_then(row_major);
        let result = fixed_sizes(call.shape(call.result()?)?);
        Ok(strides.zip(result).map(|(strides, result)| Self { input, strides, result }))
    }
}

/// The elements of a row-major tensor with these strides.
fn strided(
    builder: &mut Builder<'_>,
    input: ValueId,
    sizes: &[i64],
    strides: &[i64],
    offset: i64,
) -> Result<Option<ValueId>, Error> {
    let args = vec![input.into(), Arg::from(sizes), Arg::from(strides), offset.into()];
    builder.one(aten::AS_STRIDED_COPY, args).map(Some)
}

/// A step along a diagonal is one along each of its dimensions.
fn diagonal(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let Some(FixedCall { input, strides, result }) = FixedCall::new(&call)? else { return Ok(None) };
    let rank = strides.len();
    let (Some(first), Some(second), Some(offset)) =
        (dim_of(&call, "dim1", rank), dim_of(&call, "dim2", rank), call.int("offset"))
    else {
        return Ok(None);
    };
    // An empty diagonal begins nowhere.
    if result.contains(&0) {
        return Ok(None);
    }
    let kept = strides.iter().enumerate().filter(|(dim, _)| *dim != first && *dim != second);
    let moved: Vec<i64> = kept.map(|(_, stride)| *stride).chain([strides[first] + strides[second]]).collect();
    let start = if offset < 0 { strides[first] * -offset } else { strides[second] * offset };
    strided(builder, input, &result, &moved, start)
}

/// A window begins `step` elements after the one before.
fn windows(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let Some(FixedCall { input, mut strides, result }) = FixedCall::new(&call)? else { return Ok(None) };
    let (Some(dim), Some(step)) = (dim_of(&call, "dimension", strides.len()), call.int("step")) else {
        return Ok(None);
    };
    let within = strides[dim];
    let Some(between) = within.checked_mul(step) else { return Ok(None) };
    strides[dim] = between;
    strides.push(within);
    strided(builder, input, &result, &strides, 0)
}

fn select_scatter(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let (input, source) = (call.value("self")?, call.value("src")?);
    let shape = call.shape(input)?;
    let (Some(dim), Some(index)) = (dim_of(&call, "dim", shape.len()), call.int("index")) else { return Ok(None) };
    let start = if index < 0 { shape[dim].add(index) } else { Expr::Int(index) };
    let (at, end) = (Arg::from(dim as i64), start.add(1));
    let source = builder.one(aten::UNSQUEEZE_COPY, vec![source.into(), at.clone()])?;
    let args = vec![input.into(), source.into(), at, start.into(), end.into()];
    builder.one(aten::SLICE_SCATTER, args).map(Some)
}

/// A selection of constant indices of a dimension.
fn taken(builder: &mut Builder<'_>, value: ValueId, dim: usize, indices: Vec<i64>) -> Result<ValueId, Error> {
    let ty = TensorType::of(ScalarType::Long, &[indices.len() as i64]);
    let bytes: Vec<u8> = indices.into_iter().flat_map(i64::to_le_bytes).collect();
    let indices = builder.constant(Constant::dense("indices", ty, bytes)?);
    builder.one(aten::INDEX_SELECT, vec![value.into(), Arg::from(dim as i64), indices.into()])
}

/// The elements of short dimensions in the reverse order.
fn flip(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let mut value = call.value("self")?;
    let shape = call.shape(value)?;
    let Some(dims) = call.ints("dims") else { return Ok(None) };
    let sized = |dim: i64| {
        let dim = wrap_dim(dim, shape.len())?;
        let size = shape.get(dim)?.as_int().filter(|size| (1..=MAX_COPIES).contains(size))?;
        Some((dim, size))
    };
    let Some(dims) = dims.into_iter().map(sized).collect::<Option<Vec<_>>>().filter(|dims| !dims.is_empty()) else {
        return Ok(None);
    };
    for (dim, size) in dims {
        value = taken(builder, value, dim, (0..size).rev().collect())?;
    }
    Ok(Some(value))
}

/// Narrow paddings: `source` says of a place, from the start of the input, which element of a dimension of that size is there.
fn pad(builder: &mut Builder<'_>, node: NodeId, source: fn(i64, i64) -> i64) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let mut value = call.value("self")?;
    let (shape, Some(padding)) = (call.shape(value)?, call.ints("padding")) else { return Ok(None) };
    let mut padded = Vec::new();
    for (index, pair) in padding.chunks_exact(2).enumerate() {
        let Some(dim) = shape.len().checked_sub(index + 1) else { return Ok(None) };
        let Some(size) = shape[dim].as_int().filter(|size| (1..=MAX_PADDED).contains(size)) else { return Ok(None) };
        let (before, after) = (pair[0], pair[1]);
        if before < 0 || after < 0 || before.saturating_add(after) > MAX_COPIES {
            return Ok(None);
        }
        let sources: Vec<i64> = (-before..size.saturating_add(after)).map(|at| source(at, size)).collect();
        if !sources.iter().all(|at| (0..size).contains(at)) {
            return Ok(None);
        }
        if before + after > 0 {
            padded.push((dim, sources));
        }
    }
    if padded.is_empty() {
        return builder.one(aten::ALIAS_COPY, vec![value.into()]).map(Some);
    }
    for (dim, sources) in padded {
        value = taken(builder, value, dim, sources)?;
    }
    Ok(Some(value))
}

/// Sets what is above a diagonal to zero, by a constant mask.
fn lower_triangle(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let input = call.value("self")?;
    let ([.., rows, columns], Some(diagonal)) = (call.shape(input)?, call.int("diagonal")) else { return Ok(None) };
    let (Some(rows), Some(columns)) = (rows.as_int(), columns.as_int()) else { return Ok(None) };
    if rows.checked_mul(columns).is_none_or(|count| count > MAX_MASK) {
        return Ok(None);
    }
    let is_above = |row: i64, column: i64| column.saturating_sub(row) > diagonal;
    let mask = (0..rows).flat_map(|row| (0..columns).map(move |column| u8::from(is_above(row, column))));
    let ty = TensorType::of(ScalarType::Bool, &[rows, columns]);
    let mask = builder.constant(Constant::dense("mask", ty, mask.collect::<Vec<u8>>())?);
    builder.one(aten::MASKED_FILL_SCALAR, vec![input.into(), mask.into(), 0.into()]).map(Some)
}

/// One half of a dimension by the sigmoid of the other.
fn gated(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let input = call.value("self")?;
    let shape = call.shape(input)?;
    let Some(dim) = dim_of(&call, "dim", shape.len()) else { return Ok(None) };
    let (half, size) = (call.shape(call.result()?)?[dim].clone(), shape[dim].clone());
    let at = Arg::from(dim as i64);
    let args = vec![input.into(), at.clone(), 0.into(), half.clone().into()];
    let value = builder.one(aten::SLICE_COPY_TENSOR, args)?;
    let gate = builder.one(aten::SLICE_COPY_TENSOR, vec![input.into(), at, half.into(), size.into()])?;
    let gate = builder.one(aten::SIGMOID, vec![gate.into()])?;
    builder.one(aten::MUL_TENSOR, vec![value.into(), gate.into()]).map(Some)
}
