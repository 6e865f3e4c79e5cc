//! Quantization without PyTorch: compiles programs that return a model's intermediate values, and runs them on
//! calibration inputs.

use std::path::Path;
use std::sync::Arc;

use rushlight_compiler::emit::{EmitOptions, emit};
use rushlight_compiler::partition::Backend;
use rushlight_compiler::{CompileOptions, Stage, advance};
use rushlight_engine::Engine;
use rushlight_format::ScalarType;
use rushlight_format::signature::{self, SIGNATURE_KEY, Signature, Structure};
use rushlight_graph::{self as graph, Bytes, Model, Progress};
use rushlight_quantize::{Calibration, See, Seen, Settings, Shown, quantize};
use rushlight_runtime::{Code, Execution, Input, Output, Outputs, TensorView};

use crate::atomic::unwritable;
use crate::backends::{self, BackendInfo, BackendSpec, Destination, Host};
use crate::error::Error;
use crate::exported::example_inputs;
use crate::module::Module;
use crate::tensor::{Tensor, Value};

pub use rushlight_compiler::quantization::Scheme;
pub use rushlight_quantize::{
    Decibels, Inputs, LOW_SNR, LayerReport, Observer, OutputReport, Proposal as QuantizationProposal,
    Report as QuantizationReport, Rounding,
};

/// Settings of a model's quantization, with its calibration inputs.
#[derive(Debug, Default)]
pub struct Quantization {
    settings: Settings,
    /// Calibration inputs by method.
    samples: Vec<(String, Vec<Vec<Value>>)>,
}

impl Quantization {
    /// Makes settings for a scheme, with the default observer and rounding, and without inputs.
    pub fn new(scheme: Scheme) -> Self {
        Self { settings: Settings { scheme, ..Settings::default() }, samples: Vec::new() }
    }

    /// Sets the observer, which chooses the ranges of activations.
    #[must_use]
    pub fn observer(mut self, observer: Observer) -> Self {
        self.settings.observer = observer;
        self
    }

    /// Sets the rounding, which chooses the integers of weights.
    #[must_use]
    pub fn rounding(mut self, rounding: Rounding) -> Self {
        self.settings.rounding = rounding;
        self
    }

    /// Quantizes embedding tables to integers of 4 or 8 bits. They stay floats by default.
    #[must_use]
    pub fn embeddings(mut self, bits: u32) -> Self {
        self.settings.embedding_bits = Some(bits);
        self
    }

    /// Keeps the layers of modules as floats, by name; `*` stands for any text. A name that no module has is an error.
    #[must_use]
    pub fn keep(mut self, pattern: impl Into<String>) -> Self {
        self.settings.keep.push(pattern.into());
        self
    }

    /// Sets the bias correction of convolutions, which compensates the shift of the outputs' means. It is on by
    /// default.
    #[must_use]
    pub fn bias_correction(mut self, is_on: bool) -> Self {
        self.settings.bias_correction = is_on;
        self
    }

    /// Sets the minimum signal-to-noise ratio of the outputs, in dB. The worst layers stay floats until it is reached.
    #[must_use]
    pub fn min_snr(mut self, decibels: f64) -> Self {
        self.settings.min_snr = Some(decibels);
        self
    }

    /// Adds calibration inputs of a method, in the form of a call's inputs.
    #[must_use]
    pub fn calibrate(mut self, method: impl Into<String>, samples: Vec<Vec<Value>>) -> Self {
        self.samples.push((method.into(), samples));
        self
    }

    /// Refuses a scheme whose scales come from inputs for a language model, which is built without any.
    pub(crate) fn check_language_model(&self, path: &Path) -> Result<(), Error> {
        let scheme = self.settings.scheme;
        if !scheme.is_static() || !self.samples.is_empty() {
            return Ok(());
        }
        let others = Scheme::ALL.iter().filter(|scheme| !scheme.is_static()).map(|scheme| scheme.name);
        Err(Error::invalid(format!(
            "`{}` needs calibration inputs, and language models are compiled without any",
            scheme.name
        ))
        .got(format!("`{}`", path.display()))
        .help(format!("choose a scheme without a calibration: {}", others.collect::<Vec<_>>().join(", "))))
    }

