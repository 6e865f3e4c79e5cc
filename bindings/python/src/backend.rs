//! The ahead-of-time half of backends that are written in Python.

use std::sync::{Arc, Mutex};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyComplex, PyDict, PyList, PyTuple};
use rushlight::compiler::partition::{Backend, Compiled, Offer, OptionSpec, OptionValue, Part, Payload, set_option};
use rushlight::graph::text::Detail;
use rushlight::graph::{Arg, Constant, Def, Expr, Graph, Input, Layout, NodeId, Type, ValueId};
use rushlight::graph::{Bytes, Error, ErrorKind};
use rushlight_python_macros::guarded;

use crate::array::own;
use crate::callback;
use crate::choice::{self, Given};
use crate::ffi;
use crate::interpreter::attached;
use crate::tensor::Tensor;
use crate::turns::locked;

/// A backend in Python, for one compilation.
#[derive(Debug)]
pub struct PythonBackend {
    name: String,
    /// `rushlight._backend.Adapter`, which checks the results of the user's object.
    adapter: Py<PyAny>,
    options: &'static [OptionSpec],
    failure: Arc<Failure>,
}

/// The first exception that a backend raised. It is kept here because offers cannot fail.
#[derive(Debug, Default)]
pub struct Failure(Mutex<Option<(Error, PyErr)>>);

impl Failure {
    /// Takes the exception, if there was one: a `rushlight.Error` with the place, whose cause is the backend's
    /// exception.
    pub fn take(&self, py: Python<'_>) -> Option<PyErr> {
        let taken = locked(&self.0).take();
        let (error, cause) = taken?;
        Some(callback::caused(py, crate::error::to_python(py, &error.into()), cause))
    }

    fn is_set(&self) -> bool {
        locked(&self.0).is_some()
    }

    /// Keeps an exception, if it is the first.
    fn keep(&self, error: Error, cause: PyErr) {
        let mut kept = Some((error, cause));
        {
            let mut failure = locked(&self.0);
            if failure.is_none() {
                *failure = kept.take();
            }
        }
        // Dropped after unlocking, because dropping an exception may run Python code.
        drop(kept);
    }
}

impl PythonBackend {
    /// Returns the backend of an adapter, and the place for exceptions of its Python code.
    pub fn new(adapter: &Bound<'_, PyAny>) -> PyResult<(Self, Arc<Failure>)> {
        let failure = Arc::<Failure>::default();
        let name = adapter.getattr("name")?.extract()?;
        let options = choice::declared(adapter.getattr("options")?.extract()?);
        Ok((Self { name, adapter: adapter.clone().unbind(), options, failure: failure.clone() }, failure))
    }

    /// Returns the error of a failed call of the user's code, and keeps it.
    fn fail(&self, py: Python<'_>, function: &str, cause: PyErr, locate: impl FnOnce(Error) -> Error) -> Error {
        let text = format!("`{function}` of the backend `{}` failed: {}", self.name, cause.value(py));
        let error = locate(Error::new(ErrorKind::Backend, text));
        self.failure.keep(error.clone(), cause);
        error
    }
}

impl Backend for PythonBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> Result<(), Error> {
        attached(|py| {
            let set = method(self.adapter.bind(py), "set_option", (name, Given::from(value)));
            set.map(drop).map_err(|cause| self.fail(py, "set_option", cause, |error| error))
        })
    }

    fn offer(&self, graph: &Graph, node: NodeId) -> Offer {
        if self.failure.is_set() {
            return Offer::Leave("the backend failed before".into());
        }
        let reason = attached(|py| -> Result<Option<String>, Error> {
            let objects = Objects::of(graph, self.adapter.bind(py));
            let offered = objects.node(node).and_then(|node| method(self.adapter.bind(py), "partition", (node,)));
            let reason = offered.and_then(|reason| reason.extract());
            reason.map_err(|cause| self.fail(py, "partition", cause, |error| graph.locate(error, node)))
        });
        match reason {
            Ok(None) => Offer::Take,
            Ok(Some(reason)) => Offer::Leave(reason),
            Err(error) => Offer::Leave(error.message().into()),
        }
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        let graph = part.graph()?;
        let (text, _) = part.model.to_text(Detail::Review)?;
        attached(|py| {
            let adapter = self.adapter.bind(py);
            let payload = Objects::of(graph, adapter).part(part, &text);
            let payload = payload.and_then(|part| method(adapter, "preprocess", (part,))).and_then(payload_of);
            payload.map(Compiled::from).map_err(|cause| self.fail(py, "preprocess", cause, |error| error))
        })
    }
}

