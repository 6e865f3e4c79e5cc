//! Programs and methods.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyList, PyTuple};
use rushlight::{BatchCall, Code, Input, Progress, TensorView, Value};
use rushlight_format::bundled::{BundledProgram, BundledValue};
use rushlight_python_macros::guarded;

use crate::array::own;
use crate::call::{Cancellation, Given, call, call_into};
use crate::choice::BackendSpec;
use crate::instances::Instances;
use crate::meta::meta_to_python;
use crate::report::entry_to_python;
use crate::signals::{Signals, WhileLowering};
use crate::source::{Source, bytes_of};
use crate::tensor::Tensor;
use crate::turns::Turns;
use crate::{callback, custom, delegate, error};

/// A program whose methods are loaded when they are first used.
#[pyclass(frozen, module = "rushlight")]
pub struct Module {
    inner: Turns<rushlight::Module>,
    /// Counts of the registered operators and backends that the module knows.
    operators: AtomicUsize,
    backends: AtomicUsize,
}

/// For each node who took it, or the reason why the program was not lowered, and what the cache did.
type Report<'py> = (Vec<Bound<'py, PyDict>>, Option<String>, Option<String>);

/// Returns a builder with the registered operators and backends, the latest first.
pub fn builder(py: Python<'_>) -> rushlight::ModuleBuilder {
    let sets = custom::sets_after(0);
    let builder = sets.into_iter().rev().fold(rushlight::Module::builder(), |builder, set| builder.ops(set));
    delegate::backends_after(py, 0).into_iter().fold(builder, |builder, backend| builder.backend(backend))
}

/// An input for messages.
fn input_label(module: &rushlight::Module, method: &str, index: usize) -> String {
    module.meta(method).map_or_else(|_| format!("input {index}"), |meta| meta.input_label(index))
}

