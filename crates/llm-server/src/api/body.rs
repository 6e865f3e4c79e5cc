//! Bodies of requests.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use rushlight_llm::Tokenizer;
use serde::de::DeserializeOwned;
use tokio_stream::StreamExt;

use crate::error::Refusal;
use crate::fair::Tenant;
use crate::job::Owner;
use crate::open::{Activity, Client};
use crate::preparing::{Permit, Room};
use crate::service::Service;

/// The bytes of a request's body, which arrive within the client's time limit. Few requests are prepared at a time, as their parsed form
/// takes many times their bytes: a handler lets go of the permit once the request is in the queue.
pub struct Body {
    bytes: Vec<u8>,
    pub permit: Permit,
    /// The client of the request.
    pub tenant: Tenant,
    _room: Room,
}

/// The number of the key that a request came with; 0 where there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key(pub usize);

/// Maximum number of values in the JSON of a request. A parsed value takes many times its bytes of text.
const MAX_VALUES: usize = 1 << 19;

/// Minimum bytes of a request that is parsed beside the threads that serve.
const WORTH_A_THREAD: usize = 16 << 10;

impl FromRequest<Arc<Service>> for Body {
    type Rejection = Refusal;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Refusal> {
        let Key(key) = request.extensions().get().copied().unwrap_or_default();
        let client = request.extensions().get::<Client>().copied().unwrap_or_default();
        let tenant = Tenant { key, client };
        let activity = request.extensions().get::<Activity>().cloned();
        let mut room = service.preparing.room(tenant);
        let received = tokio::time::timeout(service.options.client_timeout, receive(request, service, &mut room)).await;
        let late =
            |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request took longer to arrive than the server allows");
        let bytes = received.map_err(late)??;
        if let Some(activity) = activity {
            activity.received();
        }
        let permit = service.preparing.turn(tenant, bytes.len()).await?;
        Ok(Self { bytes, permit, tenant, _room: room })
    }
}

/// Receives the bytes of a request into reserved room.
async fn receive(request: Request, service: &Service, room: &mut Room) -> Result<Vec<u8>, Refusal> {
    let max = service.options.max_body;
    let too_large = || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than the server allows");
    // The header tells the size, so the client is refused before it sends the body.
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    let announced = announced.unwrap_or(0).max(request.body().size_hint().lower());
    if announced > max as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut pieces = request.into_body().into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Refusal::invalid(format!("the request ended before its end: {error}")))?;
        let len = bytes.len() + piece.len();
        if len > max {
            return Err(too_large());
        }
        room.grow(len)?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

impl Body {
    /// Parses a request, regardless of its content type, and frees its bytes.
    pub async fn read<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, Refusal> {
        let bytes = std::mem::take(&mut self.bytes);
        let len = bytes.len();
        let read = move || parse(&bytes);
        if len < WORTH_A_THREAD { read() } else { self.permit.work(read).await }
    }

    /// Makes a job of a parsed request, beside the threads that serve: its parts may be large, and to drop them takes time too.
    pub async fn prepare<T: Send + 'static, R: Send + 'static>(
        &self,
        service: &Arc<Service>,
        request: T,
        prepare: impl FnOnce(&Service, T, Tenant) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let (service, tenant) = (service.clone(), self.tenant);
        self.permit.work(move || prepare(&service, request, tenant)).await
    }
}

/// Returns the owner of a request.
pub fn owner(tenant: Tenant, salt: Option<String>) -> Result<Owner, Refusal> {
    /// Maximum bytes of a salt.
    const MAX_SALT: usize = 1024;
    match &salt {
        Some(salt) if salt.len() > MAX_SALT => {
            let message = format!("expected a text of at most {MAX_SALT} bytes, got {}", salt.len());
            Err(Refusal::of("cache_salt", message))
        }
        _ => Ok(Owner { key: tenant.key, salt }),
    }
}

/// Reads the bytes of a request.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    if count_values(bytes) > MAX_VALUES {
        return Err(Refusal::invalid(format!("the request has more than {MAX_VALUES} values")));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::invalid(format!("the request is no valid JSON for this route: {error}")))
}

/// Counts the commas, colons and opening brackets of a JSON text, outside of strings. The number of values is at most one more.
fn count_values(json: &[u8]) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' | b':' if !is_text => count += 1,
            _ => {}
        }
    }
    count
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

impl Prompt {
    /// The tokens of all, of which there are at most `max`; `param` is the field of the request.
    pub fn tokens(self, tokenizer: &Tokenizer, param: &'static str, max: usize) -> Result<Vec<Vec<u32>>, Refusal> {
        let texts = match self {
            Self::Tokens(tokens) if !tokens.is_empty() => return Ok(vec![tokens]),
            Self::TokenLists(lists) if (1..=max).contains(&lists.len()) => return Ok(lists),
            Self::Text(text) => vec![text],
            Self::Texts(texts) if (1..=max).contains(&texts.len()) => texts,
            _ if max == usize::MAX => return Err(Refusal::of(param, "expected at least one text")),
            _ => return Err(Refusal::of(param, format!("expected 1 to {max} texts"))),
        };
        texts.into_iter().map(|text| Ok(tokenizer.encode(&text, true)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (json, count) in [
            (r#""a,b[c{d:e""#, 0),
            (r#"{"a": [1, 2, 3], "b": "\"],[\\"}"#, 7),
            ("[[],[],[]]", 6),
            ("[0,0,0,0]", 4),
            ("", 0),
        ] {
            assert_eq!(count_values(json.as_bytes()), count, "{json}");
        }
    }
}