    /// Quantizes a model whose methods were read from these files, by the policy of the first of the backends that has one. A
    /// method without calibration inputs is measured on the inputs that it was exported with.
    pub(crate) fn apply(
        &self,
        model: &mut Model,
        files: &[(&str, Bytes)],
        targets: &[Box<dyn Backend>],
        progress: &Progress,
    ) -> Result<QuantizationReport, Error> {
        if let Some((method, _)) = self.samples.iter().find(|(method, _)| !model.methods.contains_key(method)) {
            let names: Vec<String> = model.methods.keys().map(|name| format!("`{name}`")).collect();
            return Err(Error::invalid("inputs of a calibration are for a method that there is not")
                .expected(names.join(", "))
                .got(format!("`{method}`")));
        }
        let without = files.iter().filter(|(method, _)| Runs::of(&self.samples, method).next().is_none());
        let example = |(method, bytes): &(&str, Bytes)| Some(((*method).to_owned(), vec![example_inputs(bytes)?]));
        let examples: Vec<_> = without.filter_map(example).collect();
        let none = || Error::new(Code::NotSupported, "no backend of this build computes in integers");
        let (backend, calibrating) = backends::calibrating().ok_or_else(none)?;
        let host = Host::default();
        let engine = (calibrating.engine)(&host)?;
        let exact = BackendSpec::of(backend);
        let options = (calibrating.rough)(&engine).iter();
        let rough = options.copied().try_fold(exact.clone(), |spec, (name, value)| spec.option(name, value))?;
        // Nodes that no backend claims run on the operators of the runtime, which compute with all integers.
        let own = exact.make(&Destination::default())?;
        let quantizer = targets.iter().chain(&own).find_map(|backend| backend.quantizer()).ok_or_else(none)?;
        let (samples, examples) = (&self.samples, &examples);
        let mut runs = Runs { samples, examples, host, engine, progress, backend, exact, rough, failure: None };
        let settings = Settings { progress: progress.clone(), ..self.settings.clone() };
        // The error of this crate has more detail than the compiler's.
        quantize(model, quantizer, &settings, &mut runs).map_err(|error| runs.failure.unwrap_or_else(|| error.into()))
    }
}

/// Runs programs on samples with a backend whose kernels compute in integers.
struct Runs<'a> {
    /// Calibration inputs by method.
    samples: &'a [(String, Vec<Vec<Value>>)],
    /// The inputs that methods were exported with.
    examples: &'a [(String, Vec<Vec<Value>>)],
    host: Host,
    engine: Arc<Engine>,
    progress: &'a Progress,
    backend: &'static BackendInfo,
    /// The backend with its defaults, and with faster options for runs that need less precision.
    exact: BackendSpec,
    rough: BackendSpec,
    /// The original error, which the compiler receives only as its own type.
    failure: Option<Error>,
}

impl<'a> Runs<'a> {
    fn of<'s>(samples: &'s [(String, Vec<Vec<Value>>)], method: &str) -> impl Clone + Iterator<Item = &'s Vec<Value>> {
        samples.iter().filter(move |(name, _)| name == method).flat_map(|(_, samples)| samples)
    }

    fn inputs(&self, of: Inputs) -> &'a [(String, Vec<Vec<Value>>)] {
        match of {
            Inputs::Calibration => self.samples,
            Inputs::Example => self.examples,
        }
    }
}

impl Calibration for Runs<'_> {
    fn engine(&self) -> Arc<Engine> {
        self.engine.clone()
    }

    fn samples(&self, method: &str, of: Inputs) -> usize {
        Self::of(self.inputs(of), method).count()
    }

    fn run(&mut self, mut model: Model, method: &str, shown: Shown, see: &mut See<'_>) -> Result<(), graph::Error> {
        name_inputs(&mut model, method);
        let spec = if shown.is_rough { &self.rough } else { &self.exact };
        let mut module = match load(model, self.backend, spec, &self.host) {
            Ok(module) => module,
            Err(error) => return Err(self.fail(error, shown.inputs)),
        };
        let what = match shown.inputs {
            Inputs::Calibration => "the calibration",
            Inputs::Example => "the export",
        };
        let samples = Self::of(self.inputs(shown.inputs), method).take(shown.limit);
        let total = samples.clone().count() as u64;
        for (index, sample) in samples.enumerate() {
            self.progress.report(shown.stage, index as u64, total)?;
            let inputs = sample.iter().map(Input::try_from).collect::<Result<Vec<_>, _>>();
            let seen = match inputs {
                Ok(inputs) => show(&mut module, method, &inputs, see),
                Err(error) => Err(error),
            };
            match seen {
                Ok(seen) => seen?,
                Err(error) => {
                    let site = format!("input {index} of {what}");
                    let site = error.location().map_or_else(|| site.clone(), |at| format!("{site}, {at}"));
                    return Err(self.fail(error.site(site), shown.inputs));
                }
            }
        }
        Ok(())
    }
}

