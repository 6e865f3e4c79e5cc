//! Floats to affine integers: `clamp(round(x * (1 / scale)) + zero_point, quant_min, quant_max)`, halves rounded to
//! the even integer, the factor rounded to f32. Inputs are f32, f64, f16 or bf16.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, TensorMut};

use super::integer::{COLUMNS, ColumnQuantizer, Quantizer, Stored};
use super::params::{Granularity, QParams, check_dtype};
use crate::support::number::Number;

/// `quantized_decomposed::quantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min,
/// int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)`
pub const QUANTIZE_PER_TENSOR_OUT: Op =
    Op::new("quantized_decomposed::quantize_per_tensor.out", 7, quantize_per_tensor);

/// `quantized_decomposed::quantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point,
/// int quant_min, int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)`
pub const QUANTIZE_PER_TENSOR_TENSOR_OUT: Op =
    Op::new("quantized_decomposed::quantize_per_tensor.Tensor_out", 7, quantize_per_tensor_tensor);

/// `quantized_decomposed::quantize_per_channel.out(Tensor input, Tensor scales, Tensor zero_points, int axis,
/// int quant_min, int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)`
pub const QUANTIZE_PER_CHANNEL_OUT: Op =
    Op::new("quantized_decomposed::quantize_per_channel.out", 8, quantize_per_channel);

/// `quantized_decomposed::quantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min,
/// int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)`
pub const QUANTIZE_PER_TOKEN_OUT: Op = Op::new("quantized_decomposed::quantize_per_token.out", 7, quantize_per_token);

pub const OPS: &[Op] =
    &[QUANTIZE_PER_TENSOR_OUT, QUANTIZE_PER_TENSOR_TENSOR_OUT, QUANTIZE_PER_CHANNEL_OUT, QUANTIZE_PER_TOKEN_OUT];

fn quantize_per_tensor(cx: &KernelContext<'_>) -> Result<()> {
    quantize(cx, &QParams::scalars(cx)?, Granularity::Tensor, 3)
}

fn quantize_per_tensor_tensor(cx: &KernelContext<'_>) -> Result<()> {
    let params = QParams::tensors(cx, cx.tensor(0)?.sizes(), Granularity::Tensor)?;
    quantize(cx, &params, Granularity::Tensor, 3)
}

fn quantize_per_channel(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let granularity = Granularity::axis(cx, 3, &input)?;
    quantize(cx, &QParams::tensors(cx, input.sizes(), granularity)?, granularity, 4)
}

fn quantize_per_token(cx: &KernelContext<'_>) -> Result<()> {
    let params = QParams::tensors(cx, cx.tensor(0)?.sizes(), Granularity::Token)?;
    quantize(cx, &params, Granularity::Token, 3)
}

/// `first` is the position of `quant_min`, which `quant_max`, `dtype` and `out` follow.
fn quantize(cx: &KernelContext<'_>, params: &QParams<'_>, granularity: Granularity, first: usize) -> Result<()> {
    let input = cx.tensor(0)?;
    let mut out = cx.out(first + 3)?;
    out.resize(input.sizes()).map_err(|e| e.arg(first + 3))?;
    check_dtype(cx, first + 2, out.dtype())?;
    let (min, max) = (cx.int(first)?, cx.int(first + 1)?);
    check_range(&out, min, max).map_err(|e| e.arg(first))?;
    let strides = crate::support::shape::Dims::from_slice(out.strides())?;
    let quantizer = |group| {
        let (scale, zero_point) = params.get(group);
        Quantizer::new(scale as f32, zero_point, min, max)
    };
    dispatch_stored!(out.dtype(), Q => {
        let data = Q::slice_mut(&mut out)?;
        match input.dtype() {
            ScalarType::Float => {
                let values = input.as_slice::<f32>()?;
                if let Some(length) = granularity.columns(&input, &strides)
                    && quantize_columns(length, values, data, quantizer)
                {
                    return Ok(());
                }
                granularity.each_run(&input, &strides, |group, from, to, length| {
                    quantizer(group).quantize(&values[from..from + length], &mut data[to..to + length]);
                })
            }
            ScalarType::Double => {
                let values = input.as_slice::<f64>()?;
                granularity.each_run(&input, &strides, |group, from, to, length| {
                    let (values, out) = (&values[from..from + length], &mut data[to..to + length]);
                    quantize_tiles(quantizer(group), values, out, |x, inverse| (x * f64::from(inverse)) as f32);
                })
            }
            ScalarType::Half => {
                let values = input.as_slice::<half::f16>()?;
                granularity.each_run(&input, &strides, |group, from, to, length| {
                    let (values, out) = (&values[from..from + length], &mut data[to..to + length]);
                    quantize_tiles(quantizer(group), values, out, |x, inverse| Number::to_f32(x) * inverse);
                })
            }
            ScalarType::BFloat16 => {
                let values = input.as_slice::<half::bf16>()?;
                granularity.each_run(&input, &strides, |group, from, to, length| {
                    let (values, out) = (&values[from..from + length], &mut data[to..to + length]);
                    quantize_tiles(quantizer(group), values, out, |x, inverse| Number::to_f32(x) * inverse);
                })
            }
            got => Err(Error::from(Detail::Dtype { expected: "f32, f64, f16 or bf16", got }).arg(0)),
        }
    })
}

/// Quantizes rows of `length` elements, each with a quantizer of its own. False if these need the general way.
fn quantize_columns<Q: Stored>(
    length: usize,
    input: &[f32],
    out: &mut [Q],
    quantizer: impl Fn(usize) -> Quantizer,
) -> bool {
    for first in (0..length).step_by(COLUMNS) {
        let columns = first..length.min(first + COLUMNS);
        let Some(tile) = ColumnQuantizer::new(columns.clone().map(&quantizer)) else {
            return false;
        };
        for (input, out) in input.chunks_exact(length).zip(out.chunks_exact_mut(length)) {
            tile.quantize(&input[columns.clone()], &mut out[columns.clone()]);
        }
    }
    true
}

fn quantize_tiles<T: Copy, Q: Stored>(
    quantizer: Quantizer,
    input: &[T],
    out: &mut [Q],
    scale: impl Fn(T, f32) -> f32 + Copy,
) {
    let mut tile = [0.0; 128];
    for (input, out) in input.chunks(128).zip(out.chunks_mut(128)) {
        for (scaled, &x) in tile.iter_mut().zip(input) {
            *scaled = scale(x, quantizer.inverse);
        }
        quantizer.scaled().quantize(&tile[..input.len()], out);
    }
}

fn check_range(out: &TensorMut<'_>, min: i64, max: i64) -> Result<()> {
    let (lowest, highest) = match out.dtype() {
        ScalarType::Byte => (0, i64::from(u8::MAX)),
        ScalarType::Char => (i64::from(i8::MIN), i64::from(i8::MAX)),
        ScalarType::Short => (i64::from(i16::MIN), i64::from(i16::MAX)),
        ScalarType::UInt16 | ScalarType::Bits16 => (0, i64::from(u16::MAX)),
        _ => (i64::from(i32::MIN), i64::from(i32::MAX)),
    };
    let expected = "a value that the output's dtype can hold";
    if min < lowest {
        return Err(Detail::Value { what: "quant_min", expected, got: min }.into());
    }
    if max > highest {
        return Err(Detail::Value { what: "quant_max", expected, got: max }.into());
    }
    Ok(())
}
