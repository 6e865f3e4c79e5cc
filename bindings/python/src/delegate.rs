//! The run-time half of backends that are written in Python.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PySlice};
use rushlight::Scalar;
use rushlight::compiler::debug_map::DEBUG_MAP_KEY;
use rushlight::runtime::{
    self, Backend, Call, Code, Delegate, DelegateContext, DelegateHandle, Detail, InitContext, State, StateInfo,
};
use rushlight_python_macros::guarded;

use crate::callback;
use crate::interpreter::attached;
use crate::turns::locked;

/// A backend for one module.
struct PythonBackend {
    name: String,
    /// `init(method, data, compile_specs, named_data)` returns the number of outputs, the initial contents of states by
    /// name, and `execute(inputs, states)`. The latter returns that many results.
    init: Py<PyAny>,
    /// The named data of the module's programs. It is copied once, when the first delegate is made.
    named_data: PyOnceLock<Py<PyDict>>,
}

struct PythonDelegate {
    outputs: usize,
    states: Vec<(String, PyBackedBytes)>,
    execute: Py<PyAny>,
}

/// A state of a session. The delegate changes the bytes in place.
struct PythonState {
    initial: Vec<u8>,
    data: Py<PyByteArray>,
}

/// The `init` functions of backends, by name.
static REGISTERED: Mutex<Vec<(String, Py<PyAny>)>> = Mutex::new(Vec::new());

/// Number of registered backends.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Registers `init` for the delegates of the backend `name`, in programs that are loaded from now on.
#[guarded]
#[pyfunction]
pub fn register_backend(name: String, init: Py<PyAny>) -> PyResult<()> {
    let mut registered = locked(&REGISTERED);
    let old = match registered.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => Some(std::mem::replace(known, init)),
        None => {
            registered.push((name, init));
            None
        }
    };
    COUNT.store(registered.len(), Ordering::Relaxed);
    // Dropped after unlocking, because dropping the object may run Python code that registers.
    drop(registered);
    drop(old);
    Ok(())
}

/// Returns the names of the backends whose programs run: those of the library, and the registered ones.
#[guarded]
#[pyfunction]
pub fn program_backends() -> Vec<String> {
    let registered = locked(&REGISTERED);
    rushlight::program_backends().map(str::to_owned).chain(registered.iter().map(|(name, _)| name.clone())).collect()
}

/// Returns the number of registered backends. A module with that many needs no update.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Returns the backends that were registered after the first `known`, for one module.
pub fn backends_after(py: Python<'_>, known: usize) -> Vec<Arc<dyn Backend + Send>> {
    let backend = |(name, init): &(String, Py<PyAny>)| -> Arc<dyn Backend + Send> {
        let named_data = PyOnceLock::new();
        Arc::new(PythonBackend { name: name.clone(), init: init.clone_ref(py), named_data })
    };
    locked(&REGISTERED).iter().skip(known).map(backend).collect()
}

impl Backend for PythonBackend {
    fn id(&self) -> &str {
        &self.name
    }

    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> runtime::Result<DelegateHandle<'m>> {
        attached(|py| {
            let named_data = self.named_data.get_or_try_init(py, || named_data(py, context));
            let named_data = named_data.map_err(callback::failed)?.bind(py);
            let specs: Vec<_> = context.compile_specs().map(|spec| (spec.key, PyBytes::new(py, spec.value))).collect();
            let data = PyBytes::new(py, context.payload);
            let made = callback::call(self.init.bind(py), (context.method, data, specs, named_data))?;
            let (outputs, states, execute) = made.extract().map_err(callback::failed)?;
            Ok(DelegateHandle::Boxed(Box::new(PythonDelegate { outputs, states, execute })))
        })
    }
}

/// Returns all named data except Rushlight's own.
fn named_data(py: Python<'_>, context: &InitContext<'_, '_>) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    for key in context.named_data_keys().filter(|key| *key != DEBUG_MAP_KEY) {
        dict.set_item(key, PyBytes::new(py, context.named_data(key).unwrap_or_default()))?;
    }
    Ok(dict.unbind())
}

impl Delegate for PythonDelegate {
    fn num_outputs(&self) -> usize {
        self.outputs
    }