impl Runs<'_> {
    fn fail(&mut self, error: Error, inputs: Inputs) -> graph::Error {
        let known = graph::Error::invalid(error.message());
        // If inputs of the export fail, the outputs are not compared, and quantization continues.
        if inputs == Inputs::Calibration {
            self.failure = Some(error);
        }
        known
    }
}

/// Adapts a method's signature to the outputs that the method now returns, so that its inputs keep their names.
fn name_inputs(model: &mut Model, method: &str) {
    let Some(outputs) = model.methods.get(method).map(|graph| graph.outputs.len()) else { return };
    let Some((_, blob)) = model.named_data.iter_mut().find(|(key, _)| key == SIGNATURE_KEY) else { return };
    let read = blob.in_place().and_then(|blob| Signature::of(blob, method).ok().flatten());
    let Some(mut signature) = read else { return };
    signature.outputs = Structure::Tuple(vec![Structure::Leaf(None); outputs]);
    *blob = signature::write([(method, &signature)]).into();
}

/// Loads a model as a program whose weights stay where the compiler has put them.
fn load(mut model: Model, backend: &BackendInfo, spec: &BackendSpec, host: &Host) -> Result<Module, Error> {
    let options = CompileOptions {
        backends: spec.make(&Destination { in_memory: true, ..Destination::default() })?.into_iter().collect(),
        emit: EmitOptions { debug_map: false, ..EmitOptions::default() },
        ..CompileOptions::default()
    };
    let known = model.named_data.len();
    advance(&mut model, &options, Stage::Final)?;
    let blobs = backends::shared_blobs(model.named_data.split_off(known))?;
    let program = emit(&model, &options.emit)?.program.to_bytes().map_err(unwritable)?;
    let running = backend.run(host, &blobs)?.into_iter();
    running.fold(Module::builder(), |builder, backend| builder.backend(backend.into())).load_bytes(&program)
}

/// Runs a method and shows its outputs. If the inputs fit, the outputs are read in place.
fn show(
    module: &mut Module,
    method: &str,
    inputs: &[Input<'_>],
    see: &mut See<'_>,
) -> Result<Result<(), graph::Error>, Error> {
    let (instance, states) = module.loaded_with_states(method)?;
    let has_states = states.is_some();
    if instance.method().num_inputs() == inputs.len() && instance.accepts(inputs) {
        let outputs = match states {
            None => instance.method().execute(inputs),
            Some(states) => instance.method().start_in(states, inputs, &mut []).and_then(Execution::finish),
        };
        match outputs {
            Ok(outputs) => return show_outputs(&outputs, see),
            // The call may have written states, and a second call would write them again.
            Err(error) if has_states && !matches!(error.code, Code::InvalidArgument | Code::InvalidType) => {
                return Err(error.into());
            }
            // A call by the module explains more: which input does not fit, and what to do.
            Err(_) => {}
        }
    }
    let outputs = module.run(method, inputs)?;
    let views = outputs.iter().map(|output| output.as_tensor()?.view()).collect::<Result<Vec<_>, _>>()?;
    show_all(&views, see)
}

fn show_outputs(outputs: &Outputs<'_, '_>, see: &mut See<'_>) -> Result<Result<(), graph::Error>, Error> {
    let mut views = Vec::with_capacity(outputs.len());
    for at in 0..outputs.len() {
        if let Output::Tensor(tensor) = outputs.get(at)? {
            views.push(TensorView::from(tensor));
        }
    }
    show_all(&views, see)
}

fn show_all(views: &[TensorView<'_>], see: &mut See<'_>) -> Result<Result<(), graph::Error>, Error> {
    // Outputs may be in channels-last order.
    let in_order = |view: &TensorView<'_>| match view.as_slice::<f32>() {
        Err(_) if view.dtype() == ScalarType::Float => Tensor::copy_of(view).map(Some),
        _ => Ok(None),
    };
    let copies = views.iter().map(in_order).collect::<Result<Vec<_>, _>>()?;
    let mut seen = Vec::with_capacity(views.len());
    for (view, copy) in views.iter().zip(&copies) {
        let numbers = match copy {
            Some(copy) => copy.as_slice()?,
            None => view.as_slice()?,
        };
        seen.push(Seen { sizes: view.sizes(), numbers });
    }
    Ok(see(&seen))
}
