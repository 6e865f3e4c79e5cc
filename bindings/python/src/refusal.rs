//! Reasons why an object cannot be read as an argument.

use std::fmt::Display;

use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The reason why an object is not a valid argument. The caller adds the place of the argument.
pub enum Refusal {
    /// Its type is not supported.
    Type(String),
    /// Its shape, device or another property is not supported.
    Value(String),
    /// Its memory layout is not supported; a copy would be.
    Layout(&'static str),
    /// A protocol that it offers failed.
    Protocol(String, PyErr),
    /// Python code raised an exception that is not about the object.
    Raised(PyErr),
}

impl Refusal {
    /// Wraps an exception that an object raised while it exported its memory. Interrupts and exits pass through
    /// unchanged.
    pub fn of_protocol(py: Python<'_>, object: &Bound<'_, PyAny>, error: PyErr) -> Self {
        if !error.is_instance_of::<PyException>(py) {
            return Self::Raised(error);
        }
        Self::Protocol(format!("cannot read this {}: {}", class_name(object), error.value(py)), error)
    }

    /// True if the object's protocol failed, false if its description was read and refused.
    pub fn is_of_protocol(&self) -> bool {
        matches!(self, Self::Protocol(..))
    }

    /// Returns the exception for an object at `place`, such as `input 0`.
    pub fn at(self, py: Python<'_>, place: impl Display, object: &Bound<'_, PyAny>) -> PyErr {
        let read = |text: &str| format!("{place}: cannot read this {}: {text}", class_name(object));
        match self {
            Self::Type(text) => PyTypeError::new_err(read(&text)),
            Self::Value(text) => PyValueError::new_err(read(&text)),
            Self::Layout(text) => PyValueError::new_err(read(&format!("{text}; copy the array first"))),
            Self::Protocol(text, cause) => {
                let error = PyTypeError::new_err(format!("{place}: {text}"));
                error.set_cause(py, Some(cause));
                error
            }
            Self::Raised(error) => error,
        }
    }
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

/// The name of an object's type.
pub fn class_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
