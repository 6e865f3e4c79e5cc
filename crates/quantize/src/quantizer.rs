//! Quantizes a model without PyTorch, with or without the inputs of a calibration.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rushlight_engine::Engine;
use rustc_hash::FxHashMap;

use rushlight_compiler::pattern::is_within;
use rushlight_compiler::prepare_layers;
use rushlight_engine::{on_threads_of, parallel_map};
use rushlight_graph::operators::{aten, rushlight};
use rushlight_graph::quantization::LayerShape;
use rushlight_graph::{Arg, Def, Graph, Model, NodeId, OriginId, ValueId};
use rushlight_graph::{Error, ErrorKind, Progress};

use super::gptq::{self, Gram};
use super::noise::{Deviation, Noise};
use super::observe::{Histogram, affine};
use super::read::{Part, Reader};
use super::report::{Inputs, LayerReport, OutputReport, Report, decibels};
use super::rewrite::{self, Decisions};
use super::scheme::{Observer, Rounding, Scheme};
use super::sites::{Layer, Sites};
use super::taps::{self, LhsSource};
use super::weights::{self, Integers, Nearest, Rounded, Width};

/// Settings of a quantization.
#[derive(Clone, Debug)]
pub struct Settings {
    pub scheme: Scheme,
    pub observer: Observer,
    pub rounding: Rounding,
    /// Bits of the tables of embeddings, 4 or 8; they stay floats if `None`.
    pub embedding_bits: Option<u32>,
    /// Patterns of the names of modules whose layers stay floats; `*` matches any text. A name also stands for
    /// everything inside the module.
    pub keep: Vec<String>,
    /// True if the biases of convolutions are corrected for the shift that rounding causes in the means of their
    /// results. The calibration measures this shift. The biases of linear layers stay, because their rows often include
    /// irrelevant ones, such as padding.
    pub bias_correction: bool,
    /// Minimum signal-to-noise ratio of the outputs, in dB. The worst layers stay floats until it is reached.
    pub min_snr: Option<f64>,
    /// Number of threads; the machine's if `None`.
    pub threads: Option<NonZeroUsize>,
    /// Progress of the quantization, which can be cancelled.
    pub progress: Progress,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheme: Scheme::default(),
            observer: Observer::default(),
            rounding: Rounding::default(),
            embedding_bits: None,
            keep: Vec::new(),
            bias_correction: true,
            min_snr: None,
            threads: None,
            progress: Progress::default(),
        }
    }
}

/// Runs programs on the inputs of a calibration, and on the example inputs of the export.
pub trait Calibration {
    /// The engine that runs the programs. It is idle while `see` is called.
    fn engine(&self) -> Arc<Engine>;

    /// Returns the bytes of the packed weights of a layer; `None` if no integer kernel of the backend supports its
    /// shape.
    fn packed_bytes(&self, layer: &LayerShape<'_>) -> Option<PackedBytes>;

    /// Returns the number of inputs of a kind for a method.
    fn samples(&self, method: &str, of: Inputs) -> usize;

    /// Runs a method of a model on the first `shown.limit` of its inputs, and calls `see` with the results of each. All
    /// results are tensors of floats.
    ///
    /// # Errors
    /// Errors of the run, and those of `see`.
    fn run(&mut self, model: Model, method: &str, shown: Shown, see: &mut See<'_>) -> Result<(), Error>;
}

/// Bytes of the packed weights of a layer, as a backend packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedBytes {
    /// As 8-bit integers, with the parameters of each output channel.
    pub integers: usize,
    /// As `f32`.
    pub floats: usize,
}

/// A request to a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The stage of progress; its unit is one input.
    pub stage: &'static str,
    pub inputs: Inputs,
    /// Maximum number of inputs.
    pub limit: usize,
    /// True if GEMMs and convolutions may round their operands to bf16 if that is faster. This is allowed when ranges
    /// are measured, but not when the float results are the reference.
    pub is_rough: bool,
}

impl Shown {
    const fn all(stage: &'static str) -> Self {
        Self { stage, inputs: Inputs::Calibration, limit: usize::MAX, is_rough: false }
    }

    /// A request for the inputs of the comparison of layers and outputs.
    const fn compared(inputs: Inputs) -> Self {
        Self { stage: "comparing", inputs, limit: COMPARED, is_rough: false }
    }
}

/// A visitor of a method's results.
pub type See<'a> = dyn FnMut(&[Seen<'_>]) -> Result<(), Error> + 'a;

/// A tensor that a program returned, in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub sizes: &'a [usize],
    pub numbers: &'a [f32],
}

/// Results of a model for each input.
type Outputs = Vec<Vec<f32>>;

