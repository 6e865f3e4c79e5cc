//! Sums, means and products.

use rushlight_runtime::{Complex, Detail, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, Writer, dispatch_accumulator};
use crate::support::number::Arithmetic;
use crate::support::reduce::{DimSet, Fold, Product, Sum, check_dtype, reduce, resize_reduced, sum_i32};
use crate::support::tile::Compute;

/// `sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out)`
///
/// Elements are cast to the type of `out` and added in its accumulator type.
pub const SUM_INT_LIST_OUT: Op = Op::new("aten::sum.IntList_out", 5, sum_int_list_out);

/// `mean.out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out)`
pub const MEAN_OUT: Op = Op::new("aten::mean.out", 5, mean_out);

/// `mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out)`
pub const MEAN_DTYPE_OUT: Op = Op::new("aten::mean.dtype_out", 3, mean_dtype_out);

/// `prod.int_out(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out)`
pub const PROD_INT_OUT: Op = Op::new("aten::prod.int_out", 5, prod_int_out);

/// `prod.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out)`
pub const PROD_OUT: Op = Op::new("aten::prod.out", 3, prod_out);

pub const OPS: &[Op] = &[SUM_INT_LIST_OUT, MEAN_OUT, MEAN_DTYPE_OUT, PROD_INT_OUT, PROD_OUT];

fn sum_int_list_out(cx: &KernelContext<'_>) -> Result<()> {
    let (input, keepdim) = (cx.tensor(0)?, cx.bool(2)?);
    let dims = DimSet::from_list(cx.optional_ints(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let mut out = cx.out(4)?;
    check_dtype(cx.optional_int(3)?, out.dtype(), 3)?;
    resize_reduced(&mut out, &input, dims, keepdim, 4)?;
    if input.dtype().is_complex() {
        return complex_sum(&input, dims, out, keepdim);
    }
    if (input.dtype(), out.dtype()) == (ScalarType::Int, ScalarType::Long) && sum_i32(&input, dims, &mut out, keepdim)?
    {
        return Ok(());
    }
    fold_cast::<Sum>(&input, dims, out, keepdim)
}

/// Casts the elements to the type of `out`, then folds them.
fn fold_cast<F>(input: &Tensor<'_>, dims: DimSet, out: TensorMut<'_>, keepdim: bool) -> Result<()>
where
    F: Fold<f32, 1> + Fold<f64, 1> + Fold<i64, 1>,
{
    let dtype = out.dtype();
    if dtype == ScalarType::Bool && input.dtype().is_floating() {
        // Truth must not be lost in a cast of fractions to integers.
        let from = Reader::<f64>::through(*input, dtype)?;
        return reduce::<f64, F>(input, &from, dims, &mut Writer::new(out)?, keepdim, |_| {});
    }
    dispatch_accumulator!(dtype, C => {
        let from = Reader::<C>::through(*input, dtype).map_err(|e| e.arg(0))?;
        reduce::<C, F>(input, &from, dims, &mut Writer::new(out)?, keepdim, |_| {})
    })
}

fn complex_sum(input: &Tensor<'_>, dims: DimSet, out: TensorMut<'_>, keepdim: bool) -> Result<()> {
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(4));
    }
    if input.dtype() == ScalarType::ComplexDouble {
        let from = Reader::<Complex<f64>>::new(*input)?;
        return reduce::<_, Sum>(input, &from, dims, &mut Writer::new(out)?, keepdim, |_| {});
    }
    let from = Reader::<Complex<f32>>::new(*input)?;
    reduce::<_, Sum>(input, &from, dims, &mut Writer::new(out)?, keepdim, |_| {})
}

fn mean_out(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let dims = DimSet::from_list(cx.optional_ints(1)?, input.rank()).map_err(|e| e.arg(1))?;
    mean(cx, dims, cx.bool(2)?, 3)
}

fn mean_dtype_out(cx: &KernelContext<'_>) -> Result<()> {
    mean(cx, DimSet::all(cx.tensor(0)?.rank()), false, 1)
}

/// `dtype` is the position of that argument, which `out` follows.
fn mean(cx: &KernelContext<'_>, dims: DimSet, keepdim: bool, dtype: usize) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(dtype + 1)?);
    let given = cx.optional_int(dtype)?;
    check_dtype(given, out.dtype(), dtype)?;
    if !out.dtype().is_floating() {
        return Err(Error::from(Detail::Dtype { expected: "a floating type", got: out.dtype() }).arg(dtype + 1));
    }
    if given.is_none() && !input.dtype().is_floating() {
        let expected = "a floating type unless dtype is given";
        return Err(Error::from(Detail::Dtype { expected, got: input.dtype() }).arg(0));
    }
    resize_reduced(&mut out, &input, dims, keepdim, dtype + 1)?;
    let count = dims.count(input.sizes());
    if out.dtype() == ScalarType::Double {
        sum_divided::<f64>(&input, dims, out, keepdim, count)
    } else {
        sum_divided::<f32>(&input, dims, out, keepdim, count)
    }
}

fn sum_divided<C: Arithmetic + Compute>(
    input: &Tensor<'_>,
    dims: DimSet,
    out: TensorMut<'_>,
    keepdim: bool,
    count: usize,
) -> Result<()> {
    let from = Reader::<C>::new(*input).map_err(|e| e.arg(0))?;
    reduce::<C, Sum>(input, &from, dims, &mut Writer::new(out)?, keepdim, |sums| {
        for sum in sums {
            *sum = C::from_f64(sum.to_f64() / count as f64);
        }
    })
}

fn prod_int_out(cx: &KernelContext<'_>) -> Result<()> {
    let dims = DimSet::one(cx.int(1)?, cx.tensor(0)?.rank()).map_err(|e| e.arg(1))?;
    prod(cx, dims, cx.bool(2)?, 3)
}

fn prod_out(cx: &KernelContext<'_>) -> Result<()> {
    prod(cx, DimSet::all(cx.tensor(0)?.rank()), false, 1)
}

/// `dtype` is the position of that argument, which `out` follows.
fn prod(cx: &KernelContext<'_>, dims: DimSet, keepdim: bool, dtype: usize) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(dtype + 1)?);
    check_dtype(cx.optional_int(dtype)?, out.dtype(), dtype)?;
    resize_reduced(&mut out, &input, dims, keepdim, dtype + 1)?;
    fold_cast::<Product>(&input, dims, out, keepdim)
}
