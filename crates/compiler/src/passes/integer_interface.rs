//! Makes inputs and outputs of methods integers instead of floats.

use rushlight_format::ScalarType;
use rushlight_graph::operators::dim_order_ops;
use rushlight_graph::quantization::{PerTensor, is_per_tensor_dequantize, is_per_tensor_quantize};
use rushlight_graph::{Arg, Def, Error, Graph, Input, Literal, Model, NodeId, Pass, Type, ValueId};
use rustc_hash::FxHashMap;

/// Changes inputs that are only quantized, and outputs that are only dequantized, to integers. Their scales and zero points become
/// constant methods with the names of ExecuTorch's `QuantizeInputs` and `QuantizeOutputs`: `forward_input0_scale`,
/// `forward_input0_zp`, `forward_output0_scale`, `forward_output0_zp`.
///
/// The nodes that quantized and dequantized are left dead. The inputs and outputs of a method that updates an input stay floats.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntegerInterface;

impl Pass for IntegerInterface {
    fn name(&self) -> &'static str {
        "integer-interface"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let mut literals: Vec<(String, Literal)> = Vec::new();
        for (method, graph) in &mut model.methods {
            if !graph.updates.is_empty() {
                continue;
            }
            let mut record = |kind: &str, index: usize, quantization: PerTensor| {
                let PerTensor { scale, zero_point, .. } = quantization;
                literals.push((format!("{method}_{kind}{index}_scale"), Literal::Float(f64::from(scale))));
                literals.push((format!("{method}_{kind}{index}_zp"), Literal::Int(zero_point)));
            };
            for (index, quantization) in inputs(graph) {
                record("input", index, quantization);
            }
            for (index, quantization) in outputs(graph) {
                record("output", index, quantization);
            }
        }
        for (name, literal) in literals {
            model.constant_methods.entry(name).or_insert_with(|| vec![literal]);
        }
        Ok(())
    }
}

/// Changes inputs to integers. Returns their indices and quantizations.
fn inputs(graph: &mut Graph) -> Vec<(usize, PerTensor)> {
    let users = graph.users();
    let only = |value: ValueId| match users.get(&value).map(Vec::as_slice) {
        Some([Some(user)]) => Some(*user),
        _ => None,
    };
    let (mut found, mut replaced) = (Vec::new(), FxHashMap::default());
    for (index, input) in graph.inputs.clone().into_iter().enumerate() {
        let Input::Value(value) = input else { continue };
        let Some(first) = only(value) else { continue };
        // A copy to another dim order may stand before the node that quantizes. It then copies integers.
        let copy = is_order_copy(graph, first).then(|| graph.nodes[first].result()).flatten();
        let Some(quantize) = copy.map_or(Some(first), only) else { continue };
        let node = &graph.nodes[quantize];
        if !is_per_tensor_quantize(node.op.name()) {
            continue;
        }
        let (Some(quantization), Some(result)) = (PerTensor::of(node), node.result()) else { continue };
        for value in [Some(value), copy].into_iter().flatten() {
            set_dtype(graph, value, quantization.dtype);
        }
        replaced.insert(result, copy.unwrap_or(value));
        found.push((index, quantization));
    }
    graph.replace_uses(&replaced);
    found
}

/// Changes outputs to integers. Returns their indices and quantizations.
fn outputs(graph: &mut Graph) -> Vec<(usize, PerTensor)> {
    let users = graph.users();
    let is_only_output = |value: ValueId| matches!(users.get(&value).map(Vec::as_slice), Some([None]));
    let is_only_copied = |value: ValueId| matches!(users.get(&value).map(Vec::as_slice), Some([Some(_)]));
    let mut found = Vec::new();
    for index in 0..graph.outputs.len() {
        let Some(output) = graph.outputs[index].as_value().filter(|value| is_only_output(*value)) else { continue };
        let Some(last) = producer(graph, output) else { continue };
        let copy = is_order_copy(graph, last).then_some(last);
        let number = match copy {
            Some(copy) => graph.nodes[copy].args.first().and_then(Arg::as_value).filter(|it| is_only_copied(*it)),
            None => Some(output),
        };
        let Some(dequantize) = number.and_then(|number| producer(graph, number)) else { continue };
        let node = &graph.nodes[dequantize];
        if !is_per_tensor_dequantize(node.op.name()) {
            continue;
        }
        let (Some(quantization), Some(integers)) = (PerTensor::of(node), node.arg("input").and_then(Arg::as_value))
        else {
            continue;
        };
        match copy {
            Some(copy) => {
                set_dtype(graph, output, quantization.dtype);
                if let Some(from) = graph.nodes[copy].args.first_mut() {
                    *from = integers.into();
                }
            }
            None => graph.outputs[index] = integers.into(),
        }
        found.push((index, quantization));
    }
    found
}

fn producer(graph: &Graph, value: ValueId) -> Option<NodeId> {
    match graph.values[value].def {
        Def::Result(node, _) => Some(node),
        _ => None,
    }
}

/// True if a node copies a tensor to another dim order and keeps its element type.
fn is_order_copy(graph: &Graph, node: NodeId) -> bool {
    let node = &graph.nodes[node];
    let dtype = |value: Option<ValueId>| value.and_then(|value| graph.tensor(value).ok()).map(|ty| ty.dtype);
    let from = node.args.first().and_then(Arg::as_value);
    node.op.name() == dim_order_ops::_TO_DIM_ORDER_COPY && dtype(from) == dtype(node.result())
}

fn set_dtype(graph: &mut Graph, value: ValueId, dtype: ScalarType) {
    if let Type::Tensor(ty) = &mut graph.values[value].ty {
        ty.dtype = dtype;
    }
}
