//! `/v1/embeddings`: vectors of texts.

use std::sync::Arc;
use std::time::Instant;
use std::{io, vec};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::body::{Body, Prompt};
use super::head::{TokenCounts, model_name, respond, text};
use crate::embedder::EmbeddingJob;
use crate::error::{Refusal, shown};
use crate::fair::Tenant;
use crate::service::Service;

/// Number of texts that are embedded at a time.
const BATCH: usize = 128;

#[derive(Deserialize)]
struct Request {
    model: Option<String>,
    input: Prompt,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
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
    let end = format!("],\"model\":{},\"usage\":{}}}", text(&model), counts.prompt_json());
    let tenant = body.tenant;
    drop(body);
    let prompts = prompts.into_iter();
    let mut batches = Batches { service, tenant, prompts, is_base64, dimensions, deadline, count: 0 };
    let begin = "{\"object\":\"list\",\"data\":[".to_owned() + &batches.next().await?;
    if batches.prompts.len() == 0 {
        return Ok(respond(begin + &end));
    }
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(batches.send(begin, end, sender));
    let headers = [(CONTENT_TYPE, "application/json")];
    Ok((headers, axum::body::Body::from_stream(ReceiverStream::new(pieces))).into_response())
}

/// The texts of a request, which are embedded in batches. The embeddings of a batch are sent before those of the next but one are
/// computed.
struct Batches {
    service: Arc<Service>,
    tenant: Tenant,
    prompts: vec::IntoIter<Vec<u32>>,
    is_base64: bool,
    dimensions: usize,
    deadline: Instant,
    /// Number of embeddings so far.
    count: usize,
}

impl Batches {
    /// Embeds the next texts. Returns the items of the list as JSON.
    async fn next(&mut self) -> Result<String, Refusal> {
        let prompts = self.prompts.by_ref().take(BATCH).collect();
        let Self { tenant, dimensions, deadline, .. } = *self;
        let job = |embeddings| EmbeddingJob { tenant, prompts, dimensions, deadline, embeddings };
        // Only the first batch asks for a place in the queue, the others wait for one.
        let embeddings = self.service.embed(job, self.count > 0).await?;
        let mut json = String::new();
        for embedding in embeddings {
            if self.count > 0 {
                json.push(',');
            }
            let embedding = if self.is_base64 {
                let bytes: Vec<u8> = embedding.iter().flat_map(|x| x.to_le_bytes()).collect();
                Elements::Base64(STANDARD.encode(&bytes))
            } else {
                Elements::Numbers(embedding)
            };
            json.push_str(&text(&Embedding { object: "embedding", index: self.count, embedding }));
            self.count += 1;
        }
        Ok(json)
    }

    /// Sends a list: its beginning, the other batches, and its end. A failure cuts the response off, because its status has
    /// been sent. A client that goes away drops the receiver.
    async fn send(mut self, begin: String, end: String, sender: mpsc::Sender<Result<Bytes, io::Error>>) {
        let mut piece = begin;
        while self.prompts.len() > 0 {
            if sender.send(Ok(Bytes::from(piece))).await.is_err() {
                return;
            }
            let next = tokio::select! {
                () = sender.closed() => return,
                next = self.next() => next,
            };
            match next {
                Ok(next) => piece = next,
                Err(refusal) => return drop(sender.send(Err(io::Error::other(refusal.message))).await),
            }
        }
        drop(sender.send(Ok(Bytes::from(piece + &end))).await);
    }
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
    let prompts = request.input.tokens(&service.tokenizer, "input", usize::MAX)?;
    prompts.iter().try_for_each(|prompt| service.check_prompt("input", prompt))?;
    Ok(Prepared { prompts, is_base64, dimensions, model })
}

/// The checks of a body that need no model.
#[cfg(fuzzing)]
pub fn check(body: &[u8]) -> Result<(), Refusal> {
    super::body::parse::<Request>(body).map(|_| ())
}