/// Runs a method for new sessions, among which the inputs are divided evenly. Returns the outputs of all.
fn run_sessions(
    module: &mut rushlight::Module,
    method: &str,
    count: usize,
    inputs: &[Input<'_>],
) -> Result<Vec<Value>, rushlight::Error> {
    let mut sessions = (0..count).map(|_| module.session()).collect::<Result<Vec<_>, _>>()?;
    let each = inputs.len().checked_div(count).unwrap_or(0);
    let mut rest = inputs;
    let mut calls = Vec::with_capacity(count);
    for session in &mut sessions {
        let (own, others) = rest.split_at(each.min(rest.len()));
        calls.push(BatchCall { session, inputs: own });
        rest = others;
    }
    Ok(module.batch(method)?.run(module, &mut calls)?.into_iter().flatten().collect())
}

impl Module {
    /// Gives the module the operators and backends that were registered since its last use, and calls `act` with it.
    fn with<R: Send>(&self, py: Python<'_>, act: impl Send + FnOnce(&mut rushlight::Module) -> R) -> PyResult<R> {
        self.learn(py)?;
        self.inner.with(py, act)
    }

    /// Calls `act` with the module, the arguments as inputs, and the signals that interrupt runs.
    pub fn act<R: Send>(
        &self,
        py: Python<'_>,
        method: &str,
        arguments: &[Bound<'_, PyAny>],
        act: impl Send + FnOnce(&mut rushlight::Module, &[Input<'_>], &mut Signals) -> Result<R, rushlight::Error>,
    ) -> PyResult<R> {
        self.learn(py)?;
        let label = |module: &mut rushlight::Module, index| input_label(module, method, index);
        let mut result = None;
        call(py, &self.inner, &Given::inputs(arguments), label, |module, inputs, signals| {
            result = Some(act(module, inputs, signals)?);
            Ok(Vec::new())
        })?;
        result.ok_or_else(|| PyRuntimeError::new_err("the call ended without a result"))
    }

    /// Tells the module of operators and backends that were registered since it was last used.
    fn learn(&self, py: Python<'_>) -> PyResult<()> {
        let (operators, backends) = (self.operators.load(Ordering::Relaxed), self.backends.load(Ordering::Relaxed));
        let (all_operators, all_backends) = (custom::count(), delegate::count());
        if operators >= all_operators && backends >= all_backends {
            return Ok(());
        }
        let sets = custom::sets_after(operators);
        let new_backends = delegate::backends_after(py, backends);
        self.inner.with(py, |module| {
            sets.into_iter().for_each(|set| module.add_ops(set));
            new_backends.into_iter().for_each(|backend| module.add_backend(backend));
        })?;
        self.operators.fetch_max(all_operators, Ordering::Relaxed);
        self.backends.fetch_max(all_backends, Ordering::Relaxed);
        Ok(())
    }
}

/// Selects the backends that a portable program is lowered to when it is loaded.
#[derive(FromPyObject)]
pub enum Lowering<'py> {
    /// `auto`, `off`, or a backend with its options.
    Text(PyBackedStr),
    To(Vec<Bound<'py, BackendSpec>>),
}

/// Loads a program from a path or from bytes, with any number of `.ptd` files (paths or bytes).
#[expect(clippy::too_many_arguments, reason = "they are keyword arguments of `rushlight.load`")]
pub fn load(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    data: Option<Vec<Bound<'_, PyAny>>>,
    threads: Option<usize>,
    lower: Option<Lowering<'_>>,
    cache: Option<PathBuf>,
    memory_limit: Option<usize>,
    time_limit: Option<f64>,
) -> PyResult<rushlight::Module> {
    let mut builder = match lower {
        None => builder(py),
        Some(Lowering::Text(text)) => builder(py).lower(&*text),
        Some(Lowering::To(specs)) => {
            builder(py).lower(rushlight::Lower::To(specs.iter().map(|spec| spec.get().0.clone()).collect()))
        }
    };
    builder = builder.progress(Progress::new(Arc::new(WhileLowering)));
    if let Some(threads) = threads {
        builder = builder.threads(threads);
    }
    if let Some(bytes) = memory_limit {
        builder = builder.memory_limit(bytes);
    }
    if let Some(seconds) = time_limit {
        let limit = Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        builder = builder.time_limit(limit);
    }
    if let Some(folder) = cache {
        builder = builder.cache(folder);
    }
    for data in data.into_iter().flatten() {
        builder = match Source::of(&data)? {
            Source::Path(path) => builder.external_data(path),
            Source::Bytes(bytes) => error::map(py, builder.external_data_bytes(bytes_of(py, &bytes)?.as_ref()))?,
        };
    }
    let module = match Source::of(source)? {
        Source::Path(path) => builder.load(path),
        Source::Bytes(bytes) => builder.load_bytes(bytes_of(py, &bytes)?.as_ref()),
    };
    error::map(py, module)
}

#[guarded]
#[pymethods]
impl Module {
    /// From a path or from bytes, with any number of `.ptd` files (paths or bytes).
    #[new]
    #[pyo3(signature = (
        source, data = None, threads = None, lower = None, cache = None, memory_limit = None, time_limit = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments of `rushlight.load`")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        data: Option<Vec<Bound<'_, PyAny>>>,
        threads: Option<usize>,
        lower: Option<Lowering<'_>>,
        cache: Option<PathBuf>,
        memory_limit: Option<usize>,
        time_limit: Option<f64>,
    ) -> PyResult<Self> {
        let (operators, backends) = (AtomicUsize::new(custom::count()), AtomicUsize::new(delegate::count()));
        let module = load(py, source, data, threads, lower, cache, memory_limit, time_limit)?;
        Ok(Self { inner: Turns::new(module), operators, backends })
    }

    fn method_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.inner.with(py, |module| module.method_names().map(str::to_owned).collect())
    }

    /// A method's description as nested dictionaries.
    fn meta<'py>(&self, py: Python<'py>, method: &str) -> PyResult<Bound<'py, PyDict>> {
        let meta = self.inner.with(py, |module| module.meta(method))?;
        meta_to_python(py, &error::map(py, meta)?)
    }

    /// The report of a lowered program.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Report<'py>> {
        callback::forget();
        let (report, cache) = self.with(py, |module| {
            let report = module.report().map(|report| report.entries.clone()).map_err(Clone::clone);
            // A cancelled lowering would begin again.
            let cache = if report.is_ok() { module.cache_use() } else { None };
            (report, cache.map(ToString::to_string))
        })?;
        match report {
            Ok(entries) => {
                Ok((entries.iter().map(|entry| entry_to_python(py, entry)).collect::<PyResult<_>>()?, None, cache))
            }
            // It was cancelled, which is no reason.
            Err(error) if error.code() == Code::InvalidState => Err(callback::explained(py, &error)),
            Err(reason) => Ok((Vec::new(), Some(reason.to_string()), cache)),
        }
    }

    /// Runs a method of the module.
    #[pyo3(signature = (method, *inputs))]
    fn run<'py>(&self, py: Python<'py>, method: &str, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        self.run_list(py, method, inputs.iter().collect(), None)
    }

    /// As `run`, with the inputs in a list.
    #[pyo3(signature = (method, inputs, cancellation = None))]
    fn run_list<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        inputs: Vec<Bound<'py, PyAny>>,
        cancellation: Option<&Cancellation>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.learn(py)?;
        let label = |module: &mut rushlight::Module, index| input_label(module, method, index);
        let given = Given { inputs: &inputs, outputs: &[], cancellation };
        call(py, &self.inner, &given, label, |module, inputs, signals| {
            module.call(method).inputs(inputs).tracer(signals).run()
        })
    }

    /// As `run_list`, and writes the outputs to arrays. None stands for an output that is not written.
    #[pyo3(signature = (method, inputs, outputs, cancellation = None))]
    fn run_into<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        inputs: Vec<Bound<'py, PyAny>>,
        outputs: Vec<Bound<'py, PyAny>>,
        cancellation: Option<&Cancellation>,
    ) -> PyResult<()> {
        self.learn(py)?;
        let label = |module: &mut rushlight::Module, index| input_label(module, method, index);
        let given = Given { inputs: &inputs, outputs: &outputs, cancellation };
        call_into(py, &self.inner, &given, label, |module, inputs, outputs, signals| {
            module.call(method).inputs(inputs).tracer(signals).run_into(outputs)
        })
    }

    /// Runs a method for several sessions at once, each with a list of as many inputs, and returns the outputs of all in one
    /// list. It is for tests: the sessions are new, and end with the call.
    fn run_batch<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        calls: Vec<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let each = calls.first().map_or(0, Vec::len);
        if calls.iter().any(|inputs| inputs.len() != each) {
            return Err(PyValueError::new_err("the calls of a batch have different numbers of inputs"));
        }
        let (sessions, inputs) = (calls.len(), calls.into_iter().flatten().collect::<Vec<_>>());
        self.learn(py)?;
        let label = |module: &mut rushlight::Module, index| input_label(module, method, index % each.max(1));
        let given = Given::inputs(&inputs);
        call(py, &self.inner, &given, label, |module, inputs, _| run_sessions(module, method, sessions, inputs))
    }

    /// Loads a method with memory of its own, `count` times.
    #[pyo3(signature = (method, count = 1))]
    fn load_method(&self, py: Python<'_>, method: &str, count: usize) -> PyResult<Instances> {
        callback::forget();
        let loaded = self.with(py, |module| {
            let meta = module.meta(method)?;
            let instances = (0..count).map(|_| module.instantiate(method)).collect::<Result<Vec<_>, _>>()?;
            Ok((instances, meta))
        })?;
        let (instances, meta) = loaded.map_err(|failure: rushlight::Error| callback::explained(py, &failure))?;
        Ok(Instances::new(instances, meta))
    }

    /// A copy of a parameter or buffer by its name in the exported module.
    fn attribute<'py>(&self, py: Python<'py>, method: &str, name: &str) -> PyResult<Bound<'py, Tensor>> {
        callback::forget();
        let result = self.with(py, |module| module.attribute(method, name))?;
        own(py, Ok(result.map_err(|failure| callback::explained(py, &failure))?))
    }
}

