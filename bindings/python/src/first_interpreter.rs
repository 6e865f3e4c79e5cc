//! Only one interpreter of a process has the package.

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

use crate::ffi;

/// Refuses to be imported in a second interpreter of the process: classes, registered functions and other static data would be
/// those of the first.
pub fn check_is_first(py: Python<'_>) -> PyResult<()> {
    static FIRST: AtomicI64 = AtomicI64::new(-1);
    let this = ffi::interpreter_id(py)?;
    match FIRST.compare_exchange(-1, this, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != this => Err(PyImportError::new_err(
            "rushlight works in one interpreter of a process, and another one has imported it: use it there, or in a process \
             of its own",
        )),
        _ => Ok(()),
    }
}
