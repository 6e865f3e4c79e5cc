//! Programs and methods.

use std::path::PathBuf;
use std::sync::{Mutex, TryLockError};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rushlight::format::bundled::{BundledProgram, BundledValue};
use rushlight::{Input, MethodInstance, MethodMeta, ScalarType, TensorInfo, TensorView, Value, ValueInfo};

use crate::array::{Argument, Kind, own, to_python};
use crate::compiler::node;
use crate::ffi::Array;
use crate::tensor::{Tensor, dtype_name};
use crate::{callback, custom, delegate, error};

/// A program whose methods are loaded when they are first used.
#[pyclass(frozen, module = "rushlight")]
pub struct Module {
    inner: Mutex<rushlight::Module>,
}

/// A method with memory and state of its own.
#[pyclass(frozen, module = "rushlight")]
pub struct Instance {
    inner: Mutex<MethodInstance>,
}

/// What loads programs: with the operators and backends that are registered.
pub fn builder() -> rushlight::ModuleBuilder {
    let builder = custom::sets().into_iter().fold(rushlight::Module::builder(), |builder, set| builder.ops(set));
    delegate::backends().into_iter().fold(builder, |builder, backend| builder.backend(backend))
}

fn poisoned<T>(_: T) -> PyErr {
    PyRuntimeError::new_err("an earlier call failed in the middle; load the model again")
}

/// Uses a model without the interpreter's lock: whoever has the model may wait for that one, in an
/// operator or a delegate in Python.
fn locked<T: Send, R: Send>(py: Python<'_>, model: &Mutex<T>, act: impl Send + FnOnce(&mut T) -> R) -> PyResult<R> {
    py.detach(|| {
        // A function in Python that waited for the model that it is part of would wait for ever.
        let guard = if callback::is_running() { model.try_lock() } else { model.lock().map_err(Into::into) };
        match guard {
            Ok(mut model) => Ok(act(&mut model)),
            Err(TryLockError::Poisoned(error)) => Err(poisoned(error)),
            Err(TryLockError::WouldBlock) => {
                Err(PyRuntimeError::new_err("the model is in use while it calls a Python function"))
            }
        }
    })
}

/// Reads the arguments, runs without the interpreter's lock, and gives the results back as what came in.
fn call<'py, T: Send>(
    py: Python<'py>,
    model: &Mutex<T>,
    arguments: &[Bound<'py, PyAny>],
    run: impl Send + FnOnce(&mut T, &[Input<'_>]) -> Result<Vec<Value>, rushlight::Error>,
) -> PyResult<Bound<'py, PyList>> {
    let mut kind = None;
    let mut borrowed = Vec::with_capacity(arguments.len());
    for argument in arguments {
        borrowed.push(Argument::of(argument, &mut kind)?);
    }
    let mut inputs = Vec::with_capacity(borrowed.len());
    for argument in &borrowed {
        inputs.push(error::map(py, argument.input())?);
    }
    let values =
        locked(py, model, |model| run(model, &inputs))?.map_err(|failure| callback::explained(py, &failure))?;
    let kind = kind.unwrap_or(Kind::Own);
    let outputs = PyList::empty(py);
    for value in values {
        outputs.append(to_python(py, value, &kind)?)?;
    }
    Ok(outputs)
}

#[pymethods]
impl Module {
    /// From a path or from bytes, with any number of `.ptd` files (paths or bytes).
    #[new]
    #[pyo3(signature = (source, data = None, threads = None, lower = "auto", cache = None))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        data: Option<Vec<Bound<'_, PyAny>>>,
        threads: Option<usize>,
        lower: &str,
        cache: Option<PathBuf>,
    ) -> PyResult<Self> {
        let mut builder = builder().lower(error::map(py, rushlight::Lower::from_name(lower))?);
        if let Some(threads) = threads {
            builder = builder.threads(threads);
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
        Ok(Self { inner: Mutex::new(error::map(py, module)?) })
    }

    fn method_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        locked(py, &self.inner, |module| module.method_names().map(str::to_owned).collect())
    }

    /// A method's description as nested dictionaries.
    fn meta<'py>(&self, py: Python<'py>, method: &str) -> PyResult<Bound<'py, PyDict>> {
        let meta = locked(py, &self.inner, |module| module.meta(method))?;
        meta_to_python(py, &error::map(py, meta)?)
    }

    /// For each node of a lowered program who took it; otherwise the reason why it was not lowered. Then what the cache did.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<(Vec<Bound<'py, PyDict>>, Option<String>, Option<String>)> {
        let (report, cache) = locked(py, &self.inner, |module| {
            let report = module.report().map(|report| report.entries.clone()).map_err(ToString::to_string);
            (report, module.cache_use().map(ToString::to_string))
        })?;
        match report {
            Ok(entries) => Ok((entries.iter().map(|entry| node(py, entry)).collect::<PyResult<_>>()?, None, cache)),
            Err(reason) => Ok((Vec::new(), Some(reason), cache)),
        }
    }

    /// Runs a method of the module.
    #[pyo3(signature = (method, *inputs))]
    fn run<'py>(&self, py: Python<'py>, method: &str, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        let arguments: Vec<_> = inputs.iter().collect();
        call(py, &self.inner, &arguments, |module, inputs| module.run(method, inputs))
    }

    /// As `run`, with the inputs in a list.
    fn run_list<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        inputs: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        call(py, &self.inner, &inputs, |module, inputs| module.run(method, inputs))
    }

    /// Loads a method with memory of its own.
    fn load_method(&self, py: Python<'_>, method: &str) -> PyResult<Instance> {
        let instance = locked(py, &self.inner, |module| module.instantiate(method))?;
        let instance = instance.map_err(|failure| callback::explained(py, &failure))?;
        Ok(Instance { inner: Mutex::new(instance) })
    }

    /// A copy of a parameter or buffer by its name in the exported module.
    fn attribute<'py>(&self, py: Python<'py>, method: &str, name: &str) -> PyResult<Bound<'py, Tensor>> {
        let result = locked(py, &self.inner, |module| module.attribute(method, name))?;
        own(py, Ok(result.map_err(|failure| callback::explained(py, &failure))?))
    }
}

