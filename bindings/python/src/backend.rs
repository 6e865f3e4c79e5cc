//! The ahead-of-time half of backends that are written in Python.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use rushlight::compiler::partition::{
    Backend, Canonical, Claim, Claims, Compiled, OptionSpec, OptionValue, Part, Payload, set_option,
};
use rushlight::graph::text::Detail;
use rushlight::graph::{Bytes, Error, ErrorKind, NodeId, State};
use rushlight_python_macros::guarded;

use crate::callback;
use crate::choice::{self, Given};
use crate::graph::{Objects, method};
use crate::interpreter::attached;
use crate::turns::locked;

/// A backend in Python, for one compilation.
#[derive(Debug)]
pub struct PythonBackend {
    name: String,
    /// `rushlight._backend.Adapter`, which checks the results of the user's object.
    adapter: Py<PyAny>,
    options: &'static [OptionSpec],
    reads_metadata: bool,
    /// The names of the user's functions that claim nodes and compile parts.
    functions: (String, String),
    failure: Arc<Failure>,
}

/// The first exception that a backend raised. It is kept here because some functions of backends cannot fail.
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
        let reads_metadata = adapter.getattr("reads_metadata")?.extract()?;
        let functions = adapter.getattr("functions")?.extract()?;
        let adapter = adapter.clone().unbind();
        Ok((Self { name, adapter, options, reads_metadata, functions, failure: failure.clone() }, failure))
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

    fn reads_metadata(&self) -> bool {
        self.reads_metadata
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        if self.failure.is_set() {
            return Err(Error::new(ErrorKind::Backend, format!("the backend `{}` failed before", self.name)));
        }
        attached(|py| {
            let adapter = self.adapter.bind(py);
            let claimed = Objects::of_method(canonical, adapter).and_then(|shown| method(adapter, "claim", (shown,)));
            claimed.and_then(|claimed| claimed.extract::<Claimed>()).map(|claimed| claimed.add_to(claims)).map_err(
                |cause| {
                    let asked = adapter.getattr("asked").and_then(|asked| asked.extract::<Option<u32>>());
                    let locate = |error| match asked {
                        Ok(Some(node)) if canonical.graph.nodes.get(NodeId::new(node)).is_some() => {
                            canonical.graph.locate(error, NodeId::new(node))
                        }
                        _ => error,
                    };
                    self.fail(py, &self.functions.0, cause, locate)
                },
            )
        })
    }

    fn owns_state(&self, state: &State) -> bool {
        attached(|py| {
            let adapter = self.adapter.bind(py);
            let owns = Objects::of_state(state, adapter).and_then(|state| method(adapter, "owns_state", (state,)));
            owns.and_then(|owns| owns.extract()).unwrap_or_else(|cause| {
                self.fail(py, "owns_state", cause, |error| error);
                false
            })
        })
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        let (text, _) = part.model.to_text(Detail::Review)?;
        attached(|py| {
            let adapter = self.adapter.bind(py);
            let payload = Objects::of_part(part, &text, adapter);
            let payload = payload.and_then(|part| method(adapter, "compile", (part,))).and_then(payload_of);
            payload.map(Compiled::from).map_err(|cause| self.fail(py, &self.functions.1, cause, |error| error))
        })
    }
}

/// The claims of an adapter on a method.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Claimed {
    /// Numbers of nodes, with the kinds of claims. A refusal has a reason.
    claims: Vec<(u32, String, String)>,
    /// Numbers of nodes, with their tags.
    tags: Vec<(u32, String)>,
    /// Tags, with names and values of options.
    options: Vec<(String, String, Given)>,
}

impl Claimed {
    fn add_to(self, claims: &mut Claims) {
        for (node, kind, reason) in self.claims {
            let claim = match kind.as_str() {
                "take" => Claim::Take,
                "inner" => Claim::Inner,
                "copy" => Claim::Copy,
                "decompose" => Claim::Decompose,
                _ => Claim::Refuse(reason),
            };
            claims.set(NodeId::new(node), claim);
        }
        for (node, tag) in self.tags {
            claims.set_tag(NodeId::new(node), &tag);
        }
        for (tag, name, value) in self.options {
            claims.set_option(&tag, &name, value.value());
        }
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
