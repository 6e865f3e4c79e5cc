//! The quantization policy of the CPU backend: the operators that have integer steps, and the layers that gain by them.

use rushlight_compiler::quantization::{
    ActivationScales, ActivationSpec, Annotation, Annotations, BiasSpec, Layer, LayerSpec, MethodLayers,
    OperatorChains, Quantizer, Role, Scheme,
};
use rushlight_graph::operators::{aten, rushlight};
use rushlight_graph::quantization::LayerShape;
use rushlight_graph::{Error, Graph};

use crate::weights::int8::{has_kernel, packed_bytes};

/// Annotates the same sites as `CpuQuantizer` of the Python package.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuQuantizer;

/// Layers, unary operators that become tables or epilogues, and interpolations whose GEMMs are no layers.
const COMPOSITES: [&str; 15] = [
    aten::LINEAR,
    rushlight::EXPERTS_LINEAR,
    aten::HARDSWISH,
    aten::HARDSIGMOID,
    aten::SILU,
    aten::ADAPTIVE_AVG_POOL2D,
    aten::SCALED_DOT_PRODUCT_ATTENTION,
    aten::ELU,
    aten::AVG_POOL2D,
    aten::UPSAMPLE_BICUBIC2D,
    aten::UPSAMPLE_BICUBIC2D_VEC,
    aten::_UPSAMPLE_BICUBIC2D_AA,
    aten::_UPSAMPLE_BICUBIC2D_AA_VEC,
    aten::_UPSAMPLE_LANCZOS2D_AA,
    aten::_UPSAMPLE_LANCZOS2D_AA_VEC,
];

impl Quantizer for CpuQuantizer {
    fn composites(&self) -> Vec<&'static str> {
        COMPOSITES.to_vec()
    }

    fn layer(&self, scheme: &Scheme, graph: &Graph, layer: &Layer) -> Result<LayerSpec, String> {
        if let Some(shape) = layer.shape(graph) {
            if shape.sizes.len() > 4 && shape.convolution.as_ref().is_some_and(|window| window.is_transposed) {
                return Err("no kernel multiplies integers in transposed convolutions of three dimensions".to_owned());
            }
            if shape.sizes.len() > 4 && is_depthwise(&shape) {
                return Err(
                    "depthwise convolutions of three dimensions are neither smaller nor faster in integers".to_owned()
                );
            }
            if !has_kernel(&shape) {
                return Err("no kernel multiplies integers over windows of this size and dilation".to_owned());
            }
            let sizes = layer.sizes.as_slice();
            let (integers, floats) = packed_bytes(&shape);
            let is_static = scheme.is_static() && !is_always_dynamic(layer);
            let is_dynamic = scheme.activation.is_some() && !is_static;
            // A matrix of one row or column is stored as floats.
            let is_vector = sizes.len() == 2 && sizes.contains(&1);
            // Kernels for float activations multiply two rows at a time.
            let is_odd = !is_dynamic && !sizes.iter().skip(1).product::<usize>().is_multiple_of(2);
            let is_larger = is_dynamic && integers >= floats;
            if !is_static && (is_vector || is_odd || is_larger) {
                return Err("its integers would take as much room as its floats".to_owned());
            }
        }
        Ok(LayerSpec { weight: scheme.weight, bias: BiasSpec::Float })
    }

    fn annotate(&self, scheme: &Scheme, method: &MethodLayers<'_>, annotations: &mut Annotations) -> Result<(), Error> {
        let Some(activation) = scheme.activation else { return Ok(()) };
        let is_static = !activation.is_dynamic();
        if is_static {
            OperatorChains { activation, role, fuses, quantizes_results: false }.annotate(method, annotations);
        }
        for layer in method.layers.iter().filter(|layer| !is_static || is_always_dynamic(layer)) {
            // All pixels of a window must have the same scale.
            let is_linear = layer.is_linear(method.graph);
            let scales = if is_linear { ActivationScales::PerToken } else { ActivationScales::PerTensor };
            annotations.set(layer.node, Annotation::inputs([(layer.input, ActivationSpec { scales, ..activation })]));
        }
        Ok(())
    }
}

/// True for a convolution with a group for each input channel.
fn is_depthwise(shape: &LayerShape<'_>) -> bool {
    shape.sizes.get(1) == Some(&1) && shape.convolution.as_ref().is_some_and(|window| window.groups > 1)
}

/// True for layers whose inputs get their scales at run time in static schemes, too. As in PyTorch's flow, these are the layers of
/// recurrent operators, whose states stay floats; and layers in loops and branches, where a calibration sees nothing.
const fn is_always_dynamic(layer: &Layer) -> bool {
    layer.is_recurrent || layer.is_nested
}

fn role(name: &str) -> Role {
    match name {
        aten::ADD_TENSOR | aten::MUL_TENSOR => Role::Binary,
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
        | aten::_SOFTMAX => Role::Unary,
        aten::MAX_POOL2D_WITH_INDICES
        | aten::ADAPTIVE_AVG_POOL2D
        | aten::_ADAPTIVE_AVG_POOL2D
        | aten::_ADAPTIVE_AVG_POOL3D
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
        | aten::UPSAMPLE_BILINEAR2D_VEC => Role::SameScale,
        aten::CAT => Role::Concat,
        _ => Role::Float,
    }
}

/// True if an operator of this role computes the next operator before its result is stored.
fn fuses(role: Role, next: &str) -> bool {
    match role {
        Role::Gemm => is_epilogue(next),
        Role::Binary => is_clamp(next),
        _ => false,
    }
}

/// True for operators that the epilogue of the layer before them computes.
fn is_epilogue(name: &str) -> bool {
    is_clamp(name) || matches!(name, aten::LEAKY_RELU | aten::HARDSWISH | aten::HARDSIGMOID)
}

/// True for operators that only clamp their input.
fn is_clamp(name: &str) -> bool {
    matches!(name, aten::RELU | aten::HARDTANH | aten::CLAMP)
}
