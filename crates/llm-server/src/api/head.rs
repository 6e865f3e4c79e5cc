//! Fields that all responses have: the id, the time, the model, and the usage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::service::Service;

/// The fields that a response and all its chunks begin with.
pub struct Head {
    id: String,
    /// Seconds since 1970.
    created: u64,
    model: String,
}

/// Maximum bytes of a model's name in a request: each chunk of the response repeats it.
const MAX_NAME: usize = 1024;

/// The name of the model in a response: that of the request, if it has one.
pub fn model_name(service: &Service, asked: Option<String>) -> Result<String, Refusal> {
    match asked {
        Some(name) if name.len() > MAX_NAME => {
            let message = format!("expected a name of at most {MAX_NAME} bytes, got {}", name.len());
            Err(Refusal::of("model", message))
        }
        Some(name) => Ok(name),
        None => Ok(service.options.model_name.clone()),
    }
}

impl Head {
    /// The head of a new response; `prefix` begins its id, and `model` the name in the request.
    pub fn new(service: &Service, prefix: &str, model: Option<String>) -> Result<Self, Refusal> {
        Ok(Self { id: new_id(prefix), created: now(), model: model_name(service, model)? })
    }

    /// Serializes a response or a chunk of the kind `object`.
    pub fn json(&self, object: &str, choices: &[impl Serialize], usage: Option<&TokenCounts>) -> String {
        let Self { id, created, model } = self;
        let usage = usage.map(TokenCounts::json);
        text(&Response { id, object, created: *created, model, choices, usage })
    }
}

#[derive(Serialize)]
struct Response<'r, C> {
    id: &'r str,
    object: &'r str,
    created: u64,
    model: &'r str,
    choices: &'r [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

/// Serializes a value to JSON. Its keys are texts, so this cannot fail.
pub fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Serializes a value as raw JSON inside another value: parsed JSON values would take many times its bytes.
pub fn raw(value: &impl Serialize) -> Result<Box<RawValue>, Refusal> {
    serde_json::value::to_raw_value(value).map_err(|error| Refusal::invalid(error.to_string()))
}

/// Makes a response from JSON text.
pub fn respond(text: String) -> axum::response::Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Numbers of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenCounts {
    prompt: usize,
    cached: usize,
    generated: usize,
}

impl TokenCounts {
    /// Those of prompts without answers.
    pub fn of_prompts(prompt: usize) -> Self {
        Self { prompt, ..Self::default() }
    }

    /// As OpenAI's API has them where nothing is generated.
    pub fn prompt_json(&self) -> Value {
        json!({ "prompt_tokens": self.prompt, "total_tokens": self.prompt })
    }

    pub fn add(&mut self, other: &Self) {
        self.prompt += other.prompt;
        self.cached += other.cached;
        self.generated += other.generated;
    }

    /// Notes the end of an answer. Those of one prompt share it.
    pub fn finished(&mut self, usage: &rushlight_llm::Usage, cached: usize) {
        (self.prompt, self.cached) = (usage.prompt_tokens, cached);
        self.generated += usage.generated_tokens;
    }

    /// As `/v1/responses` has them.
    pub fn response_json(&self) -> Value {
        json!({
            "input_tokens": self.prompt,
            "input_tokens_details": { "cached_tokens": self.cached, "cache_write_tokens": 0 },
            "output_tokens": self.generated,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": self.prompt + self.generated,
        })
    }

    pub fn json(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

/// The time in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A name that no other answer of this process has.
pub fn new_id(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    format!("{prefix}{nanoseconds:016x}{count:08x}")
}
