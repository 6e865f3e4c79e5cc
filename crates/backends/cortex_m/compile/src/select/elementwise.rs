//! Elementwise operators and softmax.

use rushlight_graph::Call;
use rushlight_graph::operators::aten;

use super::{Context, Operand, Output, SCALES, Selected, Step};
use crate::affine::{Affine, Factor};
use crate::table::Table;

/// `a + coefficient * b`.
#[derive(Debug)]
pub(crate) struct Add {
    pub operands: [Operand; 2],
    /// The multipliers of both operands. The second is negative for a difference.
    pub multipliers: [i32; 2],
    pub shifts: [i32; 2],
    /// The factor of the sum.
    pub factor: Factor,
    pub output: Output,
}

/// `a * b`.
#[derive(Debug)]
pub(crate) struct Mul {
    pub operands: [Operand; 2],
    pub factor: Factor,
    pub output: Output,
}

/// `a / b`.
#[derive(Debug)]
pub(crate) struct Div {
    pub operands: [Operand; 2],
    pub scale: f64,
    pub output: Output,
}

/// The minimum or the maximum of two operands with the same scale.
#[derive(Debug)]
pub(crate) struct Extremum {
    pub operands: [Operand; 2],
    pub is_minimum: bool,
}

/// A unary operator, as a table of its results.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub input: Operand,
    pub table: Table,
}

/// A node that dequantizes, and one that quantizes its result.
#[derive(Debug)]
pub(crate) struct Requantize {
    pub input: Operand,
    /// The integers in the new scale; `None` if the scales are the same.
    pub table: Option<Table>,
}

/// Softmax over the last dimension.
#[derive(Debug)]
pub(crate) struct Softmax {
    pub input: Operand,
    pub dim: i64,
    pub factor: Factor,
    pub minimum_difference: i32,
}

/// Number of bits by which the kernel shifts operands to the left before it adds them.
const SUM_SHIFT: u32 = 20;

/// The scale of softmax results in CMSIS-NN; their zero point is -128.
pub(crate) const SOFTMAX_SCALE: f64 = 1.0 / 256.0;

/// Two operands of one shape, or one of shape `[1, C, 1, 1]`.
fn operands(cx: &Context<'_>, call: &Call<'_>) -> Result<[Operand; 2], String> {
    let operands = [cx.operand(call, "self")?, cx.operand(call, "other")?];
    let (a, b) = (cx.sizes(operands[0].value)?, cx.sizes(operands[1].value)?);
    let is_vector = |sizes: &[i64]| matches!(sizes, [1, _, 1, 1]);
    let is_broadcast = a.get(1) == b.get(1) && a.len() == b.len() && (is_vector(&a) || is_vector(&b));
    if a == b || is_broadcast { Ok(operands) } else { Err("its operands have different shapes".to_owned()) }
}

pub(super) fn add(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let operands = operands(cx, call)?;
    let alpha = if call.arg("alpha").is_some() { call.int("alpha").ok_or("`alpha` is no integer")? } else { 1 };
    let coefficient = if call.name() == aten::SUB_TENSOR { alpha.checked_neg() } else { Some(alpha) };
    let coefficient = coefficient.ok_or(SCALES)?;
    let [a, b] = operands.map(|operand| operand.affine);
    let scales = [a.scale, coefficient.unsigned_abs() as f64 * b.scale];
    let twice = 2.0 * scales[0].max(scales[1]);
    let one = f64::from(1u32 << SUM_SHIFT);
    let factors = [Factor::of(scales[0] / twice), Factor::of(scales[1] / twice)];
    let ([Some(first), Some(second)], Some(factor)) = (factors, Factor::of(twice / (output.affine.scale * one))) else {
        return Err(SCALES.to_owned());
    };
    let sign = if coefficient < 0 { -1 } else { 1 };
    let spans = [a, b].map(|it| [it.range.0 - it.zero_point, it.range.1 - it.zero_point].map(f64::from));
    let sums = spans[0].iter().flat_map(|x| spans[1].iter().map(move |y| (x, y)));
    let largest = sums.map(|(x, y)| (x * scales[0] + f64::from(sign) * y * scales[1]).abs()).fold(0.0, f64::max);
    if !factor.fits(largest * one / twice) {
        return Err("the scale of its result is too small for sums of 32 bits".to_owned());
    }
    let step = Add {
        operands,
        multipliers: [first.multiplier, sign * second.multiplier],
        shifts: [first.shift, second.shift],
        factor,
        output,
    };
    Ok(Selected::new(operands.map(|operand| operand.node), Step::Add(step)))
}