/// Composite operators that quantization does not decompose: layers, unary operators that become tables or epilogues,
/// and interpolations whose GEMMs are no layers.
const KEPT_WHOLE: [&str; 15] = [
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

/// Number of inputs of the comparison of layers and outputs.
const COMPARED: usize = 16;
/// Maximum bytes of layer weights of a method that is run on the export's example inputs without a request. The method
/// is in memory twice then, in floats and in integers.
const UNASKED: u64 = 1 << 31;
/// The stage of progress that rounds the weights.
const ROUNDING: &str = "rounding weights";
/// Maximum bytes of the Gram matrices that are computed at a time.
const GATHERED: usize = 1 << 28;
/// Number of 4-bit weights that share a scale.
const GROUP: usize = 32;

/// Quantizes all methods of a model from a front end, and advances it to the stage where backends claim nodes. Layers
/// are not decomposed.
///
/// # Errors
/// `Output` if scales need inputs and there are none, `Unsupported` for a model without anything that is quantized.
/// Errors of the passes, and of running programs on the calibration.
pub fn quantize(model: &mut Model, settings: &Settings, calibration: &mut dyn Calibration) -> Result<Report, Error> {
    let modules = super::kept::modules(model);
    prepare_layers(model, &KEPT_WHOLE, &settings.progress)?;
    let mut warnings = super::kept::check(&modules, model, &settings.keep)?;
    let methods: Vec<String> = model.methods.keys().cloned().collect();
    let samples = methods.iter().map(|method| calibration.samples(method, Inputs::Calibration)).sum();
    check(settings, samples)?;
    let mut report = Report {
        scheme: settings.scheme,
        observer: settings.observer,
        rounding: settings.rounding,
        samples,
        layers: Vec::new(),
        output_snr: None,
        outputs: Vec::new(),
        compared_on: None,
        not_compared: None,
        warnings: Vec::new(),
    };
    let mut total = Deviation::default();
    for method in &methods {
        let mut work = Work::new(model, method, settings, calibration)?;
        if work.layers.is_empty() && work.tables.is_empty() {
            report.layers.extend(work.reports(&FxHashMap::default()));
            continue;
        }
        let Quantized { model: quantized, layers, outputs } = work.run()?;
        match work.compared {
            Ok(inputs) => report.compared_on = Some(inputs),
            Err(reason) => {
                report.not_compared.get_or_insert(format!("method `{method}`: {reason}"));
            }
        }
        *model = quantized;
        report.layers.extend(layers);
        for (output, deviation) in outputs {
            total.merge(&deviation);
            report.outputs.push(output);
        }
    }
    if !report.layers.iter().any(|layer| layer.kept.is_none()) && settings.min_snr.is_none() {
        let reasons = report.layers.first().and_then(|layer| layer.kept.clone());
        let error = Error::unsupported(format!("nothing in this model becomes `{}`", settings.scheme.name()));
        let layers = if settings.scheme.takes_convolutions() {
            "convolutions and linear layers of f32 with constant weights"
        } else {
            "linear layers of f32 with constant weights"
        };
        let got = reasons.map_or_else(|| "none".to_owned(), |reason| format!("only layers that stay floats: {reason}"));
        return Err(error.expected(layers).got(got));
    }
    report.output_snr = total.ratio();
    report.sort();
    report.warn_of_noise();
    report.warnings.append(&mut warnings);
    Ok(report)
}

/// Refuses settings that need inputs if there are none, and unsupported numbers of bits.
fn check(settings: &Settings, samples: usize) -> Result<(), Error> {
    const GIVE: &str = "give inputs of a calibration (`--calibrate`; in Python `calibration=`)";
    if let Some(bits) = settings.embedding_bits.filter(|bits| !matches!(bits, 4 | 8)) {
        return Err(Error::unsupported("tables of embeddings with so many bits")
            .expected("4 or 8")
            .got(bits.to_string()));
    }
    let dynamic = "a scheme that needs none: int8-dynamic, 8da4w, int4, int8-weight";
    let needs = [
        (settings.scheme.is_static(), "scales of activations are chosen from inputs", dynamic),
        (settings.rounding == Rounding::Gptq, "GPTQ rounds weights for inputs", "leave out GPTQ"),
        (
            settings.min_snr.is_some(),
            "whether outputs are near enough is seen on inputs",
            "leave out the least signal-to-noise",
        ),
    ];
    match needs.iter().find(|(needs, ..)| *needs && samples == 0) {
        Some((_, why, or)) => {
            Err(Error::new(ErrorKind::Output, format!("{why}, and there are none")).help(format!("{GIVE}, or {or}")))
        }
        None => Ok(()),
    }
}

/// The quantization of one method.
struct Work<'a> {
    model: &'a Model,
    method: &'a str,
    settings: &'a Settings,
    calibration: &'a mut dyn Calibration,
    /// The engine of the calibration.
    engine: Arc<Engine>,
    graph: &'a Graph,
    reader: Reader<'a>,
    /// Layers that may be quantized.
    layers: Vec<Layer>,
    /// Embeddings whose tables become integers.
    tables: Vec<(Layer, Width)>,
    /// Other layers, each with the reason why it stays in floats.
    kept: Vec<(Layer, String)>,
    seen: FxHashMap<ValueId, Histogram>,
    /// Observers of some values that replace the observer of the settings.
    chosen: FxHashMap<ValueId, Observer>,
    weights: FxHashMap<NodeId, Rounded>,
    weight_snr: FxHashMap<NodeId, Option<f64>>,
    biases: FxHashMap<NodeId, Vec<f32>>,
    noise: FxHashMap<NodeId, Noise>,
    /// The inputs on which layers and outputs are compared, or the reason why they are not compared.
    compared: Result<Inputs, String>,
}

