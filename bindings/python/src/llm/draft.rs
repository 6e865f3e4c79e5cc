//! Drafts of another model.

use pyo3::prelude::*;
use rushlight_llm::{Draft, DraftSession, Error, Model, Result};

use super::error;
use super::model::LanguageModel;

/// Guesses of a model that threads use in turns, for an answer of another one.
pub struct SharedDraft {
    model: Py<LanguageModel>,
    session: DraftSession,
    /// The exception of a thread that waited for its turn.
    raised: Option<PyErr>,
}

impl SharedDraft {
    /// Drafts of at most `max_draft` tokens for a model with `vocabulary` logits.
    pub fn new(py: Python<'_>, model: Py<LanguageModel>, vocabulary: usize, max_draft: usize) -> PyResult<Self> {
        let turns = &model.get().turns;
        let session = turns.with_in_order(py, |model| DraftSession::new(model, vocabulary, max_draft))?;
        Ok(Self { session: error::map(py, session)?, model, raised: None })
    }

    /// Takes the exception of the last draft that failed, unless the model failed.
    pub fn take_raised(&mut self) -> Option<PyErr> {
        self.raised.take()
    }

    fn with<R: Send>(&mut self, act: impl Send + FnOnce(&mut DraftSession, &mut Model) -> Result<R>) -> Result<R> {
        let Self { model, session, raised } = self;
        let done = Python::attach(|py| model.get().turns.with_in_order(py, |model| act(session, model)));
        done.unwrap_or_else(|error| {
            let problem = error.to_string();
            *raised = Some(error);
            Err(Error::Draft(problem))
        })
    }
}

impl Draft for SharedDraft {
    fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        self.with(|session, model| session.prefill(model, tokens))
    }

    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>> {
        self.with(|session, model| session.propose(model, tokens, max))
    }
}
