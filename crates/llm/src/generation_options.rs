//! The options of generating text, by name.
//!
//! The command line, the server and the bindings of all languages offer the rows of the table. An option of the sampler is
//! a field of [`Sampling`] and a row here.

use std::collections::BTreeSet;

use rushlight::options::{Field, OptionError, OptionSpec, OptionValue, Options, Range};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::generate::Generation;
#[cfg(feature = "grammar")]
use crate::grammar::{Constraint, Grammar, GrammarCompiler};
#[cfg(feature = "grammar")]
use crate::model::Limits;
use crate::sampling::{Dry, Mirostat, Sampling};
use crate::speculation::Speculation;
use crate::tokenizer::Tokenizer;

/// Options of an answer, as users set them by name. The default is [`Sampling::RANDOM`], until the model ends the answer
/// or the context is full. [`generation`](Self::generation) checks them and converts texts to tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationOptions {
    generation: Generation,
    /// A multiplier of 0 is off.
    dry: Dry,
    /// Texts that end repetitions; none are [`Dry::BREAKERS`], and a single `none` is not a text.
    dry_breakers: Vec<String>,
    /// 0 is off.
    mirostat_version: usize,
    mirostat: Mirostat,
    speculate: Option<String>,
    draft_max: usize,
    #[cfg(feature = "grammar")]
    json_schema: Option<String>,
    #[cfg(feature = "grammar")]
    regex: Option<String>,
    #[cfg(feature = "grammar")]
    grammar: Option<String>,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self::of(Sampling::RANDOM)
    }
}

static TABLE: &[OptionSpec<GenerationOptions>] = &[
    OptionSpec::new(
        "max_new_tokens",
        Field::Limit(0, usize::MAX, |options| &mut options.generation.max_new_tokens),
        "TOKENS",
        "Maximum number of tokens to generate; by default as many as fit in the context",
    ),
    OptionSpec::new(
        "temperature",
        Field::Number(Range::at_least(0.0), |options| &mut options.generation.sampling.temperature),
        "T",
        "Sampling temperature; 0 is greedy",
    ),
    OptionSpec::new(
        "top_k",
        Field::Count(0, usize::MAX, |options| &mut options.generation.sampling.top_k),
        "K",
        "Choose among the K most likely tokens; 0 for all",
    ),
    OptionSpec::new(
        "top_p",
        Field::Number(Range::above(0.0).at_most(1.0), |options| &mut options.generation.sampling.top_p),
        "P",
        "Choose among the most likely tokens, up to this total probability",
    ),
    OptionSpec::new(
        "min_p",
        Field::Number(Range::at_least(0.0).at_most(1.0), |options| &mut options.generation.sampling.min_p),
        "P",
        "Choose among tokens with at least this fraction of the highest probability",
    ),
    OptionSpec::new(
        "typical_p",
        Field::Number(Range::above(0.0).at_most(1.0), |options| &mut options.generation.sampling.typical_p),
        "P",
        "Choose among tokens whose information is closest to the entropy, up to this total probability",
    ),
    OptionSpec::new(
        "repetition_penalty",
        Field::Number(Range::above(0.0), |options| &mut options.generation.sampling.repetition_penalty),
        "X",
        "Divide positive logits of earlier tokens by this, and multiply negative ones",
    ),
    OptionSpec::new(
        "presence_penalty",
        Field::Number(Range::ANY, |options| &mut options.generation.sampling.presence_penalty),
        "X",
        "Subtract this from logits of generated tokens",
    ),
    OptionSpec::new(
        "frequency_penalty",
        Field::Number(Range::ANY, |options| &mut options.generation.sampling.frequency_penalty),
        "X",
        "Subtract this from logits of generated tokens, once for each occurrence",
    ),
    OptionSpec::new(
        "dry_multiplier",
        Field::Number(Range::at_least(0.0), |options| &mut options.dry.multiplier),
        "X",
        "Penalize tokens that continue a repetition (DRY): subtract this times the base to the power of the excess \
         length from their logits; 0 is off",
    ),
    OptionSpec::new(
        "dry_base",
        Field::Number(Range::at_least(1.0), |options| &mut options.dry.base),
        "X",
        "Base of the penalty for repetitions",
    ),
    OptionSpec::new(
        "dry_allowed_length",
        Field::Count(1, usize::MAX, |options| &mut options.dry.allowed_length),
        "TOKENS",
        "Length above which a repetition is penalized",
    ),
    OptionSpec::new(
        "dry_penalty_last_n",
        Field::Limit(0, usize::MAX, |options| &mut options.dry.last),
        "TOKENS",
        "Number of last tokens that are searched for repetitions; by default all",
    ),
    OptionSpec::new(
        "dry_sequence_breaker",
        Field::Texts(|options| &mut options.dry_breakers),
        "TEXT",
        "A text that ends repetitions, in place of the line break, `:`, `\"` and `*`; may be repeated, and `none` is none",
    ),
    OptionSpec::new(
        "mirostat",
        Field::Version(&[0, 2], |options| &mut options.mirostat_version),
        "VERSION",
        "Keep the surprisal of the answer near a target, in place of top-k, top-p, min-p and typical-p: version 2 of \
         mirostat; 0 is off",
    ),
    OptionSpec::new(
        "mirostat_tau",
        Field::Number(Range::at_least(0.0), |options| &mut options.mirostat.tau),
        "BITS",
        "Target of mirostat, in bits",
    ),
    OptionSpec::new(
        "mirostat_eta",
        Field::Number(Range::at_least(0.0), |options| &mut options.mirostat.eta),
        "X",
        "Learning rate of mirostat",
    ),
    OptionSpec::new(
        "executorch_sampler",
        Field::Flag(|options| &mut options.generation.sampling.executorch),
        "",
        "Sample as ExecuTorch's runners do, with the temperature, the seed and top-p 0.9",
    ),
    OptionSpec::new(
        "logit_bias",
        Field::Biases(|options| &mut options.generation.sampling.logit_bias),
        "TOKEN=X,...",
        "Add these numbers to the logits of tokens; may be repeated",
    ),
    OptionSpec::new(
        "seed",
        Field::Seed(|options| &mut options.generation.sampling.seed),
        "N",
        "Seed of the random number generator; the same seed gives the same text, and `random` or -1 is another one each time",
    ),
    OptionSpec::new(
        "stop",
        Field::Texts(|options| &mut options.generation.stop),
        "TEXT",
        "A text that ends the answer and is no part of it; may be repeated",
    ),
    OptionSpec::new(
        "ignore_eos",
        Field::Flag(|options| &mut options.generation.ignore_eos),
        "",
        "Continue after tokens that end an answer",
    ),
    OptionSpec::new(
        "logprobs",
        Field::FlagOrCount(|options| &mut options.generation.log_probabilities),
        "N",
        "Compute the log probability of each token, and those of this many most likely ones beside it",
    ),
    #[cfg(feature = "grammar")]
    OptionSpec::new(
        "json_schema",
        Field::Text(|options| &mut options.json_schema),
        "JSON",
        "Answer in JSON that follows this schema, such as `{\"type\": \"object\"}`",
    ),
    #[cfg(feature = "grammar")]
    OptionSpec::new(
        "regex",
        Field::Text(|options| &mut options.regex),
        "REGEX",
        "Answer with a text that a regular expression matches as a whole",
    ),
    #[cfg(feature = "grammar")]
    OptionSpec::new(
        "grammar",
        Field::Text(|options| &mut options.grammar),
        "GRAMMAR",
        "Answer with a text of a grammar in Lark's syntax, or in llama.cpp's GBNF",
    ),
    OptionSpec::new(
        "speculate",
        Field::Choice(|| vec![LOOKUP], |options| &mut options.speculate),
        "HOW",
        "Guess tokens, and verify several in one call, for the same answer; `lookup` guesses the continuation after an \
         earlier occurrence of the last tokens",
    ),
    OptionSpec::new(
        "draft_max",
        Field::Count(1, usize::MAX, |options| &mut options.draft_max),
        "TOKENS",
        "Maximum number of tokens to guess at a time",
    ),
];

