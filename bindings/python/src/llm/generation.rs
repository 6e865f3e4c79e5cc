//! How answers are generated.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rushlight_llm::{Sampler, Sampling};

use super::error;
use super::tokenizer::id;

/// Options of an answer, checked.
#[pyclass(frozen, module = "rushlight")]
pub struct Generation(pub rushlight_llm::Generation);

/// A text that ends an answer, or several.
#[derive(FromPyObject)]
enum Stop {
    #[pyo3(transparent, annotation = "str")]
    One(String),
    #[pyo3(transparent, annotation = "list of str")]
    Several(Vec<String>),
}

/// Whether there are log probabilities, or of how many alternatives there are.
#[derive(FromPyObject)]
enum Logprobs {
    Flag(bool),
    Count(i64),
}

#[pymethods]
impl Generation {
    // The defaults are those of `rushlight llm`.
    #[new]
    #[pyo3(signature = (
        *, max_new_tokens = None, temperature = 0.8, top_k = 40, top_p = 0.95, min_p = 0.05, typical_p = 1.0,
        repetition_penalty = 1.0, presence_penalty = 0.0, frequency_penalty = 0.0, logit_bias = None, seed = Some(0), stop = None,
        ignore_eos = false, logprobs = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments of `LLM.generate`")]
    fn new(
        py: Python<'_>,
        max_new_tokens: Option<i64>,
        temperature: f32,
        top_k: i64,
        top_p: f32,
        min_p: f32,
        typical_p: f32,
        repetition_penalty: f32,
        presence_penalty: f32,
        frequency_penalty: f32,
        logit_bias: Option<BTreeMap<i64, f32>>,
        seed: Option<i128>,
        stop: Option<Stop>,
        ignore_eos: bool,
        logprobs: Option<Logprobs>,
    ) -> PyResult<Self> {
        let sampling = Sampling {
            temperature,
            top_k: count("top_k", top_k)?,
            top_p,
            min_p,
            typical_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            logit_bias: logit_bias
                .unwrap_or_default()
                .into_iter()
                .map(|(token, bias)| Ok((id(token)?, bias)))
                .collect::<PyResult<_>>()?,
            seed: match seed {
                None => RandomState::new().build_hasher().finish(),
                Some(given) => u64::try_from(given)
                    .map_err(|_| PyValueError::new_err(format!("seed must be from 0 to {}, got {given}", u64::MAX)))?,
            },
            ..Sampling::default()
        };
        // What is out of range is an error here, before anything is computed.
        error::map(py, Sampler::new(sampling.clone()))?;
        Ok(Self(rushlight_llm::Generation {
            max_new_tokens: max_new_tokens.map(|given| count("max_new_tokens", given)).transpose()?,
            sampling,
            stop: match stop {
                None => Vec::new(),
                Some(Stop::One(text)) => vec![text],
                Some(Stop::Several(texts)) => texts,
            },
            ignore_eos,
            log_probabilities: match logprobs {
                None | Some(Logprobs::Flag(false)) => None,
                Some(Logprobs::Flag(true)) => Some(0),
                Some(Logprobs::Count(given)) => Some(count("logprobs", given)?),
            },
            speculation: None,
        }))
    }

    #[getter]
    fn has_logprobs(&self) -> bool {
        self.0.log_probabilities.is_some()
    }
}

fn count(name: &str, given: i64) -> PyResult<usize> {
    usize::try_from(given).map_err(|_| PyValueError::new_err(format!("{name} must be 0 or more, got {given}")))
}
