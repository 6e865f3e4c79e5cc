//! A quantization policy: the integers that a processor without floating-point instructions wants.
//!
//! Scales are powers of two, so that requantization is a shift, and zero points are 0. Linear layers have one scale for all weights,
//! convolutions one for each output channel. Biases are integers of 32 bits. Every result is quantized, and a ReLU is computed with
//! the layer before it.

use rushlight::compiler::partition::{Backend, Canonical, Claim, Claims, Compiled, Part};
use rushlight::compiler::quantization::{
    ActivationSpec, Annotations, BiasSpec, Layer, LayerSpec, MethodLayers, OperatorChains, Quantizer, Role, Scheme,
    WeightScales, WeightSpec,
};
use rushlight::graph::operators::aten;
use rushlight::graph::{Error, ErrorKind, Graph};

/// Integers of 8 bits.
pub const SHIFT8: Scheme = Scheme {
    name: "shift8",
    about: "weights and activations of 8 bits, with powers of two as scales",
    activation: Some(ActivationSpec { is_symmetric: true, is_power_of_two: true, ..ActivationSpec::INT8 }),
    weight: WeightSpec { is_power_of_two: true, ..WeightSpec::INT8 },
    finer: &["shift16"],
    ..Scheme::INT8
};

/// Activations of 16 bits.
pub const SHIFT16: Scheme = Scheme {
    name: "shift16",
    about: "weights of 8 bits and activations of 16 bits, with powers of two as scales",
    activation: Some(ActivationSpec { is_power_of_two: true, ..ActivationSpec::INT16 }),
    finer: &[],
    ..SHIFT8
};

/// The ahead-of-time half of such a processor. It claims nothing, so that the reference operators compute its results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shift;

impl Backend for Shift {
    fn name(&self) -> &'static str {
        "Shift"
    }

    fn quantizer(&self) -> Option<&dyn Quantizer> {
        Some(self)
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        for node in canonical.nodes() {
            claims.set(node, Claim::Refuse("it only quantizes".into()));
        }
        Ok(())
    }

    fn compile(&self, _: &Part) -> Result<Compiled, Error> {
        Err(Error::new(ErrorKind::Unsupported, "it only quantizes"))
    }
}

impl Quantizer for Shift {
    fn schemes(&self) -> &[Scheme] {
        &[SHIFT8, SHIFT16]
    }

    fn layer(&self, scheme: &Scheme, graph: &Graph, layer: &Layer) -> Result<LayerSpec, String> {
        if layer.axis != 0 {
            return Err("it has no transposed convolutions".into());
        }
        let scales = if layer.is_linear(graph) { WeightScales::PerTensor } else { WeightScales::PerChannel };
        Ok(LayerSpec { weight: WeightSpec { scales, ..scheme.weight }, bias: BiasSpec::Int32 })
    }

    fn annotate(&self, scheme: &Scheme, method: &MethodLayers<'_>, annotations: &mut Annotations) -> Result<(), Error> {
        let Some(activation) = scheme.activation else { return Ok(()) };
        let fuses = |role, next: &str| role == Role::Gemm && next == aten::RELU;
        OperatorChains { activation, role, fuses, quantizes_results: true }.annotate(method, annotations);
        Ok(())
    }
}

fn role(name: &str) -> Role {
    match name {
        aten::ADD_TENSOR => Role::Binary,
        aten::RELU => Role::Unary,
        aten::MAX_POOL2D | aten::VIEW_COPY => Role::SameScale,
        _ => Role::Float,
    }
}
