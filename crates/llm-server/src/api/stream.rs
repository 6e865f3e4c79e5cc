//! Server-sent events.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::error::Refusal;
use crate::job::Event;

/// A server-sent event.
pub struct Chunk {
    /// Its name, on the routes whose events have one.
    pub name: Option<&'static str>,
    pub json: String,
}

impl From<String> for Chunk {
    fn from(json: String) -> Self {
        Self { name: None, json }
    }
}

/// Serializes the events of a job as JSON.
pub trait Chunks: Send + 'static {
    /// The end of a complete stream. Without it the answer was cut off.
    const END: &'static str = "data: [DONE]\n\n";

    /// The chunks of an event, in order.
    fn of(&mut self, event: Event) -> Result<Vec<Chunk>, Refusal>;

    /// The chunks after the last event.
    fn last(&self) -> Vec<Chunk>;

    /// The chunk of a failure, after which the stream ends.
    fn failed(&mut self, refusal: &Refusal) -> Chunk {
        refusal.json().to_string().into()
    }
}

/// Streams the chunks of `first`, of each event and the last, and then the end that OpenAI's clients wait for. A client that goes away
/// drops the receiver, by which the events are dropped, and the model hears of it.
pub fn respond<C: Chunks>(
    mut events: mpsc::Receiver<Event>,
    answers: usize,
    first: &[Chunk],
    mut chunks: C,
) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let mut text = text_of(first);
    tokio::spawn(async move {
        let mut unfinished = answers;
        loop {
            let event = tokio::select! {
                () = sender.closed() => return,
                event = events.recv() => event,
            };
            let end = match event {
                Some(event) => {
                    unfinished -= usize::from(matches!(event, Event::Finished { .. }));
                    let is_large = matches!(event, Event::Prompt(_));
                    let made = if is_large { beside(|| chunks.of(event)) } else { chunks.of(event) };
                    made.map(|values| text.push_str(&text_of(&values))).err()
                }
                None if unfinished > 0 => Some(Refusal::cut_off()),
                None => break,
            };
            if let Some(refusal) = end {
                text.push_str(&text_of(&[chunks.failed(&refusal)]));
                drop(sender.send(Ok(Bytes::from(text))).await);
                return;
            }
            if !text.is_empty() && sender.send(Ok(Bytes::from(std::mem::take(&mut text)))).await.is_err() {
                return;
            }
        }
        text.push_str(&text_of(&chunks.last()));
        text.push_str(C::END);
        drop(sender.send(Ok(Bytes::from(text))).await);
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(ReceiverStream::new(receiver))).into_response()
}

/// Runs work that may take long. Other tasks of the thread continue in another one meanwhile.
pub fn beside<R>(work: impl FnOnce() -> R) -> R {
    tokio::task::block_in_place(work)
}

fn text_of(chunks: &[Chunk]) -> String {
    let mut text = String::new();
    for Chunk { name, json } in chunks {
        if let Some(name) = name {
            text.push_str("event: ");
            text.push_str(name);
            text.push('\n');
        }
        text.push_str("data: ");
        text.push_str(json);
        text.push_str("\n\n");
    }
    text
}
