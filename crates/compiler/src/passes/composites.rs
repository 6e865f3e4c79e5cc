//! The composite operators of the canonical form.

use std::collections::{HashMap, HashSet};

use rushlight_graph::operators::{aten, quantized_decomposed, rushlight, torchao};
use rushlight_graph::{Graph, NodeId, OriginId};

/// Composite operators that accelerators compute in one step, for one reason.
#[derive(Clone, Copy, Debug)]
pub struct CompositeFamily {
    /// Full names.
    pub operators: &'static [&'static str],
    /// The reason why backends are shown them whole.
    pub reason: &'static str,
}

/// The composite operators that stay one node in the canonical form. Every backend is offered them whole. Those that no backend
/// claims are decomposed, and their parts are offered.
///
/// A family belongs here if two kinds of accelerators compute it in one step, and a backend would need a pattern to find it in
/// the decomposed form. The table does not depend on the backends of a compilation.
pub const CANONICAL_COMPOSITES: &[CompositeFamily] = &[
    CompositeFamily {
        operators: &[aten::SCALED_DOT_PRODUCT_ATTENTION],
        reason: "one fused kernel on GPUs, Core ML, MLX and CPUs, which never stores the scores",
    },
    CompositeFamily {
        operators: &[aten::RMS_NORM, aten::LAYER_NORM, aten::GROUP_NORM, aten::INSTANCE_NORM],
        reason: "one step on OpenVINO, Core ML, MLX, QNN and GPUs, with accumulators of their own precision",
    },
    CompositeFamily {
        operators: &[aten::LINEAR],
        reason: "FullyConnected: NPUs take weights `[N, K]` as stored, which the matmul form transposes",
    },
    CompositeFamily {
        operators: &[aten::MATMUL, aten::BADDBMM],
        reason: "batched MatMul with broadcasting: OpenVINO, QNN and Core ML need neither the reshapes nor the expansions of `bmm`",
    },
    CompositeFamily {
        operators: &[torchao::CHOOSE_QPARAMS_AFFINE, torchao::QUANTIZE_AFFINE, torchao::DEQUANTIZE_AFFINE],
        reason: "blocks of quantized elements, which kernels of dynamically quantized layers read as they are stored",
    },
    CompositeFamily {
        operators: &[
            quantized_decomposed::QUANTIZE_PER_CHANNEL_GROUP,
            quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP,
        ],
        reason: "groups along a row of weights, which 4-bit kernels read as they are stored",
    },
    CompositeFamily {
        operators: &[rushlight::QUANTIZE_ROWS, rushlight::QUANTIZE_INT4_ROWS, rushlight::DEQUANTIZE_INT4_ROWS],
        reason: "rows of a KV cache, quantized where they are written and read in place by attention",
    },
    CompositeFamily {
        operators: &[rushlight::EXPERTS_MM],
        reason: "a grouped GEMM: the decomposed form gathers a matrix for each row",
    },
    CompositeFamily {
        operators: &[
            aten::UPSAMPLE_NEAREST1D,
            aten::UPSAMPLE_NEAREST1D_VEC,
            aten::UPSAMPLE_NEAREST2D,
            aten::UPSAMPLE_NEAREST3D,
            aten::UPSAMPLE_NEAREST3D_VEC,
            aten::_UPSAMPLE_NEAREST_EXACT1D,
            aten::_UPSAMPLE_NEAREST_EXACT2D,
            aten::_UPSAMPLE_NEAREST_EXACT2D_VEC,
            aten::_UPSAMPLE_NEAREST_EXACT3D,
            aten::UPSAMPLE_LINEAR1D,
            aten::UPSAMPLE_LINEAR1D_VEC,
            aten::UPSAMPLE_BILINEAR2D,
            aten::UPSAMPLE_TRILINEAR3D,
            aten::UPSAMPLE_TRILINEAR3D_VEC,
            aten::UPSAMPLE_BICUBIC2D,
            aten::UPSAMPLE_BICUBIC2D_VEC,
        ],
        reason: "resizing: texture units and one layer of every NPU; the decomposed form gathers pixels by index tensors",
    },
    CompositeFamily {
        operators: &[
            aten::ADAPTIVE_AVG_POOL1D,
            aten::ADAPTIVE_AVG_POOL2D,
            aten::ADAPTIVE_AVG_POOL3D,
            aten::ADAPTIVE_MAX_POOL1D,
            aten::ADAPTIVE_MAX_POOL2D,
            aten::ADAPTIVE_MAX_POOL3D,
            aten::MAX_POOL1D,
            aten::MAX_POOL2D,
            aten::MAX_POOL3D,
            aten::AVG_POOL1D,
        ],
        reason: "pooling: one layer everywhere; the decomposed form has indices that nobody reads, or a slice for each output",
    },
    CompositeFamily {
        operators: &[
            aten::SILU,
            aten::HARDSWISH,
            aten::HARDSIGMOID,
            aten::MISH,
            aten::SOFTPLUS,
            aten::PRELU,
            aten::RELU6,
            aten::SELU,
            aten::CELU,
        ],
        reason: "activations: a layer or an epilogue of a convolution; the decomposed form is several elementwise steps",
    },
    CompositeFamily {
        operators: &[aten::LSTM_INPUT, aten::GRU_INPUT],
        reason: "recurrent layers: OpenVINO, Core ML, QNN and DSPs have the whole sequence as one layer; the decomposed form is a loop",
    },
    CompositeFamily {
        operators: &[aten::GRID_SAMPLER],
        reason: "sampling of images at positions: one layer or shader, as texture units do it",
    },
    CompositeFamily {
        operators: &[aten::CHANNEL_SHUFFLE],
        reason: "data movement that layouts of channels absorb; the decomposed form is two reshapes and a permutation",
    },
    CompositeFamily {
        operators: &[aten::EMBEDDING_BAG_PADDING_IDX],
        reason: "gathered and summed rows in one step, without a tensor of all rows",
    },
];

