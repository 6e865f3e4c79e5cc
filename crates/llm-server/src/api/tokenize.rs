//! Text to tokens and back, as llama.cpp's and vLLM's servers have it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::body::Body;
use crate::error::Refusal;
use crate::service::Service;

#[derive(Deserialize)]
struct Text {
    #[serde(alias = "prompt")]
    content: String,
    /// True to add the special tokens at the beginning of a prompt.
    #[serde(default, alias = "add_special_tokens")]
    add_special: bool,
}

#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<u32>,
}

/// The tokens of a text, serialized directly: as JSON values each would take many times its bytes.
#[derive(Serialize)]
struct Tokenized {
    tokens: Vec<u32>,
    count: usize,
    max_model_len: usize,
}

#[derive(Serialize)]
struct Detokenized<'t> {
    content: &'t str,
    prompt: &'t str,
}

pub async fn tokenize(State(service): State<Arc<Service>>, mut body: Body) -> Result<Response, Refusal> {
    let Text { content, add_special } = body.read().await?;
    let permit = body.permit.clone();
    let work = move || {
        let tokens = service.tokenizer.encode(&content, add_special)?;
        drop(content);
        let (count, max_model_len) = (tokens.len(), service.limits.max_context_len);
        written(&Tokenized { tokens, count, max_model_len })
    };
    permit.work(work).await
}

pub async fn detokenize(State(service): State<Arc<Service>>, mut body: Body) -> Result<Response, Refusal> {
    let Tokens { tokens } = body.read().await?;
    let permit = body.permit.clone();
    let work = move || {
        let tokenizer = &service.tokenizer;
        // A token that a request names in two bytes may be a text of hundreds.
        let max = service.options.max_body.saturating_mul(MAX_GROWTH);
        let len = tokens.iter().map(|token| tokenizer.id_to_token(*token).map_or(0, str::len)).sum::<usize>();
        if len > max {
            return Err(Refusal::of("tokens", format!("expected tokens of at most {max} bytes together, got {len}")));
        }
        let text = tokenizer.decode(&tokens, false).map_err(|error| Refusal::of("tokens", error.to_string()))?;
        drop(tokens);
        written(&Detokenized { content: &text, prompt: &text })
    };
    permit.work(work).await
}

/// Maximum bytes of text for each byte that a request may have: tokens in a request take at least half the bytes of an ordinary text.
const MAX_GROWTH: usize = 2;

fn written(value: &impl Serialize) -> Result<Response, Refusal> {
    let text = serde_json::to_vec(value).map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// The checks of a body that need no model.
#[cfg(fuzzing)]
pub fn check(body: &[u8]) -> Result<(), Refusal> {
    super::body::parse::<Text>(body).map(|_| ()).or_else(|_| super::body::parse::<Tokens>(body).map(|_| ()))
}
