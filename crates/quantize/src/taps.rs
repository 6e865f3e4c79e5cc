//! Programs that return intermediate values of a model.

use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::Operands;
use rushlight_graph::{Arg, Builder, Def, Expr, Graph, Model, Op, OriginId, ValueId};

use rushlight_compiler::quantization::Layer;

use super::read::Reader;

/// Makes a model with one method that returns some values. The first `turned` of them are returned with their channels
/// last if they are results of convolutions, because this is how they are computed.
pub(super) fn with_outputs(model: &Model, method: &str, values: &[ValueId], turned: usize) -> Result<Model, Error> {
    let mut model = alone(model, method);
    let Model { methods, constants, schemas, .. } = &mut model;
    let Some(graph) = methods.get_mut(method) else { return Ok(model) };
    let body = graph.body;
    let mut outputs = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let node = match graph.values[*value].def {
            Def::Result(node, _) if index < turned => node,
            _ => {
                outputs.push(Arg::Value(*value));
                continue;
            }
        };
        let dims: &[i64] = match graph.tensor(*value)?.rank() {
            5 if graph.nodes[node].op.name() == aten::CONVOLUTION => &[0, 2, 3, 4, 1],
            4 => &[0, 2, 3, 1],
            3 if graph.nodes[node].op.name() == aten::CONVOLUTION => &[0, 2, 1],
            _ => &[],
        };
        let origin = graph.nodes[node].origin;
        let mut builder = Builder::new(graph, constants, schemas, body, origin);
        outputs.push(Arg::Value(match dims {
            [] => *value,
            dims => builder.one(aten::PERMUTE_COPY, vec![Arg::Value(*value), Arg::from(dims)])?,
        }));
    }
    graph.outputs = outputs;
    Ok(model)
}

/// Makes a model with one method, without the nesting of its outputs.
pub(super) fn alone(model: &Model, method: &str) -> Model {
    let mut model = model.clone();
    model.constant_methods.clear();
    model.methods.retain(|name, _| name == method);
    if let Some(graph) = model.methods.get_mut(method) {
        graph.output_encoding.clear();
    }
    model
}

/// The outputs of a method that are floats.
pub(super) fn float_outputs(graph: &Graph) -> Vec<ValueId> {
    let values = graph.outputs.iter().filter_map(Arg::as_value);
    values.filter(|value| is_float(graph, *value)).collect()
}

/// True if a value is a tensor of floats.
pub(super) fn is_float(graph: &Graph, value: ValueId) -> bool {
    graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Float)
}

/// The source of the left-hand matrix of a layer's GEMM: layers with equal sources multiply the same matrix.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LhsSource {
    input: ValueId,
    /// The geometry of a convolution, whose matrix is the `im2col` of the input; `None` for a linear layer.
    window: Option<ConvGeometry>,
}

/// Kernel sizes, stride, padding and dilation of a convolution.
#[derive(Clone, Debug, PartialEq)]
struct ConvGeometry {
    sizes: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
}

impl LhsSource {
    /// The source of a layer's matrix; `None` for grouped convolutions, which have few weights per group, for transposed
    /// ones, and for layers in loops or recurrent operators, whose weights multiply the inputs of many steps.
    pub fn of(reader: Reader<'_>, layer: &Layer) -> Option<Self> {
        if layer.is_nested || layer.is_recurrent {
            return None;
        }
        let node = &reader.graph.nodes[layer.node];
        if layer.is_linear(reader.graph) {
            return Some(Self { input: layer.input, window: None });
        }
        (layer.axis == 0).then_some(())?;
        let sizes: Vec<i64> = layer.sizes.get(2..)?.iter().map(|size| *size as i64).collect();
        let Op::Call(schema) = &node.op else { return None };
        let operands = Operands::new(schema, &node.args);
        let list = |name: &str| operands.ints_for(schema.position(name)?, sizes.len(), &[]).ok();
        let (stride, padding, dilation) = (list("stride")?, list("padding")?, list("dilation")?);
        (operands.int(schema.position("groups")?).ok()? == 1).then_some(())?;
        Some(Self { input: layer.input, window: Some(ConvGeometry { sizes, stride, padding, dilation }) })
    }
}