/// The result of quantizing a method.
struct Quantized {
    model: Model,
    layers: Vec<LayerReport>,
    /// The floating-point outputs.
    outputs: Vec<(OutputReport, Deviation)>,
}

impl<'a> Work<'a> {
    fn new(
        model: &'a Model,
        method: &'a str,
        settings: &'a Settings,
        calibration: &'a mut dyn Calibration,
    ) -> Result<Self, Error> {
        let Some(graph) = model.methods.get(method) else {
            return Err(Error::invalid(format!("there is no method `{method}`")));
        };
        let reader = Reader { model, graph };
        let (mut layers, mut kept) = (Vec::new(), Vec::new());
        for layer in Sites::layers(model, method) {
            match reason_to_keep(reader, &layer, settings, calibration) {
                None => layers.push(layer),
                Some(reason) => kept.push((layer, reason)),
            }
        }
        let tables = match settings.embedding_bits {
            Some(bits) => Sites::embeddings(model, method)
                .into_iter()
                .filter(|table| kept_by(table, settings).is_none())
                .map(|table| {
                    // A row of 4-bit weights must consist of whole groups.
                    let is_even = reader.sizes(&table).get(1).is_some_and(|columns| columns.is_multiple_of(GROUP));
                    (table, if bits == 4 && is_even { Width::Four } else { Width::Eight })
                })
                .collect(),
            None => Vec::new(),
        };
        let bytes: u64 = layers.iter().map(|layer| 4 * reader.sizes(layer).iter().product::<usize>() as u64).sum();
        let compared = if calibration.samples(method, Inputs::Calibration) > 0 {
            Ok(Inputs::Calibration)
        } else if calibration.samples(method, Inputs::Example) == 0 {
            Err("there are no inputs of a calibration, and the export holds no example inputs that can be read"
                .to_owned())
        } else if bytes > UNASKED {
            let size = bytes as f64 / 1e9;
            Err(format!(
                "the model is large, with {size:.1} GB of weights: give inputs of a calibration to compare them"
            ))
        } else {
            Ok(Inputs::Example)
        };
        Ok(Self {
            compared,
            model,
            method,
            settings,
            engine: calibration.engine(),
            calibration,
            graph,
            reader,
            layers,
            tables,
            kept,
            seen: FxHashMap::default(),
            chosen: FxHashMap::default(),
            weights: FxHashMap::default(),
            weight_snr: FxHashMap::default(),
            biases: FxHashMap::default(),
            noise: FxHashMap::default(),
        })
    }

    fn threads(&self) -> usize {
        let threads = self.settings.threads.or_else(|| std::thread::available_parallelism().ok());
        threads.map_or(1, NonZeroUsize::get)
    }

    /// Quantizes the method, and compares its layers and outputs.
    fn run(&mut self) -> Result<Quantized, Error> {
        let sites = self.sites(self.layers.clone());
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
        if let Some(least) = self.settings.min_snr
            && !is_reached(&off, least)
        {
            let (found, count) = self.fall_back(least, &expected)?;
            for layer in self.worst_first().into_iter().take(count) {
                self.kept.push((layer, too_far(least)));
            }
            (model, off) = found;
        }
        Ok(Quantized { model, layers: self.reports(&ranges), outputs: self.output_reports(off) })
    }

