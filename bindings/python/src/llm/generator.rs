//! Answers, step by step.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rushlight_llm::{Step, Usage};

use super::generation::Generation;
use super::session::Session;
use super::tokenizer::{Tokenizer, Tokens};
use crate::turns::locked;

/// An answer that is being generated in a session.
#[pyclass(frozen, module = "rushlight")]
pub struct Generator {
    session: Py<Session>,
    tokenizer: Py<Tokenizer>,
    /// Locked by the thread alone whose turn the model is, which therefore never waits for it.
    inner: Mutex<rushlight_llm::Generator>,
    /// The number of changes of the session that this answer goes on from.
    changes: u64,
    /// As of the last step; locked by threads that are attached to the interpreter.
    usage: Mutex<Usage>,
}

/// The log probability of a token, and the most likely tokens with theirs.
type Score = (f64, Vec<(u32, f64)>);

/// The text, the token and the score that a step adds.
type Added = (String, Option<u32>, Option<Score>);

#[pymethods]
impl Generator {
    /// Adds a prompt to a session.
    #[new]
    fn new(
        py: Python<'_>,
        session: Py<Session>,
        tokenizer: Py<Tokenizer>,
        prompt: Tokens,
        options: &Generation,
    ) -> PyResult<Self> {
        let (text, options) = (&tokenizer.get().inner, options.0.clone());
        let (inner, changes) = session.get().with(py, |model, state| {
            state.changes += 1;
            let generator = rushlight_llm::Generator::start(model, &mut state.session, text, &prompt.0, options)?;
            Ok((generator, state.changes))
        })?;
        let usage = Mutex::new(inner.usage());
        Ok(Self { session, tokenizer, inner: Mutex::new(inner), changes, usage })
    }

    /// What the next step adds; `None` when the answer is over.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Added>> {
        let tokenizer = &self.tokenizer.get().inner;
        let step = self.session.get().with(py, |model, state| {
            if state.changes != self.changes {
                return Ok(None);
            }
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let step = inner.step(model, &mut state.session, tokenizer)?;
            Ok(Some((step, inner.usage())))
        })?;
        let Some((step, usage)) = step else {
            return Err(PyRuntimeError::new_err(
                "the session was used for something else since: the answer cannot go on",
            ));
        };
        *locked(&self.usage) = usage;
        Ok(step.map(|Step { text, token, score, .. }| {
            (text, token, score.filter(|_| token.is_some()).map(|score| (score.log_probability, score.alternatives)))
        }))
    }

    /// Tokens of the prompt and of the answer, seconds that the model took for them, and why the answer ended.
    fn usage(&self) -> (usize, usize, f64, f64, &'static str) {
        let usage = *locked(&self.usage);
        let reason = usage.finish_reason.name();
        (usage.prompt_tokens, usage.generated_tokens, usage.prefill.as_secs_f64(), usage.decode.as_secs_f64(), reason)
    }
}
