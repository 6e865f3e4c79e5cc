//! Text to tokens and back, as llama.cpp's and vLLM's servers have it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{Body, read};
use crate::error::Refusal;
use crate::service::Service;

#[derive(Deserialize)]
pub struct Text {
    #[serde(alias = "prompt")]
    content: String,
    /// True if the tokens are those of a prompt, with what it begins with.
    #[serde(default, alias = "add_special_tokens")]
    add_special: bool,
}

#[derive(Deserialize)]
pub struct Tokens {
    tokens: Vec<u32>,
}

pub async fn tokenize(State(service): State<Arc<Service>>, body: Body) -> Result<Json<Value>, Refusal> {
    let Text { content, add_special } = read(&body)?;
    let tokens = encode(&service, content, add_special).await?;
    Ok(Json(json!({ "tokens": tokens, "count": tokens.len(), "max_model_len": service.limits.max_context_len })))
}

pub async fn detokenize(State(service): State<Arc<Service>>, body: Body) -> Result<Json<Value>, Refusal> {
    let Tokens { tokens } = read(&body)?;
    let text = service.tokenizer.decode(&tokens, false).map_err(|error| Refusal::of("tokens", error.to_string()))?;
    Ok(Json(json!({ "content": text, "prompt": text })))
}

/// Encodes beside the threads that serve, since a text may be long.
pub async fn encode(service: &Arc<Service>, text: String, adds_special: bool) -> Result<Vec<u32>, Refusal> {
    let tokenizer = service.tokenizer.clone();
    let encoded = tokio::task::spawn_blocking(move || tokenizer.encode(&text, adds_special)).await;
    let stopped = |_| Refusal::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "the server is about to stop");
    encoded.map_err(stopped)?.map_err(|error| Refusal::invalid(error.to_string()))
}
