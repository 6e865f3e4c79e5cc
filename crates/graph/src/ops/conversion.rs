//! Copies and conversions of dtype. Values never alias in a graph, so a copy is the value itself.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, dim_order_ops, quantized_decomposed};
use crate::{Arg, Builder, Graph, Type};

use super::inference::{one, same};
use super::{Definition, Lower, Lowered, Operands, composite, done, identity};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::CLONE, same, identity),
    composite(aten::CONTIGUOUS, same, identity),
    composite(dim_order_ops::_CLONE_DIM_ORDER, same, |b, o| reorder(b, o, identity)),
    composite(dim_order_ops::_TO_DIM_ORDER_COPY, converted, |b, o| reorder(b, o, convert)),
    composite(aten::_TO_COPY, converted, to_copy),
    composite(aten::TO_DTYPE, converted, convert),
    composite(aten::TO_DEVICE, converted, convert),
    composite(aten::TO_DTYPE_LAYOUT, converted, convert),
    composite(aten::TO_OTHER, as_other, convert_as),
    composite(aten::TYPE_AS, as_other, convert_as),
    composite(quantized_decomposed::CONVERT_ELEMENT_TYPE_NO_FUSE, converted, convert),
    composite(aten::COPY, same, copy),
];

/// The dtype of the parameter of that name, if it is given.
fn dtype_of(operands: &Operands<'_>) -> Result<Option<ScalarType>, Error> {
    operands.dtype(operands.schema.position("dtype").unwrap_or(usize::MAX))
}

fn converted(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(dtype_of(operands)?.unwrap_or(input.dtype), input.shape.clone())
}

fn convert(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    match dtype_of(operands)? {
        Some(dtype) => b.cast(x, dtype).and_then(done),
        None => done(x),
    }
}

/// Kernels have it where it changes the order of the elements; otherwise it is `plain`.
fn reorder(b: &mut Builder<'_>, operands: &Operands<'_>, plain: Lower) -> Lowered {
    let from = &operands.tensor(0, b.graph)?.dim_order;
    let to = operands.known_types(b.graph).and_then(|types| types.into_iter().next());
    match to {
        Some(Type::Tensor(to)) if to.dim_order != *from => Ok(None),
        _ => plain(b, operands),
    }
}

/// Kernels have it; what changes no dtype goes, and devices and memory formats mean nothing.
fn to_copy(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dtype = dtype_of(operands)?.filter(|dtype| b.graph.tensor(x).is_ok_and(|ty| ty.dtype != *dtype));
    let Some(dtype) = dtype else { return done(x) };
    let plain = operands.args.iter().skip(2).all(|arg| matches!(arg, Arg::None | Arg::Bool(false)));
    if plain { Ok(None) } else { b.cast(x, dtype).and_then(done) }
}

fn as_other(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.tensor(1, graph)?.dtype, operands.tensor(0, graph)?.shape.clone())
}

fn convert_as(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dtype = operands.tensor(1, b.graph)?.dtype;
    b.cast(operands.value(0)?, dtype).and_then(done)
}

/// The second tensor, in the first one's dtype and shape.
fn copy(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let ty = operands.tensor(0, b.graph)?.clone();
    let source = b.cast(operands.value(1)?, ty.dtype)?;
    if b.tensor(source)?.shape == ty.shape {
        return done(source);
    }
    b.one(aten::EXPAND_COPY, vec![source.into(), ty.shape.into()]).and_then(done)
}
