//! Padding: constant, reflected, replicated and circular.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, TensorType, Type};

use super::joins::cat_of;
use super::slices::slice;
use super::{Definition, Lowered, Operands, composite, kernel, result};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::CONSTANT_PAD_ND, padded, cut_and_pad),
    kernel(aten::REFLECTION_PAD1D, padded),
    kernel(aten::REFLECTION_PAD2D, padded),
    kernel(aten::REFLECTION_PAD3D, padded),
    kernel(aten::REPLICATION_PAD1D, padded),
    kernel(aten::REPLICATION_PAD2D, padded),
    kernel(aten::REPLICATION_PAD3D, padded),
    composite(aten::PAD, padded, pad),
    composite(aten::_PAD_ENUM, padded, pad_by_number),
    composite(aten::_PAD_CIRCULAR, padded, circular),
];

/// Splits a padding with negative amounts into slices and a padding. The kernels, like ExecuTorch's, only add elements.
fn cut_and_pad(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let padding = operands.exprs(1)?;
    if !padding.iter().any(|amount| amount.as_int().is_some_and(|amount| amount < 0)) {
        return Ok(None);
    }
    let mut value = operands.value(0)?;
    let rank = b.tensor(value)?.rank();
    let cut = |amount: &Expr| Expr::Int(amount.as_int().map_or(0, |amount| (-amount).max(0)));
    for (index, pair) in padding.chunks(2).enumerate() {
        let ([before, after], Some(dim)) = (pair, rank.checked_sub(index + 1)) else { continue };
        let shape = b.tensor(value)?.shape;
        let size = shape.get(dim).cloned().unwrap_or(Expr::Int(0));
        let length = size.sub(cut(before)).sub(cut(after)).at_least(0);
        value = slice(b, value, dim, cut(before), length)?;
    }
    let grow = |amount: &Expr| amount.as_int().map_or_else(|| amount.clone(), |amount| Expr::Int(amount.max(0)));
    let padding: Vec<Expr> = padding.iter().map(grow).collect();
    if padding.iter().all(|amount| amount.is(0)) {
        return Ok(Some(vec![value]));
    }
    b.call(aten::CONSTANT_PAD_ND, vec![value.into(), padding.into(), operands.arg(2).clone()]).map(Some)
}

/// Padding for the last dimensions, pairs of left and right from the innermost outwards.
fn padded(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    let mut shape = tensor.shape.clone();
    for (dim, left, right) in pairs(operands, tensor)? {
        if let Some(size) = shape.get_mut(dim) {
            *size = size.add(left).add(right);
            if size.as_int().is_some_and(|size| size < 0) {
                return Err(operands.wrong(1, "a padding that leaves something"));
            }
        }
    }
    Ok(result(tensor.dtype, shape))
}

/// Dimension, left and right padding of each padded dimension.
fn pairs(operands: &Operands<'_>, tensor: &TensorType) -> Result<Vec<(usize, Expr, Expr)>, Error> {
    let padding = operands.exprs(1)?;
    let (pairs, rest) = padding.as_chunks::<2>();
    if !rest.is_empty() || pairs.len() > tensor.rank() {
        return Err(operands.wrong(1, &format!("at most {} pairs of numbers", tensor.rank())));
    }
    let dims = (0..tensor.rank()).rev();
    Ok(dims.zip(pairs).map(|(dim, [left, right])| (dim, left.clone(), right.clone())).collect())
}

fn pad(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mode = operands.str(2)?.unwrap_or("constant");
    in_mode(b, operands, mode)
}

/// Lowers a padding whose mode is a number of `at::padding_mode`.
fn pad_by_number(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let modes = ["reflect", "replicate", "circular", "constant"];
    let mode = usize::try_from(operands.int(2)?).ok().and_then(|mode| modes.get(mode).copied());
    in_mode(b, operands, mode.ok_or_else(|| operands.wrong(2, "a mode from 0 to 3"))?)
}

const REFLECTION: [&str; 3] = [aten::REFLECTION_PAD1D, aten::REFLECTION_PAD2D, aten::REFLECTION_PAD3D];
const REPLICATION: [&str; 3] = [aten::REPLICATION_PAD1D, aten::REPLICATION_PAD2D, aten::REPLICATION_PAD3D];

fn in_mode(b: &mut Builder<'_>, operands: &Operands<'_>, mode: &str) -> Lowered {
    let (value, padding) = (operands.value(0)?, operands.arg(1).clone());
    let dims = operands.exprs(1)?.len() / 2;
    let for_dims = |operators: [&'static str; 3]| operators.get(dims.wrapping_sub(1)).copied();
    match mode {
        "constant" => {
            let fill = if operands.has(3) { operands.arg(3).clone() } else { Arg::from(0) };
            b.call(aten::CONSTANT_PAD_ND, vec![value.into(), padding, fill]).map(Some)
        }
        "reflect" if let Some(reflect) = for_dims(REFLECTION) => b.call(reflect, vec![value.into(), padding]).map(Some),
        "replicate" if let Some(replicate) = for_dims(REPLICATION) => {
            b.call(replicate, vec![value.into(), padding]).map(Some)
        }
        "circular" => circular(b, operands),
        _ => Err(operands.wrong(2, "`constant`, `reflect`, `replicate` or `circular`")),
    }
}

/// Circular padding: elements beyond one side are copied from the other side.
fn circular(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut value = operands.value(0)?;
    let tensor = b.tensor(value)?;
    for (dim, left, right) in pairs(operands, &tensor)? {
        let size = tensor.shape.get(dim).cloned().unwrap_or(Expr::Int(1));
        // Negative padding removes elements.
        let negative = |pad: &Expr| pad.as_int().is_some_and(|pad| pad < 0);
        let start = if negative(&left) { left.mul(-1) } else { Expr::Int(0) };
        let end = if negative(&right) { size.add(right.clone()) } else { size.clone() };
        let kept = end.sub(start.clone());
        if [&left, &right].iter().any(|pad| pad.sub(kept.clone()).as_int().is_some_and(|more| more > 0)) {
            return Err(Error::unsupported("circular padding of more elements than stay, which PyTorch refuses too"));
        }
        let mut parts = Vec::new();
        if !negative(&left) && !left.is(0) {
            parts.push(slice(b, value, dim, end.sub(left.clone()), left)?);
        }
        parts.push(slice(b, value, dim, start.clone(), kept)?);
        if !negative(&right) && !right.is(0) {
            parts.push(slice(b, value, dim, start, right)?);
        }
        value = cat_of(b, parts, dim)?;
    }
    Ok(Some(vec![value]))
}
