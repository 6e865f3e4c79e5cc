//! Text to tokens and back.

use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rushlight_llm::{Constraint, Grammar, GrammarCompiler, Limits};
use rushlight_python_macros::guarded;
use serde_json::Value as Json;

use super::error;
use crate::turns::locked;

/// Tokens as the caller gives them.
pub struct Tokens(pub Vec<u32>);

impl<'py> FromPyObject<'_, 'py> for Tokens {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(object.extract::<Vec<i64>>()?.into_iter().map(id).collect::<PyResult<_>>()?))
    }
}

/// A token as the caller gives it.
pub fn id(given: i64) -> PyResult<u32> {
    u32::try_from(given).map_err(|_| PyValueError::new_err(format!("there is no token {given}")))
}

/// A tokenizer, with its special tokens and its chat template.
#[pyclass(frozen, module = "rushlight")]
pub struct Tokenizer {
    pub inner: rushlight_llm::Tokenizer,
    /// The compiler of grammars that was made last, and for which model. Locked by threads that are attached to the interpreter.
    grammars: Mutex<Option<(Limits, GrammarCompiler)>>,
}

impl Tokenizer {
    pub fn of(inner: rushlight_llm::Tokenizer) -> Self {
        Self { inner, grammars: Mutex::new(None) }
    }

    /// Compiles the form of an answer of a model.
    pub fn constraint(&self, py: Python<'_>, limits: &Limits, grammar: &Grammar) -> PyResult<Constraint> {
        let known = locked(&self.grammars).as_ref().filter(|(of, _)| of == limits).map(|(_, known)| known.clone());
        let is_new = known.is_none();
        let compiled = py.detach(|| {
            let compiler = known.map_or_else(|| GrammarCompiler::new(&self.inner, limits), Ok)?;
            let constraint = compiler.compile(grammar)?;
            Ok((compiler, constraint))
        });
        let (compiler, constraint) = error::map(py, compiled)?;
        if is_new {
            *locked(&self.grammars) = Some((limits.clone(), compiler));
        }
        Ok(constraint)
    }
}

#[guarded]
#[pymethods]
impl Tokenizer {
    /// Opens a tokenizer's file, the one in a folder, or the one that a program carries.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        error::map(py, py.detach(|| rushlight_llm::Tokenizer::open(path))).map(Self::of)
    }

    /// The file of a model's tokenizer, if there is one beside it.
    #[staticmethod]
    fn beside(model: PathBuf) -> Option<PathBuf> {
        rushlight_llm::Tokenizer::beside(&model)
    }

    fn encode(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        error::map(py, py.detach(|| self.inner.encode(text, add_special_tokens)))
    }

    fn decode(&self, py: Python<'_>, tokens: Tokens, skip_special_tokens: bool) -> PyResult<String> {
        error::map(py, py.detach(|| self.inner.decode(&tokens.0, skip_special_tokens)))
    }

    /// Raises ValueError if the tokenizer of a draft model has other tokens for a vocabulary of `count`.
    fn check_draft(&self, py: Python<'_>, draft: Py<Self>, count: usize) -> PyResult<()> {
        error::map(py, py.detach(|| self.inner.check_draft(&draft.get().inner, count)))
    }

    fn id_to_token(&self, token: i64) -> Option<&str> {
        u32::try_from(token).ok().and_then(|token| self.inner.id_to_token(token))
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }

    #[getter]
    fn bos_id(&self) -> Option<u32> {
        self.inner.special_tokens().bos
    }

    #[getter]
    fn eos_ids(&self) -> Vec<u32> {
        self.inner.special_tokens().eos.clone()
    }

    /// The text of messages by the chat template; messages, tools and variables are JSON.
    fn render(
        &self,
        py: Python<'_>,
        messages: &str,
        tools: &str,
        variables: &str,
        add_generation_prompt: bool,
    ) -> PyResult<String> {
        let template = error::map(py, self.inner.chat_template())?.ok_or_else(|| {
            PyValueError::new_err(
                "the tokenizer has no chat template: a `tokenizer_config.json` or `chat_template.jinja` beside it has it",
            )
        })?;
        let read = |text: &str| -> PyResult<Json> {
            serde_json::from_str(text)
                .map_err(|error| PyValueError::new_err(format!("the chat template's input: {error}")))
        };
        let (messages, tools) = (read(messages)?, read(tools)?);
        let template = match read(variables)? {
            Json::Object(variables) => {
                variables.into_iter().fold(template, |template, (name, value)| template.with_variable(&name, value))
            }
            _ => template,
        };
        error::map(py, py.detach(|| template.render_json(&messages, &tools, add_generation_prompt)))
    }
}
