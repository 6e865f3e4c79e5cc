//! Layers with constant weights: those that can be quantized.

use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, rushlight};
use rushlight_graph::ops::Operands;
use rushlight_graph::quantization::{ConvolutionShape, LayerShape};
use rushlight_graph::{Arg, Graph, Model, Node, NodeId, Op, OriginId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

/// A convolution, a linear layer or an embedding with constant weights of `f32`.
#[derive(Clone, Debug)]
pub struct Layer {
    pub node: NodeId,
    /// The path of the module, or else the name of the node; that of the weight in a recurrent operator.
    pub name: String,
    /// The activation; the indices of an embedding.
    pub input: ValueId,
    pub weight: ValueId,
    /// The dimension of the weight that is that of the output channels: the second of transposed convolutions.
    pub axis: usize,
    /// Sizes of the weight; empty if they are not known.
    pub sizes: Vec<usize>,
    /// True for a linear layer of an LSTM, a GRU or another recurrent operator.
    pub is_recurrent: bool,
    /// True in a block of control flow, such as the body of a loop. A calibration does not see the values in there.
    pub is_nested: bool,
}

/// The recurrent operators of a model. PyTorch's `nn.LSTM`, `nn.GRU`, `nn.RNN` and their cells are such operators, or modules that
/// `run_decompositions` has replaced by their steps.
#[derive(Clone, Debug, Default)]
pub struct Recurrent {
    origins: FxHashMap<String, FxHashSet<OriginId>>,
}

impl Recurrent {
    /// Finds the recurrent operators of a model before they are decomposed. Later their nodes have the same origins.
    pub fn of(model: &Model) -> Self {
        let methods = model.methods.iter();
        Self { origins: methods.map(|(method, graph)| (method.clone(), recurrent(model, graph))).collect() }
    }

    fn contains(&self, method: &str, origin: OriginId) -> bool {
        self.origins.get(method).is_some_and(|origins| origins.contains(&origin))
    }
}

/// The origins of a method's recurrent operators, and of the nodes in modules with the parameters of one.
fn recurrent(model: &Model, graph: &Graph) -> FxHashSet<OriginId> {
    let mut modules: FxHashSet<&str> = FxHashSet::default();
    graph.for_each_use(&mut |value| {
        let Some(name) = graph.constant_of(value).map(|id| model.constants[id].name.as_str()) else { return };
        let (module, parameter) = name.rsplit_once('.').unwrap_or(("", name));
        if parameter.starts_with("weight_hh") {
            modules.insert(module);
        }
    });
    let mut origins = FxHashSet::default();
    graph.for_each_node(graph.body, &mut |node| {
        let Node { op, origin, .. } = &graph.nodes[node];
        if RECURRENT.contains(&op.name()) || modules.contains(graph.origins[*origin].module.as_str()) {
            origins.insert(*origin);
        }
    });
    origins
}

/// The operators with steps over a sequence, and their single steps.
const RECURRENT: [&str; 8] = [
    aten::LSTM_INPUT,
    aten::GRU_INPUT,
    aten::RNN_TANH_INPUT,
    aten::RNN_RELU_INPUT,
    aten::LSTM_CELL,
    aten::GRU_CELL,
    aten::RNN_TANH_CELL,
    aten::RNN_RELU_CELL,
];

impl Layer {
    /// Returns the convolutions and linear layers of a method, in order.
    pub fn all(model: &Model, method: &str, graph: &Graph, recurrent: &Recurrent) -> Vec<Self> {
        let body: FxHashSet<NodeId> = graph.blocks[graph.body].nodes.iter().copied().collect();
        let mut layers = Vec::new();
        graph.for_each_node(graph.body, &mut |node| {
            let Some(mut layer) = gemm(model, graph, node) else { return };
            layer.is_nested = !body.contains(&node);
            layer.is_recurrent = recurrent.contains(method, graph.nodes[node].origin);
            if let Some(constant) = graph.constant_of(layer.weight).filter(|_| layer.is_recurrent) {
                // A recurrent module has several weights.
                layer.name.clone_from(&model.constants[constant].name);
            }
            layers.push(layer);
        });
        layers
    }

    /// Returns the embeddings of a graph's body whose tables are constants, in order.
    pub fn embeddings(model: &Model, graph: &Graph) -> Vec<Self> {
        let nodes = graph.blocks[graph.body].nodes.iter();
        nodes.filter_map(|node| embedding(model, graph, *node)).collect()
    }

    /// True for a linear layer.
    pub fn is_linear(&self, graph: &Graph) -> bool {
        is_linear(graph.nodes[self.node].op.name())
    }

    /// Number of weights.
    pub fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Number of weights of an output channel.
    pub fn k(&self) -> usize {
        self.sizes.iter().enumerate().filter(|(dim, _)| *dim != self.axis).map(|(_, size)| size).product()
    }

    /// Returns the shape of the weights, with the parameters of a convolution; `None` if it is not known.
    pub fn shape(&self, graph: &Graph) -> Option<LayerShape<'_>> {
        let sizes = self.sizes.as_slice();
        if self.is_linear(graph) {
            return Some(LayerShape { sizes, convolution: None });
        }
        let node = &graph.nodes[self.node];
        let Op::Call(schema) = &node.op else { return None };
        let operands = Operands::new(schema, &node.args);
        let taps = sizes.len().checked_sub(2)?;
        let list = |name: &str| -> Option<Vec<usize>> {
            let ints = operands.ints_for(schema.position(name)?, taps, &[]).ok()?;
            ints.into_iter().map(|int| usize::try_from(int).ok()).collect()
        };
        let groups = usize::try_from(operands.int(schema.position("groups")?).ok()?).ok()?;
        let is_transposed = self.axis == 1;
        let window = ConvolutionShape { stride: list("stride")?, dilation: list("dilation")?, groups, is_transposed };
        Some(LayerShape { sizes, convolution: Some(window) })
    }
}

