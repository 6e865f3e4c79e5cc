//! Sites of quantization: the layers that compute in integers, and the values that are quantized.

use rustc_hash::{FxHashMap, FxHashSet};

use rushlight_format::ScalarType;

use rushlight_graph::operators::{aten, rushlight};
use rushlight_graph::{Arg, Constant, Def, Graph, Model, Node, NodeId, ValueId};

/// A convolution or a linear layer with constant weights.
#[derive(Clone, Debug)]
pub struct Layer {
    pub node: NodeId,
    /// The path of the module, or else the name of the node.
    pub name: String,
    pub input: ValueId,
    /// A constant of floats.
    pub weight: ValueId,
    /// The dimension of the weight that is that of the output channels: the second of transposed convolutions.
    pub axis: usize,
}

/// Sites of quantization in a method.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    pub layers: Vec<Layer>,
    /// Quantized values, each with the number of its scale.
    pub(super) quantized: FxHashMap<ValueId, usize>,
    /// For each scale the values whose ranges it must cover.
    pub(super) observed: Vec<Vec<ValueId>>,
    /// Nodes that compute with quantized inputs.
    pub(super) integers: FxHashSet<NodeId>,
}

/// The role of an operator in quantized computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A convolution or a linear layer.
    Gemm,
    /// An elementwise operator of two tensors.
    Binary,
    /// A function of one tensor, which becomes a table, or reads one.
    Unary,
    /// Moves or averages elements, so that its result has the scale of its input.
    SameScale,
    Concat,
    Float,
}

fn kind(name: &str) -> Kind {
    match name {
        aten::CONVOLUTION | aten::LINEAR | rushlight::EXPERTS_LINEAR => Kind::Gemm,
        aten::ADD_TENSOR | aten::MUL_TENSOR => Kind::Binary,
        aten::RELU
        | aten::HARDTANH
        | aten::CLAMP
        | aten::LEAKY_RELU
        | aten::HARDSWISH
        | aten::HARDSIGMOID
        | aten::SIGMOID
        | aten::SILU
        | aten::TANH
        | aten::GELU
        | aten::ELU
        | aten::_SOFTMAX => Kind::Unary,
        aten::MAX_POOL2D_WITH_INDICES
        | aten::ADAPTIVE_AVG_POOL2D
        | aten::_ADAPTIVE_AVG_POOL2D
        | aten::AVG_POOL2D
        | aten::MEAN_DIM
        | aten::VIEW_COPY
        | aten::PERMUTE_COPY
        | aten::UNSQUEEZE_COPY
        | aten::SQUEEZE_COPY_DIMS
        | aten::SLICE_COPY_TENSOR
        | aten::SELECT_COPY_INT
        | aten::CLONE
        | aten::CONSTANT_PAD_ND
        | aten::UPSAMPLE_NEAREST2D_VEC
        | aten::UPSAMPLE_BILINEAR2D_VEC => Kind::SameScale,
        aten::CAT => Kind::Concat,
        _ => Kind::Float,
    }
}

/// True for operators that the epilogue of the layer before them computes.
fn is_epilogue(name: &str) -> bool {
    matches!(name, aten::RELU | aten::HARDTANH | aten::CLAMP | aten::LEAKY_RELU | aten::HARDSWISH | aten::HARDSIGMOID)
}

/// True for operators that only clamp their input.
fn is_clamp(name: &str) -> bool {
    matches!(name, aten::RELU | aten::HARDTANH | aten::CLAMP)
}

impl Sites {
    /// The convolutions and linear layers of a method with constant weights.
    pub fn layers(model: &Model, method: &str) -> Vec<Layer> {
        let Some(graph) = model.methods.get(method) else { return Vec::new() };
        let nodes = graph.blocks[graph.body].nodes.iter();
        nodes.filter_map(|node| layer(model, graph, *node)).collect()
    }

    /// The embeddings of a method whose tables are constants; their inputs are the indices.
    pub fn embeddings(model: &Model, method: &str) -> Vec<Layer> {
        let Some(graph) = model.methods.get(method) else { return Vec::new() };
        let nodes = graph.blocks[graph.body].nodes.iter();
        nodes.filter_map(|node| table(model, graph, *node)).collect()
    }

