//! Norms of vectors and matrices.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Graph, Type, ValueId};

use super::decompositions::singular_values;
use super::inference::one;
use super::promotion::to_floating;
use super::reduction::{dim_list, maximum_or, reduced_shape};
use super::unary::real_dtype;
use super::views::permute;
use super::{Definition, Lowered, Operands, composite, compute_dtype, done};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::LINALG_VECTOR_NORM, norm_type, |b, o| vector(b, o, Order::of(o, 1)?)),
    composite(aten::LINALG_NORM, norm_type, linalg_norm),
    composite(aten::LINALG_NORM_ORD_STR, norm_type, linalg_norm),
    composite(aten::LINALG_MATRIX_NORM, norm_type, |b, o| matrix(b, o, Order::of(o, 1)?)),
    composite(aten::LINALG_MATRIX_NORM_STR_ORD, norm_type, |b, o| matrix(b, o, Order::of(o, 1)?)),
    composite(aten::NORM_SCALAR, norm_type, |b, o| vector(b, o, Order::of(o, 1)?)),
    composite(aten::NORM_SCALAROPT_DIM, norm_type, |b, o| vector(b, o, Order::of(o, 1)?)),
    composite(aten::NORM_SCALAROPT_DTYPE, norm_type, |b, o| vector(b, o, Order::of(o, 1)?)),
    composite(aten::NORM_SCALAROPT_DIM_DTYPE, norm_type, |b, o| vector(b, o, Order::of(o, 1)?)),
    composite(aten::NATIVE_NORM, norm_type, |b, o| vector(b, o, Order::of(o, 1)?)),
    composite(aten::NATIVE_NORM_SCALAROPT_DIM_DTYPE, norm_type, |b, o| vector(b, o, Order::of(o, 1)?)),
    composite(aten::FROBENIUS_NORM_DIM, norm_type, |b, o| vector(b, o, Order::P(2.0))),
    composite(aten::RENORM, super::inference::same, renorm),
    composite(aten::EMBEDDING_RENORM, super::inference::same, embedding_renorm),
    composite(aten::NUCLEAR_NORM, norm_type, |b, o| by_singular_values(b, o, Order::Nuclear)),
    composite(aten::NUCLEAR_NORM_DIM, norm_type, |b, o| by_singular_values(b, o, Order::Nuclear)),
    composite(aten::DIST, distance_type, distance),
];

/// The kind of a norm.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    P(f64),
    Frobenius,
    Nuclear,
}

impl Order {
    /// The argument of this position; the Euclidean or Frobenius norm if it is absent.
    fn of(operands: &Operands<'_>, index: usize) -> Result<Self, Error> {
        match operands.arg(index) {
            Arg::None => Ok(Self::P(2.0)),
            Arg::Str(name) if name == "fro" => Ok(Self::Frobenius),
            Arg::Str(name) if name == "nuc" => Ok(Self::Nuclear),
            Arg::Str(_) => Err(operands.wrong(index, "\"fro\" or \"nuc\"")),
            _ => operands.float(index).map(Self::P),
        }
    }
}

/// A real tensor without the dims of the parameter `dim`, in the dtype of the parameter `dtype`, if there are such.
fn norm_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let named = |name: &str| operands.schema.position(name);
    let dims = match named("dim") {
        Some(dim) => operands.dims_or_all(dim, input.rank())?,
        None => (0..input.rank()).collect(),
    };
    let keepdim = named("keepdim").map_or(Ok(false), |index| operands.bool(index))?;
    let dtype = operands.dtype_or(named("dtype").unwrap_or(usize::MAX), to_floating(input.dtype))?;
    one(real_dtype(dtype), reduced_shape(&input.shape, &dims, keepdim))
}

fn vector(b: &mut Builder<'_>, operands: &Operands<'_>, order: Order) -> Lowered {
    let named = |name: &str| operands.schema.position(name).map(|index| operands.arg(index).clone());
    let (dims, keepdim) = (dim_list(&named("dim").unwrap_or(Arg::None)), named("keepdim").unwrap_or(Arg::from(false)));
    let p = match order {
        Order::P(p) => p,
        Order::Frobenius => 2.0,
        Order::Nuclear => return Err(operands.wrong(1, "two dimensions for the nuclear norm")),
    };
    let (x, dtype) = input(b, operands)?;
    let norm = vector_norm(b, x, p, &dims, &keepdim)?;
    b.cast(norm, dtype).and_then(done)
}

