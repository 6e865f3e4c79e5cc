//! Operators that compute in f32: quantization, dequantization, quotients.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, TensorMut};

use super::params::{check_alike, int_in};
use crate::quantized::integer::{Quantizer, Stored, dequantize};

/// `cortex_m::quantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int quant_max,
/// ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)`
///
/// f32 to i8 or i16, as `quantized_decomposed::quantize_per_tensor.out`: halves round to even, and values saturate. ExecuTorch's MVE kernel
/// wraps values whose integers exceed 16 bits.
pub const QUANTIZE_PER_TENSOR_OUT: Op = Op::new("cortex_m::quantize_per_tensor.out", 7, quantize_per_tensor);

/// `cortex_m::dequantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int quant_max,
/// ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)`
///
/// i8 or i16 to f32: `(q - zero_point) * scale`. `dtype` is the input's.
pub const DEQUANTIZE_PER_TENSOR_OUT: Op = Op::new("cortex_m::dequantize_per_tensor.out", 7, dequantize_per_tensor);

/// `cortex_m::quantized_div.out(Tensor self, int self_zero_point, Tensor other, int other_zero_point,
/// int output_zero_point, float output_scale, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `round((self / other) * output_scale) + output_zero_point`, halves away from zero, for i8 and i16. A divisor equal to its
/// zero point gives the zero point.
pub const QUANTIZED_DIV_OUT: Op = Op::new("cortex_m::quantized_div.out", 7, quantized_div);

pub const OPS: &[Op] = &[QUANTIZE_PER_TENSOR_OUT, DEQUANTIZE_PER_TENSOR_OUT, QUANTIZED_DIV_OUT];

const INTEGERS: &str = "i8 or i16";

/// Evaluates the expression with `Q` as the integer type of a dtype.
macro_rules! dispatch_integer {
    ($dtype:expr, $index:literal, $Q:ident => $body:expr) => {
        match $dtype {
            ScalarType::Char => {
                type $Q = i8;
                $body
            }
            ScalarType::Short => {
                type $Q = i16;
                $body
            }
            got => Err(Error::from(Detail::Dtype { expected: INTEGERS, got }).arg($index)),
        }
    };
}

/// Reads scale and zero point, and checks that the range and the dtype at the arguments 3 to 5 are those of a tensor.
fn params(cx: &KernelContext<'_>, dtype: ScalarType) -> Result<(f32, i32, i64, i64)> {
    let low = if dtype == ScalarType::Char { i64::from(i8::MIN) } else { i64::from(i16::MIN) };
    let high = -1 - low;
    let range = (low as i32, high as i32);
    let zero_point = int_in(cx, 2, range, "zero point", "a value of the integer type")?;
    let min = int_in(cx, 3, range, "quant_min", "a value of the integer type")?;
    let max = int_in(cx, 4, (min, range.1), "quant_max", "a value of the integer type, at least quant_min")?;
    let code = cx.int(5)?;
    if code != i64::from(dtype.code()) {
        let expected = "the dtype of the tensor that it describes";
        return Err(Error::from(Detail::Value { what: "dtype", expected, got: code }).arg(5));
    }
    Ok((cx.double(1)? as f32, zero_point, i64::from(min), i64::from(max)))
}

fn quantize_per_tensor(cx: &KernelContext<'_>) -> Result<()> {
    let x = cx.tensor(0)?;
    let mut out = cx.out(6)?;
    out.resize(x.sizes()).map_err(|e| e.arg(6))?;
    check_alike(&out, &x, 6)?;
    let (scale, zero_point, min, max) = params(cx, out.dtype())?;
    let quantizer = Quantizer::new(scale, zero_point, min, max);
    let x = x.as_slice::<f32>().map_err(|e| e.arg(0))?;
    dispatch_integer!(out.dtype(), 6, Q => {
        quantizer.quantize(x, <Q as Stored>::slice_mut(&mut out)?);
        Ok(())
    })
}

fn dequantize_per_tensor(cx: &KernelContext<'_>) -> Result<()> {
    let x = cx.tensor(0)?;
    let mut out = cx.out(6)?;
    out.resize(x.sizes()).map_err(|e| e.arg(6))?;
    check_alike(&out, &x, 6)?;
    let (scale, zero_point, ..) = params(cx, x.dtype())?;
    let out = out.as_mut_slice::<f32>().map_err(|e| e.arg(6))?;
    dispatch_integer!(x.dtype(), 0, Q => {
        dequantize(<Q as Stored>::slice(&x)?, out, scale, zero_point);
        Ok(())
    })
}

fn quantized_div(cx: &KernelContext<'_>) -> Result<()> {
    let (x, y) = (cx.tensor(0)?, cx.tensor(2)?);
    if x.sizes() != y.sizes() {
        return Err(Error::invalid("both inputs must have the same shape"));
    }
    if x.dtype() != y.dtype() {
        return Err(Error::from(Detail::ElementType { expected: x.dtype(), got: y.dtype() }).arg(2));
    }
    let mut out = cx.out(6)?;
    out.resize(x.sizes()).map_err(|e| e.arg(6))?;
    check_alike(&out, &x, 6)?;
    super::params::check_order(&y, x.dim_order(), 2)?;
    let zero_point = |index: usize| int_in(cx, index, (-32768, 32767), "zero point", "a value of the integer type");
    let zero_points = (zero_point(1)?, zero_point(3)?, zero_point(4)?);
    let scale = cx.double(5)? as f32;
    dispatch_integer!(x.dtype(), 0, Q => {
        quotients(x.as_slice::<Q>()?, y.as_slice::<Q>()?, zero_points, scale, &mut out)
    })
}

fn quotients<Q: Stored + rushlight_runtime::Element>(
    x: &[Q],
    y: &[Q],
    (x_zero, y_zero, out_zero): (i32, i32, i32),
    scale: f32,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let bits = 8 * size_of::<Q>() as u32;
    let max = (1 << (bits - 1)) - 1;
    let out = out.as_mut_slice::<Q>().map_err(|e| e.arg(6))?;
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        let (x, y) = (x.to_i32() - x_zero, y.to_i32() - y_zero);
        let quotient = if y == 0 { 0.0 } else { x as f32 / y as f32 };
        // A cast of a float saturates.
        let rounded = libm::roundf(quotient * scale) as i32;
        *out = Q::from_i32(rounded.saturating_add(out_zero).clamp(-1 - max, max));
    }
    Ok(())
}
