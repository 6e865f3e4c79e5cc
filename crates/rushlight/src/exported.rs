//! What an exported program takes.

use rushlight_compiler::front::pt2::ImportOptions;
use rushlight_compiler::graph::{Arg, Expr, Graph, Input, Type};
use rushlight_compiler::{Bytes, import_pt2};

use crate::error::Error;
use crate::meta::{TensorInfo, ValueInfo};

/// The inputs of the program that a `.pt2` file holds.
///
/// # Errors
/// `InvalidProgram` and `NotSupported`, as [`Compiler::compile`](crate::Compiler::compile).
pub fn exported_inputs(bytes: impl Into<Bytes>) -> Result<Vec<ValueInfo>, Error> {
    let model = import_pt2(&[("forward", bytes.into())], ImportOptions::default())?;
    let graph = model.methods.get("forward");
    Ok(graph.map_or_else(Vec::new, |graph| graph.inputs.iter().map(|input| info(graph, input)).collect()))
}

fn info(graph: &Graph, input: &Input) -> ValueInfo {
    match input {
        Input::Value(value) => match graph.ty(*value) {
            Type::Tensor(ty) => {
                let bound = |size: &Expr| size.upper_bound(&graph.symbols).and_then(|size| usize::try_from(size).ok());
                let sizes: Vec<usize> = ty.shape.iter().map(|size| bound(size).unwrap_or(0)).collect();
                ValueInfo::Tensor(TensorInfo {
                    dtype: ty.dtype,
                    nbytes: ty.max_bytes(&graph.symbols).unwrap_or(0),
                    sizes,
                    dim_order: ty.dim_order.clone(),
                    is_dynamic: !ty.shape.iter().all(Expr::is_static),
                    is_memory_planned: false,
                    name: Some(graph.values[*value].name.clone()),
                })
            }
            Type::Int(expr) => expr.as_int().map_or(ValueInfo::None, ValueInfo::Int),
            Type::Float => ValueInfo::Double(0.0),
            Type::Bool => ValueInfo::Bool(false),
        },
        Input::Literal(arg) => match arg {
            Arg::Int(expr) => expr.as_int().map_or(ValueInfo::None, ValueInfo::Int),
            Arg::Float(float) => ValueInfo::Double(*float),
            Arg::Bool(bool) => ValueInfo::Bool(*bool),
            Arg::Str(text) => ValueInfo::String(text.clone()),
            _ => ValueInfo::None,
        },
    }
}