    fn output_reports(&self, off: Vec<Deviation>) -> Vec<(OutputReport, Deviation)> {
        let values = self.graph.outputs.iter().map(Arg::as_value).enumerate();
        let floats =
            values.filter_map(|(index, value)| Some((index, value.filter(|it| taps::is_float(self.graph, *it))?)));
        let names = self.model.signature(self.method).map(|signature| signature.output_names()).unwrap_or_default();
        let report = |((index, value), deviation): ((usize, ValueId), Deviation)| {
            let name = names.get(index).filter(|name| !name.is_empty());
            let report = OutputReport {
                method: self.method.to_owned(),
                index,
                name: name.unwrap_or(&self.graph.values[value].name).clone(),
                snr: deviation.ratio(),
                non_finite: deviation.non_finite,
            };
            (report, deviation)
        };
        floats.zip(off).map(report).collect()
    }

    fn sites(&self, layers: Vec<Layer>) -> Sites {
        if self.settings.scheme.is_static() {
            Sites::of(self.model, self.method, layers)
        } else {
            Sites { layers, ..Sites::default() }
        }
    }

    /// Makes the histograms of all values that need a scale and have no histogram yet.
    fn observe(&mut self, sites: &Sites) -> Result<(), Error> {
        let unseen = sites.observed.iter().flatten().filter(|value| !self.seen.contains_key(value));
        let values: Vec<ValueId> = unseen.copied().collect();
        if values.is_empty() {
            return Ok(());
        }
        let engine = &self.engine;
        let mut histograms: Vec<Histogram> = values.iter().map(|_| Histogram::new()).collect();
        let tapped = taps::with_outputs(self.model, self.method, &values, values.len())?;
        self.calibration.run(
            tapped,
            self.method,
            Shown { is_rough: true, ..Shown::all("calibrating") },
            &mut |seen| {
                let work: Vec<_> = histograms.iter_mut().zip(seen).collect();
                on_threads_of(engine, work, |(histogram, seen)| histogram.add(engine, seen.numbers));
                Ok(())
            },
        )?;
        for (value, histogram) in values.into_iter().zip(histograms) {
            if histogram.wild() > 0 {
                let name = &self.graph.values[value].name;
                // The error is in the inputs, not in the program.
                let what = format!("{} numbers of `{name}` are NaN or infinite", histogram.wild());
                let error = Error::new(ErrorKind::Output, what)
                    .help("look at the inputs of the calibration, or keep the layers that give such numbers as floats");
                return Err(match self.graph.values[value].def {
                    Def::Result(node, _) => self.graph.locate(error, node),
                    _ => error,
                });
            }
            self.seen.insert(value, histogram);
        }
        Ok(())
    }

    /// Chooses an observer for each set of values that share a scale: the one with which the worst layer that reads
    /// such a value is best.
    fn choose_observers(&mut self, sites: &Sites) -> Result<(), Error> {
        let mut best: FxHashMap<usize, (f64, Observer)> = FxHashMap::default();
        for observer in [Observer::Histogram, Observer::MinMax, Observer::Percentile] {
            self.chosen = sites.quantized.keys().map(|value| (*value, observer)).collect();
            let scales = self.scales(sites)?;
            let (noise, _) = self.compare(sites, &scales)?;
            let mut worst: FxHashMap<usize, f64> = FxHashMap::default();
            for (layer, noise) in sites.layers.iter().zip(&noise) {
                let ratio = noise.ratio().unwrap_or(f64::INFINITY);
                if let Some(number) = sites.quantized.get(&layer.input) {
                    worst.entry(*number).and_modify(|worst| *worst = worst.min(ratio)).or_insert(ratio);
                }
            }
            for (number, ratio) in worst {
                let found = best.entry(number).or_insert((ratio, observer));
                if ratio > found.0 {
                    *found = (ratio, observer);
                }
            }
        }
        let chosen = |(value, number): (&ValueId, &usize)| Some((*value, best.get(number)?.1));
        self.chosen = sites.quantized.iter().filter_map(chosen).collect();
        Ok(())
    }

    /// Returns the scale and the zero point of each set of values that share them.
    fn scales(&self, sites: &Sites) -> Result<Vec<(f32, i32)>, Error> {
        let mut observers = vec![self.settings.observer; sites.observed.len()];
        for (value, number) in &sites.quantized {
            if let Some((observer, chosen)) = observers.get_mut(*number).zip(self.chosen.get(value)) {
                *observer = *chosen;
            }
        }
        let scale = |(values, observer): (&Vec<ValueId>, Observer)| {
            let mut all = Histogram::new();
            values.iter().filter_map(|value| self.seen.get(value)).for_each(|seen| all.absorb(seen));
            all.range(observer).map(affine).ok_or_else(|| {
                let name = values.first().map_or("", |value| self.graph.values[*value].name.as_str());
                Error::unsupported(format!("the inputs of the calibration showed no number of `{name}`"))
                    .help("a part of the model that they do not reach cannot be quantized")
            })
        };
        sites.observed.iter().zip(observers).map(scale).collect()
    }

