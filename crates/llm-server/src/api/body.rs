//! Bodies of requests.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use serde::de::DeserializeOwned;

use crate::error::Refusal;

/// What a handler gets of a body: its bytes, or why there are none.
pub type Body = Result<Bytes, BytesRejection>;

/// Reads a request, whatever its content type says.
pub fn read<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    let bytes = body.map_err(|rejection| {
        let status = rejection.status();
        let message = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "the request is larger than the server allows".to_owned(),
            _ => rejection.body_text(),
        };
        Refusal::new(status, message)
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::invalid(format!("the request is no valid JSON for this route: {error}")))
}

/// One value, or several.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}