    fn execute(&mut self, context: &DelegateContext<'_>) -> runtime::Result<()> {
        attached(|py| self.run(context, PyDict::new(py)))
    }

    fn call(&mut self, call: &mut Call<'_, '_>) -> runtime::Result<()> {
        attached(|py| {
            let states = PyDict::new(py);
            for (index, (name, _)) in self.states.iter().enumerate() {
                let data = &call.states.get::<PythonState>(index)?.data;
                states.set_item(name, data.bind(py)).map_err(callback::failed)?;
            }
            self.run(&call.context, states)?;
            (0..self.states.len()).try_for_each(|index| call.states.get::<PythonState>(index)?.check(py))
        })
    }

    fn state(&self, index: usize) -> Option<StateInfo<'_>> {
        let (key, initial) = self.states.get(index)?;
        Some(StateInfo { key, bytes: initial.len() })
    }

    fn new_state(&mut self, index: usize) -> runtime::Result<Box<dyn State>> {
        let none = || runtime::Error::new(Code::InvalidState, Detail::Text("the delegate has no such state"));
        let (_, initial) = self.states.get(index).ok_or_else(none)?;
        let data = attached(|py| PyByteArray::new(py, initial).unbind());
        Ok(Box::new(PythonState { initial: initial.to_vec(), data }))
    }
}

impl PythonDelegate {
    /// Runs a call. `states` has the bytes of each state by its name.
    fn run(&self, context: &DelegateContext<'_>, states: Bound<'_, PyDict>) -> runtime::Result<()> {
        let py = states.py();
        let inputs = (0..context.num_inputs()).map(|index| input(py, context, index));
        let inputs: Vec<Bound<'_, PyAny>> = inputs.collect::<runtime::Result<_>>()?;
        let results = callback::call(self.execute.bind(py), (inputs, states))?;
        let results: Vec<Bound<'_, PyAny>> = results.extract().map_err(callback::failed)?;
        for (index, result) in results.iter().enumerate() {
            callback::write(result, context.output(index)?, context.num_inputs() + index)?;
        }
        Ok(())
    }
}

impl PythonState {
    /// Fails if the delegate changed the number of bytes.
    fn check(&self, py: Python<'_>) -> runtime::Result<()> {
        let (len, expected) = (self.data.bind(py).len(), self.initial.len());
        if len == expected {
            return Ok(());
        }
        let text = format!("a delegate changed the size of its state: expected {expected} bytes, got {len}");
        Err(callback::failed(PyValueError::new_err(text)))
    }

    /// Replaces the content by as many bytes.
    fn set(&self, py: Python<'_>, bytes: &[u8]) -> runtime::Result<()> {
        let all = PySlice::full(py);
        self.data.bind(py).as_any().set_item(all, PyBytes::new(py, bytes)).map_err(callback::failed)
    }
}

impl State for PythonState {
    fn clear(&mut self) -> runtime::Result<()> {
        attached(|py| self.set(py, &self.initial))
    }

    fn fork(&self) -> runtime::Result<Box<dyn State>> {
        let data = attached(|py| PyByteArray::new(py, &self.data.bind(py).to_vec()).unbind());
        Ok(Box::new(Self { initial: self.initial.clone(), data }))
    }

    fn save(&mut self, to: &mut Vec<u8>) -> runtime::Result<Poll<()>> {
        attached(|py| to.extend(self.data.bind(py).to_vec()));
        Ok(Poll::Ready(()))
    }

    fn restore(&mut self, from: &[u8]) -> runtime::Result<()> {
        if from.len() != self.initial.len() {
            return Err(runtime::Error::new(Code::InvalidArgument, Detail::Text("a saved state of another size")));
        }
        attached(|py| self.set(py, from))
    }
}

/// Converts an input to a Python object: a number, or a copy of a tensor.
fn input<'py>(py: Python<'py>, context: &DelegateContext<'_>, index: usize) -> runtime::Result<Bound<'py, PyAny>> {
    let object = match context.input_scalar(index) {
        Ok(Scalar::Int(v)) => v.into_bound_py_any(py),
        Ok(Scalar::Double(v)) => v.into_bound_py_any(py),
        Ok(Scalar::Bool(v)) => v.into_bound_py_any(py),
        Err(_) => callback::copy(py, &context.input(index)?),
    };
    object.map_err(callback::failed)
}