    /// Returns the range of each layer's quantized inputs.
    fn ranges(&self, sites: &Sites, scales: &[(f32, i32)]) -> FxHashMap<NodeId, (f32, f32)> {
        let range = |layer: &Layer| {
            let (scale, zero) = *scales.get(*sites.quantized.get(&layer.input)?)?;
            let number = |integer: i32| (integer - zero) as f32 * scale;
            Some((layer.node, (number(-128), number(127))))
        };
        self.layers.iter().filter_map(range).collect()
    }

    /// Returns these layers and all tables, with the width of their weights.
    fn weighted<'l>(&'l self, layers: impl IntoIterator<Item = &'l Layer>) -> impl Iterator<Item = (&'l Layer, Width)> {
        let width = self.settings.scheme.width();
        let tables = self.tables.iter().map(|(table, width)| (table, *width));
        layers.into_iter().map(move |layer| (layer, width)).chain(tables)
    }

    fn round_weights(&mut self) -> Result<(), Error> {
        let (rounding, reader) = (self.settings.rounding, self.reader);
        if rounding == Rounding::Gptq {
            self.round_for_inputs()?;
        }
        let engine = &self.engine;
        // Layers with the same weights, such as tied embeddings, are rounded once.
        let mut plain: Vec<(&Layer, Width, Vec<NodeId>)> = Vec::new();
        for (layer, width) in self.weighted(&self.layers).filter(|(layer, _)| !self.weights.contains_key(&layer.node)) {
            let is_same = |known: &(&Layer, Width, _)| {
                (known.0.weight, known.0.axis, known.1) == (layer.weight, layer.axis, width)
            };
            match plain.iter_mut().find(|known| is_same(known)) {
                Some((.., nodes)) => nodes.push(layer.node),
                None => plain.push((layer, width, vec![layer.node])),
            }
        }
        // Layers are split into parts, so that all threads get equal work.
        let mut parts = Vec::new();
        for (index, (layer, width, _)) in plain.iter().enumerate() {
            parts.extend(reader.parts(layer).into_iter().map(|part| (index, *layer, *width, part)));
        }
        let (progress, done, total) = (&self.settings.progress, AtomicU64::new(0), parts.len() as u64);
        let scan = |(index, layer, width, part): (usize, &Layer, Width, Part)| -> Result<_, Error> {
            let mut scanned = Scanned { is_read_again: matches!(part, Part::Rows(_)), ..Scanned::default() };
            reader
                .for_floats(layer, &part, |weights, k| scanned.add(engine, weights, width.group(k), width, rounding))?;
            progress.report(ROUNDING, done.fetch_add(1, Ordering::Relaxed) + 1, total)?;
            Ok((index, scanned))
        };
        let mut found: Vec<Vec<Scanned>> = plain.iter().map(|_| Vec::new()).collect();
        for scanned in parallel_map(parts, self.threads(), scan) {
            let (index, scanned) = scanned?;
            found[index].push(scanned);
        }
        let all = plain.into_iter().zip(found);
        let rounded = all.map(|((layer, width, nodes), parts)| (nodes, joined(reader, layer, width, parts)));
        for (nodes, (rounded, ratio)) in rounded.collect::<Vec<_>>() {
            for node in nodes {
                self.weights.insert(node, rounded.clone());
                self.weight_snr.insert(node, ratio);
            }
        }
        Ok(())
    }

    /// Rounds weights with GPTQ for the inputs of the calibration, some layers at a time.
    fn round_for_inputs(&mut self) -> Result<(), Error> {
        let (scheme, reader, threads) = (self.settings.scheme, self.reader, self.threads());
        let rows = |layer: &Layer| Some((layer.clone(), LhsSource::of(reader, layer)?));
        let layers: Vec<(Layer, LhsSource)> = self.layers.iter().filter_map(rows).collect();
        let (mut rounded_layers, total) = (0, layers.len() as u64);
        let mut rest = layers.into_iter().peekable();
        while rest.peek().is_some() {
            // Layers with the same input rows are mostly neighbours, such as those of an attention.
            let mut kinds: Vec<(LhsSource, OriginId, Gram)> = Vec::new();
            let mut part: Vec<(Layer, usize)> = Vec::new();
            let mut bytes = 0;
            while let Some((layer, rows)) = rest.peek() {
                let known = kinds.iter().position(|(known, ..)| known == rows);
                if known.is_none() {
                    let k: usize = reader.sizes(layer).iter().skip(1).product();
                    if bytes > 0 && bytes + k * k * size_of::<f32>() > GATHERED {
                        break;
                    }
                    bytes += k * k * size_of::<f32>();
                    kinds.push((rows.clone(), self.graph.nodes[layer.node].origin, Gram::new(k)));
                }
                part.push((layer.clone(), known.unwrap_or(kinds.len() - 1)));
                rest.next();
            }
            let wanted: Vec<_> = kinds.iter().map(|(rows, origin, _)| (rows, *origin)).collect();
            let tapped = taps::with_gram_matrices(self.model, self.method, &wanted)?;
            self.calibration.run(tapped, self.method, Shown::all("calibrating"), &mut |seen| {
                kinds.iter_mut().zip(seen).for_each(|((.., gram), seen)| gram.add(seen.numbers));
                Ok(())
            })?;
            for (layer, kind) in part {
                self.settings.progress.report(ROUNDING, rounded_layers, total)?;
                rounded_layers += 1;
                let (matrix, gram) = (reader.weights(&layer)?, &kinds[kind].2);
                let group = scheme.width().group(matrix.k);
                let Some(mut rounded) =
                    gptq::round(&self.engine, &matrix.by_tap(), gram, group, scheme.width(), threads)
                else {
                    continue;
                };
                rounded.integers = Integers::held(matrix.as_weights(&rounded.integers.read()?));
                self.weight_snr.insert(layer.node, rounded.ratio(&matrix.numbers)?);
                self.weights.insert(layer.node, rounded);
            }
        }
        Ok(())
    }

    /// Compares each quantized layer with its float original, and corrects biases. Returns the float results of the
    /// model for each input.
    fn compare_layers(&mut self, sites: &Sites, scales: &[(f32, i32)]) -> Result<Vec<Outputs>, Error> {
        let (noise, outputs) = self.compare(sites, scales)?;
        for (layer, mut noise) in sites.layers.iter().zip(noise) {
            // Example inputs of the export only measure deviations; they change no bias.
            if self.settings.bias_correction
                && self.compared == Ok(Inputs::Calibration)
                && !self.reader.is_linear(layer)
                && let Some(bias) = self.reader.bias(layer, noise.channels())
            {
                let corrections = noise.correct();
                let corrected = bias.iter().zip(&corrections).map(|(bias, more)| bias + more).collect();
                self.biases.insert(layer.node, corrected);
            }
            self.noise.insert(layer.node, noise);
        }
        Ok(outputs)
    }

    /// Measures the noise of each quantized layer on its float inputs, and returns the float results of the model. Both
    /// are empty without inputs.
    fn compare(&mut self, sites: &Sites, scales: &[(f32, i32)]) -> Result<(Vec<Noise>, Vec<Outputs>), Error> {
        let Ok(inputs) = self.compared.clone() else { return Ok(Default::default()) };
        let mut twins = taps::alone(self.model, self.method);
        let mut values = rewrite::add_twins(&mut twins, self.method, &self.decisions(sites, scales))?;
        let pairs = values.len();
        values.extend(taps::float_outputs(self.graph));
        if values.is_empty() {
            self.compared = Err("no output of the model is floats".to_owned());
            return Ok(Default::default());
        }
        let twins = taps::with_outputs(&twins, self.method, &values, pairs)?;
        let mut noise: Vec<Noise> = sites.layers.iter().map(|_| Noise::default()).collect();
        let mut outputs = Vec::new();
        let engine = &self.engine;
        let run = self.calibration.run(twins, self.method, Shown::compared(inputs), &mut |seen| {
            let (seen, results) = seen.split_at_checked(pairs).unwrap_or_default();
            outputs.push(results.iter().map(|result| result.numbers.to_vec()).collect());
            let work: Vec<_> = noise.iter_mut().zip(seen.chunks(2)).collect();
            on_threads_of(engine, work, |(noise, pair)| {
                if let [floats, integers] = pair {
                    noise.add(floats.sizes, floats.numbers, integers.numbers);
                }
            });
            Ok(())
        });
        match (run, inputs) {
            (Ok(()), _) => Ok((noise, outputs)),
            (Err(error), Inputs::Calibration) => Err(error),
            // The caller did not ask for these inputs, therefore their failure is not an error.
            (Err(error), Inputs::Example) => {
                self.compared = Err(format!("the example inputs of the export do not run: {}", error.message()));
                Ok(Default::default())
            }
        }
    }

    fn decisions<'d>(&'d self, sites: &'d Sites, scales: &'d [(f32, i32)]) -> Decisions<'d> {
        let (weights, tables, biases) = (&self.weights, self.tables.as_slice(), &self.biases);
        Decisions { scheme: self.settings.scheme, sites, scales, weights, tables, biases }
    }

    fn quantized(&self, sites: &Sites, scales: &[(f32, i32)]) -> Result<Model, Error> {
        let mut model = self.model.clone();
        rewrite::quantize(&mut model, self.method, &self.decisions(sites, scales))?;
        if cfg!(debug_assertions) {
            model.verify()?;
        }
        Ok(model)
    }

    /// Measures the deviation of each floating-point output of a model; empty if outputs are not compared.
    fn deviations(&mut self, model: &Model, expected: &[Outputs]) -> Result<Vec<Deviation>, Error> {
        let values = model.methods.get(self.method).map_or_else(Vec::new, taps::float_outputs);
        let (Ok(inputs), false) = (self.compared.clone(), expected.is_empty()) else { return Ok(Vec::new()) };
        if values.is_empty() {
            self.compared = Err("no output of the model is floats".to_owned());
            return Ok(Vec::new());
        }
        let mut off = vec![Deviation::default(); values.len()];
        let tapped = taps::with_outputs(model, self.method, &values, 0)?;
        let mut expected = expected.iter();
        self.calibration.run(tapped, self.method, Shown::compared(inputs), &mut |seen| {
            for ((off, floats), seen) in off.iter_mut().zip(expected.next().into_iter().flatten()).zip(seen) {
                off.add(floats, seen.numbers);
            }
            Ok(())
        })?;
        Ok(off)
    }

    fn worst_first(&self) -> Vec<Layer> {
        let ratio = |layer: &Layer| self.noise.get(&layer.node).and_then(Noise::ratio).unwrap_or(f64::INFINITY);
        let mut layers = self.layers.clone();
        layers.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        layers
    }

    /// Finds the smallest number of worst layers that must stay in floats for the outputs to be good enough. Returns
    /// that model and the number.
    fn fall_back(&mut self, least: f64, expected: &[Outputs]) -> Result<((Model, Vec<Deviation>), usize), Error> {
        let worst = self.worst_first();
        // With 0 layers in floats the outputs are not good enough; with all of them they are exact.
        let (mut too_few, mut enough) = (0, worst.len());
        let mut found = self.tables_alone(least, expected)?;
        while enough - too_few > 1 {
            let count = too_few.midpoint(enough);
            let sites = self.sites(worst[count..].to_vec());
            self.observe(&sites)?;
            let scales = self.scales(&sites)?;
            let model = self.quantized(&sites, &scales)?;
            let off = self.deviations(&model, expected)?;
            if is_reached(&off, least) {
                (enough, found) = (count, (model, off));
            } else {
                too_few = count;
            }
        }
        Ok((found, enough))
    }

    /// Returns the model with only the tables of embeddings quantized, and the deviations of its outputs. If these are
    /// too large, returns the float model.
    fn tables_alone(&mut self, least: f64, expected: &[Outputs]) -> Result<(Model, Vec<Deviation>), Error> {
        if !self.tables.is_empty() {
            let model = self.quantized(&Sites::default(), &[])?;
            let off = self.deviations(&model, expected)?;
            if is_reached(&off, least) {
                return Ok((model, off));
            }
            let tables = std::mem::take(&mut self.tables);
            self.kept.extend(tables.into_iter().map(|(table, _)| (table, too_far(least))));
        }
        let model = self.model.clone();
        let off = self.deviations(&model, expected)?;
        Ok((model, off))
    }

    fn reports(&self, ranges: &FxHashMap<NodeId, (f32, f32)>) -> Vec<LayerReport> {
        let kept =
            |layer: &Layer| self.kept.iter().find(|(kept, _)| kept.node == layer.node).map(|(_, why)| why.clone());
        let others = self.kept.iter().map(|(layer, _)| layer);
        let others = others.filter(|layer| !self.layers.iter().any(|known| known.node == layer.node));
        let report = |layer: &Layer, width: Width| {
            let (node, reason) = (&self.graph.nodes[layer.node], kept(layer));
            let sizes = self.reader.sizes(layer);
            let elements = sizes.iter().product::<usize>() as u64;
            let scales = self.weights.get(&layer.node).map_or(0, |rounded| rounded.scales.len() as u64);
            let bits = width.bits();
            LayerReport {
                method: self.method.to_owned(),
                name: layer.name.clone(),
                op: node.op.name().to_owned(),
                source: self.graph.origins[node.origin].line(),
                bytes_before: elements * 4,
                bytes_after: if reason.is_some() { elements * 4 } else { elements * bits / 8 + scales * 4 },
                sizes,
                weight_snr: self.weight_snr.get(&layer.node).copied().flatten(),
                snr: self.noise.get(&layer.node).and_then(Noise::ratio),
                range: ranges.get(&layer.node).copied(),
                kept: reason,
            }
        };
        self.weighted(self.layers.iter().chain(others)).map(|(layer, width)| report(layer, width)).collect()
    }
}

