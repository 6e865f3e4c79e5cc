//! Views, which have other sizes or another order of the same elements: `view`, `permute`, `expand` and their
//! composites.
//!
//! Views that keep the order of the elements become `view_copy`, those that change it `permute_copy`; late passes make
//! views of copies where they can.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Builder, Expr, Graph, Type, ValueId};

use super::inference::same;
use super::{Definition, Lowered, Operands, composite, identity, kernel, result};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::VIEW_COPY, sized),
    composite(aten::VIEW, sized, as_view),
    composite(aten::_UNSAFE_VIEW, sized, as_view),
    composite(aten::RESHAPE, sized, as_view),
    composite(aten::_RESHAPE_COPY, sized, as_view),
    composite(aten::_RESHAPE_ALIAS, sized, as_view),
    composite(aten::_RESHAPE_ALIAS_COPY, sized, as_view),
    composite(aten::VIEW_AS, like_second, as_view),
    composite(aten::RESHAPE_AS, like_second, as_view),
    composite(aten::FLATTEN_USING_INTS, flattened, as_view),
    composite(aten::UNFLATTEN_INT, unflattened, as_view),
    composite(aten::RAVEL, raveled, as_view),
    composite(aten::SQUEEZE, squeezed, as_view),
    composite(aten::SQUEEZE_DIM, squeezed, as_view),
    composite(aten::SQUEEZE_DIMS, squeezed, as_view),
    composite(aten::SQUEEZE_COPY, squeezed, as_view),
    kernel(aten::SQUEEZE_COPY_DIM, squeezed),
    kernel(aten::SQUEEZE_COPY_DIMS, squeezed),
    composite(aten::UNSQUEEZE, unsqueezed, as_view),
    kernel(aten::UNSQUEEZE_COPY, unsqueezed),
    composite(aten::ATLEAST_1D, padded_with_ones, as_view),
    composite(aten::ATLEAST_2D, padded_with_ones, as_view),
    composite(aten::ATLEAST_3D, padded_with_ones, as_view),
    composite(aten::ALIAS, same, identity),
    kernel(aten::ALIAS_COPY, same),
    composite(aten::DETACH, same, identity),
    kernel(aten::DETACH_COPY, same),
    composite(aten::LIFT, same, identity),
    composite(aten::LIFT_FRESH, same, identity),
    kernel(aten::LIFT_FRESH_COPY, same),
    composite(aten::RESOLVE_CONJ, same, identity),
    composite(aten::RESOLVE_NEG, same, identity),
    composite(aten::VIEW_DTYPE, with_dtype, same_dtype),
    composite(aten::VIEW_COPY_DTYPE, with_dtype, same_dtype),
    composite(aten::REAL, real_part, real),
    kernel(aten::VIEW_AS_REAL_COPY, as_real),
    composite(aten::VIEW_AS_REAL, as_real, view_as_real),
    composite(aten::IMAG, real_part, imaginary),
    kernel(aten::EXPAND_COPY, expanded),
    composite(aten::EXPAND, expanded, as_expansion),
    composite(aten::EXPAND_AS, like_second, as_expansion),
    composite(aten::BROADCAST_TO, expanded, as_expansion),
    kernel(aten::PERMUTE_COPY, permuted),
    composite(aten::PERMUTE, permuted, as_permutation),
    kernel(aten::TRANSPOSE_COPY_INT, permuted),
    composite(aten::TRANSPOSE_INT, permuted, as_permutation),
    composite(aten::SWAPAXES, permuted, as_permutation),
    composite(aten::SWAPDIMS, permuted, as_permutation),
    kernel(aten::T_COPY, permuted),
    composite(aten::T, permuted, as_permutation),
    composite(aten::NUMPY_T, permuted, as_permutation),
    composite(aten::MT, permuted, as_permutation),
    composite(aten::ADJOINT, permuted, as_permutation),
    composite(aten::MH, permuted, as_permutation),
    composite(aten::MATRIX_H, permuted, as_permutation),
    composite(aten::MOVEDIM_INT, permuted, as_permutation),
    composite(aten::MOVEDIM_INTLIST, permuted, as_permutation),
    composite(aten::MOVEAXIS_INT, permuted, as_permutation),
    composite(aten::MOVEAXIS_INTLIST, permuted, as_permutation),
];

