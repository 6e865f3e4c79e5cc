//! Reads the inputs and outputs of an exported program.

use rushlight_compiler::front::pt2::{Archive, ImportOptions, StorageData, pickle};
use rushlight_compiler::import_pt2;
use rushlight_format::shapes::{SHAPES_KEY, Shapes};
use rushlight_format::signature::Signature;
use rushlight_graph::Bytes;
use rushlight_graph::{Arg, Expr, Graph, Input, Type};

use crate::error::Error;
use crate::meta::{TensorInfo, ValueInfo, add_names, add_range};
use crate::source::check_exported;
use crate::tensor::{Tensor, Value};

/// Maximum bytes of example inputs that are copied.
const MAX_EXAMPLE: usize = 1 << 30;

/// The description of an exported program's call.
#[derive(Clone, Debug)]
pub struct ExportedMeta {
    pub inputs: Vec<ValueInfo>,
    /// The names and nesting of the inputs and outputs in the exported function.
    pub signature: Option<Signature>,
}

/// Reads the description of the call from a `.pt2` file.
///
/// # Errors
/// `InvalidProgram` and `NotSupported`, as [`Compiler::compile`](crate::Compiler::compile).
pub fn exported_meta(bytes: impl Into<Bytes>) -> Result<ExportedMeta, Error> {
    let bytes = bytes.into();
    check_exported(&bytes, None)?;
    let model = import_pt2(&[("forward", bytes)], ImportOptions::default())?;
    let graph = model.methods.get("forward");
    let mut inputs: Vec<_> =
        graph.map_or_else(Vec::new, |graph| graph.inputs.iter().map(|input| info(graph, input)).collect());
    let blob = model.named_data.iter().find(|(key, _)| key == SHAPES_KEY);
    if let Some(Ok(Some(shapes))) = blob.and_then(|(_, blob)| blob.in_place()).map(|blob| Shapes::of(blob, "forward")) {
        shapes.rules().for_each(|rule| add_range(&mut inputs, &rule));
    }
    let signature = model.signature("forward");
    if let Some(signature) = &signature {
        add_names(&mut inputs, &signature.input_names());
    }
    Ok(ExportedMeta { inputs, signature })
}

/// Returns the example inputs that the program of a `.pt2` file was exported with, in the order of a call. `None` if
/// the file has none, or they are of unknown classes, without values, or too large.
pub fn example_inputs(bytes: &Bytes) -> Option<Vec<Value>> {
    let archive = Archive::parse(bytes.clone()).ok()?;
    let inputs = archive.model().ok()?.sample_inputs().ok()??;
    let leaves = inputs.leaves();
    let tensors = leaves
        .iter()
        .filter_map(|leaf| if let pickle::PickleValue::Tensor(tensor) = leaf { Some(tensor) } else { None });
    let size = tensors.fold(0usize, |size, tensor| size.saturating_add(tensor.nbytes()));
    (size <= MAX_EXAMPLE).then_some(())?;
    leaves.into_iter().map(example).collect()
}

fn example(leaf: &pickle::PickleValue) -> Option<Value> {
    Some(match leaf {
        pickle::PickleValue::Tensor(tensor) => {
            // The storage was saved without values.
            if matches!(tensor.storage.data, StorageData::Zeros) && tensor.numel() > 0 {
                return None;
            }
            Value::Tensor(Tensor::from_bytes(tensor.dtype, &tensor.sizes, &tensor.to_contiguous()).ok()?)
        }
        pickle::PickleValue::Int(int) => Value::Int(*int),
        pickle::PickleValue::Float(float) => Value::Double(*float),
        pickle::PickleValue::Bool(bool) => Value::Bool(*bool),
        pickle::PickleValue::String(text) => Value::String(text.to_string()),
        pickle::PickleValue::None => Value::None,
        _ => return None,
    })
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
                    ranges: Vec::new(),
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
