//! Fields of requests that say how an answer is generated.

use rushlight_llm::{Generation, Tokenizer};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::body::OneOrMany;
use crate::error::Refusal;

/// Maximum number of stop strings, and of their bytes: the end of an answer is searched for them at each token.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;

/// Maximum number of alternatives of a token, as OpenAI has it.
const MAX_ALTERNATIVES: usize = 20;

/// What OpenAI's requests have, and what others have added to them.
#[derive(Deserialize)]
pub struct SamplingFields {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    #[serde(alias = "repeat_penalty")]
    repetition_penalty: Option<f32>,
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
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
}

impl SamplingFields {
    /// The generation that a request asks for; what it leaves open is as in `defaults`.
    pub fn generation(
        &self,
        defaults: &Generation,
        max_new_tokens: Option<usize>,
        alternatives: Option<usize>,
        tokenizer: &Tokenizer,
    ) -> Result<Generation, Refusal> {
        let mut generation = defaults.clone();
        let sampling = &mut generation.sampling;
        // Temperature 0 is deterministic, so that it needs no seed.
        for (field, given) in [
            (&mut sampling.temperature, self.temperature),
            (&mut sampling.top_p, self.top_p),
            (&mut sampling.min_p, self.min_p),
            (&mut sampling.typical_p, self.typical_p),
            (&mut sampling.repetition_penalty, self.repetition_penalty),
            (&mut sampling.presence_penalty, self.presence_penalty),
            (&mut sampling.frequency_penalty, self.frequency_penalty),
        ] {
            *field = given.unwrap_or(*field);
        }
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
        sampling.seed = self.seed.map_or_else(random_seed, i64::cast_unsigned);
        for (token, bias) in self.logit_bias.iter().flatten() {
            sampling.logit_bias.push(bias_of(token, bias, tokenizer)?);
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
        if let Some(format) = self.response_format.as_ref().filter(|format| format.kind != "text") {
            let message = format!("`{}` is not supported yet: expected `text`", format.kind);
            return Err(Refusal::of("response_format", message));
        }
        generation.ignore_eos = self.ignore_eos.unwrap_or(generation.ignore_eos);
        generation.max_new_tokens = max_new_tokens.or(generation.max_new_tokens);
        generation.log_probabilities = alternatives;
        generation.sampling.check()?;
        Ok(generation)
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

fn bias_of(token: &str, bias: &Value, tokenizer: &Tokenizer) -> Result<(u32, f32), Refusal> {
    let wrong =
        || Refusal::of("logit_bias", format!("expected token ids with a bias from -100 to 100, got `{token}`: {bias}"));
    let id = token.parse::<u32>().ok().filter(|id| (*id as usize) < tokenizer.vocab_size()).ok_or_else(wrong)?;
    let bias = bias.as_f64().filter(|bias| bias.abs() <= 100.0).ok_or_else(wrong)?;
    Ok((id, bias as f32))
}

/// A seed for requests without one.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
