//! Affine integers to floats: `(q - zero_point) * scale`, in f64 for f64 outputs, else in f32 and then rounded to the
//! output's type.

use half::{bf16, f16};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType};

use super::integer::{self, COLUMNS, ColumnDequantizer, Stored};
use super::params::{Granularity, QParams, check_dtype};
use crate::support::number::Number;
use crate::support::shape::Dims;

/// `quantized_decomposed::dequantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min,
/// int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None, Tensor(a!) out) -> Tensor(a!)`
pub const DEQUANTIZE_PER_TENSOR_OUT: Op =
    Op::new("quantized_decomposed::dequantize_per_tensor.out", 8, dequantize_per_tensor);

/// `quantized_decomposed::dequantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point,
/// int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None, Tensor(a!) out) -> Tensor(a!)`
pub const DEQUANTIZE_PER_TENSOR_TENSOR_OUT: Op =
    Op::new("quantized_decomposed::dequantize_per_tensor.Tensor_out", 8, dequantize_per_tensor_tensor);

/// `quantized_decomposed::dequantize_per_channel.out(Tensor input, Tensor scales, Tensor? zero_points, int axis,
/// int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None, Tensor(a!) out) -> Tensor(a!)`
pub const DEQUANTIZE_PER_CHANNEL_OUT: Op =
    Op::new("quantized_decomposed::dequantize_per_channel.out", 9, dequantize_per_channel);

/// `quantized_decomposed::dequantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min,
/// int quant_max, ScalarType dtype, ScalarType output_dtype, *, Tensor(a!) out) -> Tensor(a!)`
pub const DEQUANTIZE_PER_TOKEN_OUT: Op =
    Op::new("quantized_decomposed::dequantize_per_token.out", 8, dequantize_per_token);

pub const OPS: &[Op] = &[
    DEQUANTIZE_PER_TENSOR_OUT,
    DEQUANTIZE_PER_TENSOR_TENSOR_OUT,
    DEQUANTIZE_PER_CHANNEL_OUT,
    DEQUANTIZE_PER_TOKEN_OUT,
];

fn dequantize_per_tensor(cx: &KernelContext<'_>) -> Result<()> {
    dequantize(cx, &QParams::scalars(cx)?, Granularity::Tensor, 3)
}

fn dequantize_per_tensor_tensor(cx: &KernelContext<'_>) -> Result<()> {
    let params = QParams::tensors(cx, cx.tensor(0)?.sizes(), Granularity::Tensor)?;
    dequantize(cx, &params, Granularity::Tensor, 3)
}

fn dequantize_per_channel(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let granularity = Granularity::axis(cx, 3, &input)?;
    dequantize(cx, &QParams::tensors(cx, input.sizes(), granularity)?, granularity, 4)
}

fn dequantize_per_token(cx: &KernelContext<'_>) -> Result<()> {
    let params = QParams::tensors(cx, cx.tensor(0)?.sizes(), Granularity::Token)?;
    dequantize(cx, &params, Granularity::Token, 3)
}

/// `first` is the position of `quant_min`, which `quant_max`, `dtype`, `out_dtype` and `out` follow. The range only
/// describes the values, it does not change the result.
fn dequantize(cx: &KernelContext<'_>, params: &QParams<'_>, granularity: Granularity, first: usize) -> Result<()> {
    let input = cx.tensor(0)?;
    let (min, max) = (cx.int(first)?, cx.int(first + 1)?);
    if min > max {
        let detail = Detail::Value { what: "quant_min", expected: "a value of at most quant_max", got: min };
        return Err(Error::from(detail).arg(first));
    }
    check_dtype(cx, first + 2, input.dtype())?;
    let mut out = cx.out(first + 4)?;
    check_dtype(cx, first + 3, out.dtype())?;
    out.resize(input.sizes()).map_err(|e| e.arg(first + 4))?;
    let strides = Dims::from_slice(out.strides())?;
    dispatch_stored!(input.dtype(), Q => {
        let values = Q::slice(&input)?;
        if out.dtype() == ScalarType::Float {
            let data = out.as_mut_slice::<f32>()?;
            if let Some(length) = granularity.columns(&input, &strides) {
                dequantize_columns(length, values, data, params);
                return Ok(());
            }
            granularity.each_run(&input, &strides, |group, from, to, length| {
                let (scale, zero_point) = params.get(group);
                let (values, out) = (&values[from..from + length], &mut data[to..to + length]);
                integer::dequantize(values, out, scale as f32, zero_point);
            })
        } else if out.dtype() == ScalarType::Double {
            let data = out.as_mut_slice::<f64>()?;
            granularity.each_run(&input, &strides, |group, from, to, length| {
                let (scale, zero_point) = params.get(group);
                for (x, &q) in data[to..to + length].iter_mut().zip(&values[from..from + length]) {
                    *x = f64::from(q.to_i32().wrapping_sub(zero_point)) * scale;
                }
            })
        } else {
            dispatch_types!("f32, f64, f16 or bf16", out.dtype(), T => {
                let data = out.as_mut_slice::<T>()?;
                granularity.each_run(&input, &strides, |group, from, to, length| {
                    let (values, out) = (&values[from..from + length], &mut data[to..to + length]);
                    dequantize_tiles(values, out, params.get(group));
                })
            }, [Half = f16, BFloat16 = bf16])
            .map_err(|e: Error| e.arg(first + 4))
        }
    })
    .map_err(|e: Error| e.arg(0))
}

/// Dequantizes rows of `length` elements, each with parameters of its own.
fn dequantize_columns<Q: Stored>(length: usize, input: &[Q], out: &mut [f32], params: &QParams<'_>) {
    for first in (0..length).step_by(COLUMNS) {
        let columns = first..length.min(first + COLUMNS);
        let tile = ColumnDequantizer::new(columns.clone().map(|column| params.get(column)));
        for (input, out) in input.chunks_exact(length).zip(out.chunks_exact_mut(length)) {
            tile.dequantize(&input[columns.clone()], &mut out[columns.clone()]);
        }
    }
}

fn dequantize_tiles<Q: Stored, T: Number>(input: &[Q], out: &mut [T], (scale, zero_point): (f64, i32)) {
    let mut tile = [0.0; 128];
    for (input, out) in input.chunks(128).zip(out.chunks_mut(128)) {
        integer::dequantize(input, &mut tile, scale as f32, zero_point);
        for (x, &value) in out.iter_mut().zip(&tile) {
            *x = T::from_f32(value);
        }
    }
}
