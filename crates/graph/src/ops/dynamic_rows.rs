//! Dynamic quantization of rows as XNNPACK computes it: an operator of Rushlight's own. It is
//! decomposed to PyTorch's operators where no backend computes it.
//!
//! PyTorch chooses the scale and divides by it. XNNPACK chooses the inverse scale and multiplies by it, and has no smallest scale,
//! so that some integers differ by one.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, rushlight};
use crate::{Arg, Builder, Expr, Graph, Type};

use super::creation::filled;
use super::inference::tensor;
use super::{Definition, Lowered, Operands, composite};

pub(crate) const OPS: &[Definition] = &[composite(rushlight::QUANTIZE_ROWS, quantized, quantize)];

/// The range of the integers.
const RANGE: [f64; 2] = [-128.0, 127.0];

/// Integers, and a scale and a zero point for each row.
fn quantized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let rows = operands.tensor(0, graph)?;
    if rows.dtype != ScalarType::Float || rows.shape.is_empty() {
        return Err(operands.wrong(0, "rows of f32"));
    }
    let mut of_rows = rows.shape.clone();
    if let Some(last) = of_rows.last_mut() {
        *last = Expr::Int(1);
    }
    Ok(vec![
        tensor(ScalarType::Char, rows.shape.clone()),
        tensor(ScalarType::Float, of_rows.clone()),
        tensor(ScalarType::Char, of_rows),
    ])
}

/// The operations and their order are those of `xnn_f32_qd8_asymmetric_quantization_params` and of the conversion that follows.
fn quantize(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let rows = operands.value(0)?;
    let [min, max] = RANGE;
    let end = |b: &mut Builder<'_>, name: &str, bounds: [Arg; 2]| {
        let end = b.one(name, vec![rows.into(), Arg::from([-1]), Arg::Bool(true)])?;
        let [low, high] = bounds;
        b.one(aten::CLAMP, vec![end.into(), low, high])
    };
    let low = end(b, aten::AMIN, [Arg::None, Arg::Float(0.0)])?;
    let high = end(b, aten::AMAX, [Arg::Float(0.0), Arg::None])?;
    let span = b.sub(high, low)?;
    let steps = filled(b, Arg::from([1]), Arg::Float(max - min), ScalarType::Float)?;
    let inverse = b.div(steps, span)?;
    let is_zero = b.compare(aten::packet::EQ, span, 0)?;
    let one = filled(b, Arg::from([1]), Arg::Float(1.0), ScalarType::Float)?;
    let inverse = b.select(is_zero, one, inverse)?;
    let (low, high) = (b.mul(low, inverse)?, b.mul(high, inverse)?);
    let (from_low, from_high) = (b.add(low, min)?, b.add(high, max)?);
    let error = b.add(from_low, from_high)?;
    let (below, above) = (b.sub(min, low)?, b.sub(max, high)?);
    let is_low_better = b.compare(aten::packet::GT, error, 0)?;
    let zero_points = b.select(is_low_better, below, above)?;
    let zero_points = b.one(aten::CLAMP, vec![zero_points.into(), Arg::Float(min), Arg::Float(max)])?;
    let zero_points = b.unary(aten::ROUND, zero_points)?;
    let factors = b.cast(inverse, operands.dtype_or(1, ScalarType::Float)?)?;
    let factors = b.cast(factors, ScalarType::Float)?;
    let scaled = b.mul(rows, factors)?;
    let rounded = b.unary(aten::ROUND, scaled)?;
    let integers = b.add(rounded, zero_points)?;
    let integers = b.one(aten::CLAMP, vec![integers.into(), Arg::Float(min), Arg::Float(max)])?;
    let integers = b.cast(integers, ScalarType::Char)?;
    let scales = b.unary(aten::RECIPROCAL, inverse)?;
    Ok(Some(vec![integers, scales, b.cast(zero_points, ScalarType::Char)?]))
}