/// Inputs and expected outputs that a bundled program carries, and the program in it.
#[pyclass(frozen, module = "rushlight")]
pub struct Bundle {
    bytes: Vec<u8>,
}

#[guarded]
#[pymethods]
impl Bundle {
    #[new]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = bytes_of(py, source)?.as_ref().to_vec();
        let bundle = Self { bytes };
        bundle.parse()?;
        Ok(bundle)
    }

    /// The bytes of the `.pte` file.
    fn program(&self) -> PyResult<&[u8]> {
        Ok(self.parse()?.program())
    }

    /// Inputs of a test case of a method.
    fn inputs<'py>(&self, py: Python<'py>, method: &str, index: usize) -> PyResult<Bound<'py, PyList>> {
        self.values(py, method, index, false)
    }

    /// Expected outputs of a test case of a method.
    fn expected_outputs<'py>(&self, py: Python<'py>, method: &str, index: usize) -> PyResult<Bound<'py, PyList>> {
        self.values(py, method, index, true)
    }
}

impl Bundle {
    fn parse(&self) -> PyResult<BundledProgram<'_>> {
        BundledProgram::parse(&self.bytes).map_err(|e| PyRuntimeError::new_err(format!("not a bundled program: {e}")))
    }

    fn values<'py>(&self, py: Python<'py>, method: &str, index: usize, expected: bool) -> PyResult<Bound<'py, PyList>> {
        let bundle = self.parse()?;
        let case = bundle.suite(method).and_then(|suite| suite.case(index));
        let text = || format!("the bundled program has no test case {index} of `{method}`");
        let case = case.ok_or_else(|| PyRuntimeError::new_err(text()))?;
        let list = PyList::empty(py);
        let values: Vec<BundledValue<'_>> =
            if expected { case.expected_outputs().collect() } else { case.inputs().collect() };
        for value in values {
            list.append(match value {
                BundledValue::Tensor { layout, data } => {
                    let shape: Vec<usize> = layout.sizes.iter().map(|v| v.max(0) as usize).collect();
                    let mut strides = vec![1usize; shape.len()];
                    let mut stride = 1usize;
                    for &dim in layout.dim_order.iter().rev() {
                        strides[dim as usize] = stride;
                        stride = stride.saturating_mul(shape[dim as usize]);
                    }
                    let view = TensorView::strided(layout.scalar_type, &shape, &strides, data);
                    let made = view.map_err(Into::into).and_then(|view| rushlight::Tensor::copy_of(&view));
                    own(py, made)?.into_any()
                }
                BundledValue::Int(v) => v.into_pyobject(py)?.into_any(),
                BundledValue::Double(v) => v.into_pyobject(py)?.into_any(),
                BundledValue::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
            })?;
        }
        Ok(list)
    }
}
