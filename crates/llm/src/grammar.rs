//! Answers of a given form, by llguidance: at each token those that the form does not allow are left out.

use std::fmt;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value as Json};

use crate::deep_stack;
use crate::error::{Error, Result};
use crate::gbnf;
use crate::model::Limits;
use crate::tokenizer::Tokenizer;

/// The form of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Grammar {
    /// JSON that a schema allows.
    JsonSchema(Json),
    /// A text that a regular expression matches as a whole.
    Regex(String),
    /// A context-free grammar in Lark's syntax, with llguidance's extensions.
    Lark(String),
    /// A grammar in the syntax of llama.cpp, whose rule `root` is the answer.
    Gbnf(String),
}

impl Grammar {
    /// A grammar in the syntax of Lark or GBNF: the latter's first rule has `::=`.
    pub fn of_text(text: impl Into<String>) -> Self {
        let text = text.into();
        if gbnf::is_gbnf(&text) { Self::Gbnf(text) } else { Self::Lark(text) }
    }
}

/// Compiles grammars for the tokens of a tokenizer, of which a model of these limits has logits. Making one takes time in proportion to the vocabulary, so that it is kept.
#[derive(Clone)]
pub struct GrammarCompiler(Arc<ParserFactory>);

/// The state of an answer in its grammar. A clone is that of another answer.
pub struct Constraint(Matcher);

/// Maximum number of a grammar's rules and parentheses, or of a schema's objects, each of which may take some of the stack.
const MAX_PARTS: usize = 8000;

/// Maximum bytes of a grammar: llguidance takes seconds and hundreds of megabytes for some of a few megabytes before it refuses them.
const MAX_BYTES: usize = 64 << 10;

/// What llguidance's error says for a mask without a token.
const NO_EXTENSION: &str = "NoExtensionBias";

impl GrammarCompiler {
    /// Reads the vocabulary.
    ///
    /// # Errors
    /// `Grammar` for a vocabulary that llguidance does not take, and `Tokenizer` where tokens have no text.
    pub fn new(tokenizer: &Tokenizer, limits: &Limits) -> Result<Self> {
        let size = u32::try_from(limits.vocab_size).map_err(|error| grammar(&error))?;
        let mut ends: Vec<u32> = limits.eos.iter().chain(&tokenizer.special_tokens().eos).copied().collect();
        ends.retain(|end| *end < size);
        ends.dedup();
        let mut words = Vec::with_capacity(limits.vocab_size);
        for token in 0..size {
            let mut bytes = tokenizer.token_bytes(token)?;
            if tokenizer.is_special(token) || ends.contains(&token) {
                // No text has it.
                bytes.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
            }
            words.push(bytes);
        }
        let first = ends.first().copied().ok_or_else(|| grammar(&"the model has no token that ends an answer"))?;
        let trie = TokTrie::from(&TokRxInfo::new(size, first), &words).with_eos_tokens(&ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment).map_err(|error| grammar(&error))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self(Arc::new(factory)))
    }

    /// Compiles a grammar.
    ///
    /// # Errors
    /// `Grammar`, with what is wrong or not supported, or takes too much to check.
    pub fn compile(&self, given: &Grammar) -> Result<Constraint> {
        let len = match given {
            Grammar::JsonSchema(schema) => schema.to_string().len(),
            Grammar::Regex(text) | Grammar::Lark(text) | Grammar::Gbnf(text) => text.len(),
        };
        if len > MAX_BYTES {
            return Err(grammar(&format!("expected at most {MAX_BYTES} bytes, got {len}")));
        }
        let (top, parts) = match given {
            Grammar::JsonSchema(schema) => {
                (TopLevelGrammar::from_json_schema(with_bounded_space(schema)), objects(schema))
            }
            Grammar::Regex(regex) => (TopLevelGrammar::from_regex(regex), 0),
            Grammar::Lark(lark) => {
                (TopLevelGrammar::from_lark(lark.clone()), lark.matches([':', '(', '[', '{']).count())
            }
            Grammar::Gbnf(text) => (TopLevelGrammar::from_lark(gbnf::to_lark(text)?), 0),
        };
        if parts > MAX_PARTS {
            return Err(grammar(&format_args!(
                "expected at most {MAX_PARTS} rules and parentheses, or objects of a schema, got {parts}"
            )));
        }
        // A rule is compiled inside of the one that names it first.
        let compile = || Matcher::new(self.0.create_parser(top));
        let matcher = deep_stack::run(compile).map_err(|problem| grammar(&problem))?;
        match matcher.get_error() {
            Some(error) => Err(grammar(&error)),
            None => Ok(Constraint(matcher)),
        }
    }
}

