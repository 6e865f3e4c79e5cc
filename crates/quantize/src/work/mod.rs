//! The quantization of one method: ranges, weights, comparison, and the model that results.

mod compare;
mod fall_back;
mod layers;
mod proposals;
mod ranges;
mod report;
mod rounding;

use std::num::NonZeroUsize;
use std::sync::Arc;

use rushlight_compiler::quantization::{Annotations, Layer, LayerSpec, MethodLayers, Quantizer, Recurrent, WeightSpec};
use rushlight_engine::Engine;
use rushlight_graph::{Error, Graph, Model, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::calibration::Calibration;
use crate::noise::{Deviation, Noise};
use crate::observe::Histogram;
use crate::read::Reader;
use crate::report::{Inputs, LayerReport, OutputReport, Proposal};
use crate::rewrite::{self, Decisions};
use crate::settings::{Observer, Settings};
use crate::sites::Sites;
use crate::weights::Rounded;

use layers::Candidates;

/// Maximum bytes of layer weights of a method that is run on the export's example inputs without a request. The method
/// is in memory twice then, in floats and in integers.
const UNASKED: u64 = 1 << 31;

/// Results of a model for each input.
type Outputs = Vec<Vec<f32>>;

/// The quantization of one method.
pub(super) struct Work<'a> {
    model: &'a Model,
    method: &'a str,
    quantizer: &'a dyn Quantizer,
    settings: &'a Settings,
    calibration: &'a mut dyn Calibration,
    /// The engine of the calibration.
    engine: Arc<Engine>,
    graph: &'a Graph,
    reader: Reader<'a>,
    /// Layers that may be quantized.
    layers: Vec<Layer>,
    /// Embeddings whose tables become integers.
    tables: Vec<Layer>,
    /// The quantization of layers and tables.
    specs: FxHashMap<NodeId, LayerSpec>,
    /// Other layers, each with the reason why it stays in floats.
    kept: Vec<(Layer, String)>,
    seen: FxHashMap<ValueId, Histogram>,
    /// Observers of some values that replace the observer of the settings.
    chosen: FxHashMap<ValueId, Observer>,
    weights: FxHashMap<NodeId, Rounded>,
    weight_snr: FxHashMap<NodeId, Option<f64>>,
    biases: FxHashMap<NodeId, Vec<f32>>,
    noise: FxHashMap<NodeId, Noise>,
    /// The inputs from which ranges are measured.
    pub measured: Inputs,
    /// The inputs on which layers and outputs are compared, or the reason why they are not compared.
    pub compared: Result<Inputs, String>,
}

/// The result of quantizing a method.
pub(super) struct Quantized {
    pub model: Model,
    pub layers: Vec<LayerReport>,
    /// The floating-point outputs.
    pub outputs: Vec<(OutputReport, Deviation)>,
    pub proposals: Vec<Proposal>,
}

impl<'a> Work<'a> {
    /// Finds the layers of a method, and decides which of them may be quantized.
    ///
    /// # Errors
    /// A method that does not exist, and layers that the backend's quantizer wants in a form that there is not.
    pub fn new(
        model: &'a Model,
        method: &'a str,
        (quantizer, recurrent): (&'a dyn Quantizer, &Recurrent),
        settings: &'a Settings,
        calibration: &'a mut dyn Calibration,
    ) -> Result<Self, Error> {
        let Some(graph) = model.methods.get(method) else {
            return Err(Error::invalid(format!("there is no method `{method}`")));
        };
        let Candidates { layers, tables, specs, kept } =
            Candidates::of(model, method, graph, (quantizer, recurrent), settings)?;
        let compared = compared(method, &layers, calibration);
        let has_samples = calibration.samples(method, Inputs::Calibration) > 0;
        Ok(Self {
            measured: if has_samples { Inputs::Calibration } else { Inputs::Example },
            compared,
            model,
            method,
            quantizer,
            settings,
            engine: calibration.engine(),
            calibration,
            graph,
            reader: Reader { model, graph },
            layers,
            tables,
            specs,
            kept,
            seen: FxHashMap::default(),
            chosen: FxHashMap::default(),
            weights: FxHashMap::default(),
            weight_snr: FxHashMap::default(),
            biases: FxHashMap::default(),
            noise: FxHashMap::default(),
        })
    }

    /// True if nothing in the method can be quantized.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && self.tables.is_empty()
    }

