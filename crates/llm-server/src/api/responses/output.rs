//! Responses as JSON: whole, and as the events of a stream.

use std::sync::Arc;

use axum::http::StatusCode;
use rushlight_llm::FinishReason;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::answer::{Answer, Delta};
use super::super::head::{TokenCounts, new_id, raw, text};
use super::super::stream::{self, Chunk};
use crate::error::Refusal;
use crate::job::Event;
use crate::service::Service;
use crate::tool_calls::ToolCall;

/// The fields of a response that are known from its request. JSON of the request is kept as text: its values would take many times the bytes.
pub struct Description {
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<usize>,
    pub temperature: f32,
    pub top_p: f32,
    pub text: Box<RawValue>,
    pub tools: Box<RawValue>,
    pub tool_choice: Box<RawValue>,
    pub metadata: Box<RawValue>,
}

impl Description {
    /// The whole response.
    pub fn complete(&self, answer: &Answer, tokens: &TokenCounts) -> Result<String, Refusal> {
        let status = Status::of(answer.reason.ok_or_else(Refusal::stopped)?);
        let call = |call| call_json(&new_id("fc_"), &new_id("call_"), Status::Completed.name(), call);
        let mut items = answer.calls.iter().map(call).collect::<Result<Vec<_>, _>>()?;
        if items.is_empty() || !answer.content.trim().is_empty() {
            let content = [Part::of(&answer.content, &answer.scores)];
            items.insert(0, message_json(&new_id("msg_"), status.name(), &content)?);
        }
        Ok(text(&self.response(status, &items, Some(tokens))))
    }

    fn response<'r>(
        &'r self,
        status: Status<'r>,
        output: &'r [Box<RawValue>],
        tokens: Option<&TokenCounts>,
    ) -> Response<'r> {
        let error = match status {
            Status::Failed(refusal) => Some(json!({ "code": error_code(refusal.status), "message": refusal.message })),
            _ => None,
        };
        let is_cut = matches!(status, Status::Incomplete);
        Response {
            id: &self.id,
            object: "response",
            created_at: self.created,
            status: status.name(),
            background: false,
            error,
            incomplete_details: is_cut.then(|| json!({ "reason": "max_output_tokens" })),
            instructions: self.instructions.as_deref(),
            max_output_tokens: self.max_output_tokens,
            model: &self.model,
            output,
            parallel_tool_calls: true,
            previous_response_id: None,
            reasoning: json!({ "effort": null, "summary": null }),
            store: false,
            temperature: self.temperature,
            text: &self.text,
            tool_choice: &self.tool_choice,
            tools: &self.tools,
            top_p: self.top_p,
            truncation: "disabled",
            usage: tokens.map(TokenCounts::response_json),
            metadata: &self.metadata,
        }
    }
}

/// The field `text` of a response: the format that the request asks for.
pub fn text_json(format: Option<&Value>) -> Result<Box<RawValue>, Refusal> {
    match format.filter(|format| !format.is_null()) {
        Some(format) => raw(&json!({ "format": format })),
        None => raw(&json!({ "format": { "type": "text" } })),
    }
}

/// The state of a response.
#[derive(Clone, Copy)]
enum Status<'s> {
    InProgress,
    Completed,
    /// It has as many tokens as it may have.
    Incomplete,
    Failed(&'s Refusal),
}

/// The name of an error: one of those that OpenAI's clients know.
fn error_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
        status if status.is_client_error() => "invalid_prompt",
        _ => "server_error",
    }
}

impl Status<'_> {
    fn of(reason: &str) -> Self {
        if reason == FinishReason::Length.name() { Self::Incomplete } else { Self::Completed }
    }

    fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed(_) => "failed",
        }
    }
}

#[derive(Serialize)]
struct Response<'r> {
    id: &'r str,
    object: &'r str,
    created_at: u64,
    status: &'r str,
    background: bool,
    error: Option<Value>,
    incomplete_details: Option<Value>,
    instructions: Option<&'r str>,
    max_output_tokens: Option<usize>,
    model: &'r str,
    output: &'r [Box<RawValue>],
    parallel_tool_calls: bool,
    previous_response_id: Option<&'r str>,
    reasoning: Value,
    store: bool,
    temperature: f32,
    text: &'r RawValue,
    tool_choice: &'r RawValue,
    tools: &'r RawValue,
    top_p: f32,
    truncation: &'r str,
    usage: Option<Value>,
    metadata: &'r RawValue,
}