/// The scales of a part of a layer's weights.
#[derive(Default)]
struct Scanned {
    scales: Vec<f32>,
    integers: Vec<u8>,
    /// True if the integers are not kept, because they can be computed again.
    is_read_again: bool,
    signal: f64,
    noise: f64,
}

impl Scanned {
    /// Adds weights: chooses their scales and rounds them.
    fn add(&mut self, engine: &Engine, weights: &[f32], group: usize, width: Width, rounding: Rounding) {
        let scales = weights::scales(engine, weights, group, width, rounding, None);
        if self.is_read_again {
            self.integers.clear();
        }
        let start = self.integers.len();
        weights::round_into(weights, &scales, group, width, &mut self.integers);
        let (signal, noise) = weights::noise(weights, &self.integers[start..], &scales, group);
        (self.signal, self.noise) = (self.signal + signal, self.noise + noise);
        self.scales.extend(scales);
    }
}

/// Joins the parts of a layer. Returns the integers with their scales, and the signal-to-noise ratio.
fn joined(reader: Reader<'_>, layer: &Layer, width: Width, parts: Vec<Scanned>) -> (Rounded, Option<f64>) {
    let (mut integers, mut scales) = (Vec::new(), Vec::new());
    let (mut signal, mut noise, mut is_read_again) = (0.0, 0.0, false);
    for scanned in parts {
        (signal, noise) = (signal + scanned.signal, noise + scanned.noise);
        scales.extend(scanned.scales);
        is_read_again |= scanned.is_read_again;
        if !is_read_again {
            integers.extend(scanned.integers);
        }
    }
    let sizes = reader.sizes(layer);
    let k = sizes.iter().enumerate().filter(|(dim, _)| *dim != layer.axis).map(|(_, size)| size).product();
    let (group, scales) = (width.group(k), Arc::new(scales));
    let integers = match reader.constant(layer).filter(|_| is_read_again) {
        Some(weights) => {
            let (weights, groups) = (weights.clone(), 0..scales.len());
            Integers::Nearest(Arc::new(Nearest { weights, scales: scales.clone(), groups, group, width }))
        }
        None => Integers::held(bytemuck::cast_vec(integers)),
    };
    (Rounded { integers, scales, group }, decibels(signal, noise))
}