/// The dimensions in another order; a view where only dimensions of one element move.
pub(crate) fn permute(b: &mut Builder<'_>, value: ValueId, dims: &[usize]) -> Result<ValueId, Error> {
    let from = &b.graph.tensor(value)?.shape;
    let shape = dims.iter().map(|dim| from.get(*dim).cloned()).collect::<Option<Vec<_>>>();
    let shape = shape.ok_or_else(|| Error::type_error("a permutation of other dimensions"))?;
    let moving: Vec<usize> =
        dims.iter().copied().filter(|dim| from.get(*dim).is_some_and(|size| !size.is(1))).collect();
    if moving.is_sorted() {
        return b.view(value, shape);
    }
    let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    b.one(aten::PERMUTE_COPY, vec![value.into(), dims.as_slice().into()])
}

/// Two dimensions exchanged.
pub(crate) fn transpose(b: &mut Builder<'_>, value: ValueId, first: usize, second: usize) -> Result<ValueId, Error> {
    let mut dims: Vec<usize> = (0..b.graph.tensor(value)?.rank()).collect();
    if first.max(second) < dims.len() {
        dims.swap(first, second);
    }
    permute(b, value, &dims)
}

/// The last two dimensions exchanged.
pub(crate) fn transpose_last(b: &mut Builder<'_>, value: ValueId) -> Result<ValueId, Error> {
    let rank = b.graph.tensor(value)?.rank();
    transpose(b, value, rank.saturating_sub(2), rank.saturating_sub(1))
}

/// Repeated along dimensions of one element, and along new ones at the front.
pub(crate) fn expand(b: &mut Builder<'_>, value: ValueId, shape: Vec<Expr>) -> Result<ValueId, Error> {
    let from = &b.graph.tensor(value)?.shape;
    if *from == shape {
        return Ok(value);
    }
    if Expr::product(from) == Expr::product(&shape) && from.iter().chain(&shape).all(Expr::is_static) {
        return b.view(value, shape);
    }
    b.one(aten::EXPAND_COPY, vec![value.into(), shape.into()])
}

/// A new dimension of one element before `dim`.
pub(crate) fn unsqueeze(b: &mut Builder<'_>, value: ValueId, dim: usize) -> Result<ValueId, Error> {
    let mut shape = b.graph.tensor(value)?.shape.clone();
    shape.insert(dim.min(shape.len()), Expr::Int(1));
    b.view(value, shape)
}

/// Without the dimension `dim`, which must have one element.
pub(crate) fn squeeze(b: &mut Builder<'_>, value: ValueId, dim: usize) -> Result<ValueId, Error> {
    let mut shape = b.graph.tensor(value)?.shape.clone();
    if dim < shape.len() {
        shape.remove(dim);
    }
    b.view(value, shape)
}

/// The sizes of `view(sizes)` for a tensor of shape `from`, with -1 replaced by the inferred size.
pub(crate) fn resolve(from: &[Expr], sizes: &[Expr]) -> Result<Vec<Expr>, Error> {
    let unknown = sizes.iter().filter(|size| size.is(-1)).count();
    let mismatch = || {
        let list = |sizes: &[Expr]| format!("{:?}", sizes.iter().map(Expr::as_int).collect::<Vec<_>>());
        Error::type_error("a view with another number of elements").expected(list(from)).got(list(sizes))
    };
    if unknown > 1 {
        return Err(mismatch());
    }
    if unknown == 0 {
        let (left, right) = (Expr::product(from), Expr::product(sizes));
        return if left.is_static() && right.is_static() && left != right {
            Err(mismatch())
        } else {
            Ok(sizes.to_vec())
        };
    }
    // Common factors are cancelled first, so that sums divide too.
    let mut left = from.to_vec();
    let mut right = Vec::new();
    for size in sizes.iter().filter(|size| !size.is(-1)) {
        match left.iter().position(|candidate| candidate == size && !size.is(0)) {
            Some(at) => drop(left.remove(at)),
            None => right.push(size.clone()),
        }
    }
    let (left, right) = (Expr::product(&left), Expr::product(&right));
    let rest = left.exact_div(&right).unwrap_or_else(|| left.floor_div(right.clone()));
    if right.is(0) || (left.is_static() && right.is_static() && rest.mul(right) != left) {
        return Err(mismatch());
    }
    Ok(sizes.iter().map(|size| if size.is(-1) { rest.clone() } else { size.clone() }).collect())
}

