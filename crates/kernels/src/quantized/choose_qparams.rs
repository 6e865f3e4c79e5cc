//! Scales and zero points from the range of values, the way that FBGEMM and ExecuTorch choose them.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor};

use super::params::contiguous;
use crate::support::number::Number;
use crate::support::shape::Dims;

/// `quantized_decomposed::choose_qparams.Tensor_out(Tensor input, int quant_min, int quant_max, float eps,
/// ScalarType dtype, *, Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))`
///
/// As in ExecuTorch, `eps` has no effect: scales below 6.1e-5 are raised to it.
pub const CHOOSE_QPARAMS_TENSOR_OUT: Op =
    Op::new("quantized_decomposed::choose_qparams.Tensor_out", 7, choose_qparams).outs(2);

/// `quantized_decomposed::choose_qparams_per_token_asymmetric.out(Tensor input, ScalarType dtype, *,
/// Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))`
///
/// One pair for each row of the last dimension, for the range of i8.
pub const CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC_OUT: Op =
    Op::new("quantized_decomposed::choose_qparams_per_token_asymmetric.out", 4, choose_qparams_per_token).outs(2);

pub const OPS: &[Op] = &[CHOOSE_QPARAMS_TENSOR_OUT, CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC_OUT];

fn choose_qparams(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let (min, max) = (cx.int(1)?, cx.int(2)?);
    if min >= max || i32::try_from(min).is_err() || i32::try_from(max).is_err() {
        let detail = Detail::Value { what: "quant_min", expected: "an i32 below quant_max, an i32 too", got: min };
        return Err(Error::from(detail).arg(1));
    }
    if input.numel() == 0 {
        return Err(Error::invalid("an empty tensor has no range").arg(0));
    }
    let (mut scale_out, mut zero_point_out) = (cx.out(5)?, cx.out(6)?);
    let scales = scale_out.as_mut_slice::<f64>().map_err(|e| e.arg(5))?;
    let zero_points = zero_point_out.as_mut_slice::<i64>().map_err(|e| e.arg(6))?;
    let ([scale], [zero_point]) = (scales, zero_points) else {
        return Err(Error::invalid("the scale and the zero point must have one element each").arg(5));
    };
    let (low, high) = dispatch!(FLOATHBF16, floats(&input)?, T => Ok::<_, Error>(range(input.as_slice::<T>()?)))?;
    (*scale, *zero_point) = qparams(low, high, min as i32, max as i32);
    Ok(())
}

fn choose_qparams_per_token(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    contiguous(&input).map_err(|e| e.arg(0))?;
    let Some((&length, _)) = input.sizes().split_last() else {
        return Err(Error::from(Detail::Rank { expected: "at least 1", got: 0 }).arg(0));
    };
    let mut sizes = Dims::from_slice(input.sizes())?;
    if let Some(last) = sizes.last_mut() {
        *last = 1;
    }
    let (mut scale_out, mut zero_point_out) = (cx.out(2)?, cx.out(3)?);
    scale_out.resize(&sizes).map_err(|e| e.arg(2))?;
    zero_point_out.resize(&sizes).map_err(|e| e.arg(3))?;
    contiguous(&scale_out.as_tensor()).map_err(|e| e.arg(2))?;
    contiguous(&zero_point_out.as_tensor()).map_err(|e| e.arg(3))?;
    let scales = scale_out.as_mut_slice::<f64>().map_err(|e| e.arg(2))?;
    let zero_points = zero_point_out.as_mut_slice::<i64>().map_err(|e| e.arg(3))?;
    if length == 0 && !scales.is_empty() {
        return Err(Error::invalid("an empty tensor has no range").arg(0));
    }
    dispatch!(FLOATHBF16, floats(&input)?, T => {
        let rows = input.as_slice::<T>()?.chunks_exact(length.max(1));
        for ((row, scale), zero_point) in rows.zip(scales).zip(zero_points) {
            let (low, high) = range(row);
            (*scale, *zero_point) = qparams(low, high, -128, 127);
        }
        Ok(())
    })
}

fn floats(input: &Tensor<'_>) -> Result<ScalarType> {
    match input.dtype() {
        dtype @ (ScalarType::Float | ScalarType::Half | ScalarType::BFloat16) => Ok(dtype),
        got => Err(Error::from(Detail::Dtype { expected: "f32, f16 or bf16", got }).arg(0)),
    }
}

/// The smallest and largest of the values and zero. NaN counts as neither.
fn range<T: Number>(values: &[T]) -> (f32, f32) {
    const LANES: usize = 8;
    let (mut low, mut high) = ([0.0f32; LANES], [0.0f32; LANES]);
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let x = chunk[lane].to_f32();
            low[lane] = if x < low[lane] { x } else { low[lane] };
            high[lane] = if x > high[lane] { x } else { high[lane] };
        }
    }
    let mut result = (0.0f32, 0.0f32);
    for x in low.into_iter().chain(high).chain(rest.iter().map(|x| x.to_f32())) {
        result = (if x < result.0 { x } else { result.0 }, if x > result.1 { x } else { result.1 });
    }
    result
}

/// Scales below this are raised to it, because their reciprocals would be too large.
const SMALLEST_SCALE: f32 = 6.1e-5;

/// Scale and zero point for values in `low..=high`, which contains 0, and integers in `min..=max`. Zero is exactly
/// representable. The zero point is computed from the end of the range where rounding errs less.
fn qparams(mut low: f32, mut high: f32, min: i32, max: i32) -> (f64, i64) {
    let steps = f64::from(max) - f64::from(min);
    let mut scale = (f64::from(high) - f64::from(low)) / steps;
    if scale as f32 == 0.0 || (1.0 / scale as f32).is_infinite() {
        scale = 0.1;
    }
    if scale < f64::from(SMALLEST_SCALE) {
        let growth = SMALLEST_SCALE / scale as f32;
        scale = f64::from(SMALLEST_SCALE);
        if low == 0.0 {
            high = SMALLEST_SCALE * steps as f32;
        } else if high == 0.0 {
            low = -SMALLEST_SCALE * steps as f32;
        } else {
            low *= growth;
            high *= growth;
        }
    }
    let (min, max) = (f64::from(min), f64::from(max));
    let (low, high) = (f64::from(low) / scale, f64::from(high) / scale);
    let zero_point = if min.abs() - low.abs() < max.abs() - high.abs() { min - low } else { max - high };
    let zero_point = f64::from(libm::rintf(zero_point.clamp(min, max) as f32));
    (scale, zero_point as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_contains_zero() {
        assert_eq!(range(&[2.0f32, 3.0]), (0.0, 3.0));
        assert_eq!(range(&[-1.0f32, f32::NAN, -4.0, 5.0, 1.0, 1.0, 1.0, 1.0, 9.0]), (-4.0, 9.0));
    }

    #[test]
    fn known_pairs() {
        let (scale, zero_point) = qparams(0.0, 255.0, 0, 255);
        assert_eq!((scale, zero_point), (1.0, 0));
        let (scale, zero_point) = qparams(-1.0, 1.0, -128, 127);
        assert_eq!((scale, zero_point), (2.0 / 255.0, 0));
        assert_eq!(qparams(0.0, 0.0, -128, 127).0, 0.1);
        assert_eq!(qparams(0.0, 1e-9, 0, 255), (f64::from(SMALLEST_SCALE), 0));
        assert_eq!(qparams(f32::NEG_INFINITY, 1.0, 0, 255).0, f64::INFINITY);
    }
}
