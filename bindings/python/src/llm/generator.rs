//! Answers that are generated step by step.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rushlight_llm::{Step, Usage};
use rushlight_python_macros::guarded;

use super::draft::SharedDraft;
use super::error;
use super::generation::Generation;
use super::session::{Session, unless_interrupted};
use super::tokenizer::{Tokenizer, Tokens};
use crate::turns::locked;

/// Counts the tokens of an answer as ExecuTorch's runner does.
#[guarded]
#[pyfunction]
pub fn runner_generated_tokens(tokens_of_answer: usize, has_end: bool) -> usize {
    rushlight_bindings_common::generated_tokens(tokens_of_answer, has_end)
}

/// An answer while it is generated in a session.
#[pyclass(frozen, module = "rushlight")]
pub struct Generator {
    session: Py<Session>,
    tokenizer: Py<Tokenizer>,
    /// Locked only by the thread whose turn it is to use the model, so locking never waits.
    inner: Mutex<Inner>,
    /// The number of changes of the session after which this answer continues.
    changes: u64,
    /// Usage as of the last step. Locked only by threads that are attached to the interpreter.
    usage: Mutex<Usage>,
}

/// An answer, and its draft model if there is one.
struct Inner {
    generator: rushlight_llm::Generator,
    draft: Option<SharedDraft>,
}

/// The log probability of a token, and the most likely tokens with their log probabilities.
type Score = (f64, Vec<(u32, f64)>);

/// The text, the token and the score that a step adds.
type Added = (String, Option<u32>, Option<Score>);

#[guarded]
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
        let text = &tokenizer.get().inner;
        let model = &session.get().model;
        let limits = &model.get().limits;
        let generation = error::map(py, py.detach(|| options.values.generation(text)))?;
        let constraint = options.grammar.as_ref().map(|grammar| tokenizer.get().constraint(py, limits, grammar));
        let constraint = constraint.transpose()?;
        let draft = match &options.draft {
            Some(draft) if draft.is(model) => {
                return Err(PyValueError::new_err("speculate: a model cannot guess for itself"));
            }
            Some(draft) => {
                let max = options.values.draft_max();
                Some(SharedDraft::new(py, draft.clone_ref(py), limits.vocab_size, max)?)
            }
            None => None,
        };
        let mut interrupt = None;
        let goes_on = || unless_interrupted(&mut interrupt);
        let (mut generator, changes) = session.get().with(py, |model, state| {
            state.changes += 1;
            let session = &mut state.session;
            let generator =
                rushlight_llm::Generator::start_while(model, session, text, &prompt.0, generation, goes_on)?;
            Ok((generator, state.changes))
        })?;
        if let Some(interrupt) = interrupt {
            return Err(interrupt);
        }
        if let Some(constraint) = constraint {
            generator.constrain(constraint);
        }
        let usage = Mutex::new(generator.usage());
        Ok(Self { session, tokenizer, inner: Mutex::new(Inner { generator, draft }), changes, usage })
    }

    /// Returns the result of the next step; `None` if the answer is over.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Added>> {
        let tokenizer = &self.tokenizer.get().inner;
        let mut raised = None;
        let step = self.session.get().with(py, |model, state| {
            if state.changes != self.changes {
                return Ok(None);
            }
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let Inner { generator, draft } = &mut *inner;
            let step = match draft {
                Some(draft) => generator
                    .step_with_draft(model, &mut state.session, tokenizer, draft)
                    .inspect_err(|_| raised = draft.take_raised())?,
                None => generator.step(model, &mut state.session, tokenizer)?,
            };
            Ok(Some((step, generator.usage())))
        });
        let step = step.map_err(|error| raised.unwrap_or(error))?;
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

    /// Returns the numbers of prompt tokens and of generated tokens, the seconds for each, and the numbers of drafted
    /// and of accepted tokens. The last two are the reason why the answer ended, and the reason why no token was
    /// drafted although this was asked for.
    fn usage(&self) -> (usize, usize, f64, f64, usize, usize, &'static str, Option<&'static str>) {
        let usage = *locked(&self.usage);
        (
            usage.prompt_tokens,
            usage.generated_tokens,
            usage.prefill.as_secs_f64(),
            usage.decode.as_secs_f64(),
            usage.drafted_tokens,
            usage.accepted_tokens,
            usage.finish_reason.name(),
            usage.no_speculation,
        )
    }
}
