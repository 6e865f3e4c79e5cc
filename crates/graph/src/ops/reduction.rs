//! Reductions over dimensions: sums, means, extrema, variances and the like.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::creation::filled;
use super::inference::{one, tensor};
use super::promotion::{category, to_floating};
use super::{Definition, Lowered, Operands, composite, compute_dtype, done, forward, kernel};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::SUM, |o, g| total(o, g, 1, summed), |b, o| over_all(b, o, aten::SUM_DIM_INTLIST, 1)),
    kernel(aten::SUM_DIM_INTLIST, |o, g| reduced_to(o, g, 3, summed)),
    composite(aten::NANSUM, |o, g| reduced_to(o, g, 3, summed), nansum),
    kernel(aten::PROD, |o, g| total(o, g, 1, summed)),
    kernel(aten::PROD_DIM_INT, |o, g| reduced_to(o, g, 3, summed)),
    kernel(aten::MEAN, |o, g| total(o, g, 1, to_floating)),
    kernel(aten::MEAN_DIM, |o, g| reduced_to(o, g, 3, to_floating)),
    composite(aten::NANMEAN, |o, g| reduced_to(o, g, 3, to_floating), nanmean),
    kernel(aten::AMAX, reduced),
    kernel(aten::AMIN, reduced),
    kernel(aten::MAX, |o, g| total(o, g, usize::MAX, |dtype| dtype)),
    kernel(aten::MIN, |o, g| total(o, g, usize::MAX, |dtype| dtype)),
    kernel(aten::MAX_DIM, with_indices),
    kernel(aten::MIN_DIM, with_indices),
    composite(aten::AMINMAX, aminmax_type, aminmax),
    composite(aten::_AMINMAX, aminmax_type, aminmax),
    composite(aten::_AMINMAX_DIM, aminmax_type, aminmax),
    kernel(aten::ARGMAX, position),
    kernel(aten::ARGMIN, position),
    kernel(aten::ANY, |o, g| total(o, g, usize::MAX, truth)),
    kernel(aten::ANY_DIM, |o, g| reduced_to(o, g, usize::MAX, truth)),
    kernel(aten::ANY_DIMS, truth_over),
    composite(aten::ALL, |o, g| total(o, g, usize::MAX, truth), |b, o| all(b, o, aten::ANY)),
    composite(aten::ALL_DIM, |o, g| reduced_to(o, g, usize::MAX, truth), |b, o| all(b, o, aten::ANY_DIM)),
    composite(aten::ALL_DIMS, truth_over, |b, o| all(b, o, aten::ANY_DIMS)),
    composite(aten::_IS_ALL_TRUE, |o, g| total(o, g, usize::MAX, truth), |b, o| forward(b, o, aten::ALL)),
    composite(aten::_IS_ANY_TRUE, |o, g| total(o, g, usize::MAX, truth), |b, o| forward(b, o, aten::ANY)),
    composite(aten::COUNT_NONZERO, count_type, count_nonzero),
    composite(aten::COUNT_NONZERO_DIM_INTLIST, count_type, count_nonzero),
    kernel(aten::VAR_CORRECTION, |o, g| reduced_with(o, g, 3)),
    kernel(aten::VAR_DIM, |o, g| reduced_with(o, g, 3)),
    composite(aten::VAR, |o, g| total(o, g, usize::MAX, |dtype| dtype), |b, o| unbiased(b, o, aten::VAR_CORRECTION)),
    composite(aten::STD_CORRECTION, |o, g| reduced_with(o, g, 3), std),
    composite(aten::STD_DIM, |o, g| reduced_with(o, g, 3), |b, o| unbiased(b, o, aten::STD_CORRECTION)),
    composite(aten::STD, |o, g| total(o, g, usize::MAX, |dtype| dtype), |b, o| unbiased(b, o, aten::STD_CORRECTION)),
    kernel(aten::VAR_MEAN_CORRECTION, twice),
    composite(aten::VAR_MEAN_DIM, twice, |b, o| unbiased(b, o, aten::VAR_MEAN_CORRECTION)),
    composite(aten::VAR_MEAN, twice, |b, o| unbiased(b, o, aten::VAR_MEAN_CORRECTION)),
    composite(aten::STD_MEAN_CORRECTION, twice, std_mean),
    composite(aten::STD_MEAN_DIM, twice, |b, o| unbiased(b, o, aten::STD_MEAN_CORRECTION)),
    composite(aten::STD_MEAN, twice, |b, o| unbiased(b, o, aten::STD_MEAN_CORRECTION)),
    composite(aten::TRACE, |o, g| total(o, g, usize::MAX, summed), trace),
    composite(aten::LOGSUMEXP, |o, g| reduced_to(o, g, usize::MAX, to_floating), logsumexp),
    composite(aten::SPECIAL_LOGSUMEXP, |o, g| reduced_to(o, g, usize::MAX, to_floating), logsumexp),
];