pub(super) fn mul(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let operands = operands(cx, call)?;
    let [a, b] = operands.map(|operand| operand.affine);
    output.check_range()?;
    let scale = a.scale * b.scale / output.affine.scale;
    let factor = Factor::of_accumulator(scale, a.largest() * b.largest()).ok_or(SCALES)?;
    Ok(Selected::new(operands.map(|operand| operand.node), Step::Mul(Mul { operands, factor, output })))
}

pub(super) fn div(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let operands = operands(cx, call)?;
    let [a, b] = operands.map(|operand| operand.affine);
    output.check_range()?;
    if cx.sizes(operands[0].value)? != cx.sizes(operands[1].value)? {
        return Err("its operands have different shapes".to_owned());
    }
    let scale = a.scale / (b.scale * output.affine.scale);
    Ok(Selected::new(operands.map(|operand| operand.node), Step::Div(Div { operands, scale, output })))
}

pub(super) fn extremum(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let operands = operands(cx, call)?;
    if operands.iter().any(|operand| !operand.affine.is_alike(&output.affine)) {
        return Err("its operands and its result have different scales".to_owned());
    }
    let step = Extremum { operands, is_minimum: call.name() == aten::MINIMUM };
    Ok(Selected::new(operands.map(|operand| operand.node), Step::Extremum(step)))
}

pub(super) fn softmax(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    /// Number of integer bits of the exponent in CMSIS-NN.
    const INTEGER_BITS: i32 = 5;
    let input = cx.operand(call, "self")?;
    let rank = cx.sizes(input.value)?.len() as i64;
    let dim = call.int("dim").ok_or("`dim` is not known")?;
    if dim != -1 && dim != rank - 1 {
        return Err("its dimension is not the last one".to_owned());
    }
    if output.affine.scale != SOFTMAX_SCALE || output.affine.zero_point != -128 {
        return Err("its result does not have the scale 1/256 and the zero point -128".to_owned());
    }
    let one = f64::from(1u32 << (31 - INTEGER_BITS));
    let factor = Factor::of((input.affine.scale * one).min(f64::from(i32::MAX))).ok_or(SCALES)?;
    if factor.shift < 0 {
        return Err("the scale of its input is too small".to_owned());
    }
    let largest = f64::from((1 << INTEGER_BITS) - 1) * one / f64::from(1u32 << factor.shift);
    let minimum_difference = -(largest.floor() as i32);
    Ok(Selected::new([input.node], Step::Softmax(Softmax { input, dim, factor, minimum_difference })))
}

pub(super) fn table(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let input =
        cx.operand(call, "self").map_err(|_| "its operand is not int8 with one scale and fixed sizes".to_owned())?;
    let table = Table::of(call, input.affine, output.affine)?;
    Ok(Selected::new([input.node], Step::Lookup(Lookup { input, table })))
}

pub(super) fn requantize(input: Operand, to: Affine) -> Result<Selected, String> {
    let is_same = input.affine.is_alike(&to) && input.affine.range == to.range;
    let table = if is_same { None } else { Some(Table::of_requantization(input.affine, to).ok_or(SCALES)?) };
    Ok(Selected::new([input.node], Step::Requantize(Requantize { input, table })))
}
