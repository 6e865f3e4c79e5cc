//! Bounds, choices and combinations of three elements.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Graph, Type};

use super::inference::{arithmetic, arithmetic3, broadcast_shape, one, promoted};
use super::promotion::to_floating;
use super::{Definition, Lowered, Operands, composite, compute_dtype, done, forward, kernel, promote};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::CLAMP, arithmetic3),
    kernel(aten::CLAMP_TENSOR, arithmetic3),
    composite(aten::CLIP, arithmetic3, |b, o| forward(b, o, aten::CLAMP)),
    composite(aten::CLIP_TENSOR, arithmetic3, |b, o| forward(b, o, aten::CLAMP_TENSOR)),
    composite(aten::CLAMP_MIN, arithmetic, clamp_min),
    composite(aten::CLAMP_MAX, arithmetic, clamp_max),
    composite(aten::CLAMP_MIN_TENSOR, arithmetic, |b, o| forward(b, o, aten::MAXIMUM)),
    composite(aten::CLAMP_MAX_TENSOR, arithmetic, |b, o| forward(b, o, aten::MINIMUM)),
    kernel(aten::WHERE_SELF, choice),
    composite(aten::WHERE_SCALAROTHER, choice, select),
    composite(aten::WHERE_SCALARSELF, choice, select),
    composite(aten::WHERE_SCALAR, choice, select),
    composite(aten::LERP_TENSOR, interpolation, lerp),
    composite(aten::LERP_SCALAR, interpolation, lerp),
    composite(aten::ADDCMUL, arithmetic3, |b, o| combine(b, o, aten::MUL_TENSOR)),
    composite(aten::ADDCDIV, quotient, |b, o| combine(b, o, aten::DIV_TENSOR)),
];

/// A condition decides for each element between two arguments, promoted and broadcast.
fn choice(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (condition, a, b) = (operands.arg(0), operands.arg(1), operands.arg(2));
    one(promote(&[a, b], graph)?, broadcast_shape(&[condition, a, b], graph)?)
}

fn interpolation(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let shape = broadcast_shape(&[operands.arg(0), operands.arg(1), operands.arg(2)], graph)?;
    one(operands.tensor(0, graph)?.dtype, shape)
}

fn quotient(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let args = [operands.arg(0), operands.arg(1), operands.arg(2)];
    let mut types = promoted(&args, graph)?;
    if let Some(Type::Tensor(tensor)) = types.first_mut() {
        tensor.dtype = to_floating(tensor.dtype);
    }
    Ok(types)
}

fn clamp_min(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.one(aten::CLAMP, vec![operands.arg(0).clone(), operands.arg(1).clone(), Arg::None]).and_then(done)
}

fn clamp_max(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.one(aten::CLAMP, vec![operands.arg(0).clone(), Arg::None, operands.arg(1).clone()]).and_then(done)
}

fn select(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    b.select(operands.value(0)?, operands.arg(1).clone(), operands.arg(2).clone()).and_then(done)
}

/// `start + weight * (end - start)`, from the nearer end, as PyTorch rounds it.
fn lerp(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (start, end, weight) = (operands.value(0)?, operands.value(1)?, operands.arg(2).clone());
    let dtype = b.tensor(start)?.dtype;
    let wide = compute_dtype(dtype);
    let (start, end) = (b.cast(start, wide)?, b.cast(end, wide)?);
    let weight = if b.is_tensor(&weight) { Arg::Value(b.cast(operands.value(2)?, wide)?) } else { weight };
    let difference = b.sub(end, start)?;
    let value = if matches!(weight, Arg::Float(weight) if weight >= 0.5) {
        let back = b.mul(difference, 1.0 - operands.float(2)?)?;
        b.sub(end, back)?
    } else {
        let step = b.mul(difference, weight)?;
        b.add(start, step)?
    };
    b.cast(value, dtype).and_then(done)
}

/// `self + value * f(tensor1, tensor2)`.
fn combine(b: &mut Builder<'_>, operands: &Operands<'_>, function: &str) -> Lowered {
    let args = [operands.arg(0), operands.arg(1), operands.arg(2)];
    let dtype = promote(&args, b.graph)?;
    let dtype = if function == aten::DIV_TENSOR { to_floating(dtype) } else { dtype };
    let wide = compute_dtype(dtype);
    let mut tensor = |index| b.cast(operands.value(index)?, wide);
    let (start, x, y) = (tensor(0)?, tensor(1)?, tensor(2)?);
    let product = b.one(function, vec![x.into(), y.into()])?;
    let scaled = match operands.arg(3) {
        Arg::Int(value) if value.is(1) => product,
        Arg::Float(value) if (*value - 1.0).abs() < f64::EPSILON => product,
        value => b.mul(product, value.clone())?,
    };
    let sum = b.add(start, scaled)?;
    b.cast(sum, dtype).and_then(done)
}