/// Sums and products of integers are `i64`.
fn summed(dtype: ScalarType) -> ScalarType {
    if category(dtype) < 2 { ScalarType::Long } else { dtype }
}

/// True if any or all are true; bytes give bytes.
fn truth(dtype: ScalarType) -> ScalarType {
    if dtype == ScalarType::Byte { ScalarType::Byte } else { ScalarType::Bool }
}

/// One element, in the dtype of parameter `dtype`, or else in what `natural` says.
fn total(
    operands: &Operands<'_>,
    graph: &Graph,
    dtype: usize,
    natural: fn(ScalarType) -> ScalarType,
) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(operands.dtype_or(dtype, natural(input.dtype))?, Vec::new())
}

/// The dims in parameter 1, kept as in parameter 2, and a dtype as in [`total`].
fn reduced_to(
    operands: &Operands<'_>,
    graph: &Graph,
    dtype: usize,
    natural: fn(ScalarType) -> ScalarType,
) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let dims = operands.dims_or_all(1, input.rank())?;
    one(operands.dtype_or(dtype, natural(input.dtype))?, reduced_shape(&input.shape, &dims, operands.bool(2)?))
}

/// The dims in parameter 1, kept as in parameter 2.
fn reduced(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    reduced_to(operands, graph, usize::MAX, |dtype| dtype)
}

/// The dims in parameter 1, kept as in parameter `keepdim`.
fn reduced_with(operands: &Operands<'_>, graph: &Graph, keepdim: usize) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let dims = operands.dims_or_all(1, input.rank())?;
    one(super::unary::real_dtype(input.dtype), reduced_shape(&input.shape, &dims, operands.bool(keepdim)?))
}

/// A shape without some of its dimensions, or with 1 in their place.
pub(crate) fn reduced_shape(shape: &[Expr], dims: &[usize], keepdim: bool) -> Vec<Expr> {
    let sizes = shape.iter().enumerate().filter(|(dim, _)| keepdim || !dims.contains(dim));
    sizes.map(|(dim, size)| if dims.contains(&dim) { Expr::Int(1) } else { size.clone() }).collect()
}

/// True if any or all are true over dims, where an empty list means none.
fn truth_over(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    if operands.has(1) && operands.ints(1)?.is_empty() {
        return one(truth(input.dtype), input.shape.clone());
    }
    reduced_to(operands, graph, usize::MAX, truth)
}

/// The values along dim 1, kept as in parameter 2, with their positions.
fn with_indices(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let shape = reduced_shape(&input.shape, &[operands.dim(1, input.rank())?], operands.bool(2)?);
    Ok(vec![tensor(input.dtype, shape.clone()), tensor(ScalarType::Long, shape)])
}

fn position(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    reduced_to(operands, graph, usize::MAX, |_| ScalarType::Long)
}

