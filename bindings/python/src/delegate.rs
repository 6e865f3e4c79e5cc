//! The run-time half of backends that are written in Python.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};
use rushlight::Scalar;
use rushlight::compiler::debug_map::DEBUG_MAP_KEY;
use rushlight::runtime::{self, Backend, Delegate, DelegateContext, DelegateHandle, InitContext};
use rushlight_python_macros::guarded;

use crate::callback;
use crate::interpreter::attached;
use crate::turns::locked;

/// A backend for one module.
struct PythonBackend {
    name: String,
    /// `init(method, data, compile_specs, named_data)` returns the number of outputs, and `execute(inputs)`. The latter
    /// returns that many results.
    init: Py<PyAny>,
    /// The named data of the module's programs. It is copied once, when the first delegate is made.
    named_data: PyOnceLock<Py<PyDict>>,
}

struct PythonDelegate {
    outputs: usize,
    execute: Py<PyAny>,
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
            let (outputs, execute) = made.extract().map_err(callback::failed)?;
            Ok(DelegateHandle::Boxed(Box::new(PythonDelegate { outputs, execute })))
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
        attached(|py| {
            let inputs = (0..context.num_inputs()).map(|index| input(py, context, index));
            let inputs: Vec<Bound<'_, PyAny>> = inputs.collect::<runtime::Result<_>>()?;
            let results = callback::call(self.execute.bind(py), (inputs,))?;
            let results: Vec<Bound<'_, PyAny>> = results.extract().map_err(callback::failed)?;
            for (index, result) in results.iter().enumerate() {
                callback::write(result, context.output(index)?, context.num_inputs() + index)?;
            }
            Ok(())
        })
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
