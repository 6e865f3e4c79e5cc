//! LoRA adapters of a model.

use std::path::PathBuf;

use pyo3::prelude::*;
use rushlight_python_macros::guarded;

use super::error;
use super::model::LanguageModel;

/// A LoRA adapter, which sessions of the model that it was read for may have.
#[pyclass(frozen, module = "rushlight")]
pub struct Adapter(pub rushlight_llm::Adapter);

#[guarded]
#[pymethods]
impl Adapter {
    /// Reads the folder in which PEFT saved it.
    #[new]
    fn new(py: Python<'_>, model: &LanguageModel, folder: PathBuf, scale: f32) -> PyResult<Self> {
        let adapter = model.turns.with(py, |model| rushlight_llm::Adapter::open(model, folder, scale))?;
        Ok(Self(error::map(py, adapter)?))
    }

    /// Bytes of its matrices.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }
}
