//! Linear layers with a fused activation, and batched matmuls.

use rushlight_engine_mcu::{Linear, Output, Scales, linear};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use super::params::{
    bias, check_contiguous, first_scale, int_in, int8, int8_mut, mismatch, offset, output, scale, zero_point,
};
use crate::support::shape::Dims;

/// `cortex_m::quantized_linear.out(Tensor input, Tensor weights, Tensor? bias, Tensor? kernel_sum, int input_offset,
/// int filter_offset, int output_offset, int[] requantize_multipliers, int[] requantize_shifts, int activation_max,
/// int activation_min, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `kernel_sum` holds the bias and, times `input_offset`, the sum of the weights of each output; it replaces both. The first
/// multiplier and the first shift serve all outputs.
pub const QUANTIZED_LINEAR_OUT: Op = Op::new("cortex_m::quantized_linear.out", 12, quantized_linear);

/// `cortex_m::quantized_batch_matmul.out(Tensor lhs, int lhs_zero_point, Tensor rhs_transposed, int rhs_zero_point,
/// int output_zero_point, int output_multiplier, int output_shift, Tensor scratch, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `[B, M, K]` by `[B, N, K]`. Both input zero points are negated.
pub const QUANTIZED_BATCH_MATMUL_OUT: Op = Op::new("cortex_m::quantized_batch_matmul.out", 9, quantized_batch_matmul);

pub const OPS: &[Op] = &[QUANTIZED_LINEAR_OUT, QUANTIZED_BATCH_MATMUL_OUT];

fn quantized_linear(cx: &KernelContext<'_>) -> Result<()> {
    let (x, weight) = (cx.tensor(0)?, cx.tensor(1)?);
    let &[outputs, inner] = weight.sizes() else {
        return Err(Error::from(Detail::Rank { expected: "2", got: weight.rank() }).arg(1));
    };
    check_contiguous(&x, 0)?;
    check_contiguous(&weight, 1)?;
    let mut sizes = Dims::from_slice(x.sizes())?;
    match sizes.last_mut() {
        Some(last) if *last == inner => *last = outputs,
        last => {
            let (dim, got) = (x.rank().saturating_sub(1), last.map_or(0, |last| *last));
            return Err(Error::from(Detail::Size { dim, expected: inner, got }).arg(0));
        }
    }
    let (bias, input_offset) = match bias(cx, 3, outputs)? {
        Some(sums) => (Some(sums), 0),
        None => (bias(cx, 2, outputs)?, offset(cx, 4)?),
    };
    let layer = Linear {
        inner,
        outputs,
        weight: int8(&weight, 1)?,
        bias,
        scales: Scales::Tensor(first_scale(cx, 7)?),
        input_offset,
        weight_offset: int_in(cx, 5, (-127, 128), "offset", "a negated int8 zero point")?,
        output: output(cx, 6, 10, 9)?,
    };
    let mut out = cx.out(11)?;
    out.resize(&sizes).map_err(|e| e.arg(11))?;
    check_contiguous(&out.as_tensor(), 11)?;
    linear(&layer, int8(&x, 0)?, int8_mut(&mut out, 11)?).map_err(mismatch)
}

fn quantized_batch_matmul(cx: &KernelContext<'_>) -> Result<()> {
    let (x, weight) = (cx.tensor(0)?, cx.tensor(2)?);
    let (&[batch, rows, inner], &[weights, outputs, depth]) = (x.sizes(), weight.sizes()) else {
        let got = if x.rank() == 3 { weight.rank() } else { x.rank() };
        return Err(Detail::Rank { expected: "3", got }.into());
    };
    if weights != batch {
        return Err(Error::from(Detail::Size { dim: 0, expected: batch, got: weights }).arg(2));
    }
    if depth != inner {
        return Err(Error::from(Detail::Size { dim: 2, expected: inner, got: depth }).arg(2));
    }
    check_contiguous(&x, 0)?;
    check_contiguous(&weight, 2)?;
    let scales = Scales::Tensor(scale(cx, 5)?);
    let (input_offset, weight_offset) = (offset(cx, 1)?, offset(cx, 3)?);
    let output = Output { offset: zero_point(cx, 4)?, min: i8::MIN, max: i8::MAX };
    let mut out = cx.out(8)?;
    out.resize(&[batch, rows, outputs]).map_err(|e| e.arg(8))?;
    check_contiguous(&out.as_tensor(), 8)?;
    let (x, weight, out) = (int8(&x, 0)?, int8(&weight, 2)?, int8_mut(&mut out, 8)?);
    for i in 0..batch {
        let weight = &weight[i * outputs * inner..(i + 1) * outputs * inner];
        let layer = Linear { inner, outputs, weight, bias: None, scales, input_offset, weight_offset, output };
        let x = &x[i * rows * inner..(i + 1) * rows * inner];
        linear(&layer, x, &mut out[i * rows * outputs..(i + 1) * rows * outputs]).map_err(mismatch)?;
    }
    Ok(())
}