/// The calls of composite operators that stay whole: those of [`CANONICAL_COMPOSITES`], except those that no backend claimed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Composites {
    whole: HashSet<&'static str>,
    /// Single calls that are decomposed: by method, origin and operator.
    decomposed: HashMap<String, HashSet<(OriginId, &'static str)>>,
}

impl Composites {
    /// All of the canonical form.
    pub fn all() -> Self {
        let names = CANONICAL_COMPOSITES.iter().flat_map(|family| family.operators).copied();
        Self { whole: names.collect(), decomposed: HashMap::new() }
    }

    /// True if a node is a composite that stays whole.
    pub fn keeps(&self, method: &str, graph: &Graph, node: NodeId) -> bool {
        let node = &graph.nodes[node];
        let Some(name) = self.whole.get(node.op.name()) else { return false };
        !self.decomposed.get(method).is_some_and(|calls| calls.contains(&(node.origin, *name)))
    }

    /// Decomposes all calls of an operator from now on.
    pub fn decompose_all(&mut self, name: &str) {
        self.whole.remove(name);
    }

    /// Decomposes a call from now on, and the calls of the same operator with the same origin in the exported program.
    pub fn decompose(&mut self, method: &str, graph: &Graph, node: NodeId) {
        let node = &graph.nodes[node];
        if let Some(name) = self.whole.get(node.op.name()) {
            self.decomposed.entry(method.to_owned()).or_default().insert((node.origin, *name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_graph::ops;

    #[test]
    fn every_composite_can_be_decomposed_and_stands_once() {
        let mut seen = HashSet::new();
        for family in CANONICAL_COMPOSITES {
            assert!(!family.operators.is_empty() && !family.reason.is_empty());
            for name in family.operators {
                let definition = ops::definition(name).unwrap_or_else(|| panic!("{name} has no definition"));
                assert!(definition.lower.is_some(), "{name} is an operator of kernels");
                assert!(seen.insert(*name), "{name} stands twice");
            }
        }
    }
}
