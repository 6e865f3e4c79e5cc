//! Jinja as transformers renders chat templates: its immutable sandbox, with Python's values. Time, memory and stack are bounded for
//! every template.
//!
//! Jinja's documentation is the contract, and `tests/templates` compares all filters, tests, methods and codes with it.

mod arguments;
mod ast;
mod attributes;
mod checks;
mod dict;
mod failure;
mod filters;
mod format;
mod globals;
mod html;
mod json;
mod lexer;
mod meter;
mod number_format;
mod numbers;
mod operators;
mod parser;
mod percent;
mod render;
mod repr;
mod scope;
mod strftime;
mod text;
mod unicode;
mod value;
mod wordwrap;

use std::sync::Arc;

use serde_json::Value as Json;

pub(crate) use self::failure::Failure;
use self::meter::Meter;
use self::render::Renderer;
use self::value::Value;

/// A template that was read.
#[derive(Debug)]
pub(crate) struct Template {
    body: Vec<ast::Statement>,
}

impl Template {
    /// Reads a template.
    pub(crate) fn parse(source: &str) -> Result<Self, Failure> {
        Ok(Self { body: parser::parse(source)? })
    }

    /// Renders it with variables.
    pub(crate) fn render(&self, variables: &[(&str, &Json)]) -> Result<String, Failure> {
        let size = variables.iter().map(|(_, value)| size(value)).sum();
        let meter = Meter::new(size);
        let mut values: Vec<(Arc<str>, Value)> = Vec::new();
        for (name, value) in variables {
            values.push(((*name).into(), Value::of_json(&meter, value)?));
        }
        Renderer::new(&meter, values).render(&self.body)
    }
}

/// Bytes of a value as JSON, about.
fn size(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len(),
        Json::Array(values) => values.iter().map(|value| 8 + size(value)).sum(),
        Json::Object(fields) => fields.iter().map(|(key, value)| 8 + key.len() + size(value)).sum(),
        _ => 8,
    }
}
