//! Functions of one element, or of one element each of several tensors.

use rushlight_format::ScalarType;

use crate::error::Error;
use crate::graph::{Arg, Builder, Expr, Graph, TensorType, Type, ValueId};

use super::promotion::to_floating;
use super::{Definition, Operands, broadcast, composite, kernel, promote};

pub(crate) const OPS: &[Definition] = &[
    kernel("aten::abs", same),
    kernel("aten::neg", same),
    kernel("aten::relu", same),
    kernel("aten::hardtanh", same),
    composite("aten::relu6", same, relu6),
    kernel("aten::exp", floating),
    kernel("aten::tanh", floating),
    kernel("aten::sigmoid", floating),
    kernel("aten::add.Tensor", arithmetic),
    kernel("aten::add.Scalar", arithmetic),
    kernel("aten::sub.Tensor", arithmetic),
    kernel("aten::mul.Tensor", arithmetic),
    kernel("aten::mul.Scalar", arithmetic),
    kernel("aten::eq.Tensor", comparison),
];

/// The type of the first argument.
fn same(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    Ok(vec![Type::Tensor(TensorType::new(tensor.dtype, tensor.shape.clone()))])
}

/// The shape of the first argument, in a floating dtype.
fn floating(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    Ok(vec![Type::Tensor(TensorType::new(to_floating(tensor.dtype), tensor.shape.clone()))])
}

/// Two arguments, promoted and broadcast.
fn arithmetic(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (a, b) = (operands.arg(0), operands.arg(1));
    Ok(vec![Type::Tensor(TensorType::new(promote(&[a, b], graph)?, broadcast_shape(&[a, b], graph)?))])
}

/// A truth value for each pair.
fn comparison(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let shape = broadcast_shape(&[operands.arg(0), operands.arg(1)], graph)?;
    Ok(vec![Type::Tensor(TensorType::new(ScalarType::Bool, shape))])
}

/// The common shape of the tensors among the arguments.
fn broadcast_shape(args: &[&Arg], graph: &Graph) -> Result<Vec<Expr>, Error> {
    let tensors = args.iter().filter_map(|arg| graph.ty(arg.as_value()?).as_tensor());
    broadcast(tensors.map(|tensor| tensor.shape.as_slice()))
}

/// `relu6(x)` is `hardtanh(x, 0, 6)`.
fn relu6(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<Option<Vec<ValueId>>, Error> {
    b.call("aten::hardtanh", vec![operands.value(0)?.into(), Arg::from(0), Arg::from(6)]).map(Some)
}
