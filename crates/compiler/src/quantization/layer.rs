//! Layers with constant weights: those that can be quantized.

use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, rushlight};
use rushlight_graph::ops::Operands;
use rushlight_graph::quantization::{ConvolutionShape, LayerShape};
use rushlight_graph::{Arg, Graph, Model, Node, NodeId, Op, ValueId};

/// A convolution, a linear layer or an embedding with constant weights of `f32`.
#[derive(Clone, Debug)]
pub struct Layer {
    pub node: NodeId,
    /// The path of the module, or else the name of the node.
    pub name: String,
    /// The activation; the indices of an embedding.
    pub input: ValueId,
    pub weight: ValueId,
    /// The dimension of the weight that is that of the output channels: the second of transposed convolutions.
    pub axis: usize,
    /// Sizes of the weight; empty if they are not known.
    pub sizes: Vec<usize>,
}

impl Layer {
    /// Returns the convolutions and linear layers of a graph's body, in order.
    pub fn all(model: &Model, graph: &Graph) -> Vec<Self> {
        let nodes = graph.blocks[graph.body].nodes.iter();
        nodes.filter_map(|node| gemm(model, graph, *node)).collect()
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
