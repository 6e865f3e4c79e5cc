//! Programs given as a path or as bytes.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rushlight::ScalarType;

use crate::error;
use crate::ffi::Array;

/// A program as it is given by the caller.
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

/// Bytes borrowed from an object with a flat buffer.
pub struct Bytes(Array);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.view().map_or(&[], |view| view.bytes())
    }
}

/// Borrows the bytes of an object with a flat buffer.
pub fn bytes_of(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let place = "expected a path, bytes, or another object with a buffer";
    let array = Array::from_buffer(object).map_err(|reason| reason.at(py, place, object))?;
    if error::map(py, array.view())?.dtype() != ScalarType::Byte {
        return Err(PyTypeError::new_err("expected a buffer of bytes"));
    }
    Ok(Bytes(array))
}
