//! Calls from the runtime into Python: common code of operators and delegates written in Python.

use std::cell::RefCell;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rushlight::runtime::{self, Code, Detail, Error, TensorMut};
use rushlight::{Input, TensorView};

use crate::array::{Argument, own};
use crate::ffi;
use crate::interpreter::attached;

/// An exception that was raised while a model was loaded or run.
pub enum Raised {
    /// A function of the model raised it. It becomes the cause of the model's error.
    ByFunction(PyErr),
    /// A signal handler raised it. It replaces the model's error.
    ByHandler(PyErr),
}

thread_local! {
    /// The last exception, until the failed call of the model reports it.
    static RAISED: RefCell<Option<Raised>> = const { RefCell::new(None) };
}

/// Drops an earlier exception of a function. An error that was never reported, such as one while a model was lowered,
/// is not the cause of a later one.
pub fn forget() {
    drop(RAISED.take());
}

/// Takes the exception of the last callback on this thread, for another thread to [`keep`].
pub fn take() -> Option<Raised> {
    RAISED.take()
}

/// Keeps the exception of a callback that ran on a worker thread of this thread.
pub fn keep(raised: Option<Raised>) {
    drop(RAISED.replace(raised));
}

/// Keeps the exception of a signal handler, for the caller of the model.
pub fn interrupted(error: PyErr) {
    keep(Some(Raised::ByHandler(error)));
}

/// Returns the error of a call of the model. Its cause is the last exception of a function on this thread. An exception
/// of a signal handler is returned itself.
pub fn explained(py: Python<'_>, failure: &rushlight::Error) -> PyErr {
    match RAISED.take() {
        Some(Raised::ByHandler(error)) => error,
        Some(Raised::ByFunction(cause)) => caused(py, crate::error::to_python(py, failure), cause),
        None => crate::error::to_python(py, failure),
    }
}

/// Returns the error with its cause. An interrupt or exit is returned alone, so that it is not caught by accident.
pub fn caused(py: Python<'_>, error: PyErr, cause: PyErr) -> PyErr {
    if !cause.is_instance_of::<PyException>(py) {
        return cause;
    }
    error.set_cause(py, Some(cause));
    error
}

/// Calls a function of a model that is being loaded or run.
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

/// Keeps the exception, for the caller of the model.
pub fn failed(error: PyErr) -> Error {
    // The old exception is dropped outside of the borrow: dropping it may run Python code, which may fail here, too.
    keep(Some(Raised::ByFunction(error)));
    Error::new(Code::Internal, Detail::Text("the Python function behind it failed"))
}

/// Copies a tensor to a row-major `rushlight.Tensor`.
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
