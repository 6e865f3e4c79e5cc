//! Calls from the runtime into Python: what operators and delegates written in Python have in common.

use std::cell::RefCell;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rushlight::runtime::{self, Code, Detail, Error, TensorMut};
use rushlight::{Input, TensorView};

use crate::array::{Argument, own};
use crate::ffi;
use crate::interpreter::attached;

/// What was raised while a model was loaded or run.
pub enum Raised {
    /// By a function of the model, whose error has it as its cause.
    ByFunction(PyErr),
    /// By a signal handler: it is the error.
    ByHandler(PyErr),
}

thread_local! {
    /// What was raised last, until the call of the model that it failed reports it.
    static RAISED: RefCell<Option<Raised>> = const { RefCell::new(None) };
}

/// Forgets what a function raised before: an error that nobody reported, such as one while a model was lowered, is not the
/// cause of a later one.
pub fn forget() {
    drop(RAISED.take());
}

/// Takes the exception of the last callback on this thread, for another thread to [`keep`].
pub fn take() -> Option<Raised> {
    RAISED.take()
}

/// Keeps the exception of a callback on a worker thread of this one.
pub fn keep(raised: Option<Raised>) {
    drop(RAISED.replace(raised));
}

/// Keeps the exception of a signal handler for whoever called the model.
pub fn interrupted(error: PyErr) {
    keep(Some(Raised::ByHandler(error)));
}

/// The error of a call of the model, with what a function raised on this thread since the last question as its cause; or what a
/// signal handler raised.
pub fn explained(py: Python<'_>, failure: &rushlight::Error) -> PyErr {
    match RAISED.take() {
        Some(Raised::ByHandler(error)) => error,
        Some(Raised::ByFunction(cause)) => caused(py, crate::error::to_python(py, failure), cause),
        None => crate::error::to_python(py, failure),
    }
}

/// The error with its cause; an interrupt or exit alone, which nobody should catch by chance.
pub fn caused(py: Python<'_>, error: PyErr, cause: PyErr) -> PyErr {
    if !cause.is_instance_of::<PyException>(py) {
        return cause;
    }
    error.set_cause(py, Some(cause));
    error
}

/// Calls a function that belongs to a model that is being loaded or run.
pub fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> runtime::Result<Bound<'py, PyAny>> {
    let arguments = arguments.into_pyobject(function.py()).map_err(failed)?;
    call_with(function, &arguments)
}

/// As [`call`], with a tuple of the arguments.
pub fn call_with<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> runtime::Result<Bound<'py, PyAny>> {
    ffi::call(function, arguments, None).map_err(failed)
}

/// Keeps the exception for whoever called the model.
pub fn failed(error: PyErr) -> Error {
    // Dropped when the place is free again: the end of an exception may run Python code, which may fail here, too.
    keep(Some(Raised::ByFunction(error)));
    Error::new(Code::Internal, Detail::Text("the Python function behind it failed"))
}

/// A `rushlight.Tensor` with the same elements, row-major.
pub fn copy<'py>(py: Python<'py>, tensor: &runtime::Tensor<'_>) -> PyResult<Bound<'py, PyAny>> {
    let view = TensorView::strided(tensor.dtype(), tensor.sizes(), tensor.strides(), tensor.bytes());
    let copy = view.map_err(rushlight::Error::from).and_then(|view| rushlight::Tensor::copy_of(&view));
    Ok(own(py, copy)?.into_any())
}

/// Copies a function's result to `out`, which is argument `index`.
pub fn write(result: &Bound<'_, PyAny>, mut out: TensorMut<'_>, index: usize) -> runtime::Result<()> {
    let read = Argument::of(result, &mut None);
    let argument = read.map_err(|refusal| failed(refusal.at(result.py(), "the function's result", result)))?;
    let view = match argument.input() {
        Ok(Input::Tensor(view)) => view,
        Ok(_) => return Err(failed(PyTypeError::new_err("the function has to return a tensor or an array"))),
        Err(error) => return Err(attached(|py| failed(crate::error::to_python(py, &error)))),
    };
    if out.dtype() != view.dtype() {
        let detail = Detail::Dtype { expected: out.dtype().name(), got: view.dtype() };
        return Err(Error::from(detail).arg(index));
    }
    out.resize(view.sizes()).map_err(|error| error.arg(index))?;
    if !out.is_contiguous() {
        let text = "functions in Python can only write results whose dimensions are in order";
        return Err(Error::new(Code::NotSupported, Detail::Text(text)).arg(index));
    }
    view.copy_to_row_major(out.bytes_mut());
    Ok(())
}