/// The text of a message.
#[derive(Serialize)]
struct Part<'p> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'p str,
    annotations: [(); 0],
    logprobs: &'p [Box<RawValue>],
}

impl<'p> Part<'p> {
    fn of(text: &'p str, logprobs: &'p [Box<RawValue>]) -> Self {
        Self { kind: "output_text", text, annotations: [], logprobs }
    }
}

/// The item of a message of the model.
fn message_json(id: &str, status: &str, content: &[Part<'_>]) -> Result<Box<RawValue>, Refusal> {
    #[derive(Serialize)]
    struct Message<'m> {
        id: &'m str,
        #[serde(rename = "type")]
        kind: &'m str,
        status: &'m str,
        role: &'m str,
        content: &'m [Part<'m>],
    }
    raw(&Message { id, kind: "message", status, role: "assistant", content })
}

/// The item of a call. The client answers it by `call_id`.
fn call_json(id: &str, call_id: &str, status: &str, call: &ToolCall) -> Result<Box<RawValue>, Refusal> {
    let ToolCall { name, arguments } = call;
    let arguments = if status == Status::InProgress.name() { "" } else { arguments };
    raw(&json!({
        "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name, "arguments": arguments,
    }))
}

/// A response as events.
pub struct Events {
    service: Arc<Service>,
    description: Description,
    answer: Answer,
    /// Number of events so far.
    count: usize,
    /// The finished items; the message is finished last.
    items: Vec<Option<Box<RawValue>>>,
    message: Option<Message>,
    scores: Vec<Box<RawValue>>,
}

/// A message that is not finished.
#[derive(Clone)]
struct Message {
    id: String,
    /// Its place among the items.
    index: usize,
}

/// An event, with the fields of its kind.
#[derive(Default, Serialize)]
struct Fields<'f> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Response<'f>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<&'f RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_id: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Part<'f>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'f [Box<RawValue>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'f str>,
}

/// The next event, of which there were `count`.
fn event(count: &mut usize, kind: &'static str, fields: Fields<'_>) -> Chunk {
    let sequence_number = *count;
    *count += 1;
    Chunk { name: Some(kind), json: text(&Fields { kind, sequence_number, ..fields }) }
}

impl Events {
    pub fn new(service: Arc<Service>, description: Description, answer: Answer) -> Self {
        Self { service, description, answer, count: 0, items: Vec::new(), message: None, scores: Vec::new() }
    }

    /// The beginning of a response.
    pub fn first(&mut self) -> Vec<Chunk> {
        ["response.created", "response.in_progress"].map(|kind| self.state(kind, Status::InProgress, None)).into()
    }

    /// An event with the whole response.
    fn state(&mut self, kind: &'static str, status: Status<'_>, tokens: Option<&TokenCounts>) -> Chunk {
        let items: Vec<Box<RawValue>> = self.items.iter().flatten().cloned().collect();
        let response = Some(self.description.response(status, &items, tokens));
        event(&mut self.count, kind, Fields { response, ..Fields::default() })
    }

    /// The message, and the events of its beginning if it is new.
    fn message(&mut self, chunks: &mut Vec<Chunk>) -> Result<Message, Refusal> {
        if let Some(message) = &self.message {
            return Ok(message.clone());
        }
        let message = Message { id: new_id("msg_"), index: self.items.len() };
        self.items.push(None);
        let item = message_json(&message.id, Status::InProgress.name(), &[])?;
        let output_index = Some(message.index);
        let fields = Fields { output_index, item: Some(&item), ..Fields::default() };
        chunks.push(event(&mut self.count, "response.output_item.added", fields));
        let fields = Fields { part: Some(Part::of("", &[])), ..in_message(&message) };
        chunks.push(event(&mut self.count, "response.content_part.added", fields));
        self.message = Some(message.clone());
        Ok(message)
    }