/// Speculation by prompt lookup.
const LOOKUP: &str = "lookup";

impl Options for GenerationOptions {
    fn table() -> &'static [OptionSpec<Self>] {
        TABLE
    }
}

impl GenerationOptions {
    /// Options with this sampling, and the defaults of all others.
    pub fn of(mut sampling: Sampling) -> Self {
        let mirostat = sampling.mirostat.take();
        Self {
            dry: sampling.dry.take().unwrap_or(Dry { multiplier: 0.0, ..Dry::DEFAULT }),
            dry_breakers: Vec::new(),
            mirostat_version: if mirostat.is_some() { 2 } else { 0 },
            mirostat: mirostat.unwrap_or_default(),
            generation: sampling.into(),
            speculate: None,
            draft_max: Speculation::MAX_DRAFT,
            #[cfg(feature = "grammar")]
            json_schema: None,
            #[cfg(feature = "grammar")]
            regex: None,
            #[cfg(feature = "grammar")]
            grammar: None,
        }
    }

    /// Sets an option from JSON: a text, a number, a truth value, a list of texts, an object of numbers by token, or null
    /// for the default. A schema may be an object.
    ///
    /// # Errors
    /// `Option` for an unknown name, a value of another type, or one outside of the range.
    pub fn set_json(&mut self, name: &str, value: &Json) -> Result<()> {
        Self::spec(name)?;
        let value = value_of_json(name, value)?;
        Ok(self.set(name, value)?)
    }

    /// Maximum number of tokens to generate, if one is set.
    pub fn max_new_tokens(&self) -> Option<usize> {
        self.generation.max_new_tokens
    }

    /// Maximum number of tokens to draft at a time, also for a draft model.
    pub fn draft_max(&self) -> usize {
        self.draft_max
    }

