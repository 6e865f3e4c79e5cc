//! Options of text generation.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rushlight_llm::{Dry, Grammar, Mirostat, Sampling, Speculation};
use rushlight_python_macros::guarded;

use super::error;
use super::model::LanguageModel;
use super::tokenizer::id;

/// Checked options of an answer.
#[pyclass(frozen, module = "rushlight")]
pub struct Generation {
    pub inner: rushlight_llm::Generation,
    /// Texts that end repetitions. The tokenizer converts them to tokens.
    pub breakers: Vec<String>,
    pub grammar: Option<Grammar>,
    /// A draft model, and the maximum number of drafted tokens.
    pub draft: Option<(Py<LanguageModel>, usize)>,
}

/// A text, or several.
#[derive(FromPyObject)]
enum Texts {
    #[pyo3(transparent, annotation = "str")]
    One(String),
    #[pyo3(transparent, annotation = "list of str")]
    Several(Vec<String>),
}

impl Texts {
    fn of(given: Option<Self>) -> Vec<String> {
        match given {
            None => Vec::new(),
            Some(Self::One(text)) => vec![text],
            Some(Self::Several(texts)) => texts,
        }
    }
}

/// The source of drafts.
#[derive(FromPyObject)]
enum Speculate {
    #[pyo3(transparent, annotation = "str")]
    Name(String),
    #[pyo3(transparent, annotation = "rushlight.llm.LLM")]
    Model(Py<LanguageModel>),
}

/// A flag for log probabilities, or the number of alternatives.
#[derive(FromPyObject)]
enum Logprobs {
    Flag(bool),
    Count(i64),
}

#[guarded]
#[pymethods]
impl Generation {
    // The defaults are those of `rushlight llm`.
    #[new]
    #[pyo3(signature = (
        *, max_new_tokens = None, temperature = Sampling::RANDOM.temperature, top_k = Sampling::RANDOM.top_k as i64,
        top_p = Sampling::RANDOM.top_p, min_p = Sampling::RANDOM.min_p, typical_p = Sampling::RANDOM.typical_p,
        repetition_penalty = Sampling::RANDOM.repetition_penalty, presence_penalty = Sampling::RANDOM.presence_penalty,
        frequency_penalty = Sampling::RANDOM.frequency_penalty, dry_multiplier = 0.0, dry_base = Dry::DEFAULT.base,
        dry_allowed_length = Dry::DEFAULT.allowed_length as i64, dry_penalty_last_n = None, dry_sequence_breaker = None, mirostat = 0,
        mirostat_tau = Mirostat::DEFAULT.tau, mirostat_eta = Mirostat::DEFAULT.eta, executorch_sampler = false, logit_bias = None,
        seed = Some(i128::from(Sampling::RANDOM.seed)), stop = None, ignore_eos = false, logprobs = None, json_schema = None,
        regex = None, grammar = None, speculate = None, draft_max = Speculation::MAX_DRAFT as i64
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
        dry_multiplier: f32,
        dry_base: f32,
        dry_allowed_length: i64,
        dry_penalty_last_n: Option<i64>,
        dry_sequence_breaker: Option<Texts>,
        mirostat: i64,
        mirostat_tau: f32,
        mirostat_eta: f32,
        executorch_sampler: bool,
        logit_bias: Option<BTreeMap<i64, f32>>,
        seed: Option<i128>,
        stop: Option<Texts>,
        ignore_eos: bool,
        logprobs: Option<Logprobs>,
        json_schema: Option<&str>,
        regex: Option<String>,
        grammar: Option<String>,
        speculate: Option<Speculate>,
        draft_max: i64,
    ) -> PyResult<Self> {
        let dry = Dry {
            multiplier: dry_multiplier,
            base: dry_base,
            allowed_length: count("dry_allowed_length", dry_allowed_length)?,
            last: dry_penalty_last_n.map(|given| count("dry_penalty_last_n", given)).transpose()?,
            ..Dry::DEFAULT
        };
        let sampling = Sampling {
            temperature,
            top_k: count("top_k", top_k)?,
            top_p,
            min_p,
            typical_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            dry: (dry_multiplier != 0.0).then_some(dry),
            mirostat: match mirostat {
                0 => None,
                2 => Some(Mirostat { tau: mirostat_tau, eta: mirostat_eta }),
                _ => return Err(PyValueError::new_err(format!("mirostat must be 0 or 2, got {mirostat}"))),
            },
            executorch: executorch_sampler,
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
        };
        // Options out of range are errors here, before anything is computed.
        error::map(py, sampling.check())?;
        let draft_max = count("draft_max", draft_max)?;
        if draft_max == 0 {
            return Err(PyValueError::new_err("draft_max must be 1 or more, got 0"));
        }
        let (speculation, draft) = match speculate {
            None => (None, None),
            Some(Speculate::Name(name)) if name == "lookup" => (Some(Speculation::lookup(draft_max)), None),
            Some(Speculate::Name(name)) => {
                return Err(PyValueError::new_err(format!("speculate must be \"lookup\" or an LLM, got {name:?}")));
            }
            Some(Speculate::Model(model)) => (None, Some((model, draft_max))),
        };
        Ok(Self {
            inner: rushlight_llm::Generation {
                max_new_tokens: max_new_tokens.map(|given| count("max_new_tokens", given)).transpose()?,
                sampling,
                stop: Texts::of(stop),
                ignore_eos,
                log_probabilities: match logprobs {
                    None | Some(Logprobs::Flag(false)) => None,
                    Some(Logprobs::Flag(true)) => Some(0),
                    Some(Logprobs::Count(given)) => Some(count("logprobs", given)?),
                },
                speculation,
            },
            breakers: Texts::of(dry_sequence_breaker),
            grammar: form(json_schema, regex, grammar)?,
            draft,
        })
    }

    #[getter]
    fn has_logprobs(&self) -> bool {
        self.inner.log_probabilities.is_some()
    }
}

fn count(name: &str, given: i64) -> PyResult<usize> {
    usize::try_from(given).map_err(|_| PyValueError::new_err(format!("{name} must be 0 or more, got {given}")))
}

/// Returns the grammar of an answer, if a form is given.
fn form(json_schema: Option<&str>, regex: Option<String>, grammar: Option<String>) -> PyResult<Option<Grammar>> {
    let schema = json_schema.map(|text| {
        let schema = serde_json::from_str(text);
        schema.map(Grammar::JsonSchema).map_err(|error| PyValueError::new_err(format!("json_schema: {error}")))
    });
    let given = [schema.transpose()?, regex.map(Grammar::Regex), grammar.map(Grammar::of_text)];
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (form, None) => Ok(form),
        _ => Err(PyValueError::new_err("expected one of json_schema, regex and grammar, got several")),
    }
}
