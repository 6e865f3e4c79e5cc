//! A program that is a language model.

use std::path::PathBuf;

use pyo3::prelude::*;
use rushlight_llm::{Error, Limits, Model, Pooling};
use rushlight_python_macros::guarded;

use super::error;
use super::tokenizer::Tokenizer;
use crate::array::own;
use crate::module::{Lowering, load};
use crate::tensor::Tensor;
use crate::turns::Turns;

/// A language model, which threads and sessions use in turns.
#[pyclass(frozen, module = "rushlight")]
pub struct LanguageModel {
    pub turns: Turns<Model>,
    pub limits: Limits,
}

#[guarded]
#[pymethods]
impl LanguageModel {
    /// Loads a model from the source of a module.
    #[new]
    #[pyo3(signature = (source, data, threads, lower, cache, memory_limit, time_limit, max_context_len))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments of `rushlight.load`")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        data: Option<Vec<Bound<'_, PyAny>>>,
        threads: Option<usize>,
        lower: Option<Lowering<'_>>,
        cache: Option<PathBuf>,
        memory_limit: Option<usize>,
        time_limit: Option<f64>,
        max_context_len: Option<usize>,
    ) -> PyResult<Self> {
        let module = load(py, source, data, threads, lower, cache, memory_limit, time_limit)?;
        let mut model = error::map(py, py.detach(|| Model::new(module)))?;
        if let Some(positions) = max_context_len {
            error::map(py, model.limit_context(positions))?;
        }
        let limits = model.limits().clone();
        Ok(Self { turns: Turns::new(model), limits })
    }

    /// The tokenizer that the program carries, or else the one beside its file.
    fn tokenizer(&self, py: Python<'_>, path: Option<PathBuf>) -> PyResult<Tokenizer> {
        let found = self
            .turns
            .with(py, |model| rushlight_llm::Tokenizer::of_model(model.module().program(), path.as_deref()))?;
        Ok(Tokenizer::of(error::map(py, found)?))
    }

    /// The embeddings of texts, whose tokens are given, as a tensor `[texts, dimensions]`, or `[dimensions]` for a single one.
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<Vec<u32>>,
        is_mean: bool,
        dimensions: Option<usize>,
        is_single: bool,
    ) -> PyResult<Bound<'py, Tensor>> {
        let pooling = if is_mean { Pooling::Mean } else { Pooling::Last };
        let embedded = self.turns.with(py, |model| -> rushlight_llm::Result<_> {
            let size = model.embedding_size().ok_or(Error::ReturnsLogits)?;
            let dimensions = dimensions.unwrap_or(size).min(size);
            let mut session = model.session()?;
            let mut rows = Vec::new();
            for tokens in &texts {
                rows.extend(session.embedding(model, tokens, pooling, dimensions)?);
            }
            Ok((rows, dimensions))
        })?;
        let (rows, dimensions) = error::map(py, embedded)?;
        let shape = [texts.len(), dimensions];
        own(py, rushlight::Tensor::of(shape.get(usize::from(is_single)..).unwrap_or_default(), &rows))
    }

    /// The number of elements of an embedding; None for a model that generates text.
    #[getter]
    fn embedding_size(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.turns.with(py, |model| model.embedding_size())
    }

    #[getter]
    fn max_seq_len(&self) -> usize {
        self.limits.max_seq_len
    }

    #[getter]
    fn max_context_len(&self) -> usize {
        self.limits.max_context_len
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.limits.vocab_size
    }

    #[getter]
    fn bos_id(&self) -> Option<u32> {
        self.limits.bos
    }

    #[getter]
    fn eos_ids(&self) -> Vec<u32> {
        self.limits.eos.clone()
    }
}
