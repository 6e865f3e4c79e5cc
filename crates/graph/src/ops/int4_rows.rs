//! Rows of 4-bit integers in groups, as KV caches keep them: operators of Rushlight's own. Without a backend that
//! computes them, they are lowered to PyTorch's.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, rushlight, torchao};
use crate::{Arg, Builder, Expr, Graph, Type};

use super::inference::{one, tensor};
use super::{Definition, Lowered, Operands, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(rushlight::QUANTIZE_INT4_ROWS, quantized, quantize),
    composite(rushlight::DEQUANTIZE_INT4_ROWS, dequantized, dequantize),
];

/// The largest 4-bit integer.
const MAX: i64 = 15;

/// The types of the result: bytes of two integers each, and a scale and a zero point for each group of a row's
/// elements.
fn quantized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (width, outer) = row(operands, graph)?;
    let of_width = |width: i64| outer.iter().cloned().chain([Expr::Int(width)]).collect::<Vec<_>>();
    let groups = width / group(operands, width)?;
    Ok(vec![
        tensor(ScalarType::Byte, of_width(width / 2)),
        tensor(ScalarType::Float, of_width(groups)),
        tensor(ScalarType::Byte, of_width(groups)),
    ])
}

fn dequantized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    if operands.tensor(0, graph)?.dtype != ScalarType::Byte || operands.tensor(2, graph)?.dtype != ScalarType::Byte {
        return Err(operands.wrong(0, "bytes, with zero points that are bytes"));
    }
    let (bytes, outer) = row(operands, graph)?;
    one(ScalarType::Float, outer.iter().cloned().chain([Expr::Int(2 * bytes)]).collect())
}

/// Returns the number of elements of a row of the first argument, and the other sizes.
fn row<'g>(operands: &Operands<'_>, graph: &'g Graph) -> Result<(i64, &'g [Expr]), Error> {
    let shape = &operands.tensor(0, graph)?.shape;
    let row = shape.split_last().and_then(|(width, outer)| Some((width.as_int()?, outer)));
    row.ok_or_else(|| operands.wrong(0, "rows of a fixed size"))
}

/// Returns the elements of a group: an even number that divides the `width` of a row.
fn group(operands: &Operands<'_>, width: i64) -> Result<i64, Error> {
    let group = operands.expr(1)?.as_int().filter(|group| *group > 0 && group % 2 == 0 && width % group == 0);
    group.ok_or_else(|| operands.wrong(1, "an even number that divides the size of a row"))
}

fn quantize(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let (width, outer) = row(operands, b.graph)?;
    let (outer, group) = (outer.to_vec(), group(operands, width)?);
    let mut blocks = vec![Expr::Int(1); outer.len()];
    blocks.push(Expr::Int(group));
    let blocks = Arg::from(blocks);
    let range = [Arg::from(0), Arg::from(MAX)];
    let mut args = vec![x.into(), Arg::Str("ASYMMETRIC".into()), blocks.clone(), ScalarType::Byte.into()];
    args.extend(range.clone());
    args.extend([Arg::None, ScalarType::Float.into(), ScalarType::Byte.into(), Arg::Bool(true)]);
    let chosen = b.call(torchao::CHOOSE_QPARAMS_AFFINE, args)?;
    let [scales, zero_points] = chosen[..] else { return Err(Error::invalid("scales without zero points")) };
    let args = [x.into(), blocks, scales.into(), zero_points.into(), ScalarType::Byte.into()];
    let integers = b.one(torchao::QUANTIZE_AFFINE, args.into_iter().chain(range).collect())?;
    let pairs = b.view(integers, of_rows(&outer, &[width / 2, 2]))?;
    let mut of_pair = |index: i64| b.one(aten::SELECT_COPY_INT, vec![pairs.into(), (-1).into(), index.into()]);
    let (low, high) = (of_pair(0)?, of_pair(1)?);
    let high = b.mul(high, 16)?;
    Ok(Some(vec![b.add(high, low)?, scales, zero_points]))
}

fn dequantize(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (packed, scales, zero_points) = (operands.value(0)?, operands.value(1)?, operands.value(2)?);
    let (bytes, outer) = row(operands, b.graph)?;
    let outer = outer.to_vec();
    let groups = b.tensor(scales)?.shape.last().and_then(Expr::as_int).filter(|groups| *groups > 0);
    let groups = groups.ok_or_else(|| operands.wrong(1, "a scale for each group"))?;
    let packed = b.cast(packed, ScalarType::Float)?;
    let high = b.mul(packed, 1.0 / 16.0)?;
    let high = b.unary(aten::FLOOR, high)?;
    let above = b.mul(high, 16.0)?;
    let low = b.sub(packed, above)?;
    let pairs = b.one(aten::STACK, vec![Arg::List(vec![low.into(), high.into()]), (-1).into()])?;
    let integers = b.view(pairs, of_rows(&outer, &[groups, 2 * bytes / groups]))?;
    let of_groups = of_rows(&outer, &[groups, 1]);
    let zero_points = b.cast(zero_points, ScalarType::Float)?;
    let zero_points = b.view(zero_points, of_groups.clone())?;
    let scales = b.view(scales, of_groups)?;
    let above_zero = b.sub(integers, zero_points)?;
    let floats = b.mul(above_zero, scales)?;
    b.view(floats, of_rows(&outer, &[2 * bytes])).and_then(done)
}

fn of_rows(outer: &[Expr], sizes: &[i64]) -> Vec<Expr> {
    outer.iter().cloned().chain(sizes.iter().copied().map(Expr::Int)).collect()
}
