//! Scales and zero points from the range of values, as PyTorch chooses them. NaN is not part of a range.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor};

use super::params::contiguous;
use crate::support::number::Number;
use crate::support::shape::Dims;

/// `quantized_decomposed::choose_qparams.Tensor_out(Tensor input, int quant_min, int quant_max, float eps,
/// ScalarType dtype, *, Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))`
///
/// `eps` is the smallest scale.
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
    for (out, index) in [(&mut scale_out, 5), (&mut zero_point_out, 6)] {
        out.resize(&Dims::filled(out.rank(), 1)?).map_err(|e| e.arg(index))?;
    }
    let scales = scale_out.as_mut_slice::<f64>().map_err(|e| e.arg(5))?;
    let zero_points = zero_point_out.as_mut_slice::<i64>().map_err(|e| e.arg(6))?;
    let ([scale], [zero_point]) = (scales, zero_points) else {
        return Err(Error::invalid("the scale and the zero point must have one element each"));
    };
    let eps = cx.double(3)? as f32;
    dispatch!(FLOATHBF16, floats(&input)?, T => {
        let (low, high) = range(input.as_slice::<T>()?);
        (*scale, *zero_point) = qparams::<T>(low, high, (min as f32, max as f32), eps);
        Ok(())
    })
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
            (*scale, *zero_point) = token_qparams::<T>(low, high);
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

/// Scale and zero point for values in `low..=high`, which contains 0, and the integers of a range. The scale is
/// computed in the type of the values, the zero point in f32, from the lower end.
fn qparams<T: Number>(low: f32, high: f32, (min, max): (f32, f32), eps: f32) -> (f64, i64) {
    let scale = round_to::<T>(round_to::<T>(high - low) / (max - min));
    let scale = if scale > eps { scale } else { eps };
    let zero_point = (min - libm::rintf(low / scale)).max(min).min(max);
    (f64::from(scale), zero_point as i64)
}

/// The same for i8, all in the type of the values. The zero point is computed from the end of the range where rounding
/// errs less.
fn token_qparams<T: Number>(low: f32, high: f32) -> (f64, i64) {
    let (min, max) = (-128.0, 127.0);
    let scale = round_to::<T>(round_to::<T>(high - low) / (max - min));
    let scale = if scale > f32::EPSILON { scale } else { f32::EPSILON };
    let (low, high) = (round_to::<T>(low / scale), round_to::<T>(high / scale));
    let error = round_to::<T>(round_to::<T>(min + low) + round_to::<T>(max + high));
    let zero_point = round_to::<T>(if error > 0.0 { min - low } else { max - high });
    (f64::from(scale), libm::rintf(zero_point.max(min).min(max)) as i64)
}

fn round_to<T: Number>(value: f32) -> f32 {
    T::from_f32(value).to_f32()
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
        assert_eq!(qparams::<f32>(0.0, 255.0, (0.0, 255.0), 1e-5), (1.0, 0));
        assert_eq!(qparams::<f32>(-10.0, 245.0, (0.0, 255.0), 1e-5), (1.0, 10));
        assert_eq!(qparams::<f32>(0.0, 0.0, (0.0, 255.0), 0.5), (0.5, 0));
        assert_eq!(token_qparams::<f32>(-128.0, 127.0), (1.0, 0));
        assert_eq!(token_qparams::<f32>(0.0, 0.0), (f64::from(f32::EPSILON), 127));
    }
}
