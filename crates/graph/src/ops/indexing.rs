//! Reading elements by index or mask.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Op, TensorType, Type, ValueId};

use super::creation::filled;
use super::inference::by_data;
use super::joins::flattened_along;
use super::number::MAX_COMPUTED;
use super::slices::select;
use super::views::{expand, unsqueeze};
use super::{Definition, Lowered, Operands, broadcast, by_lowering, composite, done, kernel, result};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::INDEX_TENSOR, indexed),
    composite(aten::_UNSAFE_INDEX_TENSOR, indexed, index),
    composite(aten::_UNSAFE_MASKED_INDEX, by_lowering, masked_index),
    kernel(aten::INDEX_SELECT, index_selected),
    kernel(aten::GATHER, gathered),
    composite(aten::TAKE, taken, take),
    composite(aten::TAKE_ALONG_DIM, by_lowering, take_along_dim),
    kernel(aten::MASKED_SELECT, by_data),
    kernel(aten::NONZERO, by_data),
    composite(aten::ARGWHERE, by_data, nonzero),
    composite(aten::WHERE, by_data, coordinates),
    composite(aten::NONZERO_NUMPY, by_data, coordinates),
    kernel(aten::EMBEDDING, embedded),
    kernel(aten::_EMBEDDING_BAG, bagged),
    composite(aten::_EMBEDDING_BAG_FORWARD_ONLY, bagged, embedding_bag),
    composite(aten::EMBEDDING_BAG, bagged, embedding_bag),
    composite(aten::EMBEDDING_BAG_PADDING_IDX, bagged, embedding_bag),
    composite(aten::ONE_HOT, by_lowering, one_hot),
    composite(aten::BUCKETIZE_TENSOR, by_lowering, bucketize),
    composite(aten::BUCKETIZE_SCALAR, by_lowering, bucketize),
    composite(aten::SEARCHSORTED_TENSOR, by_lowering, searchsorted),
    composite(aten::SEARCHSORTED_SCALAR, by_lowering, searchsorted),
];

/// The indices of `x[…]`: a tensor, or none, for each dimension.
pub(crate) fn index_list(operands: &Operands<'_>, index: usize) -> Result<Vec<Option<ValueId>>, Error> {
    let Arg::List(items) = operands.arg(index) else { return Err(operands.wrong(index, "a list of tensors")) };
    let item = |item: &Arg| match item {
        Arg::None => Ok(None),
        Arg::Value(value) => Ok(Some(*value)),
        _ => Err(operands.wrong(index, "a list of tensors")),
    };
    items.iter().map(item).collect()
}

/// Indices along one dimension as a list for `index`.
pub(crate) fn index_at(dim: usize, index: ValueId) -> Arg {
    let mut items = vec![Arg::None; dim];
    items.push(index.into());
    Arg::List(items)
}

/// The broadcast shape of the indices stands where they do, or in front if they do not stand together.
fn indexed(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let indices = index_list(operands, 1)?;
    let mut shapes = Vec::new();
    for index in indices.iter().flatten() {
        let index = graph.tensor(*index)?;
        if matches!(index.dtype, ScalarType::Bool | ScalarType::Byte) {
            return by_data(operands, graph);
        }
        shapes.push(index.shape.as_slice());
    }
    if indices.len() > tensor.rank() {
        return Err(operands.wrong(1, &format!("at most {} indices", tensor.rank())));
    }
    let common = broadcast(shapes)?;
    let is_index = |dim: usize| indices.get(dim).is_some_and(Option::is_some);
    let at: Vec<usize> = (0..tensor.rank()).filter(|dim| is_index(*dim)).collect();
    let together = at.windows(2).all(|pair| matches!(pair, [a, b] if a + 1 == *b));
    let place = if together { at.first().copied().unwrap_or(0) } else { 0 };
    let rest = tensor.shape.iter().enumerate().filter(|(dim, _)| !is_index(*dim)).map(|(_, size)| size.clone());
    let mut shape: Vec<Expr> = rest.collect();
    if !at.is_empty() {
        shape.splice(place..place, common);
    }
    Ok(result(tensor.dtype, shape))
}

fn index(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.call(aten::INDEX_TENSOR, operands.args.to_vec()).map(Some)
}

/// `_unsafe_masked_index`: elements at clamped indices, and a number where the mask is false.
fn masked_index(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let tensor = b.tensor(operands.value(0)?)?;
    let indices = clamped(b, &tensor, &index_list(operands, 2)?)?;
    let taken = b.one(aten::INDEX_TENSOR, vec![operands.value(0)?.into(), indices])?;
    let outside = b.one(aten::LOGICAL_NOT, vec![operands.value(1)?.into()])?;
    b.call(aten::MASKED_FILL_SCALAR, vec![taken.into(), outside.into(), operands.arg(3).clone()]).map(Some)
}

