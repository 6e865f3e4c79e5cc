//! Sums of quantized tensors.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, Tensor};

use super::integer::{Quantizer, Stored, dequantize};
use crate::support::shape::{Dims, Walk};

/// `quantized_decomposed::add.out(Tensor a, float a_scale, int a_zero_point, int a_quant_min, int a_quant_max,
/// Tensor b, float b_scale, int b_zero_point, int b_quant_min, int b_quant_max, float out_scale, int out_zero_point,
/// int out_quant_min, int out_quant_max, *, Tensor(a!) out) -> Tensor(a!)`
///
/// Dequantizes both to f32, adds, quantizes. All three tensors have the same shape and integer type; the ranges lie
/// within `0..=255`.
pub const ADD_OUT: Op = Op::new("quantized_decomposed::add.out", 15, add);

pub const OPS: &[Op] = &[ADD_OUT];

fn add(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(5)?);
    let mut out = cx.out(14)?;
    out.resize(a.sizes()).map_err(|e| e.arg(14))?;
    for (tensor, index) in [(&b, 5), (&out.as_tensor(), 14)] {
        same_kind(&a, tensor).map_err(|e| e.arg(index))?;
    }
    for first in [3, 8, 12] {
        let (min, max) = (cx.int(first)?, cx.int(first + 1)?);
        if min < 0 || max > 255 || min > max {
            let expected = "0 <= quant_min <= quant_max <= 255";
            return Err(Error::from(Detail::Value { what: "quant_min", expected, got: min }).arg(first));
        }
    }
    let a_params = (cx.double(1)? as f32, cx.int(2)? as i32);
    let b_params = (cx.double(6)? as f32, cx.int(7)? as i32);
    let quantizer = Quantizer::new(cx.double(10)? as f32, cx.int(11)? as i32, cx.int(12)?, cx.int(13)?);
    let strides = Dims::from_slice(out.strides())?;
    dispatch!(INT, a.dtype(), Q => {
        let (x, y, z) = (a.as_slice::<Q>()?, b.as_slice::<Q>()?, out.as_mut_slice::<Q>()?);
        if a.strides() == b.strides() && a.strides() == &*strides {
            add_runs(x, a_params, y, b_params, quantizer, z);
        } else if !z.is_empty() {
            let mut walk = Walk::new(a.sizes(), [a.strides(), b.strides(), &strides])?;
            loop {
                let [i, j, k] = walk.offsets;
                add_runs(&x[i..=i], a_params, &y[j..=j], b_params, quantizer, &mut z[k..=k]);
                if !walk.next() {
                    break;
                }
            }
        }
        Ok(())
    })
}

fn same_kind(a: &Tensor<'_>, other: &Tensor<'_>) -> Result<()> {
    if other.dtype() != a.dtype() {
        return Err(Detail::Dtype { expected: a.dtype().name(), got: other.dtype() }.into());
    }
    if other.sizes() != a.sizes() {
        return Err(Error::invalid("both inputs must have the same shape"));
    }
    Ok(())
}

fn add_runs<Q: Stored>(
    a: &[Q],
    (a_scale, a_zero_point): (f32, i32),
    b: &[Q],
    (b_scale, b_zero_point): (f32, i32),
    quantizer: Quantizer,
    out: &mut [Q],
) {
    let (mut sum, mut tile) = ([0.0f32; 128], [0.0f32; 128]);
    for ((a, b), out) in a.chunks(128).zip(b.chunks(128)).zip(out.chunks_mut(128)) {
        dequantize(a, &mut sum, a_scale, a_zero_point);
        dequantize(b, &mut tile, b_scale, b_zero_point);
        for (sum, &x) in sum.iter_mut().zip(&tile) {
            *sum += x;
        }
        quantizer.quantize(&sum[..out.len()], out);
    }
}
