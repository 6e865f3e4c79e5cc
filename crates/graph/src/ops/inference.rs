//! Result types that many operators share.

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Arg, Expr, Graph, TensorType, Type};

use super::promotion::to_floating;
use super::{Operands, broadcast, promote};

/// One contiguous tensor.
pub(crate) fn one(dtype: ScalarType, shape: Vec<Expr>) -> Result<Vec<Type>, Error> {
    Ok(vec![tensor(dtype, shape)])
}

/// A contiguous tensor.
pub(crate) fn tensor(dtype: ScalarType, shape: Vec<Expr>) -> Type {
    Type::Tensor(TensorType::new(dtype, shape))
}

/// Types that only the exported program tells, since they depend on data.
pub(crate) fn by_data(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    operands.known_types(graph).ok_or_else(|| {
        let name = &operands.schema.name;
        Error::unsupported(format!("the size of what `{name}` gives is only known when the program runs"))
    })
}

/// The type of the first argument.
pub(crate) fn same(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(input.dtype, input.shape.clone())
}

/// The shape of the first argument, in a floating dtype.
pub(crate) fn floating(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(to_floating(input.dtype), input.shape.clone())
}

/// A truth value for each element of the first argument.
pub(crate) fn truth(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(ScalarType::Bool, operands.tensor(0, graph)?.shape.clone())
}

/// The first two arguments, promoted and broadcast.
pub(crate) fn arithmetic(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    promoted(&[operands.arg(0), operands.arg(1)], graph)
}

/// The first three arguments, promoted and broadcast.
pub(crate) fn arithmetic3(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    promoted(&[operands.arg(0), operands.arg(1), operands.arg(2)], graph)
}

/// The first two arguments, promoted to a floating dtype and broadcast.
pub(crate) fn floating_arithmetic(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let args = [operands.arg(0), operands.arg(1)];
    one(to_floating(promote(&args, graph)?), broadcast_shape(&args, graph)?)
}

/// A truth value for each pair of the first two arguments.
pub(crate) fn comparison(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(ScalarType::Bool, broadcast_shape(&[operands.arg(0), operands.arg(1)], graph)?)
}

/// Tensors and numbers, promoted and broadcast; those that are absent do not count.
pub(crate) fn promoted(args: &[&Arg], graph: &Graph) -> Result<Vec<Type>, Error> {
    one(promote(args, graph)?, broadcast_shape(args, graph)?)
}

/// The common shape of the tensors among the arguments.
pub(crate) fn broadcast_shape(args: &[&Arg], graph: &Graph) -> Result<Vec<Expr>, Error> {
    let tensors = args.iter().filter_map(|arg| graph.ty(arg.as_value()?).as_tensor());
    broadcast(tensors.map(|tensor| tensor.shape.as_slice()))
}
