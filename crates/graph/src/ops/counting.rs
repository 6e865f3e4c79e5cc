//! Distinct elements, histograms, the most frequent element, and reductions of segments.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::creation::evenly;
use super::inference::{by_data, one, tensor};
use super::reduction::reduced_shape;
use super::slices::select;
use super::{Definition, Lowered, Operands, by_lowering, composite, done, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::_UNIQUE2, by_data),
    kernel(aten::UNIQUE_DIM, by_data),
    kernel(aten::UNIQUE_CONSECUTIVE, by_data),
    kernel(aten::BINCOUNT, by_data),
    kernel(aten::NONZERO_STATIC, places),
    kernel(aten::MODE, most_frequent),
    kernel(aten::SEGMENT_REDUCE, segments),
    kernel(aten::_HISTOGRAMDD_FROM_BIN_TENSORS, counted),
    composite(aten::_HISTOGRAMDD_FROM_BIN_CTS, by_lowering, |b, o| {
        let edges = bin_edges(b, o, &o.ints(1)?, 2)?;
        histogram(b, o, o.value(0)?, &edges, 3).and_then(done)
    }),
    composite(aten::_HISTOGRAMDD_BIN_EDGES, by_lowering, |b, o| bin_edges(b, o, &o.ints(1)?, 2).map(Some)),
    composite(aten::HISTOGRAM_BIN_CT, by_lowering, |b, o| {
        let x = flat(b, o.value(0)?)?;
        let edges = edges_of(b, x, &[o.int(1)?], range(o, 2)?.as_deref())?;
        with_edges(b, o, x, edges, 3)
    }),
    composite(aten::HISTOGRAM_BINS_TENSOR, by_lowering, |b, o| {
        let x = flat(b, o.value(0)?)?;
        with_edges(b, o, x, vec![o.value(1)?], 2)
    }),
    composite(aten::HISTOGRAMDD, by_lowering, |b, o| {
        let edges = bin_edges(b, o, &o.ints(1)?, 2)?;
        with_edges(b, o, o.value(0)?, edges, 3)
    }),
    composite(aten::HISTOGRAMDD_INT_BINS, by_lowering, |b, o| {
        let dims = b.tensor(o.value(0)?)?.shape.last().and_then(Expr::as_int);
        let counts = vec![o.int(1)?; dims.and_then(|dims| usize::try_from(dims).ok()).unwrap_or(0).min(16)];
        let edges = bin_edges(b, o, &counts, 2)?;
        with_edges(b, o, o.value(0)?, edges, 3)
    }),
    composite(aten::HISTOGRAMDD_TENSORLIST_BINS, by_lowering, |b, o| with_edges(b, o, o.value(0)?, o.values(1)?, 3)),
];

/// The type of indices: `[size, rank]`, with the count in parameter 1.
fn places(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let rank = operands.tensor(0, graph)?.rank() as i64;
    one(ScalarType::Long, vec![operands.expr(1)?, Expr::Int(rank)])
}

/// The types of a value and its index along the dimension in parameter 1; parameter 2 is `keepdim`.
fn most_frequent(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let shape = reduced_shape(&input.shape, &[operands.dim(1, input.rank())?], operands.bool(2)?);
    Ok(vec![tensor(input.dtype, shape.clone()), tensor(ScalarType::Long, shape)])
}

/// The type of reduced segments: one for each length, or one fewer than the offsets.
fn segments(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let data = operands.tensor(0, graph)?;
    let axis = operands.dim(5, data.rank())?;
    let (bounds, fewer) = if operands.has(2) { (2, 0) } else { (4, 1) };
    let count = operands.tensor(bounds, graph)?.shape.last().cloned().unwrap_or(Expr::Int(0)).sub(fewer);
    let mut shape = data.shape.clone();
    if let Some(size) = shape.get_mut(axis) {
        *size = count;
    }
    one(data.dtype, shape)
}

/// The type of a histogram: one bin fewer than edges, for each coordinate.
fn counted(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let mut shape = Vec::new();
    for edges in operands.values(1)? {
        shape.push(graph.tensor(edges)?.numel().sub(1));
    }
    one(operands.tensor(0, graph)?.dtype, shape)
}