/// Sets the options of a backend in Python. Options that are not given get their defaults.
#[guarded]
#[pyfunction]
pub fn set_options(py: Python<'_>, adapter: &Bound<'_, PyAny>, given: Vec<(String, Given)>) -> PyResult<()> {
    let (mut backend, failure) = PythonBackend::new(adapter)?;
    let others = backend.options().iter().filter(|spec| given.iter().all(|(name, _)| name != spec.name));
    let defaults: Vec<_> = others.map(|spec| (spec.name, spec.default)).collect();
    let given = given.iter().map(|(name, given)| (name.as_str(), given.value()));
    for (name, value) in given.chain(defaults) {
        let set = set_option(&mut backend, name, value);
        if let Some(failure) = failure.take(py) {
            return Err(failure);
        }
        let set = set.map_err(|error| error.at(format!("backend `{}`", backend.name())));
        crate::error::map(py, set.map_err(rushlight::Error::from))?;
    }
    Ok(())
}

/// Values that convert to a tuple of arguments.
trait Arguments<'py>: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr> {}

impl<'py, T> Arguments<'py> for T where
    T: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>
{
}

/// Calls a method of an object.
fn method<'py>(object: &Bound<'py, PyAny>, name: &str, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
    let function = object.getattr(name)?;
    ffi::call(&function, &arguments.into_pyobject(object.py())?, None)
}

type Blobs = Vec<(String, PyBackedBytes)>;

fn payload_of(payload: Bound<'_, PyAny>) -> PyResult<Payload> {
    let (data, specs, named): (PyBackedBytes, Blobs, Blobs) = payload.extract()?;
    Ok(Payload {
        data: Bytes::new(data),
        compile_specs: specs.into_iter().map(|(key, value)| (key, value.to_vec())).collect(),
        named_data: named.into_iter().map(|(key, value)| (key, Bytes::new(value).into())).collect(),
        precisions: Vec::new(),
    })
}

/// The constants of a part, read one by one.
#[pyclass(frozen, module = "rushlight")]
pub struct Constants {
    constants: Vec<Constant>,
}

#[guarded]
#[pymethods]
impl Constants {
    /// A copy of a constant.
    fn read<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, Tensor>> {
        let constant = self.constants.get(index).ok_or_else(|| PyIndexError::new_err(index))?;
        let read = py.detach(|| -> Result<rushlight::Tensor, rushlight::Error> {
            rushlight::Tensor::from_bytes(constant.ty.dtype, &constant.sizes()?, &constant.read()?)
        });
        own(py, read)
    }
}

/// Makes the Python objects for a graph.
struct Objects<'a, 'py> {
    graph: &'a Graph,
    adapter: &'a Bound<'py, PyAny>,
}

impl<'a, 'py> Objects<'a, 'py> {
    fn of(graph: &'a Graph, adapter: &'a Bound<'py, PyAny>) -> Self {
        Self { graph, adapter }
    }

    fn make(&self, class: &str, fields: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
        method(self.adapter, class, fields)
    }

