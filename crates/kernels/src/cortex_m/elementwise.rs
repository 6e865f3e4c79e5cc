//! Operators on one or two int8 elements. Two inputs are broadcast as in PyTorch.

use rushlight_engine_mcu::{Add, Mul, Output, Scale, look_up};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use super::binary::binary;
use super::params::{check_alike, int_in, int8, int8_mut, mismatch, output, scale, shift, zero_point};

/// `cortex_m::quantized_add.out(Tensor self, int self_zero_point, int self_multiplier, int self_shift, Tensor other,
/// int other_zero_point, int other_multiplier, int other_shift, int output_zero_point, int output_multiplier,
/// int output_shift, int activation_min, int activation_max, *, Tensor(a!) out) -> Tensor(a!)`
///
/// A difference has a negative `other_multiplier`.
pub const QUANTIZED_ADD_OUT: Op = Op::new("cortex_m::quantized_add.out", 14, quantized_add);

/// `cortex_m::quantized_mul.out(Tensor self, int self_zero_point, Tensor other, int other_zero_point,
/// int output_zero_point, int output_multiplier, int output_shift, *, Tensor(a!) out) -> Tensor(a!)`
pub const QUANTIZED_MUL_OUT: Op = Op::new("cortex_m::quantized_mul.out", 8, quantized_mul);

/// `cortex_m::minimum.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)`
pub const MINIMUM_OUT: Op = Op::new("cortex_m::minimum.out", 3, |cx| binary(cx, 0, 1, 2, i8::min));

/// `cortex_m::maximum.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)`
pub const MAXIMUM_OUT: Op = Op::new("cortex_m::maximum.out", 3, |cx| binary(cx, 0, 1, 2, i8::max));

/// `cortex_m::quantized_activation.out(Tensor input, Tensor lut, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `lut` has the results for -128 to 127.
pub const QUANTIZED_ACTIVATION_OUT: Op = Op::new("cortex_m::quantized_activation.out", 3, quantized_activation);

pub const OPS: &[Op] = &[QUANTIZED_ADD_OUT, QUANTIZED_MUL_OUT, MINIMUM_OUT, MAXIMUM_OUT, QUANTIZED_ACTIVATION_OUT];

fn quantized_add(cx: &KernelContext<'_>) -> Result<()> {
    let factor = |index: usize| {
        let multiplier = int_in(cx, index, (-i32::MAX, i32::MAX), "multiplier", "an i32")?;
        Ok::<_, Error>(Scale { multiplier, shift: shift(cx, index + 1)? })
    };
    let add = Add {
        zero_points: [zero_point(cx, 1)?, zero_point(cx, 5)?],
        scales: [factor(2)?, factor(6)?],
        output_scale: scale(cx, 9)?,
        output: output(cx, 8, 11, 12)?,
    };
    binary(cx, 0, 4, 13, |a, b| add.apply(a, b))
}

fn quantized_mul(cx: &KernelContext<'_>) -> Result<()> {
    let mul = Mul {
        zero_points: [zero_point(cx, 1)?, zero_point(cx, 3)?],
        scale: scale(cx, 5)?,
        output: Output { offset: zero_point(cx, 4)?, min: i8::MIN, max: i8::MAX },
    };
    binary(cx, 0, 2, 7, |a, b| mul.apply(a, b))
}

fn quantized_activation(cx: &KernelContext<'_>) -> Result<()> {
    let (x, table) = (cx.tensor(0)?, cx.tensor(1)?);
    let entries = int8(&table, 1)?;
    let Ok(table) = <&[i8; 256]>::try_from(entries) else {
        return Err(Error::from(Detail::Count { what: "entries", expected: 256, got: entries.len() }).arg(1));
    };
    let mut out = cx.out(2)?;
    out.resize(x.sizes()).map_err(|e| e.arg(2))?;
    check_alike(&out, &x, 2)?;
    look_up(table, int8(&x, 0)?, int8_mut(&mut out, 2)?).map_err(mismatch)
}
