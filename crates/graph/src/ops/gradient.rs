//! The gradients that kernels have, for programs that train on the device.

use crate::Error;
use crate::operators::aten;
use crate::{Expr, Graph, Type};

use super::inference::{one, tensor};
use super::{Definition, Operands, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::_ADAPTIVE_AVG_POOL2D_BACKWARD, |o, g| like(o, g, 1)),
    kernel(aten::AVG_POOL2D_BACKWARD, |o, g| like(o, g, 1)),
    kernel(aten::MAX_POOL2D_WITH_INDICES_BACKWARD, |o, g| like(o, g, 1)),
    kernel(aten::CONVOLUTION_BACKWARD, convolution),
    kernel(aten::EMBEDDING_DENSE_BACKWARD, embedding),
    kernel(aten::NATIVE_GROUP_NORM_BACKWARD, group_norm),
    kernel(aten::NATIVE_LAYER_NORM_BACKWARD, layer_norm),
];

fn like(operands: &Operands<'_>, graph: &Graph, index: usize) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(index, graph)?;
    one(input.dtype, input.shape.clone())
}

/// The gradients of the input, the weight and the bias; that of the bias is as long as there are output channels.
fn convolution(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (gradient, weight) = (operands.tensor(0, graph)?, operands.tensor(2, graph)?);
    let channels = gradient.shape.get(1).cloned().ok_or_else(|| operands.wrong(0, "a tensor with channels"))?;
    let mut types = like(operands, graph, 1)?;
    types.push(tensor(weight.dtype, weight.shape.clone()));
    types.push(tensor(gradient.dtype, vec![channels]));
    Ok(types)
}

fn embedding(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let gradient = operands.tensor(0, graph)?;
    let width = gradient.shape.last().cloned().ok_or_else(|| operands.wrong(0, "a tensor with dimensions"))?;
    one(gradient.dtype, vec![operands.expr(2)?, width])
}

/// The gradients of the input, and of the weight and the bias of each channel.
fn group_norm(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    affine(operands, graph, vec![operands.expr(6)?])
}

fn layer_norm(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    affine(operands, graph, operands.exprs(2)?)
}

fn affine(operands: &Operands<'_>, graph: &Graph, shape: Vec<Expr>) -> Result<Vec<Type>, Error> {
    let mut types = like(operands, graph, 1)?;
    let dtype = operands.tensor(1, graph)?.dtype;
    types.extend([tensor(dtype, shape.clone()), tensor(dtype, shape)]);
    Ok(types)
}
