//! The quantization policy of a backend: which layers and operators compute with quantized tensors, and in which types.
//!
//! A backend gives a [`Quantizer`] ([`Backend::quantizer`](crate::partition::Backend::quantizer)). It does what PyTorch's
//! quantizers do, and has their words. For each layer it decides the type of the weights ([`WeightSpec`]), or why they stay floats.
//! For each operator it [annotates](Annotations) the inputs and the output that are quantized ([`ActivationSpec`]). Between two
//! operators that the backend fuses there is no annotation, and so no quantization.
//!
//! The crate `rushlight-quantize` does the rest, for all backends alike: it measures ranges, chooses scales, rounds weights, and
//! writes `quantize` and `dequantize` nodes.
//!
//! ```
//! use rushlight_compiler::quantization::{
//!     ActivationSpec, Annotations, BiasSpec, WeightScales, Layer, LayerSpec, MethodLayers, OperatorChains, Quantizer, Role, Scheme,
//!     WeightSpec,
//! };
//! use rushlight_graph::{Error, Graph, operators::aten};
//!
//! /// Activations of 16 bits, weights of 8 bits with one scale for each layer, biases of 32 bits.
//! #[derive(Debug)]
//! struct Npu;
//!
//! const A16W8: Scheme = Scheme {
//!     name: "16a8w",
//!     activation: Some(ActivationSpec::INT16),
//!     weight: WeightSpec { scales: WeightScales::PerTensor, ..WeightSpec::INT8 },
//!     ..Scheme::INT8
//! };
//!
//! impl Quantizer for Npu {
//!     fn schemes(&self) -> &[Scheme] {
//!         &[A16W8]
//!     }
//!
//!     fn layer(&self, scheme: &Scheme, _: &Graph, _: &Layer) -> Result<LayerSpec, String> {
//!         Ok(LayerSpec { weight: scheme.weight, bias: BiasSpec::Int32 })
//!     }
//!
//!     fn annotate(&self, scheme: &Scheme, method: &MethodLayers<'_>, annotations: &mut Annotations) -> Result<(), Error> {
//!         let Some(activation) = scheme.activation else { return Ok(()) };
//!         let role = |name: &str| match name {
//!             aten::ADD_TENSOR => Role::Binary,
//!             aten::RELU => Role::Unary,
//!             _ => Role::Float,
//!         };
//!         let fuses = |_: Role, next: &str| next == aten::RELU;
//!         OperatorChains { activation, role, fuses, quantizes_results: true }.annotate(method, annotations);
//!         Ok(())
//!     }
//! }
//! ```

mod annotations;
mod chains;
mod layer;
mod scheme;
mod spec;

use std::fmt;

use rushlight_graph::{Error, Graph};

use crate::passes::CANONICAL_COMPOSITES;

pub use annotations::{Annotation, Annotations, MethodLayers};
pub use chains::{OperatorChains, Role, float_operands};
pub use layer::{Layer, Recurrent};
pub use scheme::Scheme;
pub use spec::{ActivationScales, ActivationSpec, BiasSpec, LayerSpec, WeightScales, WeightSpec};

/// The quantization policy of a backend.
pub trait Quantizer: fmt::Debug {
    /// Returns the schemes that the backend computes. A scheme with another name is refused.
    fn schemes(&self) -> &[Scheme] {
        &Scheme::ALL
    }

    /// Returns the composite operators that [`annotate`](Self::annotate) sees whole. Others are decomposed before.
    fn composites(&self) -> Vec<&'static str> {
        CANONICAL_COMPOSITES.iter().flat_map(|family| family.operators).copied().collect()
    }

    /// Decides how the weights and the bias of a layer are quantized. By default the weights are as the scheme has them, and
    /// the bias stays floats.
    ///
    /// # Errors
    /// The reason why the layer stays floats, for the report.
    fn layer(&self, scheme: &Scheme, graph: &Graph, layer: &Layer) -> Result<LayerSpec, String> {
        let _ = (graph, layer);
        Ok(LayerSpec { weight: scheme.weight, bias: BiasSpec::Float })
    }

    /// Annotates the operators that compute with quantized activations. By default these are the inputs of the layers, as the
    /// scheme has them.
    ///
    /// # Errors
    /// An error of the backend, which ends the quantization.
    fn annotate(&self, scheme: &Scheme, method: &MethodLayers<'_>, annotations: &mut Annotations) -> Result<(), Error> {
        for layer in method.layers {
            annotations.set(layer.node, Annotation::inputs(scheme.activation.map(|spec| (layer.input, spec))));
        }
        Ok(())
    }
}