    fn add(&mut self, delta: &Delta, chunks: &mut Vec<Chunk>) -> Result<(), Refusal> {
        if !delta.text.is_empty() || !delta.scores.is_empty() {
            let message = self.message(chunks)?;
            let fields = Fields { delta: Some(&delta.text), logprobs: Some(&delta.scores), ..in_message(&message) };
            chunks.push(event(&mut self.count, "response.output_text.delta", fields));
            self.scores.extend_from_slice(&delta.scores);
        }
        delta.calls.iter().try_for_each(|(_, call)| self.call(call, chunks))
    }

    /// Adds a call, which is known as a whole.
    fn call(&mut self, call: &ToolCall, chunks: &mut Vec<Chunk>) -> Result<(), Refusal> {
        let (id, call_id, output_index) = (new_id("fc_"), new_id("call_"), Some(self.items.len()));
        let begun = call_json(&id, &call_id, Status::InProgress.name(), call)?;
        let item = call_json(&id, &call_id, Status::Completed.name(), call)?;
        let of_item = |item| Fields { output_index, item: Some(item), ..Fields::default() };
        let of_call = || Fields { output_index, item_id: Some(&id), ..Fields::default() };
        let arguments = Some(call.arguments.as_str());
        let done = Fields { arguments, name: Some(&call.name), ..of_call() };
        for (kind, fields) in [
            ("response.output_item.added", of_item(&begun)),
            ("response.function_call_arguments.delta", Fields { delta: arguments, ..of_call() }),
            ("response.function_call_arguments.done", done),
            ("response.output_item.done", of_item(&item)),
        ] {
            chunks.push(event(&mut self.count, kind, fields));
        }
        self.items.push(Some(item));
        Ok(())
    }

    /// Ends the message and the response. A response without a call has a message, if only an empty one.
    fn finish(&mut self, tokens: &TokenCounts, chunks: &mut Vec<Chunk>) -> Result<(), Refusal> {
        let status = Status::of(self.answer.reason.ok_or_else(Refusal::stopped)?);
        if self.message.is_some() || self.items.is_empty() {
            let message = self.message(chunks)?;
            let (text, scores) = (self.answer.content.as_str(), self.scores.as_slice());
            let fields = Fields { text: Some(text), logprobs: Some(scores), ..in_message(&message) };
            chunks.push(event(&mut self.count, "response.output_text.done", fields));
            let fields = Fields { part: Some(Part::of(text, scores)), ..in_message(&message) };
            chunks.push(event(&mut self.count, "response.content_part.done", fields));
            let item = message_json(&message.id, status.name(), &[Part::of(text, scores)])?;
            let fields = Fields { output_index: Some(message.index), item: Some(&item), ..Fields::default() };
            chunks.push(event(&mut self.count, "response.output_item.done", fields));
            if let Some(place) = self.items.get_mut(message.index) {
                *place = Some(item);
            }
        }
        let kind = match status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        let end = self.state(kind, status, Some(tokens));
        chunks.push(end);
        Ok(())
    }
}

/// The fields of an event of a message's text.
fn in_message(message: &Message) -> Fields<'_> {
    Fields {
        item_id: Some(&message.id),
        output_index: Some(message.index),
        content_index: Some(0),
        ..Fields::default()
    }
}

impl stream::Chunks for Events {
    /// The last event says that the response is complete.
    const END: &'static str = "";

    fn of(&mut self, event: Event) -> Result<Vec<Chunk>, Refusal> {
        let mut chunks = Vec::new();
        match event {
            Event::Step { step, .. } => {
                let delta = self.answer.push(&self.service.tokenizer, step)?;
                self.add(&delta, &mut chunks)?;
            }
            Event::Finished { reason, usage, cached, .. } => {
                let delta = self.answer.finish(reason.name());
                self.add(&delta, &mut chunks)?;
                let mut tokens = TokenCounts::default();
                tokens.finished(&usage, cached);
                self.finish(&tokens, &mut chunks)?;
            }
            Event::Failed(refusal) => return Err(refusal),
            Event::Prompt(_) => {}
        }
        Ok(chunks)
    }

    fn last(&self) -> Vec<Chunk> {
        Vec::new()
    }

    fn failed(&mut self, refusal: &Refusal) -> Chunk {
        self.state("response.failed", Status::Failed(refusal), None)
    }
}