/// The reason of a layer that stays in floats because the outputs would deviate too much.
fn too_far(least: f64) -> String {
    format!("outputs would be below {least} dB with it in integers")
}

/// True if all outputs reach a signal-to-noise of `least` dB.
fn is_reached(off: &[Deviation], least: f64) -> bool {
    off.iter().all(|off| off.reaches(least))
}

/// Returns the first pattern that keeps a layer in floats.
fn kept_by<'s>(layer: &Layer, settings: &'s Settings) -> Option<&'s str> {
    settings.keep.iter().find(|pattern| is_within(pattern, &layer.name)).map(String::as_str)
}

/// Returns the reason why a layer stays in floats: it cannot be quantized, or the user keeps it.
fn reason_to_keep(reader: Reader<'_>, layer: &Layer, settings: &Settings, kernels: &dyn Calibration) -> Option<String> {
    if let Some(pattern) = kept_by(layer, settings) {
        return Some(format!("`{pattern}` is to be kept"));
    }
    let sizes = reader.sizes(layer);
    let k: usize = sizes.iter().skip(1).product();
    if sizes.iter().product::<usize>() == 0 {
        return Some("it has no weights".to_owned());
    }
    if !settings.scheme.takes_convolutions() && !reader.is_linear(layer) {
        return Some(format!("`{}` is for linear layers", settings.scheme.name()));
    }
    if let Some(shape) = reader.shape(layer, &sizes) {
        let Some(packed) = kernels.packed_bytes(&shape) else {
            return Some("no kernel multiplies integers over windows of this size and dilation".to_owned());
        };
        // A matrix of one row or column is stored as floats.
        let is_vector = sizes.len() == 2 && sizes.contains(&1);
        // Kernels for float activations multiply two rows at a time.
        let is_odd = !settings.scheme.is_dynamic() && !k.is_multiple_of(2);
        let is_larger = settings.scheme.is_dynamic() && packed.integers >= packed.floats;
        if !settings.scheme.is_static() && (is_vector || is_odd || is_larger) {
            return Some("its integers would take as much room as its floats".to_owned());
        }
    }
    if !k.is_multiple_of(settings.scheme.width().group(k)) {
        return Some(format!("its {k} weights for each output are no multiple of {GROUP}"));
    }
    None
}

impl Width {
    /// Number of weights that share a scale, in rows of `k`.
    const fn group(self, k: usize) -> usize {
        match self {
            Self::Four => GROUP,
            Self::Eight => k,
        }
    }
}
