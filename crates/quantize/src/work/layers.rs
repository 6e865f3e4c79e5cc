//! The layers of a method that may be quantized, and the reasons of the others.

use rushlight_compiler::pattern::is_within;
use rushlight_compiler::quantization::{
    ActivationScales, Annotations, BiasSpec, Layer, LayerSpec, MethodLayers, Quantizer, Recurrent, WeightScales,
    WeightSpec,
};
use rushlight_graph::{Error, Graph, Model, NodeId};
use rustc_hash::FxHashMap;

use crate::settings::Settings;

/// Layers and tables of embeddings.
pub(super) struct Candidates {
    pub layers: Vec<Layer>,
    pub tables: Vec<Layer>,
    /// The quantization of both.
    pub specs: FxHashMap<NodeId, LayerSpec>,
    /// Layers that stay in floats, with reasons.
    pub kept: Vec<(Layer, String)>,
}

impl Candidates {
    /// Asks the backend's quantizer for each layer that the user does not keep in floats.
    ///
    /// # Errors
    /// `Unsupported` for weights in a form that there is not.
    pub fn of(
        model: &Model,
        method: &str,
        graph: &Graph,
        (quantizer, recurrent): (&dyn Quantizer, &Recurrent),
        settings: &Settings,
    ) -> Result<Self, Error> {
        let mut candidates =
            Self { layers: Vec::new(), tables: Vec::new(), specs: FxHashMap::default(), kept: Vec::new() };
        for layer in Layer::all(model, method, graph, recurrent) {
            match spec_of(graph, &layer, quantizer, settings) {
                Ok(spec) => {
                    check(graph, &layer, spec)?;
                    candidates.specs.insert(layer.node, spec);
                    candidates.layers.push(layer);
                }
                Err(reason) => candidates.kept.push((layer, reason)),
            }
        }
        candidates.keep_unseen(model, graph, quantizer, settings)?;
        if let Some(bits) = settings.embedding_bits {
            let tables = Layer::embeddings(model, graph).into_iter();
            for table in tables.filter(|table| kept_by(table, settings).is_none()) {
                // A row of 4-bit weights must consist of whole groups.
                let is_even = table.k().is_multiple_of(WeightSpec::INT4.group(table.count(), table.k()));
                let weight = if bits == 4 && is_even { WeightSpec::INT4 } else { WeightSpec::INT8 };
                candidates.specs.insert(table.node, LayerSpec { weight, bias: BiasSpec::Float });
                candidates.tables.push(table);
            }
        }
        Ok(candidates)
    }

    /// Keeps layers in floats whose inputs would get scales from a calibration that does not see them: those in blocks of control
    /// flow.
    fn keep_unseen(
        &mut self,
        model: &Model,
        graph: &Graph,
        quantizer: &dyn Quantizer,
        settings: &Settings,
    ) -> Result<(), Error> {
        let nested: Vec<Layer> = self.layers.iter().filter(|layer| layer.is_nested).cloned().collect();
        let mut annotations = Annotations::default();
        quantizer.annotate(&settings.scheme, &MethodLayers { model, graph, layers: &nested }, &mut annotations)?;
        let is_calibrated = |layer: &Layer| {
            let mut inputs = annotations.get(layer.node).into_iter().flat_map(|annotation| &annotation.inputs);
            inputs.any(|(_, spec)| spec.scales == ActivationScales::Calibrated)
        };
        for layer in nested.into_iter().filter(is_calibrated) {
            self.layers.retain(|other| other.node != layer.node);
            self.specs.remove(&layer.node);
            self.kept.push((layer, "the calibration does not see its inputs, in a loop or a branch".to_owned()));
        }
        Ok(())
    }
}

/// Returns the first pattern that keeps a layer in floats.
fn kept_by<'s>(layer: &Layer, settings: &'s Settings) -> Option<&'s str> {
    settings.keep.iter().find(|pattern| is_within(pattern, &layer.name)).map(String::as_str)
}

/// Returns the quantization of a layer's constants.
///
/// # Errors
/// The reason why the layer stays in floats: it cannot be quantized, or the user keeps it.
fn spec_of(graph: &Graph, layer: &Layer, quantizer: &dyn Quantizer, settings: &Settings) -> Result<LayerSpec, String> {
    let scheme = &settings.scheme;
    if let Some(pattern) = kept_by(layer, settings) {
        return Err(format!("`{pattern}` is to be kept"));
    }
    if layer.count() == 0 {
        return Err("it has no weights".to_owned());
    }
    if !scheme.has_convolutions && !layer.is_linear(graph) {
        return Err(format!("`{}` is for linear layers", scheme.name));
    }
    let spec = quantizer.layer(scheme, graph, layer)?;
    let (k, group) = (layer.k(), spec.weight.group(layer.count(), layer.k()));
    if let WeightScales::PerGroup(_) = spec.weight.scales
        && (group == 0 || !k.is_multiple_of(group))
    {
        return Err(format!("its {k} weights for each output are no multiple of {group}"));
    }
    Ok(spec)
}

/// Refuses a quantization of constants that the operators of PyTorch do not have.
fn check(graph: &Graph, layer: &Layer, spec: LayerSpec) -> Result<(), Error> {
    let [min, max] = spec.weight.range;
    let is_grouped = matches!(spec.weight.scales, WeightScales::PerGroup(_));
    let problem = if min >= 0 || max <= 0 {
        format!("weights from {min} to {max}, a range without positive and negative integers")
    } else if is_grouped && !layer.is_linear(graph) {
        "groups of the weights of a convolution".to_owned()
    } else if is_grouped && spec.bias == BiasSpec::Int32 {
        "a bias of integers with weights in groups".to_owned()
    } else {
        return Ok(());
    };
    let error = Error::unsupported(format!("the backend's quantizer asks for {problem}"));
    Err(graph.locate(error, layer.node))
}
