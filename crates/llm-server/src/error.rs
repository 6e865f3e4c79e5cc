//! Errors of the server, and error responses.

use std::{fmt, io};

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use rushlight_llm::GenerationOptions;
use rushlight_llm::options::Options as _;
use serde_json::{Value, json};

/// Why a server does not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be listened on, or the system gives no more threads.
    Io { what: String, error: io::Error },
    /// The model makes no session.
    Model(rushlight_llm::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { what, error } => write!(f, "{what}: {error}"),
            Self::Model(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Model(error) => Some(error),
        }
    }
}

/// An answer to a request that fails: an error object as OpenAI's clients read it.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub message: String,
    /// The field of the request that is wrong.
    pub param: Option<&'static str>,
    /// The name of the error by which clients of OpenAI's API recognize it.
    pub code: Option<&'static str>,
}

impl Refusal {
    /// The request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), param: None, code: None }
    }

    /// A field of the request is wrong.
    pub fn of(param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::invalid(message) }
    }

    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, ..Self::invalid(message) }
    }

    /// The request has more tokens than the context. Clients recognize the error by its code or its first words.
    pub fn context_full(tokens: usize, capacity: usize) -> Self {
        let message = format!(
            "this model's maximum context length is {capacity} tokens, and the request has {tokens}: shorten it, or serve the model with \
             a larger --ctx"
        );
        Self { code: Some("context_length_exceeded"), ..Self::invalid(message) }
    }

    /// The answer ended before its end.
    pub fn stopped() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is about to stop")
    }

    /// The model gave an answer up: its client was too slow, or the server is about to stop.
    pub fn cut_off() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the answer was cut off")
    }

    pub fn queue_is_full() -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "the queue is full")
    }

    pub fn timeout() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "the request took longer than the server allows")
    }

    pub fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

/// The answer to a client when the server panicked.
pub(crate) fn defect() -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed at this request")
}

/// Formats a value of a request for an error message, in at most `MAX` bytes.
pub(crate) fn shown(got: impl fmt::Display) -> String {
    /// Maximum number of bytes.
    const MAX: usize = 200;
    let mut text = Shown { text: String::new(), max: MAX };
    // An error means that the text is cut off.
    match fmt::write(&mut text, format_args!("{got}")) {
        Ok(()) => text.text,
        Err(_) => text.text + "…",
    }
}

/// A text that takes no more than `max` bytes.
struct Shown {
    text: String,
    max: usize,
}

impl fmt::Write for Shown {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = self.max.saturating_sub(self.text.len());
        let fits = piece.get(..piece.floor_char_boundary(room)).unwrap_or_default();
        self.text.push_str(fits);
        if fits.len() == piece.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// The name of an option in requests.
fn param(name: &str) -> &'static str {
    GenerationOptions::spec(name).map_or("request", |spec| spec.name)
}

impl From<rushlight_llm::Error> for Refusal {
    fn from(error: rushlight_llm::Error) -> Self {
        use rushlight_llm::Error;
        let message = error.to_string();
        match error {
            Error::ContextFull { position, tokens, capacity } => {
                Self::context_full(position.saturating_add(tokens), capacity)
            }
            Error::Option(error) => Self::of(param(error.name()), message),
            Error::Template(_) => Self::of("messages", message),
            Error::Grammar(_) => Self::of("response_format", message),
            Error::NoTokens
            | Error::ReturnsHiddenStates
            | Error::ReturnsLogits
            | Error::UnknownToken { .. }
            | Error::Tokenizer(_)
            | Error::NotSupported(_) => Self::invalid(message),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.json())).into_response();
        let header = match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "1")),
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
            _ => None,
        };
        let headers = response.headers_mut();
        headers.extend(header.map(|(name, value)| (name, HeaderValue::from_static(value))));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}