fn is_linear(name: &str) -> bool {
    matches!(name, aten::LINEAR | rushlight::EXPERTS_LINEAR)
}

/// True for convolutions and linear layers.
pub(super) fn is_gemm(name: &str) -> bool {
    name == aten::CONVOLUTION || is_linear(name)
}

fn gemm(model: &Model, graph: &Graph, id: NodeId) -> Option<Layer> {
    let node = graph.nodes.get(id).filter(|node| is_gemm(node.op.name()))?;
    let input = node.arg("input").and_then(Arg::as_value)?;
    let layer = layer(model, graph, id, input)?;
    // Windows of one to three dimensions.
    let rank = graph.tensor(layer.weight).ok()?.rank();
    let is_computed = rank == 2 || node.op.name() == aten::CONVOLUTION && matches!(rank, 3..=5);
    (is_computed && is_float(graph, input) && graph.constant_of(input).is_none()).then_some(layer)
}

fn embedding(model: &Model, graph: &Graph, id: NodeId) -> Option<Layer> {
    let node = graph.nodes.get(id).filter(|node| node.op.name() == aten::EMBEDDING)?;
    let layer = layer(model, graph, id, node.arg("indices").and_then(Arg::as_value)?)?;
    (graph.tensor(layer.weight).ok()?.rank() == 2).then_some(layer)
}

/// A node with a constant weight of `f32`.
fn layer(model: &Model, graph: &Graph, id: NodeId, input: ValueId) -> Option<Layer> {
    let node = &graph.nodes[id];
    let weight = node.arg("weight").and_then(Arg::as_value)?;
    let constant = &model.constants[graph.constant_of(weight)?];
    let axis = usize::from(matches!(node.arg("transposed"), Some(Arg::Bool(true))));
    let sizes = constant.sizes().unwrap_or_default();
    (constant.ty.dtype == ScalarType::Float).then(|| Layer {
        node: id,
        name: module(graph, node),
        input,
        weight,
        axis,
        sizes,
        is_recurrent: false,
        is_nested: false,
    })
}

/// The path of a node's module, or else its name.
fn module(graph: &Graph, node: &Node) -> String {
    let origin = &graph.origins[node.origin];
    if origin.module.is_empty() { origin.node.clone() } else { origin.module.clone() }
}

/// True for a tensor of `f32`.
pub(super) fn is_float(graph: &Graph, value: ValueId) -> bool {
    graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Float)
}
