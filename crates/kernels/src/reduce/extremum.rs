//! Largest and smallest values. NaN counts as larger, and as smaller, than every number.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, TensorMut};

use crate::support::access::{Reader, Writer, dispatch_accumulator};
use crate::support::reduce::{DimSet, Fold, Max, Min, reduce, resize_reduced};

/// `amax.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out)`
pub const AMAX_OUT: Op = Op::new("aten::amax.out", 4, amax);

/// `amin.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out)`
pub const AMIN_OUT: Op = Op::new("aten::amin.out", 4, amin);

/// `max.unary_out(Tensor self, *, Tensor(a!) out)`
///
/// Of no elements: the least value of the type of `out`, as in ExecuTorch.
pub const MAX_UNARY_OUT: Op = Op::new("aten::max.unary_out", 2, max_unary);

/// `min.unary_out(Tensor self, *, Tensor(a!) out)`
///
/// Of no elements: the greatest value of the type of `out`, as in ExecuTorch.
pub const MIN_UNARY_OUT: Op = Op::new("aten::min.unary_out", 2, min_unary);

pub const OPS: &[Op] = &[AMAX_OUT, AMIN_OUT, MAX_UNARY_OUT, MIN_UNARY_OUT];

// Functions without parameters are compiled once, in this crate; a constant with those of one for any order would have them
// compiled again in every crate that reads it.
fn amax(cx: &KernelContext<'_>) -> Result<()> {
    over_dims::<Max>(cx)
}

fn amin(cx: &KernelContext<'_>) -> Result<()> {
    over_dims::<Min>(cx)
}

fn max_unary(cx: &KernelContext<'_>) -> Result<()> {
    over_all::<Max>(cx, &LEAST)
}

fn min_unary(cx: &KernelContext<'_>) -> Result<()> {
    over_all::<Min>(cx, &GREATEST)
}

fn over_dims<F>(cx: &KernelContext<'_>) -> Result<()>
where
    F: Fold<f32, 1> + Fold<f64, 1> + Fold<i64, 1>,
{
    let (input, keepdim) = (cx.tensor(0)?, cx.bool(2)?);
    let dims = DimSet::from_list(Some(cx.ints(1)?), input.rank()).map_err(|e| e.arg(1))?;
    let mut out = cx.out(3)?;
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(3));
    }
    resize_reduced(&mut out, &input, dims, keepdim, 3)?;
    if dims.count(input.sizes()) == 0 && out.numel() > 0 {
        return Err(Error::invalid("an empty dimension has no extremum").arg(0));
    }
    dispatch_accumulator!(input.dtype(), C => {
        let from = Reader::<C>::new(input).map_err(|e| e.arg(0))?;
        reduce::<C, F>(&input, &from, dims, &mut Writer::new(out)?, keepdim, |_| {})
    })
}

fn over_all<F>(cx: &KernelContext<'_>, of_none: &Bound) -> Result<()>
where
    F: Fold<f32, 1> + Fold<f64, 1> + Fold<i64, 1>,
{
    let (input, mut out) = (cx.tensor(0)?, cx.out(1)?);
    let dims = DimSet::all(input.rank());
    resize_reduced(&mut out, &input, dims, false, 1)?;
    let (from_dtype, to_dtype) = (input.dtype(), out.dtype());
    if from_dtype.is_floating() && !to_dtype.is_floating() || to_dtype == ScalarType::Bool && from_dtype != to_dtype {
        return Err(Error::from(Detail::Dtype { expected: "a type that the input casts to", got: to_dtype }).arg(1));
    }
    if input.numel() == 0 {
        return fill(out, of_none);
    }
    dispatch_accumulator!(from_dtype, C => {
        let from = Reader::<C>::new(input).map_err(|e| e.arg(0))?;
        reduce::<C, F>(&input, &from, dims, &mut Writer::new(out)?, false, |_| {})
    })
}

/// The bound of each integer type, by size and sign, and of the floats.
struct Bound {
    float: f64,
    signed: i64,
    unsigned: i64,
}

const LEAST: Bound = Bound { float: f64::NEG_INFINITY, signed: i64::MIN, unsigned: 0 };
const GREATEST: Bound = Bound { float: f64::INFINITY, signed: i64::MAX, unsigned: -1 };

fn fill(out: TensorMut<'_>, bound: &Bound) -> Result<()> {
    let dtype = out.dtype();
    if dtype.is_floating() {
        return Writer::new(out)?.scatter(0, 1, &[bound.float]);
    }
    let unsigned = matches!(dtype, ScalarType::Byte | ScalarType::Bool);
    let signed = bound.signed >> (64 - 8 * dtype.size().min(8));
    Writer::new(out)?.scatter(0, 1, &[if unsigned { bound.unsigned } else { signed }])
}
