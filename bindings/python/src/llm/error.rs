//! Errors of language models as Python exceptions.

use std::io;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rushlight_llm::Error;

use super::generation::refused;
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