/// Reshapes all elements to points of one coordinate.
fn flat(b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let count = b.tensor(x)?.numel();
    b.view(x, vec![count, Expr::Int(1)])
}

/// The ends of the ranges in a parameter, two for each dimension.
fn range(operands: &Operands<'_>, index: usize) -> Result<Option<Vec<f64>>, Error> {
    let number = |arg: &Arg| match arg {
        Arg::Float(value) => Ok(*value),
        Arg::Int(Expr::Int(value)) => Ok(*value as f64),
        _ => Err(operands.wrong(index, "numbers")),
    };
    match operands.arg(index) {
        Arg::None => Ok(None),
        Arg::List(items) => items.iter().map(number).collect::<Result<_, _>>().map(Some),
        _ => Err(operands.wrong(index, "a list of numbers")),
    }
}

fn bin_edges(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    counts: &[i64],
    index: usize,
) -> Result<Vec<ValueId>, Error> {
    edges_of(b, operands.value(0)?, counts, range(operands, index)?.as_deref())
}

/// The edges of bins of equal width, for each coordinate of the points. They lie between the ends of the range, or between the extrema.
fn edges_of(b: &mut Builder<'_>, x: ValueId, counts: &[i64], range: Option<&[f64]>) -> Result<Vec<ValueId>, Error> {
    let ty = b.tensor(x)?;
    let Some(coordinates) = ty.shape.last().and_then(Expr::as_int) else {
        return Err(Error::unsupported("a histogram of points whose number of coordinates depends on an input"));
    };
    let fits = range.is_none_or(|range| range.len() == 2 * counts.len());
    if ty.rank() < 2 || counts.len() as i64 != coordinates || !fits || counts.iter().any(|count| *count < 1) {
        return Err(Error::type_error("a histogram takes a number of bins, and two ends, for each coordinate"));
    }
    let mut edges = Vec::new();
    for (dim, &count) in counts.iter().enumerate() {
        super::number::check_computed("aten::histogram", count)?;
        let (low, high) = match range.and_then(|range| range.get(2 * dim..2 * dim + 2)) {
            Some(&[low, high]) if low == high => (b.scalar(low - 0.5, ty.dtype)?, b.scalar(high + 0.5, ty.dtype)?),
            Some(&[low, high]) => (b.scalar(low, ty.dtype)?, b.scalar(high, ty.dtype)?),
            _ => {
                let column = select(b, x, ty.rank() - 1, dim as i64)?;
                let all = Arg::List(Vec::new());
                let low = b.one(aten::AMIN, vec![column.into(), all.clone()])?;
                let high = b.one(aten::AMAX, vec![column.into(), all])?;
                let equal = b.compare(aten::packet::EQ, low, high)?;
                let (less, more) = (b.sub(low, 0.5)?, b.add(high, 0.5)?);
                (b.select(equal, less, low)?, b.select(equal, more, high)?)
            }
        };
        edges.push(evenly(b, low, high, count + 1, ty.dtype)?);
    }
    Ok(edges)
}

/// The histogram between `edges`. Parameter `weight` has the weights, and the next one `density`.
fn histogram(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    x: ValueId,
    edges: &[ValueId],
    weight: usize,
) -> Result<ValueId, Error> {
    let weights = match operands.optional(weight)? {
        Some(weights) => {
            let count = b.tensor(weights)?.numel();
            b.view(weights, vec![count])?.into()
        }
        None => Arg::None,
    };
    let args = vec![x.into(), Arg::from(edges.to_vec()), weights, operands.arg(weight + 1).clone()];
    b.one(aten::_HISTOGRAMDD_FROM_BIN_TENSORS, args)
}

fn with_edges(b: &mut Builder<'_>, operands: &Operands<'_>, x: ValueId, edges: Vec<ValueId>, weight: usize) -> Lowered {
    let counts = histogram(b, operands, x, &edges, weight)?;
    Ok(Some([vec![counts], edges].concat()))
}
