//! Reports of a compilation as Python objects.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use rushlight::compiler::partition::Entry;

/// A dictionary of who claimed a node, and the reasons of those who refused it.
pub fn entry_to_python<'py>(py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("method", &entry.method)?;
    dict.set_item("node", &entry.node)?;
    dict.set_item("op", &entry.op)?;
    dict.set_item("module", &entry.module)?;
    dict.set_item("source", &entry.source)?;
    dict.set_item("backend", entry.claimant())?;
    dict.set_item("precision", &entry.precision)?;
    dict.set_item("reasons", entry.reasons().to_vec().into_py_dict(py)?)?;
    Ok(dict)
}