    /// The reports of the layers of a method in which nothing is quantized.
    pub fn kept(&self) -> Vec<LayerReport> {
        self.reports(&FxHashMap::default())
    }

    fn threads(&self) -> usize {
        let threads = self.settings.threads.or_else(|| std::thread::available_parallelism().ok());
        threads.map_or(1, NonZeroUsize::get)
    }

    /// Quantizes the method, and compares its layers and outputs.
    pub fn run(&mut self) -> Result<Quantized, Error> {
        let sites = self.sites(self.layers.clone())?;
        self.observe(&sites)?;
        self.round_weights()?;
        if self.settings.scheme.is_static() && self.settings.observer == Observer::Best {
            self.choose_observers(&sites)?;
        }
        let scales = self.scales(&sites)?;
        let ranges = self.ranges(&sites, &scales);
        let expected = self.compare_layers(&sites, &scales)?;
        let mut model = self.quantized(&sites, &scales)?;
        let mut off = self.deviations(&model, &expected)?;
        let proposals = match self.settings.min_snr {
            Some(least) => {
                (model, off) = self.keep_worst(least, &expected, (model, off))?;
                Vec::new()
            }
            None => self.proposals(&off, &expected)?,
        };
        Ok(Quantized { model, layers: self.reports(&ranges), outputs: self.output_reports(off), proposals })
    }

    /// Returns the sites of quantization if these layers are quantized.
    fn sites(&self, layers: Vec<Layer>) -> Result<Sites, Error> {
        let method = MethodLayers { model: self.model, graph: self.graph, layers: &layers };
        let mut annotations = Annotations::default();
        self.quantizer.annotate(&self.settings.scheme, &method, &mut annotations)?;
        Sites::new(self.graph, layers, annotations)
    }

    /// The quantization of a layer's weights, or what the scheme has for a layer that stays in floats.
    fn weight_spec(&self, layer: &Layer) -> WeightSpec {
        self.specs.get(&layer.node).map_or(self.settings.scheme.weight, |spec| spec.weight)
    }

    fn decisions<'d>(&'d self, sites: &'d Sites, scales: &'d [(f32, i32)]) -> Decisions<'d> {
        let Self { specs, weights, tables, biases, .. } = self;
        Decisions { sites, scales, specs, weights, tables, biases }
    }

    fn quantized(&self, sites: &Sites, scales: &[(f32, i32)]) -> Result<Model, Error> {
        let mut model = self.model.clone();
        rewrite::quantize(&mut model, self.method, &self.decisions(sites, scales))?;
        if cfg!(debug_assertions) {
            model.verify()?;
        }
        Ok(model)
    }
}

/// The inputs on which a method is compared with floats, or the reason why it is not.
fn compared(method: &str, layers: &[Layer], calibration: &dyn Calibration) -> Result<Inputs, String> {
    let mut weights = FxHashSet::default();
    let once = layers.iter().filter(|layer| weights.insert(layer.weight));
    let bytes: u64 = once.map(|layer| 4 * layer.count() as u64).sum();
    if calibration.samples(method, Inputs::Calibration) > 0 {
        Ok(Inputs::Calibration)
    } else if calibration.samples(method, Inputs::Example) == 0 {
        Err("there are no inputs of a calibration, and the export holds no example inputs that can be read".to_owned())
    } else if bytes > UNASKED {
        let size = bytes as f64 / 1e9;
        Err(format!("the model is large, with {size:.1} GB of weights: give inputs of a calibration to compare them"))
    } else {
        Ok(Inputs::Example)
    }
}