    /// Finds the sites for these layers, and for the operators between them.
    pub fn of(model: &Model, method: &str, layers: Vec<Layer>) -> Self {
        let Some(graph) = model.methods.get(method) else { return Self::default() };
        let gemms: FxHashSet<NodeId> = layers.iter().map(|layer| layer.node).collect();
        let uses = uses(graph);
        let mut integers: FxHashSet<NodeId> = FxHashSet::default();
        // The results of nodes that compute in integers; one is quantized if such a node reads it.
        let mut given: FxHashSet<ValueId> = FxHashSet::default();
        for id in &graph.blocks[graph.body].nodes {
            let node = &graph.nodes[*id];
            let operands = operands(graph, node);
            let is_integer = match kind(node.op.name()) {
                Kind::Gemm => gemms.contains(id),
                Kind::Float => false,
                Kind::Binary => {
                    let are_tensors =
                        operands.len() == 2 && !operands.iter().any(|it| graph.constant_of(*it).is_some());
                    are_tensors && operands.iter().any(|operand| given.contains(operand))
                }
                Kind::Concat => operands.iter().any(|operand| given.contains(operand)),
                Kind::Unary | Kind::SameScale => operands.first().is_some_and(|operand| given.contains(operand)),
            };
            if is_integer {
                integers.insert(*id);
                given.extend(node.results.first().filter(|result| is_float(graph, **result)));
            }
        }
        let takes =
            |value: ValueId| uses.get(&value).into_iter().flatten().flatten().any(|node| integers.contains(node));
        // A value that only the epilogue of its node reads stays in registers.
        let inner = |id: NodeId, result: ValueId| {
            let [Some(only)] = uses.get(&result).map_or(&[][..], Vec::as_slice) else { return false };
            let name = graph.nodes[*only].op.name();
            match kind(graph.nodes[id].op.name()) {
                Kind::Gemm => is_epilogue(name),
                Kind::Binary => is_clamp(name),
                _ => false,
            }
        };
        let mut quantized: Vec<ValueId> = Vec::new();
        for id in &graph.blocks[graph.body].nodes {
            if !integers.contains(id) {
                continue;
            }
            for operand in operands(graph, &graph.nodes[*id]) {
                let stays = match graph.values[operand].def {
                    Def::Constant(_) | Def::State(_) => true,
                    Def::Result(node, _) => integers.contains(&node) && inner(node, operand),
                    Def::Param(_) => false,
                };
                if !stays && takes(operand) && !quantized.contains(&operand) {
                    quantized.push(operand);
                }
            }
        }
        let (quantized, observed) = scales(graph, &integers, &quantized);
        Self { layers, quantized, observed, integers }
    }
}

/// Groups the values that have the same scale, and selects those to observe.
fn scales(
    graph: &Graph,
    integers: &FxHashSet<NodeId>,
    quantized: &[ValueId],
) -> (FxHashMap<ValueId, usize>, Vec<Vec<ValueId>>) {
    let mut first: FxHashMap<ValueId, ValueId> = quantized.iter().map(|value| (*value, *value)).collect();
    fn root(first: &FxHashMap<ValueId, ValueId>, mut value: ValueId) -> ValueId {
        while let Some(next) = first.get(&value).filter(|next| **next != value) {
            value = *next;
        }
        value
    }
    for id in &graph.blocks[graph.body].nodes {
        let node = &graph.nodes[*id];
        let Some(result) = node.results.first().filter(|_| integers.contains(id)) else { continue };
        if matches!(kind(node.op.name()), Kind::SameScale | Kind::Concat) {
            for operand in operands(graph, node) {
                if first.contains_key(result) && first.contains_key(&operand) {
                    let (from, to) = (root(&first, *result), root(&first, operand));
                    first.insert(from, to);
                }
            }
        }
    }
    let mut numbers: FxHashMap<ValueId, usize> = FxHashMap::default();
    let (mut scale_of, mut observed): (FxHashMap<ValueId, usize>, Vec<Vec<ValueId>>) =
        (FxHashMap::default(), Vec::new());
    for value in quantized {
        let count = numbers.len();
        let number = *numbers.entry(root(&first, *value)).or_insert(count);
        observed.resize(numbers.len(), Vec::new());
        scale_of.insert(*value, number);
        // Nodes of the same scale widen no range.
        let is_new = match graph.values[*value].def {
            Def::Result(node, _) => {
                let is_same = matches!(kind(graph.nodes[node].op.name()), Kind::SameScale | Kind::Concat);
                let from = operands(graph, &graph.nodes[node]);
                !(is_same && integers.contains(&node) && from.iter().all(|operand| first.contains_key(operand)))
            }
            _ => true,
        };
        if is_new {
            observed[number].push(*value);
        }
    }
    (scale_of, observed)
}