/// The input in the dtype that norms are computed in, and the dtype of the result.
fn input(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<(ValueId, ScalarType), Error> {
    let x = operands.value(0)?;
    let given = operands.schema.position("dtype").unwrap_or(usize::MAX);
    let dtype = operands.dtype_or(given, to_floating(b.tensor(x)?.dtype))?;
    let x = if b.tensor(x)?.dtype.is_complex() { b.unary(aten::ABS, x)? } else { x };
    let dtype = real_dtype(dtype);
    Ok((b.cast(x, compute_dtype(dtype))?, dtype))
}

/// `(Σ |x|^p)^(1/p)`, in the dtype of `x`.
pub(crate) fn vector_norm(
    b: &mut Builder<'_>,
    x: ValueId,
    p: f64,
    dims: &Arg,
    keepdim: &Arg,
) -> Result<ValueId, Error> {
    let sum =
        |b: &mut Builder<'_>, x: ValueId| b.one(aten::SUM_DIM_INTLIST, vec![x.into(), dims.clone(), keepdim.clone()]);
    if p == 2.0 {
        let squares = b.mul(x, x)?;
        let sum = sum(b, squares)?;
        return b.unary(aten::SQRT, sum);
    }
    if p == 0.0 {
        let dtype = b.tensor(x)?.dtype;
        let nonzero = b.compare(aten::packet::NE, x, 0)?;
        let ones = b.cast(nonzero, dtype)?;
        return sum(b, ones);
    }
    let magnitude = b.unary(aten::ABS, x)?;
    if p.is_infinite() {
        let name = if p > 0.0 { aten::AMAX } else { aten::AMIN };
        return b.one(name, vec![magnitude.into(), dims.clone(), keepdim.clone()]);
    }
    if p == 1.0 {
        return sum(b, magnitude);
    }
    let powers = b.one(aten::POW_TENSOR_SCALAR, vec![magnitude.into(), Arg::Float(p)])?;
    let sum = sum(b, powers)?;
    b.one(aten::POW_TENSOR_SCALAR, vec![sum.into(), Arg::Float(1.0 / p)])
}

/// Without an order the norm of all elements; else a vector's or matrix's, by the number of dims.
fn linalg_norm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let rank = b.tensor(operands.value(0)?)?.rank();
    let dims = if operands.has(2) { operands.ints(2)?.len() } else { rank };
    let order = Order::of(operands, 1)?;
    if operands.has(1) && dims == 2 { matrix(b, operands, order) } else { vector(b, operands, order) }
}

/// The maximum or minimum of the sums of magnitudes of rows or columns, or the Frobenius norm.
fn matrix(b: &mut Builder<'_>, operands: &Operands<'_>, order: Order) -> Lowered {
    let p = match order {
        Order::Frobenius => return vector(b, operands, Order::P(2.0)),
        Order::P(p) if p.abs() == 1.0 || p.is_infinite() => p,
        Order::P(p) if p.abs() != 2.0 => {
            return Err(operands.wrong(1, "1, 2, an infinity, one of their negatives, \"fro\" or \"nuc\""));
        }
        Order::P(_) | Order::Nuclear => return by_singular_values(b, operands, order),
    };
    let (x, dtype) = input(b, operands)?;
    let (rows, columns) = matrix_dims(b, operands, x)?;
    let (summed, compared) = if p.is_infinite() { (columns, rows) } else { (rows, columns) };
    let magnitude = b.unary(aten::ABS, x)?;
    let sum = vec![magnitude.into(), Arg::from([summed as i64]), Arg::from(true)];
    let sums = b.one(aten::SUM_DIM_INTLIST, sum)?;
    let extremum = if p > 0.0 {
        maximum_or(b, sums, &[compared], 0.0)?
    } else {
        b.one(aten::AMIN, vec![sums.into(), Arg::from([compared as i64]), Arg::from(true)])?
    };
    shaped(b, operands, extremum, dtype)
}

/// The row and column dimensions of matrices, counted from the front.
fn matrix_dims(b: &Builder<'_>, operands: &Operands<'_>, x: ValueId) -> Result<(usize, usize), Error> {
    let rank = b.tensor(x)?.rank();
    let named = operands.schema.position("dim").filter(|index| operands.has(*index));
    let dims = named.map_or(Ok(vec![0, 1]), |index| operands.ints(index))?;
    let index = named.unwrap_or(0);
    if let [rows, columns] = *dims.as_slice() {
        let (rows, columns) = (operands.wrap_dim(index, rows, rank)?, operands.wrap_dim(index, columns, rank)?);
        if rows != columns {
            return Ok((rows, columns));
        }
    }
    Err(operands.wrong(index, "two dimensions"))
}

