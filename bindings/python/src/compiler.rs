//! Compiles exported programs to `.pte` files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use rushlight::compiler::ConstantResult;
use rushlight::compiler::emit::ExternalWeights;
use rushlight::graph::Bytes;
use rushlight::graph::{Constant, Literal, TensorType};
use rushlight::{
    CompiledProgram, Compiler, Input, LanguageModelOptions, LanguageModelOutput, ProgramTokenizer, Progress,
    Quantization, TensorView, Value,
};
use rushlight_devtools::describe;
use rushlight_format::pte::{InstructionModel, PlanModel};
use rushlight_python_macros::guarded;

use crate::array::Argument;
use crate::backend::{Failure, PythonBackend};
use crate::choice::BackendSpec;
use crate::custom;
use crate::error;
use crate::meta::{signature_to_python, value_to_python};
use crate::report::entry_to_python;
use crate::source::Source;
use crate::watched;

/// The content of a `.pte` file before it is written.
#[pyclass(frozen, module = "rushlight")]
pub struct Compiled {
    inner: Arc<CompiledProgram>,
    /// The progress callback of writing.
    report: Option<Py<PyAny>>,
}

impl Compiled {
    /// Uses the program on a worker thread, which signals can interrupt.
    fn watched<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&CompiledProgram, &Progress) -> Result<T, rushlight::Error> + Send + 'static,
    ) -> PyResult<T> {
        let program = self.inner.clone();
        let done = watched::run(py, self.report.as_ref(), move |progress| work(&program, &progress))?;
        error::map(py, done)
    }
}

/// The source of an exported program.
pub enum Exported {
    File(PathBuf),
    Bytes(Bytes),
}

impl Exported {
    pub fn of(source: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(match Source::of(source)? {
            Source::Path(path) => Self::File(path),
            Source::Bytes(bytes) => Self::Bytes(Bytes::new(bytes.extract::<PyBackedBytes>()?)),
        })
    }

    /// Opens the file, or returns the bytes.
    pub fn open(self) -> Result<Bytes, rushlight::Error> {
        match self {
            Self::File(path) => rushlight::open_exported(path),
            Self::Bytes(bytes) => Ok(bytes),
        }
    }

    /// Adds the program as a method.
    pub fn method(self, compiler: Compiler, name: &str) -> Compiler {
        match self {
            Self::File(path) => compiler.method(name, path),
            Self::Bytes(bytes) => compiler.method_bytes(name, bytes),
        }
    }
}

/// Returns the inputs and the signature of an exported program, like `Module.meta`.
#[guarded]
#[pyfunction]
pub fn exported_meta<'py>(py: Python<'py>, source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let meta = error::map(py, Exported::of(source)?.open().and_then(rushlight::exported_meta))?;
    let dict = PyDict::new(py);
    let inputs = meta.inputs.iter().map(|info| value_to_python(py, info)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("inputs", inputs)?;
    let signature = meta.signature.as_ref().map(|signature| signature_to_python(py, signature));
    dict.set_item("signature", signature.transpose()?)?;
    Ok(dict)
}

/// The arguments of `rushlight.compile`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Request<'py> {
    /// Names, each with a path or bytes.
    methods: Vec<(String, Bound<'py, PyAny>)>,
    /// Methods that return constants.
    constants: Vec<(String, Vec<Bound<'py, PyAny>>)>,
    /// `BackendSpec`s, and adapters of backends in Python.
    backends: Vec<Bound<'py, PyAny>>,
    share_state: bool,
    kv_cache: String,
    plan_inputs: bool,
    plan_outputs: bool,
    alignment: u64,
    stack_traces: bool,
    debug_map: bool,
    /// Patterns of names, each with a file or none, and the maximum size of a file in bytes.
    external_weights: Option<ExternalRules>,
    quantization: Option<QuantizationRequest<'py>>,
    /// The file or folder of the tokenizer that the program carries; by default that of the language model.
    tokenizer: Option<PathBuf>,
    /// True to leave out the tokenizer of the language model.
    omits_tokenizer: bool,
    language_model: Option<LanguageModelRequest>,
}

/// A decoder that is built from its files: the arguments of `rushlight.llm.compile`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct LanguageModelRequest {
    path: PathBuf,
    max_context_len: Option<usize>,
    max_seq_len: Option<usize>,
    /// `last_logits`, `all_logits` or `hidden_states`.
    output: String,
    lora_rank: Option<usize>,
}

