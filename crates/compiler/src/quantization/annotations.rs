//! The operators of a method that compute with quantized tensors.

use rushlight_graph::{Graph, Model, NodeId, ValueId};
use rustc_hash::FxHashMap;

use super::layer::Layer;
use super::spec::ActivationSpec;

/// A method, with the layers whose weights are quantized.
#[derive(Clone, Copy, Debug)]
pub struct MethodLayers<'a> {
    pub model: &'a Model,
    pub graph: &'a Graph,
    pub layers: &'a [Layer],
}

/// The annotations of a method's nodes.
#[derive(Clone, Debug, Default)]
pub struct Annotations {
    nodes: FxHashMap<NodeId, Annotation>,
}

/// The quantized tensors of a node, as PyTorch's `QuantizationAnnotation`. A node that is annotated computes with integers. If its
/// result is quantized for any reader, later readers all read the quantized result, except where scales are chosen at run time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotation {
    /// The inputs that are quantized. Inputs that are computed in registers are left out, and so are those that stay floats.
    pub inputs: Vec<(ValueId, ActivationSpec)>,
    /// The quantization of the first result, whoever reads it. If `None`, it is quantized where an annotated node reads it.
    pub output: Option<ActivationSpec>,
    /// True if quantized inputs and the result have the same scale, because the operator moves, picks or averages elements.
    pub shares_scale: bool,
}

impl Annotation {
    /// Quantizes some inputs.
    pub fn inputs(inputs: impl IntoIterator<Item = (ValueId, ActivationSpec)>) -> Self {
        Self { inputs: inputs.into_iter().collect(), ..Self::default() }
    }
}

impl Annotations {
    /// Annotates a node, in place of an earlier annotation.
    pub fn set(&mut self, node: NodeId, annotation: Annotation) {
        self.nodes.insert(node, annotation);
    }

    /// The annotation of a node, if it has one.
    pub fn get(&self, node: NodeId) -> Option<&Annotation> {
        self.nodes.get(&node)
    }
}