/// The one tensor type that the operator gives.
fn inferred_shape(b: &Builder<'_>, operands: &Operands<'_>) -> Result<Vec<Expr>, Error> {
    match super::infer(operands, b.graph)?.into_iter().next() {
        Some(Type::Tensor(ty)) => Ok(ty.shape),
        _ => Err(operands.wrong(0, "a tensor")),
    }
}

fn as_view(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let shape = inferred_shape(b, operands)?;
    Ok(Some(vec![b.view(operands.value(0)?, shape)?]))
}

fn as_expansion(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let shape = inferred_shape(b, operands)?;
    Ok(Some(vec![expand(b, operands.value(0)?, shape)?]))
}

fn as_permutation(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dims = order(operands, b.graph)?;
    Ok(Some(vec![permute(b, operands.value(0)?, &dims)?]))
}

fn sized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    Ok(result(tensor.dtype, resolve(&tensor.shape, &operands.exprs(1)?)?))
}

fn like_second(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (tensor, other) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    Ok(result(tensor.dtype, other.shape.clone()))
}

fn raveled(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    Ok(result(tensor.dtype, vec![tensor.numel()]))
}

fn flattened(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let (first, last) = (operands.dim(1, tensor.rank())?, operands.dim(2, tensor.rank())?);
    let Some(inside) = tensor.shape.get(first..(last + 1).min(tensor.rank())) else {
        return if tensor.rank() == 0 {
            Ok(result(tensor.dtype, vec![Expr::Int(1)]))
        } else {
            Err(operands.wrong(1, "a dimension that is not after the last one"))
        };
    };
    let mut shape = tensor.shape.clone();
    let product = Expr::product(inside);
    shape.splice(first..(last + 1).min(tensor.rank()), [product]);
    Ok(result(tensor.dtype, shape))
}

fn unflattened(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let dim = operands.dim(1, tensor.rank())?;
    let size = tensor.shape.get(dim).cloned().ok_or_else(|| operands.wrong(1, "a dimension"))?;
    let mut shape = tensor.shape.clone();
    shape.splice(dim..=dim, resolve(&[size], &operands.exprs(2)?)?);
    Ok(result(tensor.dtype, shape))
}

/// Sizes that depend on inputs are taken to be other than 1, as when the program was exported.
fn squeezed(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let rank = tensor.rank();
    let dims = match operands.exprs(1) {
        Ok(dims) if operands.has(1) && dims.is_empty() => Vec::new(),
        _ => operands.dims_or_all(1, rank)?,
    };
    let keep = |(dim, size): &(usize, &Expr)| !(size.is(1) && dims.contains(dim));
    let shape = tensor.shape.iter().enumerate().filter(keep).map(|(_, size)| size.clone()).collect();
    Ok(result(tensor.dtype, shape))
}

fn unsqueezed(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let mut shape = tensor.shape.clone();
    shape.insert(operands.dim(1, tensor.rank() + 1)?, Expr::Int(1));
    Ok(result(tensor.dtype, shape))
}

/// `atleast_1d`, `atleast_2d` and `atleast_3d`: adds dimensions at the front; a third dimension is added at the end.
fn padded_with_ones(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let min_rank = operands.schema.name.bytes().find(u8::is_ascii_digit).map_or(1, |digit| usize::from(digit - b'0'));
    let mut shape = tensor.shape.clone();
    if min_rank == 3 && tensor.rank() == 2 {
        shape.push(Expr::Int(1));
    } else if min_rank == 3 && tensor.rank() == 1 {
        shape = vec![Expr::Int(1), Expr::product(&shape), Expr::Int(1)];
    }
    while shape.len() < min_rank {
        shape.insert(0, Expr::Int(1));
    }
    Ok(result(tensor.dtype, shape))
}