/// Indices that are moved inside of their dimensions.
pub(crate) fn clamped(b: &mut Builder<'_>, tensor: &TensorType, indices: &[Option<ValueId>]) -> Result<Arg, Error> {
    let mut list = Vec::new();
    for (index, size) in indices.iter().zip(&tensor.shape) {
        list.push(match index {
            Some(index) => {
                let range = vec![Arg::from(*index), 0.into(), size.sub(1).into()];
                b.one(aten::CLAMP, range)?.into()
            }
            None => Arg::None,
        });
    }
    Ok(Arg::List(list))
}

fn index_selected(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let dim = operands.dim(1, tensor.rank())?;
    let mut shape = tensor.shape.clone();
    if let Some(size) = shape.get_mut(dim) {
        *size = operands.tensor(2, graph)?.numel();
    }
    Ok(result(tensor.dtype, shape))
}

fn gathered(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (tensor, index) = (operands.tensor(0, graph)?, operands.tensor(2, graph)?);
    operands.dim(1, tensor.rank())?;
    Ok(result(tensor.dtype, index.shape.clone()))
}

fn taken(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    Ok(result(operands.tensor(0, graph)?.dtype, operands.tensor(1, graph)?.shape.clone()))
}

fn take(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let count = operands.tensor(0, b.graph)?.numel();
    let flat = b.view(operands.value(0)?, vec![count])?;
    b.call(aten::INDEX_TENSOR, vec![flat.into(), index_at(0, operands.value(1)?)]).map(Some)
}

fn take_along_dim(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (value, dim) = flattened_along(b, operands, 2)?;
    let index = operands.value(1)?;
    let index = if operands.has(2) {
        index
    } else {
        let count = b.tensor(index)?.numel();
        b.view(index, vec![count])?
    };
    // Negative indices count from the end, which `gather` does not do.
    let from = b.tensor(value)?.shape;
    let size = from.get(dim).cloned().unwrap_or(Expr::Int(1));
    let index = b.one(aten::REMAINDER_SCALAR, vec![index.into(), size.into()])?;
    // All dimensions but the one broadcast.
    let (mut from, mut at) = (b.tensor(value)?.shape, b.tensor(index)?.shape);
    let (Some(size), Some(wanted)) = (from.get(dim).cloned(), at.get(dim).cloned()) else {
        return Err(operands.wrong(1, "indices of the tensor's rank"));
    };
    for shape in [&mut from, &mut at] {
        if let Some(slot) = shape.get_mut(dim) {
            *slot = Expr::Int(1);
        }
    }
    let shape = broadcast([from.as_slice(), at.as_slice()])?;
    let sized = |size: Expr| {
        let mut shape = shape.clone();
        if let Some(slot) = shape.get_mut(dim) {
            *slot = size;
        }
        shape
    };
    let value = expand(b, value, sized(size))?;
    let index = expand(b, index, sized(wanted))?;
    b.call(aten::GATHER, vec![value.into(), (dim as i64).into(), index.into()]).map(Some)
}

/// `argwhere` is `nonzero`.
fn nonzero(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let types = by_data(operands, b.graph)?;
    let schema = b.schemas().expect(aten::NONZERO)?;
    Ok(Some(b.push(Op::Call(schema), vec![operands.value(0)?.into()], types)))
}

/// The columns of `nonzero`, a tensor for each dimension.
fn coordinates(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let types = by_data(operands, b.graph)?;
    let Some(Type::Tensor(first)) = types.first() else { return Ok(Some(Vec::new())) };
    let shape = [first.shape.clone(), vec![Expr::Int(types.len() as i64)]].concat();
    let schema = b.schemas().expect(aten::NONZERO)?;
    let rows = b.push(Op::Call(schema), vec![operands.value(0)?.into()], result(ScalarType::Long, shape));
    let Some(rows) = rows.first().copied() else { return Ok(None) };
    (0..types.len() as i64).map(|column| select(b, rows, 1, column)).collect::<Result<_, _>>().map(Some)
}

fn embedded(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (weight, indices) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let [_, width] = weight.shape.as_slice() else { return Err(operands.wrong(0, "a matrix")) };
    Ok(result(weight.dtype, [indices.shape.as_slice(), std::slice::from_ref(width)].concat()))
}

