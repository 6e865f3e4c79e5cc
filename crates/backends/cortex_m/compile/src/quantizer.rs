//! The quantization policy: the operators with int8 kernels, and their scales.

use rushlight_compiler::quantization::{
    ActivationScales, ActivationSpec, Annotation, Annotations, BiasSpec, Layer, LayerSpec, MethodLayers,
    OperatorChains, Quantizer, Role, Scheme, WeightScales, WeightSpec,
};
use rushlight_graph::operators::{aten, rushlight};
use rushlight_graph::{Error, Graph, NodeId};

use crate::select::SOFTMAX_SCALE;

/// Quantizes as ExecuTorch's `CortexMQuantizer`. The weights of a linear layer have one scale, and those of a convolution one per
/// channel. Biases are integers of 32 bits. All results of int8 operators are int8.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CortexMQuantizer;

const ACTIVATION: ActivationSpec = ActivationSpec::INT8;

/// Static int8, the only scheme that needs no floats on the device.
const SCHEMES: [Scheme; 1] = [Scheme { finer: &[], ..Scheme::INT8 }];

const COMPOSITES: [&str; 9] = [
    aten::LINEAR,
    aten::MATMUL,
    aten::ADAPTIVE_AVG_POOL2D,
    aten::AVG_POOL2D,
    aten::MAX_POOL2D,
    aten::HARDSWISH,
    aten::HARDSIGMOID,
    aten::SILU,
    aten::RELU6,
];

impl Quantizer for CortexMQuantizer {
    fn schemes(&self) -> &[Scheme] {
        &SCHEMES
    }

    fn composites(&self) -> Vec<&'static str> {
        COMPOSITES.to_vec()
    }

    fn layer(&self, scheme: &Scheme, graph: &Graph, layer: &Layer) -> Result<LayerSpec, String> {
        if layer.is_recurrent || layer.is_nested {
            return Err("the scales of recurrent layers and of loops are not known before the program runs".to_owned());
        }
        let is_linear = layer.is_linear(graph);
        if graph.nodes[layer.node].op.name() == rushlight::EXPERTS_LINEAR || !is_linear && layer.sizes.len() != 4 {
            return Err("int8 kernels compute convolutions in two dimensions and linear layers".to_owned());
        }
        let is_single = |window: &rushlight_graph::quantization::ConvolutionShape| window.groups == 1;
        let shape = layer.shape(graph).and_then(|shape| shape.convolution);
        if layer.axis == 1 && !shape.as_ref().is_some_and(is_single) {
            return Err("int8 kernels compute transposed convolutions of one group".to_owned());
        }
        let scales = if is_linear { WeightScales::PerTensor } else { WeightScales::PerChannel };
        Ok(LayerSpec { weight: WeightSpec { scales, ..scheme.weight }, bias: BiasSpec::Int32 })
    }

    fn annotate(&self, _: &Scheme, method: &MethodLayers<'_>, annotations: &mut Annotations) -> Result<(), Error> {
        OperatorChains { activation: ACTIVATION, role, fuses, quantizes_results: true }.annotate(method, annotations);
        let graph = method.graph;
        let users = graph.users();
        for node in graph.blocks[graph.body].nodes.iter().copied() {
            match graph.nodes[node].op.name() {
                aten::_SOFTMAX => fix_scale(node, annotations),
                aten::ADD_TENSOR | aten::SUB_TENSOR => {
                    let users = graph.nodes[node].result().and_then(|result| users.get(&result));
                    if let Some([Some(user)]) = users.map(Vec::as_slice)
                        && is_clamp(graph.nodes[*user].op.name())
                    {
                        fuse(node, *user, annotations);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Gives the result of a softmax the fixed scale of its kernel.
fn fix_scale(node: NodeId, annotations: &mut Annotations) {
    let scales = ActivationScales::Fixed { scale: SOFTMAX_SCALE as f32, zero_point: -128 };
    if let Some(annotation) = annotations.get(node).cloned() {
        annotations.set(node, Annotation { output: Some(ActivationSpec { scales, ..ACTIVATION }), ..annotation });
    }
}

/// Fuses an activation into the sum before it: no quantization is put between them. `mul` cannot clamp, although it has the same
/// role as `add`.
fn fuse(sum: NodeId, activation: NodeId, annotations: &mut Annotations) {
    if let Some((before, after)) = annotations.get(sum).cloned().zip(annotations.get(activation).cloned()) {
        annotations.set(sum, Annotation { output: None, ..before });
        annotations.set(activation, Annotation { inputs: Vec::new(), ..after });
    }
}

fn role(name: &str) -> Role {
    match name {
        aten::ADD_TENSOR | aten::SUB_TENSOR | aten::MUL_TENSOR | aten::BMM | aten::MATMUL => Role::Binary,
        aten::SIGMOID
        | aten::TANH
        | aten::SILU
        | aten::GELU
        | aten::RELU
        | aten::RELU6
        | aten::HARDTANH
        | aten::CLAMP
        | aten::HARDSWISH
        | aten::HARDSIGMOID
        | aten::LEAKY_RELU
        | aten::ELU
        | aten::_SOFTMAX => Role::Unary,
        aten::MAX_POOL2D
        | aten::AVG_POOL2D
        | aten::ADAPTIVE_AVG_POOL2D
        | aten::MEAN_DIM
        | aten::CONSTANT_PAD_ND
        | aten::PERMUTE_COPY
        | aten::VIEW_COPY
        | aten::UNSQUEEZE_COPY
        | aten::SQUEEZE_COPY_DIMS
        | aten::SLICE_COPY_TENSOR
        | aten::SELECT_COPY_INT
        | aten::CLONE => Role::SameScale,
        aten::CAT => Role::Concat,
        _ => Role::Float,
    }
}

/// True if an operator of this role computes the next operator in its epilogue.
fn fuses(role: Role, next: &str) -> bool {
    role == Role::Gemm && is_clamp(next)
}

/// True for operators that only clamp their input.
fn is_clamp(name: &str) -> bool {
    matches!(name, aten::RELU | aten::RELU6 | aten::HARDTANH | aten::CLAMP)
}