#[pymethods]
impl Instance {
    /// Runs the method.
    fn call<'py>(&self, py: Python<'py>, inputs: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyList>> {
        call(py, &self.inner, &inputs, |instance, inputs| instance.run(inputs))
    }

    /// A copy of a parameter or buffer by its name in the exported module.
    fn attribute<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, Tensor>> {
        let result = locked(py, &self.inner, |instance| instance.attribute(name))?;
        own(py, result)
    }
}

/// Inputs and expected outputs that a bundled program carries, and the program in it.
#[pyclass(frozen, module = "rushlight")]
pub struct Bundle {
    bytes: Vec<u8>,
}

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

/// Where a program comes from.
pub enum Source<'py> {
    Path(PathBuf),
    Bytes(Bound<'py, PyAny>),
}

impl<'py> Source<'py> {
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if object.cast::<PyString>().is_ok() || object.hasattr("__fspath__")? {
            return Ok(Self::Path(object.extract()?));
        }
        Ok(Self::Bytes(object.clone()))
    }
}

/// The bytes of an object with a flat buffer.
pub struct Bytes(Array);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.view().map_or(&[], |view| view.bytes())
    }
}

pub fn bytes_of(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let array = Array::from_buffer(object).map_err(|reason| {
        let error = PyTypeError::new_err("expected a path, bytes, or another object with a buffer");
        error.set_cause(py, Some(reason));
        error
    })?;
    if error::map(py, array.view())?.dtype() != ScalarType::Byte {
        return Err(PyTypeError::new_err("expected a buffer of bytes"));
    }
    Ok(Bytes(array))
}

fn meta_to_python<'py>(py: Python<'py>, meta: &MethodMeta) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &meta.name)?;
    let values = |infos: &[ValueInfo]| -> PyResult<Vec<Bound<'py, PyDict>>> {
        infos.iter().map(|info| value_to_python(py, info)).collect()
    };
    dict.set_item("inputs", values(&meta.inputs)?)?;
    dict.set_item("outputs", values(&meta.outputs)?)?;
    let attributes: PyResult<Vec<_>> = meta.attributes.iter().map(|info| info_to_python(py, info)).collect();
    dict.set_item("attributes", attributes?)?;
    dict.set_item("planned_buffers", &meta.planned_buffers)?;
    dict.set_item("operators", meta.operators.iter().map(|op| (op.name.as_str(), op.calls)).collect::<Vec<_>>())?;
    dict.set_item("backends", &meta.backends)?;
    dict.set_item("num_instructions", meta.num_instructions)?;
    Ok(dict)
}

fn value_to_python<'py>(py: Python<'py>, info: &ValueInfo) -> PyResult<Bound<'py, PyDict>> {
    let (kind, value) = match info {
        ValueInfo::Tensor(info) => return info_to_python(py, info),
        ValueInfo::Int(v) => ("int", v.into_pyobject(py)?.into_any()),
        ValueInfo::Double(v) => ("float", v.into_pyobject(py)?.into_any()),
        ValueInfo::Bool(v) => ("bool", v.into_pyobject(py)?.to_owned().into_any()),
        ValueInfo::String(v) => ("str", v.into_pyobject(py)?.into_any()),
        ValueInfo::None => ("none", py.None().into_bound(py)),
        ValueInfo::List => ("list", py.None().into_bound(py)),
    };
    let dict = PyDict::new(py);
    dict.set_item("kind", kind)?;
    dict.set_item("value", value)?;
    Ok(dict)
}

fn info_to_python<'py>(py: Python<'py>, info: &TensorInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("kind", "tensor")?;
    dict.set_item("dtype", dtype_name(info.dtype))?;
    dict.set_item("dtype_code", info.dtype.code())?;
    dict.set_item("sizes", PyTuple::new(py, &info.sizes)?)?;
    dict.set_item("dim_order", PyTuple::new(py, &info.dim_order)?)?;
    dict.set_item("is_dynamic", info.is_dynamic)?;
    dict.set_item("is_memory_planned", info.is_memory_planned)?;
    dict.set_item("nbytes", info.nbytes)?;
    dict.set_item("name", &info.name)?;
    Ok(dict)
}
