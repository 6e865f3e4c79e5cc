//! Where panics end: at whatever Python calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::error::to_python;

/// Runs the body of an entry, which `#[guarded]` puts here. A panic is a `rushlight.Error`, which `except Exception` catches.
pub fn guarded<T>(body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let error = rushlight::panic_error(&*panic);
        Err(Python::attach(|py| to_python(py, &error)))
    })
}