fn aminmax_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let mut types = match operands.schema.params.len() {
        1 => total(operands, graph, usize::MAX, |dtype| dtype)?,
        _ => reduced(operands, graph)?,
    };
    types.extend(types.clone());
    Ok(types)
}

fn aminmax(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dims = dim_list(operands.arg(1));
    let keepdim = Arg::from(operands.schema.params.len() > 1 && operands.bool(2)?);
    let args = vec![operands.arg(0).clone(), dims, keepdim];
    Ok(Some(vec![b.one(aten::AMIN, args.clone())?, b.one(aten::AMAX, args)?]))
}

/// An optional dimension or list of them as a list.
pub(crate) fn dim_list(arg: &Arg) -> Arg {
    match arg {
        Arg::None => Arg::List(Vec::new()),
        Arg::Int(_) => Arg::List(vec![arg.clone()]),
        list => list.clone(),
    }
}

fn count_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(ScalarType::Long, reduced_shape(&input.shape, &operands.dims_or_all(1, input.rank())?, false))
}

fn count_nonzero(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let nonzero = is_nonzero(b, operands.value(0)?)?;
    b.one(aten::SUM_DIM_INTLIST, vec![nonzero.into(), dim_list(operands.arg(1)), Arg::from(false)]).and_then(done)
}

/// True if each element is not zero.
fn is_nonzero(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    if b.tensor(x)?.dtype == ScalarType::Bool { Ok(x) } else { b.compare(aten::packet::NE, x, 0) }
}

/// A reduction of all dimensions as one over a list of them; a dtype may follow.
fn over_all(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str, dtype: usize) -> Lowered {
    let args = vec![operands.arg(0).clone(), Arg::List(Vec::new()), Arg::from(false), operands.arg(dtype).clone()];
    b.one(name, args).and_then(done)
}

/// A sum in which NaN counts as zero.
fn nansum(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let numbers = if category(b.tensor(x)?.dtype) == 2 {
        let nan = b.unary(aten::ISNAN, x)?;
        b.select(nan, 0, x)?
    } else {
        x
    };
    let mut args = operands.args.to_vec();
    if let Some(first) = args.first_mut() {
        *first = numbers.into();
    }
    b.one(aten::SUM_DIM_INTLIST, args).and_then(done)
}

fn nanmean(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let nan = b.unary(aten::ISNAN, operands.value(0)?)?;
    let number = b.unary(aten::LOGICAL_NOT, nan)?;
    let count = vec![number.into(), operands.arg(1).clone(), operands.arg(2).clone()];
    let (sum, count) = (b.one(aten::NANSUM, operands.args.to_vec())?, b.one(aten::SUM_DIM_INTLIST, count)?);
    b.div(sum, count).and_then(done)
}

/// All are true if none is false.
fn all(b: &mut Builder<'_>, operands: &Operands<'_>, any: &str) -> Lowered {
    let x = operands.value(0)?;
    let dtype = b.tensor(x)?.dtype;
    let mut args = operands.args.to_vec();
    if let Some(first) = args.first_mut() {
        *first = b.unary(aten::LOGICAL_NOT, x)?.into();
    }
    let any_false = b.one(any, args)?;
    let all = b.unary(aten::LOGICAL_NOT, any_false)?;
    b.cast(all, truth(dtype)).and_then(done)
}

/// The overload with a correction, for one that says whether to divide by one less than the count.
fn unbiased(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    let flag = operands.schema.position("unbiased").unwrap_or(1);
    let correction = Arg::from(i64::from(operands.bool(flag)?));
    let (dims, keepdim) =
        if flag == 1 { (Arg::None, Arg::from(false)) } else { (operands.arg(1).clone(), operands.arg(3).clone()) };
    b.call(name, vec![operands.arg(0).clone(), dims, correction, keepdim]).map(Some)
}