fn layer(model: &Model, graph: &Graph, id: NodeId) -> Option<Layer> {
    let node = &graph.nodes[id];
    let value = |name: &str| node.arg(name).and_then(Arg::as_value);
    if kind(node.op.name()) != Kind::Gemm {
        return None;
    }
    let input = value("input")?;
    let axis = usize::from(matches!(node.arg("transposed"), Some(Arg::Bool(true))));
    let weight = value("weight")?;
    let Constant { ty, .. } = &model.constants[graph.constant_of(weight)?];
    // Windows of one or two dimensions.
    let is_computed = ty.rank() == 2 || node.op.name() == aten::CONVOLUTION && matches!(ty.rank(), 3 | 4);
    if !is_computed || ty.dtype != ScalarType::Float || !is_float(graph, input) || graph.constant_of(input).is_some() {
        return None;
    }
    Some(Layer { node: id, name: module(graph, node), input, weight, axis })
}

fn table(model: &Model, graph: &Graph, id: NodeId) -> Option<Layer> {
    let node = graph.nodes.get(id).filter(|node| node.op.name() == aten::EMBEDDING)?;
    let value = |name: &str| node.arg(name).and_then(Arg::as_value);
    let (input, weight) = (value("indices")?, value("weight")?);
    let Constant { ty, .. } = &model.constants[graph.constant_of(weight)?];
    let is_table = ty.rank() == 2 && ty.dtype == ScalarType::Float;
    is_table.then(|| Layer { node: id, name: module(graph, node), input, weight, axis: 0 })
}

/// The path of a node's module, or else its name.
fn module(graph: &Graph, node: &Node) -> String {
    let origin = &graph.origins[node.origin];
    if origin.module.is_empty() { origin.node.clone() } else { origin.module.clone() }
}

/// The tensors of floats that a node computes with, but weights.
pub(super) fn operands(graph: &Graph, node: &Node) -> Vec<ValueId> {
    let mut operands = Vec::new();
    if kind(node.op.name()) == Kind::Gemm {
        operands.extend(node.arg("input").and_then(Arg::as_value));
    } else {
        node.args.iter().for_each(|arg| {
            arg.for_each_value(&mut |value| {
                if !operands.contains(&value) {
                    operands.push(value);
                }
            });
        });
        if operands.len() == 1 && kind(node.op.name()) == Kind::Binary {
            // A tensor with itself.
            operands.push(operands[0]);
        }
    }
    operands.retain(|value| is_float(graph, *value));
    operands
}

fn is_float(graph: &Graph, value: ValueId) -> bool {
    graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Float)
}

/// The nodes of the body that use each value; a method's own results are used by none.
fn uses(graph: &Graph) -> FxHashMap<ValueId, Vec<Option<NodeId>>> {
    let mut uses: FxHashMap<ValueId, Vec<Option<NodeId>>> = FxHashMap::default();
    for id in &graph.blocks[graph.body].nodes {
        graph.for_each_use_by(*id, &mut |value| {
            let users = uses.entry(value).or_default();
            if users.last() != Some(&Some(*id)) {
                users.push(Some(*id));
            }
        });
    }
    let mut leave = |value: ValueId| uses.entry(value).or_default().push(None);
    graph.outputs.iter().for_each(|arg| arg.for_each_value(&mut leave));
    graph.updates.iter().for_each(|update| leave(update.value));
    uses
}
