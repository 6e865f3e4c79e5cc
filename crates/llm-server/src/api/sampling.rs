//! Fields of requests that say how an answer is generated.

use std::collections::{BTreeMap, BTreeSet};

use rushlight_llm::options::Options as _;
use rushlight_llm::{Generation, GenerationOptions, Grammar};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::body::OneOrMany;
use crate::error::{Refusal, shown};

/// Maximum number of stop strings, and of their bytes: the end of an answer is searched for them at each token.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;

/// Maximum number of tokens with a bias: they are added at each token.
const MAX_BIASES: usize = 1024;

/// Maximum number of alternatives of a token, as OpenAI has it.
const MAX_ALTERNATIVES: usize = 20;

/// Maximum number of log probabilities of a response. Each takes some fifty bytes until the response is complete.
const MAX_SCORES: usize = 1 << 20;

/// Reads a maximum number of tokens. -1 stands for as many as fit, as clients of llama.cpp write it.
pub fn max_tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match Option::<i64>::deserialize(deserializer)? {
        Some(-1) => Ok(Some(usize::MAX)),
        Some(tokens) => usize::try_from(tokens).map(Some).map_err(|_| {
            D::Error::invalid_value(Unexpected::Signed(tokens), &"a number of tokens, or -1 for as many as fit")
        }),
        None => Ok(None),
    }
}

/// Checks the number of log probabilities for `tokens` tokens.
pub fn check_scores(tokens: usize, alternatives: Option<usize>) -> Result<(), Refusal> {
    let Some(alternatives) = alternatives else { return Ok(()) };
    let count = tokens.saturating_mul(alternatives + 1);
    if count > MAX_SCORES {
        let message = format!("expected at most {MAX_SCORES} log probabilities in a response, got up to {count}");
        return Err(Refusal::of("logprobs", message));
    }
    Ok(())
}

/// The sampling options of OpenAI's requests, with additions of other servers.
#[derive(Deserialize)]
pub struct SamplingFields {
    /// Another name of `repetition_penalty`.
    repeat_penalty: Option<Value>,
    logit_bias: Option<Map<String, Value>>,
    seed: Option<i64>,
    stop: Option<OneOrMany<String>>,
    n: Option<usize>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    response_format: Option<ResponseFormat>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    /// In the syntax of Lark or of GBNF.
    guided_grammar: Option<String>,
    /// Requests with others share nothing with this one, as vLLM has it.
    pub cache_salt: Option<String>,
    /// All other fields. A field with the name of an option sets it; the rest are ignored.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Options that a request cannot set by name: some have a field of another form, others are not allowed.
const OTHERWISE: [&str; 12] = [
    // `max_tokens`, `max_completion_tokens` and `logprobs` differ between the routes.
    "max_new_tokens",
    "logprobs",
    // Limited, because each takes time at each token.
    "stop",
    "logit_bias",
    // Its field also takes negative seeds.
    "seed",
    // Set by `response_format` and `guided_...`.
    "json_schema",
    "regex",
    "grammar",
    // Each value reads the whole vocabulary.
    "dry_sequence_breaker",
    // The server drafts tokens for all answers, or for none.
    "speculate",
    "draft_max",
    // Draws from a seed that is not 0.
    "executorch_sampler",
];

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<NamedSchema>,
}

#[derive(Deserialize)]
struct NamedSchema {
    schema: Option<Value>,
}