impl LanguageModelRequest {
    fn options(&self) -> PyResult<LanguageModelOptions> {
        let output = match self.output.as_str() {
            "hidden_states" => LanguageModelOutput::HiddenStates,
            "all_logits" => LanguageModelOutput::AllLogits,
            "last_logits" => LanguageModelOutput::LastLogits,
            other => return Err(PyValueError::new_err(format!("no output is called {other:?}"))),
        };
        let Self { max_context_len, max_seq_len, lora_rank, .. } = *self;
        Ok(LanguageModelOptions { max_context_len, max_seq_len, output, lora_rank, ..LanguageModelOptions::default() })
    }
}

/// Options of quantization: the fields of `rushlight.Quantization`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct QuantizationRequest<'py> {
    scheme: String,
    observer: String,
    weights: String,
    keep: Vec<String>,
    bias_correction: bool,
    min_snr: Option<f64>,
    embeddings: Option<u32>,
    /// Names of methods, each with the arguments of calls.
    samples: Vec<(String, Vec<Vec<Bound<'py, PyAny>>>)>,
}

impl QuantizationRequest<'_> {
    fn quantization(self, py: Python<'_>) -> PyResult<Quantization> {
        let scheme = error::map(py, self.scheme.parse().map_err(rushlight::Error::from))?;
        let observer = error::map(py, self.observer.parse().map_err(rushlight::Error::from))?;
        let rounding = error::map(py, self.weights.parse().map_err(rushlight::Error::from))?;
        let mut quantization =
            Quantization::new(scheme).observer(observer).rounding(rounding).bias_correction(self.bias_correction);
        quantization = self.keep.into_iter().fold(quantization, Quantization::keep);
        if let Some(least) = self.min_snr {
            quantization = quantization.min_snr(least);
        }
        if let Some(bits) = self.embeddings {
            quantization = quantization.embeddings(bits);
        }
        for (method, calls) in self.samples {
            let value = |call: usize, (index, argument): (usize, &Bound<'_, PyAny>)| {
                let place = format_args!("calibration of `{method}`, call {call}, input {index}");
                let read = Argument::of(argument, &mut None).map_err(|refusal| refusal.at(py, place, argument))?;
                copied(py, &read)
            };
            let call = |(call, arguments): (usize, Vec<Bound<'_, PyAny>>)| {
                arguments.iter().enumerate().map(|argument| value(call, argument)).collect::<PyResult<Vec<_>>>()
            };
            let calls = calls.into_iter().enumerate().map(call).collect::<PyResult<_>>()?;
            quantization = quantization.calibrate(method, calls);
        }
        Ok(quantization)
    }
}

/// Copies an argument.
pub fn copied(py: Python<'_>, argument: &Argument<'_>) -> PyResult<Value> {
    Ok(match error::map(py, argument.input())? {
        Input::Tensor(view) => Value::Tensor(error::map(py, rushlight::Tensor::copy_of(&view))?),
        Input::Int(v) => Value::Int(v),
        Input::Double(v) => Value::Double(v),
        Input::Bool(v) => Value::Bool(v),
        Input::String(v) => Value::String(v.to_owned()),
        Input::None | Input::TensorMut(_) => Value::None,
    })
}

type ExternalRules = (Vec<(String, Option<String>)>, Option<u64>);

/// Compiles exported programs. Each becomes a method. `report`, if given, gets the stage, the units done and the total,
/// also while the program is written.
#[guarded]
#[pyfunction]
pub fn compile(py: Python<'_>, request: Request<'_>, report: Option<Py<PyAny>>) -> PyResult<Compiled> {
    let kv_cache = error::map(py, request.kv_cache.parse())?;
    let mut compiler = Compiler::new().share_state(request.share_state).kv_cache(kv_cache);
    for (name, source) in &request.methods {
        compiler = Exported::of(source)?.method(compiler, name);
    }
    if let Some(model) = &request.language_model {
        compiler = compiler.language_model(&model.path, model.options()?);
    }
    compiler = match request.tokenizer {
        Some(path) => compiler.tokenizer(ProgramTokenizer::Of(path)),
        None if request.omits_tokenizer => compiler.tokenizer(ProgramTokenizer::Omitted),
        None => compiler,
    };
    let mut failures: Vec<Arc<Failure>> = Vec::new();
    for backend in &request.backends {
        compiler = if let Ok(spec) = backend.cast::<BackendSpec>() {
            compiler.backend(spec.get().0.clone())
        } else {
            let (backend, failure) = PythonBackend::new(backend)?;
            failures.push(failure);
            compiler.backend(Box::new(backend))
        };
    }
    if let Some(quantization) = request.quantization {
        compiler = compiler.quantize(quantization.quantization(py)?);
    }
    let options = compiler.options();
    for (name, values) in &request.constants {
        let results: PyResult<Vec<_>> = values.iter().map(|value| constant(py, name, value)).collect();
        options.constant_methods.push((name.clone(), results?));
    }
    options.emit.plan_inputs = request.plan_inputs;
    options.emit.plan_outputs = request.plan_outputs;
    options.emit.alignment = request.alignment;
    options.emit.stack_traces = request.stack_traces;
    options.emit.debug_map = request.debug_map;
    options.emit.external_weights =
        request.external_weights.map(|(rules, max_bytes)| ExternalWeights { rules, max_bytes });
    // A backend's Python code runs on the caller's thread, so that its exceptions and debugger stops are the caller's.
    let compiled = if failures.is_empty() {
        watched::run(py, report.as_ref(), |progress| compiler.progress(progress).compile())?
    } else {
        py.detach(|| compiler.compile())
    };
    if let Some(failure) = failures.iter().find_map(|failure| failure.take(py)) {
        return Err(failure);
    }
    Ok(Compiled { inner: Arc::new(error::map(py, compiled)?), report })
}