/// The wanted sizes, where -1 keeps one.
fn expanded(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let mut shape = operands.exprs(1)?;
    let Some(new) = shape.len().checked_sub(tensor.rank()) else {
        return Err(operands.wrong(1, &format!("at least {} sizes", tensor.rank())));
    };
    for (size, from) in shape.iter_mut().skip(new).zip(&tensor.shape) {
        if size.is(-1) {
            size.clone_from(from);
        } else if from.is_static() && size.is_static() && !from.is(1) && from != size {
            return Err(operands.wrong(1, &format!("the size {} where it is not 1", from.as_int().unwrap_or_default())));
        }
    }
    if shape.iter().any(|size| size.is(-1)) {
        return Err(operands.wrong(1, "the sizes of new dimensions"));
    }
    Ok(result(tensor.dtype, shape))
}

fn permuted(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let shape = order(operands, graph)?.into_iter().filter_map(|dim| tensor.shape.get(dim).cloned()).collect();
    Ok(result(tensor.dtype, shape))
}

fn order(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<usize>, Error> {
    permutation(operands, graph)?.ok_or_else(|| operands.wrong(0, "a tensor of other rank"))
}

/// The dimension of the input that each dimension of the result is; `None` for an operator that permutes no dimensions, or
/// none of a tensor of this rank.
///
/// # Errors
/// Dimensions that the tensor does not have or that are given twice, and conjugates of complex numbers.
pub fn permutation(operands: &Operands<'_>, graph: &Graph) -> Result<Option<Vec<usize>>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let rank = tensor.rank();
    let mut dims: Vec<usize> = (0..rank).collect();
    let base = operands.schema.base_name();
    if rank == 0 && matches!(base, aten::MT | aten::packet::MOVEDIM | aten::packet::MOVEAXIS) {
        // PyTorch accepts dimensions 0 and -1 for a tensor without dimensions.
        let mut given = (1..operands.schema.params.len()).map(|index| operands.ints(index));
        let is_one =
            |dims: Result<Vec<i64>, Error>| dims.is_ok_and(|dims| dims.iter().all(|dim| (-1..=0).contains(dim)));
        return if given.all(is_one) { Ok(Some(dims)) } else { Err(operands.wrong(1, "the dimensions 0 or -1")) };
    }
    match base {
        aten::PERMUTE | aten::PERMUTE_COPY => {
            dims = wrapped(operands, 1, rank)?;
            let mut sorted = dims.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..rank) {
                return Err(operands.wrong(1, &format!("each of {rank} dimensions once")));
            }
        }
        aten::NUMPY_T => dims.reverse(),
        aten::T | aten::T_COPY if rank <= 2 => dims.reverse(),
        aten::MH | aten::ADJOINT | aten::MATRIX_H if tensor.dtype.is_complex() => {
            return Err(Error::unsupported(format!("`{base}` of complex numbers")));
        }
        aten::MT | aten::MH | aten::ADJOINT | aten::MATRIX_H if rank >= 2 => dims.swap(rank - 2, rank - 1),
        aten::packet::MOVEDIM | aten::packet::MOVEAXIS => {
            let (from, to) = (wrapped(operands, 1, rank)?, wrapped(operands, 2, rank)?);
            let mut rest = dims.iter().copied().filter(|dim| !from.contains(dim)).collect::<Vec<_>>().into_iter();
            let source = |dim: usize| to.iter().position(|target| *target == dim).and_then(|at| from.get(at).copied());
            let moved: Vec<usize> = dims.iter().filter_map(|dim| source(*dim).or_else(|| rest.next())).collect();
            if moved.len() != rank || from.len() != to.len() {
                return Err(operands.wrong(2, "as many dimensions as the source"));
            }
            dims = moved;
        }
        aten::packet::TRANSPOSE | aten::packet::TRANSPOSE_COPY | aten::SWAPAXES | aten::SWAPDIMS => {
            let (first, second) = (operands.dim(1, rank)?, operands.dim(2, rank)?);
            if rank > 0 {
                dims.swap(first, second);
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(dims))
}

/// Dimensions in the order in which they are given.
fn wrapped(operands: &Operands<'_>, index: usize, rank: usize) -> Result<Vec<usize>, Error> {
    let count = rank as i64;
    let wrap = |dim: i64| if dim < 0 { dim + count } else { dim };
    let dims: Vec<i64> = operands.ints(index)?.into_iter().map(wrap).collect();
    if dims.iter().any(|dim| !(0..count).contains(dim)) {
        return Err(operands.wrong(index, &format!("dimensions of {rank}")));
    }
    Ok(dims.into_iter().map(|dim| dim as usize).collect())
}

fn with_dtype(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let dtype = operands.dtype(1)?.unwrap_or(tensor.dtype);
    let mut shape = tensor.shape.clone();
    let (from, to) = (tensor.dtype.size() as i64, dtype.size() as i64);
    if from != to {
        let last = shape.last_mut().ok_or_else(|| operands.wrong(1, "a dtype of the same size"))?;
        *last = last.mul(from).floor_div(to);
    }
    Ok(result(dtype, shape))
}

fn same_dtype(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let from = operands.tensor(0, b.graph)?.dtype;
    match operands.dtype(1)? {
        Some(to) if to != from => Err(Error::unsupported(format!(
            "the bits of {} as {}: no kernel reinterprets elements",
            from.name(),
            to.name()
        ))),
        _ => identity(b, operands),
    }
}

/// The real dtype of complex numbers.
pub(crate) fn component(dtype: ScalarType) -> ScalarType {
    match dtype {
        ScalarType::ComplexHalf => ScalarType::Half,
        ScalarType::ComplexFloat => ScalarType::Float,
        ScalarType::ComplexDouble => ScalarType::Double,
        other => other,
    }
}

fn real_part(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    Ok(result(component(tensor.dtype), tensor.shape.clone()))
}

fn as_real(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    if !tensor.dtype.is_complex() {
        return Err(operands.wrong(0, "complex numbers"));
    }
    Ok(result(component(tensor.dtype), [tensor.shape.as_slice(), &[Expr::Int(2)]].concat()))
}

fn view_as_real(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.call(aten::VIEW_AS_REAL_COPY, vec![operands.value(0)?.into()]).map(Some)
}

fn real(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    if operands.tensor(0, b.graph)?.dtype.is_complex() { part(b, operands, 0) } else { identity(b, operands) }
}

fn imaginary(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    part(b, operands, 1)
}

fn part(b: &mut Builder<'_>, operands: &Operands<'_>, index: i64) -> Lowered {
    let pairs = b.one(aten::VIEW_AS_REAL_COPY, vec![operands.value(0)?.into()])?;
    b.call(aten::SELECT_COPY_INT, vec![pairs.into(), (-1).into(), index.into()]).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Symbol, Symbols};

    #[test]
    fn what_is_left_of_a_view_is_resolved() {
        let mut symbols = Symbols::new();
        let s: Expr = symbols.push(Symbol { name: "s0".into(), min: 1, max: None }).into();
        let of = |sizes: &[i64]| sizes.iter().map(|size| Expr::Int(*size)).collect::<Vec<_>>();
        assert_eq!(resolve(&of(&[2, 3, 4]), &of(&[-1, 6])).unwrap(), of(&[4, 6]));
        assert_eq!(resolve(&of(&[0, 3]), &of(&[3, -1])).unwrap(), of(&[3, 0]));
        assert!(resolve(&of(&[2, 3]), &of(&[4, -1])).is_err());
        assert!(resolve(&of(&[2, 3]), &of(&[-1, -1])).is_err());
        assert!(resolve(&of(&[0, 3]), &of(&[0, -1])).is_err());
        assert!(resolve(&of(&[2, 3]), &of(&[5])).is_err());
        // A batch of unknown size, merged with known dimensions and taken apart again.
        let images = [s.clone(), Expr::Int(8), Expr::Int(8)];
        assert_eq!(resolve(&images, &[Expr::Int(-1), Expr::Int(64)]).unwrap(), [s.clone(), Expr::Int(64)]);
        assert_eq!(resolve(&images, &[s.clone(), Expr::Int(-1)]).unwrap(), [s.clone(), Expr::Int(64)]);
        // A sum cancels as a whole.
        let tokens = [s.add(1), Expr::Int(12)];
        assert_eq!(resolve(&tokens, &[s.add(1), Expr::Int(3), Expr::Int(-1)]).unwrap()[2], Expr::Int(4));
    }
}
