//! Backends and their options: Python code selects built-in backends, and declares its own.

use std::sync::Mutex;

use pyo3::prelude::*;
use rushlight::compiler::partition::{OptionSpec, OptionValue};
use rushlight_python_macros::guarded;

use crate::error;
use crate::turns::locked;

/// A backend that comes with Rushlight, with valid options.
#[pyclass(frozen, module = "rushlight")]
pub struct BackendSpec(pub rushlight::BackendSpec);

/// A value of an option.
#[derive(FromPyObject, IntoPyObject)]
pub enum Given {
    Bool(bool),
    Int(i64),
    Text(String),
}

impl Given {
    pub fn value(&self) -> OptionValue<'_> {
        match self {
            Self::Bool(value) => OptionValue::Bool(*value),
            Self::Int(value) => OptionValue::Int(*value),
            Self::Text(value) => OptionValue::String(value),
        }
    }
}

impl From<OptionValue<'_>> for Given {
    fn from(value: OptionValue<'_>) -> Self {
        match value {
            OptionValue::Bool(value) => Self::Bool(value),
            OptionValue::Int(value) => Self::Int(value),
            OptionValue::String(value) => Self::Text(value.to_owned()),
        }
    }
}

#[guarded]
#[pymethods]
impl BackendSpec {
    /// Parses a backend's name with options, and adds more options.
    #[new]
    fn new(py: Python<'_>, text: &str, options: Vec<(String, Given)>) -> PyResult<Self> {
        let spec =
            options.iter().try_fold(error::map(py, text.parse::<rushlight::BackendSpec>())?, |spec, option| {
                let (name, given) = option;
                error::map(py, spec.option(name, given.value()))
            })?;
        Ok(Self(spec))
    }

    fn __repr__(&self) -> String {
        format!("rushlight.BackendSpec({:?})", self.0.to_string())
    }
}

/// A declared option: name, default, documentation and choices.
type Declared = (String, Given, String, Vec<String>);

/// Returns the backends that come with Rushlight: names, documentation, options.
#[guarded]
#[pyfunction]
pub fn backends() -> Vec<(&'static str, &'static str, Vec<Declared>)> {
    let option = |spec: &OptionSpec| {
        let choices = spec.choices.iter().map(|choice| (*choice).to_owned()).collect();
        (spec.name.to_owned(), spec.default.into(), spec.about.to_owned(), choices)
    };
    rushlight::backends()
        .map(|backend| (backend.name(), backend.about(), backend.options().iter().map(option).collect()))
        .collect()
}

/// Returns the options that a backend in Python declares. Equal declarations are allocated once. They live as long as
/// the process, like those of backends in Rust.
pub fn declared(options: Vec<Declared>) -> &'static [OptionSpec] {
    static KNOWN: Mutex<Vec<&'static [OptionSpec]>> = Mutex::new(Vec::new());
    let is_same = |known: &&&'static [OptionSpec]| {
        let same = |(spec, (name, default, about, choices)): (&OptionSpec, &Declared)| {
            spec.name == name && spec.default == default.value() && spec.about == about && spec.choices == *choices
        };
        known.len() == options.len() && known.iter().zip(&options).all(same)
    };
    let mut known = locked(&KNOWN);
    if let Some(known) = known.iter().find(is_same) {
        return known;
    }
    let leaked = |text: String| -> &'static str { text.leak() };
    let spec = |(name, default, about, choices): Declared| {
        let default = match default {
            Given::Bool(value) => OptionValue::Bool(value),
            Given::Int(value) => OptionValue::Int(value),
            Given::Text(value) => OptionValue::String(leaked(value)),
        };
        let choices = choices.into_iter().map(leaked).collect::<Vec<_>>().leak();
        OptionSpec { choices, ..OptionSpec::new(leaked(name), default, leaked(about)) }
    };
    let made: &'static [OptionSpec] = options.into_iter().map(spec).collect::<Vec<_>>().leak();
    known.push(made);
    made
}
