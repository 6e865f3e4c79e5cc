//! Errors of language models as Python exceptions.

use std::io;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use rushlight_llm::Error;
use rushlight_llm::options::OptionError;

use crate::callback;

/// A `rushlight.Error` for one of the program, an `OSError` for a file that cannot be read, `RuntimeError` where the model or the
/// session is the reason, and `ValueError` where an argument or the content of a file is.
pub fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Module(error) => callback::explained(py, error),
        Error::Option(error) => refused(error),
        Error::File { error: cause, .. } => io::Error::new(cause.kind(), error.to_string()).into(),
        Error::AdapterOfAnotherModel
        | Error::Poisoned
        | Error::NoAdapters
        | Error::NoLogits
        | Error::NotSupported(_) => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Maps a result of the library.
pub fn map<T>(py: Python<'_>, result: rushlight_llm::Result<T>) -> PyResult<T> {
    result.map_err(|error| to_python(py, &error))
}

/// The error of an option: `TypeError` for an unknown name and a value of another type, as Python's own, else `ValueError`.
pub fn refused(wrong: &OptionError) -> PyErr {
    if wrong.is_unknown() {
        let near = wrong.nearest().map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
        return PyTypeError::new_err(format!("unexpected keyword argument '{}'{near}", wrong.name()));
    }
    // A draft model is an object of Python.
    let or_model = if wrong.name() == "speculate" { " or an LLM" } else { "" };
    let text = format!("{} must be {}{or_model}, got {}", wrong.name(), wrong.expected(), wrong.got());
    if wrong.is_type() { PyTypeError::new_err(text) } else { PyValueError::new_err(text) }
}
