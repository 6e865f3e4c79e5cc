//! Reductions of segments of a dimension.

use rushlight_runtime::{Detail, Element, Error, KernelContext, Op, OpGroup, Result, Scalar, Tensor};

use crate::support::number::Number;
use crate::support::shape::Dims;

/// `segment_reduce.out(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, int axis=0,
/// bool unsafe=False, Scalar? initial=None, Tensor(a!) out)`
///
/// The last dimension of the lengths or offsets belongs to the axis; the dimensions before are batches. Without an initial value, an empty
/// segment gives 0, 1 (`prod`), an infinity (`max`, `min`) or NaN (`mean`).
pub const SEGMENT_REDUCE_OUT: Op = Op::new("aten::segment_reduce.out", 9, segment_reduce);

pub const OPS: OpGroup = &[SEGMENT_REDUCE_OUT];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
}

fn segment_reduce(cx: &KernelContext<'_>) -> Result<()> {
    let (data, axis) = (cx.tensor(0)?, cx.int(5)?);
    let reduction = match cx.string(1)? {
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        "max" => Reduction::Max,
        "min" => Reduction::Min,
        "prod" => Reduction::Prod,
        _ => return Err(Error::invalid("the reduction is not sum, mean, max, min or prod").arg(1)),
    };
    let initial = cx.optional_scalar(7)?.map(Scalar::to_f64);
    let (bounds, argument, are_offsets) = match (cx.optional_tensor(2)?, cx.optional_tensor(4)?) {
        (Some(lengths), None) => (lengths, 2, false),
        (None, Some(offsets)) => (offsets, 4, true),
        _ => return Err(Error::invalid("either lengths or offsets must be given").arg(2)),
    };
    let axis = usize::try_from(axis).ok().filter(|axis| *axis < data.rank() && axis + 1 == bounds.rank());
    let Some(axis) = axis else {
        return Err(Error::invalid("the axis is not the last dimension of lengths or offsets").arg(5));
    };
    if bounds.sizes()[..axis] != data.sizes()[..axis] {
        return Err(Error::invalid("the batches of lengths or offsets are not those of the data").arg(argument));
    }
    let entries = bounds.size(axis);
    let segments = if are_offsets { entries.saturating_sub(1) } else { entries };
    let mut out = cx.out(8)?;
    if out.dtype() != data.dtype() {
        return Err(Error::from(Detail::ElementType { expected: data.dtype(), got: out.dtype() }).arg(8));
    }
    let mut sizes = Dims::from_slice(data.sizes())?;
    sizes[axis] = segments;
    out.resize(&sizes).map_err(|e| e.arg(8))?;
    for tensor in [&data, &bounds, &out.as_tensor()] {
        if !tensor.is_contiguous() {
            return Err(Error::invalid("segments are reduced in row-major order").arg(0));
        }
    }
    let batches: usize = data.sizes()[..axis].iter().product();
    let inner: usize = data.sizes()[axis + 1..].iter().product();
    let (length, entry) = (data.size(axis), |at: usize| entry(&bounds, at).map_err(|e| e.arg(argument)));
    dispatch!(FLOATHBF16, data.dtype(), T => {
        let (from, to) = (data.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        for batch in 0..batches {
            let mut next = 0;
            for segment in 0..segments {
                let (start, end) = if are_offsets {
                    (entry(batch * entries + segment)?, entry(batch * entries + segment + 1)?)
                } else {
                    (next, entry(batch * entries + segment)?.saturating_add(next))
                };
                next = end;
                if start > end || end > length {
                    return Err(Error::from(Detail::Index { index: end as i64, size: length }).arg(argument));
                }
                let rows = |column: usize| (start..end).map(move |row| (batch * length + row) * inner + column);
                for column in 0..inner {
                    let elements = rows(column).filter_map(|at| from.get(at));
                    if let Some(slot) = to.get_mut((batch * segments + segment) * inner + column) {
                        *slot = reduce(reduction, initial, elements, end - start);
                    }
                }
            }
        }
        Ok(())
    })
}

/// A length or an offset.
fn entry(bounds: &Tensor<'_>, at: usize) -> Result<usize> {
    let value = dispatch!(INT, bounds.dtype(), T => {
        Ok::<_, Error>(bounds.as_slice::<T>()?.get(at).map_or(0, |x| x.to_i64()))
    })?;
    let fault = Detail::Value { what: "a length or offset", expected: "not negative", got: value };
    usize::try_from(value).map_err(|_| fault.into())
}

fn reduce<'e, T: Number + Element>(
    reduction: Reduction,
    initial: Option<f64>,
    elements: impl Iterator<Item = &'e T>,
    count: usize,
) -> T {
    let start = initial.unwrap_or(match reduction {
        Reduction::Sum | Reduction::Mean => 0.0,
        Reduction::Max => f64::NEG_INFINITY,
        Reduction::Min => f64::INFINITY,
        Reduction::Prod => 1.0,
    });
    let value = elements.map(|x| x.to_f64()).fold(start, |value, x| match reduction {
        Reduction::Sum | Reduction::Mean => value + x,
        Reduction::Prod => value * x,
        _ if value.is_nan() || x.is_nan() => f64::NAN,
        Reduction::Max => value.max(x),
        Reduction::Min => value.min(x),
    });
    let mean = reduction == Reduction::Mean;
    T::from_f64(match count {
        0 if mean && initial.is_none() => f64::NAN,
        0 => value,
        _ if mean => value / count as f64,
        _ => value,
    })
}