#[guarded]
#[pymethods]
impl Compiled {
    /// The bytes of the file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.watched(py, CompiledProgram::to_bytes_with)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Names and bytes of the `.ptd` files.
    fn external_data<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyBytes>)>> {
        let files = self.watched(py, |program, _| program.external_data())?;
        Ok(files.into_iter().map(|(name, bytes)| (name, PyBytes::new(py, &bytes))).collect())
    }

    /// Writes the file and returns its size in bytes.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        self.watched(py, |program, progress| program.save_with(path, progress))
    }

    /// The size of the file in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        error::map(py, self.inner.size())
    }

    /// Returns the report of the quantization as JSON.
    fn quantization(&self) -> Option<String> {
        self.inner.quantization().map(|report| describe::quantization(report).to_string())
    }

    /// Returns a warning for each operator that has a kernel neither in Rushlight nor in Python.
    fn missing_operators(&self) -> Vec<String> {
        let missing = self.inner.missing_operators().into_iter().filter(|op| !custom::is_registered(&op.name));
        missing.map(|op| op.warning(&error::register(&op))).collect()
    }

    /// Returns a dictionary for each method: its name, instruction count, planned bytes and operators.
    fn methods<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.inner.compiled().program.methods.iter().map(|plan| method(py, plan)).collect()
    }

    /// Returns a dictionary for each node that backends were shown, with its claimant or the refusals.
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.inner.compiled().report.entries.iter().map(|entry| entry_to_python(py, entry)).collect()
    }
}

fn method<'py>(py: Python<'py>, plan: &PlanModel<'_>) -> PyResult<Bound<'py, PyDict>> {
    let mut operators = BTreeMap::new();
    for instruction in &plan.instructions {
        if let InstructionModel::Kernel { operator, .. } = instruction
            && let Some(operator) = plan.operators.get(*operator as usize)
        {
            let name = match operator.overload.as_str() {
                "" => operator.name.clone(),
                overload => format!("{}.{overload}", operator.name),
            };
            *operators.entry(name).or_insert(0usize) += 1;
        }
    }
    let mut operators: Vec<_> = operators.into_iter().collect();
    operators.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    let dict = PyDict::new(py);
    dict.set_item("name", &plan.name)?;
    dict.set_item("instructions", plan.instructions.len())?;
    dict.set_item("planned_bytes", plan.buffer_sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size)))?;
    dict.set_item("operators", operators)?;
    Ok(dict)
}

/// Converts a Python value to the result of a constant method.
fn constant(py: Python<'_>, method: &str, value: &Bound<'_, PyAny>) -> PyResult<ConstantResult> {
    let place = format_args!("constant method `{method}`");
    let argument = Argument::of(value, &mut None).map_err(|refusal| refusal.at(py, place, value))?;
    let literal = match error::map(py, argument.input())? {
        Input::Tensor(view) => return error::map(py, tensor(method, &view)).map(ConstantResult::Tensor),
        Input::Int(v) => Literal::Int(v),
        Input::Double(v) => Literal::Float(v),
        Input::Bool(v) => Literal::Bool(v),
        Input::String(v) => Literal::Str(v.to_owned()),
        Input::None | Input::TensorMut(_) => Literal::None,
    };
    Ok(ConstantResult::Literal(literal))
}

fn tensor(name: &str, view: &TensorView<'_>) -> Result<Constant, rushlight::Error> {
    let copy = rushlight::Tensor::copy_of(view)?;
    let sizes: Vec<i64> = copy.shape().iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
    Ok(Constant::dense(name, TensorType::of(copy.dtype(), &sizes), copy.bytes().to_vec())?)
}