/// The maximum, minimum or sum of the singular values.
fn by_singular_values(b: &mut Builder<'_>, operands: &Operands<'_>, order: Order) -> Lowered {
    let (x, dtype) = input(b, operands)?;
    let (rows, columns) = matrix_dims(b, operands, x)?;
    let others = (0..b.tensor(x)?.rank()).filter(|dim| *dim != rows && *dim != columns);
    let dims: Vec<usize> = others.chain([rows, columns]).collect();
    let moved = permute(b, x, &dims)?;
    let values = singular_values(b, moved)?;
    let args = vec![values.into(), Arg::from([-1]), Arg::from(true)];
    let norm = match order {
        Order::P(p) if p > 0.0 => maximum_or(b, values, &[dims.len() - 2], 0.0)?,
        Order::P(_) => b.one(aten::AMIN, args)?,
        _ => b.one(aten::SUM_DIM_INTLIST, args)?,
    };
    shaped(b, operands, norm, dtype)
}

/// A norm in the shape and dtype of the result.
fn shaped(b: &mut Builder<'_>, operands: &Operands<'_>, norm: ValueId, dtype: ScalarType) -> Lowered {
    let types = norm_type(operands, b.graph)?;
    let shape = types.first().and_then(Type::as_tensor).map(|tensor| tensor.shape.clone()).unwrap_or_default();
    let norm = b.view(norm, shape)?;
    b.cast(norm, dtype).and_then(done)
}

/// The norm of a difference.
fn distance_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let dtype = super::promote(&[operands.arg(0), operands.arg(1)], graph)?;
    one(dtype, Vec::new())
}

fn distance(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let difference = b.sub(operands.value(0)?, operands.value(1)?)?;
    let p = operands.float(2)?;
    let norm = b.precisely(difference, |b, x| vector_norm(b, x, p, &Arg::List(Vec::new()), &Arg::from(false)))?;
    done(norm)
}

/// Scales down slices along a dimension whose norm exceeds a maximum.
fn renorm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let rank = b.tensor(x)?.rank();
    let (p, dim, max_norm) = (operands.float(1)?, operands.dim(2, rank)?, operands.float(3)?);
    let others: Vec<i64> = (0..rank as i64).filter(|other| *other != dim as i64).collect();
    let value = b.precisely(x, |b, x| {
        let scale = bounding(b, x, p, &others, max_norm)?;
        b.mul(x, scale)
    })?;
    done(value)
}

/// Returns the factors that scale the norms over `dims` down to a maximum; 1 for norms within it.
fn bounding(b: &mut Builder<'_>, x: ValueId, p: f64, dims: &[i64], max_norm: f64) -> Result<ValueId, Error> {
    // PyTorch's guard against a division by 0.
    const GUARD: f64 = 1e-7;
    let norm = vector_norm(b, x, p, &Arg::from(dims), &Arg::from(true))?;
    let guarded = b.add(norm, GUARD)?;
    let reciprocal = b.unary(aten::RECIPROCAL, guarded)?;
    let scale = b.mul(reciprocal, max_norm)?;
    let over = b.compare(aten::packet::GT, norm, max_norm)?;
    b.select(over, scale, 1.0)
}

/// [`renorm`] of the rows that indices name.
fn embedding_renorm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, indices) = (operands.value(0)?, operands.value(1)?);
    let ty = b.tensor(x)?;
    let [rows, _] = ty.shape.as_slice() else { return Err(operands.wrong(0, "a matrix")) };
    let (max_norm, p) = (operands.float(2)?, operands.float(3)?);
    let count = b.tensor(indices)?.numel();
    let indices = b.view(indices, vec![count])?;
    let indices = b.cast(indices, ScalarType::Long)?;
    let none = super::creation::filled(b, vec![rows.clone()].into(), Arg::from(0), ScalarType::Float)?;
    let args = vec![none.into(), Arg::from(0), indices.into(), Arg::from(1)];
    let named = b.one(aten::SCATTER_VALUE, args)?;
    let named = b.view(named, vec![rows.clone(), crate::Expr::Int(1)])?;
    let named = b.compare(aten::packet::GT, named, 0)?;
    let value = b.precisely(x, |b, x| {
        let scale = bounding(b, x, p, &[1], max_norm)?;
        let scale = b.select(named, scale, 1.0)?;
        b.mul(x, scale)
    })?;
    done(value)
}
