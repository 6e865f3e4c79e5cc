//! The form of an answer.

use std::path::PathBuf;

use clap::Args;
use rushlight_llm::{Constraint, Grammar, GrammarCompiler, Model, Tokenizer};

use crate::failure::Failure;

/// The form of an answer. Tokens that it does not allow are not chosen.
#[derive(Args)]
pub struct Form {
    /// Answer in JSON that follows a schema: a file, or the schema itself, such as `{"type": "object"}`
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["regex", "grammar"])]
    json_schema: Option<String>,

    /// Answer with a text that a regular expression matches as a whole
    #[arg(long, value_name = "REGEX", conflicts_with = "grammar")]
    regex: Option<String>,

    /// Answer with a text of a grammar: a file in Lark's syntax, or in llama.cpp's GBNF
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
}

impl Form {
    /// Compiles the form, if one is given.
    pub fn constraint(&self, model: &Model, tokenizer: &Tokenizer) -> Result<Option<Constraint>, Failure> {
        let Some(grammar) = self.grammar()? else { return Ok(None) };
        let compiler = GrammarCompiler::new(tokenizer, model.limits())?;
        compiler.compile(&grammar).map(Some).map_err(|error| Failure::Arguments(error.to_string()))
    }

    fn grammar(&self) -> Result<Option<Grammar>, Failure> {
        let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(|error| Failure::read(path, error));
        if let Some(given) = &self.json_schema {
            // Only a schema that is an object restricts anything.
            let text = if given.trim_start().starts_with('{') { given.clone() } else { read(&given.into())? };
            let schema = serde_json::from_str(&text)
                .map_err(|error| Failure::Arguments(format!("`--json-schema` is no JSON: {error}")))?;
            return Ok(Some(Grammar::JsonSchema(schema)));
        }
        if let Some(regex) = &self.regex {
            return Ok(Some(Grammar::Regex(regex.clone())));
        }
        self.grammar.as_ref().map(|path| read(path).map(Grammar::of_text)).transpose()
    }
}
