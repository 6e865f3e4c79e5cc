//! Variance.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, Writer};
use crate::support::number::Arithmetic;
use crate::support::reduce::{DimSet, Moments, Nest, resize_reduced};
use crate::support::shape::Dims;
use crate::support::tile::Compute;

/// `var.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False, Tensor(a!) out)`
pub const VAR_CORRECTION_OUT: Op = Op::new("aten::var.correction_out", 5, var_correction_out);

/// `var.out(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False, *, Tensor(a!) out)`
pub const VAR_OUT: Op = Op::new("aten::var.out", 5, var_out);

/// `var_mean.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False,
/// Tensor(a!) out0, Tensor(b!) out1)`
pub const VAR_MEAN_CORRECTION_OUT: Op = Op::new("aten::var_mean.correction_out", 6, var_mean_correction_out).outs(2);

pub const OPS: &[Op] = &[VAR_CORRECTION_OUT, VAR_OUT, VAR_MEAN_CORRECTION_OUT];

fn var_correction_out(cx: &KernelContext<'_>) -> Result<()> {
    run(cx, correction(cx)?, cx.bool(3)?, 4, false)
}

fn var_out(cx: &KernelContext<'_>) -> Result<()> {
    run(cx, if cx.bool(2)? { 1.0 } else { 0.0 }, cx.bool(3)?, 4, false)
}

fn var_mean_correction_out(cx: &KernelContext<'_>) -> Result<()> {
    run(cx, correction(cx)?, cx.bool(3)?, 4, true)
}

fn correction(cx: &KernelContext<'_>) -> Result<f64> {
    Ok(cx.optional_double(2)?.unwrap_or(1.0))
}

/// `out` is the position of the variance, which the mean follows if it is asked for.
fn run(cx: &KernelContext<'_>, correction: f64, keepdim: bool, out: usize, with_mean: bool) -> Result<()> {
    let input = cx.tensor(0)?;
    let dims = DimSet::from_list(cx.optional_ints(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let output = |index: usize| -> Result<TensorMut<'_>> {
        let mut tensor = cx.out(index)?;
        if !tensor.dtype().is_floating() {
            return Err(Error::from(Detail::Dtype { expected: "a floating type", got: tensor.dtype() }).arg(index));
        }
        resize_reduced(&mut tensor, &input, dims, keepdim, index)?;
        Ok(tensor)
    };
    if !input.dtype().is_floating() {
        return Err(Error::from(Detail::Dtype { expected: "a floating type", got: input.dtype() }).arg(0));
    }
    let var = output(out)?;
    let mean = if with_mean { Some(output(out + 1)?) } else { None };
    if input.dtype() == ScalarType::Double || var.dtype() == ScalarType::Double {
        variance::<f64>(&input, dims, keepdim, correction, var, mean)
    } else {
        variance::<f32>(&input, dims, keepdim, correction, var, mean)
    }
}

/// The sum of squared deviations from the mean, corrected for the rounding error of the mean, divided by
/// `count - correction`, which is taken as 0 where it is negative.
fn variance<C: Arithmetic + Compute>(
    input: &Tensor<'_>,
    dims: DimSet,
    keepdim: bool,
    correction: f64,
    var: TensorMut<'_>,
    mean: Option<TensorMut<'_>>,
) -> Result<()> {
    let from = Reader::<C>::new(*input)?;
    let rank = input.rank();
    let var_strides = dims.reduced_strides(rank, var.strides(), keepdim)?;
    let mean_strides = match &mean {
        Some(mean) => dims.reduced_strides(rank, mean.strides(), keepdim)?,
        None => Dims::filled(rank, 0)?,
    };
    let nest = Nest::new(input.sizes(), [input.strides(), &var_strides, &mean_strides], dims)?;
    let mut var = Writer::<C>::new(var)?;
    let mut mean = mean.map(Writer::<C>::new).transpose()?;
    let count = nest.count() as f64;
    let divisor = if count > correction { count - correction } else { 0.0 };
    let mut moments = Moments::<C>::new();
    nest.groups(|group| {
        let (means, squares) = moments.measure(group, &from)?;
        for (mean, squares) in means.iter_mut().zip(&mut *squares).take(group.columns) {
            // PyTorch's running mean becomes NaN after an infinity.
            if squares.is_nan() && count > 1.0 {
                *mean = *squares;
            }
            *squares = C::from_f64(squares.to_f64() / divisor);
        }
        var.scatter(group.offsets[1], group.strides()[1], &squares[..group.columns])?;
        match &mut mean {
            Some(mean) => mean.scatter(group.offsets[2], group.strides()[2], &means[..group.columns]),
            None => Ok(()),
        }
    })
}