/// Makes a model that returns the Gram matrix `rowsᵀ * rows` of each source. The columns of windows are ordered by
/// position, then by channel.
pub(super) fn with_gram_matrices(model: &Model, method: &str, all: &[(&LhsSource, OriginId)]) -> Result<Model, Error> {
    let mut model = alone(model, method);
    let Model { methods, constants, schemas, .. } = &mut model;
    let Some(graph) = methods.get_mut(method) else { return Ok(model) };
    let mut wanted: FxHashMap<ValueId, Vec<usize>> = FxHashMap::default();
    for (index, (rows, _)) in all.iter().enumerate() {
        wanted.entry(rows.input).or_default().push(index);
    }
    let body = graph.body;
    let nodes = std::mem::take(&mut graph.blocks[body].nodes);
    // Inputs of the method are available before any node.
    let mut outputs = vec![None; all.len()];
    let mut ready: Vec<ValueId> = graph.blocks[body].params.clone();
    let mut rest = nodes.into_iter();
    loop {
        for value in ready.drain(..) {
            for index in wanted.remove(&value).unwrap_or_default() {
                let (rows, origin) = all[index];
                let mut builder = Builder::new(graph, constants, schemas, body, origin);
                outputs[index] = Some(gram(&mut builder, rows)?);
            }
        }
        let Some(node) = rest.next() else { break };
        graph.blocks[body].nodes.push(node);
        ready.clone_from(&graph.nodes[node].results);
    }
    graph.outputs = outputs.into_iter().flatten().map(Arg::Value).collect();
    Ok(model)
}

fn gram(b: &mut Builder<'_>, rows: &LhsSource) -> Result<ValueId, Error> {
    let matrix = matrix(b, rows)?;
    let columns = b.one(aten::PERMUTE_COPY, vec![Arg::Value(matrix), Arg::from([1, 0])])?;
    b.one(aten::MM, vec![Arg::Value(columns), Arg::Value(matrix)])
}

/// The rows as a matrix.
fn matrix(b: &mut Builder<'_>, rows: &LhsSource) -> Result<ValueId, Error> {
    let mut value = rows.input;
    if let Some(window) = &rows.window {
        value = windows(b, value, window)?;
        let dims: Vec<i64> = [0].into_iter().chain(2..2 + window.sizes.len() as i64).chain([1]).collect();
        value = b.one(aten::PERMUTE_COPY, vec![Arg::Value(value), Arg::from(dims.as_slice())])?;
    }
    let shape = b.tensor(value)?.shape;
    let Some((k, outer)) = shape.split_last() else { return Ok(value) };
    b.one(aten::VIEW_COPY, vec![Arg::Value(value), Arg::from(vec![Expr::product(outer), k.clone()])])
}

/// Unfolds the windows of a convolution: the kernel positions become channels.
fn windows(b: &mut Builder<'_>, input: ValueId, window: &ConvGeometry) -> Result<ValueId, Error> {
    let dims = window.sizes.len();
    let mut value = input;
    if window.padding.iter().any(|pad| *pad != 0) {
        let pads: Vec<i64> = window.padding.iter().rev().flat_map(|pad| [*pad, *pad]).collect();
        value = b.one(aten::CONSTANT_PAD_ND, vec![Arg::Value(value), Arg::from(pads.as_slice()), Arg::from(0)])?;
    }
    let shape = b.tensor(value)?.shape;
    let taps: i64 = window.sizes.iter().product();
    let mut seen = Vec::new();
    for tap in 0..taps {
        let (mut rest, mut slice) = (tap, value);
        for dim in (0..dims).rev() {
            let (size, stride, dilation) = (window.sizes[dim], window.stride[dim], window.dilation[dim]);
            let at = rest % size;
            rest /= size;
            if size == 1 && stride == 1 {
                continue;
            }
            // The last window begins where its last position is still inside.
            let end = shape[dim + 2].sub((size - 1 - at) * dilation);
            let args = vec![
                Arg::Value(slice),
                Arg::from(dim as i64 + 2),
                Arg::from(at * dilation),
                Arg::Int(end),
                Arg::from(stride),
            ];
            slice = b.one(aten::SLICE_COPY_TENSOR, args)?;
        }
        seen.push(slice);
    }
    if let [only] = seen.as_slice() {
        return Ok(*only);
    }
    b.one(aten::CAT, vec![Arg::from(seen), Arg::from(1)])
}
