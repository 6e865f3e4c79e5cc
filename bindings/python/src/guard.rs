//! Stops panics in functions that Python calls.

use pyo3::prelude::*;
use rushlight_bindings_common::caught;

use crate::error::to_python;

/// Runs the body of an entry, which `#[guarded]` puts here. A panic is a `rushlight.Error`, which `except Exception` catches.
pub fn guarded<T>(body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    caught(body, |error| Python::attach(|py| to_python(py, &error)))
}
