//! Bodies of requests.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use super::tokenize::encode;
use crate::error::Refusal;
use crate::service::Service;

/// The bytes of a request's body, which arrive within the client's time limit. Few requests are prepared at a time, as what they become
/// takes many times their bytes: a handler lets go of its body once the request is in the queue.
pub struct Body {
    bytes: Bytes,
    _preparing: OwnedSemaphorePermit,
}

impl FromRequest<Arc<Service>> for Body {
    type Rejection = Refusal;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Refusal> {
        let bytes = tokio::time::timeout(service.options.client_timeout, Bytes::from_request(request, service)).await;
        let late =
            |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request took longer to arrive than the server allows");
        let bytes = bytes.map_err(late)?.map_err(|rejection| {
            let status = rejection.status();
            let message = match status {
                StatusCode::PAYLOAD_TOO_LARGE => "the request is larger than the server allows".to_owned(),
                _ => rejection.body_text(),
            };
            Refusal::new(status, message)
        })?;
        let preparing = service.preparing.clone().acquire_owned().await.map_err(|_| Refusal::stopped())?;
        Ok(Self { bytes, _preparing: preparing })
    }
}

/// Reads a request, whatever its content type says.
pub fn read<T: DeserializeOwned>(body: &Body) -> Result<T, Refusal> {
    serde_json::from_slice(&body.bytes)
        .map_err(|error| Refusal::invalid(format!("the request is no valid JSON for this route: {error}")))
}

/// One value, or several.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// One prompt or several, as texts or tokens.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a text, texts, tokens or lists of tokens")]
pub enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

/// Maximum number of prompts in a request.
const MAX_PROMPTS: usize = 128;

impl Prompt {
    /// The tokens of all; `param` is the field of the request.
    pub async fn tokens(self, service: &Arc<Service>, param: &'static str) -> Result<Vec<Vec<u32>>, Refusal> {
        let texts = match self {
            Self::Tokens(tokens) if !tokens.is_empty() => return Ok(vec![tokens]),
            Self::TokenLists(lists) if (1..=MAX_PROMPTS).contains(&lists.len()) => return Ok(lists),
            Self::Text(text) => vec![text],
            Self::Texts(texts) if (1..=MAX_PROMPTS).contains(&texts.len()) => texts,
            _ => return Err(Refusal::of(param, format!("expected 1 to {MAX_PROMPTS} texts"))),
        };
        let mut prompts = Vec::with_capacity(texts.len());
        for text in texts {
            prompts.push(encode(service, text, true).await?);
        }
        Ok(prompts)
    }
}
