//! `/v1/embeddings`: vectors of texts.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::body::{Body, Prompt};
use super::head::{TokenCounts, model_name};
use crate::error::{Refusal, shown};
use crate::service::Service;

#[derive(Deserialize)]
struct Request {
    model: Option<String>,
    input: Prompt,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
}

#[derive(Serialize)]
struct List {
    object: &'static str,
    data: Vec<Embedding>,
    model: String,
    usage: Value,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Elements,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Elements {
    Numbers(Vec<f32>),
    Base64(String),
}

pub async fn embed(State(service): State<Arc<Service>>, mut body: Body) -> Result<Response, Refusal> {
    let size = service.embedding_size()?;
    let request: Request = body.read().await?;
    let deadline = service.deadline();
    let prepared = body.prepare(&service, request, move |service, request, _| prepare(service, request, size)).await?;
    let Prepared { prompts, is_base64, dimensions, model } = prepared;
    let counts = TokenCounts::of_prompts(prompts.iter().map(Vec::len).sum());
    let tenant = body.tenant;
    drop(body);
    let embeddings = service.embed(tenant, prompts, dimensions, deadline).await?;
    let data = embeddings.into_iter().enumerate().map(|(index, embedding)| {
        let embedding = if is_base64 {
            let bytes: Vec<u8> = embedding.iter().flat_map(|x| x.to_le_bytes()).collect();
            Elements::Base64(STANDARD.encode(&bytes))
        } else {
            Elements::Numbers(embedding)
        };
        Embedding { object: "embedding", index, embedding }
    });
    let list = List { object: "list", data: data.collect(), model, usage: counts.prompt_json() };
    Ok(Json(list).into_response())
}

/// A request that was checked and tokenized.
struct Prepared {
    prompts: Vec<Vec<u32>>,
    is_base64: bool,
    dimensions: usize,
    model: String,
}

/// Checks a request, of a model whose embeddings have `size` elements.
fn prepare(service: &Service, request: Request, size: usize) -> Result<Prepared, Refusal> {
    let is_base64 = match request.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            return Err(Refusal::of(
                "encoding_format",
                format!("expected `float` or `base64`, got `{}`", shown(other)),
            ));
        }
    };
    let dimensions = request.dimensions.unwrap_or(size);
    if !(1..=size).contains(&dimensions) {
        return Err(Refusal::of("dimensions", format!("expected 1 to {size}, got {dimensions}")));
    }
    let model = model_name(service, request.model)?;
    let prompts = request.input.tokens(&service.tokenizer, "input")?;
    prompts.iter().try_for_each(|prompt| service.check_prompt("input", prompt))?;
    Ok(Prepared { prompts, is_base64, dimensions, model })
}

/// The checks of a body that need no model.
#[cfg(fuzzing)]
pub fn check(body: &[u8]) -> Result<(), Refusal> {
    super::body::parse::<Request>(body).map(|_| ())
}
