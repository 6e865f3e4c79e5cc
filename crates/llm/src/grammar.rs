//! Constrains answers to a form with llguidance: tokens that the form does not allow are masked at each step.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::derivre::RegexAst;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value as Json};

use crate::deep_stack;
use crate::error::{Error, Result};
use crate::gbnf;
use crate::grammar_builder::GrammarBuilder;
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
    /// Detects the syntax of a grammar: GBNF if its first rule has `::=`, else Lark.
    pub fn of_text(text: impl Into<String>) -> Self {
        let text = text.into();
        if gbnf::is_gbnf(&text) { Self::Gbnf(text) } else { Self::Lark(text) }
    }
}

/// Compiles grammars for the tokens of a tokenizer, and the logits of a model with these limits. Making a compiler
/// takes time in proportion to the vocabulary, so keep it.
#[derive(Clone)]
pub struct GrammarCompiler(Arc<ParserFactory>);

/// The state of an answer in its grammar. A clone is the state of another answer.
pub struct Constraint {
    matcher: Matcher,
    /// The result of [`prepare`](Self::prepare): the tokens that may come next, or the reason that there are none.
    next: Option<std::result::Result<SimpleVob, String>>,
    /// Time of the last preparation.
    took: Option<Duration>,
}

/// Maximum number of a grammar's rules and parentheses, or of a schema's objects. Each may take some of the stack.
const MAX_PARTS: usize = 8000;

/// Maximum size of a grammar in bytes. llguidance takes seconds and hundreds of megabytes for some grammars of a few
/// megabytes before it refuses them.
const MAX_BYTES: usize = 64 << 10;

/// llguidance's error for a mask without a token.
const NO_EXTENSION: &str = "NoExtensionBias";