/// White space between the values of JSON: a space, or one or two new lines and what they are indented by. As in llama.cpp's grammars:
/// where it is unlimited, an answer may have nothing else.
const SPACE: &str = r" |(\r?\n){1,2}[ \t]{0,20}";

/// A schema with the bound of white space, whatever it says of it.
fn with_bounded_space(schema: &Json) -> Json {
    /// Options of llguidance in a schema.
    const OPTIONS: &str = "x-guidance";
    let mut fields = match schema {
        Json::Object(fields) => fields.clone(),
        // Any value.
        Json::Bool(true) => Map::new(),
        other => return other.clone(),
    };
    let options = fields.entry(OPTIONS).or_insert_with(|| Json::Object(Map::new()));
    if let Json::Object(options) = options {
        options.insert("whitespace_pattern".to_owned(), SPACE.into());
    }
    Json::Object(fields)
}

/// Number of objects in a schema.
fn objects(schema: &Json) -> usize {
    match schema {
        Json::Array(items) => items.iter().map(objects).sum(),
        Json::Object(fields) => 1 + fields.values().map(objects).sum::<usize>(),
        _ => 0,
    }
}

impl Constraint {
    /// Sets the logits of tokens to negative infinity that may not come next.
    ///
    /// # Errors
    /// `Grammar` if nothing may come, or that takes too much to find out.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<()> {
        let mask = self.0.compute_mask_or_eos().map_err(|error| {
            let is_empty = error.to_string().starts_with(NO_EXTENSION);
            if is_empty { grammar(&"none of the model's tokens may come next") } else { grammar(&error) }
        })?;
        let size = mask.len();
        for (logits, (first, bits)) in logits.chunks_mut(32).zip((0..).step_by(32).zip(mask.as_slice())) {
            let len = size.saturating_sub(first).min(32);
            match *bits {
                0 => logits.fill(f32::NEG_INFINITY),
                u32::MAX if len == 32 => {}
                bits => {
                    let is_allowed = |bit: usize| bit < len && bits >> bit & 1 == 1;
                    let forbidden = logits.iter_mut().enumerate().filter(|(bit, _)| !is_allowed(*bit));
                    forbidden.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
                }
            }
        }
        // Those that the vocabulary lacks.
        let known = size.min(logits.len());
        logits.get_mut(known..).unwrap_or_default().fill(f32::NEG_INFINITY);
        Ok(())
    }

    /// Adds a token to the answer. Returns true if nothing may follow.
    ///
    /// # Errors
    /// `Grammar` for a token that may not come.
    pub fn accept(&mut self, token: u32) -> Result<bool> {
        self.0.consume_token(token).map_err(|error| grammar(&error))?;
        Ok(self.0.is_stopped())
    }
}

impl Clone for Constraint {
    fn clone(&self) -> Self {
        Self(self.0.deep_clone())
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").finish_non_exhaustive()
    }
}

impl fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarCompiler").finish_non_exhaustive()
    }
}

fn grammar(error: &dyn fmt::Display) -> Error {
    let text = error.to_string();
    // llguidance catches its panics, and marks that it leaves the grammar itself out.
    let text = text.split("\n<backtrace>").next().unwrap_or_default();
    Error::Grammar(text.trim_end_matches("<non-verbose/>").trim_end().to_owned())
}