    /// True if each step has the log probability of its token.
    pub fn has_log_probabilities(&self) -> bool {
        self.generation.log_probabilities.is_some()
    }

    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// `Option`.
    pub fn check(&self) -> Result<()> {
        let mut options = self.clone();
        TABLE.iter().try_for_each(|spec| spec.check(&mut options))?;
        let Sampling { executorch, temperature, seed, .. } = self.generation.sampling;
        if executorch && temperature > 0.0 && seed == 0 {
            let expected = "more than 0, from which ExecuTorch's generator draws nothing else";
            return Err(OptionError::range("seed", expected, 0).into());
        }
        Ok(())
    }

    /// Checks the options, and converts texts that end repetitions to tokens.
    ///
    /// # Errors
    /// `Option` for values outside of the ranges, and the errors of [`dry_breakers`](Self::dry_breakers).
    pub fn generation(&self, tokenizer: &Tokenizer) -> Result<Generation> {
        self.generation_with(|| self.dry_breakers(tokenizer))
    }

    /// Returns the tokens that end repetitions. It reads the whole vocabulary.
    ///
    /// # Errors
    /// The errors of [`Dry::break_at`].
    pub fn dry_breakers(&self, tokenizer: &Tokenizer) -> Result<BTreeSet<u32>> {
        Ok(Dry::DEFAULT.break_at_given(tokenizer, &self.dry_breakers)?.breakers)
    }

    /// As [`generation`](Self::generation), with the tokens that end repetitions from a function, which is called if they
    /// are needed.
    ///
    /// # Errors
    /// `Option` for values outside of the ranges, and those of the function.
    pub fn generation_with(&self, breakers: impl FnOnce() -> Result<BTreeSet<u32>>) -> Result<Generation> {
        self.check()?;
        let mut generation = self.generation.clone();
        if self.dry.multiplier != 0.0 {
            generation.sampling.dry = Some(Dry { breakers: breakers()?, ..self.dry.clone() });
        }
        generation.sampling.mirostat = (self.mirostat_version == 2).then_some(self.mirostat);
        generation.speculation = self.speculate.as_ref().map(|_| Speculation::lookup(self.draft_max));
        Ok(generation)
    }

    /// Compiles the form of the answer, if one is set. `compiler` is kept for the next answer of the model.
    ///
    /// # Errors
    /// The errors of [`grammar`](Self::grammar), [`GrammarCompiler::new`] and [`GrammarCompiler::compile`].
    #[cfg(feature = "grammar")]
    pub fn constraint(
        &self,
        tokenizer: &Tokenizer,
        limits: &Limits,
        compiler: &mut Option<GrammarCompiler>,
    ) -> Result<Option<Constraint>> {
        let Some(grammar) = self.grammar()? else { return Ok(None) };
        let compiler = match compiler {
            Some(known) => known,
            None => compiler.insert(GrammarCompiler::new(tokenizer, limits)?),
        };
        compiler.compile(&grammar).map(Some)
    }

    /// Returns the form of the answer, if one is set.
    ///
    /// # Errors
    /// `Option` for a schema that is no JSON, and for several forms.
    #[cfg(feature = "grammar")]
    pub fn grammar(&self) -> Result<Option<Grammar>> {
        let Self { json_schema, regex, grammar, .. } = self;
        let schema = json_schema.as_ref().map(|text| {
            let schema = serde_json::from_str(text).map(Grammar::JsonSchema);
            schema.map_err(|error| OptionError::range("json_schema", "JSON", error))
        });
        let regex = regex.clone().map(Grammar::Regex);
        let given = [schema.transpose()?, regex, grammar.as_ref().map(Grammar::of_text)];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (form, None) => Ok(form),
            _ => Err(OptionError::range("grammar", "one of json_schema, regex and grammar", "several").into()),
        }
    }
}

impl Sampling {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// `Option`.
    pub fn check(&self) -> Result<()> {
        GenerationOptions::of(self.clone()).check()
    }
}

/// Returns a value of JSON as an option takes it.
fn value_of_json(name: &str, value: &Json) -> Result<OptionValue> {
    let refused = |expected: &str| Error::Option(OptionError::range(name, expected, value));
    Ok(match value {
        Json::Null => OptionValue::None,
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), ..) => integer.into(),
            (_, Some(integer), _) => integer.into(),
            (.., Some(number)) => number.into(),
            _ => return Err(refused("a finite number")),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(texts) => {
            let texts = texts.iter().map(|text| text.as_str().map(ToOwned::to_owned)).collect::<Option<Vec<_>>>();
            texts.ok_or_else(|| refused("a list of texts"))?.into()
        }
        Json::Object(_) if name == "json_schema" => value.to_string().into(),
        Json::Object(biases) => {
            let bias = |(token, bias): (&String, &Json)| Some((token.parse().ok()?, bias.as_f64()? as f32));
            let biases = biases.iter().map(bias).collect::<Option<Vec<_>>>();
            OptionValue::Biases(biases.ok_or_else(|| refused("an object of numbers by token"))?)
        }
    })
}
