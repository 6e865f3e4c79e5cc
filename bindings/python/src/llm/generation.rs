//! Options of text generation.

use std::collections::BTreeMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushlight_llm::options::{OptionValue, Options as _};
use rushlight_llm::{GenerationOptions, Grammar};
use rushlight_python_macros::guarded;

use super::error::{self, refused};
use super::model::LanguageModel;
use super::tokenizer::id;

/// Checked options of an answer.
#[pyclass(frozen, module = "rushlight")]
pub struct Generation {
    pub values: GenerationOptions,
    pub grammar: Option<Grammar>,
    /// A draft model.
    pub draft: Option<Py<LanguageModel>>,
}

#[guarded]
#[pymethods]
impl Generation {
    /// Sets the options that are given by their names.
    #[new]
    #[pyo3(signature = (**options))]
    fn new(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut values = GenerationOptions::default();
        let mut draft = None;
        for (name, value) in options.into_iter().flatten() {
            let name: String = name.extract()?;
            match value.cast::<LanguageModel>() {
                Ok(model) if name == "speculate" => draft = Some(model.clone().unbind()),
                _ => {
                    GenerationOptions::spec(&name).map_err(|wrong| refused(&wrong))?;
                    values.set(&name, option_value(&name, &value)?).map_err(|wrong| refused(&wrong))?;
                }
            }
        }
        error::map(py, values.check())?;
        let grammar = error::map(py, values.grammar())?;
        Ok(Self { values, grammar, draft })
    }

    #[getter]
    fn has_logprobs(&self) -> bool {
        self.values.has_log_probabilities()
    }
}

/// Returns a value as an option takes it.
pub fn option_value(name: &str, value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    if value.is_none() {
        return Ok(OptionValue::None);
    }
    if let Ok(flag) = value.extract::<bool>() {
        return Ok(flag.into());
    }
    if let Ok(integer) = value.extract::<i128>() {
        return Ok(integer.into());
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(number.into());
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(text.into());
    }
    if let Ok(texts) = value.extract::<Vec<String>>() {
        return Ok(texts.into());
    }
    if let Ok(biases) = value.extract::<BTreeMap<i64, f32>>() {
        let biases = biases.into_iter().map(|(token, bias)| Ok((id(token)?, bias)));
        return Ok(OptionValue::Biases(biases.collect::<PyResult<_>>()?));
    }
    Err(PyTypeError::new_err(format!("{name} cannot be {}", value.get_type().repr()?)))
}