/// The bags, the bag of each index, the sizes of the bags and the rows of maxima. All but the first are as the kernel
/// gives them when nothing asks for gradients.
fn bagged(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    const SUM: i64 = 0;
    const MAX: i64 = 2;
    let (weight, indices, offsets) =
        (operands.tensor(0, graph)?, operands.tensor(1, graph)?, operands.tensor(2, graph)?);
    let [_, width] = weight.shape.as_slice() else { return Err(operands.wrong(0, "a matrix")) };
    let mode = operands.int(4)?;
    let padded = match operands.arg(8) {
        Arg::Int(Expr::Int(padding)) => *padding >= 0 || operands.schema.name == aten::EMBEDDING_BAG_PADDING_IDX,
        padding => !padding.is_none(),
    };
    let bags = offsets.numel().sub(i64::from(operands.bool(7)?));
    let index = indices.dtype;
    // PyTorch's fast path for sums leaves the bag of each index out.
    let fast = mode == SUM && !padded && weight.dtype != ScalarType::Double;
    let rows = if mode == MAX { vec![bags.clone(), width.clone()] } else { vec![bags.clone()] };
    Ok([
        result(weight.dtype, vec![bags.clone(), width.clone()]),
        result(index, vec![if fast { Expr::Int(0) } else { indices.numel() }]),
        result(index, vec![bags]),
        result(index, rows),
    ]
    .concat())
}

/// A padding index may count from the last row; none is -1.
fn embedding_bag(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut args = operands.args.to_vec();
    if operands.schema.name == aten::EMBEDDING_BAG_PADDING_IDX {
        let rows = operands.tensor(0, b.graph)?.shape.first().cloned().unwrap_or(Expr::Int(0));
        let padding = match operands.arg(8) {
            Arg::Int(Expr::Int(padding)) if *padding < 0 => rows.add(*padding).into(),
            Arg::None => Arg::from(-1),
            padding => padding.clone(),
        };
        args.truncate(8);
        args.push(padding);
    }
    b.call(aten::_EMBEDDING_BAG, args).map(Some)
}

/// Scatters a one for each index. The scatter checks that the class exists.
fn one_hot(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let classes = operands.int(1)?;
    if classes < 1 {
        return Err(
            Error::unsupported("`one_hot` without a number of classes: it depends on data").help("give `num_classes`")
        );
    }
    if classes > MAX_COMPUTED {
        return Err(operands.wrong(1, &format!("at most {MAX_COMPUTED}")));
    }
    let mut shape = operands.tensor(0, b.graph)?.shape.clone();
    let rank = shape.len();
    shape.push(classes.into());
    let index = unsqueeze(b, operands.value(0)?, rank)?;
    let zeros = filled(b, shape.into(), 0.into(), ScalarType::Long)?;
    b.one(aten::SCATTER_VALUE, vec![zeros.into(), (-1).into(), index.into(), 1.into()]).and_then(done)
}

fn bucketize(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let values = tensor_or_number(b, operands, 0, operands.tensor(1, b.graph)?.dtype)?;
    count_below(b, operands.value(1)?, values, operands.bool(3)?, operands.bool(2)?).map(Some)
}

fn searchsorted(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut boundaries = operands.value(0)?;
    if let Some(sorter) = operands.optional(5)? {
        boundaries = b.one(aten::GATHER, vec![boundaries.into(), (-1).into(), sorter.into()])?;
    }
    let right = operands.bool(3)? || operands.str(4)? == Some("right");
    let values = tensor_or_number(b, operands, 1, operands.tensor(0, b.graph)?.dtype)?;
    count_below(b, boundaries, values, right, operands.bool(2)?).map(Some)
}

fn tensor_or_number(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    index: usize,
    dtype: ScalarType,
) -> Result<ValueId, Error> {
    match operands.arg(index) {
        Arg::Value(value) if b.is_tensor(operands.arg(index)) => Ok(*value),
        Arg::Float(value) if !dtype.is_floating() => b.scalar(*value, ScalarType::Float),
        number => b.as_tensor(number, dtype),
    }
}

/// Counts, for each value, the sorted boundaries that are less, or with `right` not greater. Boundaries of
/// more than one dimension have their own for each row of values.
fn count_below(
    b: &mut Builder<'_>,
    boundaries: ValueId,
    values: ValueId,
    right: bool,
    short: bool,
) -> Result<Vec<ValueId>, Error> {
    let rank = b.tensor(boundaries)?.rank();
    let boundaries = if rank > 1 { unsqueeze(b, boundaries, rank - 1)? } else { boundaries };
    let last = b.tensor(values)?.rank();
    let values = unsqueeze(b, values, last)?;
    // `boundary < value` would count NaN as below nothing; PyTorch puts it last.
    let name = if right { aten::GT_TENSOR } else { aten::GE_TENSOR };
    let above = b.one(name, vec![boundaries.into(), values.into()])?;
    let below = b.one(aten::LOGICAL_NOT, vec![above.into()])?;
    let dtype = if short { ScalarType::Int } else { ScalarType::Long };
    let dims = Arg::from([-1]);
    b.call_with(aten::SUM_DIM_INTLIST, vec![below.into(), dims], &[("dtype", dtype.into())])
}