    fn part(&self, part: &Part, text: &str) -> PyResult<Bound<'py, PyAny>> {
        let (graph, py) = (self.graph, self.adapter.py());
        let mut inputs = Vec::new();
        for input in &graph.inputs {
            inputs.push(match input {
                Input::Value(value) => self.value(*value)?,
                Input::Literal(literal) => self.arg(literal)?,
            });
        }
        let outputs: Vec<_> = graph.outputs.iter().map(|output| self.arg(output)).collect::<PyResult<_>>()?;
        let nodes = &graph.blocks[graph.body].nodes;
        let nodes: Vec<_> = nodes.iter().map(|node| self.node(*node)).collect::<PyResult<_>>()?;
        let (mut values, mut constants) = (Vec::new(), Vec::new());
        for (id, value) in graph.values.iter() {
            if let Def::Constant(constant) = value.def {
                values.push(self.value(id)?);
                constants.push(part.model.constants[constant].clone());
            }
        }
        let constants = Bound::new(py, Constants { constants })?;
        self.make("part", (&part.method, inputs, outputs, nodes, values, constants, text))
    }

    fn node(&self, id: NodeId) -> PyResult<Bound<'py, PyAny>> {
        let (graph, py) = (self.graph, self.adapter.py());
        let node = &graph.nodes[id];
        let origin = &graph.origins[node.origin];
        let args = PyDict::new(py);
        let mut used = Vec::new();
        for (index, arg) in node.args.iter().enumerate() {
            arg.for_each_value(&mut |value| used.push(value));
            match node.op.schema().and_then(|schema| schema.params.get(index)) {
                Some(param) => args.set_item(&param.name, self.arg(arg)?)?,
                None => args.set_item(index, self.arg(arg)?)?,
            }
        }
        let values = |ids: &[ValueId]| ids.iter().map(|id| self.value(*id)).collect::<PyResult<Vec<_>>>();
        let (inputs, outputs) = (values(&used)?, values(&node.results)?);
        self.make("node", (&origin.node, node.op.name(), args, inputs, outputs, &origin.module, origin.line()))
    }

    fn value(&self, id: ValueId) -> PyResult<Bound<'py, PyAny>> {
        let (value, py) = (&self.graph.values[id], self.adapter.py());
        let number = || (py.None().into_bound(py), py.None().into_bound(py));
        let (dtype, (shape, dim_order)) = match &value.ty {
            Type::Tensor(ty) => {
                let shape: Vec<_> = ty.shape.iter().map(|size| self.size(size)).collect::<PyResult<_>>()?;
                let dim_order = PyTuple::new(py, &ty.dim_order)?;
                (ty.dtype.long_name(), (PyTuple::new(py, shape)?.into_any(), dim_order.into_any()))
            }
            Type::Int(_) => ("int", number()),
            Type::Float => ("float", number()),
            Type::Bool => ("bool", number()),
        };
        let is_constant = matches!(value.def, Def::Constant(_));
        self.make("value", (&value.name, dtype, shape, dim_order, is_constant, id.index()))
    }

    /// Returns an int, or a `SymInt` if the size is known only at run time.
    fn size(&self, size: &Expr) -> PyResult<Bound<'py, PyAny>> {
        if let Some(size) = size.as_int() {
            return size.into_bound_py_any(self.adapter.py());
        }
        let (min, max) = size.range(&self.graph.symbols);
        self.make("size", (size.display(&self.graph.symbols).to_string(), min, max))
    }

    fn arg(&self, arg: &Arg) -> PyResult<Bound<'py, PyAny>> {
        let py = self.adapter.py();
        match arg {
            Arg::None => Ok(py.None().into_bound(py)),
            Arg::Value(value) => self.value(*value),
            Arg::Int(size) => self.size(size),
            Arg::Float(v) => v.into_bound_py_any(py),
            Arg::Bool(v) => v.into_bound_py_any(py),
            Arg::Str(text) | Arg::Device(text) => text.into_bound_py_any(py),
            Arg::Complex(real, imaginary) => Ok(PyComplex::from_doubles(py, *real, *imaginary).into_any()),
            Arg::DType(dtype) => dtype.long_name().into_bound_py_any(py),
            Arg::Layout(Layout::Strided) => "strided".into_bound_py_any(py),
            Arg::Layout(Layout::Sparse) => "sparse".into_bound_py_any(py),
            Arg::MemoryFormat(format) => format.to_string().into_bound_py_any(py),
            Arg::List(items) => {
                let items: Vec<_> = items.iter().map(|item| self.arg(item)).collect::<PyResult<_>>()?;
                Ok(PyList::new(py, items)?.into_any())
            }
            Arg::Block(_) => "block".into_bound_py_any(py),
        }
    }
}
