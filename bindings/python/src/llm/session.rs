//! Conversations with a model.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rushlight::TensorView;
use rushlight_llm::{Model, Result};
use rushlight_python_macros::guarded;

use super::adapter::Adapter;
use super::error;
use super::model::LanguageModel;
use super::tokenizer::Tokens;
use crate::array::own;
use crate::callback;
use crate::source::bytes_of;
use crate::tensor::Tensor;

/// The tokens of a conversation, and the model's KV cache of these.
#[pyclass(frozen, module = "rushlight")]
pub struct Session {
    pub model: Py<LanguageModel>,
    /// Locked by the thread alone whose turn the model is, which therefore never waits for it.
    state: Mutex<State>,
}

/// A session, and how often it was changed.
pub struct State {
    pub session: rushlight_llm::Session,
    pub changes: u64,
}

impl Session {
    fn of(model: Py<LanguageModel>, session: rushlight_llm::Session) -> Self {
        Self { model, state: Mutex::new(State { session, changes: 0 }) }
    }

    /// Uses the session and its model, detached from the interpreter, when it is this thread's turn.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        act: impl Send + FnOnce(&mut Model, &mut State) -> Result<R>,
    ) -> PyResult<R> {
        callback::forget();
        let result = self.model.get().turns.with_in_order(py, |model| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            act(model, &mut state)
        })?;
        error::map(py, result)
    }

    /// As [`with`](Self::with), for what changes the session: answers that are being generated in it are over.
    pub fn change<R: Send>(
        &self,
        py: Python<'_>,
        act: impl Send + FnOnce(&mut Model, &mut rushlight_llm::Session) -> Result<R>,
    ) -> PyResult<R> {
        self.with(py, |model, state| {
            state.changes += 1;
            act(model, &mut state.session)
        })
    }
}

/// Breaks after a signal whose handler raises, such as that of Ctrl-C, and keeps the exception.
pub fn unless_interrupted(interrupt: &mut Option<PyErr>) -> ControlFlow<()> {
    *interrupt = Python::attach(|py| py.check_signals()).err();
    if interrupt.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

#[guarded]
#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (model, adapter=None))]
    fn new(py: Python<'_>, model: Py<LanguageModel>, adapter: Option<&Adapter>) -> PyResult<Self> {
        let adapter = adapter.map(|adapter| adapter.0.clone());
        let session = model.get().turns.with_in_order(py, |model| model.session_with(adapter))?;
        Ok(Self::of(model, error::map(py, session)?))
    }

    #[getter]
    fn tokens(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.with(py, |_, state| Ok(state.session.tokens().to_vec()))
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |_, state| Ok(state.session.position()))
    }

    /// The logits after the last token, f32[vocabulary]; f32[0] where there are none.
    #[getter]
    fn logits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Tensor>> {
        let logits = self.with(py, |_, state| Ok(state.session.logits().to_vec()))?;
        let shape = [logits.len()];
        let view = TensorView::of(&shape, &logits).map_err(rushlight::Error::from);
        own(py, view.and_then(|view| rushlight::Tensor::copy_of(&view)))
    }

    fn prefill(&self, py: Python<'_>, tokens: Tokens) -> PyResult<()> {
        let mut interrupt = None;
        let goes_on = || unless_interrupted(&mut interrupt);
        self.change(py, |model, session| session.prefill_while(model, &tokens.0, goes_on).map(drop))?;
        interrupt.map_or(Ok(()), Err)
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, |model, session| session.reset(model))
    }

    fn rewind(&self, py: Python<'_>, position: usize) -> PyResult<()> {
        self.change(py, |model, session| session.rewind(model, position))
    }

    fn keep_common_prefix(&self, py: Python<'_>, tokens: Tokens) -> PyResult<usize> {
        self.change(py, |model, session| session.keep_common_prefix(model, &tokens.0))
    }

    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        let session = self.with(py, |_, state| state.session.fork())?;
        Ok(Self::of(self.model.clone_ref(py), session))
    }

    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, |_, state| state.session.save())?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn restore(&self, py: Python<'_>, bytes: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = bytes_of(py, bytes)?;
        self.change(py, |model, session| session.restore(model, bytes.as_ref()))
    }
}