impl SamplingFields {
    /// The generation options of a request; `defaults` has the missing ones. `breakers` returns the tokens that end
    /// repetitions.
    pub fn generation(
        &self,
        defaults: &GenerationOptions,
        breakers: impl FnOnce() -> rushlight_llm::Result<BTreeSet<u32>>,
        max_new_tokens: Option<usize>,
        alternatives: Option<usize>,
        vocab_size: usize,
    ) -> Result<Generation, Refusal> {
        let mut options = defaults.clone();
        for spec in GenerationOptions::table().iter().filter(|spec| !OTHERWISE.contains(&spec.name)) {
            if let Some(value) = self.others.get(spec.name).filter(|value| !value.is_null()) {
                options.set_json(spec.name, value)?;
            }
        }
        if let Some(penalty) = self.repeat_penalty.as_ref().filter(|_| !self.others.contains_key("repetition_penalty"))
        {
            options.set_json("repetition_penalty", penalty)?;
        }
        let mut generation = options.generation_with(breakers)?;
        let sampling = &mut generation.sampling;
        // Temperature 0 is deterministic, so that it needs no seed.
        sampling.seed = self.seed.map_or_else(random_seed, i64::cast_unsigned);
        if let Some(biases) = &self.logit_bias {
            sampling.logit_bias.extend(logit_bias(biases, vocab_size)?);
        }
        if let Some(stop) = &self.stop {
            let stop = match stop {
                OneOrMany::One(stop) => std::slice::from_ref(stop),
                OneOrMany::Many(stop) => stop,
            };
            if stop.len() > MAX_STOPS || stop.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
                let message = format!("expected at most {MAX_STOPS} texts of at most {MAX_STOP_BYTES} bytes");
                return Err(Refusal::of("stop", message));
            }
            generation.stop.extend_from_slice(stop);
        }
        if let Some(alternatives) = alternatives.filter(|alternatives| *alternatives > MAX_ALTERNATIVES) {
            let message = format!("expected at most {MAX_ALTERNATIVES} alternatives, got {alternatives}");
            return Err(Refusal::of("logprobs", message));
        }
        generation.max_new_tokens = max_new_tokens.or(generation.max_new_tokens);
        generation.log_probabilities = alternatives;
        Ok(generation)
    }

    /// The form of the answer, as OpenAI's `response_format` or vLLM's `guided_*` give it; or `given` by another field.
    pub fn grammar(&self, given: Option<Grammar>) -> Result<Option<Grammar>, Refusal> {
        let format = self.response_format.as_ref().map(|format| match (format.kind.as_str(), &format.json_schema) {
            ("text", _) => Ok(None),
            ("json_object", _) => Ok(Some(Grammar::JsonSchema(json!({ "type": "object" })))),
            ("json_schema", Some(NamedSchema { schema: Some(schema) })) => {
                Ok(Some(Grammar::JsonSchema(schema.clone())))
            }
            ("json_schema", _) => Err(Refusal::of("response_format", "expected `json_schema.schema`")),
            (kind, _) => Err(Refusal::of(
                "response_format",
                format!("expected `text`, `json_object` or `json_schema`, got `{}`", shown(kind)),
            )),
        });
        let given = [
            given,
            format.transpose()?.flatten(),
            self.guided_json.clone().map(Grammar::JsonSchema),
            self.guided_regex.clone().map(Grammar::Regex),
            self.guided_grammar.clone().map(Grammar::of_text),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (grammar, None) => Ok(grammar),
            (_, Some(_)) => Err(Refusal::of("response_format", "expected one form of the answer")),
        }
    }

    /// Number of answers.
    pub fn choices(&self) -> usize {
        self.n.unwrap_or(1)
    }

    pub fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// True if a stream ends with the number of tokens.
    pub fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false)
    }
}

fn logit_bias(biases: &Map<String, Value>, vocab_size: usize) -> Result<BTreeMap<u32, f32>, Refusal> {
    let wrong = |got: String| {
        Refusal::of(
            "logit_bias",
            format!("expected at most {MAX_BIASES} token ids, each once, with a bias from -100 to 100, got {got}"),
        )
    };
    if biases.len() > MAX_BIASES {
        return Err(wrong(format!("{} of them", biases.len())));
    }
    let mut all = BTreeMap::new();
    for (token, bias) in biases {
        let wrong = || wrong(shown(format_args!("`{token}`: {bias}")));
        let id = token.parse::<u32>().ok().filter(|id| (*id as usize) < vocab_size).ok_or_else(wrong)?;
        let bias = bias.as_f64().filter(|bias| bias.abs() <= 100.0).ok_or_else(wrong)?;
        if all.insert(id, bias as f32).is_some() {
            return Err(wrong());
        }
    }
    Ok(all)
}

/// A seed for requests without one.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