/// Two tensors, each as [`reduced`]; overloads without dims reduce all.
fn twice(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let mut types = match operands.schema.position("keepdim") {
        Some(keepdim) => reduced_with(operands, graph, keepdim)?,
        None => total(operands, graph, usize::MAX, |dtype| dtype)?,
    };
    types.extend(types.clone());
    Ok(types)
}

/// A variance may be beyond half precision where its root is not.
fn std(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let options = operands.args.get(1..).unwrap_or_default();
    let root = |b: &mut Builder<'_>, x: ValueId| {
        let variance = b.one(aten::VAR_CORRECTION, [&[x.into()], options].concat())?;
        b.unary(aten::SQRT, variance)
    };
    b.precisely(operands.value(0)?, root).and_then(done)
}

fn std_mean(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dtype = b.tensor(x)?.dtype;
    let wide = b.cast(x, compute_dtype(dtype))?;
    let options = operands.args.get(1..).unwrap_or_default();
    let mut results = b.call(aten::VAR_MEAN_CORRECTION, [&[wide.into()], options].concat())?;
    if let Some(variance) = results.first_mut() {
        *variance = b.unary(aten::SQRT, *variance)?;
    }
    results.into_iter().map(|result| b.cast(result, dtype)).collect::<Result<_, _>>().map(Some)
}

/// The sum of the diagonal.
fn trace(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let diagonal = b.one(aten::DIAGONAL_COPY, vec![operands.arg(0).clone()])?;
    b.unary(aten::SUM, diagonal).and_then(done)
}

/// Returns the maximum over dimensions, which are kept with size 1. For empty dimensions it is `default`, which must be
/// a lower bound of all elements.
pub(crate) fn maximum_or(b: &mut Builder<'_>, x: ValueId, dims: &[usize], default: f64) -> Result<ValueId, Error> {
    let ty = b.tensor(x)?;
    // One padding element for each dimension that may be empty: pairs of left and right, from the innermost dimension
    // outwards.
    let mut padding = vec![0; 2 * ty.rank()];
    for ((dim, size), pair) in ty.shape.iter().enumerate().rev().zip(padding.chunks_mut(2)) {
        if !dims.contains(&dim) {
            continue;
        }
        let (low, high) = size.range(&b.graph.symbols);
        if high == Some(0) {
            return filled(b, reduced_shape(&ty.shape, dims, true).into(), Arg::Float(default), ty.dtype);
        }
        if let (true, [_, right]) = (low.is_none_or(|low| low < 1), pair) {
            *right = 1;
        }
    }
    let x = if padding.contains(&1) {
        b.one(aten::CONSTANT_PAD_ND, vec![x.into(), padding.as_slice().into(), Arg::Float(default)])?
    } else {
        x
    };
    let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    b.one(aten::AMAX, vec![x.into(), dims.as_slice().into(), Arg::from(true)])
}

/// `max + log(sum(exp(x - max)))`, where an infinite maximum is left out so that no NaN arises.
fn logsumexp(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let x = b.cast(x, to_floating(b.tensor(x)?.dtype))?;
    let (dims, keepdim) = (operands.arg(1).clone(), operands.bool(2)?);
    let reduced = operands.dims_or_all(1, b.tensor(x)?.rank())?;
    let value = b.precisely(x, |b, x| {
        let maximum = maximum_or(b, x, &reduced, f64::NEG_INFINITY)?;
        let infinite = b.unary(aten::ISINF, maximum)?;
        let offset = b.select(infinite, 0, maximum)?;
        let shifted = b.sub(x, offset)?;
        let exponential = b.unary(aten::EXP, shifted)?;
        let sum = b.one(aten::SUM_DIM_INTLIST, vec![exponential.into(), dims, Arg::from(keepdim)])?;
        let log = b.unary(aten::LOG, sum)?;
        let shape = b.tensor(log)?.shape;
        let offset = b.view(offset, shape)?;
        b.add(log, offset)
    })?;
    done(value)
}