impl GrammarCompiler {
    /// Reads the vocabulary.
    ///
    /// # Errors
    /// `Grammar` for a vocabulary that llguidance does not accept, and `Tokenizer` if tokens have no text.
    pub fn new(tokenizer: &Tokenizer, limits: &Limits) -> Result<Self> {
        let size = u32::try_from(limits.vocab_size).map_err(|error| grammar(&error))?;
        let mut ends: Vec<u32> = limits.eos.iter().chain(&tokenizer.special_tokens().eos).copied().collect();
        ends.retain(|end| *end < size);
        ends.dedup();
        let mut words = Vec::with_capacity(limits.vocab_size);
        for token in 0..size {
            let mut bytes = tokenizer.token_bytes(token)?;
            if tokenizer.is_special(token) || ends.contains(&token) {
                // No text contains it.
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
    /// `Grammar`, with the error, the unsupported part, or the limit that is exceeded.
    pub fn compile(&self, given: &Grammar) -> Result<Constraint> {
        let len = match given {
            Grammar::JsonSchema(schema) => schema.to_string().len(),
            Grammar::Regex(text) | Grammar::Lark(text) | Grammar::Gbnf(text) => text.len(),
        };
        if len > MAX_BYTES {
            return Err(grammar(&format!("expected at most {MAX_BYTES} bytes, got {len}")));
        }
        let parts = match given {
            Grammar::JsonSchema(schema) => objects(schema),
            Grammar::Lark(lark) => lark.matches([':', '(', '[', '{']).count(),
            Grammar::Regex(_) | Grammar::Gbnf(_) => 0,
        };
        if parts > MAX_PARTS {
            return Err(grammar(&format_args!(
                "expected at most {MAX_PARTS} rules and parentheses, or objects of a schema, got {parts}"
            )));
        }
        // Rules are compiled recursively, at their first use.
        let matcher = deep_stack::run(|| self.matcher(given)).map_err(|problem| grammar(&problem))??;
        match (matcher.get_error(), given) {
            (None, _) => Ok(Constraint::new(matcher)),
            (Some(error), Grammar::JsonSchema(_)) => Err(grammar(&format_args!("in the JSON schema: {error}"))),
            (Some(error), Grammar::Lark(_)) => {
                let text = error.trim_end();
                Err(grammar(&format_args!(
                    "{text}\nwithout `::=` in its first rule, a grammar is read in Lark's syntax"
                )))
            }
            (Some(error), _) => Err(grammar(&error)),
        }
    }

    fn matcher(&self, given: &Grammar) -> Result<Matcher> {
        // Only llguidance's own methods catch its panics.
        let built = catch_unwind(AssertUnwindSafe(|| Ok(self.build(given)))).map_err(|panic| grammar(&panic))??;
        Ok(Matcher::new(self.0.create_parser_from_init_default(built)))
    }

    /// Returns a grammar in one of the forms of llguidance.
    fn build(&self, given: &Grammar) -> Result<GrammarInit> {
        let builder = || GrammarBuilder::new(self.0.limits());
        match given {
            Grammar::JsonSchema(schema) => {
                Ok(GrammarInit::Serialized(TopLevelGrammar::from_json_schema(with_bounded_space(schema))))
            }
            Grammar::Lark(lark) => Ok(GrammarInit::Serialized(TopLevelGrammar::from_lark(lark.clone()))),
            Grammar::Gbnf(text) => gbnf::compile(text, builder()?),
            Grammar::Regex(regex) => {
                let mut builder = builder()?;
                let expression = builder.expression(&RegexAst::Regex(regex.clone()))?;
                let symbol = builder.terminal(expression)?;
                builder.finish(symbol)
            }
        }
    }
}

/// White space between the values of JSON: a space, or one or two new lines and the indentation, as in llama.cpp's
/// grammars. Unlimited white space would allow answers of nothing else.
const SPACE: &str = r" |(\r?\n){1,2}[ \t]{0,20}";

/// Returns a schema with bounded white space, whatever options of llguidance it has.
fn with_bounded_space(schema: &Json) -> Json {
    /// The key of llguidance's options in a schema.
    const OPTIONS: &str = "x-guidance";
    let mut fields = match schema {
        Json::Object(fields) => fields.clone(),
        // A schema that allows any value.
        Json::Bool(true) => Map::new(),
        other => return other.clone(),
    };
    let options = fields.entry(OPTIONS).or_insert_with(|| Json::Object(Map::new()));
    if let Json::Object(options) = options {
        options.insert("whitespace_pattern".to_owned(), SPACE.into());
    }
    Json::Object(fields)
}

/// Counts the objects in a schema.
fn objects(schema: &Json) -> usize {
    match schema {
        Json::Array(items) => items.iter().map(objects).sum(),
        Json::Object(fields) => 1 + fields.values().map(objects).sum::<usize>(),
        _ => 0,
    }
}

impl Constraint {
    fn new(matcher: Matcher) -> Self {
        Self { matcher, next: None, took: None }
    }

    /// Finds the tokens that may come next, so that [`mask`](Self::mask) takes no time. With a hard grammar, that takes long enough to
    /// do it in another thread while the model computes.
    pub fn prepare(&mut self) {
        if self.next.is_none() {
            let start = Instant::now();
            let mask = self.matcher.compute_mask_or_eos().map_err(|error| {
                let is_empty = error.to_string().starts_with(NO_EXTENSION);
                if is_empty { "none of the model's tokens may come next".to_owned() } else { message(&error) }
            });
            self.took = Some(start.elapsed());
            self.next = Some(mask);
        }
    }

    /// Time of the last preparation; `None` before the first one.
    pub fn preparation(&self) -> Option<Duration> {
        self.took
    }

    /// Sets the logits of tokens that are not allowed next to negative infinity.
    ///
    /// # Errors
    /// `Grammar` if no token is allowed, or if finding the allowed ones takes too much work.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<()> {
        self.prepare();
        let Some(mask) = self.next.as_ref() else { return Ok(()) };
        let mask = mask.as_ref().map_err(|message| Error::Grammar(message.clone()))?;
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
        // Logits past the end of the vocabulary.
        let known = size.min(logits.len());
        logits.get_mut(known..).unwrap_or_default().fill(f32::NEG_INFINITY);
        Ok(())
    }

    /// Adds a token to the answer. Returns true if nothing may follow.
    ///
    /// # Errors
    /// `Grammar` for a token that is not allowed.
    pub fn accept(&mut self, token: u32) -> Result<bool> {
        self.next = None;
        self.matcher.consume_token(token).map_err(|error| grammar(&error))?;
        Ok(self.matcher.is_stopped())
    }
}

impl Clone for Constraint {
    fn clone(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), next: self.next.clone(), took: self.took }
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
    Error::Grammar(message(error))
}

fn message(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    // llguidance catches its panics, and adds a backtrace, which is left out here.
    let text = text.split("\n<backtrace>").next().unwrap_or_default();
    text.trim_end_matches("<non-verbose/>").trim_end().to_owned()
}
