//! Fields of requests that say how an answer is generated.

use std::collections::BTreeMap;

use rushlight_llm::{Generation, Grammar};
use serde::Deserialize;
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
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repetition_penalty: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    logit_bias: Option<Map<String, Value>>,
    seed: Option<i64>,
    stop: Option<OneOrMany<String>>,
    ignore_eos: Option<bool>,
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
}

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
    /// The generation options of a request; `defaults` has the missing ones.
    pub fn generation(
        &self,
        defaults: &Generation,
        max_new_tokens: Option<usize>,
        alternatives: Option<usize>,
        vocab_size: usize,
    ) -> Result<Generation, Refusal> {
        let mut generation = defaults.clone();
        let sampling = &mut generation.sampling;
        // Temperature 0 is deterministic, so that it needs no seed.
        for (field, given) in [
            (&mut sampling.temperature, self.temperature),
            (&mut sampling.top_p, self.top_p),
            (&mut sampling.min_p, self.min_p),
            (&mut sampling.typical_p, self.typical_p),
            (&mut sampling.repetition_penalty, self.repetition_penalty.or(self.repeat_penalty)),
            (&mut sampling.presence_penalty, self.presence_penalty),
            (&mut sampling.frequency_penalty, self.frequency_penalty),
        ] {
            *field = given.unwrap_or(*field);
        }
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
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
        generation.ignore_eos = self.ignore_eos.unwrap_or(generation.ignore_eos);
        generation.max_new_tokens = max_new_tokens.or(generation.max_new_tokens);
        generation.log_probabilities = alternatives;
        generation.sampling.check()?;
        Ok(generation)
    }

    /// The form of the answer, as OpenAI's `response_format` or vLLM's `guided_*` give it.
    pub fn grammar(&self) -> Result<Option<Grammar>, Refusal> {
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
